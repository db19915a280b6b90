"""Models at the edge of what ONNX allows: taken or refused as onnxruntime does it, or for a reason that is stated."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from gen.check.compare import compare
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.importer import load
from tests.gen.qdq import Builder

Rng = np.random.Generator
Model = onnx.ModelProto

SCALE, POINT, ONE = np.float32(0.05), np.int8(3), np.float32(0.01)


def network(rng: Rng, bias: Callable[[Builder], str] | None = None, weights: Callable[[Builder], str] | None = None,
            scale: np.ndarray = SCALE, point: np.ndarray = POINT,
            behind: Callable[[Builder, str], str] | None = None) -> Model:
    """A convolution with one of its parts another."""
    b = Builder(rng, opset=21)
    x = b.node("DequantizeLinear", b.input(1, 3, 6, 6), b.constant(scale), b.constant(point))
    y = b.node("Conv", x, (weights or (lambda b: b.weights(4, 3, 3, 3)))(b), (bias or (lambda b: b.bias(4)))(b))
    b.output(b.quantize(behind(b, y) if behind else y, 0.05, 0))
    return b.build()


def conv(model: Model) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == "Conv")


def changed(change: Callable[[Model], object]) -> Callable[[Rng], Model]:
    def make(rng: Rng) -> Model:
        model = network(rng)
        change(model)
        return model

    return make


def _no_names(model: Model) -> None:
    for node in model.graph.node:
        node.name = ""


def _unsorted(model: Model) -> None:
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _sparse(model: Model, *, size: int = 4, last: int = 2) -> None:
    conv(model).input[2] = "sparse"
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1.0, 0.5])
    indices = helper.make_tensor("indices", TensorProto.INT64, [2], [0, last])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [size]))


def _mask_as_bias(rng: Rng) -> Model:
    b = Builder(rng)
    b.node("Dropout", b.constant(np.ones(4, np.float32)))
    b.nodes[-1].output.append("mask")
    y = b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3), "mask")
    b.output(b.quantize(y))
    return b.build()


def _four_bits(b: Builder) -> str:
    b.initializers.append(helper.make_tensor("four", TensorProto.INT4, [4], [1, -2, 3, 4]))
    return b.node("DequantizeLinear", "four", b.scale(0.5))


def _dequantised(number: type, count: int = 4) -> Callable[[Builder], str]:
    return lambda b: b.node("DequantizeLinear", b.constant(np.ones(count, number)), b.scale(0.5))


def _weights(scale: np.ndarray, point: np.ndarray, axis: int = 0) -> Callable[[Rng], Model]:
    def make(b: Builder) -> str:
        array = b.constant(b.rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8))
        return b.node("DequantizeLinear", array, b.constant(scale), b.constant(point), axis=axis)

    return lambda rng: network(rng, weights=make)


def _in_domain(domain: str, *, known: bool = True) -> Callable[[Rng], Model]:
    def make(rng: Rng) -> Model:
        model = network(rng, behind=lambda b, y: b.node("Relu", y, domain=domain))
        if known:
            model.opset_import.append(helper.make_opsetid(domain, 1))
        return model

    return make


def _raw_into_conv(rng: Rng) -> Model:
    b = Builder(rng)
    x = b.node("Cast", b.input(1, 3, 6, 6), to=TensorProto.INT32)
    b.output(b.quantize(b.node("Conv", x, b.weights(4, 3, 3, 3))))
    return b.build()


def _integers_into_relu(rng: Rng) -> Model:
    b = Builder(rng, opset=21)
    b.output(b.quantize(b.node("Conv", b.dequantize(b.node("Relu", b.input(1, 3, 6, 6))), b.weights(4, 3, 3, 3))))
    return b.build()


def _qlinear(domain: str = "", **parts: np.ndarray) -> Callable[[Rng], Model]:
    def make(rng: Rng) -> Model:
        b = Builder(rng)
        scale, point = b.constant(parts.get("scale", np.float32(0.1))), b.constant(parts.get("point", np.int8(0)))
        weights = b.constant(np.ones((4, 3, 1, 1), np.int8))
        bias = [b.constant(parts["bias"])] if "bias" in parts else []
        b.output(b.node("QLinearConv", b.input(1, 3, 6, 6), scale, point, weights, scale, point, scale, point, *bias,
                        domain=domain))
        return b.build()

    return make


def _microsoft(op: str, domain: str = "com.microsoft") -> Callable[[Rng], Model]:
    def make(rng: Rng) -> Model:
        b = Builder(rng)
        scale, point = b.scale(0.1), b.point(0)
        x = b.input(1, 3, 6, 6)
        if op == "QLinearAdd":
            b.output(b.node(op, x, scale, point, x, scale, point, scale, point, domain=domain))
        else:
            real = b.node("DequantizeLinear", x, scale, point, domain=domain)
            y = b.node("Conv", real, b.weights(4, 3, 3, 3))
            b.output(b.node("QuantizeLinear", y, scale, point, domain=domain))
        return b.build()

    return make


#: Name -> model, and why ours is another verdict than onnxruntime's where it is (docs/models.md says so, too).
CASES: dict[str, tuple[Callable[[Rng], Model], str]] = {
    "plain": (network, ""),
    "nodes without names": (changed(_no_names), ""),
    "nodes out of order": (changed(_unsorted), "ONNX demands that nodes are sorted"),
    "a name that nothing defines": (changed(lambda m: conv(m).input.__setitem__(2, "nobody")), ""),
    "a value defined twice": (changed(lambda m: m.graph.node.append(m.graph.node[0])), ""),
    "an input named twice": (changed(lambda m: m.graph.input.append(m.graph.input[0])), ""),
    "an initializer given twice": (changed(lambda m: m.graph.initializer.append(m.graph.initializer[0])),
                                   "ONNX demands that names are unique"),
    "an output named twice": (changed(lambda m: m.graph.output.append(m.graph.output[0])), ""),
    "an output that nothing defines": (changed(lambda m: setattr(m.graph.output[0], "name", "nobody")), ""),
    "a second output as bias": (_mask_as_bias, ""),
    "sparse bias": (changed(_sparse), ""),
    "sparse bias, index outside": (changed(lambda m: _sparse(m, last=4)), ""),
    "scale (1,)": (lambda rng: network(rng, scale=np.float32([0.05]), point=np.int8([0])), ""),
    "scale (1, 1)": (lambda rng: network(rng, scale=np.float32([[0.05]]), point=np.int8([[0]])), ""),
    "scale float64": (lambda rng: network(rng, scale=np.float64(0.05)), ""),
    "zero point of another type": (lambda rng: network(rng, point=np.uint8(3)), ""),
    "scale NaN": (lambda rng: network(rng, scale=np.float32(np.nan)), "scales are finite and positive"),
    "scale infinite": (lambda rng: network(rng, scale=np.float32(np.inf)), "scales are finite and positive"),
    "scale zero": (lambda rng: network(rng, scale=np.float32(0)), "scales are finite and positive"),
    "scale negative": (lambda rng: network(rng, scale=np.float32(-1)), "scales are finite and positive"),
    "weight scales (4, 1)": (_weights(np.full((4, 1), ONE), np.zeros((4, 1), np.int8)), ""),
    "weight scales (1, 1)": (_weights(np.full((1, 1), ONE), np.zeros((1, 1), np.int8)), ""),
    "four scales, one zero point": (_weights(np.full(4, ONE), np.zeros(1, np.int8)), ""),
    "one scale, four zero points": (_weights(np.full(1, ONE), np.zeros(4, np.int8)), ""),
    "zero points of another type": (_weights(np.full(4, ONE), np.zeros(4, np.uint8)), ""),
    "axis counted from the end": (_weights(np.full(4, ONE), np.zeros(4, np.int8), -4), ""),
    "axis that is none": (_weights(np.full(4, ONE), np.zeros(4, np.int8), 7), ""),
    "bias float": (lambda rng: network(rng, lambda b: b.constant(np.ones(4, np.float32))), ""),
    "bias float64": (lambda rng: network(rng, lambda b: b.constant(np.ones(4, np.float64))), ""),
    "bias int32 as it is": (lambda rng: network(rng, lambda b: b.constant(np.ones(4, np.int32))), ""),
    "bias NaN": (lambda rng: network(rng, lambda b: b.constant(np.full(4, np.nan, np.float32))), "biases are finite"),
    "bias of one number": (lambda rng: network(rng, lambda b: b.constant(np.ones(1, np.float32))), ""),
    "bias (4, 1)": (lambda rng: network(rng, lambda b: b.constant(np.ones((4, 1), np.float32))), ""),
    "bias of three": (lambda rng: network(rng, _dequantised(np.int32, 3)), ""),
    "bias int32, a scale of its own": (lambda rng: network(rng, _dequantised(np.int32)), ""),
    "bias int16": (lambda rng: network(rng, _dequantised(np.int16)), ""),
    "bias int8": (lambda rng: network(rng, _dequantised(np.int8)), ""),
    "bias int64": (lambda rng: network(rng, _dequantised(np.int64)), ""),
    "bias of 4 bits": (lambda rng: network(rng, _four_bits), ""),
    "weights int32": (lambda rng: network(rng, weights=lambda b: b.node(
        "DequantizeLinear", b.constant(np.ones((4, 3, 3, 3), np.int32)), b.scale(0.5))), "weights have 8 bits at most"),
    "signs as int8": (lambda rng: network(rng, weights=lambda b: b.constant(
        np.where(np.arange(108) % 2, 1, -1).astype(np.int8).reshape(4, 3, 3, 3))), ""),
    "int32 straight into Conv": (_raw_into_conv, ""),
    "a shape of floats": (lambda rng: network(rng, behind=lambda b, y: b.node(
        "Reshape", y, b.constant(np.float32([1, 4, 4, 4])))), ""),
    "an operator of a custom domain": (_in_domain("custom"), ""),
    "an operator that the domain lacks": (_in_domain("com.microsoft", known=False), ""),
    "QLinearConv": (_qlinear(), ""),
    "QLinearConv, scale (1, 1)": (_qlinear(scale=np.float32([[0.1]]), point=np.int8([[0]])), ""),
    "QLinearConv, bias float": (_qlinear(bias=np.ones(4, np.float32)), ""),
    "QLinearConv, bias int8": (_qlinear(bias=np.ones(4, np.int8)), ""),
    "QLinearConv, bias of three": (_qlinear(bias=np.ones(3, np.int32)), ""),
    "com.microsoft QLinearAdd": (_microsoft("QLinearAdd"), ""),
    "com.microsoft QLinearConv": (_qlinear("com.microsoft"), "no quantiser writes it"),
    "integers into Relu": (_integers_into_relu, "no quantiser writes it"),
    "a scale for each channel of an activation": (lambda rng: network(rng, scale=np.full(3, ONE), point=np.zeros(
        3, np.int8)), "one scale for a tensor"),
    "QLinearAdd as ONNX's own": (_microsoft("QLinearAdd", ""), ""),
    "com.microsoft QuantizeLinear": (_microsoft("QuantizeLinear"), ""),
}


def _onnxruntime_takes(path: Path) -> bool:
    """Whether a session can be made and runs: some shapes are looked at only then."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(
            None, {"x": np.ones((1, 3, 6, 6), np.int8)})
    except Exception:  # onnxruntime's own exception types are not public
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_verdict_is_that_of_onnxruntime(name: str, rng: Rng, tmp_path: Path) -> None:
    make, reason = CASES[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(make(rng).SerializeToString())
    taken = _onnxruntime_takes(path)
    try:
        load(path)
    except GraphError as error:
        assert "\n" not in str(error)
        assert bool(reason) == taken, str(error)
        return
    assert taken and not reason
    assert compare(path, {"x": rng.integers(-128, 128, (2, 3, 6, 6)).astype(np.int8)}).largest <= 1


# -- functions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", [True, False])
def test_functions_of_the_model_are_inlined(nested: bool, rng: Rng, tmp_path: Path) -> None:
    """A function of the model that is called Relu, and bounds at 0.5; called twice."""
    b = Builder(rng)
    y = b.node("Conv", b.dequantize(b.input(1, 3, 6, 6)), b.weights(4, 3, 3, 3))
    y = b.requantize(b.node("Relu", y, domain="mine"), 0.05, -20)
    b.output(b.quantize(b.node("Relu", b.node("Conv", y, b.weights(4, 4, 1, 1)), domain="mine")))
    model = b.build()
    opsets = [helper.make_opsetid("", b.opset), helper.make_opsetid("mine", 1)]
    model.opset_import.append(opsets[1])
    bound = helper.make_node("Constant", [], ["low"], value=numpy_helper.from_array(np.float32(0.5)))
    inner = [bound, helper.make_node("Clip", ["a", "low"], ["b"])]
    if nested:
        model.functions.append(helper.make_function("mine", "Bound", ["a"], ["b"], inner, opsets))
        inner = [helper.make_node("Bound", ["a"], ["b"], domain="mine")]
    model.functions.append(helper.make_function("mine", "Relu", ["a"], ["b"], inner, opsets))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    assert len(load(path).layers) == 2 and load(path).layers[1].requantize.low > -128
    assert compare(path, b.samples()).largest <= 1


def test_weights_quantised_in_the_domain_of_onnxruntime(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    scale, point = b.constant(np.float32(0.01)), b.constant(np.int8(0))
    weights = b.constant(rng.normal(0, 0.3, (6, 4, 3, 3)).astype(np.float32))
    for op in ("QuantizeLinear", "DequantizeLinear"):
        weights = b.node(op, weights, scale, point, domain="com.microsoft")
    b.output(b.quantize(b.node("Conv", b.dequantize(b.input(1, 4, 8, 8)), weights)))
    assert compare(b.save(tmp_path), b.samples()).largest <= 1


# -- a bias at the end of its range --------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [-2**31 + 1, 2**31 - 1])
@pytest.mark.parametrize("form", ["qdq", "qlinear"])
def test_bias_at_the_end_of_32_bits(form: str, bias: int, rng: Rng, tmp_path: Path) -> None:
    """Ours is exact arithmetic; onnxruntime's QLinearConv adds in 32 bits, in which the sum wraps around."""
    b = Builder(rng)
    x, (units, unit) = b.input(1, 3, 4, 4), (np.float32(2**-6), np.float32(2**-18))
    raw, biases = rng.integers(-128, 128, (2, 3, 1, 1)).astype(np.int8), np.full(2, bias, np.int32)
    zero, target = b.constant(np.int8(0)), b.constant(np.float32(2))
    scales = [b.constant(units), b.constant(unit)]
    if form == "qdq":
        weights = b.node("DequantizeLinear", b.constant(raw), scales[1], zero)
        real = b.node("DequantizeLinear", b.constant(biases), b.constant(units * unit))
        y = b.node("Conv", b.node("DequantizeLinear", x, scales[0], zero), weights, real)
        b.output(b.node("QuantizeLinear", y, target, zero))
    else:
        b.output(b.node("QLinearConv", x, scales[0], zero, b.constant(raw), scales[1], zero, target, zero,
                        b.constant(biases)))
    path, samples = b.save(tmp_path), b.samples(4)
    sums = np.einsum("nchw,oc->nohw", samples["x"].astype(np.int64), raw[:, :, 0, 0].astype(np.int64)) + bias
    exact = np.clip(np.rint(sums * 2.0**-24 / 2), -128, 127)
    (ours,) = reference.run(load(path), samples)[0].values()
    assert np.array_equal(ours, exact)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    theirs = np.concatenate([session.run(None, {"x": x[None]})[0] for x in samples["x"]])
    wrapped = (sums < -2**31) | (sums >= 2**31)
    assert wrapped.any()
    assert np.array_equal(theirs != exact, wrapped if form == "qlinear" else np.zeros_like(wrapped))
