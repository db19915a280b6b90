"""Layers that are timed on their own, with seeded weights: what `gen bench` runs and compares with published figures."""

from dataclasses import dataclass

import numpy as np

from gen.ir import Conv, Graph, Requantize, Tensor, output_size, verify
from sim.golden import quantize_multiplier

__all__ = ["LAYERS", "LayerBenchmark", "conv_graph"]


@dataclass(frozen=True, kw_only=True)
class LayerBenchmark:
    """A convolution with equal padding on all sides, the share of weights it keeps, and what is published for it."""

    name: str
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1
    density: float = 1.0
    goal: float = 0.0
    peer: str = ""


LAYERS: tuple[LayerBenchmark, ...] = (
    LayerBenchmark(name="3x3 64->64 28x28", channels=64, outputs=64, size=28, kernel=3, goal=0.92,
                   peer="NNgen: 89.4 % of 252 multipliers"),
    LayerBenchmark(name="3x3 64->64 28x28, density 0.25", channels=64, outputs=64, size=28, kernel=3, density=0.25, goal=0.85),
    LayerBenchmark(name="1x1 256->256 14x14", channels=256, outputs=256, size=14, kernel=1, goal=0.90,
                   peer="NNgen, 128-bit bus: 89.8 % of 256 multipliers"),
)


def conv_graph(layer: LayerBenchmark, *, seed: int = 0) -> Graph:
    """A graph of just this convolution (dense; the compiler prunes it to ``density``) with weights all over int8."""
    rng = np.random.default_rng(seed)
    pad = layer.kernel // 2
    size = output_size(layer.size, layer.kernel, layer.stride, pad, pad)
    source = Tensor("input", (layer.channels, layer.size, layer.size), 1.0, 3)
    target = Tensor("output", (layer.outputs, size, size), 1.0, -5)
    weights = rng.integers(-127, 128, (layer.outputs, layer.channels, layer.kernel, layer.kernel)).astype(np.int16)
    weights[weights == 0] = 1
    # Random sums spread like the root of their length; this brings them to int8's range.
    spread = 73.0 * 73.0 * np.sqrt(weights[0].size * layer.density)
    multiplier, shift = quantize_multiplier(np.full(layer.outputs, 40.0 / spread))
    conv = Conv(
        name=layer.name, input=source.name, output=target.name, weights=weights, depthwise=False,
        stride=(layer.stride, layer.stride), pads=(pad, pad, pad, pad),
        requantize=Requantize(rng.integers(-9999, 9999, layer.outputs), multiplier, shift, target.zero_point, -128, 127))
    graph = Graph(layer.name, {t.name: t for t in (source, target)}, [conv], {"input": (source.name, ())},
                  {"output": (target.name, ())})
    verify(graph)
    return graph
