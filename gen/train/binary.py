"""Signs that can be trained: the machine's arithmetic forwards, the published estimators of their slope backwards."""

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import onnx
import torch
from torch import Tensor

from gen.onnx.weights import why_no_signs
from gen.prune.layers import ModelView, chosen_layers, find_layers

__all__ = ["Estimator", "binary_layers", "binary_weights", "moved_signs", "sign"]

#: Of the slope of a sign: ``clipped``, 1 within -1..1 and 0 beyond (Hubara and others, Binarized Neural Networks,
#: NeurIPS 2016); ``polynomial``, 2 - 2 |x| there (Liu and others, Bi-Real Net, ECCV 2018).
Estimator = Literal["clipped", "polynomial"]


class _Sign(torch.autograd.Function):
    """See `sign`."""

    @staticmethod
    def forward(context: Any, x: Tensor, estimator: Estimator) -> Tensor:
        context.save_for_backward(x)
        context.estimator = estimator
        return torch.where(x < 0, -1.0, 1.0)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        x, = context.saved_tensors
        size = x.abs()
        slope = (size <= 1).float() if context.estimator == "clipped" else (2 - 2 * size).clamp(min=0)
        return gradients[0] * slope, None


def sign(x: Tensor, estimator: Estimator) -> Tensor:
    """-1 below zero, else 1, as the machine has it; onnxruntime's Sign of zero is zero."""
    found: Tensor = _Sign.apply(x, estimator)
    return found


def binary_weights(weights: Tensor, axis: int) -> Tensor:
    """Signs of ``weights``, times the mean of their sizes in each output channel, which is on ``axis``.

    The gradient is that of the signs, clipped, times the mean, which counts as a constant (Bi-Real Net; XNOR-Net has
    the mean).
    """
    others = [other for other in range(weights.ndim) if other != axis]
    scale = weights.detach().abs().mean(others, keepdim=True)
    return sign(weights, "clipped") * scale


def moved_signs(view: ModelView) -> dict[str, tuple[str, float]]:
    """Sign(Sign(x) + c), with a constant c between -1 and 1, not 0: its name -> x and c.

    So models say what the sign of zero is, that of c. It is a sign of x, and has one slope, not the product of two.
    """
    found = {}
    for node in view.model.graph.node:
        moved = view.makers.get(node.input[0]) if node.op_type == "Sign" else None
        if moved is None or moved.op_type != "Add":
            continue
        for inner, constant in (moved.input, reversed(moved.input)):
            maker = view.makers.get(inner)
            if maker is None or maker.op_type != "Sign" or constant not in view.constants:
                continue
            number = view.array(constant)
            if number.size == 1 and 0 < abs(number.item()) < 1:
                found[node.output[0]] = maker.input[0], float(number.item())
    return found


def binary_layers(model: onnx.ModelProto, arrays: dict[str, np.ndarray], patterns: Collection[str]) -> dict[str, int]:
    """Initializer -> axis of its output channels, of each layer that reads signs and has binary weights: plus or minus
    one number in each channel as they are, or by its name being like one of ``patterns``.

    Raises PruneError for a pattern like which no layer that reads signs is called.
    """
    layers = [layer for layer in find_layers(model) if layer.left == "binary"]
    chosen = chosen_layers((layer.node for layer in layers), list(patterns)) if patterns else set()
    found = {}
    for layer in layers:
        axis = int(layer.transposed)
        array = arrays[layer.initializer].astype(np.float32)
        if layer.node in chosen or not why_no_signs(array, axis):
            found[layer.initializer] = axis
    return found
