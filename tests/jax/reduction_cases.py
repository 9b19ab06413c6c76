"""psum, pmean, pmax, pmin, pargmax, pargmin, and the numbers: axis_index, axis_size, psum(1)."""

import ml_dtypes
import numpy as np

from casebook import Instead, as_in, data

REDUCTIONS = ("psum", "pmean", "pmax", "pmin")
SIZES = (1, 2, 3, 4, 8)
DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
THIRDS = 1e-6  # XLA multiplies by the rounded third

GROUPS = {"halves": [[0, 1], [2, 3]], "permuted": [[0, 2], [3, 1]], "own": [[0], [1], [2], [3]],
          "one": [[2, 0, 3, 1]]}
UNEQUAL = {"one and three": [[0], [1, 2, 3]], "three and one": [[3, 0, 1], [2]]}

COUNTS = "psum counts booleans in int64, JAX in int32"
FLOAT32_MEAN = "pmean of integers is float32; JAX takes float64 for int64 where x64 is on"
WIDE_MEAN = "pmean sums integers in int64; JAX's sum of int8 wraps around"
ROUNDED_ONCE = "half types are accumulated in float32 and rounded once"
OWN_GROUP = "pmean divides by the size of its own group; JAX by that of the first"
VMAP_GROUPS = "JAX refuses unequal groups under vmap; Lockstep works group by group"
SUBNORMAL = "subnormal numbers are numbers; XLA on the CPU flushes them to 0"
NAN = "NaN if one is NaN, as JAX itself has it under vmap; XLA's all-reduce on the CPU drops it"
INDEX = "an index is int64, as axis_index; JAX has int32"


def as_type(dtype):
    return lambda arrays: [array.astype(dtype) for array in arrays]


def reduced(op, x, groups):
    """The mathematics, group by group."""
    by = {"psum": np.sum, "pmean": np.mean, "pmax": np.max, "pmin": np.min}[op]
    result = np.empty_like(x)
    for group in groups:
        result[group] = by(x[group], axis=0)
    return result


def add_plain(book):
    for op in REDUCTIONS:
        for n in SIZES:
            add = book.both if op == "psum" else book.either
            add(f"{n} replicas", op, [data(n, 3)],
                tolerance=THIRDS if op == "pmean" and n == 3 else None)
        for dtype in DTYPES:
            different = None
            if op == "psum" and dtype == "bool":
                different = Instead(as_type("int64"), COUNTS)
            if op == "pmean" and dtype == "int64":
                different = Instead(as_type("float32"), FLOAT32_MEAN)
            book.either(dtype, op, [data(4, 2, dtype=dtype)], different=different)
        book.either("scalars", op, [data(2)])
        book.both("empty", op, [data(2, 0, 3)])
        book.both("list", op, [data(4, 2), data(4), data(4, 2, dtype="int32")])
        book.either("dictionary", op, [data(2, 2), data(2, 3, step=5)], tree="map")
        book.either("tuple", op, [data(2, 2), data(2, dtype="float64")], tree="pair")


def add_groups(book):
    for op in REDUCTIONS:
        x = data(4, 2)
        for name, groups in GROUPS.items():
            book.either(f"groups, {name}", op, [x], groups=groups)
        for name, groups in UNEQUAL.items():
            own = Instead(lambda _, op=op, groups=groups, x=x: [reduced(op, x, groups)],
                          OWN_GROUP if op == "pmean" else VMAP_GROUPS)
            book.both(f"groups, {name}", op, [x], groups=groups, different=own,
                      tolerance=THIRDS if op == "pmean" else None)
        book.both("groups of eight", op, [data(8)], groups=[[6, 4, 2, 0], [1, 3, 5, 7]])


def add_numbers_that_matter(book):
    """Overflow, rounding, NaN and infinity."""
    book.both("int8 wraps", "psum", [np.array([100, 100], "int8")])
    book.both("int32 wraps", "psum", [np.array([2**31 - 1, 1], "int32")])
    book.both("uint8 wraps", "psum", [np.array([200, 100, 1], "uint8")])
    book.both("int8 beyond", "pmean", [np.array([100, 100], "int8")],
              different=Instead(lambda _: [np.array([100, 100], "float32")], WIDE_MEAN))
    book.both("uint8 beyond", "pmean", [np.array([200, 100], "uint8")],
              different=Instead(lambda _: [np.array([150, 150], "float32")], WIDE_MEAN))
    book.both("int32 beyond", "pmean", [np.array([2**31 - 1, 1], "int32")],
              different=Instead(lambda _: [np.full(2, 2**30, "float32")], WIDE_MEAN))
    book.both("subnormal", "psum", [np.array([1e-40, 1e-40], "float32")],
              different=Instead(lambda _: [np.full(2, np.float32(1e-40) * 2)], SUBNORMAL))
    for name, dtype, first in (("float16", np.float16, 2048),
                               ("bfloat16", ml_dtypes.bfloat16, 256)):
        x = np.array([first, 1, 1, 1], dtype)
        once = np.full(4, first + 3, np.float32).astype(dtype)
        book.both(f"{name} rounds", "psum", [x], different=Instead(lambda _, r=once: [r],
                                                                   ROUNDED_ONCE))
        mean = np.full(4, (first + 3) / 4, np.float32).astype(dtype)
        book.both(f"{name} rounds", "pmean", [x], different=Instead(lambda _, r=mean: [r],
                                                                    ROUNDED_ONCE))
    odd = np.array([[1, np.inf, -np.inf, np.inf], [np.nan, 2, 3, -np.inf]], "float32")
    for op in ("psum", "pmean"):
        book.both("not finite", op, [odd])
    for op in ("pmax", "pmin"):
        whole = getattr(np, {"pmax": "max", "pmin": "min"}[op])(odd, axis=0)
        book.both("not finite", op, [odd], different=Instead(
            lambda _, r=whole: [np.stack([r, r])], NAN))


def add_indices(book):
    wide = Instead(as_type("int64"), INDEX)
    for op in ("pargmax", "pargmin"):
        for n in (1, 2, 3, 8):
            book.either(f"{n} replicas", op, [data(n, 3)], different=wide)
        ties = np.array([[1, 2], [3, 2], [3, 1], [1, 1]], "float32")
        book.both("ties go to the first", op, [ties], different=wide)
        for dtype in ("int32", "float64", "bfloat16"):
            book.either(dtype, op, [data(4, dtype=dtype)], different=wide)

    def with_number(kind, op, **fields):
        return lambda body, x: body.map(
            kind, "i",
            lambda inner, own: inner.mul(own, getattr(inner, op)(**{"as": "float32", **fields})), x)

    for kind in ("pmap", "vmap"):
        for n in SIZES:
            for op in ("axis_index", "axis_size"):
                book.add(f"{op}/{n} replicas/{kind}", [data(n, 2)],
                         with_number(kind, op, axis=["i"]))
        for n in (1, 3, 4):
            book.add(f"psum of a number/{n} replicas/{kind}", [data(n)],
                     with_number(kind, "psum_number", axis=["i"], number=2))
        groups = {"axis": ["i"], "number": 3, "groups": [[0, 2], [3, 1]]}
        book.add(f"psum of a number/groups/{kind}", [data(4)],
                 with_number(kind, "psum_number", **groups),
                 refused=Instead(as_in(with_number("pmap", "psum_number", **groups)),
                                 "JAX refuses this under vmap; Lockstep gives what pmap gives"))


def add_to(book):
    add_plain(book)
    add_groups(book)
    add_numbers_that_matter(book)
    add_indices(book)
