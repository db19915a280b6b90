"""Integer networks of dot products, all zero points 0, with sums from whoever multiplies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cores.arch.stochastic import ACC_BLOCK, Circuit
from sim.golden import quantize_multiplier, requantize
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams

from .backbone import Backbone, Product

__all__ = ["FAN_IN", "Float", "Layer", "Multiply", "exact", "float_scores", "integers", "quantised", "scores",
           "stochastic"]

#: int8 (n, taps, C) activations and (O, taps, C) weights -> (n, O) sums of products.
Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]
#: Weights (O, taps, C) and biases (O,) of a layer.
Float = tuple[np.ndarray, np.ndarray]

#: Inputs of one stochastic dot product: channels of a block, of one tap.
FAN_IN = 16
#: Circuits to whose sums zeros add nothing, in whichever units of so many inputs they are.
_INDIFFERENT = {Circuit.AND_LOOP: 1, Circuit.AND_ACC: ACC_BLOCK}
#: Values of an input that is unfolded at once, and of the largest results of images that are computed together.
_AT_ONCE = 1 << 25


@dataclass(frozen=True, eq=False)
class Layer:
    """int8 ``weights`` (O, taps, C); ``bias`` (O,) and ``scale``, the factor to the next int8, are of sums."""

    product: Product
    weights: np.ndarray
    bias: np.ndarray
    scale: float


def integers(pixels: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 1 as int8."""
    return np.rint(127 * pixels).astype(np.int8)


def exact(activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """`Multiply` without streams."""
    # Exact in double precision.
    return np.rint(_flat(activations, np.float64) @ _flat(weights, np.float64).T).astype(np.int64)


def stochastic(circuit: Circuit, streams: Streams) -> Multiply:
    """`Multiply` of a circuit: units of `FAN_IN` channels of a tap, added up."""
    return partial(_stochastic, circuit, streams)


def _stochastic(circuit: Circuit, streams: Streams, activations: np.ndarray, weights: np.ndarray) -> np.ndarray:
    least = _INDIFFERENT.get(circuit, FAN_IN)
    padding = [(0, 0), (0, 0), (0, -activations.shape[2] % least)]
    a, w = (_flat(np.pad(values, padding), np.int8) for values in (activations, weights))
    return accumulate(circuit, a, w, streams, fan_in=FAN_IN)


def _flat(values: np.ndarray, kind: type) -> np.ndarray:
    return values.reshape(len(values), -1).astype(kind)


def _windows(x: np.ndarray, product: Product) -> np.ndarray:
    """(n, H, W, C) -> (n, rows, cols, taps, C)."""
    pad = product.padding
    padded = np.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    windows = sliding_window_view(padded, product.kernel, axis=(1, 2))[:, ::product.stride, ::product.stride]
    return np.moveaxis(windows, 3, 5).reshape(*windows.shape[:3], product.taps, x.shape[3])


def _products(x: np.ndarray, product: Product, multiply: Multiply, weights: np.ndarray) -> np.ndarray:
    """(n, H, W, C) -> (n, rows, cols, O) sums."""
    each = product.rows * product.cols * product.taps * product.input.channels
    step, shape = max(1, _AT_ONCE // each), (product.rows, product.cols, len(weights))
    parts = [_windows(x[begin:begin + step], product) for begin in range(0, len(x), step)]
    return np.concatenate([multiply(part.reshape(-1, product.taps, x.shape[3]), weights).reshape(-1, *shape)
                           for part in parts])


def _pooled(x: np.ndarray, size: int) -> np.ndarray:
    n, height, width, channels = x.shape
    rows, cols = height // size, width // size
    return x[:, :rows * size, :cols * size].reshape(n, rows, size, cols, size, channels).max(axis=(2, 4))


def _float_sums(x: np.ndarray, product: Product, layer: Float) -> np.ndarray:
    """(n, H, W, C) -> (n, rows, cols, O)."""
    weights, bias = layer

    def multiply(a: np.ndarray, w: np.ndarray) -> np.ndarray:
        return _flat(a, np.float32) @ _flat(w, np.float32).T

    return _products(x, product, multiply, weights) + bias


def quantised(backbone: Backbone, network: Sequence[Float], pixels: np.ndarray, in_range: float) -> list[Layer]:
    """int8 layers of a float network; activations' ranges are those of the share ``in_range`` of the results for
    ``pixels`` (n, H, W, C).
    """
    layers, scale, x = [], 1 / 127, pixels
    for product, (weights, bias) in zip(backbone.layers, network, strict=True):
        weight_scale = float(np.abs(weights).max()) / 127 or 1.0
        x = np.maximum(_float_sums(x, product, (weights, bias)), 0)
        following = float(np.quantile(x, in_range)) / 127 or 1.0
        layers.append(Layer(product, np.rint(weights / weight_scale).astype(np.int8),
                            np.rint(bias / (scale * weight_scale)).astype(np.int64), scale * weight_scale / following))
        scale, x = following, _pooled(x, product.pool)
    return layers


def float_scores(backbone: Backbone, network: Sequence[Float], pixels: np.ndarray) -> np.ndarray:
    """(n, classes) of the float network; ``pixels`` (n, H, W, C) from 0 to 1."""
    *products, last = backbone.layers

    def few(x: np.ndarray) -> np.ndarray:
        for product, layer in zip(products, network, strict=False):
            x = _pooled(np.maximum(_float_sums(x, product, layer), 0), product.pool)
        return _float_sums(x, last, network[-1]).reshape(len(x), -1)

    return _in_parts(few, backbone.layers, pixels)


def scores(layers: Sequence[Layer], x: np.ndarray, multiply: Multiply) -> np.ndarray:
    """(n, classes) sums of the last layer; ``x`` int8 (n, H, W, C)."""
    return _in_parts(partial(_scores, layers, multiply), [layer.product for layer in layers], x)


def _scores(layers: Sequence[Layer], multiply: Multiply, x: np.ndarray) -> np.ndarray:
    for layer in layers[:-1]:
        multiplier, shift = quantize_multiplier(np.full(len(layer.bias), layer.scale))
        sums = _products(x, layer.product, multiply, layer.weights)
        rows = sums.reshape(-1, len(layer.bias))[:, :, None, None]
        x = requantize(rows, layer.bias, multiplier, shift, 0, 0, 127).reshape(sums.shape)
        x = _pooled(x, layer.product.pool)
    last = layers[-1]
    return _products(x, last.product, multiply, last.weights).reshape(len(x), -1) + last.bias


def _in_parts(compute: Callable[[np.ndarray], np.ndarray], products: Sequence[Product], x: np.ndarray) -> np.ndarray:
    """Of as many images at a time as memory has room for."""
    step = max(1, _AT_ONCE // max(one.rows * one.cols * one.outputs for one in products))
    return np.concatenate([compute(x[begin:begin + step]) for begin in range(0, len(x), step)])
