"""Where an ONNX model has weights that can be pruned in blocks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gen.onnx.light import inferred
from gen.prune.errors import PruneError
from gen.prune.sizes import sizes_of

__all__ = ["QUANTISING", "PrunableLayer", "ModelView", "chosen_layers", "find_layers"]

#: Operator -> the input that has its weights.
_WEIGHTS = {"Conv": 1, "Gemm": 1, "MatMul": 1, "QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}
#: Operators that only move values; after them a matrix product has the channels of a feature map in another order.
_MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout")
QUANTISING = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, eq=False)
class ModelView:
    """Lookups in a model: who makes a value, what is constant, and shapes as far as inference knows them."""

    model: onnx.ModelProto
    makers: Mapping[str, NodeProto]
    constants: Mapping[str, TensorProto]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> "ModelView":
        """Unknown dimensions are 0; values of unknown rank have no shape."""
        graph = inferred(model, data_prop=True)
        shapes = {value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
                  for value in (*graph.input, *graph.value_info, *graph.output)
                  if value.type.tensor_type.HasField("shape")}
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        shapes.update((name, tuple(tensor.dims)) for name, tensor in constants.items())
        return cls(model, {name: node for node in model.graph.node for name in node.output if name}, constants, shapes)

    @cached_property
    def signs(self) -> set[str]:
        """Values that a Sign makes, or a Where with 1 and -1."""
        return {node.output[0] for node in self.model.graph.node
                if node.op_type == "Sign" or (node.op_type == "Where" and self._chooses_signs(node))}

    def _chooses_signs(self, node: NodeProto) -> bool:
        arrays = [self.array(name) for name in node.input[1:] if name in self.constants]
        return len(arrays) == 2 and all(array.size == 1 for array in arrays) and {
            array.item() for array in arrays} == {-1, 1}

    @cached_property
    def sizes(self) -> Mapping[str, TensorProto]:
        """Values that the model computes of shapes, as constants for one sample."""
        return {name: numpy_helper.from_array(array, name) for name, array in sizes_of(self.model)[1].items()}

    def behind(self, name: str, passing: tuple[str, ...]) -> str:
        """The value that ``name`` is made of by operators of ``passing`` alone, as their first inputs."""
        while name in self.makers and self.makers[name].op_type in passing:
            name = self.makers[name].input[0]
        return name

    def array(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self.constants[name])


@dataclass(frozen=True, eq=False)
class PrunableLayer:
    """A convolution or matrix product with constant weights.

    ``left``: why it is not pruned, "" if it can be. ``transposed``: of a matrix product whose weights are (inputs,
    outputs); ``order``: of one after a feature map (``shape``: C, H, W), the place there of each of its inputs.
    """

    node: str
    op: str
    initializer: str
    zero_point: np.ndarray
    left: str = ""
    transposed: bool = False
    order: np.ndarray | None = None
    shape: tuple[int, ...] = ()

    def weights(self, array: np.ndarray) -> np.ndarray:
        """(OC, IC, KH, KW) of the initializer's array: float32, or int16 with the zero point subtracted."""
        number = np.float32 if array.dtype.kind == "f" else np.int16
        array = array.astype(number) - self.zero_point.astype(number)
        if self.op in ("Conv", "QLinearConv"):
            return array.reshape(*array.shape[:2], -1, array.shape[-1] if array.ndim > 3 else 1)
        matrix = array.T if self.transposed else array
        if self.order is not None:
            moved = np.empty_like(matrix)
            moved[:, self.order] = matrix
            return moved.reshape(len(matrix), *self.shape)
        return matrix[:, :, None, None]

    def array(self, weights: np.ndarray, like: np.ndarray) -> np.ndarray:
        """The inverse of `weights`; ``like``: the array that the initializer has."""
        matrix: np.ndarray = weights.reshape(len(weights), -1)
        if self.order is not None:
            matrix = matrix[:, self.order]
        if self.op in ("Conv", "QLinearConv"):
            array = weights.reshape(like.shape)
        else:
            array = matrix.T if self.transposed else matrix
        return (array + self.zero_point.astype(array.dtype)).astype(like.dtype)


def _order(view: ModelView, name: str) -> tuple[np.ndarray | None, tuple[int, ...]]:
    """Where the elements of a matrix product's input are in its feature map, and the map's (C, H, W).

    Not of tokens, each of which has the channels.
    """
    source = view.behind(name, (*_MOVING, *QUANTISING))
    shape = view.shapes.get(source, ())
    if source == name or len(shape) < 3 or 0 in shape[1:]:
        return None, ()
    nodes, current = [], name
    while current != source:
        node = NodeProto()
        node.CopyFrom(view.makers[current])
        current = node.input[0]
        if node.op_type in QUANTISING:
            node = helper.make_node("Identity", [current], [node.output[0]])
        nodes.append(node)
    read = {other for node in nodes for other in node.input[1:] if other}
    known = {**view.constants, **(view.sizes if not read <= view.constants.keys() else {})}
    if not read <= known.keys():
        return None, ()
    graph = helper.make_graph(
        nodes[::-1], "order", [helper.make_tensor_value_info(source, TensorProto.INT64, (1, *shape[1:]))],
        [helper.make_tensor_value_info(name, TensorProto.INT64, None)], [known[other] for other in sorted(read)])
    model = helper.make_model(graph, opset_imports=view.model.opset_import)
    places = np.arange(np.prod(shape[1:])).reshape(1, *shape[1:])
    channels, *spatial = shape[1:]
    moved: Any = ReferenceEvaluator(model).run(None, {source: places})
    if moved[0].shape[-1] < places.size:
        return None, ()
    return moved[0].reshape(-1), (channels, int(np.prod(spatial[:-1])), spatial[-1])


def _zero_point(view: ModelView, node: NodeProto, weights: str) -> np.ndarray:
    """Of a layer's weights, in a shape that broadcasts to their array."""
    name, axis = "", 0
    maker = view.makers.get(weights)
    if maker is not None and maker.op_type == "DequantizeLinear" and len(maker.input) > 2:
        name = maker.input[2]
        axis = next((a.i for a in maker.attribute if a.name == "axis"), 1)
    elif node.op_type in ("QLinearConv", "QLinearMatMul", "QGemm"):
        name, axis = node.input[5], 0 if node.op_type == "QLinearConv" else 1
    initializer = view.behind(weights, QUANTISING)
    whole = view.constants[initializer].data_type != TensorProto.FLOAT      # else they are quantised as the model runs
    points = view.array(name) if name in view.constants and whole else np.zeros(1)
    rank = len(view.shapes[initializer])
    return points.reshape([points.size if a == axis % rank else 1 for a in range(rank)])


def _layer(view: ModelView, node: NodeProto, entrances: set[str]) -> PrunableLayer | None:
    attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    weights = node.input[_WEIGHTS[node.op_type]]
    initializer = view.behind(weights, (*QUANTISING, "Identity"))
    if initializer not in view.constants:
        return None
    source = view.behind(node.input[0], (*_MOVING, *QUANTISING, "Pad", "Cast"))
    readers = max(sum(list(other.input).count(name) for other in view.model.graph.node)
                  for name in (weights, initializer))
    left = ""
    if source in entrances:
        left = "reads the model's input"
    elif attributes.get("group", 1) != 1:
        left = "depthwise, or in groups"
    elif view.behind(source, (*_MOVING, "Pad", "MaxPool")) in view.signs:
        left = "binary"
    elif readers > 1:
        left = "shares its weights with another node"
    layer = PrunableLayer(node.name, node.op_type, initializer, _zero_point(view, node, weights), left)
    if node.op_type in ("Conv", "QLinearConv"):
        return layer
    if len(view.shapes[initializer]) != 2 or attributes.get("transA", 0):
        return None
    order, shape = _order(view, node.input[0]) if not left else (None, ())
    return PrunableLayer(node.name, node.op_type, initializer, layer.zero_point, left,
                         not attributes.get("transB", 0), order, shape)


def find_layers(model: onnx.ModelProto) -> list[PrunableLayer]:
    """All layers with constant weights, in the order of the nodes, which have names.

    As `gen.passes.prune`: the layer that reads the model's input, depthwise and binary ones are left as they are.
    """
    view = ModelView.of(model)
    entrances = {value.name for value in model.graph.input}
    found = (_layer(view, node, entrances) for node in model.graph.node if node.op_type in _WEIGHTS)
    return [layer for layer in found if layer is not None]


def chosen_layers(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that a pattern of a shell (``block1*``) matches; all of them without patterns.

    Raises PruneError for a pattern that matches none.
    """
    known = set(names)
    if not patterns:
        return known
    found = {pattern: {name for name in known if fnmatchcase(name, pattern)} for pattern in patterns}
    for pattern, matched in found.items():
        if not matched:
            raise PruneError(f"no layer has a name like {pattern!r}; layers: {', '.join(sorted(known)) or 'none'}",
                             code="no-such-layer")
    return set().union(*found.values())
