"""What exporters write around layers: transposed inputs, flattened views, sizes that are computed."""

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gen.onnx import passes
from gen.onnx.importer import load
from tests.gen.qdq import Builder
from tests.gen.test_onnx_passes import copied, outputs
from tests.gen.test_partition import check, convolved, cut

Rng = np.random.Generator


def normalised(b: Builder, kind: str, *, opset_18_axes: bool = False) -> onnx.ModelProto:
    """A float model of images with channels last, which does something to them before it transposes them."""
    x = b.input("N", 6, 7, 3, number=np.float32)
    match kind:
        case "scale":
            y = b.node("Mul", x, b.scale(0.5))
        case "channel":
            y = b.node("Sub", x, b.constant(np.float32([1, 2, 3])))
        case "whole":
            y = b.node("Div", x, b.constant(b.rng.uniform(1, 2, (1, 6, 7, 3)).astype(np.float32)))
        case "turned":
            y = b.node("Sub", b.constant(np.float32([[[1, 2, 3]]])), x)
        case "rows":
            y = b.node("Pad", x, b.constant([1, 2]), b.scale(0.3), b.constant([1]))
        case "pad" if opset_18_axes:
            y = b.node("Pad", x, b.constant([1, 0, 0, 2]), b.scale(0.3), b.constant([1, -2]))
        case "pad":
            y = b.node("Pad", x, b.constant([0, 1, 0, 0, 0, 0, 2, 0]), b.scale(0.3))
        case "several":
            y = b.node("Relu", b.node("Add", b.node("Mul", x, b.scale(0.1)), b.constant(np.float32([1, -2, 3]))))
            y = b.node("Pad", b.node("Identity", y), b.constant([0, 1, 1, 0, 0, 0, 0, 0]))
    y = b.node("Transpose", y, perm=[0, 3, 1, 2])
    w = b.constant(b.rng.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32))
    b.output(b.node("Conv", y, w), np.float32)
    return b.build()


@pytest.mark.parametrize("kind", ["scale", "channel", "whole", "turned", "pad", "pad by axes", "rows", "several"])
def test_transposes_of_inputs_come_first(kind: str, rng: Rng) -> None:
    b = Builder(rng, opset=18)
    model = normalised(b, kind.removesuffix(" by axes"), opset_18_axes=kind == "pad by axes")
    changed = passes.hoist_transposes(copied(model))
    onnx.checker.check_model(changed, full_check=True)
    operators = [node.op_type for node in changed.graph.node]
    assert operators[0] == "Transpose" and operators.count("Transpose") == 1
    assert sorted(operators) == sorted(node.op_type for node in model.graph.node)
    samples = b.samples(2)
    for ours, before in zip(outputs(changed, samples), outputs(model, samples), strict=True):
        np.testing.assert_array_equal(ours, before)


@pytest.mark.parametrize("why", ["another reader", "an output", "two inputs", "samples", "wider", "not constant"])
def test_transposes_that_stay(why: str, rng: Rng) -> None:
    b = Builder(rng)
    x = b.input(3 if why == "samples" else "N", *([3] if why == "wider" else [6, 7, 3]), number=np.float32)
    other = {"two inputs": x, "wider": b.constant(np.ones((1, 6, 7, 3), np.float32)),
             "not constant": b.node("Relu", x)}.get(why, b.scale(0.5))
    y = b.node("Mul", x, other)
    b.output(b.node("Transpose", y, perm=[3, 0, 1, 2] if why == "samples" else [0, 3, 1, 2]), np.float32)
    if why == "another reader":
        b.output(b.node("Relu", y), np.float32)
    if why == "an output":
        b.output(y, np.float32)
    model = b.build()
    assert passes.hoist_transposes(copied(model)).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("batch", [1, 3])
def test_flattened_views(batch: int, rng: Rng, tmp_path: Path) -> None:
    """As PyTorch writes a global average: Reshape to one axis, Gather of every element."""
    b = Builder(rng)
    x = b.dequantize(b.input(batch, 5, 6, 6))
    mean = b.requantize(b.node("GlobalAveragePool", x))
    flat = b.node("Reshape", mean, b.constant([-1]))
    view = b.node("Gather", flat, b.constant(np.arange(5 * batch).reshape(batch, 5, 1, 1)))
    b.output(b.quantize(b.node("Conv", view, b.weights(4, 5, 1, 1))))
    model = b.build()
    changed = passes.undo_flattening(copied(model))
    assert "Gather" not in [node.op_type for node in changed.graph.node]
    samples = b.samples(batch)
    np.testing.assert_array_equal(*(outputs(each, samples)[0] for each in (changed, model)))
    graph = load(b.save(tmp_path))
    assert [layer.op for layer in graph.layers] == ["pool", "conv"]


@pytest.mark.parametrize("step", [5, 4])
def test_flattened_views_of_an_open_batch(step: int, rng: Rng, tmp_path: Path) -> None:
    """The same with indices that are computed of the number of samples: the sample's first, and its elements."""
    b = Builder(rng)
    x = b.input("N", 5, 6, 6)
    mean = b.requantize(b.node("GlobalAveragePool", b.dequantize(x)))
    flat = b.node("Reshape", mean, b.constant([-1]))
    zero, one = b.constant(np.array(0)), b.constant(np.array(1))
    numbers = b.node("Range", zero, b.node("Gather", b.node("Shape", x), zero), one)
    first = b.node("Unsqueeze", b.node("Mul", numbers, b.constant(np.array(step))), b.constant([1, 2, 3]))
    view = b.node("Gather", flat, b.node("Add", first, b.constant(np.arange(5).reshape(1, 5, 1, 1))))
    b.output(b.quantize(b.node("Conv", view, b.weights(4, 5, 1, 1))))
    model = b.build()
    changed = passes.undo_flattening(copied(model))
    made = next(node.op_type for node in changed.graph.node if view in node.output)
    assert made == ("Reshape" if step == 5 else "Gather")
    samples = b.samples(3)
    np.testing.assert_array_equal(*(outputs(each, samples)[0] for each in (changed, model)))
    if step == 5:
        assert [layer.op for layer in load(b.save(tmp_path)).layers] == ["pool", "conv"]


def test_indices_of_a_small_tensor(rng: Rng) -> None:
    """They are not computed where there are more of them than elements."""
    b = Builder(rng)
    x = b.dequantize(b.input(2, 5))
    zero, one = b.constant(np.array(0)), b.constant(np.array(1))
    samples = b.node("Gather", b.node("Shape", x), zero)
    numbers = b.node("Range", zero, b.node("Mul", samples, b.constant(np.array(1 << 26))), one)
    b.output(b.quantize(b.node("Gather", b.node("Reshape", x, b.constant([-1])), numbers)), rank=1)
    model = b.build()
    tracemalloc.start()
    try:
        passes.undo_flattening(copied(model))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("why", ["part", "order", "free batch", "shape"])
def test_views_that_are_not_everything(why: str, rng: Rng) -> None:
    b = Builder(rng)
    x = b.input("N" if why == "free batch" else 1, 5, 6, 6, number=np.float32)
    flat = b.node("Reshape", x, b.constant([1, -1] if why == "shape" else [-1]))
    index = {"part": np.arange(90), "order": np.arange(180)[::-1]}.get(why, np.arange(180))
    if why == "shape":
        index = np.zeros(1, np.int64)
    b.output(b.node("Gather", flat, b.constant(index.reshape(1, -1))), np.float32, rank=2)
    model = b.build()
    assert passes.undo_flattening(copied(model)).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("kind", ["initializers", "Constant"])
def test_sizes_of_other_dimensions(kind: str, rng: Rng) -> None:
    """Halves of channels, twice, as `chunk` of a model of any number of samples; what has the samples in it stays."""
    b = Builder(rng)

    def number(*values: int) -> str:
        return b.constant(list(values)) if kind == "initializers" else b.node("Constant", value_ints=list(values))

    def half(x: str) -> str:
        channels = b.node("Gather", b.node("Shape", x), number(1), axis=0)
        end = b.node("Div", b.node("Add", channels, number(1)), number(2))
        return b.node("Slice", x, number(0), end, number(1))

    x = half(half(b.input("N", 8, 4, 4, number=np.float32)))
    thirds = b.node("Div", b.node("Gather", b.node("Shape", x), number(0), axis=0), number(3))     # 0 of one sample
    b.output(b.node("Reshape", x, b.node("Concat", thirds, number(-1), axis=0)), np.float32, rank=2)
    model = b.build()
    changed = passes.drop_unused(passes.fold_sizes(copied(model)))
    left = [node.op_type for node in changed.graph.node if node.op_type != "Constant"]
    assert left == ["Slice", "Slice", "Shape", "Gather", "Div", "Concat", "Reshape"]
    samples = b.samples(3)
    np.testing.assert_array_equal(*(outputs(each, samples)[0] for each in (changed, model)))


def test_sizes_behind_the_processor(rng: Rng, tmp_path: Path) -> None:
    """A layer after a node of the processor stays on the accelerator where only the walk knows the shape of that: half
    of the channels are taken as `chunk` writes it, with their number computed of a Shape.
    """
    b = Builder(rng)
    x = b.input("N", 4, 8, 8, number=np.float32)
    y = b.requantize(convolved(b, b.requantize(x)))
    channels = b.node("Gather", b.node("Shape", y), b.constant([1]), axis=0)
    half = b.node("Div", channels, b.constant([2]))
    part = b.requantize(b.node("Slice", y, b.constant([0]), half, b.constant([1])))
    sine = b.requantize(b.node("Sin", part))
    b.output(b.node("Flatten", b.requantize(convolved(b, sine, of=2))), np.float32, rank=2)
    found = cut(check(b, tmp_path))
    assert list(found.host) == [node.name for node in found.model.nodes if node.op == "Sin"]
    assert found.subgraphs == 2
    segment = found.segments[1].model
    assert [d.dim_value for d in segment.graph.output[0].type.tensor_type.shape.dim] == [1, 2, 8, 8]
    assert not [t for t in segment.graph.initializer if numpy_helper.to_array(t).dtype == np.int64]
