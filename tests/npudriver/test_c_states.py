"""Outputs that a model in C keeps as inputs of the next inference: `deploy --language c --state OUTPUT=INPUT`."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from boards.registry import get_board
from gen.cli import main
from gen.deploy.c_model import write_c_package
from gen.deploy.c_states import StateError
from gen.run.application import Application, open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from tests.c_models import compile_model
from tests.c_models import run_model as run_example
from tests.c_targets import TARGETS, build, require
from tests.gen.cli.calls import error_line
from tests.gen.qdq import Builder
from tests.npudriver.compiled_c import compiler
from tests.npudriver.small import CONFIG
from tests.piped_device import run_piped

HIDDEN, SAMPLES = 12, 6
BOARD = get_board("zu3eg")
STATES = {"h0": "h", "sum0": "c", "d1": "x", "d2": "d1"}


def recurrent(rng: np.random.Generator, *, point: int = 0) -> onnx.ModelProto:
    """An Elman network whose tanh is the processor's, with a leaky sum of bytes ``c`` that the accelerator computes
    whole, and a line of two delays. The zero point of the byte that is kept is ``point`` as an output, 0 as an input.
    """
    b = Builder(rng, number=np.int8)
    x, h = b.input(1, 5, 1, 1, number=np.float32), b.input(1, HIDDEN, 1, 1, number=np.float32, name="h0")
    c = b.input(1, HIDDEN, 1, 1, name="sum0")
    b.input(1, 5, 1, 1, number=np.float32, name="d1")
    d2 = b.input(1, 5, 1, 1, number=np.float32, name="d2")
    own = b.node("Conv", b.requantize(x, 0.05, 0), b.weights(HIDDEN, 5, 1, 1))
    back = b.node("Conv", b.requantize(h, 1 / 128, 0), b.weights(HIDDEN, HIDDEN, 1, 1))
    total = b.requantize(b.node("Add", b.requantize(own, 0.03, 0), b.requantize(back, 0.02, 0)), 0.04, 0)
    b.nodes.append(onnx.helper.make_node("Tanh", [total], ["h"], name="tanh"))
    leaky = b.node("Conv", b.dequantize(c, 0.02, 0), b.weights(HIDDEN, HIDDEN, 1, 1))
    summed = b.node("Add", b.requantize(leaky, 0.02, 0), b.requantize("h", 1 / 128, 0))
    b.nodes.append(onnx.helper.make_node("QuantizeLinear", [summed, b.scale(0.02), b.point(point)], ["c"], name="c"))
    late = b.node("Add", b.requantize(d2, 0.05, 0), b.requantize(x, 0.05, 0))
    b.output(b.node("Conv", b.requantize(late, 0.1, 0), b.weights(3, 5, 1, 1)), np.float32)
    for name, number in (("h", np.float32), ("c", np.int8), ("x", np.float32), ("d1", np.float32)):
        b.output(name, number)
    return b.build()


def opened(model: onnx.ModelProto, folder: Path) -> Application:
    path = folder / "recurrent.onnx"
    path.write_bytes(model.SerializeToString())
    return open_application(path, CONFIG)


def stepped(application: Application, xs: np.ndarray) -> list[dict[str, np.ndarray]]:
    """What Python makes of samples one after the other, its outputs given back as inputs."""
    values = {name: np.zeros(spec.shape, spec.dtype) for name, spec in application.inputs.items()}
    found = []
    for x in xs:
        values["x"] = x[None]
        outputs = run_model(application, Samples(dict(values), None, None), "reference").inferences[0].outputs
        values |= {name: outputs[output].reshape(values[name].shape) for name, output in STATES.items()}
        found.append(outputs)
    return found


@pytest.mark.parametrize("target", ["gcc-sanitized", "clang-sanitized", "armv7", "riscv32"])
def test_as_python_does_step_by_step(target: str, rng: np.random.Generator, tmp_path: Path) -> None:
    require(TARGETS[target])
    application = opened(recurrent(rng), tmp_path)
    assert len(application.segments) > 1
    xs = rng.uniform(-3, 3, (SAMPLES, 5, 1, 1)).astype(np.float32)
    model = write_c_package(tmp_path / "c", application, Samples({"x": xs}, None, None), BOARD,
                            states=STATES)
    assert [port.name for port in model.inputs] == ["x"] and [state.port.name for state in model.states] == [*STATES]
    answers = run_piped(build(tmp_path / "c", TARGETS[target]), CONFIG, [[x.tobytes()] for x in xs],
                        [np.dtype(port.dtype).itemsize for port in model.outputs])
    expected = stepped(application, xs)
    assert len({step["c"].tobytes() for step in expected}) == SAMPLES
    for step, outputs in zip(expected, answers.outputs, strict=True):
        for number, port in enumerate(model.outputs):
            found = np.frombuffer(outputs[number][1], port.dtype)
            wanted = step[port.name].ravel()
            if port.dtype == "int8":
                assert np.array_equal(found, wanted)
            else:
                assert np.allclose(found, wanted, rtol=0, atol=1e-5)


def test_calls(rng: np.random.Generator, tmp_path: Path) -> None:
    """Reset, states that are read and put back, samples that are lost, and calls that come too early."""
    require(TARGETS["gcc-sanitized"])
    application = opened(recurrent(rng), tmp_path)
    folder = tmp_path / "c"
    write_c_package(folder, application, Samples({"x": np.ones((1, 5, 1, 1), np.float32)}, None, None), BOARD,
                    states=STATES)
    command = build(folder, TARGETS["gcc-sanitized"], program="piped_states.c")
    assert run_piped(command, CONFIG, [], []).status is None


@pytest.mark.rtl
def test_the_example_begins_anew(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture) -> None:
    """On the Verilog. The command writes it, and its samples lack what is kept."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(recurrent(rng).SerializeToString())
    np.savez("x.npz", x=rng.uniform(-3, 3, (2, 5, 1, 1)).astype(np.float32))
    words = [word for name, output in STATES.items() for word in ("--state", f"{output}={name}")]
    assert main(["deploy", "m.onnx", "--macs", "16", "--language", "c", "-o", "folder", "--input", "x.npz", "--json",
                 *words]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["states"] == [*STATES] and facts["inputs"] == ["x"]
    done = run_example(compile_model(Path("folder"), CONFIG, compiler()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 values differ from the expected ones\n", "")


@pytest.mark.parametrize(("words", "said"), [
    (["h"], "must be OUTPUT=INPUT"),
    (["nothing=h0"], "the model has no output nothing, but conv"),
    (["h=nothing"], "the model has no input nothing, but x, h0, sum0, d1, d2"),
    (["h=h0", "c=h0"], "h0 has the output h already"),
    (["c=h0"], "the output is int8 1 x 12 x 1 x 1, the input float32 1 x 12 x 1 x 1"),
    (["h=d1"], "the output is float32 1 x 12 x 1 x 1, the input float32 1 x 5 x 1 x 1"),
    (["c=sum0"], "the output has scale 0.02 and zero point 3, the input scale 0.02 and zero point 0; quantise both"),
    (["h=h0", "c=sum0", "x=d1", "d1=d2", "x=x"], "one at least must come from outside"),
])
def test_what_cannot_be_kept(words: list[str], said: str, rng: np.random.Generator, tmp_path: Path,
                             monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """One line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(recurrent(rng, point=3).SerializeToString())
    assert main(["deploy", "m.onnx", "--macs", "16", "--language", "c", "-o", "folder",
                 *(f"--state={word}" for word in words)]) == 2
    *_, line = capsys.readouterr().err.splitlines()     # after what would leave the processor less
    assert re.search(re.escape(said), line) and "[unfit-state]" in line and not Path("folder").exists()


def test_python_has_no_states(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                              capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(recurrent(rng).SerializeToString())
    line = error_line(capsys, 2, "deploy", "m.onnx", "--macs", "16", "-o", "folder", "--state", "h=h0")
    assert "--state goes with --language c" in line


def test_a_size_that_depends_on_the_data_is_not_kept(tmp_path: Path) -> None:
    b = Builder(np.random.default_rng(1))
    x, old = b.input(1, 4, 6, 6, number=np.float32), b.input(1, 2, 144, number=np.int64, name="old")
    y = b.node("Conv", b.requantize(x, 0.05, 0), b.weights(4, 4, 1, 1))
    b.output(b.node("NonZero", b.node("Relu", b.requantize(y, 0.05, 0))), np.int64, rank=2)
    b.output(b.node("Add", old, b.constant(np.array([1]))), np.int64, rank=3)
    application = opened(b.build(), tmp_path)
    samples = Samples({"x": np.ones((1, 4, 6, 6), np.float32)}, None, None)
    with pytest.raises(StateError, match="depends on the data"):
        write_c_package(tmp_path / "c", application, samples, BOARD, states={"old": application.outputs[0]})
