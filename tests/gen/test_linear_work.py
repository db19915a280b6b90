"""Work grows with a model, and not faster: lines that run are counted, function by function.

Of comprehensions, which are a line each, it is instructions of the interpreter.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import onnxruntime.quantization
import pytest

import gen
from cores.config import NpuConfig
from gen.onnx.read import of_proto
from gen.onnx.tokens import tokens
from gen.quantize.options import QuantizeOptions
from gen.quantize.prepare import prepare
from gen.quantize.quantize import quantize
from gen.run.application import open_application
from gen.run.workload import Workload
from tests.gen.float_models import FloatBuilder

#: There is what deals with a model as a whole.
_ROOMS = (*(str(Path(gen.__file__).with_name(room)) for room in ("onnx", "partition", "passes", "quantize", "run")),
          str(Path(onnxruntime.quantization.__file__).parent))
#: Fewer lines than these say nothing.
_FEW = 200
NODES = (10, 40)


def chain(rng: np.random.Generator, nodes: int) -> onnx.ModelProto:
    """Nodes of the processor, one after the other, with a few layers in between."""
    b = FloatBuilder(rng, ["n", 3, 4, 4])
    y = b.same_conv("x", 3, 4)
    for number in range(nodes):
        y = b.node("LpNormalization", y, axis=1)
        if number % 4 == 2:
            y = b.same_conv(y, 4, 4)
    return b.model(b.same_conv(y, 4, 4))


def shifted(rng: np.random.Generator, blocks: int) -> onnx.ModelProto:
    """Blocks with RPReLU and a normalisation, whose sums with constants are many."""
    b = FloatBuilder(rng, [1, 3, 4, 4])

    def shift(value: str) -> str:
        return b.node("Add", value, b.constant(rng.normal(size=(4, 1, 1))))

    y = b.same_conv("x", 3, 4)
    for _ in range(blocks):
        y = shift(shift(b.node("Add", y, b.same_conv(y, 4, 4, kernel=1))))
        y = shift(b.node("PRelu", y, b.constant(rng.uniform(0.1, 0.4, (4, 1, 1)))))
        y = b.node("InstanceNormalization", y, *(b.constant(make(4)) for make in (np.ones, np.zeros)))
    return b.model(b.same_conv(y, 4, 4))


def counted(run: Callable[[], Any]) -> tuple[Any, Counter[str]]:
    """What ``run`` gives; and function -> lines that it took, without those of functions that it calls."""
    counts: Counter[str] = Counter()

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "opcode"):
            counts[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1
        return step

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_ROOMS):
            return None
        frame.f_trace_opcodes = frame.f_code.co_name.startswith("<")
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        result = run()
    finally:
        sys.settrace(before)
    return result, counts


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
def test_nodes_left_to_the_processor(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the nodes, and the layers between them, are quantised, cut and imported with four times the work."""
    monkeypatch.setattr(Workload, "require_fit", lambda self: None)     # mapping is of each layer by itself, and long
    x, path = rng.normal(size=(2, 3, 4, 4)).astype(np.float32), tmp_path / "chain.onnx"
    work: list[Counter[str]] = []
    for nodes in NODES:
        model = chain(rng, nodes)
        found, quantising = counted(lambda model=model: quantize(model, {"x": x}, QuantizeOptions(method="minmax")))
        onnx.save(found.model, path)
        application, compiling = counted(lambda: open_application(path, NpuConfig.preset(16)))
        assert len(application.partition.host) == nodes
        work.append(quantising + compiling)
    _require_linear(*work)


def _require_linear(few: Counter[str], many: Counter[str]) -> None:
    grown = {name: many[name] / max(few[name], _FEW / 4) for name in many if many[name] > _FEW}
    assert grown and many.total() > 10_000
    assert not {name: round(factor, 1) for name, factor in grown.items() if factor > 1.25 * NODES[1] / NODES[0]}


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
def test_shifts(rng: np.random.Generator) -> None:
    """Of four times the blocks with four times the work."""
    work: list[Counter[str]] = []
    for blocks in (NODES[0] // 2, NODES[1] // 2):
        model = shifted(rng, blocks)
        work.append(counted(lambda model=model: prepare(model))[1])
    _require_linear(*work)


def encoder(rng: np.random.Generator, blocks: int) -> onnx.ModelProto:
    """Blocks of attention of one head, with one mask that the input makes, and other readers of the masked scores."""
    b = FloatBuilder(rng, [1, 4, 8], opset=17)
    least = b.node("Transpose", b.node("ReduceMin", "x", axes=[2]), perm=[0, 2, 1])
    mask, y = b.node("Mul", least, b.constant(np.float32(-1e9))), "x"
    for _ in range(blocks):
        left, right = (b.node("MatMul", y, b.weights(8, 8)) for _ in range(2))
        scores = b.node("Add", b.node("MatMul", left, b.node("Transpose", right, perm=[0, 2, 1])), mask)
        y = b.node("Add", b.node("MatMul", b.node("Softmax", scores), y), b.node("MatMul", scores, y))
        y = b.node("LayerNormalization", y, *(b.constant(make(8)) for make in (np.ones, np.zeros)))
    return b.model(y)


@pytest.mark.slow
@pytest.mark.skipif(sys.gettrace() is not None, reason="something else traces")
def test_masks(rng: np.random.Generator) -> None:
    """Of four times the blocks with four times the work."""
    _require_linear(*(counted(lambda model=model: tokens(of_proto("", prepare(model))))[1]
                      for model in (encoder(rng, 10), encoder(rng, 40))))
