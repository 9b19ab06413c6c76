"""JAX's collectives under pmap, over as many CPU host devices as replicas: one process.

jax_collectives.py --version           prints JAX's version
jax_collectives.py REPLICAS FOLDER     all replicas; commands come as for replica 0, see link.py
"""

import os
import sys


def import_jax(devices):
    """JAX reads these when it is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
    import jax
    return jax


class Collectives:
    def __init__(self, jax, replicas):
        self.jax = jax
        self.replicas = replicas
        self.operations = {
            "all_reduce": lambda x: jax.lax.psum(x, "i"),
            "reduce_scatter": lambda x: jax.lax.psum_scatter(x, "i", tiled=True),
            "all_gather": lambda x: jax.lax.all_gather(x, "i", tiled=True),
        }

    def prepare(self, operation, size):
        import numpy as np

        floats = size // 4
        gathers = operation == "all_gather"
        self.input = self.output = None  # the buffers of the operation before
        self.call = self.jax.pmap(self.operations[operation], axis_name="i")
        share = self.jax.pmap(lambda i: (i + 1) * self.jax.numpy.ones(floats // self.replicas if gathers else floats))
        self.input = share(np.arange(self.replicas, dtype=np.float32))  # on the devices already
        self.run(1)
        each = np.arange(1, self.replicas + 1, dtype=np.float32)
        for found in map(np.asarray, (shard.data for shard in self.output.addressable_shards)):
            expected = each.repeat(floats // self.replicas) if gathers else each.sum()
            if not (found == expected).all():
                raise RuntimeError(f"{operation}: the result is wrong")
        return ""

    def barrier(self):
        pass

    def run(self, calls):
        for _ in range(calls):
            self.output = self.call(self.input)
            # Also because several calls at once can wait for each other's threads for ever, where cores are few.
            self.output.block_until_ready()


def main(arguments):
    import link

    if arguments == ["--version"]:
        print(import_jax(1).__version__)
        return
    replicas, folder = int(arguments[0]), arguments[1]
    jax = import_jax(replicas)
    link.serve(Collectives(jax, replicas), folder, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
