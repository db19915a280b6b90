"""What generated functions are: their parameters, their memory, and what is refused."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from gen.c import generate, render
from gen.c.arena import ALIGNMENT, place
from gen.c.value import Storage
from gen.ir.errors import GraphError
from gen.onnx.machine import Machine
from gen.onnx.read import of_proto
from gen.partition.partition import partition
from tests.gen.architecture_parts import PARTS
from tests.gen.c.compiled import Library, difference, reference
from tests.gen.c.random_nodes import floats, i64, one, several
from tests.gen.quantizing import quantized

make = helper.make_node


def _storage(name: str, count: int, first: int, last: int, *over: Storage) -> Storage:
    return Storage(name, np.dtype(np.float32), count, first=first, last=last, over=over)


def test_what_is_not_used_at_the_same_time_shares_its_place() -> None:
    first, second, third = _storage("a", 9, 0, 1), _storage("b", 4, 1, 2), _storage("c", 7, 2, 3)
    assert place([first, second, third]) == 40 + 16
    assert (first.offset, second.offset, third.offset) == (0, 40, 0)
    assert all(one_.offset % ALIGNMENT == 0 for one_ in (first, second, third))


def test_a_result_takes_the_place_of_an_operand_that_is_done() -> None:
    first = _storage("a", 8, 0, 1)
    second = _storage("b", 8, 1, 2, first)
    third = _storage("c", 8, 2, 3, second)
    assert place([first, second, third]) == 32
    again = _storage("b", 8, 1, 2, first)
    first.last = 2      # it is used once more
    assert place([first, again]) == 64


def test_memory_is_that_of_what_is_alive(rng: np.random.Generator) -> None:
    """A chain over 4 KiB needs no more than that, its last result being the output's."""
    nodes = [make("Sigmoid", [f"x{n}"], [f"x{n + 1}"]) for n in range(6)]
    model, _ = several(nodes, {"x0": floats(rng, 1024)}, ["x0"], ["x6"])
    assert generate(model, "chain").arena_size == 0
    branches = [make("Sigmoid", ["q"], ["s"]), make("Mul", ["s", "q"], ["y"])]
    model, _ = several([make("DequantizeLinear", ["x", "scale"], ["q"]), *branches],
                       {"x": rng.integers(-9, 9, (1024,), np.int8), "scale": np.array(0.1, np.float32)}, ["x"], ["y"])
    assert generate(model, "silu").source.count("op_") == 1
    turned = [make("Transpose", [f"x{n}"], [f"x{n + 1}"]) for n in range(6)]
    model, _ = several(turned, {"x0": floats(rng, 32, 32)}, ["x0"], ["x6"])
    assert generate(model, "chain").arena_size == 2 * 4096


def test_parameters_are_those_of_the_model(rng: np.random.Generator) -> None:
    nodes = [make("Cast", ["a"], ["c"], to=1), make("Add", ["c", "b"], ["sum"]), make("NonZero", ["a"], ["n"])]
    model, _ = several(nodes, {"a": np.zeros((2, 3), np.int8), "b": floats(rng, 3)}, ["a", "b"],
                       ["sum", "n"])
    found = generate(model, "both")
    assert found.prototype == (
        "void both(const int8_t *in0, const float *in1, float *out0, int64_t *out1, size_t *out1_shape, void *arena)")
    assert [(port.name, port.shape, port.sized) for port in found.outputs] == [
        ("sum", (2, 3), False), ("n", (2, 6), True)]
    assert [(port.name, port.word, port.c_type) for port in found.inputs] == [
        ("a", "in0", "int8_t"), ("b", "in1", "float")]


def test_the_same_model_gives_the_same_text(rng: np.random.Generator) -> None:
    model, _ = one("Softmax", [floats(rng, 2, 3)])
    assert render([generate(model, "f")]) == render([generate(model, "f")])
    assert all(word not in render([generate(model, "f")]) for word in ("malloc", "stdio"))


def test_operators_share_their_code(rng: np.random.Generator) -> None:
    functions = [generate(one("Softmax", [floats(rng, 2, size)])[0], f"f{size}") for size in (3, 4, 5)]
    assert render(functions).count("static void op_softmax_f32(") == 1


def test_a_loop_of_many_operands(rng: np.random.Generator, tmp_path: Path) -> None:
    words = [f"x{number}" for number in range(13)]
    nodes = [make("Add", [words[0] if number == 1 else f"y{number - 1}", words[number]], [f"y{number}"])
             for number in range(1, 13)]
    model, inputs = several(nodes, {word: floats(rng, 2, 5) for word in words}, words, ["y12"])
    (got,), (expected,) = Library([generate(model, "f")], tmp_path)("f", inputs), reference(model, inputs)
    assert difference(got, expected) <= 1


def test_functions_share_their_constants(rng: np.random.Generator, tmp_path: Path) -> None:
    """The same numbers of the same type are in a file once; of another type, or others, they are not."""
    weights = floats(rng, 40)
    models = {"f": several([make("Mul", ["x", "w"], ["y"])], {"x": floats(rng, 40), "w": weights}, ["x"], ["y"]),
              "g": several([make("Add", ["x", "w"], ["y"])], {"x": floats(rng, 40), "w": weights}, ["x"], ["y"]),
              "other": several([make("Add", ["x", "w"], ["y"])], {"x": floats(rng, 40), "w": -weights}, ["x"], ["y"]),
              "wide": several([make("Sub", ["x", "w"], ["y"])], {"x": i64(*range(40)), "w": i64(*range(40))}, ["x"],
                              ["y"]),
              "narrow": several([make("Sub", ["x", "w"], ["y"])], {
                  "x": np.arange(40, dtype=np.int32), "w": np.arange(40, dtype=np.int32)}, ["x"], ["y"])}
    functions = [generate(model, name) for name, (model, _) in models.items()]
    text = render(functions)
    assert (text.count("static const float k_"), text.count("static const int64_t k_"),
            text.count("static const int32_t k_")) == (2, 1, 1)
    library = Library(functions, tmp_path)
    for name, (model, inputs) in models.items():
        for got, expected in zip(library(name, inputs), reference(model, inputs), strict=True):
            assert difference(got, expected) <= 1


def test_outputs_that_are_inputs_constants_or_each_other(rng: np.random.Generator, tmp_path: Path) -> None:
    nodes = [make("Identity", ["x"], ["same"]), make("Reshape", ["x", "flat"], ["again"]), make("Exp", ["x"], ["e"]),
             make("Reshape", ["e", "flat"], ["f"]), make("Identity", ["k"], ["constant"])]
    model, inputs = several(nodes, {"x": floats(rng, 2, 3), "flat": i64(6), "k": floats(rng, 2)}, ["x"],
                            ["same", "again", "e", "f", "constant"])
    found = Library([generate(model, "f")], tmp_path)("f", inputs)
    for got, expected in zip(found, reference(model, inputs), strict=True):
        assert difference(got, expected) <= 1


def test_no_output_gives_way_to_another_one(rng: np.random.Generator, tmp_path: Path) -> None:
    nodes = [make("Transpose", ["x"], ["t"]), make("Neg", ["t"], ["first"]), make("Softmax", ["first"], ["second"])]
    for outputs in (["first", "second"], ["second", "first"]):
        model, inputs = several(nodes, {"x": floats(rng, 6, 4)}, ["x"], outputs)
        folder = tmp_path / outputs[0]
        folder.mkdir()
        found = Library([generate(model, "f")], folder)("f", inputs)
        assert all(difference(one_, other) <= 1 for one_, other in zip(found, reference(model, inputs), strict=True))


def test_indices_beyond_a_tensor_stay_within_it(rng: np.random.Generator, tmp_path: Path) -> None:
    x = floats(rng, 4)
    model, _ = one("Gather", [x, i64(0, 1, 2)], given=2)
    found = Library([generate(model, "f")], tmp_path)("f", {"x0": x, "x1": i64(99, -99, -1)})
    np.testing.assert_array_equal(found[0], x[[3, 0, 3]])


@pytest.mark.parametrize("made, words", [
    (lambda rng: one("Det", [floats(rng, 3, 3)]), "no C code is generated for Det at all"),
    (lambda rng: one("MaxPool", [floats(rng, 1, 1, 4, 4)], kernel_shape=[2, 2], outputs=2), "MaxPool with indices"),
    (lambda rng: one("Reshape", [floats(rng, 4), i64(2, 2)], given=2), "x1 is computed by the model"),
    (lambda rng: one("Cast", [floats(rng, 4)], to=10), "Cast to float16"),
])
def test_what_there_is_no_code_for_is_refused(made: object, words: str, rng: np.random.Generator) -> None:
    model, _ = made(rng)  # type: ignore[operator]
    with pytest.raises(GraphError, match=words) as raised:
        generate(model, "f")
    assert raised.value.code == "not-in-c" and str(raised.value).startswith("node node (")
    assert raised.value.fields["operator"] in str(raised.value) and "\n" not in str(raised.value)


def test_an_open_shape_is_refused(rng: np.random.Generator) -> None:
    model, _ = one("Exp", [floats(rng, 4, 5)])
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "n"
    with pytest.raises(GraphError, match="input x0 has a dynamic shape") as raised:
        generate(model, "f")
    assert raised.value.code == "open-shape"


def test_constants_that_are_dequantised_stay_integers(rng: np.random.Generator, tmp_path: Path) -> None:
    nodes = [make("DequantizeLinear", ["w", "scale"], ["v"]), make("MatMul", ["x", "v"], ["y"])]
    model, inputs = several(nodes, {"x": floats(rng, 3, 8), "w": rng.integers(-9, 9, (8, 5), np.int8),
                                    "scale": np.array(0.25, np.float32)}, ["x"], ["y"])
    function = generate(model, "f")
    assert "static const int8_t" in render([function])
    assert difference(Library([function], tmp_path)("f", inputs)[0], reference(model, inputs)[0]) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist8_float", "mlperf_kws_dscnn_int8", "tinymaix_mnist_valid_int8"])
def test_whole_models(name: str, models: Path, rng: np.random.Generator, tmp_path: Path) -> None:
    """Of integers, sums in another order may lead to the next one."""
    model = onnx.load(models / f"{name}.onnx")
    function = generate(model, "f")
    inputs = {port.name: rng.random(port.shape, np.float32) if port.c_type == "float"
              else rng.integers(-128, 128, port.shape, np.int8) for port in function.inputs}
    for got, expected in zip(Library([function], tmp_path)("f", inputs), reference(model, inputs), strict=True):
        assert difference(got, expected) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_segments_of_architectures(part: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """All that a machine without optional units leaves to the processor."""
    model, _ = PARTS[part](rng)
    shape = [dim.dim_value or 1 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    samples = rng.random((4, *shape[1:])).astype(np.float32)
    cut = partition(of_proto(part, quantized(model, samples).model), machine=Machine())
    models = {f"part{number}": segment.model for number, segment in enumerate(cut.segments) if segment.place == "host"}
    functions = [generate(model, name) for name, model in models.items()]
    library = Library(functions, tmp_path)
    for function in functions:
        inputs = {}
        for port in function.inputs:
            kind = port.c_type.removesuffix("_t")
            inputs[port.name] = (floats(rng, *port.shape) if kind == "float"
                                 else rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, port.shape, kind))
        for got, expected in zip(library(function.name, inputs), reference(models[function.name], inputs), strict=True):
            assert difference(got, expected) <= (1 if expected.dtype.kind == "f" else 0)
