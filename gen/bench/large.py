"""Layers over many pixels, and pools over large windows: measured cycles beside what bus and engines need at least."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from cores.config import NpuConfig
from gen.bench.layers import measure_graph
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.graph import Conv, Graph, Layer, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from sim.golden import quantize_multiplier, quantize_residual
from sim.rtl.machine import RtlMachine

__all__ = ["LARGE", "LargeLayer", "large_graph", "measure_large"]

_Kind = Literal["1x1", "Relu", "requantise", "Add", "maximum", "average"]


@dataclass(frozen=True, kw_only=True)
class LargeLayer:
    """``channels`` of ``size`` in; a 1x1 convolution makes twice as many. ``kernel`` and ``stride`` are a pool's."""

    kind: _Kind
    size: tuple[int, int]
    channels: int = 16
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1

    @property
    def name(self) -> str:
        what = self.kind if self.kernel == (1, 1) else f"{self.kind} {self.kernel[0]}x{self.kernel[1]}"
        what = f"global {self.kind}" if self.kernel == self.size else what
        return f"{what}{f' / {self.stride}' if self.stride > 1 else ''}, {self.size[0]}x{self.size[1]}"

    @property
    def outputs(self) -> tuple[int, int, int]:
        """Shape of the result."""
        height, width = (output_size(size, taps, self.stride, 0, 0)
                         for size, taps in zip(self.size, self.kernel, strict=True))
        return (2 * self.channels if self.kind == "1x1" else self.channels), height, width

    def ideal(self, config: NpuConfig) -> int:
        """Cycles of the busiest: reads, writes, the multipliers, the pool unit's tap a cycle."""
        channels, *outputs = self.outputs
        blocks, pixels = -(-self.channels // config.ic_lanes), prod(outputs)
        reads = blocks * prod(self.size) * (2 if self.kind == "Add" else 1)
        writes = -(-channels // config.ic_lanes) * pixels
        if self.kind == "1x1":
            return max(reads, writes, -(-self.channels * channels * pixels // config.macs))
        return max(reads, writes, blocks * pixels * prod(self.kernel))


def _large() -> Iterator[LargeLayer]:
    pointwise: tuple[_Kind, ...] = ("1x1", "Relu", "requantise", "Add")
    pools: tuple[_Kind, ...] = ("average", "maximum")
    for size in ((130, 256), (224, 224), (512, 512)):
        for kind in pointwise:
            yield LargeLayer(kind=kind, size=size)
        yield LargeLayer(kind="maximum", size=size, kernel=(2, 2), stride=2)
        yield LargeLayer(kind="average", size=size, kernel=(3, 3))
    for extent in (64, 112):
        for kind in pools:
            yield LargeLayer(kind=kind, size=(extent, extent), channels=64, kernel=(extent, extent))


LARGE: tuple[LargeLayer, ...] = tuple(_large())


def large_graph(layer: LargeLayer, *, seed: int = 0) -> Graph:
    """A graph of just this layer; an addition's second operand is an input of its own."""
    rng = np.random.default_rng(seed)
    channels, outputs = layer.channels, layer.outputs[0]
    source = Tensor("input", (channels, *layer.size), 1.0, 3)
    target = Tensor("output", layer.outputs, 1.0, -5)
    tensors = {source.name: source, target.name: target}
    scale = {"1x1": 40.0 / (74 * 74 * np.sqrt(channels)), "requantise": 0.7, "average": 8.0 / prod(layer.kernel) ** 0.5}
    multiplier, shift = quantize_multiplier(np.full(outputs, scale.get(layer.kind, 1.0)))
    low = target.zero_point if layer.kind == "Relu" else -128
    requantize = Requantize(rng.integers(-9, 9, outputs), multiplier, shift, target.zero_point, low, 127)
    epilogue: tuple[StoreOp, ...] = ()
    if layer.kind == "Add":
        tensors["other"] = Tensor("other", source.shape, 1.0, 0)
        first, second, common = quantize_residual(0.6, 0.8)
        epilogue = Add(middle=target, other="other", multiplier_a=first, multiplier_b=second, constant=1234,
                       shift=common, zero_point=target.zero_point, low=-128, high=127),
    node: Layer
    if layer.kind == "1x1":
        weights = rng.integers(-127, 128, (outputs, channels, 1, 1)).astype(np.int16)
        node = Conv(layer.name, source.name, target.name, weights=weights, requantize=requantize)
    else:
        node = Pool(layer.name, source.name, target.name, maximum=layer.kind == "maximum", kernel=layer.kernel,
                    stride=(layer.stride, layer.stride), pad_value=0, requantize=requantize, epilogue=epilogue)
    inputs: dict[str, tuple[str, tuple[()]]] = {name: (name, ()) for name in tensors if name != target.name}
    graph = Graph(layer.name, tensors, (node,), inputs, {target.name: (target.name, ())})
    verify(graph)
    return graph


def measure_large(machine: RtlMachine, layers: Sequence[LargeLayer] = LARGE) -> Iterator[dict[str, Any]]:
    """Each layer on the RTL, from start to done, compared with the reference value by value."""
    for layer in layers:
        measured = measure_graph(large_graph(layer), machine)
        ideal = layer.ideal(machine.config)
        yield {"layer": layer.name, "cycles": measured.rtl.cycles, "ideal": ideal,
               "ideal_%": 100 * ideal / measured.rtl.cycles, "wrong": measured.mismatches}
