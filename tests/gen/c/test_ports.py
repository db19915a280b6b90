"""What the processor does at the ends of programs: C gives what the driver in Python does, of every kind of step."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gen.c import generate
from gen.deploy import c_ports
from gen.deploy.c_ports import input_model, output_model
from npudriver import steps
from npudriver.program import Port, Step
from tests.gen.c.compiled import Library

_QUANTISATION = {"scale": 0.037, "zero_point": 3, "unsigned": False}

#: Dtype and shape of an input, and the steps from it to int8.
INPUTS: dict[str, tuple[str, list[int], list[Step]]] = {
    "quantize": ("float32", [3, 4, 5], [Step("quantize", _QUANTISATION)]),
    "unsigned": ("float32", [3, 4, 5], [Step("quantize", {"scale": 0.01, "zero_point": 128, "unsigned": True}),
                                        Step("retype", {"unsigned": False})]),
    "retype": ("uint8", [60], [Step("retype", {"unsigned": False})]),
    "transpose": ("int8", [4, 5, 3], [Step("transpose", {"axes": (0, 3, 1, 2)})]),
    "reshape": ("int8", [20, 3], [Step("transpose", {"axes": (0, 2, 1)}), Step("reshape", {"shape": (-1, 3, 4, 5)})]),
    "gather": ("int8", [60], [Step("gather", {"index": np.arange(60)[::-1].reshape(3, 4, 5)})]),
}
#: Dtype and shape of an output, and the steps from int8 (6, 4, 5) to it.
OUTPUTS: dict[str, tuple[str, list[int], list[Step]]] = {
    "dequantize": ("float32", [6, 4, 5], [Step("dequantize", _QUANTISATION)]),
    "softmax": ("float32", [120], [Step("dequantize", _QUANTISATION), Step("reshape", {"shape": (-1, 120)}),
                                   Step("softmax", {"axis": -1})]),
    "retype": ("uint8", [6, 4, 5], [Step("retype", {"unsigned": True})]),
    "gather": ("int8", [7], [Step("gather", {"index": np.array([5, 119, 0, 7, 7, 3, 60])})]),
    "join": ("float32", [2, 4, 5], [Step("join", {
        "parts": 3, "constant": -1000, "scale": np.array([0.5, 0.007], np.float32),
        "bias": np.array([-3, 1e3], np.float32)})]),
}


def _port(dtype: str, shape: list[int], chain: list[Step], map_shape: list[int]) -> Port:
    return Port("p", dtype, shape, "t", map_shape, 0, False, False, chain)


def _applied(chain: list[Step], x: np.ndarray) -> np.ndarray:
    for step in chain:
        x = steps.apply(step.kind, step.parameters, x)
    return x


def _made(model: onnx.ModelProto | None, x: np.ndarray, folder: Path) -> np.ndarray:
    assert model is not None
    (found,) = Library([generate(model, "port")], folder)("port", {"in": x})
    return found


def _samples(dtype: str, shape: list[int], rng: np.random.Generator) -> np.ndarray:
    if dtype == "float32":
        values = rng.normal(0, 3, (1, *shape)).astype(np.float32)
        values.flat[:4] = 0.037 * 1.5, 0.037 * -2.5, 1e30, -np.inf     # halves, and what is beyond
        return values
    return rng.integers(*((0, 256) if dtype == "uint8" else (-128, 128)), (1, *shape)).astype(dtype)


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    dtype, shape, chain = INPUTS[name]
    x = _samples(dtype, shape, rng)
    found = _made(input_model(_port(dtype, shape, chain, [3, 4, 5])), x, tmp_path)
    assert found.dtype == np.int8 and np.array_equal(found, _applied(chain, x).reshape(3, 4, 5))


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    dtype, shape, chain = OUTPUTS[name]
    x = _samples("int8", [6, 4, 5], rng)
    found, wanted = _made(output_model(_port(dtype, shape, chain, [6, 4, 5])), x, tmp_path), _applied(chain, x)
    assert found.dtype == dtype and found.shape == wanted.shape == (1, *shape)
    if name == "softmax":       # sums in another order
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    else:
        assert np.array_equal(found, wanted)


def test_all_kinds_of_steps() -> None:
    used: set[Any] = {step.kind for _, _, chain in (*INPUTS.values(), *OUTPUTS.values()) for step in chain}
    assert used == c_ports.KINDS.keys() == steps.KINDS.keys()


def test_bytes_that_stay_need_no_function() -> None:
    port = _port("int8", [3, 4, 5], [], [3, 4, 5])
    assert input_model(port) is output_model(port) is None
