"""Words of C: types, literals and names."""

import math
import re
from dataclasses import dataclass

import numpy as np

__all__ = ["CType", "c_type", "identifier", "literal"]


@dataclass(frozen=True)
class CType:
    """``name`` in C; ``suffix`` in names of helpers; ``wide``: an unsigned type in which integers wrap around."""

    name: str
    suffix: str
    wide: str = ""


_TYPES = {np.dtype(dtype): CType(*words) for dtype, words in {
    "bool": ("uint8_t", "b8", "uint32_t"),
    "int8": ("int8_t", "i8", "uint32_t"),
    "uint8": ("uint8_t", "u8", "uint32_t"),
    "int16": ("int16_t", "i16", "uint32_t"),
    "uint16": ("uint16_t", "u16", "uint32_t"),
    "int32": ("int32_t", "i32", "uint32_t"),
    "uint32": ("uint32_t", "u32", "uint32_t"),
    "int64": ("int64_t", "i64", "uint64_t"),
    "uint64": ("uint64_t", "u64", "uint64_t"),
    "float32": ("float", "f32"),
    "float64": ("double", "f64"),
}.items()}


def c_type(dtype: np.dtype) -> CType:
    """Raises KeyError for what has none: text, numbers of 16 and 8 bits with an exponent."""
    return _TYPES[np.dtype(dtype)]


def identifier(text: str) -> str:
    """``text`` as part of a name in C."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def literal(value: object, dtype: np.dtype) -> str:
    """A number of NumPy's ``dtype``, exactly, as a constant of a type that C converts to that in silence."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        number = float(value)   # type: ignore[arg-type]
        if math.isnan(number):
            return "NAN"
        if math.isinf(number):
            return "INFINITY" if number > 0 else "-INFINITY"
        shortest = str(dtype.type(value))
        shortest = shortest if "." in shortest or "e" in shortest else f"{shortest}.0"
        return shortest + ("f" if dtype.itemsize == 4 else "")
    whole = int(value)  # type: ignore[call-overload]
    if dtype.kind == "i" and whole == np.iinfo(dtype).min and dtype.itemsize >= 4:
        return f"INT{8 * dtype.itemsize}_MIN"
    if dtype.itemsize == 8:
        return f"INT64_C({whole})" if dtype.kind == "i" else f"UINT64_C({whole})"
    return f"{whole}u" if dtype == np.uint32 else str(whole)
