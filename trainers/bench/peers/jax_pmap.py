"""JAX under pmap, over as many CPU host devices as replicas, or jitted under vmap over lanes: one process, see link.main()."""

import os

import link


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
        if operation in ("lanes", "psum"):
            return self._prepare_lanes(np, operation, size)
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

    def _prepare_lanes(self, np, operation, lanes):
        """As ../systems/maps.cpp."""
        jax = self.jax
        random = np.random.default_rng(0)
        matrix = 0.1 * random.random((64, 64), np.float32)
        vectors = random.random((lanes, 64), np.float32)

        def of_lane(vector):
            values = jax.numpy.tanh(matrix @ vector)
            return values - jax.lax.psum(values, "lane") if operation == "psum" else values

        self.mapped = jax.jit(jax.vmap(of_lane, axis_name="lane"))
        self.inputs = (jax.device_put(vectors),)
        self.call()
        expected = np.tanh(vectors @ matrix.T)
        if not np.allclose(self.output, expected - expected.sum(0) if operation == "psum" else expected, 1e-4, 1e-4):
            raise RuntimeError(f"{operation}: the result is wrong")
        return ""

    def call(self):
        self.output = self.mapped(*self.inputs)
        # Also because several calls at once can wait for each other's threads for ever, where cores are few.
        self.output.block_until_ready()


if __name__ == "__main__":
    link.main(lambda name, rank, replicas, folder: Mapped(import_jax(replicas), replicas), lambda: import_jax(1).__version__)
