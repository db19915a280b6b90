"""Arguments of the command line: help, what is refused, and what machine they describe."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import pytest

from boards.presets import preset_of
from boards.registry import get_board
from cores.config import COMPUTING_FEATURES
from gen.cli import COMMANDS, main
from gen.cli.bench_part import Part
from gen.cli.build import default_folder
from gen.cli.machine import add_machine_options, chosen_config
from tests.gen.cli.calls import error_line


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
    assert capsys.readouterr().err == "npugen disasm: error: none.npu: No such file or directory [unreadable-file]\n"


def test_no_command_is_the_help(capsys: pytest.CaptureFixture):
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize(("argv", "message"), [
    (("frobnicate",), "invalid choice: 'frobnicate'"),
    (("build", "--board", "x"), "gen build: error: unknown board 'x'; known: cyclonev, de1-soc, ecp5"),
    (("build", "--board", ""), "unknown board ''"),
    (("build", "--macs", "5"), "macs must be one of 16, 32"),
    (("build", "--macs", "many"), "invalid int value: 'many'"),
    (("build", "--oc-lanes", "24"), "oc_lanes must be a power of two"),
    (("build", "--features", "all,gather"), "all, auto and none stand by themselves"),
    (("build", "--features", "depthwise,speed"),
     "no feature 'speed'; there are depthwise, fusion, gather, binary, winograd, table, product, "),
    (("build", "--macs", "16", "--features", "gather,depthwise"),
     "not 1; leave depthwise out of --features, or take a preset that has it (--macs 32, 64, "),
    (("build", "--pixel-lanes", "1", "--features", "fusion"),
     "not 1; leave fusion out of --features [configuration-rule]\n"),
    (("build", "--features", "depthwise", "--binary-rows", "8"), "gather must be 1 with binary_rows"),
    (("compile", "x.onnx", "-o", "y", "--depthwise", "fast"), "invalid choice: 'fast'"),
    (("compile", "x.onnx", "-o", "y", "--winograd", "wide"), "invalid choice: 'wide'"),
    (("compile", "x.onnx", "-o", "y", "--stochastic", "a=64,b=32, a =8"), "has layer a more than once"),
    (("compile", "x.onnx", "-o", "y", "--winograd-calibrate", "x.npz"),
     "--winograd-calibrate goes with --winograd narrow"),
    (("compile", "x.onnx", "-o", "y", "--stochastic", "65"), "length must be a power of two from 8 to 1024, not 65"),
    (("compile", "x.onnx", "-o", "y", "--stochastic", "64:128"), "made must be a power of two from 8 to 64, not 128"),
    (("compile", "x.onnx", "-o", "y", "--stochastic", "many"), "must be bits of a stream, such as 64 or 256:64, not"),
    (("compile", "x.onnx", "-o", "y", "--stochastic", "=64"), "must be layers and their streams, such as fc1=64"),
    (("run", "x.onnx", "--input", "x.npz", "--stream-shift", "0,8"), "must be whole numbers from 0 to 7, not 0,8"),
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


def test_a_configuration_has_all_its_fields(model: str, capsys: pytest.CaptureFixture):
    Path("config.json").write_text("{}")
    line = error_line(capsys, 2, "compile", model, "--config", "config.json", "-o", "y.npu")
    assert "config.json: configuration without acc_depth, " in line and "the command `build` writes" in line


def test_long_messages_are_cut(capsys: pytest.CaptureFixture):
    Path("c.json").write_text(json.dumps({"x" * 50_000: 1}))
    line = error_line(capsys, 2, "build", "--config", "c.json")
    assert len(line) < 1100 and line.endswith("... [configuration-file]\n")


def test_configurations_that_have_no_end(model: str, capsys: pytest.CaptureFixture):
    Path("deep.json").write_text("[" * 50_000)
    for path, message in (("deep.json", "configuration is not JSON"), ("/dev/zero", "not a regular file")):
        assert f"{path}: {message}" in error_line(capsys, 2, "compile", model, "--config", path, "-o", "y.npu")


def test_all_features_that_a_machine_can_have(capsys: pytest.CaptureFixture):
    parser = argparse.ArgumentParser()
    add_machine_options(parser)

    def features(*argv: str) -> tuple[list[str], str]:
        config = chosen_config(parser.parse_args(["--features", "all", *argv]))
        return config.features, capsys.readouterr().err

    assert features() == (list(COMPUTING_FEATURES), "") == features("--macs", "32", "--binary-rows", "4")
    named, said = features("--macs", "16")
    assert named == ["gather", "binary", "winograd", "table", "product", "stochastic", "rows", "turn"]
    assert said.startswith("--features all: without depthwise, fusion (nnz_lanes must be") and said.count("\n") == 1
    named, said = features("--winograd-unit", "2", "--pixel-lanes", "1")
    assert named == ["gather", "winograd", "table", "product", "rows"]
    assert "without binary (binary_rows must be 0 with winograd=2" in said


def test_lanes_by_hand_that_need_a_choice_of_their_own_have_features():
    parser = argparse.ArgumentParser()
    add_machine_options(parser)
    config = chosen_config(parser.parse_args([
        "--macs", "1024", "--for", "dense", "--ic-lanes", "32", "--select-fanin", "2", "--features", "gather"]))
    assert (config.macs, config.ic_lanes, config.select_fanin, config.gather) == (1024, 32, 2, 1)


def test_units_of_a_bench_keep_the_machine():
    """A part of `bench datapaths` has units of its own, and everything else as the options say."""
    parser = argparse.ArgumentParser()
    add_machine_options(parser)
    arguments = parser.parse_args(["--macs", "64", "--acc-depth", "512", "--features", "depthwise"])
    plain, gathering = chosen_config(arguments, ()), chosen_config(arguments, ("gather",))
    assert (plain.macs, plain.acc_depth, plain.depthwise, plain.gather) == (64, 512, 0, 0)
    assert gathering == dataclasses.replace(plain, gather=1)
    assert chosen_config(arguments).depthwise == 1


def test_a_bench_that_measures_nothing_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture):
    """What was asked for must be there; of all that there is, what is left out is said."""
    monkeypatch.setenv("NPUGEN_MODELS", str(tmp_path / "none"))
    for argv in (["networks"], ["networks", "quantization", "--json"]):
        assert main(["bench", *argv]) == 1
        assert "gen bench: error: not measured: networks" in capsys.readouterr().err
    parts = {"one": Part("one", "", lambda _: [{"x": 1}]), "two": Part("two", "", lambda _: [])}
    monkeypatch.setattr("gen.cli.bench.PARTS", parts)
    assert main(["bench"]) == 0
    assert capsys.readouterr().err == "left out: two\n"


def test_what_a_preset_is_for(capsys: pytest.CaptureFixture, tmp_path: Path):
    parser = argparse.ArgumentParser()
    add_machine_options(parser)
    board = get_board("zu3eg")
    config = chosen_config(parser.parse_args(["--macs", "64", "--for", "dense"]))
    assert config == board.config(64, "dense") != board.config(64)
    assert default_folder(board, config).name == "zu3eg-64-dense"
    assert default_folder(board, board.config(64, "dense", gather=1)).name == "zu3eg-64-gather-dense"
    (tmp_path / "config.json").write_text(config.to_json())
    assert chosen_config(parser.parse_args(["--for", "dense", "--features", "depthwise"])).own_taps
    assert "(default 256, with --for tiny 16)" in " ".join(parser.format_help().split())
    both = ["--config", str(tmp_path / "config.json"), "--for", "dense"]
    assert main(["build", *both, "-o", str(tmp_path / "out")]) == 2
    assert "--config and --for exclude each other" in capsys.readouterr().err



@pytest.mark.parametrize("usual, purpose, macs", [
    (256, None, 256), (256, "dense", 256), (256, "tiny", 16), (16, "tiny", 16), (64, "tiny", 16), (64, "dense", 64)])
def test_each_purpose_has_a_size_by_default(usual: int, purpose: str | None, macs: int):
    parser = argparse.ArgumentParser()
    add_machine_options(parser, macs=usual)
    arguments = parser.parse_args([] if purpose is None else ["--for", purpose])
    assert chosen_config(arguments) == get_board("zu3eg").config(macs, purpose or "sparse")
    assert default_folder(get_board("zu3eg"), chosen_config(arguments)).name == "-".join(
        ["zu3eg", str(macs), *([purpose] if purpose else [])])


def test_a_machine_as_the_options_of_build():
    board = get_board("zu3eg")
    for config, purpose in ((board.config(16, "tiny", gather=1), "tiny"), (board.config(64), "sparse"),
                            (board.config(64, acc_depth=512), None)):
        assert preset_of(board, config) == purpose
