"""Average pools that leave padding out become pools that count it, and a map of factors that is exact in int8."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from cores.config import NpuConfig
from gen.quantize.prepare import prepare
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import on_machine, outputs_of, quantized

CONFIG = NpuConfig.preset(64, product=1)


@pytest.mark.parametrize("attributes", [
    dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1]), dict(kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER")])
def test_average_pools(attributes: dict, rng: np.random.Generator, seed: int, tmp_path: Path) -> None:
    b = FloatBuilder(rng, [1, 3, 7, 7])
    y = b.node("AveragePool", b.same_conv("x", 3, 8, name="first"), **attributes)
    model = b.model(b.same_conv(y, 8, 4, kernel=1, name="y"))
    x = rng.normal(size=(8, 3, 7, 7)).astype(np.float32)
    made = prepare(model)
    assert [node.op_type for node in made.graph.node] == ["Conv", "AveragePool", "Mul", "Conv"]
    np.testing.assert_allclose(outputs_of(made, x), outputs_of(model, x), rtol=0, atol=1e-5)

    imported = on_machine(quantized(model, x, method="minmax").model, x, CONFIG, seed, tmp_path)
    factors = {a.name: helper.get_attribute_value(a) for node in made.graph.node if node.op_type == "AveragePool"
               for a in node.attribute}
    assert factors["count_include_pad"] == 1
    maps = [tensor for tensor in imported.graph.tensors.values() if tensor.value is not None]
    exact = numpy_helper.to_array(next(t for t in made.graph.initializer if "factors" in t.name))
    values = (maps[0].value[0] - maps[0].zero_point) * maps[0].scale
    np.testing.assert_allclose(values, exact, rtol=1e-6)
