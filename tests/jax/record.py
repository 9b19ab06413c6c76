#!/usr/bin/env python3
"""Records what the real JAX gives for a thousand small programs with named axes, for
replay_test.cpp to compare Lockstep with. Neither the build nor the tests run this.

    tests/jax/record.py            writes cases.json beside this file
    tests/jax/record.py --check    exits with 1 if it would write other bytes

It installs JAX from PyPI into a throw-away environment (Python 3.11 or later) and runs itself
there on 8 host devices.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "support"))
import recording  # noqa: E402

JAX = "0.10.2"
PINNED = [f"jax=={JAX}", f"jaxlib=={JAX}", "numpy==2.4.6", "scipy==1.17.1", "ml_dtypes==0.6.0",
          "opt_einsum==3.4.0"]
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
               "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def inside(is_check):
    import jax
    jax.config.update("jax_enable_x64", True)
    import casebook
    import derivative_cases
    import error_cases
    import exchange_cases
    import gather_cases
    import map_cases
    import ragged_cases
    import reduction_cases
    import shard_map_cases
    import vma_cases

    book = casebook.Casebook()
    for part in (reduction_cases, gather_cases, exchange_cases, ragged_cases, map_cases,
                 shard_map_cases, derivative_cases, error_cases, vma_cases):
        part.add_to(book)
    text = book.text(jax.__version__)
    committed = HERE / "cases.json"
    if is_check:
        same = committed.read_text() == text
        print(f"{committed.name} is {'what JAX gives' if same else 'NOT what JAX gives now'}")
        return 0 if same else 1
    committed.write_text(text)
    print(f"{len(book)} cases, {len(text)} bytes")
    return 0


if __name__ == "__main__":
    recording.main(__file__, __doc__, PINNED, inside, ENVIRONMENT)
