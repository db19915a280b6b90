"""Average pools that leave padding out become pools that count it, and a map of factors that is exact in int8."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.prepare import prepare
from tests.compiled import compile_kept
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import outputs_of, quantized
from tests.gen.test_compiler import run_and_compare

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

    found = quantized(model, x, method="minmax").model
    (tmp_path / "m.onnx").write_bytes(found.SerializeToString())
    imported = load_model(tmp_path / "m.onnx", machine=Machine.of(CONFIG))
    rows = compare_model(imported, {"x": x[:2]}).layers
    assert max(row.largest for row in rows) <= 1
    run_and_compare(*compile_kept(imported.graph, CONFIG), seed, ("load", "store"))
    factors = {a.name: helper.get_attribute_value(a) for node in made.graph.node if node.op_type == "AveragePool"
               for a in node.attribute}
    assert factors["count_include_pad"] == 1
    maps = [tensor for tensor in imported.graph.tensors.values() if tensor.value is not None]
    exact = numpy_helper.to_array(next(t for t in made.graph.initializer if "factors" in t.name))
    values = (maps[0].value[0] - maps[0].zero_point) * maps[0].scale
    np.testing.assert_allclose(values, exact, rtol=1e-6)
