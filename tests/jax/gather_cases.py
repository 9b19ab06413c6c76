"""all_gather and psum_scatter."""

import numpy as np

from casebook import Instead, as_in, data, mapped

DTYPES = ("float64", "bfloat16", "float16", "int64", "int8", "bool")
COUNTS = "psum_scatter counts booleans in int64; JAX refuses them"
NEGATIVE = "negative dimensions work everywhere"


def add_all_gather(book):
    for n in (1, 2, 3, 4, 8):
        book.both(f"{n} replicas", "all_gather", [data(n, 2)])
        book.either(f"{n} replicas, tiled", "all_gather", [data(n, 2)], tiled=True)
    for dimension in (0, 1, 2, -1, -2, -3):
        book.either(f"dimension {dimension}", "all_gather", [data(3, 2, 4)], dimension=dimension)
    for dimension in (0, 1, -1, -2):
        book.either(f"dimension {dimension}, tiled", "all_gather", [data(3, 2, 4)],
                  dimension=dimension, tiled=True)
    for dtype in DTYPES:
        book.either(dtype, "all_gather", [data(2, 3, dtype=dtype)])
    book.either("scalars", "all_gather", [data(4)])
    book.both("empty", "all_gather", [data(2, 0, 3)])
    book.either("list", "all_gather", [data(2, 2), data(2, 3, dtype="int32")], tiled=True)
    book.either("dictionary", "all_gather", [data(2, 2), data(2)], tree="map")
    for tiled in (False, True):
        suffix = ", tiled" if tiled else ""
        for name, groups in (("halves", [[0, 1], [2, 3]]), ("permuted", [[0, 2], [3, 1]]),
                             ("reversed", [[3, 2, 1, 0]]), ("own", [[0], [1], [2], [3]])):
            book.either(f"groups, {name}{suffix}", "all_gather", [data(4, 3)], groups=groups,
                      tiled=tiled)
    book.both("groups and dimension", "all_gather", [data(8, 2, 2)], dimension=1,
              groups=[[7, 0], [1, 6], [5, 2], [3, 4]])


def add_psum_scatter(book):
    for n in (1, 2, 3, 4, 8):
        book.both(f"{n} replicas", "psum_scatter", [data(n, n, 2)])
        book.either(f"{n} replicas, tiled", "psum_scatter", [data(n, 2 * n)], tiled=True)
    for tiled in (False, True):
        suffix = ", tiled" if tiled else ""
        for dimension in (1, -1, -3):
            book.both(f"dimension {dimension}{suffix}", "psum_scatter", [data(2, 2, 2, 2)],
                      dimension=dimension, tiled=tiled,
                      different=None if dimension > 0 else Instead(
                          as_in(mapped("pmap", "psum_scatter", dimension=dimension + 3,
                                       tiled=tiled)), NEGATIVE))
        for name, groups in (("halves", [[0, 1], [2, 3]]), ("permuted", [[0, 2], [3, 1]])):
            book.either(f"groups, {name}{suffix}", "psum_scatter", [data(4, 2)], groups=groups,
                      tiled=tiled)
        book.either(f"groups, one{suffix}", "psum_scatter", [data(4, 4)], groups=[[1, 3, 0, 2]],
                  tiled=tiled)
    book.both("the design's", "psum_scatter", [np.arange(16, dtype="float32").reshape(4, 4)])
    book.both("the design's, tiled", "psum_scatter",
              [np.arange(16, dtype="float32").reshape(4, 4)], tiled=True)
    book.both("the design's, groups", "psum_scatter",
              [np.arange(16, dtype="float32").reshape(4, 4)], tiled=True, groups=[[0, 2], [3, 1]])
    for dtype in DTYPES:
        counts = None
        if dtype == "bool":
            x = data(2, 4, dtype=dtype)
            counts = Instead(lambda _, x=x: [x.sum(0).reshape(2, 2)], COUNTS)
        book.either(dtype, "psum_scatter", [data(2, 4, dtype=dtype)], tiled=True, different=counts)
    book.both("empty", "psum_scatter", [data(2, 2, 0)])
    book.either("list", "psum_scatter", [data(2, 2), data(2, 4, dtype="int32")], tiled=True)


def add_to(book):
    add_all_gather(book)
    add_psum_scatter(book)
