"""Weights that are quantised to four bits."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from cores.config import NpuConfig
from gen.cli import main
from gen.compiler import compile_graph
from gen.onnx.importer import load
from gen.quantize.options import QuantizeError, QuantizeOptions
from gen.quantize.quantize import quantize
from tests.gen.float_models import FloatBuilder


@pytest.fixture(scope="module")
def float_model(digits: Path) -> onnx.ModelProto:
    return onnx.load(digits / "digits_float.onnx")


@pytest.fixture(scope="module")
def samples(digits: Path) -> dict[str, np.ndarray]:
    data = np.load(digits / "digits_test.npz")
    return {"image": data["image"][:40]} if "image" in data else {
        name: data[name][:40].astype(np.float32) for name in data.files if data[name].ndim > 1}


def widest(model: onnx.ModelProto) -> dict[str, int]:
    """Of each Conv and Gemm the largest of its weights' integers."""
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    makers = {node.output[0]: node for node in model.graph.node}
    return {node.name: int(np.abs(tensors[makers[node.input[1]].input[0]].astype(int)).max())
            for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul")}


@pytest.mark.parametrize("per_channel", [True, False])
def test_which_layers(per_channel: bool, float_model: onnx.ModelProto, samples: dict[str, np.ndarray]) -> None:
    def made(*names: str) -> dict[str, int]:
        return widest(quantize(float_model, samples, QuantizeOptions(
            method="minmax", per_channel=per_channel, int4=frozenset(names))).model)

    plain = made()
    products = [node.name for node in float_model.graph.node if node.op_type in ("Gemm", "MatMul")]
    assert set(plain.values()) == {127} and products and len(products) < len(plain)
    assert {name for name, largest in made("linear").items() if largest <= 7} == set(products)
    first = next(iter(plain))
    assert {name for name, largest in made(first).items() if largest <= 7} == {first}
    grouped = {node.name for node in float_model.graph.node
               if any(attribute.name == "group" and attribute.i > 1 for attribute in node.attribute)}
    assert grouped == {name for name, largest in made("all").items() if largest > 7}
    for name in grouped:
        with pytest.raises(QuantizeError, match=f"node {name} has groups, whose weights keep eight bits"):
            made(name)
    with pytest.raises(QuantizeError, match="there is no node nonsense with weights that could have four bits"):
        made("nonsense")
    with pytest.raises(QuantizeError, match="--int4 takes one name, and is given several times"):
        made("one,other")


def test_no_layer_is_left(rng: np.random.Generator) -> None:
    b = FloatBuilder(rng, ["N", 3, 8, 8])
    y = b.same_conv("x", 3, 8, name="first")
    model = b.model(b.same_conv(y, 8, 8, group=8, kernel=3, name="grouped"))
    x = {"x": rng.normal(size=(4, 3, 8, 8)).astype(np.float32)}
    for names, kept, said in ((["linear"], (), "no Gemm or MatMul is quantised"), (
            ["all"], ["first"], "no Gemm, MatMul or Conv without groups is quantised"), (
            ["grouped"], (), "node grouped has groups, whose weights keep eight bits in every machine")):
        with pytest.raises(QuantizeError, match=said) as error:
            quantize(model, x, QuantizeOptions(method="minmax", int4=frozenset(names), keep_float=frozenset(kept)))
        assert error.value.code == "no-such-layer"


def test_float_and_four_bits(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["quantize", str(digits / "digits_float.onnx"), "--calibrate", str(digits / "digits_test.npz"),
                 "--int4", "fc", "--keep-float", "fc", "-o", str(tmp_path / "q.onnx")]) == 2
    assert "--int4 fc and --keep-float fc: a node that stays float has no four bits [option-conflict]" in " ".join(
        capsys.readouterr().err.split())


def test_the_machine_takes_half_of_the_memory(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sizes, model = [], tmp_path / "q.onnx"
    for more in ([], ["--int4", "all"]):
        assert main(["quantize", str(digits / "digits_float.onnx"), "--calibrate", str(digits / "digits_test.npz"),
                     "--limit", "60", "--method", "mse", "-o", str(model), *more]) == 0
        config = NpuConfig.preset(256, int4=1)
        sizes.append(sum(len(data) for data in [compile_graph(load(model), config)[0].constants]))
    assert "accuracy" in "".join(capsys.readouterr())
    assert sizes[1] < 0.75 * sizes[0]


@pytest.mark.parametrize("more", [[], ["--int4", "all"]])
def test_a_loss_names_the_option(more: list[str], digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["quantize", str(digits / "digits_float.onnx"), "--calibrate", str(digits / "digits_test.npz"),
                 "--limit", "60", "--method", "percentile", "--percentile", "80", "--max-loss", "0", *more,
                 "-o", str(tmp_path / "q.onnx")]) == 1
    assert ("; fewer nodes with --int4 lose less" in " ".join(capsys.readouterr().err.split())) == bool(more)


def test_the_scale_of_least_error(rng: np.random.Generator) -> None:
    """A single large weight does not make the steps of all others."""
    from gen.quantize.int4 import _scales

    rows = rng.normal(size=(3, 500))
    rows[1, 0], rows[2] = 9.0, 0.0
    scales = _scales(rows)
    assert scales[1] < 6 / 7 and scales[2] == 1

    def error(scale: float) -> float:
        return float(((np.clip(np.rint(rows[0] / scale), -7, 7) * scale - rows[0]) ** 2).sum())

    assert error(scales[0]) <= error(np.abs(rows[0]).max() / 7)
