"""What a command takes that hears nothing about the machine: units for its model (docs/decisions/0023)."""

import argparse
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cores.config import NpuConfig
from gen.cli import main
from gen.cli.machine import add_machine_options, chosen_config
from gen.explore import choice
from gen.program.file import ProgramFile
from gen.program.program import Program
from gen.run import calibration
from npudriver import DeviceError
from tests.gen.cli.calls import error_line
from tests.gen.cli.gated import gated


@pytest.fixture(autouse=True)
def _own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "results"))


def config_of(program: str) -> NpuConfig:
    return next(segment for segment in ProgramFile.load(Path(program)).segments if isinstance(segment, Program)).config


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on a choice is an error."""
    def forbid() -> None:
        monkeypatch.setattr(choice, "choose", lambda *_: pytest.fail("a choice was made"))

    return forbid


@pytest.mark.slow
def test_the_line_builds_the_machine(capsys: pytest.CaptureFixture, forbidden: Callable[[], None]):
    """The command in `compile`'s line describes the program's machine, which is not the plain one. What has been chosen
    is chosen at once the next time, by every command, and with other options it is not."""
    gated("Sigmoid")
    assert main(["compile", "m.onnx", "-o", "a.npu"]) == 0
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("machine: ")]
    built = re.fullmatch(r"machine: zu3eg, 256 MACs, features (.*); built by: .* build (.*)", line)
    assert built and "table" in built[1], line
    parser = argparse.ArgumentParser()
    add_machine_options(parser)
    assert chosen_config(parser.parse_args(shlex.split(built[2]))) == config_of("a.npu")
    forbidden()
    assert main(["compile", "m.onnx", "-o", "b.npu"]) == 0
    assert Path("b.npu").read_bytes() == Path("a.npu").read_bytes()
    capsys.readouterr()
    assert main(["compile", "m.onnx", "-o", "b.npu", "--no-check", "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)["machine"]
    assert line == f"machine: zu3eg, 256 MACs, features {', '.join(machine['features'])}; built by: {machine['build']}"
    assert (machine["board"], machine["macs"]) == ("zu3eg", 256)
    for argv in (["run", "m.onnx", "--input", "x.npz"], ["profile", "m.onnx"], ["report", "m.onnx", "-o", "r.html"],
                 ["deploy", "m.onnx", "-o", "package"]):
        assert main(argv) == 0
        said = capsys.readouterr().err
        assert "for m.onnx: --for sparse --features " in said, argv
        assert f"the machine is built by: {machine['build']}\n" in said, argv


@pytest.mark.slow
def test_whoever_says_anything_gets_it(capsys: pytest.CaptureFixture, forbidden: Callable[[], None]):
    """A single option of the machine is enough, and a program has its own."""
    gated("Relu")
    forbidden()
    for given in (["--macs", "16"], ["--features", "none"], ["--for", "sparse"], ["--input-depth", "512"]):
        assert main(["compile", "m.onnx", "--no-check", "-o", "a.npu", *given]) == 0
        assert not config_of("a.npu").features and "built by" not in capsys.readouterr().err
    assert main(["profile", "a.npu"]) == 0
    Path("c.json").write_text(config_of("a.npu").to_json())
    assert main(["profile", "m.onnx", "--config", "c.json"]) == 0


@pytest.mark.slow
def test_where_none_can_be_chosen(capsys: pytest.CaptureFixture):
    """The plain machine, and why; an error of the model is one line."""
    gated("Relu")
    assert main(["compile", "m.onnx", "--board", "ecp5", "--no-check", "-o", "a.npu"]) == 0
    said = capsys.readouterr().err
    assert "no units are chosen for the model, with 256 MACs on ecp5: does not fit: dsp" in said
    assert "the plain machine is taken, --macs, --features or --board say another" in said
    assert not config_of("a.npu").features
    Path("broken.onnx").write_bytes(b"no model")
    assert "broken.onnx" in error_line(capsys, 1, "compile", "broken.onnx", "-o", "b.npu")
    assert "none.npz: No such file" in error_line(capsys, 1, "run", "m.onnx", "--input", "none.npz")


def test_a_device_is_another_machine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Where nothing said what the machine is the message says how."""
    def other(*_: object, **__: object) -> None:
        raise DeviceError("the device is another one", code="other-device", register="config", found=1, expected=2)

    monkeypatch.setattr("gen.run.targets.open_device", other)
    gated("Relu")
    run = ["run", "m.onnx", "--input", "x.npz", "--target", "board:functional"]
    assert main(run) == 1
    assert "so its units were chosen for the model: give --config of the one that is built [other-device]" in (
        capsys.readouterr().err)
    assert error_line(capsys, 1, *run, "--macs", "16", "--features", "table").strip().endswith(
        "the device is another one [other-device]")


@pytest.mark.slow
def test_a_float_model_is_quantised_once(digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    made = []
    quantised = calibration._calibrated
    monkeypatch.setattr(calibration, "_calibrated", lambda *given: made.append(given) or quantised(*given))
    model = [str(digits / "digits_float.onnx"), "--calibrate", str(digits / "digits_test.npz")]
    for command in (["compile", *model, "--no-check", "-o", "a.npu"],
                    ["compile", *model, "--no-check", "-o", "a.npu", "--macs", "64", "--features", "auto"],
                    ["compile", *model, "--no-check", "-o", "a.npu", "--macs", "64", "--for", model[0]],
                    ["profile", *model, "--on", "macs=16", "--on", "macs=64,features=auto"]):
        made.clear()
        assert main(command) == 0
        sides = max(1, command.count("--on"))
        assert len(made) == 1 and capsys.readouterr().err.count("held out: logits") == sides
