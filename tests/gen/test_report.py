"""Reports: the document against the profile, the trace, and the page in a browser."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cores.arch.registers import COUNTERS, ENGINE_STATES
from gen.cli import main
from gen.ir.graph import Conv, Pool
from gen.mapping.registry import MAPPINGS
from gen.program.file import load_program
from gen.report.check import require_fitting
from gen.report.columns import pack, unpack
from gen.report.document import Report
from gen.report.make import _HELPS, many_causes, model_digest
from gen.report.page import page_of
from gen.report.read import read_reports
from gen.report.trace import trace_of
from gen.report.ways import meaning_of
from gen.run.counted import counted as counted_of
from gen.run.counted import write_counted
from gen.run.runner import Inference, Run
from sim import cycles
from tests import ROOT
from tests.gen.browser import require_usable
from tests.gen.cli.calls import error_line
from tests.gen.qdq import in_two_parts

LIBRARY = ROOT / "gen" / "report" / "vendor" / "echarts.min.js"
#: Those of engines' states that the parts of a profile are made of.
_AT_WORK, _SETTING_UP = ("useful", "idle_pixels", "idle_lanes"), ("wait_weights", "short_steps", "setup")

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def partly(rng: np.random.Generator) -> str:
    return str(in_two_parts(rng).save(Path()))


def report(capsys: pytest.CaptureFixture, *argv: str) -> Report:
    """As --json prints it, read by its types: each field is there."""
    assert main(["report", *argv, "--json"]) == 0
    return msgspec.json.decode(capsys.readouterr().out.encode(), type=Report)


def profile(capsys: pytest.CaptureFixture, *argv: str) -> dict[str, Any]:
    assert main(["profile", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def require_same_cycles(found: Report, expected: dict[str, Any]) -> None:
    """The timeline gives each layer the cycles of the profile, and each cause too."""
    assert found.total == expected["total"]
    line = found.timeline
    owner, start, length = (unpack(column) for column in (line.owner, line.owner_start, line.owner_length))
    for number, layer in enumerate(expected["layers"]):
        assert layer.items() <= asdict(found.layers[number]).items()
        assert int(length[owner == number].sum()) == layer["cycles"]
    # Without gaps, from START to END of each segment.
    ends = start + length
    for segment in line.segments:
        own = (start >= segment.start) & (ends <= segment.start + segment.length)
        assert start[own][0] == segment.start and ends[own][-1] == segment.start + segment.length
        assert (start[own][1:] == ends[own][:-1]).all()
    assert sum(segment.length for segment in line.segments) == expected["total"]["cycles"]
    assert line.cycles == expected["total"]["cycles"] + sum(span.length for span in line.host)
    engine = line.engines["compute"]
    whose = unpack(line.layer)[unpack(engine.index)]
    spent = {state: unpack(column) for state, column in engine.states.items()}
    for number, layer in enumerate(expected["layers"]):
        own = {state: int(column[whose == number].sum()) for state, column in spent.items()}
        assert own["busy"] == sum(layer[part] for part in _AT_WORK)
        assert own["setup"] + own["wait_weights"] >= sum(layer["stalls"][cause] for cause in _SETTING_UP)
        assert own["wait_load"] >= layer["stalls"]["wait_load"]


def require_whole(found: Report) -> None:
    line = found.timeline
    opcode, layer = unpack(line.opcode), unpack(line.layer)
    assert len(opcode) == len(layer) and opcode.max() < len(line.opcodes) and layer.max() < len(found.layers)
    for name, engine in line.engines.items():
        columns = [unpack(column) for column in (engine.index, engine.start, engine.length, *engine.states.values())]
        assert len({len(column) for column in columns}) == 1 and len(columns[0])
        assert tuple(engine.states) == ENGINE_STATES[name][1:]
        assert (columns[2] > 0).all() and (sum(columns[3:]) <= columns[2]).all()
    drawn = [node.layer for node in found.nodes if node.kind == "layer"]
    assert drawn == list(range(len(found.layers)))
    assert all(found.nodes[edge.source].rank < found.nodes[edge.target].rank for edge in found.edges)
    reached = {edge.target for edge in found.edges}
    assert all(number in reached for number, node in enumerate(found.nodes) if node.kind != "input")
    assert all(node.column >= 0 for node in found.nodes)
    for memory in found.memory_maps:
        for a in memory.tensors:
            assert 0 <= a.offset and a.offset + a.size <= memory.size and a.first <= a.last
    assert len(found.findings) > 2, "where it runs, what costs most, and what to do"
    assert found.repeat.model_sha256
    require_fitting(msgspec.json.decode(msgspec.json.encode(found), type=Report))


def test_of_the_digits(model: str, capsys: pytest.CaptureFixture):
    machine = ("--macs", "64", "--memory", "ecp5")
    found = report(capsys, model, *machine)
    require_same_cycles(found, profile(capsys, model, *machine))
    require_whole(found)
    assert len(found.noise) == len(found.layers)
    assert {one.layer for one in found.onnxruntime} == {layer.name for layer in found.layers}
    assert all(one.differing <= one.values and one.largest <= one.allowed for one in found.onnxruntime)
    assert found.onnxruntime_words.endswith((", as rounding explains.", "all values are the same."))
    # int8 results: 20 to 60 dB, less noise than the last layers'.
    assert all(one.sqnr_db is not None and 15 < one.sqnr_db < 60 for one in found.noise)
    beats = unpack(found.timeline.bus.read).sum() + unpack(found.timeline.bus.write).sum()
    bytes_moved = beats / 1000 * found.machine.beat_bytes
    assert bytes_moved == pytest.approx(found.total["dram_bytes"], rel=0.1)     # instructions are not in it


@pytest.mark.slow
def test_of_resnet8(models: Path, capsys: pytest.CaptureFixture):
    path = str(models / "mlperf_resnet8_int8.onnx")
    found = report(capsys, path)
    require_same_cycles(found, profile(capsys, path))
    require_whole(found)
    assert len(found.noise) == len(found.layers)


@pytest.mark.slow
def test_of_signs(models: Path, capsys: pytest.CaptureFixture):
    """No result of such a network is a tensor that the model quantises, so there is no noise to compute."""
    found = report(capsys, str(models / "cnvW1A1_cifar10.onnx"), "--features", "binary")
    assert not found.noise and "no layer's result" in found.noise_words
    require_whole(found)


@pytest.mark.slow
def test_of_streams(digits: Path, capsys: pytest.CaptureFixture):
    model = "symmetric.onnx"
    assert main(["quantize", str(digits / "digits_float.onnx"), "--symmetric", "-o", model, "--calibrate",
                 str(digits / "digits_test.npz")]) == 0
    capsys.readouterr()
    options = ("--macs", "64", "--features", "stochastic", "--stochastic", "64")
    found = report(capsys, model, *options)
    require_same_cycles(found, profile(capsys, model, *options))
    require_whole(found)
    assert "stochastic" in {layer.mode for layer in found.layers}


def test_of_a_model_with_parts_on_the_processor(partly: str, capsys: pytest.CaptureFixture):
    found = report(capsys, partly, "--macs", "16")
    expected = profile(capsys, partly, "--macs", "16")
    require_same_cycles(found, expected)
    require_whole(found)
    assert len(found.timeline.segments) == 2
    assert len(found.timeline.host) == expected["host"]["segments"] > 0
    assert found.host and not found.noise and "processor" in found.noise_words
    assert [node.layer for node in found.nodes if node.kind == "host"] == list(range(len(found.timeline.host)))


@pytest.mark.slow
def test_trace_and_page(model: str, capsys: pytest.CaptureFixture):
    assert main(["report", model, "--macs", "64", "--clock", "100", "-o", "page.html", "--trace", "trace.json",
                 "--json"]) == 0
    text = capsys.readouterr().out
    Path("report.json").write_text(text)
    (found,) = read_reports(Path("report.json"))
    trace = json.loads(Path("trace.json").read_text())
    assert trace == trace_of(found)
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sum(event["args"]["cycles"] for event in spans if event["tid"] == 1) == found.total["cycles"]
    assert all(event["ts"] * 100 == pytest.approx(event["args"]["cycle"]) for event in spans)
    # Nothing is asked of a network: nothing that has an address, beside what the library says of itself.
    page = Path("page.html").read_text().replace(LIBRARY.read_text(), "")
    assert len(page) < 500_000 and not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", page)
    assert main(["report", "report.json", model, "--macs", "16"]) == 0
    page = Path("build/report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert [one["machine"]["macs"] for one in json.loads(data)] == [64, 16]
    assert main(["report", "report.json", "report.json", "--json"]) == 0
    Path("both.json").write_text(capsys.readouterr().out)
    assert read_reports(Path("both.json")) == [found, found]
    assert main(["report", "both.json"]) == 0
    capsys.readouterr()
    assert "at most 2" in error_line(capsys, 2, "report", "both.json", "report.json")
    assert "--trace is of one model" in error_line(capsys, 2, "report", "both.json", "--trace", "t")
    for option in (("--macs", "16"), ("--target", "rtl"), ("--clock", "50"), ("--memory", "ecp5"), ("--board", "ecp5"),
                   ("--density", "0.5"), ("--shape", "x=1"), ("--oc-lanes", "16")):
        said = error_line(capsys, 2, "report", "report.json", *option)
        assert option[0] in said and "[option-conflict]" in said


@pytest.mark.slow
def test_area_and_roofline_are_of_this_machine(model: str, capsys: pytest.CaptureFixture):
    """What finds an unknown area names the machine; the roof is that of the memory that was measured with."""
    ideal = report(capsys, model, "--board", "ecp5", "--macs", "64", "--features", "depthwise,gather")
    command = "python -m gen build --board ecp5 --macs 64 --features depthwise,gather --synth"
    assert f"`{command}`" in ideal.machine.area_known
    assert ideal.roofline.bytes_of_memory == ideal.roofline.bytes_of_port == 2 * ideal.machine.beat_bytes
    slow = report(capsys, model, "--macs", "64", "--oc-lanes", "32", "--memory", "ecp5")
    assert "--config" in slow.machine.area_known
    assert slow.roofline.bytes_of_memory < ideal.roofline.bytes_of_memory
    for found in (ideal, slow):     # unless it has been synthesised, its area is estimated, not left out
        assert all(one.used for one in found.machine.area), found.machine.area


def test_each_layer_says_what_its_mode_is(model: str, capsys: pytest.CaptureFixture):
    found = report(capsys, model, "--macs", "64", "--features", "gather,fusion")
    modes = {layer.mode for layer in found.layers}
    assert len(modes) > 2
    for layer in found.layers:
        words = meaning_of(layer.mode, Conv) if layer.op == "conv" else meaning_of(layer.mode, Pool)
        assert layer.mode == "fused" or words and layer.why.startswith(f"{words}; "), layer
    for kind in MAPPINGS:
        assert kind.modes and all(words and words[-1] != "." for words in kind.modes.values())


def test_what_to_do_where_no_cause_is_large():
    """Seven hundredths for one cause and five for another: the larger is what there is to do something about."""
    found = many_causes([("wait_load", 70), ("setup", 50), ("idle", 3), ("wait_store", 0)], 1000, {
        cause: one.words() for cause, one in _HELPS.items()})
    assert found.startswith("No single cause takes much: 7 % of all cycles go to activations to be loaded, 5 % to "
                            "setup between instructions. The first: memory brings activations too slowly;")


@pytest.mark.parametrize(("cause", "features", "chosen", "said", "unsaid"), [
    ("idle_lanes", (), "", "other lanes (--for MODEL) or units (--features auto) use them", "best"),
    ("idle_lanes", (), "units", "other lanes (--for MODEL) use them", "auto"),
    ("idle_lanes", (), "machine", "one of fewer --macs loses less", "--for"),
    ("wait_load", (), "", "(--input-depth), results that stay on the chip (--features fusion) or a faster", "best"),
    ("wait_load", ("depthwise", "fusion"), "", "(--input-depth) or a faster memory saves time", "fusion"),
    ("wait_store", (), "units", "too slowly; a faster memory saves time", "fusion"),
    ("setup", (), "machine", "one of fewer --macs loses little here", "best"),
])
def test_nothing_that_is_done_is_advised(cause: str, features: tuple[str, ...], chosen: str, said: str, unsaid: str):
    words = _HELPS[cause].words(features, chosen)
    assert said in words and unsaid not in words


def test_units_that_were_chosen_are_not_tried_again(
        model: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.report.whole.faster", lambda *_, **__: pytest.fail("tried"))
    found = report(capsys, model, "--macs", "64", "--features", "auto")
    assert "The machine's units were chosen for this model: no other one pays." in found.findings
    assert not [one for one in found.findings if "--features auto" in one or "--features fusion" in one]


def test_names_do_not_end_a_script(model: str, capsys: pytest.CaptureFixture):
    found = report(capsys, model, "--macs", "16")
    object.__setattr__(found, "name", "</script><!--/*script*/")
    page = page_of([found])
    assert page.count("</script>") == 4 and "\\u003c/script>\\u003c!--/*script*/" in page


def test_columns():
    for values in ([], [0], [64, 127, 128, 8191, 8192, -64, -65], [5, 3, -7, (1 << 31) - 1, -(1 << 31)]):
        assert unpack(pack(values)).tolist() == values
    with pytest.raises(ValueError):
        pack([1 << 31])


def test_what_is_no_report(model: str, capsys: pytest.CaptureFixture):
    Path("x.json").write_text("{}")
    assert "x.json: no report" in error_line(capsys, 1, "report", "x.json")
    assert "at most 2" in error_line(capsys, 2, "report", model, model, model)
    assert "--trace is of one model" in error_line(capsys, 2, "report", model, model, "--trace", "t")
    assert "both one" in error_line(capsys, 2, "report", model, "-o", "one", "--trace", "./one")
    for text in ("[]", '{"x": ' + "[" * 100_000):
        Path("x.json").write_text(text)
        assert "[damaged-report]" in error_line(capsys, 1, "report", "x.json")
    assert "would replace" in error_line(capsys, 2, "report", model, "--run", "x.json", "-o", "x.json")


def _put(document: Any, value: object, *path: str | int) -> None:
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


def test_damaged_reports(model: str, capsys: pytest.CaptureFixture):
    """What is out of range, or stands for something that is not there, is refused in a line when it is read."""
    assert main(["report", model, "--macs", "64", "--json"]) == 0
    text = capsys.readouterr().out
    for value, *path in (
            (99, "edges", 0, "target"), (-1, "edges", 0, "source"), (99, "nodes", 1, "layer"),
            (9**9, "nodes", 0, "rank"),
            ("x", "nodes", 0, "kind"), (99, "noise", 0, "layer"), ([], "layers"), ([], "nodes"),
            (-5, "layers", 0, "cycles"), (5, "layers", 0, "cycles"), (-3, "layers", 0, "utilisation"),
            ({}, "layers", 0, "stalls"), (-5, "total", "cycles"), ({}, "total"), (0, "machine", "clock_mhz"),
            (1e300, "machine", "clock_mhz"), (-1, "machine", "digest"), (0, "roofline", "bytes_of_memory"),
            (99, "memory_maps", 0, "segment"), (99, "memory_maps", 0, "tensors", 0, "last"),
            ("!", "timeline", "owner"), ("gA==", "timeline", "owner"), (pack([99]), "timeline", "owner"),
            (pack([99]), "timeline", "layer"), (pack([-1]), "timeline", "engines", "load", "start"),
            ({}, "timeline", "engines"), (0, "timeline", "bus", "cycles"), ("", "timeline", "bus", "read"),
            (5, "timeline", "cycles"), ([], "timeline", "segments")):
        document = json.loads(text)
        _put(document, value, *path)
        Path("damaged.json").write_text(json.dumps(document))
        assert "[damaged-report]" in error_line(capsys, 1, "report", "damaged.json"), path


@pytest.mark.full
@pytest.mark.parametrize("size, theme", [((1280, 900), "light"), ((500, 900), "dark")])
def test_in_a_browser(size: tuple[int, int], theme: str, model: str, partly: str, tmp_path: Path):
    assert main(["report", model, partly, "--macs", "16", "-o", "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path, size=size, theme=theme, canvases=8, says=(
        "Beside each other", "No layer has the same name in all of them"))


@pytest.mark.full
def test_two_machines_beside_each_other_in_a_browser(model: str, tmp_path: Path):
    """What differs stands above them: the time of both, and the layers that gain and lose most."""
    for features in ("none", "gather"):
        assert main(["compile", model, "--macs", "64", "--features", features, "--no-check", "-o",
                     f"{features}.npu"]) == 0
    assert main(["report", "none.npu", "gather.npu", "-o", "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path, canvases=13, says=(
        "Beside each other", "less than A", "B gains most in: stem by ", "A: digits_int8", "B over A"))


@pytest.fixture
def counted(model: str) -> str:
    """A program, and in c.json what a device would count of two inferences that take as long as the time model says."""
    assert main(["compile", model, "--macs", "16", "--no-check", "-o", "p.npu"]) == 0
    program = load_program("p.npu")
    timing = cycles.estimate(program.config, program.code)
    counters = dict.fromkeys(COUNTERS, 0) | {"cycles": timing.cycles} | {
        f"{engine}_{state}": int(timing.counts[number, code].sum())
        for number, (engine, states) in enumerate(ENGINE_STATES.items()) for code, state in enumerate(states) if code}
    run = Run("board", [Inference({}, 1.0, counters=counters)] * 2, None, 0)
    write_counted(Path("c.json"), counted_of(run, "board", program.config.digest, model_digest(Path("p.npu"))))
    return "p.npu"


@pytest.mark.full
def test_the_verilog_counts_as_the_time_model(counted: str, digits: Path):
    assert main(["run", counted, "--input", str(digits / "digits_test.npz"), "--limit", "1", "--target", "board:rtl",
                 "--counters", "rtl.json"]) == 0
    expected, found = (json.loads(Path(name).read_text())["counters"] for name in ("c.json", "rtl.json"))
    assert {name: found[name] for name in expected if expected[name]} == {
        name: value for name, value in expected.items() if value}


@pytest.mark.slow
def test_a_device_beside_the_simulation(counted: str, digits: Path, capsys: pytest.CaptureFixture):
    """As the time model where the device counts so; where it does not, the largest difference is said."""
    capsys.readouterr()
    assert "does not count the cycles of its engines" in error_line(
        capsys, 1, "run", counted, "--input", str(digits / "digits_test.npz"), "--limit", "1", "--target",
        "board:functional", "--counters", "d.json", "--json")
    found = report(capsys, counted, "--run", "c.json")
    device = found.on_device
    assert device and device.cycles == device.fewest == device.most == found.total["cycles"] and device.samples == 2
    assert [one.simulated for one in device.counters] == [one.counted for one in device.counters]
    assert sum(one.counted for one in device.counters if one.engine == "compute") > 0.9 * device.cycles
    assert found.findings[-1].endswith("and all counters as in the time model on an ideal memory.")
    assert "more of them (--macs) or pruned weights" in found.findings[-2]
    assert report(capsys, counted).on_device is None
    counts = json.loads(Path("c.json").read_text())
    counts["cycles"] = [one + 1000 for one in counts["cycles"]]
    counts["counters"]["load_wait_bus"] += 900
    Path("more.json").write_text(json.dumps(counts))
    found = report(capsys, counted, "--run", "more.json")
    assert found.on_device and found.on_device.cycles == found.total["cycles"] + 1000
    words = "the time model on an ideal memory; the largest difference is the load engine waiting for the bus, "
    assert words in found.findings[-1]
    for wrong, message in (({"model_sha256": "0"}, "[other-run]"), ({"machine": 1}, "[other-run]"),
                           ({"format": 9}, "[damaged-counters]"), ({"cycles": []}, "[damaged-counters]"),
                           ({"counters": {}}, "[damaged-counters]")):
        Path("wrong.json").write_text(json.dumps({**counts, **wrong}))
        assert message in error_line(capsys, 1, "report", counted, "--run", "wrong.json"), wrong
    Path("deep.json").write_text('{"x": ' + "[" * 100_000)
    assert "[damaged-counters]" in error_line(capsys, 1, "report", counted, "--run", "deep.json")
    assert "--counters goes with --target board" in error_line(
        capsys, 2, "run", counted, "--input", "x.npz", "--counters", "d.json")
    assert "are both d.npz" in error_line(capsys, 2, "run", counted, "--input", "x.npz", "--target", "board",
                                          "-o", "d.npz", "--counters", "./d.npz")
    assert "--run is of one model" in error_line(capsys, 2, "report", counted, counted, "--run", "c.json")


@pytest.mark.full
def test_a_device_in_a_browser(counted: str, tmp_path: Path):
    assert main(["report", counted, "--run", "c.json", "--memory", "ecp5", "-o", "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path, canvases=7)


@pytest.mark.full
@pytest.mark.parametrize("network", ["mlperf_resnet8_int8", "coral_mnv2_10_224_uint8"])
def test_of_known_networks_in_a_browser(network: str, models: Path, tmp_path: Path):
    assert main(["report", str(models / f"{network}.onnx"), "--features", "fusion,gather", "-o", "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path, canvases=6)


@pytest.mark.full
@pytest.mark.parametrize("network", ["ssd-mobilenetv1", "yolov3-tiny-boxes"])
def test_of_detectors_in_a_browser(network: str, tmp_path: Path):
    """What follows the convolutions of their heads runs on the processor."""
    assert main(["zoo", network, "-o", "f.onnx", "--pictures", "x.npz"]) == 0
    assert main(["quantize", "f.onnx", "--calibrate", "x.npz", "-o", "q.onnx"]) == 0
    assert main(["report", "q.onnx", "--features", "fusion,gather", "-o", "page.html"]) == 0
    assert "On the processor" in (tmp_path / "page.html").read_text()
    require_usable(tmp_path / "page.html", tmp_path, canvases=5)


@pytest.mark.full
def test_of_streams_in_a_browser(digits: Path, tmp_path: Path):
    assert main(["quantize", str(digits / "digits_float.onnx"), "--symmetric", "-o", "s.onnx", "--calibrate",
                 str(digits / "digits_test.npz")]) == 0
    assert main(["report", "s.onnx", "--macs", "64", "--features", "stochastic", "--stochastic", "64", "-o",
                 "page.html"]) == 0
    require_usable(tmp_path / "page.html", tmp_path, canvases=6)
