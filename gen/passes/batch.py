"""Several samples in one program: fully connected layers read their weights once for all of them.

Every tensor and layer is there once for each sample, as ``NAME@0`` and so on. Fully connected layers with enough
weights are there once for all: each sample is a row of ``NAME@all``, and the layer makes a pixel of each row, as its
weights stand still for pixels. See docs/decisions/0020-batches.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from cores.arch.isa import Opcode, largest_field
from cores.config import NpuConfig
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.second_stage import WithOperand
from gen.ir.graph import Conv, Graph, Layer, MatMul, Move
from gen.ir.parts import related
from gen.ir.tensor import Requantize, Tensor
from sim.golden import quantize_multiplier

__all__ = ["batched", "names_of", "of_batch", "of_sample", "without_samples"]

_T = TypeVar("_T")

_ALL = "@all"
#: Pixels of a row that a kernel covers at most.
_LONGEST = largest_field(Opcode.COMPUTE_SET, "kernel_w")
#: Estimated cycles of a layer that moves pixels, beside those of its pixels.
_MOVE = 150


def of_sample(name: str, sample: int) -> str:
    """What a tensor, layer, input or output of a graph is called for a sample."""
    return f"{name}@{sample}"


def names_of(name: str, samples: int) -> list[str]:
    """What an input or output is called in a program of so many samples, sample by sample."""
    return [of_sample(name, n) for n in range(samples)] if samples > 1 else [name]


def without_samples(layers: Mapping[str, _T], samples: int) -> Mapping[str, _T]:
    """What is known of layers of a program of so many samples, by their names in the model."""
    return {name.rpartition("@")[0]: known for name, known in layers.items()} if samples > 1 else layers


def of_batch(name: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the tensor ``name`` of a batch is, int8 (C, H, W); ``values``: tensor -> (N, C, H, W) of single samples."""
    own, _, sample = name.rpartition("@")
    found = values[own]
    return found.reshape(*found.shape[:2], -1).swapaxes(0, 1) if sample == "all" else found[int(sample)]


def batched(graph: Graph, samples: int, config: NpuConfig) -> Graph:
    """The graph of so many ``samples`` at once, each with its own inputs and outputs. Layers that are computed for each
    sample come sample by sample.
    """
    made = _Batch(graph, samples, config)
    for layer in graph.layers:
        made.add(layer)
    return made.graph()


@dataclass(eq=False)
class _Batch:
    """A graph of several samples in the making."""

    single: Graph
    samples: int
    config: NpuConfig
    layers: list[Layer] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    #: Layers that come once for each sample, not yet among ``layers``.
    waiting: list[Layer] = field(default_factory=list)
    #: Tensors that are there for all samples together, and for each.
    together: set[str] = field(default_factory=set)
    apart: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.constants = set(self.single.constants)
        self.fixed = related(self.single.tensors)
        self.tensors |= {name: self.single.tensors[name] for name in self.constants}
        for tensor, _ in self.single.inputs.values():
            self._place(tensor)

    def add(self, layer: Layer) -> None:
        if isinstance(layer, Conv) and self._takes_all(layer):
            self._add_for_all(layer)
            return
        for name in layer.reads:
            self._part(name)
        self.waiting.append(layer)
        self._place(layer.output)

    def graph(self) -> Graph:
        """All of it."""
        for tensor, _ in self.single.outputs.values():
            self._part(tensor)
        self._flush()
        inputs, outputs = ({of_sample(name, n): (of_sample(tensor, n), steps)
                            for n in range(self.samples) for name, (tensor, steps) in ports.items()}
                           for ports in (self.single.inputs, self.single.outputs))
        return replace(self.single, tensors=self.tensors, layers=tuple(self.layers), inputs=inputs, outputs=outputs)

    # -- each sample by itself -----------------------------------------------------------------------------------

    def _place(self, name: str) -> None:
        """A tensor for each sample, with what it is part of."""
        if name in self.apart or name in self.constants:
            return
        self.apart.add(name)
        tensor = self.single.tensors[name]
        if tensor.part:
            self._place(tensor.part.whole)
        for n in range(self.samples):
            part = tensor.part and replace(tensor.part, whole=of_sample(tensor.part.whole, n))
            self._tensor(replace(tensor, name=of_sample(name, n), part=part))

    def _tensor(self, tensor: Tensor) -> str:
        self.tensors[tensor.name] = tensor
        return tensor.name

    def _flush(self) -> None:
        for n in range(self.samples):
            self.layers += [_renamed(layer, n, self.constants) for layer in self.waiting]
        self.waiting.clear()

    def _part(self, name: str) -> None:
        """Have a tensor for each sample that is there for all together."""
        if name in self.apart or name not in self.together:
            return
        self._place(name)
        tensor = self.single.tensors[name]
        pixels = tensor.shape[1] * tensor.shape[2]
        for n in range(self.samples):
            self.layers.append(Move(
                f"{of_sample(name, n)}/sample", f"{name}{_ALL}", of_sample(name, n), requantize=_copied(tensor),
                places=np.arange(n * pixels, (n + 1) * pixels), shape=tensor.shape[1:]))

    # -- all samples together ------------------------------------------------------------------------------------

    def _takes_all(self, layer: Conv) -> bool:
        """Whether a layer is fully connected, and reads enough weights."""
        source, target = self.single.tensors[layer.input], self.single.tensors[layer.output]
        if layer.depthwise or not layer.is_exact or target.shape[1:] != (1, 1) or source.shape[1:] != layer.kernel:
            return False
        if any(layer.pads) or layer.others or layer.repeats != (1, 1) or source.signs or target.signs:
            return False
        if {layer.input, layer.output} & self.fixed or layer.input in self.constants:
            return False
        pixels, lanes = source.shape[1] * source.shape[2], self.config.ic_lanes
        if pixels > _LONGEST:
            return False
        saved = (self.samples - 1) * np.count_nonzero(layer.weights) / lanes
        joined = 0 if layer.input in self.together else pixels * -(-source.shape[0] // lanes) + _MOVE
        return bool(saved > 2 * self.samples * (joined + -(-target.shape[0] // lanes) + _MOVE))

    def _add_for_all(self, layer: Conv) -> None:
        self._flush()
        source, target = (self._whole(name) for name in (layer.input, layer.output))
        if layer.input not in self.together:
            self._join(layer.input, source)
        self.together.add(layer.output)
        self._tensor(target)
        # A row of all pixels takes less room in the input buffer than rows of few.
        weights = layer.weights.reshape(*layer.weights.shape[:2], 1, -1)
        epilogue = tuple(op if op.source is None else replace(op, middle=self._of_all(op.source))  # type: ignore
                         for op in layer.epilogue)
        self.layers.append(replace(layer, input=source.name, output=target.name, weights=weights, stride=(1, 1),
                                   epilogue=epilogue))

    def _whole(self, name: str) -> Tensor:
        """A tensor of all samples."""
        return self._of_all(self.single.tensors[name])

    def _of_all(self, tensor: Tensor) -> Tensor:
        """What a ``tensor`` of a sample is of all."""
        channels, height, width = tensor.shape
        return replace(tensor, name=f"{tensor.name}{_ALL}", shape=(channels, self.samples, height * width),
                       onnx_name="")

    def _join(self, name: str, whole: Tensor) -> None:
        self.together.add(name)
        first, *more = (of_sample(name, n) for n in range(self.samples))
        self.layers.append(Move(
            f"{whole.name}/joined", first, self._tensor(whole), requantize=_copied(whole), more=tuple(more),
            places=np.arange(whole.shape[1] * whole.shape[2]), shape=whole.shape[1:]))


def _copied(tensor: Tensor) -> Requantize:
    """The stage that leaves values as they are."""
    channels, point = tensor.shape[0], tensor.zero_point
    multiplier, shift = quantize_multiplier(np.ones(channels))
    return Requantize(np.full(channels, -point, np.int64), multiplier, shift, point, -128, 127)


def _renamed(layer: Layer, sample: int, constants: Collection[str]) -> Layer:
    """A layer as it is for a sample."""
    def name(tensor: str) -> str:
        return tensor if tensor in constants else of_sample(tensor, sample)

    def operation(op: StoreOp) -> StoreOp:
        return replace(op, other=name(op.other)) if isinstance(op, WithOperand) else op

    more: dict[str, object] = {}
    if isinstance(layer, Move):
        more["more"] = tuple(map(name, layer.more))
    if isinstance(layer, MatMul):
        more["matrix"] = name(layer.matrix)
    epilogue: Sequence[StoreOp] = layer.epilogue
    if layer.others:
        epilogue = tuple(map(operation, layer.epilogue))
    return replace(layer, name=of_sample(layer.name, sample), input=name(layer.input), output=name(layer.output),
                   epilogue=epilogue, **more)     # type: ignore[arg-type]
