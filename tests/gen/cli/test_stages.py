"""While a command works it says at what: the stage, and the segment of the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gen.cli import main
from gen.cli.common import lines
from tests.gen.cli.gated import gated


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be printed if it took long enough."""
    found: list[str] = []

    @contextmanager
    def step(_: object, text: str) -> Iterator[Callable[[str], None]]:
        found.append(text)
        yield lambda remark: found.append(f"{text}: {remark}" if remark else text)

    monkeypatch.setattr(type(lines), "step", step)
    gated("Sigmoid")        # accelerator, processor, accelerator, processor
    return found


def _are_said_in_order(said: list[str], *texts: str) -> None:
    place = iter(said)
    for text in texts:
        assert text in place, f"{text} is not said, or not in time: {said}"


_OPENED = ["importing", "dividing 19 nodes, walk 1", "preparing segment 1 of 4",
           "preparing segment 2 of 4, the processor's", "preparing segment 3 of 4", "mapping segment 1 of 4",
           "mapping segment 3 of 4", "with more units, dividing 19 nodes, walk 1"]
_LOWERED = ["compiling m.onnx: lowering segment 1 of 4", "compiling m.onnx: lowering segment 3 of 4"]


def test_compile(said: list[str]):
    assert main(["compile", "m.onnx", "--macs", "16", "-o", "y.npu"]) == 0
    _are_said_in_order(said, *(f"compiling m.onnx: {text}" for text in _OPENED), *_LOWERED,
                       "comparing with onnxruntime: segment 1 of 4", "comparing with onnxruntime: segment 3 of 4")


@pytest.mark.parametrize(("line", "texts"), [
    ("run m.onnx --input x.npz --target functional", [
        *_LOWERED, "functional: 0 of 1, segment 1 of 4", "functional: 0 of 1, segment 2 of 4, the processor's",
        "functional: 1 of 1"]),
    ("profile m.onnx", [*_LOWERED, "timing: segment 3 of 4", "the processor's part: segment 2 of 4"]),
    ("deploy m.onnx -o package", [
        *_LOWERED, "writing package: 0 of 1 samples, segment 4 of 4, the processor's"]),
])
def test_other_commands(line: str, texts: list[str], said: list[str]):
    assert main([*line.split(), "--macs", "16"]) == 0
    _are_said_in_order(said, *(f"reading m.onnx: {text}" for text in _OPENED), *texts)


def test_compare(said: list[str]):
    """For a machine that has all units: accelerator, processor."""
    assert main(["compare", "m.onnx", "--input", "x.npz"]) == 0
    _are_said_in_order(said, "reading m.onnx", "reading m.onnx: dividing 19 nodes, walk 1",
                       "1 samples on onnxruntime: segment 1 of 2, layers, 0 of 1",
                       "1 samples on onnxruntime: segment 2 of 2, the processor's, 0 of 1")


def test_a_model_in_one_piece(said: list[str], model: str):
    """Has stages, and no segments."""
    assert main(["compile", model, "--macs", "16", "-o", "y.npu"]) == 0
    _are_said_in_order(said, *(f"compiling digits_int8.onnx: {text}" for text in (
        "importing", "preparing its layers", "mapping", "lowering")), "comparing with onnxruntime")
    assert not any("segment" in text for text in said)
