"""Seeded random graphs with binary layers: int8 streams and chains of signs, all kinds of padding."""

from dataclasses import dataclass, replace

import numpy as np

from gen.ir.graph import Conv, Graph, Pool
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from tests.random_layers import RandomBuilder, operations

__all__ = ["random_binary_graph"]

#: Multiplier and shift of 2 and of 1.
_TWO, _ONE = (1 << 16, 15), (1 << 16, 16)


@dataclass(eq=False)
class _Builder(RandomBuilder):
    def sign_tensor(self, shape: tuple[int, int, int]) -> Tensor:
        tensor = replace(self.tensor(shape), zero_point=0, signs=True)
        self.tensors[tensor.name] = tensor
        return tensor

    def thresholds(self, bias: np.ndarray) -> Requantize:
        channels = len(bias)
        return Requantize(bias.astype(np.int64), np.full(channels, _TWO[0]), np.full(channels, _TWO[1]), 1, -1, 1)

    def signs(self, source: Tensor) -> Tensor:
        """The signs of a tensor, mostly as they are."""
        target = self.sign_tensor(source.shape)
        channels = source.shape[0]
        bias = np.zeros(channels) if self.chance(0.7) else self.rng.integers(-60, 61, channels)
        self.layers.append(Pool(f"layer{len(self.layers)}", source.name, target.name, maximum=False, pad_value=0,
                                requantize=self.thresholds(bias)))
        return target

    def sign_pool(self, source: Tensor) -> Tensor:
        kernel, stride, pads, size = self.window(source, 3)
        target = self.sign_tensor((source.shape[0], *size))
        channels = source.shape[0]
        one = np.full(channels, _ONE[0]), np.full(channels, _ONE[1])
        stage = Requantize(np.zeros(channels, np.int64), *one, 0, -1, 1)
        self.layers.append(Pool(f"layer{len(self.layers)}", source.name, target.name, maximum=True, kernel=kernel,
                                stride=stride, pads=pads, pad_value=-128, requantize=stage))
        return target

    def binary(self, source: Tensor) -> Tensor:
        """A convolution of signs: thresholds, or a scale and perhaps a residual."""
        channels = self.channels()
        kernel, stride, pads, size = self.window(source, 5)
        weights = self.rng.choice(np.array([-1, 1], np.int16), (channels, source.shape[0], *kernel))
        sizes = np.int16(1) << self.rng.integers(0, 7, 1 if self.chance(0.7) else channels, np.int16)
        weights = weights * sizes[:, None, None, None]
        spread = float(np.sqrt(weights[0].size) * sizes.max())
        thresholds = self.chance(0.5)
        target = self.sign_tensor((channels, *size)) if thresholds else self.tensor((channels, *size))
        pad_value = int(self.rng.choice([-1, 0, 0, 1]))
        bias = self.rng.normal(0, spread, channels).astype(np.int64)
        stage = self.thresholds(bias) if thresholds else replace(self.requantize(channels, spread, target), bias=bias)
        self.layers.append(Conv(f"layer{len(self.layers)}", source.name, target.name, weights=weights, stride=stride,
                                pads=pads, requantize=stage, pad_value=pad_value,
                                epilogue=operations(None if thresholds else self.residual(target))))
        return target


def random_binary_graph(seed: int, *, max_channels: int = 300, max_size: int = 16) -> Graph:
    """A graph of up to six layers, most of them binary; the same seed gives the same graph."""
    rng = np.random.default_rng(seed)
    builder = _Builder(rng, max_channels, max_size)
    tensor = entrance = builder.tensor((builder.channels(), builder.between(1, max_size), builder.between(1, max_size)))
    if builder.chance(0.3):
        tensor = builder.conv(tensor)
    for _ in range(builder.between(1, 3)):
        if not tensor.signs:
            tensor = builder.signs(tensor)
        if builder.chance(0.2):
            tensor = builder.sign_pool(tensor)
        tensor = builder.binary(tensor)
    if tensor.signs and builder.chance(0.5):
        tensor = builder.conv(tensor)
    graph = Graph(f"binary{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())},
                  {"output": (tensor.name, ())})
    verify(graph)
    return graph
