"""Presets of all sizes beside each other: what is known of them, networks on them, and what selecting costs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from boards.clock import Clock
from boards.registry import get_board
from cores.config import NpuConfig
from gen.bench import fanin, scale
from gen.bench.zoo import ZooNetwork, quantised
from gen.cli import main
from gen.cli.common import console
from gen.hw.remembered import remember_synthesis, synthesis_of
from gen.hw.synth import Report
from gen.hw.timing import TimingReport

BOARD = get_board("zu3eg")
#: None that is in the table of areas.
NARROW, WIDE = BOARD.config(16), BOARD.config(512, queue_depth=8)
AREA = Report("xcup", {"lut": 12_345, "ff": 2, "dsp": 3, "bram36": 4.5}, {})
TIMING = TimingReport("xcup", "-1", 4, 3.5, {4: 1}, {}, [], 3.0)


def test_a_size_is_as_synthesised_once_it_has_been():
    before = scale.size_of(BOARD, WIDE)
    assert (before.lanes, before.bus, before.macs, before.levels) == ("32 x 32 -> 8", 256, 512, None)
    assert "of synthesis" in before.area and before.resources["dsp"] == 288 and before.clock.basis == "target"
    remember_synthesis(BOARD, WIDE, AREA, TIMING)
    after = scale.size_of(BOARD, WIDE)
    assert (after.resources, after.area, after.levels) == (AREA.totals, "synthesised", 4)
    assert after.clock == Clock(285.7, "estimated")
    assert scale.size_of(BOARD, replace(WIDE, acc_depth=512)).levels is None     # another machine
    assert synthesis_of(get_board("zcu102"), WIDE) is None


def test_what_is_remembered_is_not_synthesised_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = []
    monkeypatch.setattr(scale, "emit_verilog", lambda config: "module npu(); endmodule")
    monkeypatch.setattr(scale, "synthesize", lambda *arguments, **options: asked.append("area") or AREA)
    monkeypatch.setattr(scale, "measure_timing", lambda *arguments, **options: asked.append("timing") or TIMING)
    for _ in range(2):
        scale.synthesise(BOARD, NARROW, tmp_path)
    assert sorted(asked) == ["area", "timing"]
    assert str(scale.size_of(BOARD, NARROW).clock) == str(Clock(TIMING.estimated_mhz, "estimated"))


def test_inferences():
    sizes = [(config, scale.size_of(BOARD, config)) for config in (NARROW, WIDE)]
    dense, wide, *pruned = scale.infer(BOARD, sizes, [ZooNetwork("lenet5"), ZooNetwork("lenet5", 0.5)])
    assert dense.macs == 16 and wide.macs == 512 and wide.cycles < dense.cycles
    assert 0 < wide.used < dense.used < 100
    # The same operations in less time; those that are pruned count.
    assert dense.gops / dense.per_second == pytest.approx(pruned[0].gops / pruned[0].per_second)
    assert pruned[0].cycles < dense.cycles and pruned[0].density == 0.5
    assert dense.gops_a_klut == pytest.approx(1000 * dense.gops / sizes[0][1].resources["lut"])
    # A port of 128 bits brings half a beat of the wide machine.
    assert dense.one_port is None and wide.one_port is not None and wide.cycles < wide.one_port <= 2 * wide.cycles


def test_vgg16_ends_before_its_classifier():
    def node(kind: str, number: int) -> onnx.NodeProto:
        return helper.make_node(kind, [f"v{number}"], [f"v{number + 1}"], name=f"n{number}",
                                **({"kernel_shape": [2, 2]} if kind == "MaxPool" else {}))

    graph = helper.make_graph(
        [node(kind, number) for number, kind in enumerate(("MaxPool", "Relu", "MaxPool", "Flatten"))], "g",
        [helper.make_tensor_value_info("v0", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("v4", onnx.TensorProto.FLOAT, None)])
    model = helper.make_model(graph)
    cut = scale._without_classifier("vgg16")(model)
    assert [node.op_type for node in cut.graph.node] == ["MaxPool", "Relu", "MaxPool"]
    assert scale._without_classifier("resnet18")(model) is model
    assert quantised("lenet5")


def _model(weights: np.ndarray) -> onnx.ModelProto:
    """A convolution of these weights after a first one."""
    first = np.ones((weights.shape[1], 3, 1, 1), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "a"], ["y"], name="first"),
         helper.make_node("Conv", ["y", "b"], ["z"], name="second")], "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(first, "a"), numpy_helper.from_array(weights, "b")])
    return helper.make_model(graph)


def test_energy_kept():
    """Of 32 channels eight are kept: where these lie side by side, 16 keep 4 of them, 8 or twice 4 keep 2."""
    weights = np.zeros((4, 32, 1, 1), np.float32)
    weights[:, :8] = 2.0
    kept = {fan_in: fanin.energy_kept(_model(weights), replace(WIDE, select_fanin=fan_in), 0.25)
            for fan_in in fanin.FAN_INS}
    assert kept == {32: 1.0, 16: 0.5, 8: 0.25, 4: 0.25}
    assert fanin.energy_kept(_model(weights), WIDE, 1.0) == 1.0


def test_multiplexers_are_what_selecting_adds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A row whose LUTs are 100 and 20 for each input selected from, beyond the first."""
    def synthesize(verilog: str, top: str, family: str, **options) -> Report:
        return Report(family, {"lut": 100 + 20 * (int(verilog) - 1), "ff": 0, "dsp": 8, "bram36": 0}, {})

    monkeypatch.setattr(fanin, "emit_component", lambda row, name: str(row.config.select_fanin))
    monkeypatch.setattr(fanin, "synthesize", synthesize)
    rows = list(fanin.measure(BOARD, WIDE, None, tmp_path))
    assert [row.fan_in for row in rows] == [32, 16, 8, 4, 1]
    assert [row.multiplexers for row in rows] == pytest.approx([20 * inputs / 16 for inputs in (31, 15, 7, 3, 0)])
    assert (rows[1].row_lut, rows[1].lut, rows[1].dsp, rows[1].energy) == (400, 25, 0.5, None)
    narrow = replace(WIDE, ic_lanes=16, select_fanin=16)
    assert [row.fan_in for row in fanin.measure(BOARD, narrow, None, tmp_path)] == [16, 8, 4, 1]


@pytest.mark.full
def test_what_multiplexers_take(tmp_path: Path):
    """Of 17 bits for each two MACs: a LUT a bit of four inputs, four of 16, eight and a ninth that joins of 32."""
    rows = {row.fan_in: row for row in fanin.measure(BOARD, WIDE, None, tmp_path)}
    for fan_in, luts in ((4, 1), (8, 3), (16, 4), (32, 9)):
        assert rows[fan_in].multiplexers == pytest.approx(17 / 2 * luts, rel=0.2)
    assert {row.dsp for row in rows.values()} == {0.5}


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(scale, "MACS", (16, 512))
    monkeypatch.setattr(scale, "NETWORKS", [ZooNetwork("lenet5"), ZooNetwork("lenet5", 0.25)])
    monkeypatch.setattr(fanin, "measure", lambda *arguments: [
        fanin.Row(fan_in=16, row_lut=700.0, lut=43.75, multiplexers=34.0, dsp=0.5, energy=61.25)])
    monkeypatch.setattr("gen.cli.journal.cache_folder", lambda: tmp_path / "cache")
    for side, size in (("_width", 160), ("_height", 25)):
        monkeypatch.setattr(console, side, size)
    assert main(["bench", "scale", "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "32 x 32 -> 8" in said and "333, target" in said and "494.3" in said and "61.2" in said
    assert "LeNet-5, 25 % of the weights" in said and "one port" in said and "levels" not in said
    assert (tmp_path / "scale.png").is_file()
    assert main(["bench", "scale", "--macs", "16", "--features", "gather", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["scale"]
    assert [row["table"] for row in rows] == ["machines", "networks", "networks", *["published"] * 3, "fan_in"]
    config = tmp_path / "config.json"
    config.write_text(NpuConfig.preset(16).to_json())
    assert main(["bench", "scale", "--config", str(config)]) == 2
    assert "bench scale measures presets; leave --config out" in capsys.readouterr().err
