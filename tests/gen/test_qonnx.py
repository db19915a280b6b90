"""Models as Brevitas exports them, with QONNX's operators: the same numbers, and layers of integers."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from cores.config import NpuConfig
from gen.onnx.fused.qonnx import DOMAINS
from gen.onnx.passes.check_types import value_types
from gen.onnx.passes.drop_unused import drop_unused
from gen.onnx.passes.lift_qonnx import lift_qonnx
from gen.onnx.passes.spread_fused import spread_fused
from gen.run.application import open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from tests.gen.float_models import FloatBuilder
from tests.gen.test_never_refused import host

Rng = np.random.Generator


class QuantBuilder(FloatBuilder):
    def quant(self, source: str, scale: float | np.ndarray, bits: int, *, point: float = 0.0, domain: str = DOMAINS[1],
              **attributes: object) -> str:
        numbers = (np.asarray(scale, np.float32), np.float32(point), np.float32(bits))
        return self.node("Quant", source, *map(self.constant, numbers), domain=domain, **attributes)

    def quant_weights(self, *shape: int, bits: int = 4) -> str:
        """With a scale for each channel."""
        values = self.rng.normal(size=shape)
        scale = np.abs(values).max(axis=tuple(range(1, len(shape))), keepdims=True) / (2 ** (bits - 1) - 1)
        return self.quant(self.constant(values), scale, bits, narrow=1)

    def quantised(self, output: str, domains: tuple[str, ...] = DOMAINS[1:2]) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "quant", [value("x", TensorProto.FLOAT, self.shape)],
                                  [value(output, TensorProto.FLOAT, [None] * len(self.shape))], self.constants)
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def reference(x: np.ndarray, scale: np.ndarray, point: float, bits: int, signed: int, narrow: int) -> np.ndarray:
    """Quant, as QONNX defines it."""
    least = -(2.0 ** (bits - 1)) + (1 if narrow else 0) if signed else 0.0
    most = 2.0 ** (bits - 1) - 1 if signed else 2.0 ** bits - 1 - (1 if narrow else 0)
    return (np.rint(np.clip(x / scale + point, least, most)) - point) * scale


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("constant", [False, True])
def test_numbers(constant: bool, domain: str, rng: Rng) -> None:
    for bits, signed, narrow in ((8, 1, 0), (8, 1, 1), (8, 0, 0), (4, 1, 1), (3, 0, 0), (2, 0, 1), (1, 0, 0)):
        b = QuantBuilder(rng, [3, 40])
        values = rng.normal(0, 2, (3, 40)).astype(np.float32)
        scale, point = np.float32(0.11), 0.0 if signed else 1.0
        source = b.node("Mul", "x", b.constant(np.float32(1))) if not constant else b.constant(values)
        y = b.quant(source, scale, bits, point=point, domain=domain, signed=signed, narrow=narrow)
        model = spread_fused(b.quantised(b.node("Add", y, "x"), (domain,)))
        assert all(not node.domain for node in model.graph.node)
        session = ort.InferenceSession(drop_unused(model).SerializeToString(), providers=["CPUExecutionProvider"])
        (result,) = session.run(None, {"x": values})
        expected = reference(values, scale, point, bits, signed, narrow) + values
        # Halves of a step may be cut by float32 either way.
        assert np.mean(np.abs(result - expected) > 1e-5) < 0.02


def test_scales_of_channels_and_wide_integers(rng: Rng) -> None:
    """Weights in opset 11, which the model's is raised from; a bias of 24 bits is numbers. No import of the domain."""
    b = QuantBuilder(rng, [1, 3, 6, 6], opset=11)
    bias = b.quant(b.constant(rng.normal(size=4)), 1e-5, 24)
    y = b.node("Conv", "x", b.quant_weights(4, 3, 3, 3), bias)
    model = spread_fused(lift_qonnx(b.quantised(y, ())))
    assert [node.op_type for node in model.graph.node] == ["Identity", "DequantizeLinear", "Conv"]
    assert max(entry.version for entry in model.opset_import if not entry.domain) == 13
    onnx.checker.check_model(drop_unused(model))


def test_what_stays(rng: Rng) -> None:
    b = QuantBuilder(rng, [1, 4, 6, 6])
    scale = np.full((1, 4, 1, 1), 0.1)
    for y in (b.quant("x", 0.1, 16), b.quant("x", 0.1, 4, rounding_mode="FLOOR"), b.quant("x", -0.1, 8),
              b.quant("x", scale, 4), b.quant("x", 0.1, 8, point=0.5)):
        (node,) = (node for node in b.nodes if node.output[0] == y)
        alone = QuantBuilder(rng, b.shape)
        alone.nodes, alone.constants = [node], b.constants
        assert [made.op_type for made in spread_fused(alone.quantised(y)).graph.node] == ["Quant"]


def compiled(model: onnx.ModelProto, folder: Path, config: NpuConfig, rng: Rng):
    """No value differs from the golden model's, and the output is near that of the same model in onnxruntime."""
    onnx.save(model, folder / "model.onnx")
    application = open_application(folder / "model.onnx", config)
    sample = rng.normal(size=(1, *(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])))
    run = run_model(application, Samples({"x": sample.astype(np.float32)}, None), "functional")
    assert run.mismatches == 0 and run.compared
    return application


@pytest.mark.slow
def test_a_network(rng: Rng, tmp_path: Path) -> None:
    """Of four bits, as Brevitas leaves it: nothing after a pool and an enlargement."""
    b = QuantBuilder(rng, [1, 3, 12, 12])
    y = b.quant("x", 1 / 32, 8)
    y = b.node("Conv", y, b.quant_weights(8, 3, 3, 3), pads=[1] * 4)
    y = b.quant(b.node("Relu", b.norm(y, rng.uniform(0.5, 2, 8))), 0.3, 4, signed=0)
    y = b.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = b.node("Conv", y, b.quant_weights(16, 8, 3, 3), pads=[1] * 4)
    y = b.quant(b.node("Relu", y), 0.5, 4, signed=0)
    y = b.node("Resize", y, "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest",
               coordinate_transformation_mode="asymmetric")
    y = b.quant(b.node("Conv", y, b.quant_weights(4, 16, 1, 1)), 0.5, 8)
    assert not host(compiled(b.quantised(y), tmp_path, NpuConfig.preset(16), rng))


def test_signs_of_an_input(rng: Rng, tmp_path: Path) -> None:
    """The processor makes them; all that has weights is on the accelerator."""
    b = QuantBuilder(rng, [1, 20])
    one = b.constant(np.float32(1))
    y = b.node("BipolarQuant", b.node("Sub", "x", b.constant(np.float32(0.1))), one, domain=DOMAINS[1])
    for size in ((20, 24), (24, 8)):
        y = b.node("MatMul", y, b.node("BipolarQuant", b.weights(*size), one, domain=DOMAINS[1]))
        y = b.node("BipolarQuant", y, one, domain=DOMAINS[1])
    found = compiled(b.quantised(y), tmp_path, NpuConfig.preset(16), rng)
    assert not {"MatMul", "Gemm"} & {node.op for node in found.partition.model.nodes if node.name in host(found)}


@pytest.mark.slow
def test_a_network_of_signs(rng: Rng, tmp_path: Path) -> None:
    """BipolarQuant of activations and weights: a layer of the binary unit."""
    b = QuantBuilder(rng, [1, 3, 8, 8])
    one = b.constant(np.float32(1))

    def bipolar(source: str, scale: str = one) -> str:
        return b.node("BipolarQuant", source, scale, domain=DOMAINS[1])

    y = b.node("Conv", b.quant("x", 1 / 32, 8), b.quant_weights(32, 3, 3, 3), pads=[1] * 4)
    y = bipolar(b.norm(y, rng.uniform(0.5, 2, 32)))
    y = b.node("Conv", y, bipolar(b.weights(32, 32, 3, 3), b.constant(np.float32(0.25))))
    y = bipolar(b.norm(y, rng.uniform(0.5, 2, 32)))
    y = b.quant(b.node("Conv", y, b.quant_weights(4, 32, 1, 1)), 0.1, 8)
    config = NpuConfig.preset(16).feature_fields(["binary"])
    found = compiled(b.quantised(y), tmp_path, NpuConfig.preset(16, **config), rng)
    assert not host(found)
    assert "binary" in {layer.mode for workload in found.workloads for layer in workload.program.layers}


def test_an_empty_constant_among_the_inputs(rng: Rng) -> None:
    """Older files list initializers there, also one without elements: it gets no samples."""
    b = QuantBuilder(rng, [1, 4, 6, 6])
    roi = b.constant(np.zeros(0, np.float32))
    y = b.node("Resize", "x", roi, b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    model = b.quantised(y, ())
    model.graph.input.append(helper.make_tensor_value_info(roi, TensorProto.FLOAT, [0]))
    assert [size.dim_value for size in value_types(model)[y].tensor_type.shape.dim] == [1, 4, 12, 12]


@pytest.mark.parametrize("given", [dict(kernel_shape=[3, 3], pads=[1] * 4), dict(pads=[1] * 4), {}], ids=str)
@pytest.mark.parametrize("group", [1, 4])
def test_channels_last(group: int, given: dict[str, list[int]], rng: Rng) -> None:
    """QONNX's operators of channels that are last, those of weights too, are the same as ONNX's of the first."""
    last = "qonnx.custom_op.channels_last"
    weights = rng.normal(size=(8, 3, 3, 4 // group)).astype(np.float32)
    norm = rng.uniform(0.5, 2, (4, 8)).astype(np.float32)
    b = QuantBuilder(rng, [1, 6, 7, 4])
    y = b.node("Conv", "x", b.constant(weights), domain=last, group=group, **given)
    y = b.node("BatchNormalization", b.node("Relu", y), *map(b.constant, norm), domain=last)
    y = b.node("MaxPool", y, domain=last, kernel_shape=[2, 3], strides=[2, 1])
    c = QuantBuilder(rng, [1, 6, 7, 4])
    z = c.node("Conv", c.node("Transpose", "x", perm=[0, 3, 1, 2]), c.constant(weights.transpose(0, 3, 1, 2)),
               group=group, **given)
    z = c.node("BatchNormalization", c.node("Relu", z), *map(c.constant, norm))
    z = c.node("Transpose", c.node("MaxPool", z, kernel_shape=[2, 3], strides=[2, 1]), perm=[0, 2, 3, 1])
    x = rng.normal(size=(1, 6, 7, 4)).astype(np.float32)
    found, wanted = (ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x})[0] for model in (lift_qonnx(b.quantised(y, ())), c.quantised(z, ())))
    np.testing.assert_array_equal(found, wanted)
