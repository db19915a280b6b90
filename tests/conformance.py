"""The conformance cases that ship with onnx, each as a quantised model: near the case's own output, or refused.

    python -m tests.conformance [OPERATOR ...]

prints for each operator that has a handler how many cases pass and how many are refused, and why.

A case becomes a model with its shapes fixed: activations are int8 inputs, weights int8 constants with one scale, biases
int32, all other constants what they are; the result is quantised to int8, with ranges from the case's own data. Where
an operator runs beside the accelerator, a copy is in front of it, and its result stays as it is. Attention, row
operations and products of activations are also tried as parts of float networks (`tests.cases_in_networks`). What
passes also runs as a program, on a machine with all that the importer has use for.
"""

import functools
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.fused import SPREADS
from gen.onnx.handlers import HANDLERS
from gen.onnx.handlers.function import HANDLERS as FUNCTIONS
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.onnx.read import MAX_OPSET
from gen.onnx.registry import Place
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.quantize import quantize
from tests.cases_in_networks import IN_NETWORKS, Network, network_of
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order

__all__ = ["BOUND", "CLAIMED", "EXACT", "Verdict", "cases", "network_verdicts", "verdicts"]

#: Steps of the result (of which there are 241 from the least to the largest number) between ours and the case's output,
#: whose inputs are not rounded to steps.
BOUND = 2
#: The same where values are only picked or moved.
EXACT = 1

#: What programs run on.
_CONFIG = NpuConfig.preset(16, gather=1, product=1, table=1, turn=1, rows=16, input_depth=512)

#: Units that the importer has use for, but for the table, which many operators are where it is there.
_UNITS = Machine.of(_CONFIG).features - {"table"}

#: Operators of ONNX with handlers, but for those that stand for several, which are never between quantised values.
CLAIMED = sorted(operator for domain, operator in HANDLERS if not domain and (domain, operator) not in SPREADS)
#: Of these, functions that a table is; a step of the input may be many of the result.
_FUNCTIONS = {operator for _, operator in FUNCTIONS}
_MOVING = {"Concat", "DepthToSpace", "Dropout", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "Pad",
           "Relu", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"}
#: Operators whose further inputs are weights and a bias.
_WEIGHTED = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
#: Operators of two operands, either of which may be a constant.
_BINARY = {"Add", "Sub", "Mul", "Div"}
_COMPARING = {"Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
#: Operators that take every element by itself: a vector may be one sample.
_ELEMENTWISE = {*_BINARY, *_COMPARING, "Clip", "Identity", "LeakyRelu", "Neg", "Relu", "Sign", "Dropout",
                *_FUNCTIONS}
#: Cases whose inputs differ by less than a step of 8 bits, so that nothing can be near their output.
_TOO_FINE = {"test_softmax_large_number", "test_attention_4d_softcap_neginf_mask_poison"}
#: How many results are looked at of operators that also give statistics.
_RESULTS = {"LayerNormalization": 1}
#: The oldest that a model gets.
_OPSET = 13
#: Operators that need a layer in front of them, as they are none.
_BESIDE = {operator for claim in HANDLERS.claims if claim.place != Place.MACHINE for operator in claim.operators
           } - {"DequantizeLinear"}


@dataclass(frozen=True)
class Verdict:
    """Of one case; ``refused``: the message, "" for one that passes. ``off``: steps from the case's output."""

    case: str
    refused: str = ""
    off: float = 0.0


@dataclass(frozen=True)
class _Model:
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    #: Output -> the case's own, and its step and zero point.
    expected: dict[str, tuple[np.ndarray, np.float32, int]]
    #: Whether a table may be what it takes.
    function: bool


@functools.cache
def cases() -> dict[str, list[TestCase]]:
    """Cases of one node on tensors, by operator."""
    found: dict[str, list[TestCase]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if (case.model is not None and len(case.model.graph.node) == 1 and case.data_sets
                    and all(isinstance(a, np.ndarray | np.generic) for part in case.data_sets[0] for a in part)):
                found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def _scale(values: np.ndarray) -> np.float32:
    return np.float32(max(float(np.abs(values[np.isfinite(values)]).max(initial=0)), 1e-3) / 120)


class _Wrapper:
    """Puts quantisation around a node."""

    def __init__(self, node: onnx.NodeProto, scale: np.float32) -> None:
        """``scale``: of activations."""
        self.node, self.scale = node, scale
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.expected: dict[str, tuple[np.ndarray, np.float32, int]] = {}

    def constant(self, array: np.ndarray, name: str) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _parameters(self, name: str, scale: np.float32, point: np.generic) -> list[str]:
        return [self.constant(scale, f"{name}/scale"), self.constant(np.asarray(point), f"{name}/point")]

    def _real(self, name: str, integers: str, scale: np.float32, point: np.generic) -> str:
        parameters = self._parameters(name, scale, point)
        self.nodes.append(helper.make_node("DequantizeLinear", [integers, *parameters], [f"{name}/real"]))
        return f"{name}/real"

    def activation(self, array: np.ndarray, name: str) -> str:
        scale, point = self.scale, np.int8(5)
        integers = np.clip(np.rint(np.nan_to_num(array / scale)) + point, -128, 127).astype(np.int8)
        self.inputs.append(helper.make_tensor_value_info(f"{name}/int8", TensorProto.INT8, array.shape))
        self.feeds[f"{name}/int8"] = integers
        real = self._real(name, f"{name}/int8", scale, point)
        return self.copy(real, name) if self.node.op_type in _BESIDE else real

    def copy(self, real: str, name: str) -> str:
        """``real`` in steps that are a little smaller."""
        scale, point = np.float32(0.97 * self.scale), np.int8(2)
        parameters = self._parameters(f"{name}/copy", scale, point)
        self.nodes.append(helper.make_node("QuantizeLinear", [real, *parameters], [f"{name}/copy/int8"]))
        return self._real(f"{name}/again", f"{name}/copy/int8", scale, point)

    def weights(self, array: np.ndarray, name: str) -> str:
        scale = _scale(array)
        integers = self.constant(np.rint(array / scale).astype(np.int8), f"{name}/int8")
        return self._real(name, integers, scale, np.int8(0))

    def bias(self, array: np.ndarray, name: str) -> str:
        scale = np.float32(1e-4)
        return self._real(name, self.constant(np.rint(array / scale).astype(np.int32), f"{name}/int32"), scale,
                          np.int32(0))

    def result(self, name: str, target: np.ndarray) -> None:
        """The case's output ``name``, quantised; of numbers that are no floats the sign, or as it is."""
        real = name
        if target.dtype == bool:
            ends = [self.constant(np.float32(end), f"{name}/{end}") for end in (1, -1)]
            self.nodes.append(helper.make_node("Where", [name, *ends], [f"{name}/sign"]))
            real, target = f"{name}/sign", np.where(target, 1, -1).astype(np.float32)
        if target.dtype != np.float32 or self.node.op_type in _BESIDE:
            number = helper.np_dtype_to_tensor_dtype(target.dtype)
            self.outputs.append(helper.make_tensor_value_info(real, number, target.shape))
            # Steps of the input, if that is coarser.
            step = max(_scale(target), self.scale) if target.dtype == np.float32 else np.float32(1)
            self.expected[real] = target, step, 0
            return
        scale, point = _scale(target), np.int8(-3)
        parameters = self._parameters(f"{name}/out", scale, point)
        self.nodes.append(helper.make_node("QuantizeLinear", [real, *parameters], [f"{name}/int8"]))
        self.outputs.append(helper.make_tensor_value_info(f"{name}/int8", TensorProto.INT8, target.shape))
        self.expected[f"{name}/int8"] = target, scale, int(point)


def _input(wrapper: _Wrapper, position: int, array: np.ndarray, name: str, activations: Sequence[int]) -> str:
    op = wrapper.node.op_type
    if position in activations and array.dtype == np.float32:
        return wrapper.activation(array, name)
    if position in activations:
        number = helper.np_dtype_to_tensor_dtype(array.dtype)
        wrapper.inputs.append(helper.make_tensor_value_info(name, number, array.shape))
        wrapper.feeds[name] = array
        return name
    if op in _WEIGHTED and array.dtype == np.float32 and array.size:
        return wrapper.bias(array, name) if position == 2 else wrapper.weights(array, name)
    return wrapper.constant(array, name)


def _wrapped(case: TestCase, activations: Sequence[int]) -> _Model:
    """``activations``: inputs that are; the others are constants."""
    assert case.model is not None and case.data_sets is not None
    (node,), (arrays, expected) = case.model.graph.node, case.data_sets[0]
    given = dict(zip((n.name for n in case.model.graph.input), map(np.asarray, arrays), strict=True))
    active = [given[node.input[position]] for position in activations if node.input[position] in given]
    # One sample of it; of a quantiser, whose axes count, only if it is a vector.
    most = 4 if node.op_type in _ELEMENTWISE else 2 if node.op_type.lower().endswith("quantizelinear") else 0
    alone = len({array.shape for array in active}) == 1 and active[0].ndim < most
    scale = max(map(_scale, active), default=np.float32(1))
    if node.op_type == "Pad" and len(node.input) > 2 and (number := abs(float(given.get(node.input[2], 0)))):
        scale = np.float32(number / np.ceil(number / scale))      # a number that the tensor has
    wrapper, inner = _Wrapper(node, scale), onnx.NodeProto()
    names = []
    for position, name in enumerate(node.input):
        array = given.get(name)
        if array is not None and alone and position in activations:
            array = array.reshape(1, *(array.shape or (1,)))
        names.append("" if array is None else _input(wrapper, position, array, name, activations))
    inner.CopyFrom(node)
    inner.name = case.name
    inner.ClearField("input")
    inner.input.extend(names)
    wrapper.nodes.append(inner)
    for value, target in list(zip(case.model.graph.output, expected, strict=True))[:_RESULTS.get(node.op_type)]:
        target = np.asarray(target)
        if node.op_type == "Sign":
            target = np.where(target == 0, np.float32(1), target)       # docs/binary.md
        wrapper.result(value.name, target.reshape(1, *(target.shape or (1,))) if alone else target)
    graph = helper.make_graph(wrapper.nodes, case.name, wrapper.inputs, wrapper.outputs, wrapper.initializers)
    newest = max(opset.version for opset in case.model.opset_import if not opset.domain)
    since = onnx.defs.get_schema(node.op_type, min(newest, MAX_OPSET)).since_version
    opset = helper.make_opsetid("", max(_OPSET, since))
    return _Model(helper.make_model(graph, opset_imports=[opset], ir_version=10), wrapper.feeds, wrapper.expected,
                  node.op_type in _FUNCTIONS)


def _forms(case: TestCase) -> Iterator[Sequence[int]]:
    """The inputs that are activations, in each of the forms that a case is tried in."""
    assert case.model is not None
    (node,) = case.model.graph.node
    count = len(node.input)
    if node.op_type == "Concat":
        yield range(count)
    elif node.op_type in _BINARY:
        yield from ((0, 1), (0,), (1,))
    elif node.op_type in _COMPARING:
        yield from ((0,), (1,))
    elif node.op_type == "MatMul":
        yield from ((0,), (1,), (0, 1))
    else:
        yield (0,)


def verdicts(operator: str, every: int = 1) -> Iterator[Verdict]:
    """Of every case of an operator, in each of its forms; each ``every``-th that passes runs as a program.

    Raises AssertionError for one that is wrong, and whatever else the importer lets through.
    """
    bound = np.inf if operator in _FUNCTIONS else EXACT if operator in _MOVING else BOUND
    passed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases().get(operator, ()):
            for activations in _forms(case):
                label = f"{case.name.removeprefix('test_')}, inputs {', '.join(map(str, activations))}"
                verdict, imported = _verdict(_wrapped(case, activations), label, Path(folder) / f"{case.name}.onnx",
                                             bound)
                passed += imported is not None
                if imported is not None and passed % every == 0:
                    _run(imported, passed)
                yield verdict


def network_verdicts(operator: str, most: int | None = None) -> Iterator[Verdict]:
    """Of an operator's cases, ``most`` of them, as parts of float networks; raises as `verdicts`."""
    known = cases()[operator]
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(known[::-(-len(known) // (most or len(known)))]):
            label = f"{case.name.removeprefix('test_')}, in a network"
            try:
                network = network_of(case)
            except ValueError as error:
                yield Verdict(label, f"node {case.name} ({operator}): {error}")
                continue
            verdict, imported = _network_verdict(network, label, Path(folder) / f"{case.name}.onnx")
            if imported is not None:
                _run(imported, number)
            yield verdict


def _run(imported: Imported, seed: int) -> None:
    """Its program, with noise in all padding, in every order that the machine's queues may take."""
    if imported.graph.layers:
        check_in_every_order(*compile_kept(imported.graph, _CONFIG), seed)


def _network_verdict(network: Network, label: str, path: Path) -> tuple[Verdict, Imported | None]:
    try:
        onnx.save(quantize(network.model, network.feeds, QuantizeOptions(method="mse")).model, path)
        imported = load_model(path, machine=Machine.of(_CONFIG))
    except (GraphError, QuantizeError) as error:
        message = str(error).removeprefix(f"{path}: ")
        assert "\n" not in message, (label, message)
        return Verdict(label, message), None
    (ours,) = zip(*(reference.run(imported.graph, {name: array[n:n + 1] for name, array in network.feeds.items()}
                                  )[0].values() for n in range(len(network.expected))), strict=True)
    off = float((np.abs(np.concatenate(ours) - network.expected) / _scale(network.expected)).max(initial=0))
    assert off <= BOUND or path.stem in _TOO_FINE, (label, off)
    largest = compare_model(imported, network.feeds).largest
    assert largest <= 1, (label, largest)
    return Verdict(label, off=off), imported


def _verdict(form: _Model, label: str, path: Path, bound: float) -> tuple[Verdict, Imported | None]:
    onnx.save(form.model, path)
    try:
        imported = load_model(path, machine=Machine.having(*_UNITS, *(["table"] if form.function else [])))
    except GraphError as error:
        message = str(error)
        assert message.startswith(f"{path}: ") and "\n" not in message, (label, message)
        return Verdict(label, message.removeprefix(f"{path}: ")), None
    if len({len(array) for array in form.feeds.values()}) > 1:
        return Verdict(label, "inputs have different numbers of samples"), None
    outputs, _ = reference.run(imported.graph, form.feeds)
    off = 0.0
    for name, (target, scale, point) in form.expected.items():
        ours = outputs[name]
        assert ours.shape == target.shape, (label, ours.shape, target.shape)
        if name.endswith("/int8"):
            target = np.clip(np.rint(target / np.float64(scale)) + point, -128, 127) * np.float64(scale)
            ours = ours * np.float64(scale)
        steps = np.abs(ours - target.astype(np.float64)) / scale
        off = max(off, float(steps.max(initial=0)))
    assert off <= bound or path.stem in _TOO_FINE, (label, off)
    try:
        largest = compare_model(imported, form.feeds).largest
    except GraphError as error:     # onnxruntime does not have all that onnx has
        assert error.code == "onnxruntime", (label, error)
        largest = 0
    assert largest <= (0 if form.function else 1), (label, largest)
    return Verdict(label, off=off), imported


def _print(operators: Sequence[str]) -> None:
    total: Counter[str] = Counter()
    for operator in operators:
        found = [*(verdicts(operator) if operator in CLAIMED else ()),
                 *(network_verdicts(operator) if operator in IN_NETWORKS else ())]
        refused = [verdict for verdict in found if verdict.refused]
        passed = len(found) - len(refused)
        total += Counter(passed=passed, refused=len(refused))
        worst = max((verdict.off for verdict in found), default=0)
        print(f"{operator}: {passed} passed, at most {worst:g} steps off; {len(refused)} refused", flush=True)
        for verdict in refused:
            print(f"    {verdict.case}: {verdict.refused}")
    print(f"all: {total['passed']} passed, {total['refused']} refused")


if __name__ == "__main__":
    _print(sys.argv[1:] or sorted({*CLAIMED, *IN_NETWORKS}))
