"""Gradients taken inside and outside of maps. Lockstep's rule is pmap's: the gradient of the sum of
all replicas' results."""

import numpy as np

from casebook import Instead, as_in, data
from shard_map_cases import MESH_ORDER, in_mesh_order

NO_RULE = ("JAX has no derivative of this; in Lockstep the gradient goes to the replicas that hold "
           "the extremum, shared equally among ties")
NOT_HERE = "JAX refuses the operation here; Lockstep gives the transpose of what it does"
PMAP_RULE = ("inside a map the gradient is that of the sum of all replicas' results, as pmap and "
             "shard_map with check_vma=False have it; JAX's types make it another with "
             "check_vma=True")
OWN_GROUP = "pmean divides by the size of its own group; JAX by that of the first"
REPLICAS = 4
KINDS = ("pmap", "vmap")


def loss(op, power=2, **fields):
    """op(x ** power) times weights that differ from replica to replica."""
    def function(body, x, w):
        raised = x
        for _ in range(power - 1):
            raised = body.mul(raised, x)
        return body.mul(getattr(body, op)(raised, axis=["i"], **fields), w)
    return function


def inside(kind, function):
    return lambda body, x, w: body.map(kind, "i", lambda inner, a, b: inner.grad(function, a, b),
                                       x, w)


def outside(kind, function):
    return lambda body, x, w: body.grad(
        lambda outer, a, b: outer.map(kind, "i", function, a, b), x, w)


def twice(kind, function):
    """The gradient of the sum of the gradient's squares."""
    def squares(body, a, b):
        gradient = body.grad(function, a, b)
        return body.mul(gradient, gradient)
    return lambda body, x, w: body.map(kind, "i", lambda inner, a, b: inner.grad(squares, a, b),
                                       x, w)


def mixed(kind, function):
    """The derivative by w of what the gradients by x sum up to."""
    return lambda body, x, w: body.grad(lambda outer, b, a: outer.map(
        kind, "i", lambda inner, p, q: inner.grad(function, p, q), a, b), w, x)


LINEAR = {  # name: (operation, shape of the operand, shape of the result, arguments)
    "psum": ("psum", (3,), (3,), {}),
    "psum in groups": ("psum", (3,), (3,), {"groups": [[0, 2], [3, 1]]}),
    "psum in unequal groups": ("psum", (2,), (2,), {"groups": [[0], [3, 2, 1]]}),
    "pmean": ("pmean", (3,), (3,), {}),
    "pmean in groups": ("pmean", (2,), (2,), {"groups": [[3, 0], [2, 1]]}),
    "all_gather": ("all_gather", (2,), (4, 2), {}),
    "all_gather, tiled": ("all_gather", (2, 1), (2, 4), {"dimension": 1, "tiled": True}),
    "all_gather in groups": ("all_gather", (2,), (2, 2), {"groups": [[0, 2], [3, 1]]}),
    "psum_scatter": ("psum_scatter", (4, 2), (2,), {}),
    "psum_scatter, tiled": ("psum_scatter", (2, 4), (2, 1), {"dimension": 1, "tiled": True}),
    "psum_scatter in groups": ("psum_scatter", (2, 2), (2,), {"groups": [[0, 2], [3, 1]]}),
    "all_to_all": ("all_to_all", (4, 2), (4, 2), {"split": 0, "concat": 0}),
    "all_to_all, tiled": ("all_to_all", (4, 2), (1, 8), {"split": 0, "concat": 1, "tiled": True}),
    "all_to_all in groups": ("all_to_all", (2, 2), (2, 2),
                             {"split": 0, "concat": 0, "groups": [[0, 2], [3, 1]]}),
    "ppermute": ("ppermute", (2,), (2,), {"perm": [[0, 1], [1, 2], [2, 3], [3, 0]]}),
    "ppermute, partial": ("ppermute", (2,), (2,), {"perm": [[0, 2], [3, 0]]}),
    "pshuffle": ("pshuffle", (2,), (2,), {"perm": [2, 0, 3, 1]}),
    "pswapaxes": ("pswapaxes", (4, 2), (4, 2), {"dimension": 0}),
}


def add_linear(book):
    for name, (op, shape, result, fields) in LINEAR.items():
        x, w = data(REPLICAS, *shape), data(REPLICAS, *result, step=3)
        for where, program in (("inside", inside), ("outside", outside)):
            for kind in KINDS if where == "inside" else (KINDS[book.turn],):
                book.add(f"grad/{name}/{where} {kind}", [x, w], program(kind, loss(op, **fields)),
                         refused=Instead(as_in(program("pmap", loss(op, **fields))), NOT_HERE))
        book.turn = not book.turn
        kind = KINDS[book.turn]
        book.add(f"grad/{name}/twice {kind}", [x, w], twice(kind, loss(op, power=3, **fields)),
                 refused=Instead(as_in(twice("pmap", loss(op, power=3, **fields))), NOT_HERE))
        book.add(f"grad/{name}/mixed {kind}", [x, w], mixed(kind, loss(op, **fields)),
                 refused=Instead(as_in(mixed("pmap", loss(op, **fields))), NOT_HERE))
    for n in (1, 2, 3, 8):
        for op in ("psum", "pmean"):
            book.add(f"grad/{op}, {n} replicas", [data(n, 2), data(n, 2, step=3)],
                     inside("pmap", loss(op)), tolerance=1e-6 if op == "pmean" and n == 3 else None)


def add_others(book):
    """Where JAX has no value: the mathematics."""
    x, w = data(REPLICAS, 3), data(REPLICAS, 3, step=3)
    x[1] = -x[3]  # ties of the squares
    square = x * x
    for op, extreme in (("pmax", square.max(0)), ("pmin", square.min(0))):
        holds = square == extreme
        gradient = (2 * x * holds * w.sum(0) / holds.sum(0)).astype("float32")
        for where, program in (("inside", inside), ("outside", outside)):
            for kind in ("pmap", "vmap"):
                book.add(f"grad/{op}/{where} {kind}", [x, w], program(kind, loss(op)),
                         instead=Instead(lambda _, g=gradient: [g], NO_RULE))
    source = np.zeros_like(x)
    source[2] = 2 * x[2] * w.sum(0)
    own = w.copy()
    own[1:] = w[1:].sum(0) / 3
    for kind in ("pmap", "vmap"):
        for where, program in (("inside", inside), ("outside", outside)):
            book.add(f"grad/pbroadcast/{where} {kind}", [x, w],
                     program(kind, loss("pbroadcast", source=2)),
                     instead=Instead(lambda _: [source], NOT_HERE))
            book.add(f"grad/pmean in unequal groups/{where} {kind}", [x, w],
                     program(kind, loss("pmean", groups=[[0], [3, 2, 1]])),
                     different=Instead(lambda _: [2 * x * own], OWN_GROUP), tolerance=1e-6)
        book.add(f"grad/pbroadcast/twice {kind}", [x, w],
                 twice(kind, loss("pbroadcast", power=3, source=2)),
                 instead=Instead(lambda _: [9 * source * source * x], NOT_HERE))
        book.add(f"grad/pbroadcast/mixed {kind}", [x, w],
                 mixed(kind, loss("pbroadcast", source=2)),
                 instead=Instead(lambda _: [2 * x[[2] * REPLICAS]], NOT_HERE))


def add_turned(book):
    """all_to_all that turns a dimension into another: its transpose turns it back."""
    x, w = data(REPLICAS, 4, 2), data(REPLICAS, 2, 4, step=3)

    def back(body, a, b):
        return body.map("pmap", "i", lambda inner, p, q: inner.mul(
            inner.scale(p, by=2), inner.all_to_all(q, axis=["i"], split=1, concat=0)), a, b)

    for kind in ("pmap", "vmap"):
        for where, program in (("inside", inside), ("outside", outside)):
            book.add(f"grad/all_to_all, turned/{where} {kind}", [x, w],
                     program(kind, loss("all_to_all", split=0, concat=1)), refused=Instead(
                         as_in(back), "JAX's derivative fails where split and concat differ and "
                         "tiled is false; Lockstep gives the transpose"))


def add_uses(book):
    """As users write them."""
    for n in (1, 2, 4, 8):  # one step of linear regression, loss and gradients averaged
        xs = np.arange(4 * n, dtype="float32").reshape(n, 4)

        def regression(body, w, b, x, y, n=n):
            error = body.sub(body.add(body.mul(x, w), b), y)
            return body.scale(body.sum(body.mul(error, error)), by=0.25)

        def step(inner, w, b, x, y):
            value, dw, db = inner.value_and_grad(regression, [w, b], x, y)
            dw, db = inner.pmean(dw, db, axis=["i"])
            return [inner.pmean(value, axis=["i"]), inner.sub(w, inner.scale(dw, by=0.01)),
                    inner.sub(b, inner.scale(db, by=0.01))]

        def whole(outer, w, b, x, y):
            return outer.scale(outer.map("pmap", "i", lambda inner, *own: inner.pmean(
                regression(inner, *own), axis=["i"]), w, b, x, y, in_axes=[None, None, 0, 0],
                out=None), by=1)

        inputs = [np.float32(1), np.float32(0), xs, 2 * xs + np.float32(0.5)]
        for kind in ("pmap", "vmap"):
            book.add(f"grad/a training step of {n}/{kind}", inputs, lambda body, *v: body.map(
                kind, "i", step, *v, in_axes=[None, None, 0, 0], out=None), tolerance=1e-5)
        book.add(f"grad/outside, broadcast parameters, {n} replicas", inputs,
                 lambda body, w, b, x, y: body.value_and_grad(whole, [w, b], x, y), tolerance=1e-5)
    x, w = data(4, 2), data(4, 2, step=3)
    for kind in ("pmap", "vmap"):
        book.add(f"grad/out none/{kind}", [x], lambda body, a: body.grad(
            lambda outer, b: outer.map(kind, "i", lambda inner, own: inner.psum(
                inner.mul(own, own), axis=["i"]), b, out=None), a))
        book.add(f"grad/a result that is not used/{kind}", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.grad(lambda g, b: [
                g.mul(b, b), g.scale(g.psum(b, axis=["i"]), by=0)], own), a))
        book.add(f"grad/weighted by the index/{kind}", [x], lambda body, a: body.map(
            kind, "i", lambda inner, own: inner.grad(lambda g, b: g.psum(g.mul(
                g.mul(b, b), g.axis_index(axis=["i"], **{"as": "float32"})), axis=["i"]), own), a))
        book.add(f"grad/a tree/{kind}", [x, w], lambda body, a, b: body.map(
            kind, "i", lambda inner, p, q: inner.grad(lambda g, r, s: g.mul(*g.psum(
                g.mul(r, r), g.mul(s, r), axis=["i"])), [p, q]), a, b))
        book.add(f"grad/float64/{kind}", [x.astype("float64"), w.astype("float64")],
                 inside(kind, loss("psum")))
        for other in ("pmap", "vmap"):  # collectives of both axes under one gradient
            def nest(first, second):
                return lambda body, a: body.grad(lambda g, b: g.map(
                    first, "i", lambda outer, p: outer.map(second, "j", lambda inner, q: inner.mul(
                        inner.psum(inner.mul(q, q), axis=["i", "j"]),
                        inner.all_gather(q, axis=["i"])), p), b), a)
            book.add(f"grad/outside {kind} of {other}", [data(2, 3)], nest(kind, other),
                     refused=Instead(as_in(nest("vmap", "vmap")), NOT_HERE))


def add_shard_map(book):
    mesh, grid = {"data": 2, "model": 2}, [["data"], ["model"]]
    x, w = data(4, 4), data(4, 4, step=3)

    def program(function, specs, out, where, vma=None):
        fields = {} if vma is None else {"vma": vma}
        if where == "inside":
            return lambda body, *v: body.shard_map(
                mesh, specs, out, lambda inner, *own: inner.grad(function, *own), *v, **fields)
        return lambda body, *v: body.grad(
            lambda outer, *u: outer.shard_map(mesh, specs, out, function, *u, **fields), *v)

    def over(op, axis, **fields):
        return lambda body, a, b: body.mul(
            getattr(body, op)(body.mul(a, a), axis=axis, **fields), b)

    perm = [[0, 1], [1, 3]]
    turned = over("ppermute", ["data", "model"], perm=in_mesh_order(perm))
    shuffle = [2, 0, 3, 1]
    shuffled = over("pshuffle", ["data", "model"], perm=in_mesh_order(shuffle))
    for name, function, shape, other, reason in (
            ("psum over model", over("psum", ["model"]), (4, 4), None, PMAP_RULE),
            ("psum over both", over("psum", ["data", "model"]), (4, 4), None, PMAP_RULE),
            ("pmean over data", over("pmean", ["data"]), (4, 4), None, PMAP_RULE),
            ("ppermute over both", over("ppermute", ["model", "data"], perm=perm), (4, 4), turned,
             MESH_ORDER),
            ("pshuffle over both", over("pshuffle", ["model", "data"], perm=shuffle), (4, 4),
             shuffled, MESH_ORDER),
            ("all_gather over model", over("all_gather", ["model"], dimension=1, tiled=True),
             (4, 8), None, PMAP_RULE),
            ("psum_scatter over model", over("psum_scatter", ["model"], tiled=True), (2, 4), None,
             PMAP_RULE),
            ("psum_scatter over data", over("psum_scatter", ["data"], dimension=1, tiled=True),
             (4, 2), None, PMAP_RULE),
            ("all_to_all over data", over("all_to_all", ["data"], split=0, concat=1, tiled=True),
             (2, 8), None, PMAP_RULE),
            ("pswapaxes over model", over("pswapaxes", ["model"], dimension=0), (4, 4), None,
             PMAP_RULE)):
        inputs = [x, data(*shape, step=3)]
        for where in ("inside", "outside"):
            same = program(other or function, [grid, grid], [grid], where, vma=False)
            book.add(f"grad/shard_map, {name}/{where}", inputs,
                     program(function, [grid, grid], [grid], where),
                     different=Instead(as_in(same), reason))

    def without_rule(op, gradient, reason, **fields):
        for where in ("inside", "outside"):
            book.add(f"grad/shard_map, {op} over model/{where}", [x, w],
                     program(over(op, ["model"], **fields), [grid, grid], [grid], where),
                     instead=Instead(lambda _: [gradient], reason))

    # Of (data, model, own column): what the two of a row hold, and the sum of their weights.
    held, weights = x.reshape(4, 2, 2), w.reshape(4, 2, 2).sum(1, keepdims=True)
    squares_held = held * held
    for op, extreme in (("pmax", np.max), ("pmin", np.min)):
        holds = squares_held == extreme(squares_held, axis=1, keepdims=True)
        without_rule(op, (2 * held * holds * weights / holds.sum(1, keepdims=True)).reshape(4, 4)
                     .astype("float32"), NO_RULE)
    at_source = 2 * held * weights
    at_source[:, 0] = 0
    without_rule("pbroadcast", at_source.reshape(4, 4), NOT_HERE, source=1)

    def alone(body, a):  # a result that JAX's types know to be the same on all replicas
        return body.psum(body.mul(a, a), axis=["data", "model"])

    book.add("grad/shard_map, psum alone/inside", [x], program(alone, [grid], [grid], "inside"),
             instead=Instead(as_in(program(alone, [grid], [grid], "inside", vma=False)), PMAP_RULE))
    book.add("grad/shard_map, psum alone/outside", [x], program(alone, [grid], [[]], "outside"))
    gathered = over("all_gather", ["model", "data"], tiled=True)
    book.add("grad/shard_map, all_gather over both/outside", [x, data(4, 16, step=3).T.copy()],
             program(gathered, [[["data", "model"]], [["data", "model"]]],
                     [[["data", "model"]]], "outside"))
    own = [["data", "model"]]

    def squares(body, p, a):
        return body.psum(body.sum(body.mul(body.mul(a, a), p)), axis=["data", "model"])

    book.add("grad/shard_map, broadcast parameter/outside", [np.float32(3), data(8)],
             program(squares, [[], own], [[]], "outside"))

    def local(body, p, a):
        return body.mul(body.mul(a, a), p)

    replicas = np.repeat((data(8).reshape(4, 2) ** 2).sum(1, keepdims=True), 2, 1).reshape(8) * 1

    def broadcast_inside(body, p, a):
        return body.shard_map(mesh, [[], own], [own], lambda inner, q, b: inner.add(
            inner.grad(local, q, b), inner.scale(b, by=0)), p, a)

    book.add("grad/shard_map, broadcast parameter/inside", [np.float32(3), data(8)],
             broadcast_inside, different=Instead(lambda _: [replicas], PMAP_RULE))


def add_to(book):
    add_linear(book)
    add_others(book)
    add_turned(book)
    add_uses(book)
    add_shard_map(book)
