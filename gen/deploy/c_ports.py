"""What the processor does at the ends of a program, as ONNX models that C code is made of."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npudriver.program import Port, Step

__all__ = ["KINDS", "input_model", "output_model"]

_OPSET = 18
_INT8, _UINT8 = TensorProto.INT8, TensorProto.UINT8


class _Chain:
    """Nodes of which each reads what the one before it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.value = "in"

    def add(self, op: str, *constants: np.ndarray, **attributes: Any) -> None:
        names = []
        for array in constants:
            names.append(f"c{len(self.constants)}")
            self.constants.append(numpy_helper.from_array(array, names[-1]))
        made = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.value, *names], [made], name=made, **attributes))
        self.value = made

    def model(self, dtype: int, shape: list[int], result: int, result_shape: list[int]) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [self.value], ["out"], name="out"))
        graph = helper.make_graph(
            self.nodes, "port", [helper.make_tensor_value_info("in", dtype, shape)],
            [helper.make_tensor_value_info("out", result, result_shape)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def _scale_and_zero(p: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return (np.array(p["scale"], np.float32),
            np.array(p["zero_point"], np.uint8 if p["unsigned"] else np.int8))


def _quantize(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("QuantizeLinear", *_scale_and_zero(p))


def _dequantize(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("DequantizeLinear", *_scale_and_zero(p))


def _softmax(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("Softmax", axis=p["axis"])


def _reshape(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("Reshape", np.array([1, *p["shape"][1:]], np.int64))


def _transpose(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("Transpose", perm=list(p["axes"]))


def _gather(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("Reshape", np.array([1, -1], np.int64))
    chain.add("Gather", np.asarray(p["index"], np.int64), axis=1)


def _retype(chain: _Chain, p: Mapping[str, Any]) -> None:
    chain.add("Cast", to=TensorProto.INT32)
    chain.add("Add", np.array(128 if p["unsigned"] else -128, np.int32))
    chain.add("Cast", to=_UINT8 if p["unsigned"] else _INT8)


def _join(chain: _Chain, p: Mapping[str, Any]) -> None:
    channels = len(p["scale"])
    chain.add("Cast", to=TensorProto.INT32)
    chain.add("Reshape", np.array([p["parts"], channels, -1], np.int64))
    chain.add("ReduceSum", np.array([0], np.int64), keepdims=1)
    chain.add("Add", np.array(p["constant"], np.int32))
    chain.add("Cast", to=TensorProto.FLOAT)
    chain.add("Mul", np.asarray(p["scale"], np.float32).reshape(1, -1, 1))
    chain.add("Add", np.asarray(p["bias"], np.float32).reshape(1, -1, 1))


#: As `npudriver.steps.KINDS`, of one sample.
KINDS: Mapping[str, Callable[[_Chain, Mapping[str, Any]], None]] = {
    "quantize": _quantize, "dequantize": _dequantize, "softmax": _softmax, "reshape": _reshape,
    "transpose": _transpose, "gather": _gather, "retype": _retype, "join": _join,
}


def _steps(chain: _Chain, steps: tuple[Step, ...]) -> None:
    for step in steps:
        KINDS[step.kind](chain, step.parameters)


def input_model(port: Port) -> onnx.ModelProto | None:
    """From one sample of an input to its feature map, int8 (C, H, W); None where they are the same bytes."""
    if not port.steps and port.dtype == "int8":
        return None
    chain = _Chain()
    _steps(chain, tuple(port.steps))
    chain.add("Reshape", np.array(port.map_shape, np.int64))
    return chain.model(_element(port), [1, *port.shape], _INT8, list(port.map_shape))


def output_model(port: Port) -> onnx.ModelProto | None:
    """From the feature map of an output, int8 (C, H, W), to one sample of it; None where they are the same bytes."""
    if not port.steps and port.dtype == "int8":
        return None
    chain = _Chain()
    _steps(chain, tuple(port.steps))
    chain.add("Reshape", np.array([1, *port.shape], np.int64))
    return chain.model(_INT8, [1, *port.map_shape], _element(port), [1, *port.shape])


def _element(port: Port) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
