"""Binary layers in float models as exporters of PyTorch write them: weights with the noise of straight-through
estimators, or computed in the graph.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest

from gen.check.compare import compare
from gen.ir import reference
from gen.ir.graph import Conv
from gen.ir.layers.conv import is_binary
from gen.onnx.importer import load
from gen.onnx.values import Constant
from gen.onnx.weights import weights_of, why_no_signs
from gen.quantize.quantize import Quantized, quantize
from gen.zoo.builder import pictures
from gen.zoo.network import make
from gen.zoo.registry import get_network
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of

Rng = np.random.Generator


def straight_through(w: np.ndarray) -> np.ndarray:
    """Float32 weights (OC, ...) as BiRealNet's module leaves them: the clipped weights taken away, and added again."""
    scale = np.abs(w).mean(axis=(1, 2, 3), keepdims=True)
    clipped = np.clip(w, -1, 1)
    return (scale * np.sign(w) - clipped) + clipped


def trained(rng: Rng) -> np.ndarray:
    """Float32 weights, some of which are many times as large as the mean."""
    return (0.05 * rng.standard_t(2, (16, 16, 3, 3))).astype(np.float32)


def in_graph(b: FloatBuilder, w: np.ndarray) -> str:
    """The same weights as nodes, as an exporter without constant folding writes them."""
    value = b.constant(w)
    mean = b.node("ReduceMean", b.node("Abs", value), axes=[1, 2, 3], keepdims=1)
    signs = b.node("Mul", mean, b.node("Sign", value))
    clipped = b.node("Clip", value, b.constant(np.float32(-1)), b.constant(np.float32(1)))
    return b.node("Add", b.node("Sub", signs, clipped), clipped)


def binary_network(rng: Rng, form: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Two blocks of Sign, Conv, batch norm and shortcut, after an ordinary layer."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, 16, name="stem")
    for stage in "ab":
        w = trained(rng)
        weights = in_graph(b, w) if form == "graph" else b.constant(straight_through(w))
        y = b.node("Conv", b.node("Sign", x), weights, pads=[1] * 4, name=f"{stage}/conv")
        x = b.node("Add", b.norm(y, rng.uniform(0.5, 2, 16)), x, name=f"{stage}/sum")
    return b.model(b.same_conv(x, 16, 4, name="y")), {"x": rng.normal(size=(20, 3, 8, 8)).astype(np.float32)}


def binary_layers(found: Quantized, path: Path) -> int:
    onnx.save(found.model, path)
    graph = load(path)
    return sum(is_binary(layer, graph.tensors[layer.input]) for layer in graph.of(Conv))


@pytest.mark.parametrize("form", ["noise", "graph"])
def test_as_pytorch_exports_them(form: str, rng: Rng, tmp_path: Path) -> None:
    model, samples = binary_network(rng, form)
    found = quantize(model, samples)
    assert [layer.node for layer in found.plan.layers] == ["stem", "y"]
    assert binary_layers(found, tmp_path / "q.onnx") == 2 and not found.remarks
    exact, rounded = (outputs_of(m, samples["x"]) for m in (found.reference, found.model))
    assert 10 * np.log10((exact ** 2).sum() / ((exact - rounded) ** 2).sum()) > 10
    compared = compare(tmp_path / "q.onnx", samples).layers
    assert max(row.largest for row in compared) <= 1
    assert all(row.differing < 0.05 * row.values for row in compared)


@pytest.mark.slow
def test_birealnet(rng: Rng, tmp_path: Path) -> None:
    """The zoo's: all layers are within a step of onnxruntime's, and all that read signs are binary."""
    model = make(get_network("birealnet18"), classes=10, size=(64, 64)).model
    samples = {"image": pictures(rng, 4, (3, 64, 64))}
    found = quantize(model, samples)
    assert binary_layers(found, tmp_path / "q.onnx") == len(found.plan.binary) == 16 and not found.plan.not_binary
    compared = compare(tmp_path / "q.onnx", samples).layers
    assert max(row.largest for row in compared) <= 1 and max(row.allowed for row in compared) == 1
    assert all(row.differing < 0.05 * row.values for row in compared)


def test_noise_is_there(rng: Rng) -> None:
    """What the test above is about: sizes that are not bitwise equal, each within the tolerance."""
    weights = straight_through(trained(rng))
    assert sum(len(np.unique(np.abs(channel))) > 1 for channel in weights) > 8
    assert why_no_signs(weights, 0) == ""


def test_the_scale_is_the_mean(rng: Rng) -> None:
    """Not that of the first weight, whose noise all sums would have; and the number itself where there is but one."""
    signs = np.where(rng.normal(size=(2, 8, 3, 3)) < 0, -1, 1)
    sizes = 0.05 * (1 + np.linspace(-9e-6, 9e-6, 72)).reshape(8, 3, 3)
    weights, scale = weights_of(Constant((signs * np.stack([sizes, np.full((8, 3, 3), 0.1)])).astype(np.float32)), 0)
    np.testing.assert_array_equal(weights, signs)
    assert scale[0] == pytest.approx(0.05, rel=1e-7) and scale[1] == np.float32(0.1)


@pytest.mark.parametrize(("weights", "why"), [
    ([0.05, -0.05, 0.05002, -0.05], "output channel 1 have sizes from 0.05 to 0.05002"),
    ([0.05, -0.05, 0.0, -0.05], "1 of 8 are zero"),
    ([0.05, -0.05, 1e-9, -0.05], "1 of 8 are zero"),
    ([0.05, -0.05, np.inf, -0.05], "infinite"),
])
def test_why_not(weights: list[float], why: str) -> None:
    array = np.stack([[0.1, -0.1, 0.1, -0.1], weights]).astype(np.float32).reshape(2, 4, 1, 1)
    assert why in why_no_signs(array, 0)
    assert why in why_no_signs(array.swapaxes(0, 1), 1)
    assert "one sign" in why_no_signs(np.abs(array[:1]), 0)


def test_a_layer_of_signs_that_is_int8_is_named(rng: Rng) -> None:
    b = FloatBuilder(rng, [1, 8, 8, 8])
    y = b.conv(b.node("Sign", "x"), 8, 8, name="plain")
    found = quantize(b.model(b.conv(y, 8, 4, name="y")), {"x": rng.normal(size=(20, 8, 8, 8)).astype(np.float32)})
    assert len(found.remarks) == 1 and found.remarks[0].startswith("warning: node plain reads signs")
    assert "have sizes from" in found.remarks[0]


@pytest.mark.parametrize("source", ["tensor", "threshold"])
def test_zero_has_the_sign_that_the_machine_has(source: str, rng: Rng, tmp_path: Path) -> None:
    """Also in onnxruntime, so that `quantize` reports what the machine has, and no layer more is computed."""
    b = FloatBuilder(rng, [1, 16, 6, 6])
    # Half of the input's values are zero, and so are sums of them.
    x = "x" if source == "tensor" else b.conv("x", 16, 16, kernel=1)
    weights = b.constant(np.where(rng.random((8, 16, 3, 3)) < 0.5, -0.25, 0.25))
    model = b.model(b.conv(b.node("Conv", b.node("Sign", x), weights), 8, 8, kernel=1, name="y"))
    inputs = {"x": np.maximum(rng.normal(size=(20, 16, 6, 6)), 0).astype(np.float32)}
    inputs["x"][:10] = 0
    found = quantize(model, inputs)
    onnx.save(found.model, tmp_path / "q.onnx")
    graph = load(tmp_path / "q.onnx")
    ours = reference.run(graph, inputs)[0]["y"]
    apart = np.abs(outputs_of(found.model, inputs["x"]) - ours).max()
    layers = len(graph.layers)
    for node in found.model.graph.node:     # the Sign of zero as it was
        if node.op_type == "Add":
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output, name=node.name))
    onnx.save(found.model, tmp_path / "q.onnx")
    assert len(load(tmp_path / "q.onnx").layers) == layers
    assert np.abs(outputs_of(found.model, inputs["x"]) - ours).max() > 10 * apart


def test_a_network_of_binary_layers_alone(rng: Rng, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, 16, 6, 6])
    weights = [b.constant(np.where(rng.random((16, 16, 3, 3)) < 0.5, -0.25, 0.25)) for _ in range(2)]
    value = b.norm(b.node("Conv", b.node("Sign", "x"), weights[0]), rng.uniform(0.5, 2, 16))
    model = b.model(b.node("Conv", b.node("Sign", value), weights[1], name="y"))
    inputs = {"x": rng.normal(size=(20, 16, 6, 6)).astype(np.float32)}
    found = quantize(model, inputs)
    assert binary_layers(found, tmp_path / "q.onnx") == 2 and found.plan.binary == ["conv1", "y"]
    ours = reference.run(load(tmp_path / "q.onnx"), inputs)[0]["y"]
    np.testing.assert_allclose(outputs_of(found.model, inputs["x"]), ours, atol=1e-5)
