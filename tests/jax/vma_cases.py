"""shard_map with check_vma in JAX and in Lockstep: what varies over which axes decides gradients."""

import random

import numpy as np

from casebook import Instead, data

DATA, MODEL = [["data"]], [["model"]]
GRID, ACROSS = [["data"], ["model"]], [[], ["model"]]
BOTH = [["data", "model"]]
REPLICATED = []
MESH = {"data": 2, "model": 2}
TOLERANCE = 1e-9
INDEX = {"as": "float64"}
GROUPED = "JAX has no groups with check_vma; in Lockstep results of groups vary over the axis"


def numbers(*shape, step=7):
    return data(*shape, dtype="float64", step=step)


def add(book, name, inputs, specs, out, function, mesh=None, **fields):
    mesh = mesh or MESH
    book.add(f"check_vma/{name}", inputs, lambda body, *x: body.shard_map(
        mesh, specs, out, function, *x, check_vma=True), tolerance=TOLERANCE, **fields)


def add_gradient(book, name, inputs, specs, out, function, mesh=None, **fields):
    """The gradient by the first argument, in the map and through it, and that of its sum."""
    mesh = mesh or MESH
    own = specs[0]

    def through(body, *x):
        return body.shard_map(mesh, specs, out, function, *x, check_vma=True)

    add(book, f"{name}/inside", inputs, specs, [own],
        lambda inner, *x: inner.grad(function, *x), mesh=mesh, **fields)
    add(book, f"{name}/inside, twice", inputs, specs, [own],
        lambda inner, *x: inner.grad(lambda again, *y: again.grad(function, *y), *x), mesh=mesh,
        **fields)
    book.add(f"check_vma/{name}/outside", inputs, lambda body, *x: body.grad(through, *x),
             tolerance=TOLERANCE, **fields)
    book.add(f"check_vma/{name}/outside, twice", inputs, lambda body, *x: body.grad(
        lambda outer, *y: outer.grad(through, *y), *x), tolerance=TOLERANCE, **fields)


def cubed(body, x):
    return body.mul(body.mul(x, x), x)


def add_losses(book):
    """A parameter that replicas share, a batch that they do not."""
    w, x, line = numbers(3), numbers(4, 3, step=5), {"data": 4}

    def loss(body, p, batch):
        return body.sum(body.mul(cubed(body, p), batch))

    losses = {
        "its mean": (lambda body, p, b: body.pmean(loss(body, p, b), axis=["data"])),
        "its sum": (lambda body, p, b: body.psum(loss(body, p, b), axis=["data"])),
        "a sum of parameters alone": (
            lambda body, p, b: body.psum(body.sum(cubed(body, p)), axis=["data"])),
        "a mean of parameters alone": (
            lambda body, p, b: body.pmean(body.sum(cubed(body, p)), axis=["data"])),
        "parameters alone": (lambda body, p, b: body.sum(cubed(body, p))),
        "both": (lambda body, p, b: body.add(
            body.pmean(loss(body, p, b), axis=["data"]), body.sum(cubed(body, p)))),
        "a sum of a sum": (lambda body, p, b: body.psum(cubed(body, body.psum(
            loss(body, p, b), axis=["data"])), axis=["data"])),
        "weighed by index": (lambda body, p, b: body.psum(body.mul(
            body.sum(cubed(body, p)), body.axis_index(axis=["data"], **INDEX)), axis=["data"])),
        "pvary": (lambda body, p, b: body.psum(loss(body, body.pvary(p, axis=["data"]), b),
                                               axis=["data"])),
    }
    for name, function in losses.items():
        add_gradient(book, f"loss, {name}", [w, x], [REPLICATED, DATA], [REPLICATED], function,
                     mesh=line)
    add(book, "loss, not reduced/inside", [w, x], [REPLICATED, DATA], [REPLICATED],
        lambda inner, *own: inner.grad(loss, *own), mesh=line)
    add(book, "loss, not reduced, by what varies/inside", [x, w], [DATA, REPLICATED], [DATA],
        lambda inner, *own: inner.grad(lambda body, b, p: loss(body, p, b), *own), mesh=line)
    add(book, "loss, value and gradient", [w, x], [REPLICATED, DATA], [REPLICATED, REPLICATED],
        lambda inner, *own: inner.value_and_grad(losses["its mean"], *own), mesh=line)


def add_collectives(book):
    """Each operator on what varies over both axes, one, or none."""
    operators = {
        "psum": {}, "pmean": {}, "all_gather": {"tiled": True}, "psum_scatter": {"tiled": True},
        "all_to_all": {"split": 0, "concat": 0, "tiled": True}, "ppermute": {"perm": [[0, 1]]},
        "pshuffle": {"perm": [1, 0]}, "pswapaxes": {"dimension": 0},
    }
    specs = {"both": GRID, "data": DATA, "model": MODEL, "none": REPLICATED}
    shapes = {"both": (4, 4), "data": (4, 2), "model": (4, 2), "none": (2, 2)}
    for op, fields in operators.items():
        for name, spec in specs.items():
            def function(body, x, op=op, fields=fields):
                moved = getattr(body, op)(body.mul(x, x), axis=["model"], **fields)
                index = body.axis_index(axis=["data", "model"], **INDEX)
                return body.psum(body.sum(body.mul(cubed(body, moved), body.add(index, index))),
                                 axis=["data", "model"])
            add_gradient(book, f"{op} of what varies over {name}", [numbers(*shapes[name])], [spec],
                         [REPLICATED], function)
    for op in ("pmax", "pmin"):
        add(book, f"{op}, out as the same everywhere", [numbers(4, 4)], [GRID], [DATA],
            lambda inner, x: getattr(inner, op)(x, axis=["model"]))
        add(book, f"{op} of what does not vary", [numbers(2)], [REPLICATED], [REPLICATED],
            lambda inner, x: getattr(inner, op)(x, axis=["model"]))
    add(book, "axis_index over data, out by data", [numbers(2, 2)], [DATA], [DATA],
        lambda inner, x: inner.mul(x, inner.axis_index(axis=["data"], **INDEX)))
    add(book, "axis_size", [numbers(2, 2)], [REPLICATED], [REPLICATED],
        lambda inner, x: inner.mul(x, inner.axis_size(axis=["data"], **INDEX)))


def add_specs(book):
    """Specs that name no, some and all axes, in and out."""
    shapes = {"none": ((2, 2), REPLICATED), "data": ((4, 2), DATA), "model": ((4, 2), MODEL),
              "across": ((2, 4), ACROSS), "grid": ((4, 4), GRID), "both": ((8, 2), BOTH)}
    for a, (shape, spec) in shapes.items():
        for b, (other_shape, other) in shapes.items():
            def product(body, x, y):
                return body.matmul(body.mul(x, x), y)
            inputs = [numbers(*shape), numbers(*other_shape, step=5)]
            add_gradient(book, f"in by {a} and {b}, out by grid", inputs, [spec, other], [GRID],
                         product)
    for a, (shape, spec) in shapes.items():
        for b, (_, out) in shapes.items():
            add(book, f"in by {a}, out by {b}", [numbers(*shape)], [spec], [out],
                lambda inner, x: inner.scale(x, by=2))


def add_parallel(book):
    """Tensor parallelism, and a pipeline, in data parallelism."""
    x, w1, w2 = numbers(4, 3), numbers(3, 4, step=5), numbers(4, 2, step=3)
    specs = [ACROSS, MODEL]

    def block(body, first, second, batch):
        hidden = cubed(body, body.matmul(batch, first))
        return body.psum(body.matmul(hidden, second), axis=["model"])

    def loss(body, first, second, batch):
        y = block(body, first, second, batch)
        return body.pmean(body.sum(body.mul(y, y)), axis=["data"])

    def step(body, first, second, batch):
        return body.value_and_grad(lambda inner, p, q, b: loss(inner, p, q, b), [first, second],
                                   batch)

    book.add("check_vma/tensor parallel in data parallel/inside", [w1, w2, x],
             lambda body, *v: body.shard_map(MESH, [*specs, DATA], [REPLICATED, *specs], step, *v,
                                             check_vma=True), tolerance=TOLERANCE)
    book.add("check_vma/tensor parallel in data parallel/outside", [w1, w2, x],
             lambda body, *v: body.value_and_grad(lambda outer, p, q, b: outer.shard_map(
                 MESH, [*specs, DATA], [REPLICATED], loss, p, q, b, check_vma=True),
                 [v[0], v[1]], v[2]), tolerance=TOLERANCE)

    # Stage s has matrix s; two batches go through in three ticks.
    stages = numbers(4, 2, step=5)
    batches = numbers(8, 2)

    def pipeline(body, matrix, batch):
        stage = body.axis_index(axis=["model"], **INDEX)
        first = body.sub(body.axis_size(axis=["data"], **INDEX), body.add(stage, body.axis_size(
            axis=["data"], **INDEX)))  # minus the index: 0 on the first stage, -1 on the last
        keep = body.add(first, body.scale(body.axis_size(axis=["model"], **INDEX), by=0.5))
        carried = body.scale(body.mul(batch, keep), by=1)
        for _ in range(2):
            done = cubed(body, body.matmul(carried, matrix))
            moved = body.ppermute(done, axis=["model"], perm=[[0, 1]])
            carried = body.add(body.mul(batch, keep), moved)
        result = body.matmul(carried, matrix)
        y = body.psum(body.mul(result, stage), axis=["model"])
        return body.pmean(body.sum(body.mul(y, y)), axis=["data"])

    add_gradient(book, "a pipeline in data parallelism", [stages, batches], [MODEL, DATA],
                 [REPLICATED], pipeline)


def add_refusals(book):
    def refuse(name, inputs, specs, out, function, mentions, **fields):
        add(book, name, inputs, specs, out, function, mentions=mentions, **fields)

    refuse("a psum is missing", [numbers(4)], [DATA], [REPLICATED],
           lambda inner, x: inner.scale(x, by=2), ["'data'", "psum"])
    refuse("gathered, and said to be the same", [numbers(4)], [DATA], [REPLICATED],
           lambda inner, x: inner.all_gather(x, axis=["data"], tiled=True), ["'data'"])
    refuse("summed over the wrong axis", [numbers(4, 4)], [GRID], [MODEL],
           lambda inner, x: inner.psum(x, axis=["model"]), ["'data'"])
    refuse("an index, said to be the same", [numbers(4)], [REPLICATED], [REPLICATED],
           lambda inner, x: inner.mul(x, inner.axis_index(axis=["model"], **INDEX)), ["'model'"])
    refuse("the same by its values alone", [np.ones(4)], [DATA], [REPLICATED],
           lambda inner, x: inner.scale(x, by=2), ["'data'"])
    refuse("psum over an axis that it varies over and one that it does not", [numbers(4)], [DATA],
           [REPLICATED], lambda inner, x: inner.psum(x, axis=["data", "model"]),
           ["'data'", "'model'"])
    refuse("pvary of what varies", [numbers(4)], [DATA], [DATA],
           lambda inner, x: inner.pvary(x, axis=["data"]), ["'data'"])
    add(book, "psum in groups", [numbers(4)], [DATA], [DATA], lambda inner, x: inner.psum(
        x, axis=["data"], groups=[[0], [1]]), refused=Instead(lambda _: [numbers(4)], GROUPED))


def random_function(dice, values):
    """A function of so many values of one shape, as a list of steps to take."""
    steps = []
    for _ in range(dice.randint(4, 9)):
        op = dice.choice(["add", "sub", "mul", "mul", "scale", "psum", "pmean", "ppermute",
                          "all_gather", "all_to_all", "index", "pmax"])
        picks = (dice.randrange(100), dice.randrange(100))
        steps.append((op, picks, dice.choice([["data"], ["model"], ["data", "model"]])))

    def function(body, *x):
        known = list(x)
        for op, (i, j), axis in steps:
            a, b = known[-1 - i % len(known)], known[j % len(known)]
            one = axis[:1]
            if op in ("add", "sub", "mul"):
                new = getattr(body, op)(a, b)
            elif op == "scale":
                new = body.scale(a, by=0.5)
            elif op in ("psum", "pmean"):
                new = getattr(body, op)(a, axis=axis)
            elif op == "pmax":  # JAX has no derivative for it: of a number that has none
                new = body.mul(a, body.pmax(body.axis_index(axis=one, **INDEX), axis=one))
            elif op == "ppermute":
                new = body.ppermute(a, axis=one, perm=[[0, 1], [1, 0]])
            elif op == "all_gather":
                new = body.sum_over(body.all_gather(a, axis=one), dimension=0)
            elif op == "all_to_all":
                new = body.all_to_all(a, axis=one, split=0, concat=1, tiled=True)
                new = body.all_to_all(new, axis=one, split=1, concat=0, tiled=True)
            else:
                new = body.mul(a, body.axis_index(axis=axis, **INDEX))
            known.append(new)
        return known[-1]
    return function


def add_random(book):
    choices = [((2, 2), REPLICATED), ((4, 2), DATA), ((4, 2), MODEL), ((2, 4), ACROSS),
               ((4, 4), GRID), ((8, 2), BOTH)]
    for seed in range(160):
        dice = random.Random(seed)
        picked = [dice.choice(choices) for _ in range(dice.randint(1, 3))]
        inputs = [numbers(*shape, step=step) for (shape, _), step in zip(picked, (7, 5, 3))]
        specs = [spec for _, spec in picked]
        function = random_function(dice, len(picked))
        out = dice.choice([GRID, GRID, BOTH, DATA, MODEL, REPLICATED])

        def through(body, *x):
            return body.shard_map(MESH, specs, [out], function, *x, check_vma=True)

        def inside(body, *x):
            return body.shard_map(MESH, specs, [specs[0]], lambda inner, *y: inner.grad(
                function, *y), *x, check_vma=True)

        program = [through, inside, lambda body, *x: body.grad(through, *x),
                   lambda body, *x: body.grad(inside, *x)][seed % 4]
        book.add(f"check_vma/random {seed}", inputs, program, tolerance=TOLERANCE)


def add_to(book):
    add_losses(book)
    add_collectives(book)
    add_specs(book)
    add_parallel(book)
    add_refusals(book)
    add_random(book)
