"""The digits network and its training step in plain NumPy; feature maps are (N, C, H, W) float32."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["CLASSES", "IMAGE_SIZE", "LAYERS", "Conv", "Parameters", "forward", "gradients", "initial_parameters"]

IMAGE_SIZE = 16
CLASSES = 10

#: Layer name -> (weights, bias); ``classifier`` is (10, channels), the rest are (OC, IC, KH, KW) or (C, 1, KH, KW).
Parameters = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Conv:
    """Convolution that keeps the size (over ``stride``), plus the output of layer ``add`` if given, then ReLU."""

    name: str
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    depthwise: bool = False
    add: str | None = None

    @property
    def pad(self) -> int:
        return self.kernel // 2


#: One of each kind: full, residual, strided, depthwise, pointwise. A mean over space and ``classifier`` follow.
LAYERS = (
    Conv("stem", 1, 32),
    Conv("block1", 32, 32),
    Conv("block2", 32, 32, add="stem"),
    Conv("down", 32, 32, stride=2),
    Conv("depthwise", 32, 32, depthwise=True),
    Conv("pointwise", 32, 64, kernel=1),
)


def initial_parameters(rng: np.random.Generator) -> Parameters:
    parameters = {}
    for layer in LAYERS:
        shape = (layer.outputs, 1 if layer.depthwise else layer.inputs, layer.kernel, layer.kernel)
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        weights = rng.normal(0, deviation, shape).astype(np.float32)
        parameters[layer.name] = (weights, np.zeros(layer.outputs, np.float32))
    features = LAYERS[-1].outputs
    weights = rng.normal(0, np.sqrt(1 / features), (CLASSES, features)).astype(np.float32)
    parameters["classifier"] = (weights, np.zeros(CLASSES, np.float32))
    return parameters


def _windows(layer: Conv, x: np.ndarray) -> np.ndarray:
    """(N, C, H, W) -> (N, C, OH, OW, KH, KW), a view of the padded input."""
    padded = np.pad(x, ((0, 0), (0, 0), (layer.pad, layer.pad), (layer.pad, layer.pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (layer.kernel, layer.kernel), axis=(2, 3))
    return windows[:, :, ::layer.stride, ::layer.stride]


def _convolve(layer: Conv, windows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    if layer.depthwise:
        return np.einsum("nchwij,cij->nchw", windows, weights[:, 0], optimize=True)
    return np.tensordot(windows, weights, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def forward(parameters: Mapping[str, tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor: ``input``, layer outputs by name (``NAME.conv`` before an addition), ``mean``, ``logits``."""
    tensors = {"input": x}
    for layer in LAYERS:
        weights, bias = parameters[layer.name]
        x = _convolve(layer, _windows(layer, x), weights) + bias[:, None, None]
        if layer.add:
            tensors[f"{layer.name}.conv"] = x
            x = x + tensors[layer.add]
        x = tensors[layer.name] = np.maximum(x, 0)
    tensors["mean"] = x.mean((2, 3))
    weights, bias = parameters["classifier"]
    tensors["logits"] = tensors["mean"] @ weights.T + bias
    return tensors


def gradients(parameters: Parameters, x: np.ndarray, labels: np.ndarray) -> tuple[float, Parameters]:
    """Mean cross-entropy of a batch and its gradient."""
    tensors = forward(parameters, x)
    logits = tensors["logits"] - tensors["logits"].max(1, keepdims=True)
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(likely[rows, labels] + 1e-12).mean())
    likely[rows, labels] -= 1
    likely /= len(labels)
    found: Parameters = {"classifier": (likely.T @ tensors["mean"], likely.sum(0))}
    last = tensors[LAYERS[-1].name]
    spread = (likely @ parameters["classifier"][0])[:, :, None, None] / (last.shape[2] * last.shape[3])
    slopes = {LAYERS[-1].name: np.broadcast_to(spread, last.shape)}
    for index in reversed(range(len(LAYERS))):
        layer = LAYERS[index]
        source = LAYERS[index - 1].name if index else "input"
        slope = slopes[layer.name] * (tensors[layer.name] > 0)
        if layer.add:
            slopes[layer.add] = slopes.get(layer.add, 0) + slope
        found[layer.name], backward = _convolution_gradients(layer, tensors[source], parameters[layer.name][0], slope)
        slopes[source] = slopes.get(source, 0) + backward
    return loss, found


def _convolution_gradients(layer: Conv, x: np.ndarray, weights: np.ndarray,
                           slope: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """((weights', bias'), input') of one convolution."""
    windows = _windows(layer, x)
    if layer.depthwise:
        of_weights = np.einsum("nchwij,nchw->cij", windows, slope, optimize=True)[:, None]
    else:
        of_weights = np.tensordot(slope, windows, ((0, 2, 3), (0, 2, 3)))
    height, width = x.shape[2:]
    of_input = np.zeros((*x.shape[:2], height + 2 * layer.pad, width + 2 * layer.pad), np.float32)
    oh, ow = slope.shape[2:]
    for ky in range(layer.kernel):
        for kx in range(layer.kernel):
            tap = weights[:, :, ky, kx]
            if layer.depthwise:
                part = slope * tap[:, 0, None, None]
            else:
                part = np.einsum("nohw,oc->nchw", slope, tap, optimize=True)
            of_input[:, :, ky:ky + layer.stride * oh:layer.stride, kx:kx + layer.stride * ow:layer.stride] += part
    of_input = of_input[:, :, layer.pad:layer.pad + height, layer.pad:layer.pad + width]
    return (of_weights, slope.sum((0, 2, 3))), of_input
