"""The processor's part of the work, on an input on its way in or an output on its way out.

Arrays have the sample axis first. The kinds of steps, and the fields of each:

* quantize, dequantize: scale, zero_point, unsigned.
* softmax: axis.
* reshape: shape, -1 for samples.
* transpose: axes.
* gather: index, an array of the result's shape without samples; its values are places in a flattened sample.
* retype: unsigned. int8 becomes uint8, or back; values are shifted by 128.
* join: parts, constant, scale, bias. Sums that int8 does not hold are in several channels: channel ``c`` of the result
  is ``constant`` plus the values of channels ``c``, ``c + C`` and so on, in float32 after ``scale`` and ``bias``.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Callable, Iterator, Mapping

import numpy as np

from .errors import PackageError

__all__ = ["KINDS", "apply", "is_integer", "is_scale", "step_problems"]


def _quantize(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    number = np.uint8 if p["unsigned"] else np.int8
    limits = np.iinfo(number)
    with np.errstate(over="ignore"):    # infinite is as good
        steps = np.rint(x / np.float32(p["scale"])) + p["zero_point"]
    if np.isnan(steps).any():
        raise PackageError("values that are not numbers (NaN) cannot be quantised: the input has them, or the "
                           "processor's part of the model makes them", code="bad-input")
    return np.clip(steps, limits.min, limits.max).astype(number)


def _dequantize(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    return (x.astype(np.float32) - np.float32(p["zero_point"])) * np.float32(p["scale"])


def _softmax(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    """float32 as onnxruntime computes it: exponentials of the distance to the maximum, times one over their sum."""
    exponentials = np.exp(x - x.max(axis=p["axis"], keepdims=True), dtype=np.float32)
    return exponentials / exponentials.sum(axis=p["axis"], keepdims=True, dtype=np.float32)


def _reshape(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    return x.reshape(len(x), *p["shape"][1:])


def _transpose(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    return x.transpose(p["axes"])


def _gather(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    return x.reshape(len(x), -1)[:, p["index"]]


def _retype(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    return (np.ascontiguousarray(x).view(np.uint8) ^ 128).view(np.uint8 if p["unsigned"] else np.int8)


def _join(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    total = x.reshape(len(x), p["parts"], -1, *x.shape[2:]).sum(axis=1, dtype=np.int64) + p["constant"]
    return total.astype(np.float32) * p["scale"][:, None, None] + p["bias"][:, None, None]


#: Kind of a step -> what it makes of an array, given its parameters.
KINDS: Mapping[str, Callable[[np.ndarray, Mapping[str, Any]], np.ndarray]] = {
    "quantize": _quantize, "dequantize": _dequantize, "softmax": _softmax, "reshape": _reshape,
    "transpose": _transpose, "gather": _gather, "retype": _retype, "join": _join,
}


def apply(kind: str, parameters: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """What a step makes of an array, samples first. Raises KeyError for a kind that there is not."""
    return KINDS[kind](x, parameters)


def is_integer(value: object, low: int | None = None, high: int | None = None) -> bool:
    """Whether ``value`` is a whole number (no bool, no float) from ``low`` to ``high``."""
    return (isinstance(value, Integral) and not isinstance(value, bool)
            and (low is None or low <= int(value)) and (high is None or int(value) <= high))


def is_scale(value: object) -> bool:
    """Whether a quantisation can have ``value`` as its step: it is computed with as float32."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    with np.errstate(over="ignore", under="ignore"):
        return bool(0 < np.float32(value) < np.inf)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_permutation(value: object) -> bool:
    """Of the axes after the samples'."""
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


def step_problems(kind: object, parameters: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a step, if anything."""
    wanted = _PARAMETERS.get(kind) if isinstance(kind, str) else None
    if wanted is None:
        yield f"host step {kind!r} is unknown; known: {', '.join(_PARAMETERS)}"
        return
    if parameters.keys() != wanted.keys():
        yield f"host step {kind} must have {', '.join(wanted)}, not {', '.join(parameters) or 'nothing'}"
        return
    for name, fits in wanted.items():
        if not fits(parameters[name]):
            yield f"host step {kind} cannot have {name}={parameters[name]!r}"
            return
    if wanted is _QUANTISATION:
        low, high = (0, 255) if parameters["unsigned"] else (-128, 127)
        if not is_integer(parameters["zero_point"], low, high):
            yield f"host step {kind}: zero_point must be in {low}..{high}, not {parameters['zero_point']}"
