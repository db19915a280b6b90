"""RNN, GRU and LSTM."""

import numpy as np

from gen.c.context import Argument, At, Context
from gen.c.copies import copy, fill
from gen.c.helper import Helper, instance
from gen.c.kernels.arithmetic import spelled
from gen.c.registry import operator
from gen.c.text import c_type
from gen.c.value import Value, strides_of
from gen.onnx.model import Node

__all__: list[str] = []

#: Activations without parameters.
_ACTIVATIONS = {
    "sigmoid": "1.0$f / (1.0$f + exp$f(-x))", "tanh": "tanh$f(x)", "relu": "x > 0.0$f ? x : 0.0$f",
    "softsign": "x / (1.0$f + fabs$f(x))", "softplus": "log1p$f(exp$f(x))",
}
_ACTIVATION = """
static $T $name($T x)
{
    return $text;
}
"""
#: One direction over all times. y, of `across` elements from time to time, may be left out.
_LOOP = """
static void $name(size_t times, size_t batch, size_t size, size_t hidden, size_t across, int reverse, $flag
                  const $T *x, const $T *w, const $T *r, const $T *bias, const $T *peephole, $T *h, $T *cell, $T *gates,
                  $T *y)
{
    (void)cell;
    (void)peephole;
    for (size_t n = 0u; n < times; ++n) {
        const size_t time = reverse ? times - 1u - n : n;
        for (size_t b = 0u; b < batch; ++b) {
            const $T *const input = x + (time * batch + b) * size;
            $T *const state = h + b * hidden;
            for (size_t g = 0u; g < ${gates}u * hidden; ++g) {
                $T from_input = bias != NULL ? bias[g] : 0;
                $T from_state = bias != NULL ? bias[${gates}u * hidden + g] : 0;
                for (size_t k = 0u; k < size; ++k)
                    from_input += input[k] * w[g * size + k];
                for (size_t k = 0u; k < hidden; ++k)
                    from_state += state[k] * r[g * hidden + k];
$kept
            }
$update
            if (y != NULL)
                memcpy(y + time * across + b * hidden, state, hidden * sizeof *y);
        }
    }
}
"""
_RNN = """
            for (size_t k = 0u; k < hidden; ++k)
                state[k] = ACT0(gates[k]);
"""
_LSTM = """
            $T *const memory = cell + b * hidden;
            for (size_t k = 0u; k < hidden; ++k) {
                const $T *const peep = peephole != NULL ? peephole + k : NULL;
                const $T in = ACT0(gates[k] + (peep != NULL ? peep[0] * memory[k] : 0));
                const $T forget = ACT0(gates[2u * hidden + k] + (peep != NULL ? peep[2u * hidden] * memory[k] : 0));
                memory[k] = forget * memory[k] + in * ACT1(gates[3u * hidden + k]);
                const $T out = ACT0(gates[hidden + k] + (peep != NULL ? peep[hidden] * memory[k] : 0));
                state[k] = out * ACT2(memory[k]);
            }
"""
#: With `linear` the state is reset after its product, and gates have that product apart.
_GRU = """
            if (linear) {
                for (size_t k = 0u; k < hidden; ++k) {
                    const $T update = ACT0(gates[k]), reset = ACT0(gates[hidden + k]);
                    const $T fresh = ACT1(gates[2u * hidden + k] + reset * gates[3u * hidden + k]);
                    state[k] = (1.0$f - update) * fresh + update * state[k];
                }
            } else {
                for (size_t k = 0u; k < hidden; ++k)
                    gates[3u * hidden + k] = ACT0(gates[hidden + k]) * state[k];
                for (size_t k = 0u; k < hidden; ++k) {
                    $T total = gates[2u * hidden + k] + (bias != NULL ? bias[5u * hidden + k] : 0);
                    for (size_t j = 0u; j < hidden; ++j)
                        total += gates[3u * hidden + j] * r[(2u * hidden + k) * hidden + j];
                    gates[hidden + k] = ACT1(total);
                }
                for (size_t k = 0u; k < hidden; ++k) {
                    const $T update = ACT0(gates[k]);
                    state[k] = (1.0$f - update) * gates[hidden + k] + update * state[k];
                }
            }
"""
_SUM = "                gates[g] = from_input + from_state;"
_APART = """                if (g < 2u * hidden) {
                    gates[g] = from_input + from_state;
                } else {
                    gates[g] = from_input;
                    gates[hidden + g] = from_state;
                }"""
#: Gates, the text that updates the state, and the activations that are there if none are named.
_CELLS = {"RNN": (1, _RNN, ("Tanh",)), "LSTM": (4, _LSTM, ("Sigmoid", "Tanh", "Tanh")),
          "GRU": (3, _GRU, ("Sigmoid", "Tanh"))}


def _helper(op: str, words: list[str], dtype: np.dtype) -> Helper:
    kind = c_type(dtype)
    functions = [instance(f"{word}_of_{kind.suffix}", _ACTIVATION, T=kind.name,
                          text=spelled(_ACTIVATIONS[word], dtype)) for word in words]
    gates, update, _ = _CELLS[op]
    text = spelled(update, dtype)
    for number, function in enumerate(functions):
        text = text.replace(f"ACT{number}", function.name)
    return instance(f"{op.lower()}_{'_'.join(words)}_{kind.suffix}", _LOOP, functions, T=kind.name, gates=str(gates),
                    kept=_APART if op == "GRU" else _SUM, update=text.strip("\n"),
                    flag="int linear," if op == "GRU" else "")


@operator(*_CELLS)
def recurrent(node: Node, c: Context) -> None:
    value, weights, recurrence = c.input(0), c.input(1), c.input(2)
    attributes = node.attributes
    if c.optional(4) is not None or attributes.get("layout", 0) or "clip" in attributes or attributes.get(
            "input_forget", 0):
        raise c.refusal("with lengths, layout, clip or input_forget")
    directions, _, size = c.known(weights)
    times, batch, _ = c.known(value)
    hidden = c.known(recurrence)[2]
    gates, _, defaults = _CELLS[node.op]
    words = [word.lower() for word in attributes.get("activations") or defaults * directions]
    if any(word not in _ACTIVATIONS for word in words) or attributes.get("activation_alpha"):
        raise c.refusal(f"with activations {', '.join(words)}")
    dtype = value.dtype
    results = c.new(dtype, (times, directions, batch, hidden)) if c.wants(0) else None
    states = [_state(c, dtype, (directions, batch, hidden), c.optional(index), wanted=node.op == "LSTM" or index == 5)
              for index in (5, 6)]
    scratch = c.new(dtype, ((gates + (node.op == "GRU")) * hidden,))
    for way in range(directions):
        own = words[way * len(defaults):(way + 1) * len(defaults)]
        reverse = way == 1 or attributes.get("direction", "forward") == "reverse"

        def part(one: Value | None, length: int, way: int = way) -> Argument:
            return "NULL" if one is None else At(one, way * length)

        flags = [str(int(reverse))]
        if node.op == "GRU":
            flags.append(str(int(attributes.get("linear_before_reset", 0))))
        c.call(_helper(node.op, own, dtype), times, batch, size, hidden, directions * batch * hidden, *flags, value,
               part(weights, gates * hidden * size), part(recurrence, gates * hidden * hidden),
               part(c.optional(3), 2 * gates * hidden), part(c.optional(7) if node.op == "LSTM" else None, 3 * hidden),
               part(states[0], batch * hidden), part(states[1], batch * hidden), scratch,
               part(results, batch * hidden))
    for index, one in enumerate((results, *states)):
        if one is not None:
            c.result(one, index)


def _state(c: Context, dtype: np.dtype, shape: tuple[int, ...], first: Value | None, *, wanted: bool) -> Value | None:
    if not wanted:
        return None
    state = c.new(dtype, shape)
    if first is None:
        fill(c, state, 0)
    else:
        copy(c, first, state, shape, strides_of(shape), strides_of(shape))
    return state
