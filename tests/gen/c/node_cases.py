"""onnx's own cases of operators, as models for which C can be generated."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from gen.c import CFunction, generate
from gen.c.registry import OPERATORS
from gen.ir.errors import GraphError
from gen.onnx.read import MAX_OPSET

__all__ = ["Case", "cases"]


@dataclass(frozen=True, eq=False)
class Case:
    """``function`` is None, and ``reason`` says why, where no C is generated."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    function: CFunction | None
    reason: str


@cache
def _collected() -> Sequence[Any]:
    """onnx collects them once in a process; it computes what they expect, also beyond the range of a type."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def cases() -> Iterator[Case]:
    """All whose operators have kernels, and whose values are arrays."""
    for found in _collected():
        model = found.model
        if model is None or not found.data_sets or not {
                (node.domain, node.op_type) for node in model.graph.node} <= OPERATORS.keys() | {("", "Constant")}:
            continue
        inputs, outputs = found.data_sets[0]
        if not all(isinstance(value, np.ndarray) for value in (*inputs, *outputs)):
            continue
        named = dict(zip((value.name for value in model.graph.input), inputs, strict=False))
        yield _case(found.name, model, named, list(outputs))


def _case(name: str, model: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]) -> Case:
    """All inputs are inputs, or, where C wants constants, all but the first are."""
    reason = ""
    for kept in (inputs, dict(list(inputs.items())[:1])):
        fixed = _fixed(model, inputs, kept)
        try:
            return Case(name, fixed, kept, outputs, generate(fixed, name.replace("-", "_")), "")
        except GraphError as error:
            reason = str(error)
    return Case(name, fixed, kept, outputs, None, reason)


def _fixed(model: onnx.ModelProto, inputs: dict[str, np.ndarray], kept: dict[str, np.ndarray]) -> onnx.ModelProto:
    own = onnx.ModelProto()
    own.CopyFrom(model)
    del own.graph.input[:]
    for name, array in inputs.items():
        if name in kept:
            own.graph.input.append(helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
        else:
            own.graph.initializer.append(numpy_helper.from_array(array, name))
    for node in own.graph.node:
        node.name = node.name or node.op_type
    for opset in own.opset_import:
        opset.version = min(opset.version, MAX_OPSET)   # of which no operator here has become another
    own.ir_version = max(own.ir_version, 4)
    return own
