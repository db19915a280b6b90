"""Resize and Upsample: what is taken is what onnxruntime makes, what is refused is no repetition."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Graph, Move, Pool
from gen.onnx.importer import load
from tests.compiled import compile_kept, golden_tensors
from tests.gen.float_models import FloatBuilder
from tests.gen.qdq import Builder
from tests.gen.test_compiler import run_and_compare
from tests.gen.test_never_refused import compiled, host
from tests.gen.test_onnx_import import check

Rng = np.random.Generator

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
               "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resized(b: Builder, x: str, factors: Sequence[float], **attributes: str) -> str:
    scales = b.constant(np.array([1, 1, *factors], np.float32))
    roi = b.constant(np.zeros(0, np.float32)) if b.opset < 13 else ""
    return b.node("Resize", x, *([roi] if b.opset > 10 else []), scales, **{"mode": "nearest", **attributes})


def upsampled(graph: Graph) -> list[tuple[type, tuple[int, int]]]:
    return [(type(layer), layer.repeats) for layer in graph.layers]


@pytest.mark.parametrize("opset, coordinates", [
    *((11, mode) for mode in COORDINATES[:-1]), *((19, mode) for mode in COORDINATES if not mode.startswith("tf"))])
def test_modes(opset: int, coordinates: str, rng: Rng, tmp_path: Path) -> None:
    """Where onnxruntime repeats values so does the layer; all else a layer moves."""
    outcomes = set()
    for rounding, factors in product(ROUNDINGS, [(2, 2), (1, 3), (5, 4), (1.5, 0.5), (0.4, 2.5)]):
        b = Builder(rng, opset=opset)
        if coordinates == "align_corners" and factors[0] % 1:
            continue
        x = b.dequantize(b.input(1, 3, 4, 8), 0.05, 3)
        y = b.requantize(resized(b, x, factors, coordinate_transformation_mode=coordinates, nearest_mode=rounding),
                         0.05, 3)
        b.output(b.quantize(b.node("AveragePool", y, kernel_shape=[1, 2]), 0.05, 3))
        graph, comparison = check(b, tmp_path)
        assert comparison.largest <= 1, (rounding, factors)
        assert upsampled(graph)[0] in [(Pool, factors), (Move, (1, 1))]
        outcomes.add(type(graph.layers[0]))
    assert outcomes == {Pool, Move}


@pytest.mark.parametrize("coordinates, rounding, size, made", [
    ("asymmetric", "round_prefer_ceil", (7, 6), (4, 5)), ("asymmetric", "round_prefer_floor", (2, 23), (3, 14)),
    ("half_pixel", "round_prefer_ceil", (20, 2), (6, 3)), ("half_pixel", "round_prefer_floor", (14, 2), (19, 3))])
def test_places_between_two(coordinates: str, rounding: str, size: tuple[int, int], made: tuple[int, int], rng: Rng,
                            tmp_path: Path) -> None:
    """Of which float32 makes places next to the middle."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, *size), 0.05, 3)
    y = b.node("Resize", x, "", "", b.constant(np.array([1, 3, *made])), mode="nearest",
               coordinate_transformation_mode=coordinates, nearest_mode=rounding)
    b.output(b.quantize(b.node("AveragePool", b.requantize(y, 0.05, 3), kernel_shape=[1, 2]), 0.05, 3))
    assert check(b, tmp_path)[1].largest <= 1


@pytest.mark.parametrize("rounding, width, factor", [("floor", 10, 0.6), ("floor", 25, 1.5), ("ceil", 27, 1.3)])
def test_places_of_a_symmetric_row(rounding: str, width: int, factor: float, rng: Rng, tmp_path: Path) -> None:
    """Whole ones, as onnxruntime rounds them."""
    b = Builder(rng, opset=19)
    y = resized(b, b.dequantize(b.input(1, 3, 2, width), 0.05, 3), (2, factor), nearest_mode=rounding,
                coordinate_transformation_mode="half_pixel_symmetric")
    b.output(b.quantize(b.node("AveragePool", b.requantize(y, 0.05, 3), kernel_shape=[1, 2]), 0.05, 3))
    assert check(b, tmp_path)[1].largest <= 1


def test_factors_that_change_nothing(rng: Rng, tmp_path: Path) -> None:
    """Where the sizes stay onnxruntime leaves the values where they are."""
    b = Builder(rng)
    y = resized(b, b.dequantize(b.input(1, 3, 2, 2), 0.05, 3), (1.3, 1.3), nearest_mode="floor")
    b.output(b.quantize(b.node("AveragePool", b.requantize(y, 0.05, 3), kernel_shape=[1, 1]), 0.05, 3))
    graph, comparison = check(b, tmp_path)
    assert comparison.largest <= 1 and not any(isinstance(layer, Move) for layer in graph.layers)


@pytest.mark.parametrize("form", ["scales", "sizes", "axes", "integers", "first", "upsample9", "upsample7", "rank3"])
def test_forms(form: str, rng: Rng, tmp_path: Path) -> None:
    """The ways to say how often, of tensors dequantised and as integers."""
    opset = {"axes": 18, "first": 10, "upsample9": 9, "upsample7": 7}.get(form, 13)
    b = Builder(rng, opset=opset, number=np.uint8 if form == "sizes" else np.int8)
    x = b.input(1, 5, *((1,) if form != "rank3" else ()), 6)
    domain, quantisation = "com.microsoft" if opset < 10 else "", (b.scale(0.05), b.point(3))
    x = x if form == "integers" else b.node("DequantizeLinear", x, *quantisation, domain=domain)
    size = np.array([1, 5, 3, 12])
    match form:
        case "scales" | "first":
            y = resized(b, x, (3, 2))
        case "rank3":
            y = resized(b, x, (2,))
        case "axes":
            y = b.node("Resize", x, "", "", b.constant(size[[3, 2]]), mode="nearest", axes=[-1, 2])
        case "sizes" | "integers":
            y = b.node("Resize", x, "", "", b.constant(size), mode="nearest")
        case "upsample9":
            y = b.node("Upsample", x, b.constant(np.array([1, 1, 3, 2], np.float32)), mode="nearest")
        case "upsample7":
            y = b.node("Upsample", x, mode="nearest", scales=[1.0, 1.0, 3.0, 2.0])
    y = y if form == "integers" else b.node("QuantizeLinear", y, *quantisation, domain=domain)
    b.output(y, rank=3 if form == "rank3" else 4)
    graph, comparison = check(b, tmp_path)
    assert upsampled(graph) == [(Pool, (1, 2) if form == "rank3" else (3, 2))] and comparison.largest == 0


def layers_of(b: Builder, folder: Path, *configs: NpuConfig) -> Graph:
    """The layers of a model that is right, also as a program."""
    graph, comparison = check(b, folder)
    assert comparison.largest <= 1
    for config in configs or (NpuConfig.preset(16),):
        program, kept = compile_kept(graph, config)
        run_and_compare(program, kept, 1, ("load", "store"))
    return graph


def convolved(b: Builder, x: str, channels: int = 6) -> str:
    return b.node("Conv", x, b.weights(channels, 3, 3, 3), pads=[1, 1, 1, 1])


def test_in_the_layer_in_front(rng: Rng, tmp_path: Path) -> None:
    """Of a result that is quantised before it or only after, with a Relu on its way."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 5, 6))
    y = resized(b, b.node("Relu", convolved(b, x)), (2, 3))
    y = resized(b, b.requantize(y, 0.05, 3), (1, 2))
    b.output(b.quantize(b.node("Relu", y), 0.05, 3))
    graph = layers_of(b, tmp_path, NpuConfig.preset(16), NpuConfig.preset(64, depthwise=1))
    assert upsampled(graph) == [(Conv, (2, 6))]


def test_beside_what_is_resized(rng: Rng, tmp_path: Path) -> None:
    """A copy where the small tensor is needed, too; added to another in the copy, or in the layer that it is in."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 5, 6))
    small, large = (b.requantize(convolved(b, x), 0.05, 3) for _ in "ab")
    skip = b.requantize(resized(b, large, (2, 2)), 0.05, 3)
    y = b.requantize(b.node("Add", resized(b, small, (2, 2)), skip))
    b.output(b.quantize(b.node("Conv", y, b.weights(4, 6, 1, 1))))
    b.output(b.quantize(b.node("GlobalAveragePool", small), 0.05, 3))
    graph = layers_of(b, tmp_path)
    assert sorted(map(str, upsampled(graph))) == sorted(map(str, [
        (Conv, (1, 1)), (Conv, (2, 2)), (Pool, (2, 2)), (Conv, (1, 1)), (Pool, (1, 1))]))


def test_not_in_what_adds_or_pools(rng: Rng, tmp_path: Path) -> None:
    b = Builder(rng)
    x = b.dequantize(b.input(1, 3, 6, 6))
    total = b.requantize(b.node("Add", convolved(b, x, 3), x), 0.1)
    pooled = b.requantize(b.node("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2]), 0.1)
    b.output(b.quantize(resized(b, pooled, (2, 2)), 0.1, 3))
    b.output(b.quantize(resized(b, total, (2, 1)), 0.1, 3))
    assert upsampled(layers_of(b, tmp_path)) == [(Conv, (1, 1)), (Pool, (1, 1)), (Pool, (2, 2)), (Pool, (2, 1))]


def test_to_another_scale(rng: Rng, tmp_path: Path) -> None:
    """A Resize that is quantised otherwise than its input requantises in one layer, with a constant in between too."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 4, 5, 7), 0.05, 3)
    y = b.node("Add", resized(b, x, (2, 2)), b.constant(np.full((1, 4, 1, 1), 0.37, np.float32)))
    b.output(b.quantize(y, 0.031))
    assert upsampled(layers_of(b, tmp_path)) == [(Conv, (2, 2))]


@pytest.mark.parametrize("factors, phases", [
    ((2, 2), 4), ((4, 2), 8), ((1, 3), 3), ((8, 8), 16), ((0.5, 0.5), 1), ((0.25, 1), 1), ((1.5, 0.75), 9),
    ((1, 0.125), 1), ((8, 0.5), 8),
    ((1, 16), 16), ((0.125, 0.6), 3)])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_linear(factors: tuple[float, float], phases: int, coordinates: str, rng: Rng, tmp_path: Path) -> None:
    """Between neighbours: within a unit of what onnxruntime makes, a flat map stays flat."""
    b = Builder(rng, opset=13)
    y = resized(b, b.dequantize(b.input(1, 5, 8, 16), 0.05, 3), factors, mode="linear",
                coordinate_transformation_mode=coordinates)
    b.output(b.quantize(y, 0.05, 3))
    graph = layers_of(b, tmp_path, NpuConfig.preset(16), NpuConfig.preset(64, depthwise=1))
    assert sum(isinstance(layer, Conv) for layer in graph.layers) == phases


def test_linear_of_one_pixel(rng: Rng, tmp_path: Path) -> None:
    """As the pooled branch of an ASPP: what it makes is that pixel everywhere."""
    b = Builder(rng)
    y = resized(b, b.dequantize(b.input(1, 20, 1, 1), 0.05, 3), (33, 17), mode="linear")
    b.output(b.quantize(y, 0.05, 3))
    assert not any(isinstance(layer, Conv) and layer.weights.size > 20 for layer in layers_of(b, tmp_path).layers)


@pytest.mark.parametrize("opset, coordinates", [
    *((11, mode) for mode in COORDINATES[:-2]), (19, "half_pixel_symmetric"), (10, ""), (9, "")])
def test_linear_forms(opset: int, coordinates: str, rng: Rng, tmp_path: Path) -> None:
    """With align_corners blends repeat as one size less 1 divides by the other less 1, so in small maps alone."""
    b = Builder(rng, opset=opset)
    x = b.input(1, 20, 5, 12 if coordinates == "align_corners" else 8)
    x = b.node("DequantizeLinear", x, b.scale(0.05), b.point(3),
               domain="com.microsoft" if opset < 10 else "")
    if opset == 9:
        y = b.node("Upsample", x, b.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    else:
        given = {"coordinate_transformation_mode": coordinates} if coordinates else {}
        y = resized(b, x, (2, 2), mode="linear", **given)
    b.output(b.node("QuantizeLinear", y, b.scale(0.05), b.point(3), domain="com.microsoft" if opset < 10 else ""))
    if coordinates == "align_corners":      # 5 to 10 are 4 to 9, and 12 to 24 are 11 to 23
        with pytest.raises(GraphError, match="whose weights do not repeat"):
            load(b.save(tmp_path))
    else:
        layers_of(b, tmp_path)


@pytest.mark.parametrize("factors", [(2, 2), (8, 8), (1.5, 3)])
def test_linear_of_one_value(factors: tuple[float, float], rng: Rng, tmp_path: Path) -> None:
    """A flat map stays flat, at its edges too."""
    b = Builder(rng)
    y = resized(b, b.dequantize(b.input(1, 3, 4, 6), 0.05, 3), factors, mode="linear")
    b.output(b.quantize(y, 0.05, 3))
    graph = load(b.save(tmp_path))
    for number in (-128, 0, 77, 127):
        values = golden_tensors(graph, {"x": np.full((3, 4, 6), number, np.int8)})
        assert (values[graph.layers[-1].output] == number).all()


def test_linear_of_a_long_axis(rng: Rng, tmp_path: Path) -> None:
    """Scales are taken for what they are rounded from, however small, and never for another that is near."""
    b = Builder(rng)
    x = b.dequantize(b.input(1, 12, 2, 1500), 0.05, 3)
    y = b.node("Resize", x, "", "", b.constant(np.array([1, 12, 2, 1])), mode="linear")
    b.output(b.quantize(y, 0.05, 3))
    assert check(b, tmp_path)[1].largest <= 1
    b = Builder(rng)
    y = resized(b, b.dequantize(b.input(1, 1, 1, 4000), 0.05, 3), (1, 1.0003), mode="linear")
    b.output(b.quantize(y, 0.05, 3))
    with pytest.raises(GraphError, match="makes 4001 rows or columns of 4000, whose weights do not repeat"):
        load(b.save(tmp_path))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_nothing_is_left(mode: str, rng: Rng, tmp_path: Path) -> None:
    """A third of two columns is none, in ONNX and in onnxruntime."""
    b = Builder(rng)
    b.output(b.quantize(resized(b, b.dequantize(b.input(1, 3, 4, 2), 0.05, 3), (1, 0.3), mode=mode), 0.05, 3))
    with pytest.raises(GraphError, match="resize.*leaves nothing of its input"):
        load(b.save(tmp_path))


def test_linear_between_layers(rng: Rng, tmp_path: Path) -> None:
    """Of a float model, as in a feature pyramid: added to a finer map, with an activation after it. At the output the
    processor blends.
    """
    b = FloatBuilder(rng, ["n", 8, 6, 8])
    fine = b.node("Relu", b.same_conv("x", 8, 16))
    coarse = b.node("Relu", b.conv(fine, 16, 16, strides=[2, 2], pads=[1] * 4))
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    y = b.node("Relu", b.node("Add", b.node("Resize", coarse, "", scales, mode="linear"), fine))
    y = b.node("Resize", b.same_conv(y, 16, 4), "", scales, mode="linear")
    found = compiled(b.model(y), tmp_path)
    assert len(host(found)) == 1
    assert len(found.workloads) == 1


def test_linear_that_no_layer_can_be(rng: Rng, tmp_path: Path) -> None:
    """A stride that is no product of those that loads have: the processor blends, and the rest stays where it is."""
    b = FloatBuilder(rng, ["n", 4, 26, 33])
    y = b.node("Relu", b.same_conv("x", 4, 8))
    y = b.node("Resize", y, "", b.constant(np.array([1, 1, 1 / 13, 1 / 11], np.float32)), mode="linear")
    found = compiled(b.model(b.same_conv(y, 8, 4)), tmp_path)
    assert len(host(found)) == 1 and sum(len(workload.graph.layers) for workload in found.workloads) >= 2
