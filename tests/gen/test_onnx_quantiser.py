"""Models as onnxruntime's own quantiser writes them: both formats, all operators quantised or only convolutions."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from gen.check.compare import compare

Rng = np.random.Generator


class Samples(CalibrationDataReader):
    def __init__(self, arrays: np.ndarray) -> None:
        self._arrays: Iterator[np.ndarray] = iter(arrays)

    def get_next(self) -> dict[str, np.ndarray] | None:
        array = next(self._arrays, None)
        return None if array is None else {"x": array[None]}


def network(rng: Rng) -> onnx.ModelProto:
    """LeakyRelu after convolutions and in front of pools, and a Concat of both."""
    def weights(*shape: int) -> onnx.TensorProto:
        values = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), "w" + "x".join(map(str, shape)))

    pool = dict(kernel_shape=[2, 2], strides=[2, 2])
    kernels = [weights(8, 3, 3, 3), weights(5, 8, 1, 1), weights(4, 13, 1, 1)]
    nodes = [
        helper.make_node("Conv", ["x", kernels[0].name], ["a"], name="first", pads=[1] * 4),
        helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky", alpha=0.1),
        helper.make_node("Conv", ["b", kernels[1].name], ["c"], name="second"),
        helper.make_node("LeakyRelu", ["c"], ["d"], name="leakier", alpha=0.2),
        helper.make_node("MaxPool", ["d"], ["p"], name="pool", **pool),
        helper.make_node("MaxPool", ["b"], ["q"], name="other_pool", **pool),
        helper.make_node("Concat", ["p", "q"], ["e"], name="concat", axis=1),
        helper.make_node("Conv", ["e", kernels[2].name], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])], kernels)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("operators", [None, ["Conv"]], ids=["all", "convolutions"])
@pytest.mark.parametrize("number", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_leaky_relu_and_concat(form: QuantFormat, number: QuantType, operators: list[str] | None, rng: Rng,
                               tmp_path: Path) -> None:
    onnx.save(network(rng), tmp_path / "float.onnx")
    samples = rng.normal(size=(8, 3, 12, 12)).astype(np.float32)
    # onnxruntime's own QLinearConv of uint8 saturates on processors without products of 8 bits, but for narrow weights.
    narrow = form is QuantFormat.QOperator and number is QuantType.QUInt8
    quantize_static(tmp_path / "float.onnx", tmp_path / "model.onnx", Samples(samples), quant_format=form,
                    activation_type=number, weight_type=QuantType.QInt8, op_types_to_quantize=operators,
                    reduce_range=narrow)
    assert compare(tmp_path / "model.onnx", {"x": samples}).largest <= 1
