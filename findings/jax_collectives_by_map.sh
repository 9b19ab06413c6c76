#!/usr/bin/env bash
# JAX 0.10.2 (PyPI, CPU), Python 3.11.
# Behaviour: the same collective over the same values gives other results in pmap than in vmap. pmax drops a NaN in pmap alone;
#   psum of bfloat16 is rounded at each addition in vmap alone, and that of float16 in both.
# A good guess: a program with named axes computes the same whichever map binds them.
# Cause: pmap's are XLA's all-reduce between devices, whose maximum is a comparison and which widens bfloat16, but not float16;
#   vmap's are XLA's reduction within one array.
# Seen:
#   pmax 1 nan: pmap 1.0, vmap nan
#   psum bfloat16 256 1 1 1: pmap 260.0, vmap 256.0
#   psum float16 2048 1 1 1: pmap 2048.0, vmap 2048.0
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q jax==0.10.2 jaxlib==0.10.2 ml_dtypes==0.6.0
cat >maps.py <<'END'
import jax
import ml_dtypes
import numpy
from jax import lax


def both(name, operator, values, dtype):
    results = []
    for kind in (jax.pmap, jax.vmap):
        reduced = kind(lambda x: operator(x, "i"), axis_name="i")(numpy.array(values, dtype))
        results.append(f"{kind.__name__} {float(reduced[0])}")
    print(f"{name}: {', '.join(results)}")


both("pmax 1 nan", lax.pmax, [1, float("nan")], numpy.float32)
both("psum bfloat16 256 1 1 1", lax.psum, [256, 1, 1, 1], ml_dtypes.bfloat16)
both("psum float16 2048 1 1 1", lax.psum, [2048, 1, 1, 1], numpy.float16)
END
JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 venv/bin/python -W ignore maps.py | tee seen
diff seen - <<'END'
pmax 1 nan: pmap 1.0, vmap nan
psum bfloat16 256 1 1 1: pmap 260.0, vmap 256.0
psum float16 2048 1 1 1: pmap 2048.0, vmap 2048.0
END
