"""The IR's rules, stated once and executable; `verify` runs after every pass.

Each function here goes through one group of rules and yields what is wrong, in words. The first such line is the error,
so a rule may rely on those above it. What depends on a configuration (whether sums fit the accumulators, what a tiling
needs) is not a rule of the IR: the mappings find that out.
"""

from collections.abc import Collection, Iterator
from itertools import chain

import numpy as np

from cores.arch.numerics import FIRST_BITS, POSITIONS
from gen.ir.epilogue.base import Setting
from gen.ir.epilogue.chain import chain_problems
from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Conv, Graph, Layer, NarrowWinograd, Pool, output_size, pad_value
from gen.ir.host import HostStep, is_integer, is_scale, step_problems
from gen.ir.parts import Present
from gen.ir.queries import read_by
from gen.ir.rules import INT8, are_integers, range_problems, scaling_problems
from gen.ir.tensor import Requantize, Tensor

__all__ = ["verify"]

#: Weights are int8 or uint8 with a zero point of that type subtracted.
_LARGEST_WEIGHT = 255


def verify(graph: Graph) -> None:
    """Check every rule of the IR. Raises GraphError that names the layer, tensor, input or output, and the rule."""
    for key, tensor in graph.tensors.items():
        _refuse(f"tensor {key}", chain(_tensor_problems(key, tensor), _part_problems(graph, tensor)))
    written = Present(graph.tensors)
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
    """A whole has more channels than each of its parts, so none is a part of itself by way of others."""
    part = tensor.part
    if part is None:
        return
    if part.whole not in graph.tensors:
        yield f"is part of {part.whole!r}, which is not in the graph"
    whole, channels = graph.tensors[part.whole], tensor.shape[0]
    if channels >= whole.shape[0] or not is_integer(part.first, 0, whole.shape[0] - channels):
        yield f"{channels} channels from {part.first!r} on are no part of {whole.shape[0]}"
    if tensor.shape[1:] != whole.shape[1:]:
        yield f"is {tensor.shape[1:]} large and part of {part.whole!r}, which is {whole.shape[1:]}"
    if tensor.signs or whole.signs:
        yield "signs are neither parts nor have any"


def _input_problems(graph: Graph, key: str, written: Present) -> Iterator[str]:
    if key not in graph.tensors:
        yield f"tensor {key!r} is not in the graph"
    if graph.tensors[key].part:
        yield f"tensor {key!r} is part of another, as only what layers make can be"
    if written.any_of(key):
        yield f"tensor {key!r} is that of another input"
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
    if isinstance(layer, Conv):
        yield from _weight_problems(layer, source)
    yield from _window_problems(layer, source, target)
    after = next((op for op in layer.epilogue if op.source is not None), None)
    yield from _first_stage_problems(
        layer.requantize, target.shape[0], FIRST_BITS if after is not None and after.wide else 8)
    yield from chain_problems(layer.epilogue)
    setting = Setting(layer.requantize, target, layer.repeats, graph.tensors)
    for op in layer.epilogue:
        yield from op.problems(setting)
    if target.signs and not _makes_signs(layer, source):
        yield "output is not limited to -1 and +1"


def _reference_problems(graph: Graph, layer: Layer, written: Present, names: Collection[str]) -> Iterator[str]:
    for key in (layer.output, *read_by(layer)):
        if key not in graph.tensors:
            yield f"tensor {key!r} is not in the graph"
    if not written.all_of(layer.input):
        yield f"input {layer.input!r} is read before it is written"
    for name in layer.others:
        if not written.all_of(name):
            yield f"residual {name!r} is read before it is written"
    if written.any_of(layer.output):
        yield f"output {layer.output!r} is written twice"
    if layer.name in names:
        yield "another layer has this name"
    if not isinstance(layer.onnx_nodes, tuple):
        yield f"onnx_nodes must be a tuple, not {type(layer.onnx_nodes).__name__}"


def _weight_problems(layer: Conv, source: Tensor) -> Iterator[str]:
    weights = layer.weights
    if weights.ndim != 4 or not weights.size:
        yield f"weights must be (OC, IC, KH, KW), not of shape {weights.shape}"
    if weights.dtype != np.int16 or max(-int(weights.min()), int(weights.max())) > _LARGEST_WEIGHT:
        yield f"weights must be int16 in -{_LARGEST_WEIGHT}..{_LARGEST_WEIGHT}"
    oc, ic, *kernel = weights.shape
    if not ((oc, ic) == (source.shape[0], 1) if layer.depthwise else ic == source.shape[0]):
        yield "weights do not fit the input's channels"
    if layer.winograd:
        if (kernel, tuple(layer.stride), layer.depthwise) != ([3, 3], (1, 1), False):
            yield "only dense 3x3 layers of stride 1 have a narrow Winograd form"
        yield from _winograd_problems(layer.winograd, oc, ic)
    if layer.stochastic:
        yield from _stochastic_problems(layer, source)


def _stochastic_problems(layer: Conv, source: Tensor) -> Iterator[str]:
    if layer.winograd or layer.depthwise:
        yield "sums of streams are those of a dense layer, in no other form"
    if int(layer.weights.min()) < -128 or int(layer.weights.max()) > 127:
        yield "weights of streams must be in -128..127"
    if source.zero_point or pad_value(layer, source):
        yield "streams stand for numbers around 0: the input's zero point and the padding must be that"
    if layer.stochastic and layer.stochastic.fan_in not in (8, 16, 32):
        yield f"a unit has 8, 16 or 32 inputs, not {layer.stochastic.fan_in!r}"


def _winograd_problems(form: NarrowWinograd, oc: int, ic: int) -> Iterator[str]:
    if (form.weights.shape != (oc, ic, 4, 4) or form.weights.dtype != np.int16
            or int(form.weights.min()) < -128 or int(form.weights.max()) > 127):
        yield "transformed weights must be (OC, IC, 4, 4) int16 in -128..127"
    if not are_integers(form.shifts, POSITIONS, 0, 2):
        yield f"narrow Winograd has {POSITIONS} shifts of 0..2"


def _window_problems(layer: Layer, source: Tensor, target: Tensor) -> Iterator[str]:
    if isinstance(layer, Conv):
        oc, kernel = layer.weights.shape[0], layer.weights.shape[2:]
    else:
        oc, kernel = source.shape[0], layer.kernel
        if not are_integers(kernel, 2, 1):
            yield f"kernel must be a tuple of two positive sizes, not {kernel!r}"
    if not are_integers(layer.stride, 2, 1):
        yield f"stride must be a tuple of two positive numbers, not {layer.stride!r}"
    if not are_integers(layer.pads, 4, 0):
        yield f"pads must be a tuple of four numbers that are not negative, not {layer.pads!r}"
    if not is_integer(pad_value(layer, source), *INT8):
        yield f"the padding must be int8, not {layer.pad_value!r}"
    top, left, bottom, right = layer.pads
    for op in layer.epilogue:
        if not are_integers(op.repeats, 2, 1):
            yield f"{op.name} must be a tuple of two positive numbers, not {op.repeats!r}"
    made = (oc, layer.repeats[0] * output_size(source.shape[1], kernel[0], layer.stride[0], top, bottom),
            layer.repeats[1] * output_size(source.shape[2], kernel[1], layer.stride[1], left, right))
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
    """Whether a layer's output is proven to be -1 and +1: ``2 * sum + 1`` clipped, or the maximum of such values."""
    stage, scale = layer.requantize, layer.requantize.multiplier / np.exp2(layer.requantize.shift)
    if not all(op.keeps_values for op in layer.epilogue) or (stage.low, stage.high) != (-1, 1):
        return False
    if isinstance(layer, Pool) and layer.maximum and source.signs:
        return stage.zero_point == 0 and bool((scale == 1).all()) and not stage.bias.any()
    return stage.zero_point == 1 and bool((scale == 2).all())
