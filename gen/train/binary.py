"""Signs that can be trained: the machine's arithmetic forwards, the published estimators of their slope backwards."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import torch
from torch import Tensor

from gen.onnx.weights import why_no_signs
from gen.prune.layers import ModelView, chosen_layers, find_layers

__all__ = ["Estimator", "SignForm", "binary_layers", "binary_weights", "sign", "sign_forms"]

#: Of the slope of a sign: ``clipped``, 1 within -1..1 and 0 beyond (Hubara and others, Binarized Neural Networks,
#: NeurIPS 2016); ``polynomial``, 2 - 2 |x| there (Liu and others, Bi-Real Net, ECCV 2018).
Estimator = Literal["clipped", "polynomial"]
#: Comparison of x with c -> whether it is 1 and -1 as the sign of c - x, and as its opposite.
_COMPARING = {"GreaterOrEqual": (False, False), "Greater": (True, True), "LessOrEqual": (True, False),
              "Less": (False, True)}


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


@dataclass(frozen=True)
class SignForm:
    """A sign that several nodes make: of ``source`` less ``threshold`` (a constant, "" for none), of the opposite of
    that if ``turned``; then its opposite if ``negated``. With both, the sign of zero is -1.
    """

    source: str
    threshold: str = ""
    turned: bool = False
    negated: bool = False

    def of(self, x: Tensor, threshold: Tensor | None, estimator: Estimator) -> Tensor:
        difference = x if threshold is None else x - threshold
        found = sign(-difference if self.turned else difference, estimator)
        return -found if self.negated else found


def sign_forms(view: ModelView) -> dict[str, SignForm]:
    """By the name of its result, each Sign(Sign(x) + c), with a constant c between -1 and 1, whose sign is that of
    zero; and each Where with 1 and -1 after a comparison with a constant. They have one slope, that of a sign.
    """
    found = {}
    for node in view.model.graph.node:
        form = None
        if node.op_type in ("Sign", "Where"):
            form = _moved(view, node) if node.op_type == "Sign" else _chosen(view, node)
        if form is not None:
            found[node.output[0]] = form
    return found


def _moved(view: ModelView, node: onnx.NodeProto) -> SignForm | None:
    add = view.makers.get(node.input[0])
    for inner, constant in (add.input, reversed(add.input)) if add is not None and add.op_type == "Add" else ():
        maker, zero = view.makers.get(inner), _number(view, constant)
        if maker is not None and maker.op_type == "Sign" and zero is not None and 0 < abs(zero) < 1:
            return SignForm(maker.input[0], turned=zero < 0, negated=zero < 0)
    return None


def _chosen(view: ModelView, node: onnx.NodeProto) -> SignForm | None:
    compare, values = view.makers.get(node.input[0]), [_number(view, name) for name in node.input[1:]]
    if compare is None or compare.op_type not in _COMPARING or values not in ([1, -1], [-1, 1]):
        return None
    turned, negated = _COMPARING[compare.op_type]
    source, threshold = compare.input
    if source in view.constants:        # c <= x is x >= c, and c < x is x > c
        source, threshold, turned = threshold, source, not turned
    if threshold not in view.constants or source in view.constants:
        return None
    return SignForm(source, threshold, turned, negated != (values == [-1, 1]))


def _number(view: ModelView, name: str) -> float | None:
    """A constant of one number."""
    array = view.array(name) if name in view.constants else np.zeros(0)
    return float(array.item()) if array.size == 1 else None


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
