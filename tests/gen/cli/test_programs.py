"""Program files whose header is not what `compile` wrote."""

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gen.cli import main
from tests.gen.cli.calls import error_line
from tests.npu_files import changed, read_files, resealed, write_files


@pytest.fixture
def evil(model: str, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """A program of the digits with entries of its header replaced."""
    assert main(["compile", model, "--macs", "16", "-o", "good.npu"]) == 0
    capsys.readouterr()

    def make(file: str, **changes: object) -> str:
        changed(Path("good.npu"), Path("evil.npu"), lambda header: header.update(changes), file)
        return "evil.npu"

    return make


@pytest.mark.slow
@pytest.mark.parametrize("up", ["../", "", "/"])
def test_a_programs_name_is_no_path(up: str, evil: Callable[..., str], samples: str, tmp_path: Path,
                                    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    (tmp_path / "in").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "in"))
    for victim in (tmp_path / "victim.onnx", tmp_path / "in" / "victim.onnx"):
        victim.write_text("mine")
    name = f"{tmp_path}/victim" if up == "/" else f"{up * 2}victim" if up else "x" * 100_000
    path = evil("program0/program.json", name=name)
    for argv in (["run", path, "--input", samples, "--limit", "1"], ["profile", path, "-o", "p"]):
        assert main(argv) == 0
    there = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert there == {"good.npu", "evil.npu", "victim.onnx", "in/victim.onnx", "p/profile.json", "p/profile.png"}
    assert (tmp_path / "victim.onnx").read_text() == (tmp_path / "in" / "victim.onnx").read_text() == "mine"


@pytest.mark.slow
def test_names_of_a_program_do_not_move_the_cursor(evil: Callable[..., str], capsys: pytest.CaptureFixture):
    files = read_files(Path("good.npu"))
    compiled, program = (json.loads(files[f"program0/{name}.json"]) for name in ("compiled", "program"))
    program |= {"layers": ["same\x1b[2J\n9: end\u202e"] * len(program["layers"]), "name": "a\nb\x07"}
    for layer, name in zip(compiled["layers"], program["layers"], strict=True):
        layer["name"] = name
    write_files(Path("evil.npu"), resealed({**files, "program0/compiled.json": json.dumps(compiled).encode(),
                                            "program0/program.json": json.dumps(program).encode()}))
    path = "evil.npu"
    assert main(["disasm", path]) == main(["profile", path, "-o", "p"]) == 0
    captured = capsys.readouterr()
    assert not {character for character in captured.out if not character.isprintable()} - {"\n"}
    assert "same?[2J?9: end?" in captured.out and len(captured.out) > 10_000


@pytest.mark.parametrize(("file", "changes", "message"), [
    ("program0/program.json", {"inputs": []}, "inputs or outputs are not those of the model inside"),
    ("program0/program.json", {"outputs": []}, "inputs or outputs are not those of the model inside"),
    ("program0/compiled.json", {"layers": []}, "Expected `array` of length >= 1"),
])
def test_a_program_that_is_not_that_of_its_model(file: str, changes: dict, message: str, evil: Callable[..., str],
                                                 samples: str, capsys: pytest.CaptureFixture):
    line = error_line(capsys, 1, "run", evil(file, **changes), "--input", samples, "--target", "functional")
    assert line.startswith("gen run: error: evil.npu: damaged (") and message in line


def test_a_program_for_a_board_of_somebody_elses(evil: Callable[..., str], samples: str, capsys: pytest.CaptureFixture):
    line = error_line(capsys, 1, "run", evil("model.json", board="atari"), "--input", samples)
    assert line.startswith("gen run: error: evil.npu: compiled for an unknown board 'atari'; known: ")
    assert line.rstrip().endswith("(and those in folders that NPUGEN_BOARDS names) [unknown-name]")


def test_a_model_inside_a_program_is_whole(evil: Callable[..., str], model: str, samples: str,
                                           capsys: pytest.CaptureFixture):
    """It may not ask for other files, wherever they are."""
    data = onnx.load(model)
    tensor = data.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret")
    tensor.ClearField("raw_data")
    Path("secret").write_bytes(bytes(100_000))
    for content, message in ((data.SerializeToString(), "evil.npu: the model inside has weights in another file"),
                             (b"\x08\xff", "evil.npu: the model inside is damaged")):
        write_files(Path("evil.npu"), {**read_files(Path("good.npu")), "program0/model.onnx": content})
        assert message in error_line(capsys, 1, "run", "evil.npu", "--input", samples)


def test_program_of_another_configuration(model: str, samples: str, capsys: pytest.CaptureFixture):
    assert main(["compile", model, "--macs", "64", "-o", "digits.npu"]) == 0
    capsys.readouterr()
    line = error_line(capsys, 2, "run", "digits.npu", "--input", samples, "--target", "functional", "--macs", "128")
    assert "compiled for another configuration" in line and "nnz_lanes 2 (program) / 4" in line
    line = error_line(capsys, 2, "profile", "digits.npu", "--density", "0.5")
    assert "compile the model with --density 0.5" in line
    assert main(["run", "digits.npu", "--input", samples, "--macs", "64", "--limit", "1"]) == 0


@pytest.mark.rtl
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
