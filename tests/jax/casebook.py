"""The cases, and how they are written: one a line, floats such that they read back exactly."""

import json
import math

import jax
import ml_dtypes
import numpy as np

import vocabulary


class Raises:
    """The outcome of a program that is refused."""

    def __init__(self, error):
        self.error = error


class Instead:
    """What Lockstep gives where it differs from JAX on purpose, and why: Raises(…), arrays, a
    function of JAX's arrays that gives them, or as_in(program), JAX's outcome of another one."""

    def __init__(self, outcome, reason):
        self.outcome, self.reason = outcome, reason


class as_in:
    def __init__(self, program):
        self.program = program


def value_error(reason):
    return Instead(Raises("ValueError"), reason)


BOTH_REFUSE = "both refuse; what Lockstep throws says by its type which rule was broken"


def data(*shape, dtype="float32", step=7):
    """Small whole numbers and halves, in no order: sums of them are exact in any order."""
    values = np.arange(math.prod(shape)).reshape(shape) * step % 11
    if dtype == "bool":
        return values % 3 == 0
    if dtype == "uint8":
        return values.astype(dtype)
    if dtype.startswith("int"):
        return (values - 5).astype(dtype)
    return ((values - 5) / 2).astype(numpy_type(dtype))


def numpy_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def number(value):
    """As JSON: whole numbers short, what JSON has no number for as a word."""
    if isinstance(value, (bool, int)):
        return value
    if not math.isfinite(value):
        return str(value)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def encoded(array):
    array = np.asarray(array)
    name = array.dtype.name
    wide = array.astype(np.float64) if name in ("bfloat16", "float16", "float32") else array
    return [name, list(array.shape), [number(value) for value in wide.ravel().tolist()]]


def mapped(kind, op, tree=None, **fields):
    """The program of one collective over the axis of one map; its inputs are one tree, each cut
    along dimension 0."""
    if tree:
        fields["tree"] = tree
    return lambda body, *x: body.map(
        kind, "i", lambda inner, *own: getattr(inner, op)(*own, axis=["i"], **fields), list(x))


class Casebook:
    def __init__(self):
        self.cases, self.names, self.turn = [], set(), False

    def __len__(self):
        return len(self.cases)

    def add(self, name, inputs, function, instead=None, refused=None, different=None, mentions=(),
            tolerance=None):
        """`function` writes the program: see vocabulary.Body. instead: what Lockstep gives, which
        must differ from what JAX gives; different: the same, if it differs; refused: the same, if
        JAX refuses. mentions: what the error's message of Lockstep must contain. tolerance:
        relative and absolute, where results are not exact."""
        if name in self.names:
            raise RuntimeError(f"two cases are called {name}")
        self.names.add(name)
        body = vocabulary.write(function, len(inputs))
        case = {"name": name, "in": [encoded(x) for x in inputs], **body}
        arrays, jax_outcome = self.outcome(body, inputs)
        case["jax"] = jax_outcome
        if instead is None and refused is not None and "raises" in jax_outcome:
            instead = refused
        for difference in (instead, different):
            if difference is None or "lockstep" in case:
                continue
            outcome = self.lockstep(name, difference.outcome, inputs, arrays)
            if outcome != jax_outcome:
                both_refuse = "raises" in outcome and "raises" in jax_outcome
                case["lockstep"] = outcome
                case["reason"] = BOTH_REFUSE if both_refuse else difference.reason
            elif difference is instead:
                raise RuntimeError(f"{name}: Lockstep is said to differ from JAX, and does not")
        if mentions:
            case["mentions"] = list(mentions)
        if tolerance:
            case["tolerance"] = tolerance
        self.cases.append(case)

    def both(self, name, op, inputs, different=None, mentions=(), kinds=("pmap", "vmap"),
             tolerance=None, **fields):
        """One collective under pmap, and the same under vmap."""
        for kind in kinds:
            other = "vmap" if kind == "pmap" else "pmap"
            refused = Instead(as_in(mapped(other, op, **fields)),
                              f"JAX refuses this under {kind}; Lockstep gives what {other} gives")
            self.add(f"{op}/{name}/{kind}", inputs, mapped(kind, op, **fields),
                     refused=None if different or mentions else refused, different=different,
                     mentions=mentions, tolerance=tolerance)

    def either(self, *args, **fields):
        """As both, under only one of them: pmap and vmap take turns."""
        self.turn = not self.turn
        self.both(*args, kinds=("pmap",) if self.turn else ("vmap",), **fields)

    @staticmethod
    def outcome(body, inputs):
        try:
            arrays = [np.asarray(x) for x in vocabulary.run(body, map(jax.numpy.asarray, inputs))]
        except Exception as error:  # whatever JAX refuses with is what is recorded
            return None, {"raises": type(error).__name__}
        return arrays, {"out": [encoded(x) for x in arrays]}

    def lockstep(self, name, outcome, inputs, arrays):
        if isinstance(outcome, Raises):
            return {"raises": outcome.error}
        if isinstance(outcome, as_in):
            arrays, other = self.outcome(vocabulary.write(outcome.program, len(inputs)), inputs)
            if arrays is None:
                raise RuntimeError(f"{name}: JAX refuses the other program too: {other}")
            return other
        if callable(outcome):
            outcome = outcome(arrays)
        return {"out": [encoded(x) for x in outcome]}

    def text(self, version):
        lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False)
                           for case in self.cases)
        return f'{{"jax":"{version}","cases":[\n{lines}\n]}}\n'
