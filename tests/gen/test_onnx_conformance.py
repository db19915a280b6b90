"""The conformance cases that ship with onnx (`tests/conformance.py`): each passes or is refused, none is wrong."""

import re

import onnx
import pytest

from gen.onnx.handlers.refused import REFUSED
from tests.cases_in_networks import IN_NETWORKS
from tests.conformance import CLAIMED, cases, network_verdicts, verdicts

#: Operator -> cases that must pass at least, each in the forms that it is tried in. `python -m tests.conformance` says
#: why the others are refused.
PASSED = {
    "Abs": 1, "Add": 1, "AveragePool": 8, "BatchNormalization": 2, "Celu": 1, "Clip": 9, "Concat": 6, "Conv": 6,
    "ConvTranspose": 10, "DepthToSpace": 2, "DequantizeLinear": 1, "Div": 1, "Dropout": 3, "Elu": 3, "Erf": 1, "Exp": 2,
    "Flatten": 3, "Gather": 2, "Gelu": 4, "Gemm": 8, "GlobalAveragePool": 2, "GlobalMaxPool": 2, "HardSigmoid": 3,
    "HardSwish": 1, "Identity": 2, "LayerNormalization": 7, "LeakyRelu": 3, "Log": 2, "MatMul": 3, "MaxPool": 12,
    "Mish": 1, "Mul": 4, "Neg": 2, "Pad": 3, "Pow": 1, "QLinearConv": 1, "QLinearMatMul": 4, "QuantizeLinear": 1,
    "RMSNormalization": 7, "Reciprocal": 2, "ReduceMean": 6, "Relu": 1, "Reshape": 6, "Selu": 3, "Sigmoid": 2,
    "Sign": 1, "Slice": 5, "Softmax": 6, "Softplus": 2, "Softsign": 2, "SpaceToDepth": 2, "Split": 5, "Sqrt": 2,
    "Squeeze": 1, "Sub": 2, "Swish": 1, "Tanh": 2, "ThresholdedRelu": 3, "Transpose": 2, "Unsqueeze": 6,
}

#: The same, as parts of float networks.
PASSED_IN_NETWORKS = {"Attention": 47, "GroupNormalization": 2, "InstanceNormalization": 2, "LayerNormalization": 7,
                      "MatMul": 3, "RMSNormalization": 7, "Softmax": 6}

#: How a message begins that says where it is.
_PLACE = re.compile(
    r"(node \S+ \(\w+\)|input \S+|output \S+|inputs have|opset \d+|not a valid ONNX model|no output needs)")
#: onnxruntime has less than ONNX.
_RUNTIME = re.compile(r"onnxruntime does not (take|run) the model")


@pytest.mark.slow
@pytest.mark.parametrize("operator", CLAIMED)
def test_claimed(operator: str) -> None:
    found = list(verdicts(operator, every=4))
    refused = {verdict.case: verdict.refused for verdict in found if verdict.refused}
    assert all(_PLACE.match(message) for message in refused.values()), refused
    assert len(found) - len(refused) >= PASSED.get(operator, 0), refused


@pytest.mark.slow
@pytest.mark.parametrize("most", [7, pytest.param(None, marks=pytest.mark.full)])
@pytest.mark.parametrize("operator", IN_NETWORKS)
def test_in_networks(operator: str, most: int | None) -> None:
    found = list(network_verdicts(operator, most))
    refused = {verdict.case: verdict.refused for verdict in found if verdict.refused}
    assert all(_PLACE.match(message) or _RUNTIME.match(message) for message in refused.values()), refused
    assert len(found) - len(refused) >= (1 if most else PASSED_IN_NETWORKS[operator]), refused


@pytest.mark.full
@pytest.mark.parametrize("operator", sorted(REFUSED))
def test_refused(operator: str) -> None:
    """As such, or for what its inputs are."""
    for verdict in verdicts(operator):
        assert verdict.refused, verdict
        assert REFUSED[operator] in verdict.refused or _PLACE.match(verdict.refused), verdict


@pytest.mark.slow
def test_operators_without_cases() -> None:
    """A Cast of bytes is none that ONNX has a case for."""
    assert [operator for operator in CLAIMED if onnx.defs.has(operator) and operator not in cases()] == ["Cast"]
