"""ragged_all_to_all: values, gradients, refusals. XLA has none on the CPU: JAX gives no value, and
its exception is not of the program's making unless the arguments' types are wrong."""

import numpy as np

from casebook import Instead, Raises, data

NO_RAGGED = "XLA has no ragged_all_to_all on the CPU; the value is what its documentation says"
NO_SLOPE = ("XLA has no ragged_all_to_all on the CPU; the gradient is the transpose of what its "
            "documentation says")
REFUSED = "Lockstep checks the tables against each other; in JAX it is undefined what comes of them"
KINDS = ("pmap", "vmap")
PAIRS = [[0, 2], [3, 1]]
TWO = np.array([[1, 2], [3, 0]])  # [source][destination]
FOUR = np.array([[0, 1, 2, 0], [1, 1, 1, 1], [3, 0, 0, 1], [0, 0, 0, 0]])


def plan(counts, groups=None):
    """The tables of an exchange of counts[replica][slot] rows, where slots j m to j m + m-1 are for
    member j of the group: pieces lie behind each other at the sender, and by sender at the
    receiver."""
    groups = groups or [range(len(counts))]
    pieces = counts.shape[1] // len(groups[0])
    at_receiver, received = np.zeros_like(counts), np.zeros_like(counts)
    for group in groups:
        for d, destination in enumerate(group):
            row = 0
            for s, source in enumerate(group):
                for piece in range(pieces):
                    count = counts[source, d * pieces + piece]
                    at_receiver[source, d * pieces + piece] = row
                    received[destination, s * pieces + piece] = count
                    row += count
    starts = np.cumsum(counts, axis=1) - counts
    return [x.astype("int32") for x in (starts, counts, at_receiver, received)]


def exchanged(operand, output, tables, groups=None):
    """Replica group[s] sends its slice [input_offsets[d], + send_sizes[d]) to group[d], which puts
    it at output_offsets[d] of s: offsets on the receiver."""
    starts, counts, at_receiver, _ = tables
    result = output.copy()
    for group in groups or [range(len(operand))]:
        pieces = counts.shape[1] // len(group)
        for source in group:
            for slot, count in enumerate(counts[source]):
                start, to = starts[source][slot], at_receiver[source][slot]
                result[group[slot // pieces]][to:to + count] = operand[source][start:start + count]
    return result


def transposed(operand, output, tables, weights, groups=None):
    """The gradients by operand and output of the sum of the exchange's result times weights, which
    is linear: its values at unit vectors."""
    both = [np.zeros_like(operand), np.zeros_like(output)]
    slopes = [np.zeros_like(operand), np.zeros_like(output)]
    for one, slope in zip(both, slopes):
        for place in np.ndindex(one.shape):
            one[place] = 1
            slope[place] = (exchanged(*both, tables, groups) * weights).sum()
            one[place] = 0
    return slopes


def ragged(axis=("i",), **fields):
    return lambda body, *x: body.ragged_all_to_all(*x, axis=list(axis), **fields)


def mapped(kind, function):
    return lambda body, *x: body.map(kind, "i", function, list(x))


def nested(outer, inner, function):
    return lambda body, *x: body.map(outer, "i", lambda middle, *y: middle.map(
        inner, "j", function, list(y)), list(x))


def sharded(function):
    """All inputs cut along dimension 0 over all axes of a mesh."""
    spec = [["data", "model"]]
    return lambda body, *x: body.shard_map({"data": 2, "model": 2}, [spec], [spec], function,
                                           list(x))


def blocks(x):
    """[replica][row] behind each other, as sharded() cuts it."""
    return x.reshape(-1, *x.shape[2:])


def add_values(book):
    def add(name, operand, output, counts, groups=None):
        tables = plan(counts, groups)
        fields = {"groups": groups} if groups else {}
        for kind in KINDS:
            book.add(f"ragged_all_to_all/{name}/{kind}", [operand, output, *tables],
                     mapped(kind, ragged(**fields)), instead=Instead(
                         lambda _: [exchanged(operand, output, tables, groups)], NO_RAGGED))

    add("two replicas", data(2, 3), np.zeros((2, 5), "float32"), TWO)
    add("rows", data(2, 3, 2), -np.ones((2, 5, 2), "float32"), TWO)
    add("one replica", data(1, 3), np.zeros((1, 3), "float32"), np.array([[2]]))
    add("four replicas", data(4, 4), np.zeros((4, 6), "float32"), FOUR)
    add("nothing is sent", data(2, 3), data(2, 2, step=5), np.zeros_like(TWO))
    for dtype in ("int32", "float64", "bfloat16", "bool"):
        add(dtype, data(2, 3, dtype=dtype), data(2, 5, dtype=dtype, step=3), TWO)
    add("two pieces a pair", data(2, 6), np.zeros((2, 7), "float32"),
        np.array([[1, 2, 0, 1], [2, 1, 0, 3]]))
    add("groups", data(4, 3), np.zeros((4, 5), "float32"),
        np.array([[1, 2], [2, 1], [0, 3], [1, 1]]), PAIRS)


def add_axes(book):
    """Over the axes of nests and meshes, one or several."""
    operand, output = data(4, 4), data(4, 6, step=5)
    for axes, groups in ((("i", "j"), [[0, 1, 2, 3]]), (("j", "i"), [[0, 2, 1, 3]]),
                         (("j",), [[0, 1], [2, 3]]), (("i",), [[0, 2], [1, 3]])):
        tables = plan(FOUR[:, :len(groups[0])], groups)
        wanted = exchanged(operand, output, tables, groups)
        inputs = [operand, output, *tables]
        for outer, inner in (("pmap", "vmap"), ("vmap", "vmap"), ("pmap", "pmap")):
            book.add(f"ragged_all_to_all/over {' '.join(axes)}, {inner} in {outer}",
                     [x.reshape(2, 2, -1) for x in inputs], nested(outer, inner, ragged(axes)),
                     instead=Instead(lambda _: [wanted.reshape(2, 2, -1)], NO_RAGGED))
        names = ["data" if axis == "i" else "model" for axis in axes]
        book.add(f"ragged_all_to_all/over {' '.join(names)}, shard_map", list(map(blocks, inputs)),
                 sharded(ragged(names)), instead=Instead(lambda _: [blocks(wanted)], NO_RAGGED))


def loss(power=2, axis=("i",), **fields):
    """The exchange of powers of operand and output, times weights."""
    def raised(body, x):
        result = x
        for _ in range(power - 1):
            result = body.mul(result, x)
        return result

    def function(body, operand, output, weights, *tables):
        return body.mul(body.ragged_all_to_all(raised(body, operand), raised(body, output), *tables,
                                               axis=list(axis), **fields), weights)
    return function


# Each takes a way to map and a function, and writes a program on operand, output, weights, tables.

def inside(around, function):
    return around(lambda body, *x: body.grad(function, list(x[:2]), *x[2:]))


def outside(around, function):
    return lambda body, *x: body.grad(around(function), list(x[:2]), *x[2:])


def twice(around, function):
    """The gradient of the sum of the gradients' squares."""
    def squares(body, operand, output, *rest):
        slopes = body.grad(function, [operand, output], *rest)
        return [body.mul(slope, slope) for slope in slopes]
    return inside(around, squares)


def by_weights(around, function):
    """The derivative by the weights of what the gradients by operand and output sum up to."""
    def slopes(body, weights, operand, output, *tables):
        return inside(around, function)(body, operand, output, weights, *tables)
    return lambda body, x, y, weights, *tables: body.grad(slopes, weights, x, y, *tables)


def add_slopes(book):
    # members: who exchanges with whom, for the mathematics.
    def add(name, operand, output, weights, tables, around, members=None, shaped=lambda x: x,
            **fields):
        slopes = transposed(operand, output, tables, weights, members)
        first = [2 * x * slope for x, slope in zip((operand, output), slopes)]
        second = [36 * x ** 3 * slope ** 2 for x, slope in zip((operand, output), slopes)]
        mixed = [exchanged(2 * operand, 2 * output, tables, members)]
        inputs = [shaped(x) for x in (operand, output, weights, *tables)]
        for where, program, power, wanted in (("inside", inside, 2, first),
                                              ("outside", outside, 2, first),
                                              ("twice", twice, 3, second),
                                              ("mixed", by_weights, 2, mixed)):
            book.add(f"grad/ragged_all_to_all{name}/{where}", inputs,
                     program(around, loss(power, **fields)), instead=Instead(
                         lambda _: [shaped(x) for x in wanted], NO_SLOPE))

    for kind in KINDS:
        add(f", {kind}", data(2, 3), data(2, 4, step=5), data(2, 4, step=3),
            plan(np.array([[1, 2], [1, 0]])), lambda f: mapped(kind, f))
    sent_twice = plan(TWO)
    sent_twice[0] = np.array([[0, 0], [0, 1]], "int32")
    add(", rows sent twice", data(2, 3), data(2, 5, step=5), data(2, 5, step=3), sent_twice,
        lambda f: mapped("pmap", f))
    add(" in groups", data(4, 3), data(4, 5, step=5), data(4, 5, step=3),
        plan(np.array([[1, 2], [2, 1], [0, 3], [1, 1]]), PAIRS), lambda f: mapped("vmap", f), PAIRS,
        groups=PAIRS)
    four = data(4, 4), data(4, 6, step=5), data(4, 6, step=3)
    add(" over i j, vmap in pmap", *four, plan(FOUR), lambda f: nested("pmap", "vmap", f),
        shaped=lambda x: x.reshape(2, 2, -1), axis=("i", "j"))
    add(" over data model, shard_map", *four, plan(FOUR), sharded, shaped=blocks,
        axis=("data", "model"))
    columns = [[0, 2], [1, 3]]
    add(" over data, shard_map", *four, plan(FOUR[:, :2], columns), sharded, columns, blocks,
        axis=("data",))


def add_refusals(book):
    operand, output, tables = data(2, 3), data(2, 5), plan(TWO)
    turn = iter(range(1000))

    def refuse(name, mentions, *, x=operand, y=output, kinds=None, error="ValueError", axis=("i",),
               given=tables, **changes):
        """changes: to the tables by their place, t0 to t3."""
        given = [changes.pop(f"t{i}", table) for i, table in enumerate(given)]
        for kind in kinds or (KINDS[next(turn) % 2],):
            book.add(f"error/ragged_all_to_all, {name}/{kind}", [x, y, *given],
                     mapped(kind, ragged(axis, **changes)),
                     different=Instead(Raises(error), REFUSED),
                     mentions=["ragged_all_to_all", *mentions])

    def but(which, place, value):
        changed = tables[which].copy()
        changed[place] = value
        return {f"t{which}": changed}

    refuse("axis not bound", ["'j'", "'i'"], error="NameError", axis=("j",), kinds=KINDS)
    refuse("one axis twice", ["'i'"], axis=("i", "i"))
    refuse("a negative size", ["send_sizes[1]", "-2"], kinds=KINDS, **but(1, (0, 1), -2))
    refuse("more than is expected", ["send_sizes[1]", "recv_sizes[0]"], kinds=KINDS,
           **but(1, (0, 1), 1))
    refuse("less than is expected", ["send_sizes[0]", "recv_sizes[1]"], **but(3, (0, 1), 2))
    refuse("beyond the operand", ["input_offsets[1]", "3"], kinds=KINDS, **but(0, (0, 1), 2))
    refuse("before the operand", ["input_offsets[0]", "-1"], **but(0, (1, 0), -1))
    refuse("beyond the output", ["output_offsets[0]", "5"], kinds=KINDS, **but(2, (1, 0), 3))
    refuse("before the output", ["output_offsets[1]", "-1"], **but(2, (0, 1), -1))
    refuse("pieces overlap", ["overlap"], kinds=KINDS, **but(2, (1, 0), 0))
    for i, name in enumerate(("input_offsets", "send_sizes", "output_offsets", "recv_sizes")):
        refuse(f"{name} are floats", [name], **{f"t{i}": tables[i].astype("float32")})
        refuse(f"{name} of two dimensions", [name], **{f"t{i}": tables[i].reshape(2, 1, 2)})
        refuse(f"no {name}", [name], **{f"t{i}": tables[i][:, :0]})
    refuse("tables of 3 for 2", ["3", "2"], given=[np.ones((2, 3), "int32")] * 4)
    refuse("tables of two lengths", ["recv_sizes", "4", "2"], t3=np.ones((2, 4), "int32"))
    refuse("two dtypes", ["Float", "Int"], y=data(2, 5, dtype="int32"))
    refuse("rows of two lengths", ["[3, 2]", "[5, 3]"], x=data(2, 3, 2), y=data(2, 5, 3))
    refuse("two ranks", ["[3]", "[5, 2]"], y=data(2, 5, 2))
    refuse("a scalar", [], x=data(2), y=data(2, step=5))
    four = {"x": data(4, 3), "y": data(4, 5), "given": plan(FOUR[:, :2] * 0, PAIRS)}
    refuse("unequal groups", ["[1, 2, 3]"], groups=[[0], [1, 2, 3]], **four)
    refuse("an index is missing", ["[2]"], groups=[[0, 1], [2]], **four)
    refuse("an index beyond", ["4"], groups=[[0, 1], [2, 4]], **four)


def add_to(book):
    add_values(book)
    add_axes(book)
    add_slopes(book)
    add_refusals(book)
