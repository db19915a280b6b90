"""The processor's part of the work: the kinds of steps, what each does, what it must be given."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from typing import Literal

import numpy as np

from gen.ir.errors import GraphError
from npudriver import steps

__all__ = ["HostStep", "apply_step", "is_integer", "is_scale", "step_problems"]


@dataclass(frozen=True)
class HostStep:
    """Work of the processor, on an input on its way in or an output on its way out; arrays have the sample axis first.

    quantize (scale, zero_point, unsigned), dequantize (the same), softmax (axis), reshape (shape, -1 for samples),
    transpose (axes), gather (index: places in a flattened sample, an array of the result's shape without samples),
    retype (unsigned: from int8 to uint8, or back; values are shifted by 128), join (parts, constant, scale, bias):
    channel ``c`` of a sum that int8 does not hold is ``constant`` and the values of channels ``c``, ``c + C``, ...
    together; float32 after ``scale`` and ``bias``.
    """

    kind: Literal["quantize", "dequantize", "softmax", "reshape", "transpose", "gather", "retype", "join"]
    parameters: Mapping[str, object] = field(default_factory=dict)


def is_integer(value: object, low: int | None = None, high: int | None = None) -> bool:
    """Whether ``value`` is a whole number (no bool, no float) from ``low`` to ``high``."""
    return (isinstance(value, Integral) and not isinstance(value, bool)
            and (low is None or low <= int(value)) and (high is None or int(value) <= high))


def is_scale(value: object) -> bool:
    """Whether a quantisation can have ``value`` as its step."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) and float(value) > 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_permutation(value: object) -> bool:
    """Of the axes behind the samples'."""
    return (isinstance(value, tuple) and value[:1] == (0,) and all(map(is_integer, value))
            and sorted(value) == list(range(len(value))))


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple) and value[:1] == (-1,) and all(is_integer(size, 1) for size in value[1:])


def _is_index(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "i" and int(value.min(initial=0)) >= 0


def _is_per_channel(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == 1


_QUANTISATION: Mapping[str, Callable[[object], bool]] = {
    "scale": is_scale, "zero_point": is_integer, "unsigned": _is_flag}

#: What each kind is given, all of it, and what that may be.
_PARAMETERS: Mapping[str, Mapping[str, Callable[[object], bool]]] = {
    "quantize": _QUANTISATION,
    "dequantize": _QUANTISATION,
    "softmax": {"axis": lambda axis: is_integer(axis) and axis != 0},
    "reshape": {"shape": _is_shape},
    "transpose": {"axes": _is_permutation},
    "gather": {"index": _is_index},
    "retype": {"unsigned": _is_flag},
    "join": {"parts": lambda parts: is_integer(parts, 1), "constant": is_integer, "scale": _is_per_channel,
             "bias": _is_per_channel},
}


def step_problems(step: HostStep) -> Iterator[str]:
    """What is wrong with a step, if anything."""
    wanted = _PARAMETERS.get(step.kind)
    if wanted is None:
        yield f"host step {step.kind!r} is unknown; known: {', '.join(_PARAMETERS)}"
        return
    if step.parameters.keys() != wanted.keys():
        yield f"host step {step.kind} must have {', '.join(wanted)}, not {', '.join(step.parameters) or 'nothing'}"
    for name, fits in wanted.items():
        if not fits(step.parameters[name]):
            yield f"host step {step.kind} cannot have {name}={step.parameters[name]!r}"
    if wanted is _QUANTISATION:
        low, high = (0, 255) if step.parameters["unsigned"] else (-128, 127)
        if not is_integer(step.parameters["zero_point"], low, high):
            yield f"host step {step.kind}: zero_point must be in {low}..{high}, not {step.parameters['zero_point']}"


def apply_step(step: HostStep, x: np.ndarray) -> np.ndarray:
    """What a step makes of an array, samples first. Raises GraphError for an unknown kind."""
    if step.kind not in steps.KINDS:
        raise GraphError(f"host step {step.kind!r} is unknown")
    return steps.apply(step.kind, step.parameters, x)
