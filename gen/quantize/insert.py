"""QuantizeLinear and DequantizeLinear where a plan has them, by `onnxruntime.quantization`."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import TensorData
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import add_infer_metadata

from gen.onnx.names import unique
from gen.quantize.fit import fit_ranges, fit_weights
from gen.quantize.int4 import int4_weights
from gen.quantize.options import QuantizeOptions
from gen.quantize.plan import Plan

__all__ = ["insert"]

#: Integer of a constant.
_LARGEST = 127
#: What onnxruntime's modules of the quantiser call their search for an initializer; it is replaced by one at a time.
_FINDER, _REPLACING = "find_by_name", Lock()


def insert(model: onnx.ModelProto, plan: Plan, ranges: Mapping[str, tuple[float, float]],
           options: QuantizeOptions) -> onnx.ModelProto:
    """``model`` with the tensors of ``plan`` in int8, for these ranges, and its layers' weights and biases in integers.
    It has the types and shapes of its values. What is zero in all samples or weights gets a scale that fits what is
    beside it (`gen.quantize.fit`).

    What to quantise is told tensor by tensor: onnxruntime's own choice, operator by operator, also quantises between a
    layer and the clip after it.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    add_infer_metadata(copied)      # or it would write the model to a file and read it again, to infer what is there
    outputs = _without_inputs(copied)
    ranges = fit_ranges(model, plan, ranges)
    largest = fit_weights(model, plan, ranges, options)
    for name, scales in int4_weights(copied, plan, options).items():
        largest[name] = np.maximum(largest.get(name, np.float32(0)), _LARGEST * scales)
    overrides = _overrides(model, plan, largest, options)
    data = {name: TensorData(lowest=np.float32(low), highest=np.float32(high)) for name, (low, high) in ranges.items()}
    quantizer = QDQQuantizer(
        copied, per_channel=options.per_channel, reduce_range=False, weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8, tensors_range=data, nodes_to_quantize=[], nodes_to_exclude=[],
        op_types_to_quantize=[], extra_options={
            "ActivationSymmetric": options.symmetric, "TensorQuantOverrides": overrides})
    _Readers(quantizer.model).install()
    with _initializers_by_name(quantizer.model):
        _quantise(quantizer, plan, options)
    quantizer.model.topological_sort()
    quantized: onnx.ModelProto = quantizer.model.model
    del quantized.graph.output[:]
    quantized.graph.output.extend(outputs)
    _give_zero_a_sign(quantized)
    return quantized


def _quantise(quantizer: QDQQuantizer, plan: Plan, options: QuantizeOptions) -> None:
    """Tell a quantiser what to quantise, and have it do that."""
    for name in plan.tensors:
        quantizer.quantize_activation_tensor(name)
    for name, (source, node) in plan.like.items():
        quantizer.quantize_output_same_as_input(name, source, node)
    for name in sorted(plan.maps):
        quantizer.quantize_weight_tensor(name)
    for layer in plan.layers:
        if options.per_channel:
            quantizer.quantize_weight_tensor_per_channel(layer.weights, layer.axis)
        else:
            quantizer.quantize_weight_tensor(layer.weights)
        if layer.bias:
            quantizer.quantize_bias_tensor(layer.node, layer.bias, layer.source, layer.weights)
    quantizer.quantize_model()


@contextmanager
def _initializers_by_name(model: ONNXModel) -> Iterator[None]:
    """While a quantiser works on a model, which adds initializers and takes some away: it goes through all of them for
    each of them otherwise, as it still does in a version of onnxruntime that has no such search. What other models are
    searched by meanwhile finds the same.
    """
    listed = model.graph().initializer
    tensors: dict[str, TensorProto] = {}
    noted = 0

    def get(name: str) -> TensorProto | None:
        nonlocal noted
        for tensor in listed[noted:]:
            tensors.setdefault(tensor.name, tensor)
        noted = len(listed)
        return tensors.get(name)

    def add(tensor: TensorProto) -> None:
        if get(tensor.name) is None:
            listed.append(tensor)

    def find(name: str, among: Iterable[Any]) -> Any:
        return get(name) if among is listed else next((each for each in among if each.name == name), None)

    model.initializer, model.initializer_extend = lambda: listed, listed.extend
    model.get_initializer, model.add_initializer = get, add
    model.remove_initializer = lambda tensor: tensors.pop(tensor.name, None)
    modules = [vars(sys.modules[kind.__module__]) for kind in QDQQuantizer.__mro__]
    with _REPLACING:
        kept = [(names, names[_FINDER]) for names in modules if _FINDER in names]
        for names, _ in kept:
            names[_FINDER] = find
        try:
            yield
        finally:
            for names, finder in kept:
                names[_FINDER] = finder
    get("")
    left = [tensor for tensor in listed if tensor.name in tensors]
    del listed[:]
    listed.extend(left)


class _Readers:
    """Which nodes read a value, for a model that onnxruntime's quantiser changes: it goes through all nodes for each
    value, which takes longer the more there are of both.
    """

    def __init__(self, model: ONNXModel) -> None:
        self._model, self._add_node = model, model.add_node
        #: All that read a value, perhaps with some that did.
        self._nodes: dict[str, list[NodeProto]] = defaultdict(list)
        self._note(model.graph().node)

    def install(self) -> None:
        for method in (self.add_node, self.replace_input_of_all_nodes, self.replace_input_of_nodes):
            setattr(self._model, method.__name__, method)

    def add_node(self, node: NodeProto) -> None:
        """Of the model, which calls it for each of several, too."""
        self._add_node(node)
        self._note(self._model.graph().node[-1:])       # a copy

    def replace_input_of_all_nodes(self, old: str, new: str) -> None:
        self._replace(self._nodes.pop(old, []), old, new)

    def replace_input_of_nodes(self, old: str, new: str, names: Collection[str]) -> None:
        self._replace([node for node in self._nodes[old] if node.name in names], old, new)

    def _replace(self, nodes: list[NodeProto], old: str, new: str) -> None:
        for node in nodes:
            ONNXModel.replace_node_input(node, old, new)
        self._nodes[new] += nodes

    def _note(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes:
            for name in node.input:
                self._nodes[name].append(node)


def _give_zero_a_sign(model: onnx.ModelProto) -> None:
    """Sign(x) -> Sign(Sign(x) + 0.5), of all activations: +1 at zero, as the machine and binarised networks have it,
    also in onnxruntime. An int8 tensor has zeros, unlike the float values that it stands for.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    taken = {name for node in graph.node for name in (node.name, *node.input, *node.output)} | constants
    shapes = {value.name: value for value in (*graph.value_info, *graph.output)}
    nodes, half = [], ""

    def new(name: str) -> str:
        found = unique(name, taken)
        taken.add(found)
        return found

    for node in graph.node:
        if node.op_type != "Sign" or node.input[0] in constants:
            nodes.append(node)
            continue
        if not half:
            half = new("half")
            graph.initializer.append(numpy_helper.from_array(np.asarray(0.5, np.float32), half))
        result = node.output[0]
        three, moved = new(f"{result}/three"), new(f"{result}/moved")
        nodes += [helper.make_node("Sign", [node.input[0]], [three], name=node.name),
                  helper.make_node("Add", [three, half], [moved], name=new(f"{node.name}/moved")),
                  helper.make_node("Sign", [moved], [result], name=new(f"{node.name}/two"))]
        for name in (three, moved) if result in shapes else ():
            graph.value_info.append(shapes[result])
            graph.value_info[-1].name = name
    del graph.node[:]
    graph.node.extend(nodes)


def _without_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Takes outputs from a model that are its inputs: the quantiser would make such a value after it is read. Returns
    all that there were.
    """
    outputs = list(model.graph.output)
    inputs = {value.name for value in model.graph.input}
    del model.graph.output[:]
    model.graph.output.extend(value for value in outputs if value.name not in inputs)
    return outputs


def _overrides(model: onnx.ModelProto, plan: Plan, largest: Mapping[str, np.ndarray], options: QuantizeOptions
               ) -> dict[str, list[dict[str, object]]]:
    """Ranges of weights, where they are not those of their values: as of `fit_weights`; of maps, as of `_even_step`."""
    axes = {layer.weights: layer.axis for layer in plan.layers}
    found: dict[str, list[dict[str, object]]] = {}
    for name, channels in largest.items():
        found[name] = [{"rmin": -end, "rmax": end} for end in channels]
        if options.per_channel:
            found[name][0]["axis"] = axes[name]
    maps = (tensor for tensor in model.graph.initializer if tensor.name in plan.maps)
    steps = {tensor.name: _even_step(numpy_helper.to_array(tensor)) for tensor in maps}
    return found | {name: [{"rmin": np.float32(-_LARGEST * step), "rmax": np.float32(_LARGEST * step)}]
                    for name, step in steps.items() if step}


def _even_step(numbers: np.ndarray) -> float:
    """The least step that all of ``numbers`` are multiples of, `_LARGEST` times at most; 0 if there is none."""
    if not numbers.any():
        return 0.0
    steps = np.abs(numbers).max() / np.arange(_LARGEST, 0.0, -1)
    times = np.unique(numbers) / steps[:, None]
    even = np.isclose(times, np.rint(times), rtol=0, atol=1e-5).all(axis=1)
    return float(steps[even.argmax()]) if even.any() else 0.0
