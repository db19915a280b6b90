"""Which values of a float model are quantised.

A value gets a QuantizeLinear and a DequantizeLinear where an operator of the machine reads it, or where the result of
one leaves for an operator that stays float. Between a layer and what goes into its scale, bias and clip bounds there is
none, as the machine has none there. What only moves or picks values of a tensor stays on that tensor's grid.

What follows the last layers, up to the outputs, the processor can do in its last turn: there each branch is quantised
where it is made, and what joins branches stays float, so that none has the grid of another.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto
from math import prod

import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from gen.onnx.handlers import HANDLERS
from gen.onnx.handlers.function import HANDLERS as FUNCTIONS
from gen.onnx.weights import why_no_signs
from gen.quantize.functions import functions, leading_to
from gen.quantize.options import QuantizeError
from gen.quantize.prepare import initializers
from gen.quantize.quotients import guards
from gen.quantize.scalings import normalisers

__all__ = ["Layer", "Plan", "plan_quantisation"]

#: Operators with weights -> the axis of their output channels.
_WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
#: What goes into a layer's scale and bias, where all but one operand are constants of one number for each channel.
AFFINE = ("Mul", "Div", "Add", "Sub", "Neg", "BatchNormalization")
CLIPS = ("Relu", "Clip")
#: What gives the result of a layer to which constants and clips may be added.
AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")
#: What gives a result that can only be clipped.
JOINS = ("Add", "Sub", "Concat")
#: Operators that pick values; their results are quantised once more, as their inputs are.
PICKING = ("MaxPool", "GlobalMaxPool", "ReduceMax", "Resize", "Slice", "Split", "Gather", "DepthToSpace",
            "SpaceToDepth", "Pad", "Tile", "Expand")
#: Operators that leave the values and their order.
SHAPING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout")
#: Operators whose results on signs are signs.
_MAXIMA = ("MaxPool", "GlobalMaxPool")
#: Multiplications with each value of the processor's below which a layer is left to it: to quantise the value takes it
#: as long.
_CHEAP = 4
#: Operators that are handled, but not in the machine, or not as they are in float models.
_HOST = ("Softmax", "Shape", "Where", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


class _Kind(Enum):
    """What a value is, on the way through the model."""

    INPUT = auto()      # of the model, perhaps moved
    FLOAT = auto()      # made by an operator that stays float
    RESULT = auto()     # of a layer, not quantised yet
    SUM = auto()        # the same, which takes nothing but clips any more
    FUNCTION = auto()   # a function of a quantised value, which a table can be, not quantised yet
    GRID = auto()       # quantised, or a part of something quantised
    SIGN = auto()       # -1 and +1, as a Sign makes them


@dataclass(frozen=True)
class Layer:
    """A node with weights: ``source`` is the quantised tensor that it reads, ``bias`` "" for none."""

    node: str
    source: str
    weights: str
    axis: int
    bias: str
    output: str


@dataclass(frozen=True)
class Plan:
    """``tensors``: value to be quantised -> the node that computes it, "" for an input of the model; those of a layer
    with a clip after it have the layer's. ``like``: picked value -> (the quantised one it is of, the picking node).
    ``centred``: those of ``tensors`` that have the zero point 0, as a Sign reads them: their signs are there already.
    ``maps``: constants beside activations that have a number for each pixel. ``binary``: layers that are exact as they
    are. ``not_binary``: layers that read signs, but are int8 -> why, of their weights. ``scaling``: nodes that bring
    the numbers of an input to one scale, and stay float.
    """

    tensors: dict[str, str] = field(default_factory=dict)
    like: dict[str, tuple[str, str]] = field(default_factory=dict)
    centred: set[str] = field(default_factory=set)
    layers: list[Layer] = field(default_factory=list)
    maps: set[str] = field(default_factory=set)
    binary: list[str] = field(default_factory=list)
    not_binary: dict[str, str] = field(default_factory=dict)
    scaling: list[str] = field(default_factory=list)

    @property
    def remarks(self) -> tuple[str, ...]:
        """For people, a line each."""
        lines = [f"warning: node {name} reads signs, but its weights do not make it a binary layer, so it is int8: "
                 f"{why}; a binary layer has plus or minus one number in each output channel"
                 for name, why in self.not_binary.items()]
        if self.scaling:
            lines.append(f"node {', '.join(self.scaling)}: scales numbers of an input that differ by more than 8 "
                         "times to one range, so it stays float and runs on the processor")
        return tuple(lines)


def plan_quantisation(model: onnx.ModelProto, keep_float: frozenset[str] = frozenset()) -> Plan:
    """For a model as `gen.quantize.prepare` makes it. Raises QuantizeError if nothing of it can be quantised."""
    unknown = keep_float - {node.name for node in model.graph.node}
    if unknown:
        raise QuantizeError(f"there is no node {sorted(unknown)[0]} that could stay float", code="no-such-layer")
    plan = _Planner(model, keep_float).run()
    if not plan.layers and not plan.binary:
        raise QuantizeError("has no Conv, Gemm or MatMul with constant weights; there is nothing to quantise",
                            code="nothing-to-quantise")
    return plan


class _Planner:
    def __init__(self, model: onnx.ModelProto, keep_float: frozenset[str]) -> None:
        scaling = [name for name in normalisers(model) if name not in keep_float]
        self._graph, self._keep_float = model.graph, keep_float.union(guards(model), scaling)
        self._constants = initializers(model)
        values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        self._types = {value.name: value.type.tensor_type.elem_type for value in values}
        self._ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values
                       if value.type.tensor_type.HasField("shape")}
        #: Of one sample: shape inference has several names for their number.
        self._shapes = {value.name: (1, *(dim.dim_value or dim.dim_param
                                          for dim in value.type.tensor_type.shape.dim[1:])) for value in values}
        self._readers = Counter(name for node in model.graph.node for name in node.input)
        self._readers.update(value.name for value in model.graph.output)
        self._kinds = {value.name: _Kind.INPUT for value in model.graph.input}
        #: Value -> the quantised one on whose grid it is; result -> the node of its layer.
        self._roots: dict[str, str] = {}
        self._makers: dict[str, str] = {}
        #: Results whose last axis is that of the channels.
        self._channels_last: set[str] = set()
        self._plan = Plan(scaling=scaling)
        weighted = [node.name for node in model.graph.node if self._has_weights(node)]
        self._functions = functions(model, weighted)
        self._leading = leading_to(model, frozenset(weighted))
        self._gates = self._softmax_gates()
        self._reaching = self._machine_leading()

    def run(self) -> Plan:
        for node in self._graph.node:
            self._apply(node)
        for value in self._graph.output:
            self._settle(value.name)
        return self._plan

    def _apply(self, node: NodeProto) -> None:
        inputs = [name for name in node.input if name in self._kinds]
        kinds = {self._kinds[name] for name in inputs}
        weighted = self._is_weighted(node)
        if self._is_function(node):
            self._quantise(self._functions[node.output[0]])
            self._give(node, _Kind.FUNCTION)
        elif not self._is_machine(node) or not inputs or self._gains_nothing(node, inputs):
            for name in inputs:
                if node.op_type == "Softmax" and node.output[0] in self._reaching:
                    self._quantise(name)        # a table in front of rows between products
                self._settle(name)
            self._give(node, _Kind.SUM if node.output[0] in self._gates else _Kind.FLOAT)
        elif weighted:
            self._layer(node)
        elif node.op_type == "Sign":
            self._sign(node, inputs[0])
        elif kinds == {_Kind.SIGN} and node.op_type in _MAXIMA:
            self._give(node, _Kind.SIGN)
        elif node.op_type in SHAPING:
            self._shape(node, inputs[0])
        elif node.op_type in CLIPS:
            self._absorb(node, inputs[0], (_Kind.RESULT, _Kind.SUM))
        elif len(inputs) == 1 and node.op_type in AFFINE and self._per_channel(node):
            self._absorb(node, inputs[0], (_Kind.RESULT,))
        elif node.op_type in PICKING and self._picks(node):
            self._pick(node, inputs[0])
        else:
            for name in inputs:
                self._quantise(name)
            if node.op_type in (*AFFINE, "Concat"):
                self._plan.maps.update(name for name in node.input if name in self._constants)
            self._give(node, _Kind.RESULT if node.op_type in AVERAGES else _Kind.SUM)
            if node.op_type not in (*AVERAGES, *JOINS) and not self._is_multiplied(node):
                for name in node.output:
                    self._quantise(name)
            if self._is_matrix_product(node):
                # Zero points are steps of their own.
                self._plan.centred.update(self._roots[name] for name in inputs if name in self._roots)

    def _gains_nothing(self, node: NodeProto, inputs: list[str]) -> bool:
        """Whether a node of the machine had better be the processor's: what reads nothing but float values; and of what
        follows the last layers what joins branches, blends pixels, or takes other constants than layers have.
        """
        floats = [self._kinds[name] is _Kind.FLOAT for name in inputs]
        if self._is_weighted(node):
            return floats[0] and self._is_cheap(node)
        if all(floats) or node.output[0] in self._reaching:
            return all(floats)
        return (any(floats) or node.op_type == "Concat" or (node.op_type in AFFINE and not self._per_channel(node))
                or (node.op_type == "Resize" and not self._picks(node)))

    def _is_cheap(self, node: NodeProto) -> bool:
        """Whether a layer with weights multiplies each of its input's values a few times at most, as the decoder of a
        distribution does."""
        dims, groups = self._constants[node.input[1]].dims, next((a.i for a in node.attribute if a.name == "group"), 1)
        channels = dims[1] * groups if node.op_type == "Conv" else dims[1 - self._output_axis(node)]
        return prod(dims) <= _CHEAP * channels

    def _softmax_gates(self) -> set[str]:
        """Results of Softmax over the channels of maps, or of tokens, that something is multiplied with."""
        factors = {name for node in self._graph.node if node.op_type == "Mul" for name in node.input
                   if self._constants.keys().isdisjoint(node.input)}
        found = set()
        for node in self._graph.node:
            rank = self._ranks.get(node.output[0], 0) if node.op_type == "Softmax" else 0
            axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
            if node.output[0] in factors and rank in (3, 4) and axis % rank == (1 if rank == 4 else 2):
                found.add(node.output[0])
        return found

    def _machine_leading(self) -> set[str]:
        """Values that a layer with weights depends on by what the machine does, and nothing else in between."""
        wanted: set[str] = set()
        products = {name for node in self._graph.node if node.op_type == "MatMul" and not self._has_weights(node)
                    for name in node.input}
        for node in reversed(self._graph.node):
            if self._has_weights(node) and node.name not in self._keep_float:
                wanted.add(node.input[0])
            elif not wanted.isdisjoint(node.output) and (
                    node.output[0] in self._functions or self._has_layer(node)
                    or (node.op_type == "Softmax" and node.output[0] in products | self._gates)):
                wanted.update(node.input)
        return wanted

    def _has_layer(self, node: NodeProto) -> bool:
        """Whether there may be a layer for an operator, whatever its inputs are."""
        key = "" if node.domain == "ai.onnx" else node.domain, node.op_type
        return (node.name not in self._keep_float and node.op_type not in _HOST and key in HANDLERS
                and key not in FUNCTIONS and self._types.get(node.output[0]) == TensorProto.FLOAT)

    def _is_machine(self, node: NodeProto) -> bool:
        if node.op_type in (*PICKING, *SHAPING) and node.input[0] not in self._kinds:
            return False    # values that are constants, by places that are none, as embeddings are
        return self._has_layer(node) and (
            self._is_multiplied(node) or self._is_matrix_product(node) or not self._is_product(node))

    def _is_product(self, node: NodeProto) -> bool:
        """Of two activations, or their quotient."""
        return (node.op_type in (*_WEIGHTED, *AFFINE) and node.op_type not in JOINS
                and sum(name in self._kinds for name in node.input) > 1)

    def _is_multiplied(self, node: NodeProto) -> bool:
        """Whether a machine with products can be what multiplies two activations, on the way to a layer."""
        kinds = [self._kinds.get(name) for name in node.input]
        if node.op_type != "Mul" or None in kinds or _Kind.FLOAT in kinds or node.output[0] not in self._leading:
            return False
        shapes = [self._shapes.get(name, ()) for name in node.input]
        whole = max(shapes, key=lambda shape: sum(size != 1 for size in shape))
        return bool(whole) and all(
            shape in (whole, (*whole[:2], *[1] * len(whole[2:])), (*whole[:1], 1, *whole[2:]),
                      (*whole[:1], *[1] * len(whole[2:]), *whole[-1:])) for shape in shapes)

    def _is_matrix_product(self, node: NodeProto) -> bool:
        """Whether a machine with gathered loads can be what multiplies matrices of two activations, as attention does,
        of which it makes one at least.
        """
        kinds = [self._kinds.get(name) for name in node.input]
        ranks = [self._ranks.get(name, 0) for name in node.input]
        return (node.op_type == "MatMul" and None not in kinds and set(kinds) not in ({_Kind.FLOAT}, {_Kind.INPUT})
                and min(ranks) >= 3 and ranks[0] == ranks[1])

    def _is_function(self, node: NodeProto) -> bool:
        """Whether a table can be what a node computes of a value that the machine has."""
        source = self._functions.get(node.output[0])
        return (source is not None and node.name not in self._keep_float
                and self._kinds.get(source) in (_Kind.INPUT, _Kind.RESULT, _Kind.SUM, _Kind.GRID)
                and all(self._kinds[name] is not _Kind.FLOAT for name in node.input if name in self._kinds))

    def _is_weighted(self, node: NodeProto) -> bool:
        return self._has_weights(node) and node.input[0] in self._kinds

    def _has_weights(self, node: NodeProto) -> bool:
        return node.op_type in _WEIGHTED and node.input[1] in self._constants

    def _layer(self, node: NodeProto) -> None:
        source, weights = node.input[:2]
        groups = next((a.i for a in node.attribute if a.name == "group"), 1)
        # The weights of a depthwise ConvTranspose have its channels in front.
        depthwise = node.op_type == "ConvTranspose" and list(self._constants[weights].dims[:2]) == [groups, 1]
        axis = 0 if depthwise else self._output_axis(node)
        if self._kinds[source] is _Kind.SIGN:
            why = why_no_signs(numpy_helper.to_array(self._constants[weights]), axis)
            if not why:
                self._plan.binary.append(node.name)
                self._give(node, _Kind.RESULT)
                return
            self._plan.not_binary[node.name] = why
        self._quantise(source)
        if source not in self._roots:       # of a type that is not known, as nodes of other domains make
            self._give(node, _Kind.FLOAT)
            return
        bias = node.input[2] if len(node.input) > 2 and node.input[2] in self._constants else ""
        self._plan.layers.append(Layer(node.name, self._roots[source], weights, axis, bias, node.output[0]))
        self._give(node, _Kind.RESULT)
        if node.op_type == "MatMul":
            self._channels_last.add(node.output[0])

    @staticmethod
    def _output_axis(node: NodeProto) -> int:
        """That of the output channels in a node's weights."""
        if node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute):
            return 0
        return _WEIGHTED[node.op_type]

    def _sign(self, node: NodeProto, source: str) -> None:
        """Of a result that nothing else reads it is a threshold, of all else the signs of a tensor."""
        if self._kinds[source] is not _Kind.RESULT or self._readers[source] > 1:
            self._quantise(source)
            self._plan.centred.add(self._roots[source])
        self._give(node, _Kind.SIGN)

    def _shape(self, node: NodeProto, source: str) -> None:
        self._settle(source)
        if self._kinds[source] is _Kind.FUNCTION:
            self._quantise(source)
        self._give(node, self._kinds[source])
        if source in self._roots:
            self._roots[node.output[0]] = self._roots[source]
        self._makers[node.output[0]] = self._makers.get(source, "")

    def _absorb(self, node: NodeProto, source: str, kinds: tuple[_Kind, ...]) -> None:
        """A node that goes into the layer in front of it, if that is of one of ``kinds``; else a copy."""
        if self._kinds[source] in kinds and self._readers[source] == 1:
            maker = self._makers[source]
        else:
            self._quantise(source)
            maker = node.name
        self._give(node, _Kind.SUM if node.op_type in CLIPS else _Kind.RESULT)
        self._makers[node.output[0]] = maker
        if source in self._channels_last:
            self._channels_last.add(node.output[0])

    def _pick(self, node: NodeProto, source: str) -> None:
        self._quantise(source)
        self._give(node, _Kind.GRID)
        for name in filter(None, node.output):
            if self._types.get(name) == TensorProto.FLOAT:
                self._plan.like[name] = (self._roots[source], node.name)
                self._roots[name] = self._roots[source]

    def _give(self, node: NodeProto, kind: _Kind) -> None:
        for name in filter(None, node.output):
            self._kinds[name] = kind
            self._makers[name] = node.name

    def _settle(self, name: str) -> None:
        """An unquantised result of the machine goes to something that is none of it."""
        if self._kinds.get(name) in (_Kind.RESULT, _Kind.SUM):
            self._quantise(name)

    def _quantise(self, name: str) -> None:
        if self._kinds.get(name) not in (None, _Kind.GRID) and self._types.get(name) == TensorProto.FLOAT:
            self._plan.tensors[name] = self._makers.get(name, "")
            self._kinds[name] = _Kind.GRID
            self._roots[name] = name

    def _per_channel(self, node: NodeProto) -> bool:
        """Whether the constants of a node have one number, or one for each channel."""
        rank = self._ranks.get(node.output[0], 0)
        if node.op_type == "BatchNormalization":
            return True
        channels = 1 if self._channels_last.isdisjoint(node.input) else rank - 1
        for name in node.input:
            if name in self._constants:
                dims = list(self._constants[name].dims)
                spread = [axis + rank - len(dims) for axis, size in enumerate(dims) if size != 1]
                if spread not in ([], [channels]):
                    return False
        return True

    def _picks(self, node: NodeProto) -> bool:
        """Whether all values of a result are those of the input, or zero."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Resize":
            return attributes.get("mode", b"nearest") == b"nearest"
        if node.op_type == "Pad" and attributes.get("mode", b"constant") == b"constant" and len(node.input) > 2:
            value = self._constants.get(node.input[2])
            return not node.input[2] or (value is not None and not numpy_helper.to_array(value).any())
        return True
