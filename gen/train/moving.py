"""ONNX operators on PyTorch tensors that move values or take some of them."""

import torch
from torch import Tensor
from torch.nn import functional

from gen.train.call import Call
from gen.train.errors import TrainError

__all__ = ["MOVING", "same_pads"]


def same_pads(call: Call, x: Tensor, kernel: list[int]) -> list[int]:
    """Of ``auto_pad`` SAME_UPPER and SAME_LOWER, in ONNX's order."""
    axes = len(kernel)
    strides = call.attributes.get("strides", [1] * axes)
    dilations = call.attributes.get("dilations", [1] * axes)
    reach = [dilation * (taps - 1) + 1 for dilation, taps in zip(dilations, kernel, strict=True)]
    total = [max(0, (-(-size // stride) - 1) * stride + taps - size)
             for size, stride, taps in zip(x.shape[2:], strides, reach, strict=True)]
    fewer, more = [n // 2 for n in total], [n - n // 2 for n in total]
    return fewer + more if call.attributes["auto_pad"] == "SAME_UPPER" else more + fewer


def _slice(call: Call) -> Tensor:
    x, starts, ends = call[0], call.numbers("starts", 1), call.numbers("ends", 2)
    axes = call.numbers("axes", 3) or list(range(len(starts)))
    steps = call.numbers("steps", 4) or [1] * len(starts)
    if min(steps, default=1) < 1:
        raise TrainError("a step backwards is not known here")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return x[tuple(index)]


def _split(call: Call) -> tuple[Tensor, ...]:
    axis, sizes = call.attributes.get("axis", 0), call.numbers("split", 1)
    if sizes:
        return call[0].split(sizes, axis)
    length = -(-call[0].shape[axis] // call.outputs)
    return call[0].split(length, axis)


def _gather(call: Call) -> Tensor:
    axis, index = call.attributes.get("axis", 0), torch.tensor(call.integers[1])
    found = call[0].index_select(axis, index.reshape(-1) % call[0].shape[axis])
    shape = list(call.shapes[1])
    return found.reshape(*call[0].shape[:axis], *shape, *call[0].shape[axis % call[0].ndim + 1:])


def _resize(call: Call) -> Tensor:
    if call.attributes.get("mode", "nearest") != "nearest":
        raise TrainError("only the mode nearest is known here")
    x, scales, sizes = call[0], call.optional(2), call.integers.get(3)
    wanted = sizes or ([round(size * factor) for size, factor in zip(x.shape, scales.tolist(), strict=True)]
                       if scales is not None else [])
    if len(wanted) != x.ndim or any(new % old for new, old in zip(wanted[1:], x.shape[1:], strict=True)):
        raise TrainError("only whole factors are known here")
    return functional.interpolate(x, tuple(wanted[2:]), mode="nearest")


def _tile(call: Call) -> Tensor:
    return call[0].repeat(call.numbers("repeats", 1))


def _expand(call: Call) -> Tensor:
    return call[0].expand(torch.broadcast_shapes(call[0].shape, tuple(call.numbers("shape", 1))))


#: What each operator makes of its inputs.
MOVING = {"Slice": _slice, "Split": _split, "Gather": _gather, "Resize": _resize, "Tile": _tile, "Expand": _expand}
