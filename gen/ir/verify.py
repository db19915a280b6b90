"""The IR's rules, stated once and executable; `verify` runs after every pass.

Each function here goes through one group of rules and yields what is wrong, in words. The first such line is the error,
so a rule may rely on those above it. What depends on a configuration (whether sums fit the accumulators, what a tiling
needs) is not a rule of the IR: the mappings find that out.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from math import prod

import numpy as np

from cores.arch.numerics import FIRST_BITS
from gen.ir.epilogue.base import Setting
from gen.ir.epilogue.chain import chain_problems
from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Graph, Layer, before_windows, rescaled
from gen.ir.host import HostStep, is_integer, is_scale, step_problems
from gen.ir.parts import Present
from gen.ir.rules import INT8, are_integers, range_problems, scaling_problems
from gen.ir.tensor import Requantize, Tensor

__all__ = ["verify"]


def verify(graph: Graph) -> None:
    """Check every rule of the IR. Raises GraphError that names the layer, tensor, input or output, and the rule."""
    for key, tensor in graph.tensors.items():
        _refuse(f"tensor {key}", chain(
            _tensor_problems(key, tensor), _part_problems(graph, tensor), _constant_problems(tensor)))
    written = Present(graph.tensors)
    for key in graph.constants:
        written.add(key)
    for name, (key, steps) in graph.inputs.items():
        _refuse(f"input {name}", chain(_input_problems(graph, key, written), _steps_problems(steps)))
        written.add(key)
    names: set[str] = set()
    for layer in graph.layers:
        _refuse(f"layer {layer.name}", _layer_problems(graph, layer, written, names))
        written.add(layer.output)
        names.add(layer.name)
    for name, (key, steps) in graph.outputs.items():
        _refuse(f"output {name}", chain(
            () if key in graph.tensors and written.all_of(key) else (f"tensor {key!r} is never written",),
            _steps_problems(steps)))


def _refuse(what: str, problems: Iterator[str]) -> None:
    for problem in problems:
        raise GraphError(f"{what}: {problem}", code="graph-rule")


def _tensor_problems(key: str, tensor: Tensor) -> Iterator[str]:
    if key != tensor.name:
        yield f"its name is {tensor.name!r}"
    if not are_integers(tensor.shape, 3, 1):
        yield f"shape must be a tuple of three positive sizes, not {tensor.shape!r}"
    channels, height, width = tensor.shape
    if channels * height * width > MAX_VALUES:
        yield f"has {channels * height * width:,} values; at most {MAX_VALUES:,} are supported"
    if not is_scale(tensor.scale):
        yield f"scale must be positive and finite, not {tensor.scale!r}"
    if not is_integer(tensor.zero_point, *INT8):
        yield f"zero point must be int8, not {tensor.zero_point!r}"


def _part_problems(graph: Graph, tensor: Tensor) -> Iterator[str]:
    """A whole has more channels than each of its parts, or than none of its own: so none is a part of itself by way of
    others. A part may have its whole's pixels in rows of another length.
    """
    part = tensor.part
    if part is None:
        return
    if part.whole not in graph.tensors:
        yield f"is part of {part.whole!r}, which is not in the graph"
    whole, channels = graph.tensors[part.whole], tensor.shape[0]
    widest = whole.part is None or whole.shape[0] < graph.tensors[whole.part.whole].shape[0]
    if channels >= whole.shape[0] + widest or not is_integer(part.first, 0, whole.shape[0] - channels):
        yield f"{channels} channels from {part.first!r} on are no part of {whole.shape[0]}"
    if prod(tensor.shape[1:]) != prod(whole.shape[1:]):
        yield f"is {tensor.shape[1:]} large and part of {part.whole!r}, which is {whole.shape[1:]}"
    if tensor.signs or whole.signs:
        yield "signs are neither parts nor have any"
    if whole.value is not None:
        yield f"is part of {part.whole!r}, which is a constant"


def _constant_problems(tensor: Tensor) -> Iterator[str]:
    value = tensor.value
    if value is None:
        return
    if not isinstance(value, np.ndarray) or value.dtype != np.int8 or value.shape != tensor.shape:
        yield f"its value must be int8 {tensor.shape}"
    if tensor.part or tensor.signs:
        yield "a constant is neither part of another tensor nor signs"


def _input_problems(graph: Graph, key: str, written: Present) -> Iterator[str]:
    if key not in graph.tensors:
        yield f"tensor {key!r} is not in the graph"
    if graph.tensors[key].part:
        yield f"tensor {key!r} is part of another, as only what layers make can be"
    if written.any_of(key):
        yield f"tensor {key!r} is that of another input, or a constant"
    if graph.tensors[key].signs:
        yield f"tensor {key!r} can hold more than -1 and +1"


def _steps_problems(steps: tuple[HostStep, ...]) -> Iterator[str]:
    if not isinstance(steps, tuple):
        yield f"host steps must be a tuple, not {type(steps).__name__}"
    for step in steps:
        yield from step_problems(step)


def _layer_problems(graph: Graph, layer: Layer, written: Present, names: Collection[str]) -> Iterator[str]:
    yield from _reference_problems(graph, layer, written, names)
    source, target = graph.tensors[layer.input], graph.tensors[layer.output]
    yield from layer.problems([graph.tensors[name] for name in layer.operands])
    yield from _window_problems(layer, source, target)
    after = next((op for op in layer.epilogue if op.source is not None), None)
    yield from _first_stage_problems(
        layer.requantize, target.shape[0], FIRST_BITS if after is not None and after.wide else 8)
    yield from chain_problems(layer.epilogue)
    setting = Setting(layer.requantize, before_windows(layer, source, target), layer.repeats, graph.tensors)
    for op in layer.epilogue:
        yield from op.problems(setting)
    if target.signs and not _makes_signs(layer, source):
        yield "output is not limited to -1 and +1"


def _reference_problems(graph: Graph, layer: Layer, written: Present, names: Collection[str]) -> Iterator[str]:
    for key in (layer.output, *layer.reads):
        if key not in graph.tensors:
            yield f"tensor {key!r} is not in the graph"
    for name in layer.operands:
        if not written.all_of(name):
            yield f"input {name!r} is read before it is written"
    for name in layer.others:
        if not written.all_of(name):
            yield f"residual {name!r} is read before it is written"
    if written.any_of(layer.output):
        yield f"output {layer.output!r} is written twice"
    if layer.name in names:
        yield "another layer has this name"
    if not isinstance(layer.onnx_nodes, tuple):
        yield f"onnx_nodes must be a tuple, not {type(layer.onnx_nodes).__name__}"


def _window_problems(layer: Layer, source: Tensor, target: Tensor) -> Iterator[str]:
    if not are_integers(layer.kernel, 2, 1):
        yield f"kernel must be a tuple of two positive sizes, not {layer.kernel!r}"
    if not are_integers(layer.stride, 2, 1):
        yield f"stride must be a tuple of two positive numbers, not {layer.stride!r}"
    if not are_integers(layer.pads, 4, 0):
        yield f"pads must be a tuple of four numbers that are not negative, not {layer.pads!r}"
    if not is_integer(layer.padding(source.zero_point), *INT8):
        yield f"the padding must be int8, not {layer.pad_value!r}"
    for op in layer.epilogue:
        for sizes in (op.repeats, op.windows):
            if not are_integers(sizes, 2, 1):
                yield f"{op.name} must be a tuple of two positive numbers, not {sizes!r}"
    made = layer.channels(source), *rescaled(layer, layer.size(source))
    if target.shape != made:
        yield f"output is {target.shape}, its layer makes {made}"


def _first_stage_problems(stage: Requantize, channels: int, bits: int) -> Iterator[str]:
    """``bits``: those of its result."""
    vectors = {"bias": stage.bias, "multiplier": stage.multiplier, "shift": stage.shift}
    if any(not isinstance(vector, np.ndarray) or vector.shape != (channels,) for vector in vectors.values()):
        yield "there must be one bias, multiplier and shift a channel"
    for name, vector in vectors.items():
        if vector.dtype != np.int64:
            yield f"requantisation {name} must be int64, not {vector.dtype}"
    yield from scaling_problems((int(stage.multiplier.min()), int(stage.multiplier.max())),
                                (int(stage.shift.min()), int(stage.shift.max())))
    yield from range_problems(stage.zero_point, stage.low, stage.high, bits)


def _makes_signs(layer: Layer, source: Tensor) -> bool:
    """Whether a layer's output is proven to be -1 and +1."""
    stage = layer.requantize
    return (all(op.keeps_values for op in layer.epilogue) and (stage.low, stage.high) == (-1, 1)
            and layer.makes_signs(source))
