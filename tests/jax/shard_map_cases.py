"""shard_map: meshes, the forms of specs, and what does not fit them."""

import numpy as np

from casebook import Instead, Raises, as_in, data, value_error
from exchange_cases import NO_BROADCAST
from reduction_cases import INDEX, as_type

DATA, MODEL = [["data"]], [["model"]]
BOTH, TURNED = [["data", "model"]], [["model", "data"]]
GRID = [["data"], ["model"]]
REPLICATED = []
MESH = {"data": 2, "model": 2}
COMPARED = ("JAX cannot see by its types that the replicas agree; Lockstep compares their values "
            "(JAX's value is with check_vma=False)")
ONE_AXIS = "JAX takes one axis here; Lockstep takes several as everywhere"
UNTYPED = "JAX refuses this with check_vma=True; Lockstep gives what it gives without"
MESH_ORDER = ("JAX's ppermute counts replicas in the mesh's order, whatever the order of the names;"
              " in Lockstep, as in JAX's other operations, it is that of the names")


def in_mesh_order(perm):
    """What a permutation over (model, data) is over (data, model), on the mesh of 2 by 2."""
    places = [0, 2, 1, 3]
    if perm and isinstance(perm[0], int):
        return [places[perm[places[i]]] for i in range(4)]
    return [[places[source], places[destination]] for source, destination in perm]


def sharded(mesh, specs, out, function, **fields):
    return lambda body, *x: body.shard_map(mesh, specs, out, function, *x, **fields)


def collective(op, axis, **fields):
    return lambda inner, x: getattr(inner, op)(x, axis=axis, **fields)


def add(book, name, inputs, mesh, specs, out, function, reason=UNTYPED, **fields):
    book.add(f"shard_map/{name}", inputs, sharded(mesh, specs, out, function),
             refused=Instead(as_in(sharded(mesh, specs, out, function, vma=False)), reason),
             **fields)


def add_forms(book):
    for n in (1, 2, 3, 8):
        x = np.arange(1, 2 * n + 1, dtype="float32")
        mesh = {"data": n}
        add(book, f"psum to P() on {n}", [x], mesh, [DATA], [REPLICATED],
            lambda inner, own: inner.psum(inner.sum(own), axis=["data"]))
        add(book, f"P(data) to P(data) on {n}", [x], mesh, [DATA], [DATA],
            lambda inner, own: inner.scale(own, by=3))
    for n in (1, 3):
        add(book, f"the design's sum on {n}", [np.array([1, 2, 3], "float32")], {"data": n}, [DATA],
            [REPLICATED], lambda inner, own: inner.psum(inner.sum(own), axis=["data"]))
    x = data(4, 6)
    for name, spec in (("data", DATA), ("none, model", [[], ["model"]]), ("data, model", GRID),
                       ("model, data", [["model"], ["data"]]), ("(data, model)", BOTH),
                       ("(model, data)", TURNED), ("none, (model, data)", [[], ["model", "data"]]),
                       ("nothing", REPLICATED)):
        mesh = {"data": 2, "model": 3} if len(spec) == 2 and spec[0] == ["data"] else MESH
        mesh = {"data": 2, "model": 1} if spec == [[], ["model", "data"]] else mesh
        add(book, f"in and out by P({name})", [x], mesh, [spec], [spec],
            lambda inner, own: inner.scale(own, by=2))
        add(book, f"what a replica holds by P({name})", [x], mesh, [spec], [TURNED],
            lambda inner, own: inner.add(inner.scale(inner.sum_over(own, dimension=0), by=1),
                                         inner.axis_index(axis=["data", "model"],
                                                          **{"as": "float32"})))
    add(book, "in by data, out by model", [data(4)], MESH, [DATA], [MODEL],
        lambda inner, own: inner.psum(own, axis=["data"]))
    add(book, "three axes", [data(2, 4, 2)], {"a": 2, "b": 2, "c": 2}, [[["a"], ["b"], ["c"]]],
        [[["c"], ["a", "b"]]], lambda inner, own: inner.sum_over(own, dimension=0))
    add(book, "two results, two specs", [data(4, 4), data(4, step=5)], MESH, [GRID, DATA],
        [DATA, REPLICATED], lambda inner, a, b: [
            inner.psum(a, axis=["model"]), inner.psum(inner.sum(b), axis=["data"])])
    add(book, "two results, one spec", [data(4), data(4, step=3)], {"data": 4}, [DATA, DATA],
        [DATA], lambda inner, a, b: [inner.add(a, b), inner.psum(b, axis=["data"])])
    book.add("shard_map/one argument that is a tree", [data(4), data(4, 2)],
             lambda body, a, b: body.shard_map({"data": 2}, [DATA], [DATA], lambda inner, p, q: [
                 inner.scale(p, by=2), inner.psum(q, axis=["data"])], [a, b]))
    add(book, "gathered, replicated", [data(4)], {"data": 4}, [DATA], [REPLICATED],
        collective("all_gather", ["data"], tiled=True), reason=COMPARED)
    add(book, "replicated along one axis of two", [data(4, 2)], MESH, [GRID], [DATA],
        collective("all_gather", ["model"], dimension=1, tiled=True), reason=COMPARED)
    for dtype in ("float64", "bfloat16", "int32"):
        add(book, dtype, [data(4, 2, dtype=dtype)], {"data": 2}, [DATA], [REPLICATED],
            collective("psum", ["data"]))


def add_products(book):
    x, w = data(4, 4), data(4, 6, step=5)
    add(book, "rows times columns", [x, w], MESH, [DATA, [[], ["model"]]], [GRID],
        lambda inner, a, b: inner.matmul(a, b))
    add(book, "contracted over model", [x, w], MESH, [[[], ["model"]], MODEL], [REPLICATED],
        lambda inner, a, b: inner.psum(inner.matmul(a, b), axis=["model"]))
    add(book, "rows by data, contracted over model", [x, w], MESH, [GRID, MODEL], [DATA],
        lambda inner, a, b: inner.psum(inner.matmul(a, b), axis=["model"]))
    add(book, "contracted and scattered", [x, w], MESH, [GRID, MODEL], [GRID],
        lambda inner, a, b: inner.psum_scatter(inner.matmul(a, b), axis=["model"], dimension=1,
                                               tiled=True))
    add(book, "gathered, then multiplied", [x, w], MESH, [GRID, [[], ["model"]]], [GRID],
        lambda inner, a, b: inner.matmul(
            inner.all_gather(a, axis=["model"], dimension=1, tiled=True), b))


def add_collectives(book):
    operations = {
        "psum": (8, {}), "pmean": (8, {}), "pmax": (8, {}), "pmin": (8, {}),
        "all_gather": (4, {"tiled": True}), "psum_scatter": (16, {"tiled": True}),
        "all_to_all": (16, {"split": 0, "concat": 0, "tiled": True}),
        "ppermute": (8, {"perm": [[0, 1], [1, 2], [3, 0]]}),
        "pshuffle": (8, {"perm": [2, 0, 3, 1]}),
    }
    for op, (size, fields) in operations.items():
        for axis in (["data", "model"], ["model", "data"]):
            different = None
            if "perm" in fields and axis[0] == "model":
                other = collective(op, axis[::-1], perm=in_mesh_order(fields["perm"]))
                different = Instead(as_in(sharded(MESH, [BOTH], [BOTH], other)), MESH_ORDER)
            add(book, f"{op} over {' '.join(axis)}", [data(size)], MESH, [BOTH], [BOTH],
                collective(op, axis, **fields), different=different)
        if op not in ("ppermute", "pshuffle"):
            add(book, f"{op} over model", [data(size)], MESH, [BOTH], [BOTH],
                collective(op, ["model"], **fields))
    for axis, size in ((["data", "model"], 16), (["model", "data"], 16), (["model"], 8)):
        add(book, f"pswapaxes over {' '.join(axis)}", [data(size)], MESH, [BOTH], [BOTH],
            collective("pswapaxes", axis, dimension=0))
    add(book, "ppermute over model", [data(8)], MESH, [BOTH], [BOTH],
        collective("ppermute", ["model"], perm=[[1, 0]]))
    add(book, "pshuffle over model", [data(8)], MESH, [BOTH], [BOTH],
        collective("pshuffle", ["model"], perm=[1, 0]))
    add_without_jax(book)
    add(book, "psum in groups", [data(4)], {"data": 4}, [DATA], [DATA],
        collective("psum", ["data"], groups=[[0, 2], [3, 1]]))
    add(book, "all_gather in groups", [data(4)], {"data": 4}, [DATA], [DATA],
        collective("all_gather", ["data"], groups=[[0, 2], [3, 1]], tiled=True))

    def lanes(kind):
        return lambda inner, own: inner.map(kind, "lane", lambda lane, x: [
            lane.psum(x, axis=["data"]), lane.psum(x, axis=["lane"]),
            lane.psum(x, axis=["data", "lane"])], own)

    for kind in ("vmap", "pmap"):
        book.add(f"shard_map/{kind} within", [data(4, 3)],
                 sharded({"data": 2}, [DATA], [DATA], lanes(kind)), different=Instead(
                     as_in(sharded({"data": 2}, [DATA], [DATA], lanes("vmap"), vma=False)),
                     "JAX refuses this nest with check_vma=True; Lockstep gives what its vmap gives"
                     " without"))


def add_without_jax(book):
    """What JAX has not for several axes, or not on the CPU."""
    x = data(8)
    grid = x.reshape(2, 2, 2)  # of (data, model, own row)
    in_order = {"data model": grid.reshape(4, 2), "model data": grid.swapaxes(0, 1).reshape(4, 2)}
    for name, rows in in_order.items():
        add(book, f"pbroadcast over {name}", [x], MESH, [BOTH], [BOTH],
            collective("pbroadcast", name.split(), source=2),
            instead=Instead(lambda _: [np.tile(rows[2], 4)], NO_BROADCAST))
        for op, index in (("pargmax", np.argmax), ("pargmin", np.argmin)):
            add(book, f"{op} over {name}", [x], MESH, [BOTH], [BOTH], collective(op, name.split()),
                instead=Instead(lambda _: [np.tile(index(rows, axis=0), 4)], ONE_AXIS))
    add(book, "pbroadcast over model", [x], MESH, [BOTH], [BOTH],
        collective("pbroadcast", ["model"], source=1),
        instead=Instead(lambda _: [np.repeat(grid[:, 1:], 2, 1).ravel()], NO_BROADCAST))
    for op in ("pargmax", "pargmin"):
        add(book, f"{op} over model", [x], MESH, [BOTH], [BOTH], collective(op, ["model"]),
            different=Instead(as_type("int64"), INDEX))


def add_numbers(book):
    for axis in (["data", "model"], ["model"]):
        for op, fields in (("axis_size", {}), ("psum_number", {"number": 3})):
            add(book, f"{op} over {' '.join(axis)}", [data(4, 4)], MESH, [GRID], [GRID],
                lambda inner, own: inner.mul(own, getattr(inner, op)(
                    axis=axis, **{"as": "float32", **fields})))


def add_refusals(book):
    def refuse(name, inputs, mesh, specs, out, function, mentions=(), **fields):
        book.add(f"shard_map/{name}", inputs, sharded(mesh, specs, out, function),
                 mentions=mentions, **{"different": value_error(UNTYPED), **fields})

    def same(inner, own):
        return inner.scale(own, by=1)

    refuse("a psum is missing", [data(4)], {"data": 4}, [DATA], [REPLICATED], same, ["psum"])
    refuse("a psum over model is missing", [data(4, 2)], MESH, [GRID], [DATA], same, ["psum"])
    refuse("6 rows on 4", [data(6)], {"data": 4}, [DATA], [DATA], same, ["6", "4"])
    refuse("3 columns on 2", [data(2, 3)], MESH, [[[], ["model"]]], [REPLICATED], same, ["3", "2"])
    refuse("6 rows on 2 by 2", [data(6)], MESH, [BOTH], [BOTH], same, ["6", "4"])
    refuse("a spec that is too long", [data(4)], {"data": 4}, [[[], ["data"]]], [DATA], same)
    refuse("a scalar cut", [np.float32(3)], {"data": 2}, [DATA], [DATA], same)
    refuse("an axis that the mesh has not", [data(4)], {"data": 4}, [MODEL], [DATA], same,
           ["'model'"])
    refuse("an axis that the mesh has not, out", [data(4)], {"data": 4}, [DATA], [MODEL], same,
           ["'model'"])
    refuse("one axis for two dimensions", [data(4, 4)], {"data": 2}, [[["data"], ["data"]]], [DATA],
           same, ["'data'"])
    refuse("an axis that is not bound", [data(4)], {"data": 4}, [DATA], [DATA],
           collective("psum", ["model"]), ["'model'", "'data'"],
           different=Instead(Raises("NameError"), "an axis that is not bound is a NameError"))


def add_to(book):
    add_forms(book)
    add_products(book)
    add_collectives(book)
    add_numbers(book)
    add_refusals(book)
