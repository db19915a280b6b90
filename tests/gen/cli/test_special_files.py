"""FIFOs and devices where a file belongs: refused in one line, not opened, which would wait or never end."""

import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from onnx import TensorProto, helper

import npudriver.__main__ as driver
from gen.cli import main
from npudriver.arrays import read_arrays, write_arrays
from npudriver.model import Deployment
from tests.gen.cli.calls import error_line
from tests.gen.cli.file_lines import LINES, NAMES
from tests.gen.qdq import Builder


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """Whoever waits for a FIFO is woken."""
    def wake(number: int, frame: FrameType | None) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _arguments(line: str, digits: Path) -> list[str]:
    known = {"MODEL": digits / "digits_int8.onnx", "FLOAT": digits / "digits_float.onnx",
             "SAMPLES": digits / "digits_test.npz"}
    return [str(known.get(word, word)).replace("FILE", "special").replace("FOLDER", "special") for word in line.split()]


def _make(line: str, make: Callable[[Path], None]) -> None:
    for word in line.split():
        if word.startswith("FILE"):
            make(Path(word.replace("FILE", "special")))
        elif word.endswith("FOLDER"):
            Path("special").mkdir()
            for name in NAMES:
                make(Path("special") / name)


@pytest.mark.parametrize("line", LINES)
def test_no_command_opens_one(line: str, digits: Path, capsys: pytest.CaptureFixture):
    """A FIFO: what is not opened there is no device either, which would take all memory."""
    _make(line, os.mkfifo)
    assert main(_arguments(line, digits)) in (1, 2)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("gen ") and "special" in said and "not a regular file" in said


@pytest.mark.parametrize("line", ["disasm FILE.npu", "run FILE.onnx --input SAMPLES", "build --config FILE.json -o y"])
def test_devices(line: str, digits: Path, capsys: pytest.CaptureFixture):
    _make(line, lambda path: path.symlink_to("/dev/null"))
    assert main(_arguments(line, digits)) in (1, 2)
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["disasm FILE.npu", "train FILE.yaml -o y.onnx", "build --config FILE.json -o y"])
def test_sockets(line: str, digits: Path, capsys: pytest.CaptureFixture):
    with socket.socket(socket.AF_UNIX) as listener:
        _make(line, lambda path: listener.bind(str(path)))
    assert main(_arguments(line, digits)) in (1, 2)
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["compile FILE.onnx -o y.npu", "explore FILE.onnx"])
def test_models_larger_than_memory(line: str, digits: Path, capsys: pytest.CaptureFixture):
    """A file of nothing, which takes no place."""
    _make(line, lambda path: path.touch())
    os.truncate("special.onnx", 1 << 34)
    assert main(_arguments(line, digits)) == 1
    assert "special.onnx: 17,179,869,184 bytes, where 2,147,483,647 are the most" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["deploy MODEL --board zu3eg -o package --hardware FOLDER",
                                  "run MODEL --input SAMPLES --target board:litex:FOLDER"])
def test_a_reason_without_number(line: str, digits: Path, capsys: pytest.CaptureFixture):
    """What the system says stands there in words alone."""
    _make(line, os.mkfifo)
    assert main(_arguments(line, digits)) == 1
    assert "damaged (not a regular file)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "info"])
def test_packages(command: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    os.mkfifo(tmp_path / "model.json")
    assert driver.main([command, str(tmp_path)]) == 1
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("location", ["fifo", "n" * 300, "d/" * 3000, "folder", "a\0b"])
def test_weights_beside_a_model(location: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """ONNX's external data."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    Path("m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    os.mkfifo("fifo")
    Path("folder").mkdir()
    assert "initializer w is kept in " in error_line(capsys, 1, "compile", "m.onnx", "-o", "y.npu")


@pytest.mark.parametrize("line", ["deploy MODEL --macs 64 -o package", "compile MODEL --macs 64 -o y.npu",
                                  "deploy MODEL --macs 64 -o package.tar.gz"])
def test_a_full_disk_has_a_name(line: str, digits: Path, capsys: pytest.CaptureFixture):
    """Here it is a limit of the process, which fails as a full disk does, in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        said = error_line(capsys, 1, *_arguments(line, digits))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"error: {line.split()[-1]}: File too large" in said
    assert list(Path().iterdir()) == []


def test_a_cache_that_is_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    Path("file").touch()
    for chosen in ("file", "file/deeper"):
        monkeypatch.setenv("NPUGEN_BUILD", chosen)
        said = error_line(capsys, 1, "bench", "layers", "--macs", "16")
        assert f"NPUGEN_BUILD={chosen}: file is no folder" in said


@pytest.mark.slow
def test_yaml_that_is_no_yaml(digits: Path, capsys: pytest.CaptureFixture):
    """PyYAML raises errors of its own, and Python's for numbers and dates."""
    for value in ("9" * 5000, "0x" + "f" * 5000, "2001-99-99", "1:" * 3000 + "1", "!!int ''", "!!python/object:os.x {}",
                  "!!float x", "[" * 3000, "&a [*a, *a]", "{a: &a [*a]}", "? {[1]: 2}\n: 3", "!!timestamp 0000-00-00",
                  "!!binary '@'", "!!set {[1]}", "!!omap [1]", "!!bool maybe"):
        Path("s.yaml").write_text(f"macs: [{value}]\n" if "?" not in value else value)
        for argv in (("explore", str(digits / "digits_int8.onnx"), "--space", "s.yaml"),
                     ("train", "s.yaml", "-o", "y.onnx"), ("explore", "s.yaml")):
            assert main(argv) in (1, 2)
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and "internal error" not in said and "s.yaml" in said, said


@pytest.mark.parametrize("name", ["file", "allow_pickle", "self", "args", "label", "path", "arrays", "expected/y"])
def test_inputs_of_names_that_mean_something_in_python(name: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    b = Builder(np.random.default_rng(0))
    x = b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(8, 3, 3, 3))
    b.output(b.quantize(x))
    model = b.build()
    (old,) = [value.name for value in model.graph.input]
    model.graph.input[0].name = name
    for node in model.graph.node:
        node.input[:] = [name if one == old else one for one in node.input]
    Path("m.onnx").write_bytes(model.SerializeToString())
    values = np.random.default_rng(1).integers(-128, 128, (2, 3, 6, 6)).astype(np.int8)
    write_arrays(Path("x.npz"), {name: values})
    assert main(["deploy", "m.onnx", "--macs", "16", "--input", "x.npz", "-o", "package"]) == 0
    kept = read_arrays(Path("package/sample.npz"))
    assert (kept[name] == values).all() and Deployment.load(Path("package")).inputs.keys() == {name}
