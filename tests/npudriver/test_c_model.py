"""Whole models in C: what `deploy --language c` writes, compiled and run on the Verilog."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gen.cli import main
from tests.c_models import compile_model, run_model
from tests.gen.cli.calls import error_line
from tests.gen.qdq import Builder

from .compiled_c import compiler
from .small import CONFIG

#: What is written, but for programs and samples.
_SOURCES = {"Makefile", "bringup.bin", "doctor.c", "main.c", "npugen.c", "npugen.h", "npugen_arm.c", "npugen_arm.h",
            "npugen_bare.c", "npugen_bare.h", "npugen_board.h", "npugen_bringup.h", "npugen_bringup_data.S",
            "npugen_check.c", "npugen_cpu.h", "npugen_doctor.c", "npugen_doctor.h", "npugen_dump.c", "npugen_dump.h",
            "npugen_example.h", "npugen_governor.c", "npugen_governor.h", "npugen_memory.h", "npugen_model.c",
            "npugen_model.h", "npugen_model_data.S", "npugen_model_functions.c", "npugen_power.c", "npugen_power.h",
            "npugen_regs.h", "npugen_uio.c", "npugen_uio.h", "npugen_value.h"}


def _conv(b: Builder, x: str, channels: int, filters: int) -> str:
    return b.requantize(b.node("Conv", x, b.weights(filters, channels, 3, 3), pads=[1, 1, 1, 1]), 0.2)


def whole(b: Builder) -> None:
    """The accelerator has all of it; the input is float, the output classes."""
    y = _conv(b, b.requantize(b.input(1, 3, 8, 8, number=np.float32), 0.05), 3, 8)
    y = b.requantize(b.node("GlobalAveragePool", y), 0.1)
    b.output(b.node("Softmax", b.node("Flatten", y), axis=1), np.float32, rank=2)


def bytes_alone(b: Builder) -> None:
    """Unsigned integers in and out, of a feature map."""
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 20, 5, 6)), b.weights(9, 20, 1, 1))))


def alternating(b: Builder) -> None:
    """The processor is first, between two convolutions, and last; it has the input once more in the end."""
    x = b.input(1, 4, 6, 6, number=np.float32)
    y = _conv(b, b.requantize(b.node("Erf", x), 0.01), 4, 6)
    y = _conv(b, b.requantize(b.node("Erf", y), 0.01), 6, 4)
    b.output(b.node("Add", b.node("Erf", y), x), np.float32)


MODELS = {"whole": (whole, np.float32), "bytes": (bytes_alone, np.uint8), "alternating": (alternating, np.float32)}


def deployed(name: str, seed: int, *options: str) -> Path:
    make, number = MODELS[name]
    b = Builder(np.random.default_rng(seed), number=number if number is np.uint8 else np.int8)
    make(b)
    Path("m.onnx").write_bytes(b.build().SerializeToString())
    assert main(["deploy", "m.onnx", "--macs", "16", "--language", "c", "-o", "folder", *options]) == 0
    return Path("folder")


@pytest.mark.rtl
@pytest.mark.parametrize("name", MODELS)
def test_on_the_verilog(name: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                        capsys: pytest.CaptureFixture) -> None:
    """What comes out is Python's, twice; a value that is not is found."""
    monkeypatch.chdir(tmp_path)
    folder = deployed(name, seed, "--json")
    facts = json.loads(capsys.readouterr().out)
    programs = {f"npugen_model_{part}{number}.bin" for number in range(2 if name == "alternating" else 1)
                for part in ("code", "data")}
    assert {path.name for path in folder.iterdir()} == _SOURCES | programs | {"input_0.bin", "expected_0.bin"}
    if name == "whole":
        subprocess.run(["make", "-s", "doctor", f"CC={compiler()}", "CFLAGS=-O0 -Werror"], cwd=folder, check=True)
        (folder / "doctor").unlink()
    assert facts["language"] == "c" and facts["inputs"] == ["x"] and facts["arena"] % 8 == 0
    example = compile_model(folder, CONFIG, compiler())
    done = run_model(example)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 values differ from the expected ones\n", "")
    wanted = np.frombuffer((folder / "expected_0.bin").read_bytes(), np.uint8 if name == "bytes" else np.float32).copy()
    wanted[3] += 1
    (folder / "expected_0.bin").write_bytes(wanted.tobytes())
    done = run_model(example)
    assert (done.returncode, done.stdout) == (1, "2 values differ from the expected ones\n")
    values = np.frombuffer((folder / "input_0.bin").read_bytes(), np.uint8 if name == "bytes" else np.float32).copy()
    (folder / "input_0.bin").write_bytes(values[:-1].tobytes())
    assert "input_0.bin: has another size than" in run_model(example).stderr
    if name == "whole":     # in "alternating" the processor is first
        values[5] = np.nan
        (folder / "input_0.bin").write_bytes(values.tobytes())
        done = run_model(example)
        assert done.returncode == 1 and done.stderr.startswith("example: preparing: ")


@pytest.mark.rtl
def test_damaged_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = deployed("whole", 1)
    data = bytearray((folder / "npugen_model_data0.bin").read_bytes())
    data[7] ^= 1
    (folder / "npugen_model_data0.bin").write_bytes(data)
    done = run_model(compile_model(folder, CONFIG, compiler()))
    assert done.returncode == 1 and "code or constants are damaged" in done.stderr


@pytest.mark.slow
def test_the_same_model_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        folder = deployed("alternating", 2)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]


def test_what_has_no_c(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                       capsys: pytest.CaptureFixture) -> None:
    """It is named, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    b = Builder(rng)
    y = _conv(b, b.requantize(b.input(1, 4, 6, 6, number=np.float32), 0.05), 4, 4)
    b.output(b.node("Det", y), np.float32, rank=2)
    Path("m.onnx").write_bytes(b.build().SerializeToString())
    line = error_line(capsys, 1, "deploy", "m.onnx", "--macs", "16", "--language", "c", "-o", "folder")
    assert "(Det)" in line and not Path("folder").exists()
    Path("hardware").mkdir()
    line = error_line(capsys, 2, "deploy", "m.onnx", "--macs", "16", "--language", "c", "-o", "folder", "--hardware",
                      "hardware")
    assert "--hardware goes with --language python" in line
