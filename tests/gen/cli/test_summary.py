"""What `compile` says of a model: how much of it is where, how fast, how exact, and what would help."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gen.cli import main
from gen.partition.work import multiplications
from tests.gen.architecture_parts import PARTS
from tests.gen.cli.gated import gated


def _product(op: str, *shapes: tuple[int, ...], out: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    names = [f"x{number}" for number in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
              for name, shape in zip(names, shapes, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    return helper.make_model(helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)]))


@pytest.mark.parametrize(("model", "count"), [
    (_product("Conv", (1, 6, 8, 8), (4, 3, 3, 3), out=(1, 4, 6, 6), group=2), 4 * 36 * 27),
    (_product("ConvTranspose", (1, 6, 8, 8), (6, 4, 2, 2), out=(1, 4, 16, 16), strides=[2, 2]), 6 * 64 * 16),
    (_product("MatMul", (2, 3, 5, 7), (2, 3, 7, 4), out=(2, 3, 5, 4)), 6 * 5 * 4 * 7),
    (_product("Gemm", (7, 5), (7, 4), out=(5, 4), transA=1), 5 * 4 * 7),
    (_product("Relu", (1, 3), out=(1, 3)), 0),
])
def test_multiplications(model: onnx.ModelProto, count: int):
    assert multiplications(model) == count


def test_open_batch_counts_as_one_sample():
    model = _product("MatMul", (1, 5, 7), (7, 4), out=(1, 5, 4))
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    assert multiplications(model) == 5 * 4 * 7


def test_lines(capsys: pytest.CaptureFixture):
    """Of a model that is cut, and of the same on a machine that takes more of it."""
    gated("Sigmoid", "Sigmoid", "Sigmoid")
    argv = ["compile", "m.onnx", "--macs", "16", "-o", "y.npu"]
    assert main(argv) == 0
    said = capsys.readouterr().err.splitlines()
    assert main([*argv, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    work, speed = facts["work"], facts["speed"]
    assert work["nodes"] - work["accelerated_nodes"] == 7 and work["segments"] == 4
    assert work["multiplications"] == work["accelerated_multiplications"] == facts["macs"] > 0
    macs = f"{work['multiplications']:,}"
    assert said[0] == (f"on the accelerator: {macs} of {macs} multiplications "
                       f"and {work['accelerated_nodes']} of {work['nodes']} nodes, 4 segments")
    [line] = [line for line in said if line.startswith("speed: ")]
    assert line.startswith(f"speed: {speed['cycles']:,} cycles by the time model on ideal memory, ")
    assert f"{speed['fps']:,.0f} inferences a second of the accelerator at 333 MHz, target (zu3eg)" in line
    assert said[-1].startswith("values: ") and said[-1].endswith("on a random sample")
    assert main(["profile", "y.npu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["cycles"] == speed["cycles"]


@pytest.mark.parametrize("given", [[], ["--features", "none"]])
def test_auto_is_named_where_it_may_help(given: list[str], capsys: pytest.CaptureFixture):
    """Lanes of many channels for a model of few; not where the user has chosen."""
    gated("Relu")
    assert main(["compile", "m.onnx", "--macs", "256", "-o", "y.npu", *given]) == 0
    assert ("--features auto finds units that help" in capsys.readouterr().err) == (not given)


@pytest.mark.slow
def test_units_that_help(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """By name, with what they save and cost; not where the user has chosen."""
    model = str(models / "mlperf_resnet8_int8.onnx")
    call = ["compile", model, "--macs", "256", "--no-check", "-o", str(tmp_path / "y.npu")]
    assert main(call) == 0
    said = capsys.readouterr().err
    assert main([*call, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["faster"] and facts["faster"][0]["before"] == facts["speed"]["cycles"]
    best = facts["faster"][0]
    assert f"  with {best['feature']}: {100 * best['share']:.0f} % fewer cycles for " in said
    assert main([*call, *best["option"].split(), "--json"]) == 0
    better = json.loads(capsys.readouterr().out)
    assert better["speed"]["cycles"] == best["cycles"] and better["faster"] == []


@pytest.mark.slow
def test_layers_that_only_move_values_are_said(rng: np.random.Generator, capsys: pytest.CaptureFixture):
    """Their cycles; their multiplications are none of the model's."""
    model, products = PARTS["mixer"](rng)
    onnx.save(model, "m.onnx")
    np.savez("x.npz", x=rng.random((4, 3, 32, 32)).astype(np.float32))
    argv = ["compile", "m.onnx", "--calibrate", "x.npz", "--macs", "64", "--features", "all", "-o", "y.npu"]
    assert main([*argv, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert products <= facts["work"]["multiplications"] < facts["macs"] and facts["speed"]["added"] > 0
    assert main(argv) == 0
    assert "of the cycles are layers that the compiler adds to move values" in capsys.readouterr().err
