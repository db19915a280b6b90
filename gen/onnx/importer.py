"""ONNX model -> `gen.ir.graph.Graph`.

The importer walks the nodes in order and keeps for every ONNX value what it means (`gen.onnx.values`). Arithmetic
becomes a pending layer; the QuantizeLinear behind it gives the layer its output scale and puts it into the graph.
Operators are in `gen.onnx.operators`, `gen.onnx.layers` and `gen.onnx.qoperators`; what remains to be done on the graph
are the passes of `gen.passes`.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, count
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np
from onnx import TensorProto

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Graph, HostStep, Layer, Requantize, Residual, Tensor, verify
from gen.onnx import (
    affine as onnx_affine,
)
from gen.onnx import (
    binary as onnx_binary,
)
from gen.onnx import (
    layers as onnx_layers,
)
from gen.onnx import (
    model as onnx_model,
)
from gen.onnx import (
    operators as onnx_operators,
)
from gen.onnx import (
    qoperators as onnx_qoperators,
)
from gen.onnx.fold import Folder
from gen.onnx.handlers import MICROSOFT, NodeError
from gen.onnx.model import Model, Node
from gen.onnx.stages import emit, emit_sum
from gen.onnx.values import (
    Condition,
    Constant,
    Host,
    Padded,
    Pending,
    PendingAdd,
    PendingPool,
    Quantised,
    QuantisedConstant,
    QuantisedPadded,
    RawInput,
    Real,
    Value,
    channels_shape,
    is_whole,
    layout_steps,
    quantisation,
)
from gen.onnx.windows import WindowError
from gen.passes import run_passes

__all__ = ["Imported", "Importer", "load", "load_model"]

_HANDLERS = {**onnx_operators.HANDLERS, **onnx_layers.HANDLERS, **onnx_affine.HANDLERS, **onnx_binary.HANDLERS,
             **onnx_qoperators.HANDLERS}

#: Values of all layers' results together, whose arrangements are kept; and of the results of all nodes, for time.
_MAX_LAYER_VALUES, _MAX_NODE_VALUES = 8 * MAX_VALUES, 64 * MAX_VALUES


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


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph beside what only the comparison with ONNX needs.

    ``orders``: tensor -> int array of its ONNX shape (one sample), each element's flat index in the (C, H, W) tensor.
    """

    model: Model
    graph: Graph
    orders: dict[str, np.ndarray]


class Importer:
    """State of one import. Handlers call the methods below; all errors are GraphError."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.fold = Folder(model)
        self.values: dict[str, Value] = {n: Constant(a) for n, a in model.constants.items()}
        self.tensors: dict[str, Tensor] = {}
        self.layers: list[Layer] = []
        self.orders: dict[str, np.ndarray] = {}
        self.inputs: dict[str, _InputRecord] = {}
        self._clip_bounds: dict[str, tuple[int, int]] = {}
        self._layer_names: set[str] = set()
        self._layer_values = self._node_values = 0
        for model_input in model.inputs:
            self._add_input(model_input)

    # -- for handlers --------------------------------------------------------------------------------------------

    def fail(self, node: Node, message: str) -> NoReturn:
        raise GraphError(f"{self.model.path}: {node}: {message}")

    def constant(self, node: Node, value: Value | None, what: str) -> np.ndarray:
        """The array of a constant (dequantised ones in float64)."""
        if isinstance(value, Constant):
            return value.array
        if isinstance(value, QuantisedConstant):
            return value.real
        self.fail(node, f"{what} must be a constant")

    def integers(self, node: Node, value: Value | None, what: str) -> tuple[int, ...]:
        """A constant of whole numbers, flattened: axes, shapes and the like."""
        array = self.constant(node, value, what)
        if array.dtype.kind not in "iu":
            self.fail(node, f"{what} must be integers, not {array.dtype}")
        return tuple(array.reshape(-1).tolist())

    def scalar(self, node: Node, value: Value | None, what: str, default: float | None = None) -> float:
        if value is None and default is not None:
            return default
        array = self.constant(node, value, what)
        if array.size != 1:
            self.fail(node, f"{what} must be one number, not {array.size}; quantise activations per tensor")
        return array.reshape(()).item()

    def axes(self, node: Node, value: Value | None) -> tuple[int, ...]:
        """Axes from an attribute (older opsets) or from an input; none if there are neither."""
        if value is not None:
            return self.integers(node, value, "the axes")
        return tuple(node.attributes.get("axes") or ())

    def parameter(self, node: Node, value: Value | None, what: str) -> np.ndarray:
        """A scale or zero point: one number, or one for each channel of a constant; onnxruntime takes no other."""
        array = self.constant(node, value, what)
        if array.ndim > 1:
            self.fail(node, f"{what} must be one number or a list, not of shape {array.shape}")
        return array

    def activation_scale(self, node: Node, value: Value | None) -> float:
        self.float_scales(node, value)
        scale = float(self.scalar(node, value, "the scale"))
        if not (np.isfinite(scale) and scale > 0):
            self.fail(node, f"the scale must be positive, not {scale}")
        return scale

    def float_scales(self, node: Node, value: Value | None) -> np.ndarray:
        """One scale or several, as they are."""
        scales = self.parameter(node, value, "the scale")
        if scales.dtype not in (np.float32, np.float16):
            self.fail(node, f"the scale must be float32 or float16, not {scales.dtype}")
        return scales

    def activation(self, node: Node, value: Value | None, what: str = "its input") -> Real:
        """``value`` as a dequantised tensor of the graph, all of it."""
        if not isinstance(value, Real):
            self.refuse(node, value, what)
        real = replace(value, quantised=self.tensor(value.quantised, value.scale, value.zero_point))
        tensor = self.tensors[real.quantised.tensor]
        if not is_whole(real.order, prod(tensor.shape)):
            self.fail(node, f"{what} is only a part of tensor {tensor.name}, or repeats one; the machine moves no "
                            "data, so nothing but outputs of the model may follow")
        return real

    def refuse(self, node: Node, value: Value | None, what: str) -> NoReturn:
        """Say why ``value`` is no dequantised tensor."""
        self.fail(node, f"{what} {self._obstacle(value)}")

    def _obstacle(self, value: Value | None) -> str:
        """What keeps ``value`` from being a dequantised tensor."""
        match value:
            case Pending() | PendingAdd() | PendingPool():
                return (f"is the unquantised result of node {value.name}; put QuantizeLinear and DequantizeLinear "
                        "behind that")
            case Padded() | QuantisedPadded():
                return "is padded, which only a Conv can follow"
            case Condition():
                return "is a comparison, which only a Where can follow"
            case RawInput() if self._quantised:
                return (f"is the float input {value.name}; put QuantizeLinear and DequantizeLinear behind that, as "
                        "they are elsewhere in the model")
            case RawInput():
                return (f"is the float input {value.name}; this compiler takes quantised models (QDQ or QLinear): "
                        "quantise it first, for example with onnxruntime.quantization (docs/models.md)")
            case Host():
                return "comes from an operator that runs on the processor; only rearranging may follow, to the outputs"
            case Quantised():
                return "is an integer tensor; put a DequantizeLinear behind it"
        return "is a constant, or missing; an activation belongs there"

    @cached_property
    def _quantised(self) -> bool:
        """Whether a quantiser has seen the model's activations."""
        return any(node.op.startswith(("QuantizeLinear", "QLinear", "QGemm")) for node in self.model.nodes)

    def tensor(self, value: Quantised, scale: float, zero_point: int) -> Quantised:
        """``value`` with a tensor of the graph behind it; the first use of an input decides its tensor's layout."""
        record = self.inputs.get(value.tensor)
        if record is None:
            return value
        if not record.tensor:
            if not is_whole(value.order, record.order.size):
                self.tensor(replace(value, order=np.arange(record.order.size).reshape(record.shape)), scale, zero_point)
                return self.tensor(value, scale, zero_point)
            shape = channels_shape(value.order.shape)
            if shape is None:
                raise GraphError(f"{self.model.path}: input {record.name} has more than two spatial axes")
            record.tensor = self._tensor_name(record.onnx_name)
            record.position = np.empty(value.order.size, np.int64)
            record.position[value.order.ravel()] = np.arange(value.order.size)
            tensor = Tensor(record.tensor, shape, scale, zero_point, record.onnx_name, record.unsigned)
            self.tensors[record.tensor] = tensor
            self.orders[record.tensor] = record.position.reshape(record.shape)
        return Quantised(record.tensor, record.position[value.order], value.unsigned)

    def clip_bounds(self, tensor: str) -> tuple[int, int]:
        """Lowest and highest int8 value that a tensor can hold."""
        return self._clip_bounds.get(tensor, (-128, 127))

    def _tensor_name(self, wanted: str) -> str:
        return _unique(wanted, self.tensors)

    def _layer_name(self, value: Pending) -> str:
        name = _unique(value.name, self._layer_names)
        self._layer_names.add(name)
        return name

    def quantize(self, node: Node, value: Value | None, scale: float, zero_point: int, unsigned: bool) -> Value:
        """``value`` quantised under the name of ``node``'s output; ``zero_point`` is that of the model."""
        internal = zero_point - 128 if unsigned else zero_point
        if isinstance(value, Host):
            return value.then(quantisation("quantize", scale, zero_point, unsigned))
        if isinstance(value, RawInput):
            return self._quantize_input(node, value, scale, zero_point, unsigned)
        if isinstance(value, Padded):
            return self._quantize_padded(node, value, scale, internal, unsigned)
        if isinstance(value, Real):
            if (value.scale, value.zero_point) == (scale, internal):
                # The same numbers, if perhaps counted from another origin: int8 for uint8.
                return replace(value.quantised, unsigned=unsigned)
            value = onnx_layers.copy(self, node, self.activation(node, value))
        if isinstance(value, PendingAdd):
            return emit_sum(self, node, value, scale, internal, unsigned)
        if isinstance(value, Pending):
            return emit(self, node, value, scale, internal, unsigned)
        if isinstance(value, PendingPool):
            self.fail(node, f"quantises the maximum {value.name} of an unquantised result; put QuantizeLinear and "
                            "DequantizeLinear in front of that MaxPool")
        if isinstance(value, Quantised | QuantisedPadded):
            self.fail(node, "its input is quantised already; put a DequantizeLinear in between, or remove the node")
        self.refuse(node, value, "its input")

    def _quantize_padded(self, node: Node, value: Padded, scale: float, zero_point: int,
                         unsigned: bool) -> QuantisedPadded:
        """Exporters quantise behind a Pad as in front of it; anything else would make another tensor."""
        if (value.real.scale, value.real.zero_point) != (scale, zero_point):
            self.fail(node, "quantises a padded tensor with other parameters than the tensor has; "
                            "quantise it in front of the Pad")
        quantised = replace(value.real.quantised, unsigned=unsigned)
        return QuantisedPadded(replace(value, real=replace(value.real, quantised=quantised)))

    # -- inputs --------------------------------------------------------------------------------------------------

    def _add_input(self, model_input: onnx_model.ModelInput) -> None:
        order = np.arange(int(np.prod(model_input.shape))).reshape(model_input.shape)
        if model_input.elem_type in (TensorProto.INT8, TensorProto.UINT8):
            unsigned = model_input.elem_type == TensorProto.UINT8
            key = f"input {model_input.name}"
            self.inputs[key] = _InputRecord(
                model_input.name, model_input.shape, model_input.name, unsigned, None, order)
            self.values[model_input.name] = Quantised(key, order, unsigned)
        elif model_input.elem_type == TensorProto.FLOAT:
            self.values[model_input.name] = RawInput(model_input.name, order)
        else:
            names = {code: name for name, code in TensorProto.DataType.items()}
            number = names.get(model_input.elem_type, "of an unknown type")
            raise GraphError(f"{self.model.path}: input {model_input.name} is {number}; "
                             "inputs must be float32, int8 or uint8")

    def _quantize_input(self, node: Node, value: RawInput, scale: float, zero_point: int, unsigned: bool) -> Quantised:
        key = f"input {value.name}"
        record = self.inputs.get(key)
        if record is None:
            step = quantisation("quantize", scale, zero_point, unsigned)
            self.inputs[key] = _InputRecord(value.name, value.order.shape, node.outputs[0], unsigned, step, value.order)
            return Quantised(key, np.arange(value.order.size).reshape(value.order.shape), unsigned)
        assert record.quantize is not None
        kept = record.quantize.parameters
        shift = 128 * (unsigned - record.unsigned)
        if (kept["scale"], kept["zero_point"]) != (scale, zero_point - shift):
            self.fail(node, f"input {value.name} is quantised twice, with different scales; quantise it once")
        position = np.empty(value.order.size, np.int64)
        position[record.order.ravel()] = np.arange(value.order.size)
        return Quantised(key, position[value.order], unsigned)

    # -- layers --------------------------------------------------------------------------------------------------

    def add_layer(self, node: Node | None, value: Pending, order: np.ndarray, shape: tuple[int, int, int],
                  requantize: Requantize, residual: Residual | None = None, *, scale: float = 1.0, zero_point: int = 0,
                  unsigned: bool = False, signs: bool = False) -> Quantised:
        """Put a layer into the graph; its output is that of ``node``, or none of the model's."""
        name = self._layer_name(value)
        tensor = self._tensor_name(node.outputs[0] if node else f"{name}/parts")
        onnx_name = node.outputs[0] if node else ""
        self._layer_values += order.size
        if self._layer_values > _MAX_LAYER_VALUES:
            raise GraphError(f"{self.model.path}: the feature maps up to that of {name} have more than "
                             f"{_MAX_LAYER_VALUES:,} values together; take smaller images, or fewer layers")
        self.tensors[tensor] = Tensor(tensor, shape, scale, zero_point, onnx_name, unsigned, signs)
        self.orders[tensor] = order
        last = residual or requantize
        self._clip_bounds[tensor] = last.low, last.high
        self.layers.append(value.layer(name=name, output=tensor, requantize=requantize, residual=residual,
                                       onnx_nodes=(*value.nodes, *([node.name] if node else [])), **value.arguments))
        return Quantised(tensor, order, unsigned)

    # -- walking -------------------------------------------------------------------------------------------------

    def run(self) -> Imported:
        # An arrangement takes eight bytes for each element: a value goes behind the last node that reads it.
        uses = Counter(chain(self.model.outputs, *(node.inputs for node in self.model.nodes)))
        for node in self.model.nodes:
            operands = [self._operand(node, n) if n else None for n in node.inputs]
            outputs = self._apply(node, operands)
            self._bound(node, outputs)
            self.values.update((n, v) for n, v in zip(node.outputs, outputs, strict=False) if n)
            uses.subtract(node.inputs)
            for name in {*node.inputs, *node.outputs}:
                if not uses[name]:
                    self.values.pop(name, None)
        outputs_of_graph = {name: self._output(name) for name in self.model.outputs}
        inputs = {i.name: self._input(i) for i in self.model.inputs}
        graph = Graph(Path(self.model.path).stem, self.tensors, self.layers, inputs, outputs_of_graph)
        try:
            verify(graph)
            graph = run_passes(graph)
        except GraphError as error:
            raise GraphError(f"{self.model.path}: {error}") from None
        if not graph.layers:
            raise GraphError(f"{self.model.path}: no output needs a layer of the machine; the processor does all of it")
        return Imported(self.model, graph, self.orders)

    def _bound(self, node: Node, outputs: list[Value]) -> None:
        self._node_values += sum(v.order.size for v in outputs if not isinstance(v, Constant | QuantisedConstant))
        if self._node_values > _MAX_NODE_VALUES:
            self.fail(node, f"the results of the nodes up to here have more than {_MAX_NODE_VALUES:,} values together; "
                            "take smaller images, or fewer nodes")

    def _operand(self, node: Node, name: str) -> Value:
        if name not in self.values:
            self.fail(node, f"its input {name} {self._missing(name)}")
        return self.values[name]

    def _missing(self, name: str) -> str:
        """Why there is no value of that name."""
        maker = next((node for node in self.model.nodes if name in node.outputs), None)
        return f"is a further output of {maker}, of which only the first is supported" if maker else "is made nowhere"

    def _apply(self, node: Node, inputs: list[Value | None]) -> list[Value]:
        arrays = _constants(node, {n: v for n, v in zip(node.inputs, inputs, strict=True) if n})
        try:
            if arrays is not None:
                return [Constant(a) for a in self.fold(node, arrays)]
            handler = _HANDLERS.get((node.domain, node.op))
            if handler is None:
                self.fail(node, _unknown(node))
            result = handler(self, node, inputs)
        except (NodeError, WindowError) as error:
            self.fail(node, str(error))
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            if isinstance(error, GraphError):
                raise
            self.fail(node, "its attributes and the shapes of its inputs contradict each other; export the model again")
        return result if isinstance(result, list) else [result]

    # -- ends ----------------------------------------------------------------------------------------------------

    def _input(self, model_input: onnx_model.ModelInput) -> tuple[str, tuple[HostStep, ...]]:
        record = self.inputs.get(f"input {model_input.name}")
        if record is None or not record.tensor:
            raise GraphError(f"{self.model.path}: input {model_input.name} is not used by any layer; remove it")
        order = np.empty(record.position.size, np.int64)
        order[record.position] = record.order.ravel()
        steps = layout_steps(model_input.shape[1:], order.reshape(1, *self.tensors[record.tensor].shape))
        return record.tensor, (*steps, record.quantize) if record.quantize else steps

    def _output(self, name: str) -> tuple[str, tuple[HostStep, ...]]:
        value = self.values.get(name)
        match value:
            case Pending() if (joined := onnx_binary.joined(self, value)) is not None:
                return joined.tensor, joined.steps
            case Host():
                return value.tensor, value.steps
            case Real():
                host = self.host(value)
                return host.tensor, host.steps
            case Quantised():
                resolved = self.tensor(value, 1.0, 0)
                steps = self.layout(resolved)
                if resolved.unsigned != self.tensors[resolved.tensor].onnx_unsigned:
                    steps = (*steps, HostStep("retype", {"unsigned": resolved.unsigned}))
                return resolved.tensor, steps
            case None:
                reason = self._missing(name)
            case Constant() | QuantisedConstant():
                reason = "does not depend on an input"
            case _:
                reason = self._obstacle(value)
        raise GraphError(f"{self.model.path}: output {name} {reason}")

    def layout(self, value: Quantised) -> tuple[HostStep, ...]:
        """Steps from the tensor to the value's arrangement."""
        return layout_steps(self.tensors[value.tensor].shape, value.order)

    def host(self, value: Real) -> Host:
        """``value`` dequantised by the processor."""
        quantised = self.tensor(value.quantised, value.scale, value.zero_point)
        unsigned = self.tensors[quantised.tensor].onnx_unsigned
        zero_point = value.zero_point + 128 if unsigned else value.zero_point
        order = np.arange(quantised.order.size).reshape(quantised.order.shape)
        step = quantisation("dequantize", value.scale, zero_point, unsigned)
        return Host(quantised.tensor, (*self.layout(quantised), step), order)


def _unknown(node: Node) -> str:
    """What to say of an operator without a handler."""
    if node.domain not in ("", MICROSOFT):
        return (f"operator {node.op} of the domain {node.domain} is a custom one, of which nothing is known here; "
                "replace it by operators of ONNX, or give the model a function of that name")
    near = get_close_matches(node.op, [op for domain, op in _HANDLERS if domain == node.domain], n=1)
    place = f" in the domain {node.domain}" if node.domain else ""
    return (f"operator {node.op} is not supported{place}{f', but {near[0]} is' if near else ''}; "
            "docs/models.md has all that are")


def _constants(node: Node, inputs: Mapping[str, Value | None]) -> dict[str, np.ndarray] | None:
    """The inputs of a node that is evaluated here and now; None for one that is not.

    Dequantised constants keep their integers, so that weights stay what they are, up to a QuantizeLinear.
    """
    if node.op == "DequantizeLinear":
        return None
    arrays = {}
    for name, value in inputs.items():
        if isinstance(value, Constant):
            arrays[name] = value.array
        elif isinstance(value, QuantisedConstant) and node.op == "QuantizeLinear":
            arrays[name] = value.real.astype(np.float32)
        else:
            return None
    return arrays


def _unique(wanted: str, taken: Container[str]) -> str:
    return next(n for n in chain([wanted], (f"{wanted}_{i}" for i in count(2))) if n not in taken)


def load_model(path: str | Path, content: bytes | None = None) -> Imported:
    """Import a quantised ONNX model, with what is needed to compare it with ONNX. Raises as `load`.

    With ``content`` the model is that, found inside the file at ``path``, which it is named by.
    """
    return Importer(onnx_model.read(path) if content is None else onnx_model.parse(str(path), content)).run()


def load(path: str | Path) -> Graph:
    """Import a quantised (QDQ or QLinear) ONNX model.

    Raises GraphError for a file that is not ONNX, a float model, an operator or a form of one that the machine cannot
    run; the message is one line that names the file, the node and what to do.
    """
    return load_model(path).graph
