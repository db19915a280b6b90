"""Sliding windows as ONNX describes them: explicit or automatic padding, ceil_mode, cut windows at the edge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cores.arch.isa import Opcode, largest_field
from gen.ir.graph import MAX_VALUES, output_size
from gen.onnx.model import NodeError

__all__ = ["MAX_KERNEL", "MAX_PADS", "MAX_STRIDE", "WindowError", "Windows", "counts", "dilated", "resolve"]

#: Rows and columns of a kernel, and of padding at each side, and columns of a stride, that instructions have room for.
MAX_KERNEL = largest_field(Opcode.COMPUTE_SET, "kernel_h")
MAX_STRIDE = largest_field(Opcode.COMPUTE_SET, "stride")
MAX_PADS = largest_field(Opcode.LOAD_ACT, "pad_top"), largest_field(Opcode.LOAD_SET, "pad_left")


class WindowError(NodeError):
    """Attributes that contradict each other, or make an empty output or an enormous one."""


@dataclass(frozen=True)
class Windows:
    #: From the first tap to the last: with dilation more than there are taps.
    kernel: tuple[int, int]
    stride: tuple[int, int]
    #: top, left, bottom, right; with ceil_mode the last two also hold what the last windows lack.
    pads: tuple[int, int, int, int]
    output: tuple[int, int]


def _two(values: Sequence[int], filler: int) -> list[int]:
    """Values of two axes; a one-dimensional window lies in the width."""
    if len(values) not in (1, 2):
        raise WindowError(f"{len(values)} spatial axes, at most two are supported", code="bad-shape")
    return [filler, int(values[0])] if len(values) == 1 else [int(v) for v in values]


def dilated(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """The size of a kernel with ``dilations`` from a tap to the next."""
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]


def _explicit_pads(attributes: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    pads = [int(p) for p in attributes.get("pads", [0, 0, 0, 0])]
    if min(pads, default=0) < 0:
        raise WindowError("pads must not be negative", code="bad-attribute", attribute="pads")
    return _two(pads[:len(pads) // 2], 0), _two(pads[len(pads) // 2:], 0)


def resolve(attributes: Mapping[str, Any], size: Sequence[int], kernel: Sequence[int] | None = None) -> Windows:
    """Windows of an ONNX node over an input of ``size`` (H, W); ``kernel`` where the weights give it.

    Raises WindowError.
    """
    named = attributes.get("kernel_shape") or kernel
    if named is None:
        raise WindowError("kernel_shape is missing", code="bad-attribute", attribute="kernel_shape")
    if kernel is not None and list(named) != list(kernel):
        raise WindowError(f"kernel_shape {list(named)} differs from the weights' {list(kernel)}", code="bad-attribute",
                          attribute="kernel_shape")
    taps, stride = _two(named, 1), _two(attributes.get("strides") or [1] * len(named), 1)
    dilations = _two(attributes.get("dilations") or [1] * len(named), 1)
    if min(*taps, *stride, *dilations) < 1:
        raise WindowError("kernel, strides and dilations must be positive", code="bad-attribute")
    extent = dilated(taps, dilations)
    automatic = attributes.get("auto_pad", "NOTSET")
    begin, end = _explicit_pads(attributes)
    output = []
    for axis in range(2):
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            needed = max((-(-size[axis] // stride[axis]) - 1) * stride[axis] + extent[axis] - size[axis], 0)
            begin[axis] = needed // 2 if automatic == "SAME_UPPER" else needed - needed // 2
            end[axis] = needed - begin[axis]
        elif automatic == "VALID":
            begin[axis] = end[axis] = 0
        elif automatic != "NOTSET":
            raise WindowError(f"auto_pad {automatic!r} is unknown", code="bad-attribute", attribute="auto_pad")
        length = output_size(size[axis], extent[axis], stride[axis], begin[axis], end[axis])
        if attributes.get("ceil_mode") and automatic == "NOTSET":
            over = -(size[axis] + begin[axis] + end[axis] - extent[axis]) % stride[axis]
            # A window that would start in the padding after the input is left out.
            if over and length * stride[axis] < size[axis] + begin[axis]:
                length, end[axis] = length + 1, end[axis] + over
        if length < 1:
            raise WindowError(f"a window of {extent[axis]} does not fit an input of {size[axis]}", code="bad-shape")
        output.append(length)
    if output[0] * output[1] > MAX_VALUES:
        raise WindowError(f"makes {output[0]} x {output[1]} pixels, at most {MAX_VALUES:,} are supported",
                          code="too-large", limit=MAX_VALUES)
    return Windows((extent[0], extent[1]), (stride[0], stride[1]), (begin[0], begin[1], end[0], end[1]),
                   (output[0], output[1]))


def counts(attributes: Mapping[str, Any], size: Sequence[int], windows: Windows) -> np.ndarray:
    """Values that each window of an AveragePool divides by: (OH, OW) int64."""
    _, end = _explicit_pads(attributes)
    dilations = _two(attributes.get("dilations") or [1] * len(attributes["kernel_shape"]), 1)
    automatic = attributes.get("auto_pad", "NOTSET") != "NOTSET"
    axes = []
    for axis in range(2):
        begin = windows.pads[axis]
        first, last = 0, size[axis]
        if attributes.get("count_include_pad"):
            # What ceil_mode adds lies outside the padding and is never counted.
            first, last = -begin, size[axis] + (windows.pads[axis + 2] if automatic else end[axis])
        start = np.arange(windows.output[axis])[:, None] * windows.stride[axis] - begin
        taps = start + np.arange(0, windows.kernel[axis], dilations[axis])
        axes.append(np.count_nonzero((taps >= first) & (taps < last), axis=1))
    return np.outer(*axes)
