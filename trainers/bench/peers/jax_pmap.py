"""JAX under pmap, over as many CPU host devices as replicas: one process.

jax_pmap.py --version           prints JAX's version
jax_pmap.py REPLICAS FOLDER     all replicas; commands come as for replica 0, see link.py
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


class Mapped:
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

        if operation == "vdot":
            return self._prepare_vdot(np, size // 4)
        floats = size // 4
        gathers = operation == "all_gather"
        self.inputs = self.output = None  # the buffers of the operation before
        self.mapped = self.jax.pmap(self.operations[operation], axis_name="i")
        share = self.jax.pmap(lambda i: (i + 1) * self.jax.numpy.ones(floats // self.replicas if gathers else floats))
        self.inputs = (share(np.arange(self.replicas, dtype=np.float32)),)  # on the devices already
        self.call()
        each = np.arange(1, self.replicas + 1, dtype=np.float32)
        for found in map(np.asarray, (shard.data for shard in self.output.addressable_shards)):
            expected = each.repeat(floats // self.replicas) if gathers else each.sum()
            if not (found == expected).all():
                raise RuntimeError(f"{operation}: the result is wrong")
        return ""

    def _prepare_vdot(self, np, floats):
        jax = self.jax
        self.mapped = jax.pmap(lambda x, y: jax.lax.psum(jax.numpy.vdot(x, y), "i"), axis_name="i")
        random = np.random.default_rng(0)
        arrays = [random.random((self.replicas, floats // 3 // self.replicas, 3), np.float32) for _ in range(2)]
        to_devices = jax.pmap(lambda x: x * 1)
        self.inputs = [to_devices(array) for array in arrays]
        self.call()
        expected = np.vdot(*(array.astype(np.float64) for array in arrays))
        found = float(self.output[0])
        error = abs(found / expected - 1)
        if not error <= 1e-3:
            raise RuntimeError(f"vdot: the result is {found} where float64 gives {expected}")
        return f"the result differs from float64's by {error:g} of it"

    def call(self):
        self.output = self.mapped(*self.inputs)
        # Also because several calls at once can wait for each other's threads for ever, where cores are few.
        self.output.block_until_ready()


def main(arguments):
    import link

    if arguments == ["--version"]:
        print(import_jax(1).__version__)
        return
    replicas, folder = int(arguments[0]), arguments[1]
    jax = import_jax(replicas)
    link.serve(Mapped(jax, replicas), folder, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
