"""The command line: exit status, one-line errors, JSON, and outputs that are whole or absent."""

import argparse
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from rich.console import Console

from boards.registry import get_board
from cores.config import FEATURES
from gen.cli import COMMANDS, main
from gen.cli.build import default_folder
from gen.cli.machine import add_machine_options, chosen_config
from gen.hw.export import DESCRIPTIONS
from gen.program.program import Program
from gen.run.workload import open_workload
from sim import functional

MODEL, SAMPLES = "digits_int8.onnx", "digits_test.npz"


@pytest.fixture
def model(digits: Path) -> str:
    return str(digits / MODEL)


@pytest.fixture
def samples(digits: Path) -> str:
    return str(digits / SAMPLES)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Commands must not depend on where they are called."""
    monkeypatch.chdir(tmp_path)


def error_line(capsys: pytest.CaptureFixture, status: int, *argv: str) -> str:
    """Run a command that must fail so; returns what it says, after checking that it is one line and nothing else."""
    assert main(argv) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1 and captured.err.startswith("gen"), captured.err
    return captured.err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture):
    assert main([command, "--help"]) == 0
    assert f"python -m gen {command}" in capsys.readouterr().out.split("example:")[1]


def test_names_itself_as_it_was_called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(sys, "argv", ["/opt/bin/npugen"])
    assert main(["run", "--help"]) == 0
    help_text = capsys.readouterr().out
    assert "npugen run examples/" in help_text and "python -m" not in help_text
    assert main(["boards", "--colour"]) == 2
    said = "npugen boards: error: unrecognized arguments: --colour (help: npugen boards --help)\n"
    assert capsys.readouterr().err == said
    assert main(["disasm", "none.npu"]) == 1
    assert capsys.readouterr().err == "npugen disasm: error: none.npu: No such file or directory\n"


def test_modules_where_it_is_called_are_not_ours(model: str):
    """Nor are they Yosys's, which is Python too."""
    for name in ("sim", "random", "platformdirs"):
        Path(f"{name}.py").write_text("raise SystemExit(f'{__file__} was imported')\n")
    done = subprocess.run([sys.executable, "-m", "gen", "build", "--macs", "16", "-o", "out"], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr


def test_it_is_a_module(tmp_path: Path):
    done = subprocess.run([sys.executable, "-m", "gen", "boards", "--json"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert {"zu3eg", "zynq7020", "cyclonev", "ecp5"} <= {board["name"] for board in json.loads(done.stdout)["boards"]}


@pytest.mark.parametrize(("argv", "message"), [
    ((), "required: COMMAND"),
    (("frobnicate",), "invalid choice: 'frobnicate'"),
    (("build", "--board", "x"), "gen build: error: unknown board 'x'; known: cyclonev, de1-soc, ecp5"),
    (("build", "--board", ""), "unknown board ''"),
    (("build", "--macs", "5"), "macs must be one of 16, 32"),
    (("build", "--macs", "many"), "invalid int value: 'many'"),
    (("build", "--oc-lanes", "24"), "oc_lanes must be a power of two"),
    (("build", "--features", "all,gather"), "all and none stand by themselves"),
    (("build", "--features", "depthwise,speed"),
     "no feature 'speed'; there are depthwise, fusion, gather, binary, winograd, table, product, all, or none"),
    (("build", "--macs", "16", "--features", "gather,depthwise"),
     "not 1; leave depthwise out of --features, or take a preset that has it (--macs 32, 64, "),
    (("build", "--pixel-lanes", "1", "--features", "fusion"), "not 1; leave fusion out of --features\n"),
    (("build", "--features", "depthwise", "--binary-rows", "8"), "gather must be 1 with binary_rows"),
    (("compile", "x.onnx", "-o", "y", "--depthwise", "fast"), "invalid choice: 'fast'"),
    (("compile", "x.onnx", "-o", "y", "--winograd", "wide"), "invalid choice: 'wide'"),
    (("compile", "x.onnx", "-o", "y", "--winograd-calibrate", "x.npz"),
     "--winograd-calibrate goes with --winograd narrow"),
    (("build", "--winograd-unit", "3"), "winograd must be 0, 1 or 2, not 3"),
    (("build", "--config", "none.json"), "none.json: No such file"),
    (("build", "--config", "x.json", "--macs", "16"), "--config and --macs exclude each other"),
    (("run", "x.onnx", "--input", "x.npz", "--target", "boards"),
     "must be reference, functional, rtl, or board[:URL], not boards"),
    (("run", "x.onnx", "--input", "x.npz", "--limit", "0"), "must be a whole number of at least 1, not 0"),
    (("run", "x.onnx", "--input", "x.npz", "--limit", "few"), "must be a whole number of at least 1, not few"),
    (("run", "x.onnx"), "required: --input"),
    (("compile", "x.onnx", "-o", "y", "--density", "2"), "must be above 0 and at most 1, not 2"),
    (("profile", "x.onnx", "--clock", "0"), "must be above 0 and at most 10,000 MHz, not 0"),
    (("profile", "x.onnx", "--clock", "nan"), "must be above 0 and at most 10,000 MHz, not nan"),
    (("profile", "x.onnx", "--clock", "1e308"), "must be above 0 and at most 10,000 MHz, not 1e308"),
    (("boards", "--colour"), "gen boards: error: unrecognized arguments: --colour (help: python -m gen boards --help)"),
    (("bench", "weather"), "no part 'weather'; there are layers, "),
    (("bench", "layers", "-o", "x"), "-o is for plots of timing and datapaths"),
    (("compile", "x.onnx", "--config", "c.json", "-o", "c.json"), "would replace what is read"),
])
def test_bad_arguments(argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture):
    assert message in error_line(capsys, 2, *argv)


def test_files_that_are_not_there(model: str, capsys: pytest.CaptureFixture):
    assert "none.onnx: No such file" in error_line(capsys, 1, "run", "none.onnx", "--input", "x.npz")
    assert "none.npz: No such file" in error_line(capsys, 1, "run", model, "--input", "none.npz")
    assert "none.npu: No such file" in error_line(capsys, 1, "disasm", "none.npu")
    assert "none.onnx: No such file" in error_line(capsys, 1, "compile", "none.onnx", "-o", "y.npu")
    assert "none.onnx: No such file" in error_line(capsys, 1, "compare", "none.onnx", "--input", "x.npz")


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 nonsense", None])
def test_files_of_another_kind(content: bytes | None, model: str, samples: str, capsys: pytest.CaptureFixture):
    path = Path("odd.onnx")
    path.write_bytes(Path(model).read_bytes()[:9000] if content is None else content)
    for argv in (("run", str(path), "--input", samples), ("compile", str(path), "-o", "y.npu"), ("disasm", str(path))):
        assert "odd.onnx: " in error_line(capsys, 1, *argv)
    assert not Path("y.npu").exists()


def test_models_and_programs_are_told_apart(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--macs", "64", "-o", "digits.npu"]) == 0
    capsys.readouterr()
    for argv in (("compile", "digits.npu", "-o", "y.npu"), ("compare", "digits.npu", "--input", samples)):
        assert "digits.npu: a program or another zip file, where an ONNX model" in error_line(capsys, 1, *argv)
    assert f"{model}: not a program; the command `compile` makes one" in error_line(capsys, 1, "disasm", model)
    Path("empty.npu").touch()
    for argv in (("disasm", "empty.npu"), ("run", "empty.npu", "--input", samples), ("profile", "empty.npu"),
                 ("compile", "empty.npu", "-o", "y.npu")):
        assert "empty.npu: the file is empty" in error_line(capsys, 1, *argv)
    Path("text.npu").write_text("nonsense")
    assert "text.npu: not a program" in error_line(capsys, 1, "run", "text.npu", "--input", samples)
    assert not Path("y.npu").exists()


def test_a_configuration_has_all_its_fields(model: str, capsys: pytest.CaptureFixture):
    Path("config.json").write_text("{}")
    line = error_line(capsys, 2, "compile", model, "--config", "config.json", "-o", "y.npu")
    assert "config.json: configuration without acc_depth, " in line and "the command `build` writes" in line


def test_names_are_only_names(model: str, samples: str, capsys: pytest.CaptureFixture):
    """Square brackets are no markup, dollars no formula, control characters do not reach the terminal."""
    data = onnx.load(model)
    for node in data.graph.node:
        node.name = f"[/red]$x_{{{node.name}"
    onnx.save(data, "[red] ö$^.onnx")
    assert main(["compile", "[red] ö$^.onnx", "-o", "[red] y.npu"]) == 0
    assert capsys.readouterr().err.startswith("[red] y.npu: 8 layers")
    for argv in (["profile", "[red] y.npu", "-o", "[p]"], ["run", "[red] y.npu", "--input", samples, "--limit", "1"],
                 ["compare", "[red] ö$^.onnx", "--input", samples, "--limit", "1"]):
        assert main(argv) == 0
    assert "[/red]$x_{" in capsys.readouterr().out
    assert "a?[2Jb.onnx: No such file" in error_line(capsys, 1, "compile", "a\x1b[2Jb.onnx", "-o", "y.npu")


@pytest.fixture
def evil(model: str, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """A program of the digits with entries of its header replaced."""
    assert main(["compile", model, "--macs", "16", "-o", "good.npu"]) == 0
    capsys.readouterr()

    def make(**changes: object) -> str:
        with zipfile.ZipFile("good.npu") as source, zipfile.ZipFile("evil.npu", "w") as archive:
            for name in source.namelist():
                content = source.read(name)
                if name == "program.json":
                    content = json.dumps({**json.loads(content), **changes}).encode()
                archive.writestr(name, content)
        return "evil.npu"

    return make


@pytest.mark.parametrize("up", ["../", "", "/"])
def test_a_programs_name_is_no_path(up: str, evil: Callable[..., str], samples: str, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    (tmp_path / "in").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "in"))
    for victim in (tmp_path / "victim.onnx", tmp_path / "in" / "victim.onnx"):
        victim.write_text("mine")
    path = evil(name=f"{tmp_path}/victim" if up == "/" else f"{up * 2}victim" if up else "x" * 100_000)
    for argv in (["run", path, "--input", samples, "--limit", "1"], ["profile", path, "-o", "p"]):
        assert main(argv) == 0
    there = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert there == {"good.npu", "evil.npu", "victim.onnx", "in/victim.onnx", "p/profile.json", "p/profile.png"}
    assert (tmp_path / "victim.onnx").read_text() == (tmp_path / "in" / "victim.onnx").read_text() == "mine"


def test_names_of_a_program_do_not_move_the_cursor(evil: Callable[..., str], capsys: pytest.CaptureFixture):
    layers = json.loads(zipfile.ZipFile("good.npu").read("program.json"))["layers"]
    path = evil(layers=[{**layer, "name": "same\x1b[2J\n9: end\u202e"} for layer in layers], name="a\nb\x07")
    assert main(["disasm", path]) == main(["profile", path, "-o", "p"]) == 0
    captured = capsys.readouterr()
    assert not {character for character in captured.out if not character.isprintable()} - {"\n"}
    assert "same?[2J?9: end?" in captured.out and len(captured.out) > 10_000


@pytest.mark.parametrize(("changes", "message"), [
    ({"inputs": {"other": "image_quantized"}}, "damaged "),
    ({"outputs": {}}, "inputs or outputs are not those of the model inside"),
    ({"board": "atari"}, "damaged (unknown board 'atari'; known: cyclonev"),
    ({"layers": []}, "Expected `array` of length >= 1"),
])
def test_a_program_that_is_not_that_of_its_model(changes: dict, message: str, evil: Callable[..., str], samples: str,
                                                 capsys: pytest.CaptureFixture):
    line = error_line(capsys, 1, "run", evil(**changes), "--input", samples, "--target", "functional")
    assert line.startswith("gen run: error: evil.npu: damaged (") and message in line


def test_a_model_inside_a_program_is_whole(evil: Callable[..., str], model: str, samples: str,
                                           capsys: pytest.CaptureFixture):
    """It may not ask for other files, wherever they are."""
    data = onnx.load(model)
    tensor = data.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    tensor.ClearField("raw_data")
    Path("secret").write_bytes(bytes(100_000))
    evil()
    for content, message in ((data.SerializeToString(), "evil.npu: the model inside has weights in another file"),
                             (b"\x08\xff", "evil.npu: the model inside is damaged")):
        with zipfile.ZipFile("good.npu") as source, zipfile.ZipFile("evil.npu", "w") as archive:
            for name in source.namelist():
                archive.writestr(name, content if name == "model.onnx" else source.read(name))
        assert message in error_line(capsys, 1, "run", "evil.npu", "--input", samples)


def test_long_messages_are_cut(capsys: pytest.CaptureFixture):
    Path("c.json").write_text(json.dumps({"x" * 50_000: 1}))
    line = error_line(capsys, 2, "build", "--config", "c.json")
    assert len(line) < 1100 and line.endswith("...\n")


def test_file_names_are_no_markup(samples: str, capsys: pytest.CaptureFixture):
    Path("[").mkdir()
    Path("[/red].npu").write_text("nonsense")
    assert "[/red].npu: not a program" in error_line(capsys, 1, "run", "[/red].npu", "--input", samples)


def with_output(model: str, output: str) -> str:
    """The model with its output called ``output``."""
    data = onnx.load(model)
    for node in data.graph.node:
        node.output[:] = [output if name == "logits" else name for name in node.output]
    data.graph.output[0].name = output
    onnx.save(data, "x.onnx")
    return "x.onnx"


@pytest.mark.parametrize("name", ["file", "a/b:0"])     # an argument of np.savez; as TensorFlow names them
def test_outputs_of_any_name(name: str, model: str, samples: str):
    argv = ["run", with_output(model, name), "--input", samples, "--limit", "2"]
    assert main([*argv, "-o", "y.npz"]) == 0
    with np.load("y.npz") as outputs:
        assert outputs.files == [name] and outputs[name].shape == (2, 10)


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/../../x", "..\\x"])
def test_outputs_that_are_paths_are_not_written(name: str, model: str, samples: str, capsys: pytest.CaptureFixture):
    argv = ["run", with_output(model, name), "--input", samples, "--limit", "2"]
    line = error_line(capsys, 1, *argv, "-o", "y.npz")
    assert f"output {name} has the name of a path" in line and not Path("y.npz").exists()
    assert main(argv) == 0


def test_configurations_that_have_no_end(model: str, capsys: pytest.CaptureFixture):
    Path("deep.json").write_text("[" * 50_000)
    for path, message in (("deep.json", "configuration is not JSON"), ("/dev/zero", "not a regular file")):
        assert f"{path}: {message}" in error_line(capsys, 2, "compile", model, "--config", path, "-o", "y.npu")


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", "| head -c 1", "2>&-"])
@pytest.mark.parametrize("command", ["boards", "boards --json"])
def test_output_that_nobody_takes(redirection: str, command: str):
    line = f"{sys.executable} -m gen {command} {redirection}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    expected = "gen boards: error: No space left on device\n" if "full" in redirection else ""
    assert (done.stderr, done.returncode) == (expected, 1 if expected else 0)


def test_warnings_are_not_for_users():
    code = ("import runpy, sys, warnings, gen.cli.boards as boards; boards.run = lambda _: warnings.warn('raw'); "
            "sys.argv = ['gen', 'boards']; runpy.run_module('gen', run_name='__main__')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    for options, said in (([], False), (["-W", "default"], True)):
        done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and ("UserWarning: raw" in done.stderr) == said


def test_internal_errors_are_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    def broken(arguments):
        raise KeyError("no such\nthing")

    monkeypatch.setattr("gen.cli.boards.run", broken)
    assert "internal error (KeyError: 'no such\\nthing'); NPUGEN_TRACEBACK=1" in error_line(capsys, 1, "boards")
    monkeypatch.setenv("NPUGEN_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["boards"])


def test_build_writes_everything(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["build", "--board", "zynq7020", "--macs", "16", "--acc-depth", "128", "-o", "out", "--json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["config"]["acc_depth"] == 128 and result["config"]["multiplier_width"] == 25
    names = {"npu.v", "config.json", "register_map.md", "npugen_regs.h", *DESCRIPTIONS, "manifest.json",
             *get_board("zynq7020").project}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {Path(path).name for path in result["files"]} == names
    assert "module npu(" in (tmp_path / "out" / "npu.v").read_text()
    # The configuration that was written is the configuration that is read.
    assert main(["build", "--config", "out/config.json", "--board", "zynq7020", "-o", "again"]) == 0
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_every_machine_has_a_folder_of_its_own():
    board = get_board("zu3eg")
    plain = board.config(64)
    names = [default_folder(board, config).name for config in (
        plain, board.config(64, **plain.feature_fields(["gather", "depthwise"])),
        board.config(64, **plain.feature_fields(["fusion"])), board.config(64, acc_depth=128))]
    assert names[:3] == ["zu3eg-64", "zu3eg-64-depthwise-gather", "zu3eg-64-fusion"]
    assert re.fullmatch("zu3eg-64-[0-9a-f]{8}", names[3])


def test_nothing_of_an_earlier_build_stays(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Resources and projects of another machine go; files of other origin stay."""
    folder = tmp_path / "out"
    assert main(["build", "--board", "zynq7020", "--macs", "16", "-o", "out"]) == 0
    (folder / "resources.json").write_text('{"family": "xc7", "lut": 1, "cells": {}, "components": {}}')
    (folder / "notes.txt").touch()
    assert main(["build", "--board", "ecp5", "--macs", "16", "-o", "out"]) == 0
    common = {"npu.v", "config.json", "register_map.md", "npugen_regs.h", *DESCRIPTIONS, "manifest.json", "notes.txt"}
    assert {path.name for path in folder.iterdir()} == {*common, *get_board("ecp5").project}
    (folder / "Makefile").write_text("all:\n")
    capsys.readouterr()
    line = error_line(capsys, 1, "build", "--board", "ecp5", "--macs", "16", "-o", "out")
    assert "out/Makefile: there is a file that `build` has not made" in line
    assert (folder / "Makefile").read_text() == "all:\n"


def test_read_only_outputs_stay(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    for name, argv in (("y.npu", ("compile", model)), ("y.npz", ("run", model, "--input", samples)),
                       ("profile.json", ("profile", model)), ("npu.v", ("build",))):
        path = tmp_path / name
        path.touch(mode=0o444)
        output = name if path.suffix in (".npu", ".npz") else "."
        assert f"{name}: Permission denied" in error_line(capsys, 1, *argv, "-o", output)
        assert path.read_bytes() == b""


def test_links_are_followed(model: str, tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "y.npu").symlink_to("there/program.npu")
    assert main(["compile", model, "-o", "y.npu"]) == 0
    assert (tmp_path / "y.npu").is_symlink() and Program.load(tmp_path / "there" / "program.npu").layers
    assert main(["compile", model, "-o", "/dev/null"]) == 0


def test_an_interrupt_leaves_nothing(tmp_path: Path):
    """Not a folder of the simulation that was being built, no tool that goes on, and one line."""
    command = [sys.executable, "-m", "gen", "demo", "--macs", "16"]
    environment = {**os.environ, "NPUGEN_BUILD": str(tmp_path / "cache")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        while demo.poll() is None and not list((tmp_path / "cache").glob("rtl/*.tmp/npu/obj")):
            time.sleep(0.05)
        demo.send_signal(signal.SIGTERM)
        _, said = demo.communicate(timeout=60)
    assert demo.returncode == 130 and said.endswith("gen demo: interrupted\n")
    assert all(re.fullmatch(r".+, \d+ s", line) for line in said.splitlines()[:-1]), said
    assert list((tmp_path / "cache").glob("rtl/*")) == []
    tools = [path for path in Path("/proc").glob("[0-9]*/cwd") if _link(path).startswith(str(tmp_path / "cache"))]
    assert tools == []


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_compile_run_disasm(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--macs", "64", "-o", "digits.npu", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    program = Program.load(tmp_path / "digits.npu")
    assert facts["instructions"] == len(program.instructions) and facts["layers"] == len(program.layers)
    argv = ["run", "digits.npu", "--input", samples, "--limit", "3", "--target", "functional"]
    assert main([*argv, "-o", "out/y.npz", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"target", "samples", "outputs", "cycles", "seconds", "host_seconds", "mismatches",
                           "accuracy"}
    assert (result["target"], result["samples"], result["mismatches"]) == ("functional", 3, 0)
    assert result["outputs"] == {"logits": [3, 10]} and result["cycles"] is None
    with np.load(tmp_path / "out" / "y.npz") as outputs, np.load(samples) as data:
        right = outputs["logits"].argmax(1) == data["label"][:3]
    assert result["accuracy"] == pytest.approx(right.mean())
    assert main(["disasm", "digits.npu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == facts["instructions"]
    assert main(["disasm", "digits.npu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instructions"][-1]["operation"] == "end"


def test_features(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--features", "depthwise", "-o", "with.npu"]) == 0
    assert main(["compile", model, "--features", "none", "-o", "without.npu"]) == 0
    assert [Program.load(tmp_path / name).config.depthwise for name in ("with.npu", "without.npu")] == [1, 0]
    assert main(["run", "with.npu", "--input", samples, "--limit", "1", "--target", "functional"]) == 0
    capsys.readouterr()
    line = error_line(capsys, 2, "run", "with.npu", "--input", samples, "--depthwise", "plain")
    assert "compile the model with --depthwise plain" in line
    line = error_line(capsys, 2, "run", "with.npu", "--input", samples, "--features", "none")
    assert "compiled for another configuration" in line and "depthwise 1 (program) / 0" in line


def test_narrow_winograd(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Layers and their shifts are in the program, which computes what the reference does with them."""
    machine = ["--macs", "64", "--features", "winograd"]
    assert main(["compile", model, *machine, "--winograd", "narrow", "-o", "safe.npu"]) == 0
    calibrated = ["--winograd-calibrate", samples]
    assert main(["compile", model, *machine, "--winograd", "narrow", *calibrated, "-o", "fit.npu"]) == 0
    assert main(["compile", model, *machine, "-o", "without.npu"]) == 0
    safe, fit, without = (Program.load(tmp_path / f"{name}.npu").winograd for name in ("safe", "fit", "without"))
    assert without == {} and safe.keys() == fit.keys() and len(safe) == 2
    assert set(safe.values()) == {(2,) * 16} and (2,) * 16 not in fit.values()
    capsys.readouterr()
    for program in ("safe.npu", "fit.npu"):
        assert main(["run", program, "--input", samples, "--limit", "4", "--target", "functional", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert (result["mismatches"], result["accuracy"]) == (0, 1.0)
    line = error_line(capsys, 2, "run", "safe.npu", "--input", samples, "--winograd", "narrow")
    assert "compile the model with --winograd narrow" in line
    line = error_line(capsys, 1, "compile", model, "--winograd", "narrow", "-o", "no.npu")
    assert "need a machine with winograd=1 (--features winograd), not 0" in line
    line = error_line(capsys, 1, "compile", model, *machine, "--winograd", "exact", "-o", "no.npu")
    assert "need a machine with winograd=2 (--winograd-unit 2), not 1" in line


def test_program_of_another_configuration(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--macs", "64", "-o", "digits.npu"]) == 0
    capsys.readouterr()
    line = error_line(capsys, 2, "run", "digits.npu", "--input", samples, "--target", "functional", "--macs", "128")
    assert "compiled for another configuration" in line and "nnz_lanes 2 (program) / 4" in line
    line = error_line(capsys, 2, "profile", "digits.npu", "--density", "0.5")
    assert "compile the model with --density 0.5" in line
    assert main(["run", "digits.npu", "--input", samples, "--macs", "64", "--limit", "1"]) == 0


def test_a_program_has_the_clock_of_its_board(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--board", "ecp5", "--macs", "32", "-o", "digits.npu"]) == 0
    assert main(["build", "--board", "ecp5", "--macs", "32", "-o", "out"]) == 0
    assert main(["compile", model, "--config", "out/config.json", "-o", "any.npu"]) == 0
    for options, said in ((["digits.npu"], "at 85 MHz, target (ecp5)"),
                          (["digits.npu", "--board", "ecp5"], "at 85 MHz, target (ecp5)"),
                          (["digits.npu", "--clock", "50"], "at 50 MHz, given"),
                          (["any.npu", "--board", "ecp5"], "at 85 MHz, target (ecp5)"),
                          (["any.npu"], "at 333 MHz, target (zu3eg)"),
                          ([model, "--board", "zynq7020"], "at 150 MHz, target (zynq7020)")):
        capsys.readouterr()
        assert main(["profile", *options]) == 0
        assert f" inferences a second {said}\n" in capsys.readouterr().out
    for argv in (["profile", "digits.npu"], ["run", "digits.npu", "--input", samples]):
        line = error_line(capsys, 2, *argv, "--board", "zu3eg")
        assert "compiled for the board ecp5, not zu3eg" in line


def test_density_prunes_program_and_reference_alike(model: str, samples: str, capsys: pytest.CaptureFixture):
    argv = ["run", model, "--input", samples, "--limit", "2", "--macs", "64", "-o", "y.npz", "--json"]
    results = []
    for extra in (["--target", "reference"], ["--target", "reference", "--density", "0.25"],
                  ["--target", "functional", "--density", "0.25"]):
        assert main([*argv, *extra]) == 0
        assert json.loads(capsys.readouterr().out)["mismatches"] == (None if "reference" in extra else 0)
        with np.load("y.npz") as outputs:
            results.append(outputs["logits"])
    assert (results[0] != results[1]).any()
    np.testing.assert_array_equal(results[1], results[2])


def test_mismatches_fail(model: str, samples: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    program = open_workload(Path(model), get_board("zu3eg").config(256)).program
    original = functional.run

    def spoiled(config, code, memory, **options):
        original(config, code, memory, **options)
        memory[program.tensors[program.outputs["logits"]].offset * config.beat_bytes] ^= 1
        memory[-1] ^= 1  # behind the last tensor: must not count

    monkeypatch.setattr(functional, "run", spoiled)
    assert main(["run", model, "--input", samples, "--limit", "2", "--target", "functional", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["mismatches"] == 2
    assert "gen run: error: 2 values differ from the reference, first in tensor" in captured.err


def test_a_label_below_zero_is_none(model: str, samples: str, capsys: pytest.CaptureFixture):
    image = np.load(samples)["image"][:3]
    for labels, accuracy in (([-1, -1, -1], None), ([5, -1, 0], 0.5)):  # 5, 7 and 8 are right
        np.savez("x.npz", image=image, label=labels)
        assert main(["run", model, "--input", "x.npz", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["accuracy"] == accuracy
    assert main(["run", model, "--input", "x.npz"]) == 0
    assert "-1" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "compile", "profile", "build"])
def test_output_that_cannot_be_written_is_said_first(
        command: str, model: str, samples: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.run.workload.open_workload", lambda *a, **k: pytest.fail("work was done"))
    monkeypatch.setattr("cores.emit.emit_verilog", lambda *a, **k: pytest.fail("work was done"))
    given = {"run": (model, "--input", samples), "build": ()}.get(command, (model,))
    Path("taken").touch()
    assert "taken/y.npz" in error_line(capsys, 1, command, *given, "-o", "taken/y.npz")
    assert Path("taken").read_bytes() == b""
    if command in ("run", "compile"):
        Path("folder.npz").mkdir()
        assert "folder.npz: Is a directory" in error_line(capsys, 1, command, *given, "-o", "folder.npz")


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.delitem(sys.modules, "gen.cli.boards", raising=False)
    monkeypatch.setitem(sys.modules, "rich.table", None)
    assert "the package rich.table is missing: type `. .venv/bin/activate`" in error_line(capsys, 1, "boards")


def test_outputs_are_npz(model: str, samples: str, capsys: pytest.CaptureFixture):
    line = error_line(capsys, 2, "run", model, "--input", samples, "-o", "y.txt")
    assert "-o y.txt: outputs are written as .npz" in line


def test_what_is_read_is_not_replaced(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert "would replace what is read" in error_line(capsys, 2, "compile", model, "-o", model)
    assert "would replace what is read" in error_line(
        capsys, 2, "compile", model, "--winograd", "narrow", "--winograd-calibrate", samples, "-o", samples)
    assert "would replace what is read" in error_line(capsys, 2, "run", model, "--input", samples, "-o", samples)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_pictures(command: str, model: str, capsys: pytest.CaptureFixture):
    Image.new("RGB", (64, 48)).save("picture.png")
    assert main([command, model, "--input", "picture.png", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["samples"] == 1
    assert captured.err == "picture.png: 64 x 48 RGB converted to 16 x 16 gray; pixels 0..255 are taken as 0..1\n"


def test_compare_with_onnxruntime(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compare", model, "--input", samples, "--limit", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["samples"] == 3 and max(row["largest"] for row in result["layers"]) <= 1


def test_profile_of_the_time_model(model: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["profile", model, "--macs", "64", "--clock", "100", "-o", "out", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert set(profile) == {"memory", "clock_mhz", "clock", "macs", "total", "layers", "host"}
    assert profile["macs"] == 64 and profile["host"] is None
    split = {"useful", "idle_pixels", "idle_lanes", "stalls"}
    assert set(profile["total"]) == {"cycles", "macs", "utilisation", "fps", "dram_bytes"} | split
    for layer in profile["layers"]:
        assert set(layer) == split | {"name", "op", "mode", "cycles", "macs", "useful_macs", "utilisation",
                                      "dram_bytes"}
    total = profile["total"]
    for part in (total, *profile["layers"]):
        work = part["useful"] + part["idle_pixels"] + part["idle_lanes"]
        assert part["cycles"] == work + sum(part["stalls"].values())
    assert total["cycles"] == sum(layer["cycles"] for layer in profile["layers"])
    assert total["macs"] == pytest.approx(total["utilisation"] * 64 * total["cycles"])
    assert total["fps"] == pytest.approx(100e6 / total["cycles"])
    assert json.loads((tmp_path / "out" / "profile.json").read_text()) == profile
    assert (tmp_path / "out" / "profile.png").read_bytes().startswith(b"\x89PNG")


def test_rtl_and_demo(capsys: pytest.CaptureFixture, tmp_path: Path):
    """The demo at its smallest: the Verilog in Verilator gives the bytes of the reference."""
    assert main(["demo", "--macs", "16", "--limit", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["target"], result["samples"], result["mismatches"]) == ("rtl", 2, 0)
    assert result["cycles"] == result["profile"]["total"]["cycles"] == sum(
        layer["cycles"] for layer in result["profile"]["layers"])
    assert Program.load(tmp_path / "build" / "demo" / "digits.npu").config.macs == 16


def test_demo_draws(capsys: pytest.CaptureFixture):
    assert main(["demo", "--macs", "16", "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert "█" in out and "read as" in out
    assert re.search(r" 0 of [\d,]{6,} bytes, in all intermediate tensors, differ from the golden model", out)


def test_tables_for_people(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["run", model, "--input", samples, "--limit", "25"]) == 0
    out = capsys.readouterr().out
    assert "and 5 more" in out and "25 samples on reference" in out and "accuracy" in out
    assert main(["boards"]) == 0
    assert "zu3eg" in capsys.readouterr().out
    assert main(["profile", model]) == 0
    out = capsys.readouterr().out
    assert "inferences a second at 333 MHz, target" in out and "more than 100 %" not in out
    assert main(["profile", model, "--features", "winograd", "--winograd", "narrow"]) == 0
    assert "more than 100 % used: Winograd layers need fewer" in capsys.readouterr().out


def test_a_profile_on_a_boards_memory(model: str, capsys: pytest.CaptureFixture):
    totals = {}
    for memory in ("ideal", "ecp5"):
        assert main(["profile", model, "--macs", "16", "--memory", memory, "--json"]) == 0
        profile = json.loads(capsys.readouterr().out)
        assert profile["memory"] == memory
        totals[memory] = profile["total"]["cycles"]
    assert totals["ecp5"] > 1.2 * totals["ideal"]
    assert main(["profile", model, "--memory", "nosuch"]) == 2
    assert "--memory nosuch: unknown board" in capsys.readouterr().err
    assert main(["run", model, "--input", model, "--memory", "ecp5"]) == 2
    assert "only --target rtl has a memory" in capsys.readouterr().err


def test_a_profile_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch):
    """Names of any length are folded; no column is cropped."""
    from gen.cli import profile

    out = io.StringIO()
    monkeypatch.setattr(profile, "console", Console(file=out, width=80, highlight=False, markup=False))
    total = {"cycles": 12_345_678, "macs": 123_456_789, "utilisation": 0.433, "dram_bytes": 1_234_567,
             "idle_pixels": 1_234_567, "idle_lanes": 2_469_135,
             "stalls": {"wait_weights": 1_234_567, "wait_load": 5_308_641}}
    layer = {**total, "name": "resnet/stage2/block1/conv_a/quantized", "mode": "depthwise"}
    profile.show({"layers": [layer], "total": {**total, "fps": 4.86}, "clock_mhz": 60, "clock": "target"}, "ecp5")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) == 80
    first = next(number for number, line in enumerate(lines) if line.startswith(" resnet"))
    last = next(number for number, line in enumerate(lines) if line.startswith(" total")) - 1
    columns = [lines[first].index("depthw"), lines[first].index("12,345,678"), lines[first].index("load")]
    folded = ["".join(line[start:end].strip() for line in lines[first:last])
              for start, end in ((0, columns[0]), (columns[0], columns[1]), (columns[2], columns[2] + 6))]
    assert folded[:2] == [layer["name"], "depthwise"] and folded[2].replace(" ", "") == "load43%"
    assert lines[first].split()[2:] == ["12,345,678", "43.3", "10.0", "20.0", "10.0", "load", "1,234,567"]


def test_all_features_that_a_machine_can_have(capsys: pytest.CaptureFixture):
    parser = argparse.ArgumentParser()
    add_machine_options(parser)

    def features(*argv: str) -> tuple[list[str], str]:
        config = chosen_config(parser.parse_args(["--features", "all", *argv]))
        named = [name for name, fields in FEATURES.items() if all(getattr(config, field) for field in fields)]
        return named, capsys.readouterr().err

    assert features() == (list(FEATURES), "") == features("--macs", "32", "--binary-rows", "4")
    named, said = features("--macs", "16")
    assert named == ["gather", "binary", "winograd", "table", "product"]
    assert said.startswith("--features all: without depthwise, fusion (nnz_lanes must be") and said.count("\n") == 1
    named, said = features("--winograd-unit", "2", "--pixel-lanes", "1")
    assert named == ["gather", "winograd", "table", "product"]
    assert "without binary (binary_rows must be 0 with winograd=2" in said


def test_results_say_which_machine_they_are_of(model: str, monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture):
    monkeypatch.setattr("cores.emit.emit_verilog", lambda config: "")
    machine = ["--board", "ecp5", "--macs", "16", "--features", "gather"]
    line = "machine: ecp5, 16 MACs, features gather\n"
    assert main(["build", *machine, "-o", "out"]) == 0
    assert capsys.readouterr().err.endswith(line)
    assert main(["compile", model, *machine, "-o", "digits.npu"]) == 0
    assert capsys.readouterr().err.endswith(line)
    assert main(["profile", "digits.npu"]) == 0
    assert capsys.readouterr().out.startswith(line)
    assert main(["compile", model, "--config", "out/config.json", "-o", "any.npu"]) == 0
    assert capsys.readouterr().err.endswith("machine: 16 MACs, features gather\n")
    assert main(["profile", model]) == 0
    assert capsys.readouterr().out.startswith("machine: zu3eg, 256 MACs, features none\n")


def test_units_of_a_bench_keep_the_machine():
    """A part of `bench datapaths` has units of its own, and everything else as the options say."""
    parser = argparse.ArgumentParser()
    add_machine_options(parser)
    arguments = parser.parse_args(["--macs", "64", "--acc-depth", "512", "--features", "depthwise"])
    plain, gathering = chosen_config(arguments, ()), chosen_config(arguments, ("gather",))
    assert (plain.macs, plain.acc_depth, plain.depthwise, plain.gather) == (64, 512, 0, 0)
    assert gathering == dataclasses.replace(plain, gather=1)
    assert chosen_config(arguments).depthwise == 1
