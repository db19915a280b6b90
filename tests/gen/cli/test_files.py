"""Files that commands read and write: absent, of another kind, of evil names; outputs are whole or absent."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.cli import main
from gen.cli.errors import CommandError
from gen.cli.run import require_member_names
from gen.program.file import load_program
from tests.gen.cli.calls import error_line


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
        assert "empty.npu: the file is empty [unreadable-file]" in error_line(capsys, 1, *argv)
    Path("text.npu").write_text("nonsense")
    assert "text.npu: not a program" in error_line(capsys, 1, "run", "text.npu", "--input", samples)
    assert not Path("y.npu").exists()


@pytest.mark.slow
def test_names_are_only_names(model: str, samples: str, capsys: pytest.CaptureFixture):
    """Square brackets are no markup, dollars no formula, control characters do not reach the terminal."""
    data = onnx.load(model)
    for node in data.graph.node:
        node.name = f"[/red]$x_{{{node.name}"
    onnx.save(data, "[red] ö$^.onnx")
    assert main(["compile", "[red] ö$^.onnx", "--features", "none", "-o", "[red] y.npu"]) == 0
    assert "\n[red] y.npu: 8 layers" in capsys.readouterr().err
    for argv in (["profile", "[red] y.npu", "-o", "[p]"], ["run", "[red] y.npu", "--input", samples, "--limit", "1"],
                 ["compare", "[red] ö$^.onnx", "--input", samples, "--limit", "1"]):
        assert main(argv) == 0
    assert "[/red]$x_{" in capsys.readouterr().out
    assert "a?[2Jb.onnx: No such file" in error_line(capsys, 1, "compile", "a\x1b[2Jb.onnx", "-o", "y.npu")


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
    argv = ["run", with_output(model, name), "--features", "none", "--input", samples, "--limit", "2"]
    assert main([*argv, "-o", "y.npz"]) == 0
    with np.load("y.npz") as outputs:
        assert outputs.files == [name] and outputs[name].shape == (2, 10)


def test_outputs_whose_names_begin_with_a_slash(model: str, samples: str):
    """As PyTorch's exporter writes them: a member of an archive would be an absolute path."""
    argv = ["run", with_output(model, "/fc/Gemm_output_0"), "--features", "none", "--input", samples, "--limit", "2"]
    assert main([*argv, "-o", "y.npz"]) == 0
    with np.load("y.npz") as outputs:
        assert outputs.files == ["fc/Gemm_output_0"] and outputs["fc/Gemm_output_0"].shape == (2, 10)


def test_two_outputs_that_would_be_one(model: str):
    with pytest.raises(CommandError, match="outputs x and /x would be one array"):
        require_member_names(Path(model), ["x", "y", "/x"])
    with pytest.raises(CommandError, match="input /a has the name of a path"):
        require_member_names(Path(model), ["x"], ["/a"])


@pytest.mark.parametrize("name", ["../x", "/../x", "/", "a/../../x", "..\\x"])
def test_outputs_that_are_paths_are_not_written(name: str, model: str, samples: str, capsys: pytest.CaptureFixture):
    argv = ["run", with_output(model, name), "--features", "none", "--input", samples, "--limit", "2"]
    line = error_line(capsys, 1, *argv, "-o", "y.npz")
    assert f"output {name} has the name of a path" in line and not Path("y.npz").exists()
    assert main(argv) == 0


@pytest.mark.parametrize("name", ["a\0b", "\0", "x" * 65532, "é" * 32766])
def test_outputs_that_no_archive_can_have(name: str, model: str, samples: str, capsys: pytest.CaptureFixture):
    """A zero ends the name of a member of a zip file, which has at most 65,535 bytes."""
    argv = ["run", with_output(model, name), "--features", "none", "--input", samples, "--limit", "2"]
    assert "has a name that a member of an .npz file cannot have" in error_line(capsys, 1, *argv, "-o", "y.npz")
    assert not Path("y.npz").exists() and main(argv) == 0


def test_the_longest_name_of_an_output(model: str, samples: str):
    test_outputs_of_any_name("x" * 65531, model, samples)


@pytest.mark.slow
def test_read_only_outputs_stay(model: str, samples: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    plain = ("--features", "none")
    for name, argv in (("y.npu", ("compile", model, *plain)), ("y.npz", ("run", model, "--input", samples, *plain)),
                       ("profile.json", ("profile", model, *plain)), ("npu.v", ("build",))):
        path = tmp_path / name
        path.touch(mode=0o444)
        output = name if path.suffix in (".npu", ".npz") else "."
        assert f"{name}: Permission denied" in error_line(capsys, 1, *argv, "-o", output)
        assert path.read_bytes() == b""


def test_links_are_followed(model: str, tmp_path: Path):
    (tmp_path / "there").mkdir()
    (tmp_path / "y.npu").symlink_to("there/program.npu")
    assert main(["compile", model, "--features", "none", "-o", "y.npu"]) == 0
    assert (tmp_path / "y.npu").is_symlink() and load_program(tmp_path / "there" / "program.npu").layers
    assert main(["compile", model, "--features", "none", "-o", "/dev/null"]) == 0


@pytest.mark.parametrize("command", ["run", "compile", "profile", "build"])
def test_output_that_cannot_be_written_is_said_first(
        command: str, model: str, samples: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.run.application.open_application", lambda *a, **k: pytest.fail("work was done"))
    monkeypatch.setattr("cores.emit.emit_verilog", lambda *a, **k: pytest.fail("work was done"))
    given = {"run": (model, "--input", samples), "build": ()}.get(command, (model,))
    Path("taken").touch()
    assert "taken/y.npz" in error_line(capsys, 1, command, *given, "-o", "taken/y.npz")
    assert Path("taken").read_bytes() == b""
    if command in ("run", "compile"):
        Path("folder.npz").mkdir()
        assert "folder.npz: Is a directory" in error_line(capsys, 1, command, *given, "-o", "folder.npz")


def test_outputs_are_npz(model: str, samples: str, capsys: pytest.CaptureFixture):
    line = error_line(capsys, 2, "run", model, "--input", samples, "-o", "y.txt")
    assert "-o y.txt: outputs are written as .npz" in line


def test_what_is_read_is_not_replaced(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert "would replace what is read" in error_line(capsys, 2, "compile", model, "-o", model)
    assert "would replace what is read" in error_line(
        capsys, 2, "compile", model, "--winograd", "narrow", "--winograd-calibrate", samples, "-o", samples)
    assert "would replace what is read" in error_line(capsys, 2, "run", model, "--input", samples, "-o", samples)
