"""What is refused. JAX's exception is recorded by its type; Lockstep's message must name things."""

import numpy as np

from casebook import Instead, Raises, data, mapped, value_error

KINDS = ("pmap", "vmap")
EXACT = "Lockstep checks groups and permutations against the axis; this JAX does not here"
FITS = "Lockstep refuses sizes that do not fit under vmap too, where JAX gives something"


def refuse(book, name, inputs, op, reason=EXACT, mentions=None, **fields):
    book.turn = not book.turn
    kind = KINDS[book.turn]
    book.add(f"error/{op}, {name}/{kind}", inputs, mapped(kind, op, **fields),
             different=value_error(reason), mentions=[op] if mentions is None else mentions)


def add_axis_names(book):
    operations = {"psum": {}, "pmean": {}, "pmax": {}, "pmin": {}, "all_gather": {},
                  "psum_scatter": {}, "all_to_all": {"split": 0, "concat": 0},
                  "ppermute": {"perm": [[0, 1]]}, "pshuffle": {"perm": [1, 0]},
                  "pswapaxes": {"dimension": 0}, "pbroadcast": {"source": 0}, "pargmax": {},
                  "pargmin": {}}
    unbound = Instead(Raises("NameError"), "an axis that is not bound is a NameError everywhere")
    for number, (op, fields) in enumerate(operations.items()):
        kind = KINDS[number % 2]
        book.add(f"error/{op}, axis not bound/{kind}", [data(2, 2)], lambda body, x: body.map(
            kind, "i", lambda inner, own: getattr(inner, op)(own, axis=["j"], **fields), x),
            different=unbound, mentions=[op, "'j'", "'i'"])
    for op, fields in (("axis_index", {}), ("axis_size", {}), ("psum_number", {"number": 1})):
        book.add(f"error/{op}, axis not bound", [data(2)], lambda body, x: body.map(
            "pmap", "i", lambda inner, own: inner.mul(own, getattr(inner, op)(
                axis=["j"], **{"as": "float32", **fields})), x),
            different=unbound, mentions=[op.removesuffix("_number"), "'j'", "'i'"])
    for kind in KINDS:
        book.add(f"error/psum, one of two axes not bound/{kind}", [data(2)],
                 lambda body, x: body.map(
                     kind, "i", lambda inner, own: inner.psum(own, axis=["i", "j"]), x),
            different=unbound, mentions=["psum", "'j'"])
        book.add(f"error/psum, one axis twice/{kind}", [data(2)], lambda body, x: body.map(
            kind, "i", lambda inner, own: inner.psum(own, axis=["i", "i"]), x),
            different=value_error("an axis is named once in a call"), mentions=["psum", "'i'"])
        book.add(f"error/psum, no axis/{kind}", [data(2)], lambda body, x: body.map(
            kind, "i", lambda inner, own: inner.psum(own, axis=[]), x),
            different=value_error("a collective is over an axis; JAX returns the operand"),
            mentions=["psum"])
    for op in ("psum", "all_gather", "pmax"):
        book.add(f"error/{op}, outside of any map", [data(2)],
                 lambda body, x: getattr(body, op)(x, axis=["i"]), different=unbound,
                 mentions=[op, "'i'"])
    book.add("error/psum, after its map", [data(2)], lambda body, x: body.psum(body.map(
        "pmap", "i", lambda inner, own: inner.psum(own, axis=["i"]), x), axis=["i"]),
        different=unbound, mentions=["psum", "'i'"])
    book.add("error/psum, in a map beside", [data(2, 2)], lambda body, x: body.map(
        "vmap", "j", lambda inner, own: inner.psum(own, axis=["i"]), body.map(
            "vmap", "i", lambda inner, own: inner.psum(own, axis=["i"]), x)),
        different=unbound, mentions=["psum", "'i'", "'j'"])


def add_groups(book):
    wrong = {"an index is missing": [[0, 1], [2]], "half is missing": [[0, 1]],
             "one index twice": [[0, 1], [1, 2]], "one index twice, all there": [[0, 1, 2], [2, 3]],
             "an index beyond": [[0, 1], [2, 4]], "a negative index": [[0, 1], [2, -1]],
             "an empty group": [[0, 1, 2, 3], []]}
    for name, groups in wrong.items():
        for op in ("psum", "all_gather", "psum_scatter"):
            refuse(book, name, [data(4, 2)], op, groups=groups)
    for name in ("an index is missing", "one index twice"):
        refuse(book, name, [data(4, 2)], "pmax", groups=wrong[name])
        refuse(book, name, [data(4, 2)], "all_to_all", groups=wrong[name], split=0, concat=0)
    for op, fields in (("all_gather", {}), ("psum_scatter", {}),
                       ("all_to_all", {"split": 0, "concat": 0})):
        refuse(book, "unequal groups", [data(4, 2)], op, groups=[[0], [1, 2, 3]], **fields)


def add_permutations(book):
    for name, perm in (("a source twice", [[0, 1], [0, 2]]),
                       ("a destination twice", [[0, 1], [2, 1]]),
                       ("a source beyond", [[4, 0]]), ("a destination beyond", [[0, 4]]),
                       ("a negative source", [[-1, 0]]), ("a negative destination", [[0, -1]])):
        refuse(book, name, [data(4)], "ppermute", perm=perm)
    for name, perm in (("one source twice", [0, 0, 1, 2]), ("too short", [0, 1, 2]),
                       ("too long", [0, 1, 2, 3, 4]), ("beyond", [1, 2, 3, 4])):
        refuse(book, name, [data(4)], "pshuffle", perm=perm)
    for source in (3, -1):
        refuse(book, f"source {source} of 3", [data(3)], "pbroadcast", source=source)


def add_sizes(book):
    def sizes(name, shape, op, **fields):
        for _ in KINDS:
            refuse(book, name, [data(*shape)], op, reason=FITS, **fields)

    sizes("5 on 4", (4, 5), "psum_scatter")
    sizes("6 on 4, tiled", (4, 6), "psum_scatter", tiled=True)
    sizes("4 on groups of 2", (4, 4), "psum_scatter", groups=[[0, 1], [2, 3]])
    sizes("3 on groups of 2, tiled", (4, 3), "psum_scatter", tiled=True,
          groups=[[0, 1], [2, 3]])
    sizes("dimension 2 of 2", (2, 2, 2), "psum_scatter", dimension=2)
    sizes("dimension -3 of 2", (2, 2, 2), "psum_scatter", dimension=-3)
    sizes("a scalar", (2,), "psum_scatter")
    sizes("2 on one replica", (1, 2), "psum_scatter")
    sizes("dimension 3 of 2", (2, 2, 2), "all_gather", dimension=3)
    sizes("dimension -4 of 2", (2, 2, 2), "all_gather", dimension=-4)
    sizes("dimension 2 of 2, tiled", (2, 2, 2), "all_gather", dimension=2, tiled=True)
    sizes("a scalar, tiled", (2,), "all_gather", tiled=True)
    sizes("3 on 4", (4, 3), "all_to_all", split=0, concat=0)
    sizes("6 on 4, tiled", (4, 6), "all_to_all", split=0, concat=0, tiled=True)
    sizes("4 on groups of 2", (4, 4), "all_to_all", split=0, concat=0,
          groups=[[0, 1], [2, 3]])
    sizes("split 2 of 2", (2, 2, 2), "all_to_all", split=2, concat=0)
    sizes("concat 2 of 2", (2, 2, 2), "all_to_all", split=0, concat=2)
    sizes("concat 2 of 2, tiled", (2, 2, 2), "all_to_all", split=0, concat=2, tiled=True)
    sizes("a scalar", (2,), "all_to_all", split=0, concat=0)
    sizes("3 on 2", (2, 3), "pswapaxes", mentions=[], dimension=0)
    sizes("dimension 1 of 1", (2, 2), "pswapaxes", mentions=[], dimension=1)


def add_maps(book):
    def total(inner, *own):
        return inner.psum(own[0], axis=["i"])

    for kind in KINDS:
        def both(name, inputs, program, mentions=(), different=None):
            book.add(f"error/{kind}, {name}", inputs, program,
                     different=different or value_error(FITS), mentions=mentions)
        both("lengths differ", [data(2), data(3)],
             lambda body, a, b: body.map(kind, "i", total, a, b), ["2", "3"])
        both("lengths of a tree differ", [data(2), data(3)],
             lambda body, a, b: body.map(kind, "i", total, [a, b]), ["2", "3"])
        both("in_axes out of range", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, in_axes=[1]), ["1"])
        both("in_axes far negative", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, in_axes=[-2]), ["-2"])
        both("a scalar mapped", [np.float32(1)], lambda body, a: body.map(kind, "i", total, a))
        both("in_axes too few", [data(2), data(2)],
             lambda body, a, b: body.map(kind, "i", total, a, b, in_axes=[0]), ["1", "2"])
        both("in_axes too many", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, in_axes=[0, 0]), ["1", "2"])
        both("nothing mapped, no size", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, in_axes=[None]))
        both("another size than the argument's", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, size=3), ["2", "3"])
        both("out_axes out of range", [data(2)],
             lambda body, a: body.map(kind, "i", total, a, out=1), ["1"])
        both("out_axes too few", [data(2)],
             lambda body, a: body.map(kind, "i", lambda inner, x: [x, x, x], a, out=[0, 1]),
             ["2", "3"])
        both("a gradient of integers", [data(2, dtype="int32")], lambda body, a: body.map(
            kind, "i", lambda inner, x: inner.grad(lambda g, y: g.psum(y, axis=["i"]), x), a),
            ["grad"])


def add_to(book):
    add_axis_names(book)
    add_groups(book)
    add_permutations(book)
    add_sizes(book)
    add_maps(book)
