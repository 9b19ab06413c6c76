"""pmap and vmap themselves, and maps inside maps whose functions reach the outer axes."""

import numpy as np

import vocabulary
from casebook import Instead, as_in, data, mapped, value_error

NESTS = (("pmap", "vmap"), ("vmap", "vmap"), ("vmap", "pmap"), ("pmap", "pmap"))
REFUSED = "JAX refuses this nest; Lockstep gives what one map over both axes gives"
NO_NESTED_PMAP = "JAX's pmap does not nest any more; Lockstep gives what JAX's vmaps give"
NEGATIVE = "JAX's pmap refuses negative axes; Lockstep counts from the end"
INDEX = "an index is int64, as axis_index; JAX has int32"
TWO_NAMES = "JAX refuses several names here; Lockstep takes the row-major index over them"
FIRST = "out_axes of std::nullopt gives replica 0's, as pmap has it"


def add_axes(book):
    x, y = data(3, 4, 2), data(2, 3, step=5)

    def program(kind, in_axes, out):
        def function(inner, own, other):
            return [inner.psum(own, axis=["i"]), inner.mul(own, inner.sum(other))]
        return lambda body, a, b: body.map(kind, "i", function, a, b, in_axes=in_axes, out=out)

    for kind in ("pmap", "vmap"):
        for in_axes, out in (([0, 1], 0), ([1, None], 0), ([2, 0], [0, 1]), ([None, 0], [1, 2]),
                             ([-1, 0], [-1, 0]), ([-3, -1], [-1, -2]), ([0, None], 1)):
            book.add(f"{kind}/in {in_axes} out {out}", [x, y], program(kind, in_axes, out),
                     refused=Instead(as_in(program("vmap", in_axes, out)), NEGATIVE))
        book.add(f"{kind}/out none", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.psum(own, axis=["i"]), a, out=None))
        book.add(f"{kind}/out none, replicas differ", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.scale(own, by=2), a, out=None),
            different=Instead(lambda _: [x[0] * 2], FIRST))
        book.add(f"{kind}/out none of two", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: [inner.pmean(own, axis=["i"]), own], a, out=[None, 1]),
            tolerance=1e-6)
        book.add(f"{kind}/an argument is a tree", [x, data(3), y], lambda body, a, b, c: body.map(
            kind, "i", lambda inner, p, q, r: [inner.mul(p, q), inner.psum(r, axis=["i"])],
            [a, b], c, in_axes=[0, None]))
        book.add(f"{kind}/a static argument", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own, number: inner.psum(inner.mul(own, number), axis=["i"]), a,
            static=2.5))
        book.add(f"{kind}/axis size given", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.psum(own, axis=["i"]), a, size=3))
        for n in (1, 2, 3, 4):
            book.add(f"{kind}/scaled sum over {n}", [np.arange(n, dtype="float32")],
                     lambda body, a: body.map(kind, "i", lambda inner, own: inner.psum(
                         inner.scale(own, by=2), axis=["i"]), a))
        book.add(f"{kind}/several collectives", [data(4, 4)], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.all_gather(
                inner.psum_scatter(inner.psum(own, axis=["i"]), axis=["i"], tiled=True),
                axis=["i"], tiled=True), a))
        book.add(f"{kind}/one after the other", [data(3, 2)], lambda body, a: body.map(
            kind, "j", lambda inner, own: inner.pmax(own, axis=["j"]),
            body.map(kind, "i", lambda inner, own: inner.psum(own, axis=["i"]), a)))


def nest(kinds, op, **fields):
    return lambda body, *x: body.map(
        kinds[0], "i", lambda outer, *own: outer.map(
            kinds[1], "j", lambda inner, *part: getattr(inner, op)(*part, **fields), list(own)),
        list(x))


def flat(op, axis, x, **fields):
    """The same by one map over all replicas in the order of the names: x is (i, j, …)."""
    def outcome(_):
        swapped = axis == ["j", "i"]
        array = x.swapaxes(0, 1) if swapped else x
        body = vocabulary.write(mapped("pmap", op, **fields), 1)
        result = vocabulary.run(body, [array.reshape(-1, *x.shape[2:])])[0]
        result = np.asarray(result).reshape(*array.shape[:2], *result.shape[1:])
        return [result.swapaxes(0, 1) if swapped else result]
    return outcome


TUPLES = {  # operation: shape of the operand with six replicas, its arguments
    "psum": ((2,), {}),
    "pmax": ((2,), {}),
    "pmin": ((), {}),
    "pmean": ((2,), {}),
    "all_gather": ((2,), {"tiled": True}),
    "psum_scatter": ((6,), {}),
    "all_to_all": ((6, 1), {"split": 0, "concat": 1}),
    "ppermute": ((2,), {"perm": [[0, 1], [1, 2], [2, 3], [5, 0]]}),
    "pshuffle": ((), {"perm": [5, 3, 1, 0, 2, 4]}),
    "pswapaxes": ((6,), {"dimension": 0}),
}


def add_tuples(book):
    for op, (shape, fields) in TUPLES.items():
        for axis in (["i", "j"], ["j", "i"]):
            book.turn = not book.turn
            for kinds in NESTS[book.turn::2]:  # every other one
                x = data(2, 3, *shape)
                book.add(f"{op}/over {' '.join(axis)}/{' of '.join(kinds)}", [x],
                         nest(kinds, op, axis=axis, **fields), different=Instead(
                             flat(op, axis, x, **fields), REFUSED),
                         tolerance=1e-6 if op == "pmean" else None)
    x = data(2, 3, 2)
    for axis, turned in ((["i", "j"], x), (["j", "i"], x.swapaxes(0, 1))):
        flat_x = turned.reshape(6, 2)
        for kinds in NESTS[:3]:
            for op, fields, result in (("pargmax", {}, flat_x.argmax(0)),
                                       ("pargmin", {}, flat_x.argmin(0)),
                                       ("pbroadcast", {"source": 4}, flat_x[4])):
                book.add(f"{op}/over {' '.join(axis)}/{' of '.join(kinds)}", [x],
                         nest(kinds, op, axis=axis, **fields), instead=Instead(
                             lambda _, r=result: [np.broadcast_to(r, x.shape)], TWO_NAMES))
    x, groups = data(2, 2, 2), [[0, 3], [2, 1]]
    for kinds in NESTS:
        book.add(f"psum/groups over i j/{' of '.join(kinds)}", [x],
                 nest(kinds, "psum", axis=["i", "j"], groups=groups),
                 different=Instead(flat("psum", ["i", "j"], x, groups=groups), REFUSED))
        for axis in (["i", "j"], ["j", "i"]):
            def indices(body, a, kinds=kinds, axis=axis):
                return body.map(kinds[0], "i", lambda outer, own: outer.map(
                    kinds[1], "j", lambda inner, part: [
                        inner.add(part, inner.axis_index(axis=axis, **{"as": "float32"})),
                        inner.mul(part, inner.axis_size(axis=axis, **{"as": "float32"}))], own), a)
            x3 = data(2, 3)
            places = np.arange(6).reshape(2, 3) if axis[0] == "i" else np.arange(6).reshape(3, 2).T
            book.add(f"axis_index and axis_size/over {' '.join(axis)}/{' of '.join(kinds)}", [x3],
                     indices, different=Instead(
                         lambda _, p=places: [x3 + p.astype("float32"), x3 * 6], REFUSED))


SINGLE = {  # over the axis of two replicas
    "psum": ((2,), {}),
    "pmean": ((2,), {}),
    "all_gather": ((2,), {}),
    "psum_scatter": ((2, 2), {"tiled": True}),
    "all_to_all": ((2, 2), {"split": 0, "concat": 1}),
    "ppermute": ((2,), {"perm": [[0, 1], [1, 0]]}),
    "pargmax": ((2,), {}),
}


def add_nests(book):
    for op, (shape, fields) in SINGLE.items():
        for number, axis in enumerate(("i", "j")):
            for kinds in NESTS[number::2]:
                def indices(arrays, op=op, shape=shape, fields=fields, axis=axis):
                    body = vocabulary.write(nest(("vmap", "vmap"), op, axis=[axis], **fields), 1)
                    arrays = arrays or vocabulary.run(body, [data(2, 2, *shape)])
                    return [np.asarray(a).astype("int64" if op == "pargmax" else a.dtype)
                            for a in arrays]
                book.add(f"{op}/over {axis}/{' of '.join(kinds)}", [data(2, 2, *shape)],
                         nest(kinds, op, axis=[axis], **fields), different=Instead(
                             indices, INDEX if op == "pargmax" and kinds != ("pmap", "pmap")
                             else NO_NESTED_PMAP))

    def three(kinds):  # every depth reaches every axis above it
        return lambda body, a: body.map(kinds[0], "i", lambda first, x: first.map(
            kinds[1], "j", lambda second, y: second.map(kinds[2], "k", lambda third, z: [
                third.psum(z, axis=["i", "k"]), third.pmax(z, axis=["j"]),
                third.all_gather(z, axis=["i"])], y), first.add(x, first.psum(x, axis=["i"]))), a)

    for kinds in (("vmap",) * 3, ("pmap", "vmap", "vmap"), ("vmap", "pmap", "vmap"),
                  ("pmap", "pmap", "pmap"), ("pmap", "pmap", "vmap")):
        book.add(f"three deep/{' of '.join(kinds)}", [data(2, 2, 2)], three(kinds),
                 refused=Instead(as_in(three(("vmap",) * 3)), NO_NESTED_PMAP))

    def between(kinds):  # collectives of the outer map before and after the inner one
        def outer(first, x):
            total = first.psum(x, axis=["i"])
            inner = first.map(kinds[1], "j", lambda second, y, z: second.add(
                second.psum(y, axis=["j"]), second.mul(z, second.psum(y, axis=["i"]))), x, total)
            return first.pmean(inner, axis=["i"])
        return lambda body, a: body.map(kinds[0], "i", outer, a)

    for kinds in NESTS:
        book.add(f"between maps/{' of '.join(kinds)}", [data(2, 4, 3)], between(kinds),
                 refused=Instead(as_in(between(("vmap", "vmap"))), NO_NESTED_PMAP))
        book.add(f"one name twice/{' of '.join(kinds)}", [data(2, 2)], lambda body, a: body.map(
            kinds[0], "i", lambda outer, x: outer.map(
                kinds[1], "i", lambda inner, y: inner.psum(y, axis=["i"]), x), a),
            different=value_error("one name is one axis: Lockstep does not let an inner map hide "
                                  "an outer one"), mentions=["'i'"])


def add_to(book):
    add_axes(book)
    add_tuples(book)
    add_nests(book)
