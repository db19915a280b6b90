"""The graph as far as the importer has built it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from onnx import TensorProto

from gen.ir.epilogue.base import StoreOp
from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Layer, MatMul, Move
from gen.ir.host import HostStep
from gen.ir.tensor import Part, Requantize, Tensor
from gen.onnx.model import ModelInput, Node, NodeError
from gen.onnx.names import unique
from gen.onnx.values import (
    Head,
    Host,
    Pending,
    PendingPixels,
    PendingProduct,
    PendingRows,
    Quantisation,
    Quantised,
    RawInput,
    Real,
    channels_first,
    channels_shape,
    is_whole,
    layout_steps,
)

__all__ = ["GraphBuilder", "Result"]

#: Values of all layers' results together, whose arrangements are kept.
_MAX_LAYER_VALUES = 8 * MAX_VALUES
#: Values of an input that may become one pixel, more are no states.
_MOST_PLACED = 8192


@dataclass
class _InputRecord:
    """A model input until its first use decides the layout of its tensor."""

    name: str
    shape: tuple[int, ...]
    onnx_name: str
    unsigned: bool
    quantize: HostStep | None
    #: Order of the input where it is (or becomes) integer; what follows counts from there.
    order: np.ndarray
    tensor: str = ""
    #: Flat index in that order -> flat index in the tensor.
    position: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Result:
    """What a layer writes: the output of ``node``, or, without one, a tensor that the model does not have."""

    node: Node | None
    quantisation: Quantisation = Quantisation(1.0, 0, False)
    signs: bool = False


def _around(order: np.ndarray, lying: np.ndarray, part: np.ndarray) -> np.ndarray:
    """An arrangement of an input ``order`` in which ``part`` of it are whole channels: one pixel of channels that are
    neighbours, where ``lying``, (1, C, ...) of the input, has neither all pixels of its channels nor all channels of
    its pixels, as of states of which the last axes say which one it is. Else ``lying``.
    """
    taken = np.isin(lying.reshape(lying.shape[1], -1), part) if order.size <= _MOST_PLACED else np.zeros((1, 1), bool)
    if any((taken == taken.any(axis=axis, keepdims=True)).all() for axis in (0, 1)):
        return lying
    places = np.array(np.unravel_index(part.ravel(), order.shape))
    along = (places != places[:, :1]).any(axis=1)
    turned = order.transpose([*np.flatnonzero(~along), *np.flatnonzero(along)])
    found = np.flatnonzero(np.isin(turned.ravel(), part))
    return turned.reshape(1, -1) if not along[-1] and np.ptp(found) + 1 == part.size else lying


class GraphBuilder:
    """Tensors, layers and inputs of the graph; ``orders`` as in `gen.onnx.importer.Imported`.

    Methods raise NodeError for what is wrong with the node at hand, GraphError for what is wrong elsewhere.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.layers: list[Layer] = []
        self.orders: dict[str, np.ndarray] = {}
        #: Tensor and channels of it -> the tensor of these alone (`gen.onnx.channels`).
        self.chosen: dict[tuple[str, tuple[int, ...]], str] = {}
        #: Tensor and height and width -> the tensor of its channels with pixels so.
        self.viewed: dict[tuple[str, tuple[int, int]], str] = {}
        #: Tensor and the rows of its channels -> its transpose (`gen.onnx.transposed`).
        self.transposed: dict[tuple[str, tuple[int, int]], str] = {}
        #: Tensors, rows and columns, and pixels of them or an arrangement -> the tensor of these (`gen.onnx.permuted`,
        #: `gen.onnx.joined`).
        self.permuted: dict[tuple[tuple[str, ...], tuple[int, int], bytes], str] = {}
        #: Node -> channels whose weights have another scale than the model says (`quant_scales.coarser_scale`).
        self.coarser: dict[str, int] = {}
        #: Inputs whose last axis is that of the channels, unless what reads them first says something else.
        self.tokens: frozenset[str] = frozenset()
        #: Nodes whose results a Softmax reads, in rows of the last axis.
        self.scores: frozenset[str] = frozenset()
        #: Nodes that no other follows on the machine, and those of them that are left to the processor for that.
        self.last: frozenset[str] = frozenset()
        self.left: list[str] = []
        self._inputs: dict[str, _InputRecord] = {}
        #: The tensors of those that have one.
        self._of_inputs: set[str] = set()
        self._clip_bounds: dict[str, tuple[int, int]] = {}
        self._layer_names: set[str] = set()
        self._layer_values = 0

    # -- inputs --------------------------------------------------------------------------------------------------

    def add_input(self, model_input: ModelInput, *, others_quantised: bool) -> Quantised | RawInput:
        """The value of a model input; ``others_quantised`` as in `RawInput`."""
        order = np.arange(int(np.prod(model_input.shape))).reshape(model_input.shape)
        if model_input.elem_type in (TensorProto.INT8, TensorProto.UINT8):
            unsigned = model_input.elem_type == TensorProto.UINT8
            key = _input_key(model_input.name)
            self._inputs[key] = _InputRecord(
                model_input.name, model_input.shape, model_input.name, unsigned, None, order)
            return Quantised(key, order, unsigned)
        if model_input.elem_type == TensorProto.FLOAT:
            return RawInput(model_input.name, order, others_quantised)
        names = {code: name for name, code in TensorProto.DataType.items()}
        number = names.get(model_input.elem_type, "of an unknown type")
        raise GraphError(f"input {model_input.name} is {number}; inputs must be float32, int8 or uint8",
                         code="value-type", input=model_input.name)

    def quantize_input(self, value: RawInput, quantisation: Quantisation, onnx_name: str) -> Quantised:
        """A float input quantised under the name ``onnx_name``."""
        key = _input_key(value.name)
        record = self._inputs.get(key)
        if record is None:
            self._inputs[key] = _InputRecord(value.name, value.order.shape, onnx_name, quantisation.unsigned,
                                             quantisation.step("quantize"), value.order)
            order = np.arange(value.order.size).reshape(value.order.shape)
            return Quantised(key, order, quantisation.unsigned)
        assert record.quantize is not None
        kept = record.quantize.parameters
        shift = 128 * (quantisation.unsigned - record.unsigned)
        if (kept["scale"], kept["zero_point"]) != (quantisation.scale, quantisation.zero_point - shift):
            raise NodeError(f"input {value.name} is quantised twice, with different scales; quantise it once",
                            code="quantised-twice", input=value.name)
        position = np.empty(value.order.size, np.int64)
        position[record.order.ravel()] = np.arange(value.order.size)
        return Quantised(key, position[value.order], quantisation.unsigned)

    def input(self, model_input: ModelInput) -> tuple[str, tuple[HostStep, ...]]:
        """Tensor of a model input, and the host steps before it. Raises GraphError for one without a reader."""
        record = self._inputs.get(_input_key(model_input.name))
        if record is None or not record.tensor:
            raise GraphError(f"input {model_input.name} is not used by any layer; remove it", code="unused-input",
                             input=model_input.name)
        order = np.empty(record.position.size, np.int64)
        order[record.position] = record.order.ravel()
        steps = layout_steps(model_input.shape[1:], order.reshape(1, *self.tensors[record.tensor].shape))
        return record.tensor, (*steps, record.quantize) if record.quantize else steps

    def is_input(self, tensor: str) -> bool:
        """Whether a tensor is that of an input, or stands for one that has no tensor yet."""
        return tensor in self._inputs or tensor in self._of_inputs

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensor(self, value: Quantised, scale: float, zero_point: int) -> Quantised:
        """``value`` with its tensor of the graph; the first use of an input decides its tensor's layout."""
        record = self._inputs.get(value.tensor)
        if record is None:
            return value
        if not record.tensor:
            given = np.arange(record.order.size).reshape(record.shape)
            whole = value.order if is_whole(value.order, record.order.size) else given
            laid, shape = whole, channels_shape(whole.shape)
            if shape is None or record.name in self.tokens and np.array_equal(whole, given):
                # Windows of tokens and the like: their last axis is that of the channels.
                laid = channels_first(whole)
            if whole is not value.order:
                laid = _around(whole, laid, value.order)
            if laid is not value.order:
                self.tensor(replace(value, order=laid), scale, zero_point)
                return self.tensor(value, scale, zero_point)
            assert shape is not None
            record.tensor = unique(record.onnx_name, self.tensors)
            self._of_inputs.add(record.tensor)
            record.position = np.empty(value.order.size, np.int64)
            record.position[value.order.ravel()] = np.arange(value.order.size)
            self.tensors[record.tensor] = Tensor(record.tensor, shape, scale, zero_point, record.onnx_name,
                                                 record.unsigned)
            self.orders[record.tensor] = record.position.reshape(record.shape)
        return replace(value, tensor=record.tensor, order=record.position[value.order])

    def place_like(self, value: Real, order: np.ndarray, shape: tuple[int, int, int]) -> None:
        """Make ``order`` the arrangement of a value in a tensor of ``shape``, if its layout is not decided yet."""
        quantised = value.quantised
        record = self._inputs.get(quantised.tensor)
        if (record is None or record.tensor or value.order.shape != order.shape or not is_whole(order, prod(shape))
                or not is_whole(value.order, record.order.size)):
            return
        laid = np.empty(order.size, np.int64)
        laid[order.ravel()] = value.order.ravel()
        self.tensor(replace(quantised, order=laid.reshape(1, *shape)), value.scale, value.zero_point)

    def place_channels_last(self, value: Real) -> None:
        """Make the last axis of ``value``, or of an input with tokens of which it is a part, that of the channels, if
        the input's layout is not decided yet.
        """
        record = self._inputs.get(value.quantised.tensor)
        if record is None or record.tensor:
            return
        order = np.arange(record.order.size).reshape(record.shape)
        if is_whole(value.order, record.order.size):
            order = value.order
        if order.ndim == 3 or order is value.order:
            self.tensor(replace(value.quantised, order=channels_first(order)), value.scale, value.zero_point)

    def add_constant(self, name: str, value: np.ndarray, quantisation: Quantisation, off: float = 0.0) -> str:
        """The tensor of a constant: int8 (C, H, W), the zero point being the internal one, and how far it is from the
        model's numbers at most, in steps.
        """
        name = unique(name, self.tensors)
        self.tensors[name] = Tensor(name, value.shape, quantisation.scale, quantisation.internal, value=value,
                                    value_off=off)
        self.orders[name] = np.arange(value.size).reshape(1, *value.shape)
        self._clip_bounds[name] = int(value.min()), int(value.max())
        return name

    def add_part(self, whole: str, first: int, count: int) -> str:
        """The tensor of some channels of one that is there."""
        source = self.tensors[whole]
        name = unique(f"{whole}/{first}", self.tensors)
        shape = count, *source.shape[1:]
        self.tensors[name] = replace(source, name=name, shape=shape, onnx_name="", part=Part(whole, first))
        self.orders[name] = np.arange(prod(shape)).reshape(1, *shape)
        self._clip_bounds[name] = self.clip_bounds(whole)
        return name

    def add_view(self, name: str, height: int, width: int) -> str:
        """The tensor of the same channels whose pixels, as many, are in rows of another length."""
        source = self.tensors[name]
        view = self.add_part(name, 0, source.shape[0])
        part = source.part or Part(name, 0)
        self.tensors[view] = replace(self.tensors[view], shape=(source.shape[0], height, width), part=part)
        return view

    def add_whole(self, shape: tuple[int, int, int], order: np.ndarray, result: Result) -> Quantised:
        """A tensor to be made of parts."""
        name = self._add_tensor("", shape, order, result)
        return Quantised(name, order, result.quantisation.unsigned)

    def join(self, tensor: str, part: Part) -> bool:
        """Make a tensor part of another. False if it must stay what it is: an input, a constant, or part of another."""
        old = self.tensors[tensor]
        if old.part or old.signs or old.value is not None or self.is_input(tensor):
            return False
        self.tensors[tensor] = replace(old, part=part)
        self._widen(part.whole, self.clip_bounds(tensor))
        return True

    def _widen(self, tensor: str, bounds: tuple[int, int]) -> None:
        """Values in ``bounds`` are put into a tensor that is made of parts."""
        low, high = self._clip_bounds.get(tensor, bounds)
        self._clip_bounds[tensor] = min(low, bounds[0]), max(high, bounds[1])

    def _add_tensor(self, name: str, shape: tuple[int, int, int], order: np.ndarray, result: Result,
                    part: Part | None = None) -> str:
        """A tensor of the model, or, if the model has none for the result, one that is called ``name``."""
        onnx_name, quantisation = result.node.outputs[0] if result.node else "", result.quantisation
        tensor = unique(onnx_name or name, self.tensors)
        self.tensors[tensor] = Tensor(tensor, shape, quantisation.scale, quantisation.internal, onnx_name,
                                      quantisation.unsigned, result.signs, part)
        self.orders[tensor] = order
        return tensor

    def clip_bounds(self, tensor: str) -> tuple[int, int]:
        """Lowest and highest int8 value that a tensor can hold."""
        return self._clip_bounds.get(tensor, (-128, 127))

    def layout(self, value: Quantised) -> tuple[HostStep, ...]:
        """Steps from the tensor to the value's arrangement."""
        return layout_steps(self.tensors[value.tensor].shape, value.order)

    def host(self, value: Real) -> Host:
        """``value`` dequantised by the processor."""
        quantised = self.tensor(value.quantised, value.scale, value.zero_point)
        unsigned = self.tensors[quantised.tensor].onnx_unsigned
        zero_point = value.zero_point + 128 if unsigned else value.zero_point
        order = np.arange(quantised.order.size).reshape(quantised.order.shape)
        step = Quantisation(value.scale, zero_point, unsigned).step("dequantize")
        return Host(quantised.tensor, (*self.layout(quantised), step), order)

    # -- layers --------------------------------------------------------------------------------------------------

    def add_layer(self, value: Pending | PendingRows, requantize: Requantize, *epilogue: StoreOp, result: Result,
                  part: Part | None = None) -> Quantised:
        """Put the layer of ``value`` into the graph, ``epilogue`` after what it has of that.

        ``part``: its output is part of another tensor.
        """
        name = self._layer_name(value.name, value.order.size)
        tensor = self._add_tensor(f"{name}/result", value.shape, value.order, result, part)
        bounds = requantize.low, requantize.high
        for op in epilogue:
            bounds = op.bounds(bounds)
        self._clip_bounds[tensor] = bounds
        if part is not None:
            self._widen(part.whole, self._clip_bounds[tensor])
        nodes = (*value.nodes, result.node.name) if result.node else value.nodes
        arguments = {**value.arguments, "epilogue": (*value.arguments.get("epilogue", ()), *epilogue)}
        self.layers.append(value.layer(name=name, output=tensor, requantize=requantize, onnx_nodes=nodes, **arguments))
        return Quantised(tensor, value.order, result.quantisation.unsigned, value.moved_by)

    def add_product(self, value: PendingProduct, head: Head, requantize: Requantize, shape: tuple[int, int, int], *,
                    result: Result, part: Part | None) -> Quantised:
        """Put the layer of a head of ``value`` into the graph; ``part`` as of `add_layer`, whose channels it makes."""
        order = value.order if part is None else np.arange(prod(shape)).reshape(1, *shape)
        name = self._layer_name(value.name, order.size)
        tensor = self._add_tensor(f"{name}/result", shape, order, result, part)
        self._clip_bounds[tensor] = requantize.low, requantize.high
        if part is not None:
            self._widen(part.whole, self._clip_bounds[tensor])
        self.layers.append(MatMul(name=name, output=tensor, requantize=requantize, onnx_nodes=value.nodes,
                                  outputs=shape[0], **head.arguments))
        return Quantised(tensor, order, result.quantisation.unsigned, value.moved_by)

    def add_like(self, source: str, name: str, shape: tuple[int, int, int], part: Part | None = None) -> str:
        """A tensor of values of one that is there; without ``part`` perhaps to be made of parts."""
        before = self.tensors[source]
        unsigned = before.onnx_unsigned
        kept = Quantisation(before.scale, before.zero_point + 128 * unsigned, unsigned)
        tensor = self._add_tensor(name, shape, np.arange(prod(shape)).reshape(1, *shape), Result(None, kept), part)
        self._clip_bounds[tensor] = self.clip_bounds(source)
        return tensor

    def add_move(self, sources: Sequence[str], places: np.ndarray, size: tuple[int, int], requantize: Requantize, *,
                 part: Part | None = None, made: tuple[PendingPixels, Result] | None = None) -> str:
        """The tensor that a layer makes of pixels ``places`` of some that are there, in rows and columns of ``size``.

        ``made``: what it is a result of in the model, if it is one.
        """
        source, *more = sources
        shape = self.tensors[source].shape[0], *size
        name = self._layer_name(made[0].name if made else f"{source}/moved", prod(shape))
        if made:
            tensor = self._add_tensor(f"{name}/result", shape, made[0].order, made[1])
        else:
            tensor = self.add_like(source, name, shape, part)
        bounds = [self.clip_bounds(other) for other in sources]
        self._clip_bounds[tensor] = min(low for low, _ in bounds), max(high for _, high in bounds)
        self.layers.append(Move(name, source, tensor, requantize=requantize, places=places, shape=size,
                                more=tuple(more), onnx_nodes=made[0].nodes if made else ()))
        return tensor

    def _layer_name(self, wanted: str, values: int) -> str:
        """A name for a layer that makes so many values. Raises GraphError where those are too many."""
        name = unique(wanted, self._layer_names)
        self._layer_names.add(name)
        self._layer_values += values
        if self._layer_values > _MAX_LAYER_VALUES:
            raise GraphError(f"the feature maps up to that of {name} have more than {_MAX_LAYER_VALUES:,} values "
                             "together; take smaller images, or fewer layers",
                             code="model-too-large", limit=_MAX_LAYER_VALUES)
        return name


def _input_key(name: str) -> str:
    """What stands for the tensor of an input that has none yet; no ONNX tensor is called so by accident."""
    return f"input {name}"
