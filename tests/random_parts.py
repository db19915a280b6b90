"""Seeded random graphs whose tensors are put side by side and cut apart."""

from dataclasses import replace

import numpy as np

from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Part, Tensor
from gen.ir.verify import verify
from tests.random_layers import RandomBuilder

__all__ = ["random_parts"]


class _Parts(RandomBuilder):
    """Layers whose results have one height and width; ``channels`` are often a multiple of 4."""

    factors = 1, 1

    def upsample(self, size: tuple[int, int]) -> tuple[int, int]:
        return self.factors

    def channels(self) -> int:
        return 4 * self.between(1, self.max_channels // 4) if self.chance(0.6) else self.between(1, self.max_channels)

    def layer(self, source: Tensor) -> Tensor:
        _, *size = source.shape
        kernel = self.between(0, 1)
        depthwise = self.chance(0.2)
        channels = source.shape[0] if depthwise else self.channels()
        halved = not any(length % 2 for length in size) and self.chance(0.2)
        self.factors = stride = (2, 2) if halved else (1, 1)
        height, width = (length // stride[0] for length in size)
        return self.make_conv(source, channels, depthwise, (1 + 2 * kernel,) * 2, stride, (kernel,) * 4,
                              (height, width))

    def copy(self, source: Tensor, like: Tensor) -> Tensor:
        """``source`` as values of ``like``, clipped now and then."""
        target = replace(self.tensor(source.shape), zero_point=like.zero_point)
        self.tensors[target.name] = target
        stage = self.requantize(source.shape[0], 74, target)
        self.layers.append(Pool(f"layer{len(self.layers)}", source.name, target.name, maximum=False,
                                pad_value=source.zero_point, requantize=replace(stage, zero_point=like.zero_point)))
        return target

    def join(self, entrance: Tensor) -> Tensor:
        """A whole of tensors that are part of nothing yet, and of copies."""
        free = [tensor for tensor in self.tensors.values() if not tensor.part and tensor is not entrance]
        count = min(self.between(1, 3), len(free))
        parts = [free[number] for number in self.rng.permutation(len(free))[:count]]
        sources = [self.any() for _ in range(self.between(int(count < 2), 2))]
        whole = self.tensor((1, *entrance.shape[1:]))
        parts += [self.copy(source, whole) for source in sources]
        first = 0
        for number in self.rng.permutation(len(parts)):
            tensor = parts[number]
            self.tensors[tensor.name] = replace(tensor, part=Part(whole.name, first))
            first += tensor.shape[0]
        self.tensors[whole.name] = replace(whole, shape=(first, *whole.shape[1:]))
        return self.tensors[whole.name]

    def cut(self, source: Tensor) -> Tensor:
        """Some channels of a tensor."""
        count = self.between(1, source.shape[0] - 1)
        first = self.between(0, source.shape[0] - count)
        first -= first % 4 if self.chance(0.6) else 0
        tensor = self.tensor((count, *source.shape[1:]))
        self.tensors[tensor.name] = replace(tensor, part=Part(source.name, first))
        return self.tensors[tensor.name]

    def any(self) -> Tensor:
        names = list(self.tensors)
        return self.tensors[names[-1 - min(int(self.rng.exponential(2)), len(names) - 1)]]


def random_parts(seed: int, *, steps: int = 7, max_channels: int = 24, max_size: int = 6) -> Graph:
    """A graph of ``steps`` layers, wholes and cuts, of which every tensor that is left over is an output."""
    rng = np.random.default_rng(seed)
    builder = _Parts(rng, max_channels, max_size)
    entrance = builder.tensor((builder.channels(), builder.between(1, max_size), builder.between(1, max_size)))
    builder.layer(entrance)
    for _ in range(steps):
        source = builder.any()
        if builder.chance(0.3):
            builder.join(entrance)
        elif builder.chance(0.3) and source.shape[0] > 1:
            builder.cut(source)
        else:
            builder.layer(source)
    read = {layer.input for layer in builder.layers}
    outputs = {name: (name, ()) for name in builder.tensors if name not in read}
    graph = Graph(f"parts{seed}", builder.tensors, tuple(builder.layers), {"input": (entrance.name, ())}, outputs)
    verify(graph)
    return graph
