"""Attention with keys and values of earlier tokens: inputs that are joined with new ones, and outputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from gen.check.compare import compare_model
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.quantize.quantize import quantize
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order
from tests.gen.float_models import FloatBuilder
from tests.gen.test_random_transformers import MACHINES

Rng = np.random.Generator


def cached(rng: Rng, tokens: int, past: int, heads: int, size: int, *, together: bool) -> onnx.ModelProto:
    """Inputs "x" (1, tokens, width), "past_k" and "past_v" (1, heads, past, size); outputs "y", "k", "v". One layer
    makes queries, keys and values ``together``, or each has its own.
    """
    width = heads * size
    b = FloatBuilder(rng, [1, tokens, width], opset=17)

    def linear(source: str, name: str = "") -> str:
        return b.node("Add", b.node("MatMul", source, b.weights(width, width)), b.constant(rng.normal(size=width) / 4),
                      name=name)

    def of_heads(name: str, perm: list[int]) -> str:
        shaped = b.node("Reshape", linear(name), b.constant(np.array([0, 0, heads, size])))
        return b.node("Transpose", shaped, perm=perm)

    def of_one() -> list[str]:
        numbers = b.node("MatMul", "x", b.weights(width, 3 * width))
        shaped = b.node("Reshape", numbers, b.constant(np.array([0, 0, 3, heads, size])))
        three = b.node("Transpose", shaped, perm=[2, 0, 3, 1, 4])
        return [b.node("Gather", three, b.constant(np.array(place)), axis=0) for place in range(3)]

    query, key, value = of_one() if together else (of_heads("x", [0, 2, 1, 3]) for _ in range(3))
    k, v = b.node("Concat", "past_k", key, axis=2, name="k"), b.node("Concat", "past_v", value, axis=-2, name="v")
    scores = b.node("MatMul", query, b.node("Transpose", k, perm=[0, 1, 3, 2]))
    chances = b.node("Softmax", b.node("Mul", scores, b.constant(np.float32(size**-0.5))), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", chances, v), perm=[0, 2, 1, 3])
    linear(b.node("Reshape", mixed, b.constant(np.array([0, 0, width]))), name="y")
    outer, before, after = [1, tokens, width], *([1, heads, count, size] for count in (past, past + tokens))
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
                       for shapes in ([("x", outer), ("past_k", before), ("past_v", before)],
                                      [("y", outer), ("k", after), ("v", after)]))
    graph = helper.make_graph(b.nodes, "cached", inputs, outputs, b.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", b.opset)], ir_version=8)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("tokens", "past", "heads", "size"), [(1, 11, 2, 16), (5, 11, 2, 20), (3, 16, 1, 32)])
@pytest.mark.parametrize("name", ["turn 64", "gather 16"])
def test_past_keys(name: str, tokens: int, past: int, heads: int, size: int, together: bool, rng: Rng, seed: int,
                   tmp_path: Path) -> None:
    """One graph, every layer onnxruntime's within a step; what comes back as an input has its old scale."""
    config, model = MACHINES[name], cached(rng, tokens, past, heads, size, together=together)
    samples = {value.name: rng.normal(size=[8, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])])
               .astype(np.float32) for value in model.graph.input}
    (tmp_path / "m.onnx").write_bytes(quantize(model, samples).model.SerializeToString())
    imported = load_model(tmp_path / "m.onnx", machine=Machine.of(config))
    assert compare_model(imported, {key: array[:2] for key, array in samples.items()}).largest <= 1
    check_in_every_order(*compile_kept(imported.graph, config), seed)
    for before, after in (("past_k", "k"), ("past_v", "v")):
        made = imported.graph.tensors[imported.graph.outputs[after][0]]
        kept = imported.graph.tensors[imported.graph.inputs[before][0]]
        assert (made.scale, made.zero_point) == (kept.scale, kept.zero_point)
