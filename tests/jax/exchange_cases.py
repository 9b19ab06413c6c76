"""all_to_all, ppermute, pshuffle, pswapaxes, pbroadcast."""

import numpy as np

from casebook import Instead, as_in, data, mapped

NEGATIVE = "negative dimensions work everywhere"
PARTIAL = "JAX's vmap refuses permutations in which a replica sends or receives nothing"
NO_BROADCAST = "XLA has no pbroadcast on the CPU; the value is psum's of the source's alone"


def add_all_to_all(book):
    for n in (1, 2, 3, 4, 8):
        book.both(f"{n} replicas", "all_to_all", [data(n, n, 2)], split=0, concat=0)
        book.either(f"{n} replicas, tiled", "all_to_all", [data(n, 2 * n)], split=0, concat=0,
                  tiled=True)
    for split, concat in ((0, 1), (1, 0), (1, 1), (2, 0), (0, 2), (1, 2)):
        book.either(f"{split} to {concat}", "all_to_all", [data(2, 2, 2, 2)], split=split,
                  concat=concat)
        book.either(f"{split} to {concat}, tiled", "all_to_all", [data(2, 4, 2, 6)], split=split,
                  concat=concat, tiled=True)
    for split, concat in ((-1, 0), (0, -1)):  # (-2, -1) tiled ends JAX with a segmentation fault
        for tiled in (False, True):
            book.either(f"{split} to {concat}{', tiled' if tiled else ''}", "all_to_all",
                      [data(2, 2, 2)], split=split, concat=concat, tiled=tiled, different=Instead(
                          as_in(mapped("pmap", "all_to_all", split=split % 2, concat=concat % 2,
                                       tiled=tiled)), NEGATIVE))
    for tiled in (False, True):
        suffix = ", tiled" if tiled else ""
        for name, groups in (("halves", [[0, 1], [2, 3]]), ("permuted", [[0, 2], [3, 1]])):
            book.either(f"groups, {name}{suffix}", "all_to_all", [data(4, 2, 3)], split=0, concat=1,
                      groups=groups, tiled=tiled)
        book.either(f"groups, one{suffix}", "all_to_all", [data(4, 4, 1)], split=0, concat=1,
                  groups=[[2, 0, 3, 1]], tiled=tiled)
    for dtype in ("float64", "bfloat16", "int64", "uint8", "bool"):
        book.either(dtype, "all_to_all", [data(2, 2, 3, dtype=dtype)], split=0, concat=0)
    book.either("list", "all_to_all", [data(2, 2), data(2, 4, 2, dtype="int32")], split=0, concat=0,
              tiled=True)
    book.both("empty", "all_to_all", [data(2, 2, 0)], split=0, concat=0)


def add_permutations(book):
    for n in (1, 2, 3, 4, 8):
        ring = [[i, (i + 1) % n] for i in range(n)]
        book.both(f"ring of {n}", "ppermute", [data(n, 2)], perm=ring)
        book.both(f"reversal of {n}", "pshuffle", [data(n, 2)], perm=list(range(n))[::-1])
    for name, perm in (("chain", [[0, 1], [1, 2], [2, 3]]), ("one pair", [[3, 0]]), ("none", []),
                       ("to itself", [[1, 1]]), ("swap", [[0, 3], [3, 0]])):
        x = data(4, 2)

        def zeros_elsewhere(_, perm=perm, x=x):
            result = np.zeros_like(x)
            for source, destination in perm:
                result[destination] = x[source]
            return [result]
        book.both(name, "ppermute", [x], perm=perm, different=Instead(zeros_elsewhere, PARTIAL))
    for dtype in ("float64", "float16", "bfloat16", "int64", "int8", "bool"):
        book.either(dtype, "ppermute", [data(3, 2, dtype=dtype)], perm=[[0, 2], [2, 1], [1, 0]])
    book.either("list", "ppermute", [data(2, 3), data(2, dtype="int32")], perm=[[0, 1], [1, 0]])
    book.either("dictionary", "ppermute", [data(2, 3), data(2)], perm=[[0, 1], [1, 0]], tree="map")
    book.either("scalars", "pshuffle", [data(4)], perm=[2, 0, 3, 1])
    book.either("identity", "pshuffle", [data(3, 2)], perm=[0, 1, 2])
    book.either("list", "pshuffle", [data(3, 2), data(3, dtype="int64")], perm=[1, 2, 0])


def add_swaps_and_broadcasts(book):
    for n in (1, 2, 3, 4):
        book.both(f"{n} replicas", "pswapaxes", [data(n, n, 2)], dimension=0)
    book.both("dimension 1", "pswapaxes", [data(3, 2, 3)], dimension=1)
    book.both("dimension -1", "pswapaxes", [data(3, 2, 3)], dimension=-1, different=Instead(
        as_in(mapped("pmap", "pswapaxes", dimension=1)), NEGATIVE))
    book.both("groups", "pswapaxes", [data(4, 2, 3)], dimension=0, groups=[[0, 2], [3, 1]])
    book.either("list", "pswapaxes", [data(2, 2), data(2, 2, 3, dtype="int32")], dimension=0)

    def from_source(*inputs, source):
        return Instead(lambda _: [np.stack([x[source]] * len(x)) for x in inputs], NO_BROADCAST)

    for n in (1, 2, 3, 8):
        x = data(n, 2)
        book.both(f"{n} replicas", "pbroadcast", [x], source=n - 1,
                  different=from_source(x, source=n - 1))
    for dtype in ("float64", "bfloat16", "int32", "bool"):
        x = data(3, 2, dtype=dtype)
        book.either(dtype, "pbroadcast", [x], source=1, different=from_source(x, source=1))
    x = [data(2, 2), data(2, dtype="int32")]
    book.either("list", "pbroadcast", x, source=0, different=from_source(*x, source=0))
    book.both("not finite elsewhere", "pbroadcast", [np.array([1, np.nan, np.inf], "float32")],
              source=0, different=from_source(np.array([1, np.nan, np.inf], "float32"), source=0))


def add_to(book):
    add_all_to_all(book)
    add_permutations(book)
    add_swaps_and_broadcasts(book)
