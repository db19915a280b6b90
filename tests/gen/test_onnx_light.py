"""Models whose large weights are elsewhere: nothing but copies is saved."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from gen.ir.errors import GraphError
from gen.onnx.light import inferred, is_large, light, without_initializers
from gen.onnx.read import parse
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel
from gen.quantize import sessions
from gen.quantize.sessions import values_of
from tests.gen.float_models import FloatBuilder

Rng = np.random.Generator


def network(rng: Rng) -> onnx.ModelProto:
    """Of weights that are large, others that are not, and a shape."""
    b = FloatBuilder(rng, [1, 16, 8, 8])
    y = b.node("Relu", b.same_conv("x", 16, 32))
    y = b.node("Relu", b.same_conv(y, 32, 4))
    y = b.node("Reshape", y, b.constant(np.array([0, -1])))
    return b.model(b.node("Gemm", y, b.weights(256, 10), b.weights(10)))


@pytest.fixture
def model(rng: Rng) -> onnx.ModelProto:
    model = network(rng)
    model.producer_name, model.graph.doc_string = "a test", "of it"
    return model


def test_nothing_else_is_left_out(model: onnx.ModelProto):
    assert [is_large(tensor) for tensor in model.graph.initializer].count(True) == 3
    whole = without_initializers(model)
    assert not whole.graph.initializer
    whole.graph.initializer.extend(model.graph.initializer)
    assert whole == model
    assert light(model).ByteSize() < 2048 < model.ByteSize()


def test_types_are_the_same(model: onnx.ModelProto):
    del model.graph.value_info[:]
    graph, expected = inferred(model), shape_inference.infer_shapes(model).graph
    assert graph.value_info == expected.value_info and len(graph.value_info) == 5
    assert graph.node == expected.node and graph.output == expected.output


@pytest.mark.parametrize("optimised", ["none", "basic", "all"])
def test_onnxruntime_computes_the_same(model: onnx.ModelProto, rng: Rng, optimised: str):
    """Of a model in bytes, of one whose large initializers it gets as arrays, and of one that comes without any."""
    values = {"x": rng.normal(size=(1, 16, 8, 8)).astype(np.float32)}
    [expected] = RuntimeModel(model.SerializeToString(), optimised=optimised).run(values)
    apart = RuntimeModel(without_initializers(model), initializers=model.graph.initializer, optimised=optimised)
    for runtime in (RuntimeModel(model, optimised=optimised), apart):
        assert np.array_equal(runtime.run(values)[0], expected)


def test_large_initializers_are_checked(model: onnx.ModelProto):
    """Though onnx's own check does without their numbers."""
    tensor = next(tensor for tensor in model.graph.initializer if is_large(tensor))
    tensor.raw_data = tensor.raw_data[:-4]
    with pytest.raises(GraphError, match=f"^m.onnx: initializer {tensor.name} is damaged"):
        parse("m.onnx", model.SerializeToString())
    with pytest.raises(OnnxruntimeError):
        RuntimeModel(model)


def test_one_session_for_all_times(model: onnx.ModelProto, rng: Rng, monkeypatch: pytest.MonkeyPatch):
    made: list[Sequence[str]] = []

    class Counted(RuntimeModel):
        def __init__(self, *args, **kwargs) -> None:
            super().__init__(*args, **kwargs)
            made.append(self.inputs)

    monkeypatch.setattr(sessions, "RuntimeModel", Counted)
    found = values_of(model, [model.graph.output[0].name], {"x": rng.normal(size=(3, 16, 8, 8)).astype(np.float32)})
    first, second = ([value for one in found for value in one.values()] for _ in range(2))
    assert made == [("x",)] and len(first) == 6
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
