"""Functions of a value as tables: against onnxruntime on every value, and on the functional simulator."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

from cores.config import NpuConfig
from gen.check.compare import compare_model
from gen.ir import reference
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.table import Table
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph, Pool
from gen.onnx import functions
from gen.onnx.importer import Imported, load_model
from gen.onnx.machine import Machine
from gen.run.application import open_application
from tests.compiled import compile_kept
from tests.epilogues import operation
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare

Rng = np.random.Generator
CONFIG = NpuConfig.preset(16, table=1)

#: Operator -> its attributes, and constants after its first input.
OPERATORS: dict[str, tuple[dict, list[float]]] = {
    "Sigmoid": ({}, []), "HardSigmoid": ({"alpha": 0.3}, []), "HardSwish": ({}, []), "Tanh": ({}, []), "Elu": ({}, []),
    "Selu": ({}, []), "Celu": ({"alpha": 0.7}, []), "Gelu": ({"approximate": "tanh"}, []), "Mish": ({}, []),
    "Softplus": ({}, []), "Softsign": ({}, []), "ThresholdedRelu": ({"alpha": 0.5}, []), "Exp": ({}, []),
    "Log": ({}, []), "Erf": ({}, []), "Sqrt": ({}, []), "Reciprocal": ({}, []), "Abs": ({}, []), "Pow": ({}, [2.0]),
    "LeakyRelu": ({"alpha": -0.3}, []), "Max": ({}, [0.5]), "Min": ({}, [0.5]), "Sin": ({}, []), "Floor": ({}, []),
    "Atan": ({}, []), "Sinh": ({}, []), "Shrink": ({"lambd": 0.4}, []),
}


def silu(b: Builder, x: str, between: Callable[[str], str] = lambda y: y) -> str:
    return b.node("Mul", x, between(b.node("Sigmoid", x)))


def hard_swish(b: Builder, x: str) -> str:
    """As MobileNetV3 was first exported: x * relu6(x + 3) / 6."""
    gate = b.node("Clip", b.node("Add", x, b.scale(3)), b.scale(0), b.scale(6))
    return b.node("Div", b.node("Mul", x, gate), b.scale(6))


def softplus(b: Builder, x: str) -> str:
    """As PyTorch's newer exporter has it: where that is nearly x, it is x."""
    return b.node("Where", b.node("Greater", x, b.scale(2)), x, b.node("Softplus", x))


def thresholds(b: Builder, x: str) -> str:
    """Numbers of comparisons, and what several of them choose."""
    small = b.node("And", b.node("LessOrEqual", x, b.scale(1)), b.node("Not", b.node("Less", x, b.scale(-1))))
    steps = b.node("Cast", b.node("GreaterOrEqual", b.node("Abs", x), b.scale(2)), to=TensorProto.FLOAT)
    return b.node("Add", steps, b.node("Where", small, b.scale(0), x))


def simulate(graph: Graph, seed: int) -> None:
    """Run the program of a graph in strict mode."""
    run_and_compare(*compile_kept(graph, CONFIG), seed, ("load", "store"))


def exact(b: Builder, folder: Path) -> Imported:
    """A model without a difference to onnxruntime, on samples that hold every value."""
    path = b.save(folder)
    value = b.inputs[0]
    limits = np.iinfo(b.number)
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim[1:]]
    x = np.resize(np.arange(limits.min, limits.max + 1), (1, *shape)).astype(b.number)
    theirs = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]).run(None, {value.name: x})
    imported = load_model(path, machine=Machine.having("table"))
    ours, _ = reference.run(imported.graph, {value.name: x})
    for mine, expected in zip(ours.values(), theirs, strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert compare_model(imported, {value.name: x}).largest == 0
    return imported


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("op", OPERATORS)
def test_operators(op: str, number: type, rng: Rng, tmp_path: Path) -> None:
    attributes, constants = OPERATORS[op]
    b = Builder(rng, opset=20, number=number)
    positive = op in ("Log", "Sqrt", "Reciprocal")    # elsewhere no number comes out
    least = {np.int8: -128, np.uint8: 0}[number]
    x = b.dequantize(b.input(1, 4, 8, 32), 0.05, least if positive else None)
    b.output(b.quantize(b.node(op, x, *(b.scale(c) for c in constants), **attributes), 0.03))
    (layer,) = exact(b, tmp_path).graph.layers
    assert isinstance(layer, Pool) and operation(layer, Table) and layer.op == "pool"


def test_another_operator_is_a_word(rng: Rng, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/extending.md says, of one that nothing else in the front end knows."""
    b = Builder(rng, opset=20)
    x = b.dequantize(b.input(1, 4, 8, 32), 0.05)
    b.output(b.quantize(b.node("Mod", x, b.scale(0.7), fmod=1), 0.03))
    with pytest.raises(GraphError, match="Mod has no layer"):
        load_model(b.save(tmp_path), machine=Machine.having("table"))
    monkeypatch.setattr(functions, "ELEMENTWISE", functions.ELEMENTWISE | {("", "Mod")})
    (layer,) = exact(b, tmp_path).graph.layers
    assert operation(layer, Table)


@pytest.mark.parametrize("op", ["Div", "Sub", "Pow"])
def test_a_constant_in_front(op: str, rng: Rng, tmp_path: Path) -> None:
    """A quotient, or a power, of a constant is a function of the exponent or the divisor; a difference needs none."""
    b = Builder(rng, opset=20)
    x = b.dequantize(b.input(1, 4, 8, 32), 0.02, -128)
    b.output(b.quantize(b.node(op, b.scale(1.5), b.node("Add", x, b.scale(0.5))), 0.03))
    (layer,) = exact(b, tmp_path).graph.layers
    assert bool(operation(layer, Table)) == (op != "Sub")


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("name, function", [
    ("SiLU", silu), ("SiLU, quantised in between", lambda b, x: silu(b, x, lambda y: b.requantize(y, 1 / 256, -128 if
     b.number is np.int8 else 0))), ("hard swish", hard_swish), ("softplus", softplus),
    ("thresholds", thresholds), ("square", lambda b, x: b.node("Mul", x, x)),
    ("in words", lambda b, x: b.node("Cast", b.node("Cast", x, to=TensorProto.STRING), to=TensorProto.FLOAT)),
    ("two", lambda b, x: b.node("Tanh", b.requantize(b.node("Exp", x), 0.02))),
    ("clipped", lambda b, x: b.node("Clip", b.node("Sigmoid", x), b.scale(0.25), b.scale(0.5)))])
def test_chains_in_the_layer_in_front(name: str, function: Callable, number: type, rng: Rng, seed: int,
                                          tmp_path: Path) -> None:
    """One convolution with one table, in which the simulator and onnxruntime find the same."""
    b = Builder(rng, number=number)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 9, 9)), b.weights(20, 3, 3, 3)))
    b.output(b.quantize(function(b, y)))
    path = b.save(tmp_path)
    imported = load_model(path, machine=Machine.having("table"))
    (layer,) = imported.graph.layers
    assert isinstance(layer, Conv) and operation(layer, Table)
    rows = compare_model(imported, b.samples()).layers
    assert [row.op for row in rows] == ["conv", "table"] and rows[1].differing == 0
    simulate(imported.graph, seed)


def test_behind_a_sum(rng: Rng, seed: int, tmp_path: Path) -> None:
    """The layer adds, and looks the sum up; the table in front of the sum is a copy of its own."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 8, 6, 6))
    y = b.requantize(silu(b, b.requantize(b.node("Conv", x, b.weights(8, 8, 1, 1)))))
    b.output(b.quantize(silu(b, b.requantize(b.node("Add", x, y)))))
    graph = load_model(b.save(tmp_path), machine=Machine.having("table")).graph
    assert [(type(layer), bool(layer.others), bool(operation(layer, Table))) for layer in graph.layers] == [
        (Conv, False, True), (Pool, True, True)]
    simulate(graph, seed)


def test_two_readers(rng: Rng, seed: int, tmp_path: Path) -> None:
    """What is quantised in front of the function is read elsewhere: the table is a copy."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3)))
    b.output(b.quantize(silu(b, y)))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 8, 1, 1))))
    graph = load_model(b.save(tmp_path), machine=Machine.having("table")).graph
    assert sorted((layer.op, bool(operation(layer, Table))) for layer in graph.layers) == [
        ("conv", False), ("conv", False), ("pool", True)]
    simulate(graph, seed)


def test_without_tables(rng: Rng, tmp_path: Path) -> None:
    """The processor has the function, and is told what would change that; the reason of what is no function stays."""
    b = Builder(rng)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3)))
    z = b.requantize(b.node("Sigmoid", y))
    b.output(b.quantize(b.node("Conv", z, b.weights(4, 8, 1, 1))))
    path = b.save(tmp_path)
    with pytest.raises(GraphError, match=r"\(Sigmoid\): .* which --features table puts on the accelerator"):
        load_model(path)
    found = open_application(path, NpuConfig.preset(16)).partition
    assert found is not None and [node.partition(" ")[0][:7] for node in found.host] == ["sigmoid"]
    assert open_application(path, CONFIG).partition is None
    with pytest.raises(CompileError, match="needs a table of its function, .*; --features table gives it one"):
        compile_kept(load_model(path, machine=Machine.having("table")).graph, NpuConfig.preset(16))


@pytest.mark.parametrize("number", [np.int8, np.uint8])
@pytest.mark.parametrize("moved", ["reshaped", "a part", "tokens"])
def test_of_a_rearranged_tensor(moved: str, number: type, rng: Rng, seed: int, tmp_path: Path) -> None:
    """What is not quantised again in front of the function stands for the tensor that it was taken of."""
    b = Builder(rng, number=number)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3)))
    if moved == "a part":
        y = b.node("Slice", y, *(b.constant([n]) for n in (3, 7, 1)))
    else:
        y = b.node("Reshape", y, b.constant([1, 8, 36]))
        y = b.node("Transpose", y, perm=[0, 2, 1]) if moved == "tokens" else y
    b.output(b.quantize(silu(b, y)), rank=4 if moved == "a part" else 3)
    imported = load_model(b.save(tmp_path), machine=Machine.having("table"))
    assert operation(imported.graph.layers[-1], Table)
    assert compare_model(imported, b.samples()).layers[-1].differing == 0
    simulate(imported.graph, seed)


def test_no_function_of_one_tensor(rng: Rng, tmp_path: Path) -> None:
    for number, make in enumerate((
            lambda b, x, y: b.node("Mul", x, y),
            lambda b, x, y: b.node("Pow", x, b.constant(np.float32([[[[1]], [[2]], [[3]]]]))),
            lambda b, x, y: b.node("Sigmoid", b.node("Conv", x, b.weights(3, 3, 1, 1))))):
        b = Builder(rng)
        x = b.dequantize(b.input(1, 3, 8, 8))
        y = b.requantize(b.node("Conv", x, b.weights(3, 3, 1, 1)))
        b.output(b.quantize(make(b, x, y)))
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(GraphError, match="two activations|not single numbers|unquantised result of node conv"):
            load_model(b.save(folder), machine=Machine.having("table"))


@pytest.mark.parametrize("behind", ["another scale", "LeakyRelu", "Relu", "Resize", "Sigmoid"])
def test_copies_go_into_the_table(behind: str, rng: Rng, seed: int, tmp_path: Path) -> None:
    """What a copy does to a value that is looked up is one more step of the same function."""
    b = Builder(rng, opset=18)
    y = b.requantize(b.node("Conv", b.dequantize(b.input(1, 3, 8, 8)), b.weights(8, 3, 3, 3)))
    z = b.requantize(silu(b, y), 0.03)
    match behind:
        case "another scale":
            result = b.quantize(z, 0.047)
        case "Resize":
            result = b.quantize(b.node("Resize", z, "", b.constant(np.float32([1, 1, 2, 2])), mode="nearest",
                                       nearest_mode="floor", coordinate_transformation_mode="asymmetric"), 0.03, 0)
        case _:
            result = b.quantize(b.node(behind, z), 0.03)
    b.output(result)
    imported = load_model(b.save(tmp_path), machine=Machine.having("table"))
    (layer,) = imported.graph.layers
    assert isinstance(layer, Conv) and operation(layer, Table) and not operation(layer, Leaky)
    assert compare_model(imported, b.samples()).largest <= 1
    simulate(imported.graph, seed)
