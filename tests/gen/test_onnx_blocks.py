"""Weights with scales of blocks, of four bits and of eight: as onnxruntime has them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.cli import main
from gen.onnx.blocks import merged
from gen.onnx.fused import QUANTISED_SPREADS, SPREADS, Spreads
from gen.onnx.importer import import_model
from gen.onnx.passes import spread_fused
from gen.onnx.read import open_model

_CHANNELS, _INPUTS = 64, 128


def model(path: Path, rng: np.random.Generator, kind: int, *, block: int = 0, point: int | None = None,
          equal: bool = False, transposed: bool = False) -> onnx.ModelProto:
    """A fully connected layer of weights of ``kind``, with ``block`` weights to a scale, or one scale a channel."""
    low, high = (-8, 8) if kind == TensorProto.INT4 else (0, 16) if kind == TensorProto.UINT4 else (-128, 128)
    shape = (_INPUTS, _CHANNELS) if transposed else (_CHANNELS, _INPUTS)
    axis = 0 if transposed else 1
    weights = helper.make_tensor("w", kind, shape, rng.integers(low, high, shape).ravel().tolist())
    blocks = [_CHANNELS]
    if block:
        blocks = [-(-size // block) if place == axis else size for place, size in enumerate(shape)]
    scales = rng.uniform(0.005, 0.02, blocks).astype(np.float32)
    if equal:
        scales[:] = scales.max(axis=axis, keepdims=True)
    constants = [weights, *(numpy_helper.from_array(np.asarray(value), name) for name, value in (
        ("ws", scales), ("xs", np.float32(0.02)), ("xz", np.int8(0)), ("ys", np.float32(0.1)), ("yz", np.int8(3)),
        ("b", rng.normal(size=_CHANNELS).astype(np.float32))))]
    names = ["w", "ws"]
    if point is not None:
        constants.append(helper.make_tensor("wz", kind, blocks, [point] * int(np.prod(blocks))))
        names.append("wz")
    attributes = dict(axis=axis, block_size=block) if block else dict(axis=1 - axis)
    nodes = [helper.make_node(op, inputs, [output], name=output, **more) for op, inputs, output, more in (
        ("QuantizeLinear", ["x", "xs", "xz"], "xq", {}), ("DequantizeLinear", ["xq", "xs", "xz"], "xd", {}),
        ("DequantizeLinear", names, "wd", attributes),
        ("Gemm", ["xd", "wd", "b"], "sums", dict(transB=int(not transposed))),
        ("QuantizeLinear", ["sums", "ys", "yz"], "yq", {}), ("DequantizeLinear", ["yq", "ys", "yz"], "y", {}))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
              for name, size in (("x", _INPUTS), ("y", _CHANNELS))]
    made = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], constants),
                             opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(made, path)
    return made


def compare(path: Path, capsys: pytest.CaptureFixture, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """The program's output less onnxruntime's, in steps of the output, and what was said."""
    x = rng.normal(size=(1, _INPUTS)).astype(np.float32)
    np.savez(path.with_suffix(".npz"), x=x)
    capsys.readouterr()
    assert main(["run", str(path), "--macs", "256", "--features", "int4", "--input", str(path.with_suffix(".npz")),
                 "--output", str(path.with_suffix(".out.npz"))]) == 0
    found = np.load(path.with_suffix(".out.npz"))["y"]
    expected, = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    return (found - expected) / 0.1, capsys.readouterr().err


@pytest.mark.parametrize("kind, point", [(TensorProto.INT4, None), (TensorProto.UINT4, 8), (TensorProto.UINT4, 3)])
def test_a_scale_for_each_channel(kind: int, point: int | None, tmp_path: Path, capsys: pytest.CaptureFixture,
                                  rng: np.random.Generator) -> None:
    model(tmp_path / "m.onnx", rng, kind, point=point)
    differences, said = compare(tmp_path / "m.onnx", capsys, rng)
    assert np.abs(differences).max() < 1.01 and "scales of blocks" not in said


@pytest.mark.parametrize("kind, point", [(TensorProto.INT4, None), (TensorProto.UINT4, 8), (TensorProto.INT8, 5)])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_scale_for_each_block(kind: int, point: int | None, transposed: bool, tmp_path: Path,
                                capsys: pytest.CaptureFixture, rng: np.random.Generator) -> None:
    model(tmp_path / "m.onnx", rng, kind, point=point, block=32, transposed=transposed)
    differences, said = compare(tmp_path / "m.onnx", capsys, rng)
    assert np.abs(differences).max() < 2.01
    assert "node wd: weights with scales of blocks get eight bits and a scale for each channel" in said


def test_blocks_of_one_scale_keep_their_bits(tmp_path: Path, rng: np.random.Generator) -> None:
    model(tmp_path / "m.onnx", rng, TensorProto.INT4, block=32, equal=True)
    imported = import_model(open_model(tmp_path / "m.onnx"))
    assert not imported.remarks
    weights = imported.graph.layers[0].weights
    assert weights.min() == -8 and weights.max() == 7


def test_an_axis_that_ends_within_a_block(rng: np.random.Generator) -> None:
    integers, scales = rng.integers(-8, 8, (3, 10)), rng.uniform(0.1, 1, (3, 3))
    points = rng.integers(-2, 3, (3, 3))
    values, own, axis, same = merged(integers, scales, points, -1, 4)
    expected = (integers - points.repeat(4, 1)[:, :10]) * scales.repeat(4, 1)[:, :10]
    assert (axis, same) == (0, False)
    assert np.abs(values * own[:, None] - expected).max() <= own.max() * 0.501
    with pytest.raises(ValueError, match="in blocks of 5"):
        merged(integers, scales, points, 1, 5)


_BLOCK = 32


def few_bits(path: Path, rng: np.random.Generator, *, symmetric: bool, quantised: bool, bits: int, inputs: int) -> None:
    """Two of onnxruntime's products with weights of few bits, one with a bias, between float or quantised tensors."""
    nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(op: str, given: list[str], result: str, **more: object) -> str:
        nodes.append(helper.make_node(op, given, [result], name=result, **more))
        return result

    def product(name: str, source: str, depth: int, outputs: int, *more: str) -> str:
        blocks = -(-depth // _BLOCK)
        points = "" if symmetric else constant(f"{name}_points", rng.integers(
            0, 256, outputs * -(-blocks * bits // 8), np.uint8))
        return node("MatMulNBits", [
            source, constant(f"{name}_weights", rng.integers(0, 256, (outputs, blocks, _BLOCK * bits // 8), np.uint8)),
            constant(f"{name}_scales", rng.uniform(0.01, 0.02, outputs * blocks).astype(np.float32) * 8 / (1 << bits)),
            points, *more], name, K=depth, N=outputs, bits=bits, block_size=_BLOCK, domain="com.microsoft")

    def pair(source: str, scale: float, point: int, result: str) -> str:
        if not quantised:
            return node("Identity", [source], result)
        scales = [constant(f"{result}_scale", np.float32(scale)), constant(f"{result}_point", np.int8(point))]
        return node("DequantizeLinear", [node("QuantizeLinear", [source, *scales], f"{result}_q"), *scales], result)

    bias = constant("bias", rng.normal(size=48).astype(np.float32) / 9)
    first = product("first", pair("x", 0.03, 0, "x1"), inputs, 48, "", bias)
    second = product("second", pair(node("Relu", [first], "relu"), 0.02, -128, "h"), 48, 32)
    pair(second, 0.008 if symmetric else 0.04, 0, "y")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
              for name, size in (("x", inputs), ("y", 32))]
    onnx.save(helper.make_model(
        helper.make_graph(nodes, "g", values[:1], values[1:], constants), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), path)


@pytest.mark.parametrize("symmetric, bits", [(True, 4), (False, 4), (False, 8)])
@pytest.mark.parametrize("quantised", [False, True])
def test_products_with_weights_of_few_bits(symmetric: bool, bits: int, quantised: bool, tmp_path: Path,
                                           rng: np.random.Generator, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "m.onnx"
    few_bits(path, rng, symmetric=symmetric, quantised=quantised, bits=bits, inputs=80)
    x = rng.normal(size=(24, 80)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    calibrate = [] if quantised else ["--calibrate", str(tmp_path / "x.npz")]
    assert main(["run", str(path), "--macs", "64", "--input", str(tmp_path / "x.npz"), *calibrate,
                 "--output", str(tmp_path / "y.npz")]) == 0
    found = np.load(tmp_path / "y.npz")["y"]
    session = onnxruntime.InferenceSession(str(path))
    expected = np.concatenate([session.run(None, {"x": one[None]})[0] for one in x])
    assert ((found - expected)**2).mean() < 0.003 * (expected**2).mean()
    capsys.readouterr()
    assert main(["compile", str(path), "--macs", "64", *calibrate, "-o", str(tmp_path / "m.npu")]) == 0
    said = " ".join("".join(capsys.readouterr()).split())
    assert "the whole model" in said
    assert "node first/weights (and 1 more nodes): weights with scales of blocks get eight bits" in said


def product(rng: np.random.Generator, weights: tuple[int, ...], **attributes: int) -> onnx.ModelProto:
    """One of onnxruntime's products of 40 inputs and 5 outputs, in blocks of 16."""
    constants = [numpy_helper.from_array(rng.integers(0, 256, weights, np.uint8), "w"),
                 numpy_helper.from_array(rng.uniform(0.01, 0.02, 15).astype(np.float32), "s")]
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], name="y", domain="com.microsoft", K=40, N=5,
                            block_size=16, **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 40), ("y", 5))]
    return helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:], constants), ir_version=10,
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])


@pytest.mark.parametrize("spreads", [SPREADS, QUANTISED_SPREADS])
def test_bits_left_out_are_four(spreads: Spreads, rng: np.random.Generator) -> None:
    assert "MatMul" in {node.op_type for node in spread_fused(product(rng, (5, 3, 8)), spreads).graph.node}


@pytest.mark.parametrize("weights, attributes, said", [
    ((5, 3, 8), {"weight_prepacked": 1}, "has weights in an order for one kind of processor"),
    ((5, 3, 7), {"bits": 4}, "contradict each other")])
def test_products_that_stay_whole(weights: tuple[int, ...], attributes: dict[str, int], said: str, tmp_path: Path,
                                  rng: np.random.Generator, capsys: pytest.CaptureFixture) -> None:
    found = product(rng, weights, **attributes)
    onnx.save(found, tmp_path / "m.onnx")
    assert main(["compile", str(tmp_path / "m.onnx"), "--macs", "64", "-o", str(tmp_path / "m.npu")]) == 1
    assert said in capsys.readouterr().err
    assert [node.op_type for node in spread_fused(found, QUANTISED_SPREADS).graph.node] == ["MatMulNBits"]


def test_scales_that_are_none(rng: np.random.Generator) -> None:
    """Zero ones give a positive scale of zeros; those that are no numbers, and axes that are none, are refused."""
    integers, points = rng.integers(-8, 8, (3, 8)), np.zeros((3, 2), int)
    scales = np.full((3, 2), 0.5)
    scales[1] = 0
    values, own, _, _ = merged(integers, scales, points, 1, 4)
    assert (own > 0).all() and not values[1].any()
    np.testing.assert_allclose(values * own[:, None], integers * scales.repeat(4, 1), atol=own.max() * 0.501)
    with pytest.raises(ValueError, match="infinite or no numbers"):
        merged(integers, scales * np.nan, points, 1, 4)
    with pytest.raises(ValueError, match="axis 2"):
        merged(integers, scales, points, 2, 4)
