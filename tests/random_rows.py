"""Seeded graphs of row operations: material of the comparisons on all targets."""

from dataclasses import replace

import numpy as np

from gen.ir.graph import Graph, Pool
from gen.ir.layers.rows import RowOp
from gen.ir.tensor import Requantize, Tensor
from sim.golden import quantize_multiplier
from sim.rows import EXPONENTIAL_PLACES, exponentials, moments

__all__ = ["narrowed", "normalisation_graph", "random_rows", "softmax_graph"]


def _graph(rows, heads: int, channels: int, size: tuple[int, int], scale: np.ndarray, bias: np.ndarray,
           zero_point: int, scales: tuple[float, float]) -> Graph:
    multiplier, shift = quantize_multiplier(scale)
    layer = RowOp("rows", "x", "y", rows=rows, heads=heads,
                  requantize=Requantize(bias, multiplier, shift, zero_point, -128, 127))
    tensors = {"x": Tensor("x", (channels, *size), scales[0], -3), "y": Tensor("y", (channels, *size), scales[1],
                                                                               zero_point)}
    return Graph("rows", tensors, (layer,), {"x": ("x", ())}, {"y": ("y", ())})


def softmax_graph(*, channels: int, size: tuple[int, int], heads: int = 1, span: int = 0, scale: float = 0.1) -> Graph:
    """Softmax "y" of ``channels`` of each of ``heads``, which begin ``span`` channels apart, of input "x"."""
    total = heads * (span or channels)
    return _graph(exponentials(channels, scale), heads, total, size, np.full(total, 2.0 ** (8 - EXPONENTIAL_PLACES)),
                  np.zeros(total, np.int64), -128, (scale, 1 / 256))


def normalisation_graph(*, channels: int, size: tuple[int, int], heads: int = 1, span: int = 0, scale: float = 0.1,
                        centred: bool = True, seed: int = 0) -> Graph:
    """A normalisation "y" of ``channels`` of each of ``heads``, which begin ``span`` channels apart, of input "x", with
    random scales and biases of channels.
    """
    rng, total = np.random.default_rng(seed), heads * (span or channels)
    rows, step = moments(channels, scale, -3, 1e-5, centred=centred)
    factor = step * rng.uniform(0.3, 2, total) * 30
    return _graph(rows, heads, total, size, factor, np.rint(rng.normal(0, 20, total) / factor).astype(np.int64), 3,
                  (scale, 1 / 30))


def narrowed(graph: Graph, limit: int) -> Graph:
    """With a layer in front that clips the input to -``limit`` to ``limit``."""
    (rows,), tensor = graph.layers, graph.tensors["x"]
    channels = tensor.shape[0]
    multiplier, shift = quantize_multiplier(np.ones(channels))
    clip = Pool("clip", "x", "clipped", maximum=False, requantize=Requantize(
        np.full(channels, -tensor.zero_point), multiplier, shift, tensor.zero_point, -limit, limit))
    tensors = {**graph.tensors, "clipped": replace(tensor, name="clipped")}
    return replace(graph, tensors=tensors, layers=(clip, replace(rows, input="clipped")))


def random_rows(seed: int, *, largest: int) -> Graph:
    """Of up to ``largest`` channels."""
    rng = np.random.default_rng(seed)
    channels, height, width = (int(n) for n in rng.integers(1, [largest, 9, 20]))
    scale = float(rng.choice([0.004, 0.05, 0.4]))
    is_softmax, heads = bool(rng.integers(2)), int(rng.integers(1, 4))
    span = 0 if heads == 1 else -(-channels // 32) * 32
    if is_softmax:
        return softmax_graph(channels=channels, size=(height, width), heads=heads, span=span, scale=scale)
    return normalisation_graph(channels=channels, size=(height, width), heads=heads, span=span, scale=scale,
                               centred=bool(rng.integers(2)), seed=seed)
