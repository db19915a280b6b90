"""The processor's part of the work, on an input on its way in or an output on its way out.

Arrays have the sample axis first. What each kind is given is said in `gen/ir/host.py`, which checks it.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from .errors import PackageError

__all__ = ["KINDS", "apply"]


def _quantize(x: np.ndarray, p: Mapping[str, Any]) -> np.ndarray:
    number = np.uint8 if p["unsigned"] else np.int8
    limits = np.iinfo(number)
    with np.errstate(over="ignore"):    # infinite is as good
        steps = np.rint(x / np.float32(p["scale"])) + p["zero_point"]
    if np.isnan(steps).any():
        raise PackageError("values that are not numbers (NaN) cannot be quantised: the input has them, or the "
                           "processor's part of the model makes them")
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
