"""The vocabulary of the recorded programs, and what its words mean in JAX.

A program is a list of steps on numbered values: first its arguments' leaves, then each step's
results in order. It is plain JSON, which the replay in C++ reads: see replay.h. `Body` writes
programs, `run` runs them with JAX.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.lax import parallel as private  # pargmax and pargmin are no longer public
from jax.sharding import PartitionSpec

JOINING = {"add", "sub", "mul", "matmul", "ragged_all_to_all"}  # several operands, one result


class Body:
    """Writes down the steps that a Python function takes: body.psum(x, axis=["i"])."""

    def __init__(self, values):
        self.steps, self.values = [], values

    def __getattr__(self, op):
        return lambda *x, **fields: self._add(op, 1 if op in JOINING or not x else len(x),
                                              {"x": list(x), **fields})

    def _add(self, op, results, fields):
        self.steps.append({"op": op, **fields})
        self.values += results
        new = list(range(self.values - results, self.values))
        return new[0] if results == 1 else new

    def _call(self, op, function, args, **fields):
        args = [arg if isinstance(arg, list) else [arg] for arg in args]
        body = write(function, sum(len(arg) for arg in args) + ("static" in fields))
        results = {"grad": len(args[0]), "value_and_grad": 1 + len(args[0])}.get(op)
        return self._add(op, results or len(body["return"]), {"args": args, **fields, "body": body})

    def map(self, kind, axis, function, *args, in_axes=None, out=0, **fields):
        """pmap or vmap. An argument is a value or a list of values, which is one tree."""
        return self._call(kind, function, args, axis=axis, **{"in": in_axes or [0] * len(args)},
                          out=out, **fields)

    def shard_map(self, mesh, specs, out, function, *args, **fields):
        """mesh: {name: size}; specs: one a argument, out: one for all results or one a result.
        A spec lists the names of each dimension: [["data", "model"], []]."""
        return self._call("shard_map", function, args, mesh=list(mesh.items()),
                          **{"in": specs}, out=out, **fields)

    def grad(self, function, *args):
        """The gradient, by the first argument, of the sum over all that `function` returns."""
        return self._call("grad", function, args)

    def value_and_grad(self, function, *args):
        return self._call("value_and_grad", function, args)


def write(function, values):
    body = Body(values)
    result = function(body, *range(values))
    return {"steps": body.steps, "return": result if isinstance(result, list) else [result]}


def run(body, values):
    values = list(values)
    for step in body["steps"]:
        values += STEPS[step["op"]](step, values)
    return [values[i] for i in body["return"]]


def tree_of(step, values):
    leaves = [values[i] for i in step["x"]]
    if step.get("tree") == "map":
        return {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
    if step.get("tree") == "pair":
        return tuple(leaves)
    return leaves if len(leaves) > 1 else leaves[0]


def axis_of(step):
    return step["axis"][0] if len(step["axis"]) == 1 else tuple(step["axis"])


def collective(function, options=(), positional=()):
    """options: {JAX's name: key in the step}, given only where the step has them."""
    def apply(step, values):
        keywords = {name: step[key] for name, key in dict(options).items() if key in step}
        result = function(tree_of(step, values), axis_of(step), *(step[k] for k in positional),
                          **keywords)
        return jax.tree.leaves(result)
    return apply


GROUPS = {"axis_index_groups": "groups"}


def number(function):
    return lambda step, values: [jnp.asarray(function(step)).astype(step["as"])]


def elementwise(function):
    return lambda step, values: [function(step, *(values[i] for i in step["x"]))]


def ragged_all_to_all(step, values):
    groups = {"axis_index_groups": step["groups"]} if "groups" in step else {}
    return [lax.ragged_all_to_all(*(values[i] for i in step["x"]), axis_name=axis_of(step),
                                  **groups)]


def arguments(step, values):
    return [[values[i] for i in arg] for arg in step["args"]]


def body_of(step):
    """The step's body as a function of trees; its results as one list, or a tuple where each has
    an entry in "out" of its own."""
    def function(*args):
        leaves = [leaf for arg in args if isinstance(arg, list) for leaf in arg]
        leaves += [arg for arg in args if not isinstance(arg, list)]  # static
        return run(step["body"], leaves)
    return function


def pmap(step, values):
    out = step["out"]
    args, in_axes, static = arguments(step, values), list(step["in"]), {}
    if "static" in step:  # one more argument, a number that is no array
        static = {"static_broadcasted_argnums": (len(args),)}
        args.append(step["static"])
        in_axes.append(None)
    size = {"axis_size": step["size"]} if "size" in step else {}
    function = jax.pmap(body_of(step), axis_name=step["axis"], in_axes=tuple(in_axes), out_axes=out,
                        **static, **size)
    return function(*args)


def vmap(step, values):
    args, body = arguments(step, values), body_of(step)
    if "static" in step:
        return jax.vmap(lambda *leaves: body(*leaves, step["static"]), axis_name=step["axis"],
                        in_axes=tuple(step["in"]), out_axes=step["out"])(*args)
    size = {"axis_size": step["size"]} if "size" in step else {}
    return jax.vmap(body, axis_name=step["axis"], in_axes=tuple(step["in"]), out_axes=step["out"],
                    **size)(*args)


def spec_of(dimensions):
    return PartitionSpec(*(tuple(names) if names else None for names in dimensions))


def shard_map(step, values):
    sizes = [size for _, size in step["mesh"]]
    devices = np.array(jax.devices()[:int(np.prod(sizes))]).reshape(sizes)
    mesh = jax.sharding.Mesh(devices, [name for name, _ in step["mesh"]])
    out = [spec_of(spec) for spec in step["out"]]
    function = jax.shard_map(body_of(step), mesh=mesh, in_specs=tuple(map(spec_of, step["in"])),
                             out_specs=out if len(out) > 1 else out[0],
                             check_vma=step.get("vma", True))
    return jax.jit(function)(*arguments(step, values))


def loss_of(step):
    body = body_of(step)
    return lambda *args: sum(jnp.sum(result) for result in body(*args))


def value_and_grad(step, values):
    value, gradients = jax.value_and_grad(loss_of(step))(*arguments(step, values))
    return [value, *gradients]


STEPS = {
    "psum": collective(lax.psum, GROUPS),
    "pmean": collective(lax.pmean, GROUPS),
    "pmax": collective(lax.pmax, GROUPS),
    "pmin": collective(lax.pmin, GROUPS),
    "all_gather": collective(lax.all_gather, {**GROUPS, "axis": "dimension", "tiled": "tiled"}),
    "psum_scatter": collective(lax.psum_scatter, {**GROUPS, "scatter_dimension": "dimension",
                                                  "tiled": "tiled"}),
    "all_to_all": collective(lax.all_to_all, {**GROUPS, "tiled": "tiled"}, ("split", "concat")),
    "ragged_all_to_all": ragged_all_to_all,
    "ppermute": collective(lax.ppermute, positional=("perm",)),
    "pshuffle": collective(lax.pshuffle, positional=("perm",)),
    "pswapaxes": collective(lax.pswapaxes, GROUPS, ("dimension",)),
    "pvary": collective(lambda x, axis: lax.pcast(x, axis, to="varying")),
    "pbroadcast": collective(lax.pbroadcast, positional=("source",)),
    "pargmax": collective(private.pargmax),
    "pargmin": collective(private.pargmin),
    "axis_index": number(lambda step: lax.axis_index(axis_of(step))),
    "axis_size": number(lambda step: lax.axis_size(axis_of(step))),
    "psum_number": number(lambda step: lax.psum(step["number"], axis_of(step), **(
        {"axis_index_groups": step["groups"]} if "groups" in step else {}))),
    "add": elementwise(lambda step, a, b: a + b),
    "sub": elementwise(lambda step, a, b: a - b),
    "mul": elementwise(lambda step, a, b: a * b),
    "matmul": elementwise(lambda step, a, b: a @ b),
    "scale": elementwise(lambda step, x: x * step["by"]),
    "sum": elementwise(lambda step, x: jnp.sum(x)),
    "sum_over": elementwise(lambda step, x: jnp.sum(x, axis=step["dimension"])),
    "pmap": pmap,
    "vmap": vmap,
    "shard_map": shard_map,
    "grad": lambda step, values: value_and_grad(step, values)[1:],
    "value_and_grad": value_and_grad,
}
