"""Seeded random graphs of one to three layers: the material of the randomised comparisons on all targets."""

from dataclasses import dataclass, field, replace

import numpy as np

from cores.arch.numerics import FIRST_BITS, MULTIPLIER_BITS, PRODUCT_MULTIPLIER_BITS, TABLE_BYTES
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.multiply import Multiply
from gen.ir.epilogue.table import Table
from gen.ir.epilogue.upsample import Upsample
from gen.ir.graph import Conv, Graph, Layer, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify

__all__ = ["RandomBuilder", "operations", "random_chains", "random_graph", "random_inputs", "random_pairs",
           "with_products", "with_tables"]


#: Largest sum of a channel's absolute weights: a sum of products then fits 27 bits, and so does a bias beside it.
_LARGEST_SUM = 1 << 18

_Pair = tuple[int, int]


def operations(*some: StoreOp | None) -> tuple[StoreOp, ...]:
    """Those that are there."""
    return tuple(op for op in some if op is not None)


@dataclass(eq=False)
class RandomBuilder:
    rng: np.random.Generator
    max_channels: int
    max_size: int
    #: Share of convolutions that are depthwise, with one stride for both axes; None: one in five, strides as they come.
    depthwise: float | None = None
    #: Share of convolutions that are dense, 3x3 and of stride 1; None: as they come.
    winograd: float | None = None
    #: Share of layers that are upsampled.
    upsampled: float = 0.15
    #: Share of convolutions that are in groups, where the channels can be.
    grouped: float = 0.0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)

    def __post_init__(self) -> None:
        #: Of its own, so that a seed's layers are the same with and without.
        self._scaling, self._widening = self.rng.spawn(2)

    def upsample(self, size: _Pair) -> _Pair:
        """Factors by which a layer's output of this size is upsampled."""
        if self._scaling.random() >= self.upsampled:
            return 1, 1
        largest = max(1, 2 * self.max_size // max(size))
        down, across = (min(largest, int(self._scaling.choice([1, 2, 2, 3, 5, 33 - axis]))) for axis in range(2))
        return down, across

    def leaky(self, target: Tensor, residual: Add | None) -> Leaky | None:
        """Another second stage, now and then where there is none."""
        rng = self._scaling
        if residual or rng.random() >= 0.2:
            return None
        low, high = (-128, 127) if rng.random() < 0.5 else sorted(int(v) for v in rng.integers(-128, 128, 2))
        multiplier, negative = rng.integers(0, 1 << MULTIPLIER_BITS, 2).tolist()
        middle = Tensor(f"{target.name}_middle", target.shape, 1.0, 0)
        return Leaky(middle=middle, multiplier=multiplier, negative=negative, shift=int(rng.integers(15, 18)),
                     zero_point=target.zero_point, low=low, high=high)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def channels(self) -> int:
        """Small and large counts alike, and often one beside a multiple of the block."""
        if self.chance(0.3):
            return max(1, min(self.max_channels, 16 * self.between(1, 8) + self.between(-1, 1)))
        return int(round(np.exp(self.rng.uniform(0, np.log(self.max_channels)))))

    def tensor(self, shape: tuple[int, int, int]) -> Tensor:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = Tensor(name, shape, 1.0, self.between(-128, 127))
        return self.tensors[name]

    def requantize(self, channels: int, spread: float, target: Tensor) -> Requantize:
        """Parameters that bring sums of about ``spread`` to most of int8's range."""
        scale = 60 / max(spread, 1.0) * self.rng.uniform(0.5, 2, channels)
        shift = np.clip(np.floor(16 - np.log2(scale)), 12, 43).astype(np.int64)
        multiplier = np.clip(np.round(scale * 2.0**shift), 0, (1 << 17) - 1).astype(np.int64)
        if self.chance(0.1):
            multiplier[self.rng.integers(channels)] = 0
        bias = self.rng.normal(0, spread, channels).astype(np.int64)
        low, high = (-128, 127) if self.chance(0.5) else sorted(int(v) for v in self.rng.integers(-128, 128, 2))
        return Requantize(bias, multiplier, shift, target.zero_point, low, high)

    def wide(self, stage: Requantize, rng: np.random.Generator, *, centred: bool = False) -> Requantize:
        """A first stage with a result of FIRST_BITS, of which sums make full use; ``centred``: around 0."""
        limit = 1 << FIRST_BITS - 1
        low, high = sorted(int(v) for v in rng.integers(-limit, limit, 2))
        return replace(stage, multiplier=np.minimum(2 * stage.multiplier, (1 << MULTIPLIER_BITS) - 1),
                       zero_point=0 if centred else int(rng.integers(-1, 2)), low=low, high=high)

    def residual(self, target: Tensor) -> Add | None:
        """An addition of any earlier tensor of the same shape, which gets made if it is wanted and not there."""
        fitting = [t.name for t in self.tensors.values() if t.shape == target.shape and t.name != target.name]
        if not fitting or not self.chance(0.6):
            return None
        middle = Tensor(f"{target.name}_middle", target.shape, 1.0, self.between(-128, 127))
        low, high = (-128, 127) if self.chance(0.5) else sorted(int(v) for v in self.rng.integers(-128, 128, 2))
        multiplier_a, multiplier_b = self.between(0, (1 << 17) - 1), self.between(0, (1 << 17) - 1)
        return Add(middle=middle, other=str(self.rng.choice(fitting)), multiplier_a=multiplier_a,
                   multiplier_b=multiplier_b, constant=self.between(-(1 << 25), 1 << 25), shift=self.between(15, 18),
                   zero_point=target.zero_point, low=low, high=high)

    def epilogue(self, factors: _Pair, target: Tensor, residual: Add | None) -> tuple[StoreOp, ...]:
        """Operations that follow each other in a store."""
        upsample = None if factors == (1, 1) else Upsample(factors)
        return operations(upsample, residual, self.leaky(target, residual))

    def window(self, source: Tensor, largest: int, *,
               square: bool = False) -> tuple[_Pair, _Pair, tuple[int, int, int, int], _Pair]:
        """Kernel, stride, pads and output size that fit a source."""
        _, height, width = source.shape
        if self.chance(0.08):
            return (height, width), (1, 1), (0, 0, 0, 0), (1, 1)
        if self.chance(0.25):
            kernel = (1, 1)
        elif self.chance(0.6):
            kernel = (3, 3)
        else:
            kernel = (self.between(1, largest), self.between(1, largest))
        # Now and then so many rows of padding that whole windows lie in them.
        most = (kernel[0] + 1 if self.chance(0.1) else kernel[0] // 2, kernel[1] // 2)
        top, left, bottom, right = (self.between(0, most[axis]) for axis in (0, 1, 0, 1))
        pads = (top, left, bottom, right)
        kernel = (min(kernel[0], height + pads[0] + pads[2]), min(kernel[1], width + pads[1] + pads[3]))
        if square:
            stride = (self.between(1, 2),) * 2
        else:
            stride = (self.between(1, 3), self.between(1, 3)) if self.chance(0.4) else (1, 1)
        size = (output_size(height, kernel[0], stride[0], pads[0], pads[2]),
                output_size(width, kernel[1], stride[1], pads[1], pads[3]))
        return kernel, stride, pads, size

    def weights(self, shape: tuple[int, ...]) -> np.ndarray:
        """int8 or uint8-range weights, dense or sparse, now and then with blocks or rows of zeros."""
        wide = self.chance(0.2)
        weights = self.rng.integers(-255, 256, shape) if wide and self.chance(0.3) else np.clip(
            np.round(self.rng.normal(0, 60 if wide else 35, shape)), *((-255, 255) if wide else (-128, 127)))
        if self.chance(0.4):
            weights = weights * (self.rng.random(shape) < self.rng.choice([0.05, 0.25, 0.5]))
        if self.chance(0.15):
            weights[self.rng.random(shape[0]) < 0.5] = 0
        # Sums must fit the accumulators; where there are very many weights they are made smaller.
        largest = np.abs(weights).reshape(shape[0], -1).sum(1).max()
        return np.trunc(weights * min(1.0, _LARGEST_SUM / max(1.0, largest))).astype(np.int16)

    def conv(self, source: Tensor) -> Tensor:
        if self.winograd is not None and min(source.shape[1:]) > 2 and self.chance(self.winograd):
            top, left, bottom, right = (self.between(0, 1 + self.chance(0.1)) for _ in range(4))
            pads = (top, left, bottom, right)
            size = (source.shape[1] + top + bottom - 2, source.shape[2] + left + right - 2)
            return self.make_conv(source, self.channels(), False, (3, 3), (1, 1), pads, size)
        counts = [count for count in range(2, source.shape[0] + 1) if source.shape[0] % count == 0]
        if self.grouped and counts and self.chance(self.grouped):
            groups = int(self.rng.choice(counts))
            channels = groups * self.between(1, max(1, self.max_channels // groups))
            kernel, stride, pads, size = self.window(source, 5)
            return self.make_conv(source, channels, False, kernel, stride, pads, size, groups=groups)
        depthwise = self.chance(0.2 if self.depthwise is None else self.depthwise)
        channels = source.shape[0] if depthwise else self.channels()
        kernel, stride, pads, size = self.window(source, 7, square=depthwise and self.depthwise is not None)
        return self.make_conv(source, channels, depthwise, kernel, stride, pads, size)

    def make_conv(self, source: Tensor, channels: int, depthwise: bool, kernel: _Pair, stride: _Pair,
                  pads: tuple[int, int, int, int], size: _Pair, *, groups: int = 1) -> Tensor:
        factors = self.upsample(size)
        target = self.tensor((channels, size[0] * factors[0], size[1] * factors[1]))
        weights = self.weights((channels, 1 if depthwise else source.shape[0], *kernel))
        if groups > 1:
            within = np.kron(np.eye(groups, dtype=np.int16), np.ones(
                (channels // groups, source.shape[0] // groups), np.int16))
            weights *= within[:, :, None, None]
        spread = float(np.sqrt((weights.astype(float) ** 2).sum(axis=(1, 2, 3)).mean()) * 74)
        requantize = self.requantize(channels, spread, target)
        residual = self.residual(target)
        if residual and self.chance(0.3):
            requantize = self.wide(requantize, self.rng)
        epilogue = self.epilogue(factors, target, residual)
        if any(isinstance(op, Leaky) for op in epilogue) and self._widening.random() < 0.5:
            requantize = self.wide(requantize, self._widening, centred=True)
        self.layers.append(Conv(f"layer{len(self.layers)}", source.name, target.name, weights=weights, groups=groups,
                                depthwise=depthwise, stride=stride, pads=pads, requantize=requantize,
                                epilogue=epilogue))
        return target

    def pair(self, source: Tensor) -> Tensor:
        """A depthwise layer and a pointwise one after it."""
        for depthwise in (True, False):
            channels, stride = source.shape[0], (1, 1)
            kernel, pads, size = (1, 1), (0, 0, 0, 0), source.shape[1:]
            if depthwise:
                while kernel == (1, 1):
                    kernel, stride, pads, size = self.window(source, 5, square=True)
                    if source.shape[1:] == (1, 1):
                        break
            else:
                channels = self.channels()
            target = self.tensor((channels, *size))
            weights = self.weights((channels, 1 if depthwise else source.shape[0], *kernel))
            spread = float(np.sqrt((weights.astype(float) ** 2).sum(axis=(1, 2, 3)).mean()) * 74)
            between = source.name
            residual = None if depthwise else self.residual(target)
            if residual is not None and residual.other == between:
                residual = None
            self.layers.append(Conv(f"layer{len(self.layers)}", source.name, target.name, weights=weights,
                                    depthwise=depthwise, stride=stride, pads=pads,
                                    requantize=self.requantize(channels, spread, target),
                                    epilogue=operations(residual)))
            source = target
        return source

    def plain(self, source: Tensor) -> Tensor:
        """A layer, mostly pointwise, without an epilogue."""
        kernel, stride, pads, size = self.window(source, 3) if self.chance(0.2) else (
            (1, 1), (1, 1), (0, 0, 0, 0), source.shape[1:])
        channels = self.channels()
        weights = self.weights((channels, source.shape[0], *kernel))
        spread = float(np.sqrt((weights.astype(float) ** 2).sum(axis=(1, 2, 3)).mean()) * 74)
        target = self.tensor((channels, *size))
        self.layers.append(Conv(f"layer{len(self.layers)}", source.name, target.name, weights=weights, stride=stride,
                                pads=pads, requantize=self.requantize(channels, spread, target)))
        return target

    def pool(self, source: Tensor) -> Tensor:
        maximum = self.chance(0.5)
        kernel, stride, pads, size = self.window(source, 5)
        factors = self.upsample(size)
        target = self.tensor((source.shape[0], size[0] * factors[0], size[1] * factors[1]))
        spread = 74.0 * (1 if maximum else float(np.sqrt(kernel[0] * kernel[1])))
        requantize, residual = self.requantize(source.shape[0], spread, target), self.residual(target)
        self.layers.append(Pool(f"layer{len(self.layers)}", source.name, target.name, maximum=maximum, kernel=kernel,
                                stride=stride, pads=pads, pad_value=-128 if maximum else source.zero_point,
                                requantize=requantize, epilogue=self.epilogue(factors, target, residual)))
        return target


def random_pairs(seed: int, *, pairs: int = 2, max_channels: int = 130, max_size: int = 24) -> Graph:
    """A graph of depthwise layers, each with a pointwise one after it, and sometimes other layers around."""
    rng = np.random.default_rng(seed)
    builder = RandomBuilder(rng, max_channels, max_size, 0.2)
    tensor = entrance = builder.tensor((builder.channels(), builder.between(1, max_size), builder.between(1, max_size)))
    for _ in range(pairs):
        if builder.chance(0.3):
            tensor = builder.pool(tensor) if builder.chance(0.3) else builder.conv(tensor)
        tensor = builder.pair(tensor)
    if builder.chance(0.3):
        tensor = builder.conv(tensor)
    graph = Graph(f"pairs{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())},
                  {"output": (tensor.name, ())})
    verify(graph)
    return graph


def random_chains(seed: int, *, count: int = 2, max_channels: int = 130, max_size: int = 24,
                  image: bool = False) -> Graph:
    """A graph of layers, mostly pointwise, each with a depthwise and a pointwise one after it. ``image``: of an image
    of three channels, the first layer with a kernel of 3x3.
    """
    rng = np.random.default_rng(seed)
    builder = RandomBuilder(rng, max_channels, max_size, 0.2, upsampled=0)
    channels, least = (3, 8) if image else (builder.channels(), 1)
    height, width = builder.between(least, max_size), builder.between(least, max_size)
    tensor = entrance = builder.tensor((channels, height, width))
    for number in range(count):
        if image and not number:
            stride = builder.between(1, 2)
            size = (output_size(height, 3, stride, 1, 1), output_size(width, 3, stride, 1, 1))
            tensor = builder.make_conv(tensor, builder.channels(), False, (3, 3), (stride, stride), (1, 1, 1, 1), size)
        else:
            tensor = builder.plain(tensor)
        tensor = builder.pair(tensor)
    graph = Graph(f"chains{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())},
                  {"output": (tensor.name, ())})
    verify(graph)
    return graph


def random_graph(seed: int, *, layers: int | None = None, max_channels: int = 130, max_size: int = 24,
                 depthwise: float | None = None, winograd: float | None = None, upsampled: float = 0.15,
                 grouped: float = 0.0) -> Graph:
    """A graph of ``layers`` (default: one to three) random layers; the same seed gives the same graph.

    ``depthwise``: share of depthwise layers among the convolutions, which then have one stride, 1 or 2, for both axes.
    ``winograd``: share of dense 3x3 layers of stride 1. ``upsampled``: share of layers whose output is upsampled.
    ``grouped``: share of convolutions in groups.
    """
    rng = np.random.default_rng(seed)
    builder = RandomBuilder(rng, max_channels, max_size, depthwise, winograd, upsampled, grouped)
    tensor = entrance = builder.tensor((builder.channels(), builder.between(1, max_size), builder.between(1, max_size)))
    for _ in range(layers or builder.between(1, 3)):
        tensor = builder.pool(tensor) if builder.chance(0.2) else builder.conv(tensor)
    graph = Graph(f"random{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())},
                  {"output": (tensor.name, ())})
    verify(graph)
    return graph


def with_tables(graph: Graph, seed: int, *, share: float = 0.7) -> Graph:
    """A graph of which a ``share`` of the layers have tables, two of them at random."""
    rng = np.random.default_rng(seed)
    tables = rng.integers(-128, 128, (2, TABLE_BYTES)).astype(np.int8)
    layers = [replace(layer, epilogue=(*layer.epilogue, Table(graph.tensors[layer.output], tables[rng.integers(2)])))
              if rng.random() < share else layer for layer in graph.layers]
    graph = replace(graph, layers=tuple(layers))
    verify(graph)
    return graph


def with_products(graph: Graph, seed: int, *, share: float = 0.7) -> Graph:
    """A graph of which a ``share`` of the layers multiply: with what they added, or with a vector, an input more."""
    rng = np.random.default_rng(seed)
    tensors, inputs, layers = dict(graph.tensors), dict(graph.inputs), []
    for layer in graph.layers:
        if any(isinstance(op, Leaky) for op in layer.epilogue) or rng.random() >= share:
            layers.append(layer)
            continue
        target, other = graph.tensors[layer.output], next(iter(layer.others), "")
        if not other:
            other = f"{layer.name}_vector"
            tensors[other] = Tensor(other, (target.shape[0], 1, 1), 1.0, int(rng.choice([-128, 127, 5])))
            inputs[other] = other, ()
        first = layer.requantize
        first = replace(first, low=max(first.low, -128), high=max(first.low, -128, min(first.high, 127)))
        multiplier = int(rng.integers(1, 1 << PRODUCT_MULTIPLIER_BITS))
        stage = Multiply(
            middle=replace(target, name=f"{layer.name}_factor", zero_point=first.zero_point), other=other,
            multiplier=multiplier, constant=tensors[other].zero_point * multiplier, shift=int(rng.integers(18, 23)),
            zero_point=target.zero_point, low=-128, high=127)
        kept = (op for op in layer.epilogue if not op.others)
        layers.append(replace(layer, requantize=first, epilogue=(*kept, stage)))
    graph = replace(graph, tensors=tensors, inputs=inputs, layers=tuple(layers))
    verify(graph)
    return graph


def random_inputs(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    """int8 (C, H, W) arrays for the graph's input tensors."""
    rng = np.random.default_rng(seed)
    return {tensor: rng.integers(-128, 128, graph.tensors[tensor].shape).astype(np.int8)
            for tensor, _ in graph.inputs.values()}
