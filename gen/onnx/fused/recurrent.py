"""LSTM, GRU and RNN of a known number of steps, step by step: products, sums, functions.

The equations are those of the operators' definitions in ONNX. What a step takes of its input does not depend on the
steps before it, and is one product for all of them, tokens of (N, steps, channels).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gen.onnx.fused.spread import Fused, Spreads, UnsupportedError

__all__ = ["FUNCTIONS", "MOST_STEPS", "SPREADS"]

#: A longer sequence stays one node: each step is some layers of the program.
MOST_STEPS = 128

#: Where this divides the units of a layer, lanes of any width end where a gate does, so that gates of one function are
#: one product.
_TOGETHER = 64

#: Of gates and states.
FUNCTIONS = ("Sigmoid", "Tanh", "Relu")


@dataclass(frozen=True)
class _Direction:
    """One direction of a node: where it takes its weights from, and what its steps begin with."""

    fused: Fused
    number: int
    hidden: int
    gates: int
    functions: Sequence[str]
    tokens: str                  # (N, steps, channels), or (N, channels) of a single step
    steps: int
    order: range                 # of the steps
    states: Sequence[str]        # (N, hidden) each, "" for zeros

    def rows(self, position: int, first: int, count: int) -> np.ndarray | str:
        """Of weights (directions, gates * hidden, ...) or biases (directions, gates * hidden), those of ``count`` gates
        from ``first`` on: an array, or the name of a value where they are made by nodes.
        """
        name, size = self.fused.given(position), self.hidden
        wanted = np.arange(first * size, (first + count) * size)
        array = self.fused.array(name)
        if array is not None:
            return array[self.number, wanted]
        own = self.fused.make("Gather", name, self.fused.constant(np.array(self.number), "direction"), axis=0,
                              what="weights")
        return self.fused.make("Gather", own, self.fused.constant(wanted, "rows"), axis=0, what="gates")

    def product(self, value: str, position: int, first: int, count: int) -> str:
        """``value`` times the weights of ``count`` gates."""
        rows = self.rows(position, first, count)
        turned = (self.fused.constant(rows.T, "weights") if isinstance(rows, np.ndarray)
                  else self.fused.make("Transpose", rows, perm=[1, 0], what="turned"))
        return self.fused.make("MatMul", value, turned, what="product")

    def biased(self, value: str, firsts: Sequence[int], count: int) -> str:
        """``value`` with the biases of ``count`` gates from each of ``firsts`` on; the node has those of the input's
        products first, those of the states' after them.
        """
        if not self.fused.given(3):
            return value
        held = [self.rows(3, first, count) for first in firsts]
        arrays = [rows for rows in held if isinstance(rows, np.ndarray)]
        summands = [self.fused.constant(np.sum(arrays, axis=0), "bias")] if arrays else [str(rows) for rows in held]
        for rows in summands:
            value = self.fused.make("Add", value, rows, what="biased")
        return value

    def groups(self, functions: Sequence[str]) -> list[tuple[int, int, str]]:
        """(first gate, number, function): gates that are one product."""
        groups: list[tuple[int, int, str]] = []
        for gate, function in enumerate(functions):
            if groups and self.hidden % _TOGETHER == 0 and groups[-1][2] == function:
                groups[-1] = groups[-1][0], groups[-1][1] + 1, function
            else:
                groups.append((gate, 1, function))
        return groups

    def of_input(self, groups: Sequence[tuple[int, int, str]], apart: Sequence[int] = ()) -> list[list[str]]:
        """Step -> group -> what the input brings to its sum, with the biases, but those of the states' product of gates
        ``apart``.
        """
        made = [self.biased(self.product(self.tokens, 1, first, count),
                            [first] if first in apart else [first, self.gates + first], count)
                for first, count, _ in groups]
        if self.steps == 1:
            return [made]
        return [[_step(self.fused, whole, step, 1) for whole in made] for step in range(self.steps)]

    def parts(self, value: str, count: int) -> list[str]:
        """The gates of one product."""
        if count == 1:
            return [value]
        return [self.fused.make("Gather", value, self.fused.constant(
            np.arange(n * self.hidden, (n + 1) * self.hidden), "gate"), axis=1, what="gate") for n in range(count)]

    def sum_of(self, value: str, state: str, first: int, count: int) -> str:
        """``value`` and the product of a state, zeros if "", with the weights between steps."""
        if not state:
            return value
        return self.fused.make("Add", value, self.product(state, 2, first, count), what="sum")

    def gate(self, function: str, value: str) -> str:
        return self.fused.make(function, value, what=function.lower())

    def times(self, left: str, right: str) -> str:
        return self.fused.make("Mul", left, right, what="times")

    def plus(self, left: str, right: str) -> str:
        return self.fused.make("Add", left, right, what="plus")


#: A cell makes of a direction what it gives at each step, in its order, and its states at the end.
_Cell = Callable[[_Direction], tuple[list[str], list[str]]]


def _rnn(of: _Direction) -> tuple[list[str], list[str]]:
    groups, (hidden, *_), given = of.groups(of.functions), of.states, list[str]()
    inputs = of.of_input(groups)
    for step in of.order:
        hidden = of.gate(of.functions[0], of.sum_of(inputs[step][0], hidden, 0, 1))
        given.append(hidden)
    return given, [hidden]


def _lstm(of: _Direction) -> tuple[list[str], list[str]]:
    sigmoid, tanh, of_cell = of.functions
    groups, (hidden, cell), given = of.groups([sigmoid, sigmoid, sigmoid, tanh]), of.states, list[str]()
    inputs = of.of_input(groups)
    for step in of.order:
        i, o, f, c = (part for (first, count, function), own in zip(groups, inputs[step], strict=True)
                      for part in of.parts(of.gate(function, of.sum_of(own, hidden, first, count)), count))
        new = of.times(i, c)
        cell = of.plus(of.times(f, cell), new) if cell else new
        hidden = of.times(o, of.gate(of_cell, cell))
        given.append(hidden)
    return given, [hidden, cell]


def _gru(of: _Direction) -> tuple[list[str], list[str]]:
    sigmoid, tanh = of.functions
    linear = bool(of.fused.attributes.get("linear_before_reset"))
    groups, (hidden, *_), given = of.groups([sigmoid, sigmoid]) + [(2, 1, tanh)], of.states, list[str]()
    inputs = of.of_input(groups, apart=[2] if linear else [])
    one = of.fused.constant(np.float32(1), "one")
    for step in of.order:
        *gates, own = inputs[step]
        z, r = (part for (first, count, function), value in zip(groups, gates, strict=False)
                for part in of.parts(of.gate(function, of.sum_of(value, hidden, first, count)), count))
        if linear:
            recurrent = of.biased(of.product(hidden, 2, 2, 1), [of.gates + 2], 1) if hidden else _bias(of)
            own = of.plus(own, of.times(r, recurrent)) if recurrent else own
        elif hidden:
            own = of.sum_of(own, of.times(r, hidden), 2, 1)
        new = of.times(of.fused.make("Sub", one, z, what="left"), of.gate(tanh, own))
        hidden = of.plus(new, of.times(z, hidden)) if hidden else new
        given.append(hidden)
    return given, [hidden]


def _bias(of: _Direction) -> str:
    """What a product of zeros has: the bias of the reset gate's sum, "" without one."""
    if not of.fused.given(3):
        return ""
    rows = of.rows(3, of.gates + 2, 1)
    return of.fused.constant(rows, "bias") if isinstance(rows, np.ndarray) else rows


#: Operator -> number of gates, of states, functions unless others are named, and its cell.
_CELLS: dict[str, tuple[int, int, tuple[str, ...], _Cell]] = {
    "RNN": (1, 1, ("Tanh",), _rnn), "LSTM": (4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    "GRU": (3, 1, ("Sigmoid", "Tanh"), _gru)}


def recurrent(fused: Fused) -> None:
    """Raises UnsupportedError for bounds of sums, peepholes, lengths of single sequences, and other functions."""
    gates, states, standard, cell = _CELLS[fused.node.op_type]
    layout, hidden = int(fused.attributes.get("layout", 0)), int(fused.attributes["hidden_size"])
    way = str(fused.attributes.get("direction", b"forward").decode())
    directions = 2 if way == "bidirectional" else 1
    steps = fused.shape(fused.given(0))[layout]
    _require_known(fused, steps)
    functions = [name.decode() for name in fused.attributes.get("activations", [])] or list(standard) * directions
    if any(name not in FUNCTIONS for name in functions):
        raise UnsupportedError(f"has other functions than {', '.join(FUNCTIONS)}, with which it is not taken apart")
    tokens = _tokens(fused, layout, steps)
    given, ends = [], []
    for number in range(directions):
        backward = way == "reverse" or number == 1
        order = range(steps - 1, -1, -1) if backward else range(steps)
        results, last = cell(_Direction(
            fused, number, hidden, gates, functions[number * len(standard):][:len(standard)], tokens, steps, order,
            [_state(fused, 5 + n, layout, number) for n in range(states)]))
        given.append(results[::-1] if backward else results)
        ends.append(last)
    _give_all(fused, given, layout, hidden)
    for n in range(states):
        _give_last(fused, n + 1, [last[n] for last in ends], layout, hidden)


def _require_known(fused: Fused, steps: int) -> None:
    """Raises UnsupportedError for forms that are not taken apart."""
    if not steps:
        raise UnsupportedError("has a number of steps that is not known; give the model's inputs fixed shapes")
    if steps > MOST_STEPS:
        raise UnsupportedError(f"has {steps} steps, more than the {MOST_STEPS} that are taken apart")
    lengths = fused.array(fused.given(4))
    if fused.given(4) and (lengths is None or (lengths != steps).any()):
        raise UnsupportedError("ends single sequences at lengths of their own, with which it is not taken apart")
    if fused.given(7):
        raise UnsupportedError("has weights from cells to gates (P), with which it is not taken apart")
    for name, what in (("clip", "bounds of its sums (clip)"), ("input_forget", "one gate for two (input_forget)")):
        if fused.attributes.get(name):
            raise UnsupportedError(f"has {what}, with which it is not taken apart")


def _tokens(fused: Fused, layout: int, steps: int) -> str:
    """The input, (N, steps, channels), or (N, channels) of a single step."""
    name = fused.given(0)
    if steps == 1:
        return _step(fused, name, 0, layout)
    return name if layout else fused.make("Transpose", name, perm=[1, 0, 2], what="tokens")


def _step(fused: Fused, value: str, step: int, axis: int) -> str:
    return fused.make("Gather", value, fused.constant(np.array(step), "step"), axis=axis, what="step")


def _state(fused: Fused, position: int, layout: int, number: int) -> str:
    """What the steps begin with: (N, hidden), "" for zeros."""
    name = fused.given(position)
    if not name or fused.is_zero(name):
        return ""
    return fused.make("Gather", name, fused.constant(np.array(number), "direction"), axis=layout, what="state")


def _joined(fused: Fused, parts: Sequence[str], axis: int, result: str = "") -> str:
    if len(parts) == 1 and not result:
        return parts[0]
    return fused.make("Concat", *parts, axis=axis, result=result, what="joined")


def _shaped(fused: Fused, value: str, shape: Sequence[int]) -> str:
    return fused.make("Reshape", value, fused.constant(np.array(shape), "shape"), what="shaped")


def _give_all(fused: Fused, given: Sequence[Sequence[str]], layout: int, hidden: int) -> None:
    """The first result: what each direction gives at each step."""
    result = fused.node.output[0] if fused.node.output else ""
    if not result:
        return
    parts = []
    for of_direction in given:
        tokens = _joined(fused, [_shaped(fused, value, (-1, 1, hidden)) for value in of_direction], 1)
        if not layout:
            tokens = fused.make("Transpose", tokens, perm=[1, 0, 2], what="steps")
        shape = (-1, len(of_direction), 1, hidden) if layout else (len(of_direction), 1, -1, hidden)
        parts.append(_shaped(fused, tokens, shape))
    _joined(fused, parts, 2 if layout else 1, result)


def _give_last(fused: Fused, position: int, states: Sequence[str], layout: int, hidden: int) -> None:
    """A state at the end, of each direction."""
    result = fused.node.output[position] if position < len(fused.node.output) else ""
    if result:
        shape = (-1, 1, hidden) if layout else (1, -1, hidden)
        _joined(fused, [_shaped(fused, value, shape) for value in states], layout, result)


SPREADS: Spreads = {("", op): recurrent for op in _CELLS}
