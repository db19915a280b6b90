"""Kinds of layers that are defined here alone: every stage of the compiler takes them, or says which layer it does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cores.config import FEATURES, NpuConfig
from gen.check.bounds import Bounds
from gen.compiler import compile_graph, prepare
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import Range
from gen.ir.errors import CompileError, GraphError, LayerError, UnfitError
from gen.ir.graph import Graph, Pool
from gen.ir.layers.base import Layer
from gen.ir.ranges import input_ranges
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_memory
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.lowering.verify import StageError, verify_mapped
from gen.mapping.overflow_check import fit_sums
from gen.mapping.winograd.narrow import narrow_graph
from gen.options import CompileOptions
from gen.passes import run_passes
from gen.passes.streams import exact_layers
from gen.tiling.geometry import Geometry
from gen.tiling.schedule import Plan
from sim.golden import run_layer
from sim.stochastic.streams import Streams
from tests.random_layers import random_inputs

Rng = np.random.Generator


@dataclass(frozen=True, eq=False, kw_only=True)
class Highest(Layer):
    """The maximum of a pixel's channels."""

    op = "highest"
    summands = 1

    def channels(self, source: Tensor) -> int:
        return 1

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return operands[0].max(axis=-3, keepdims=True).astype(np.int64)

    def sum_range(self, operands: Sequence[Range]) -> Range:
        (low, high), = operands
        return low.max(keepdims=True), high.max(keepdims=True)

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return apart[0].max(axis=-3, keepdims=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class Products(Layer):
    """What two tensors have in a place, multiplied: a sum of two operands."""

    factor: str

    op = "products"
    summands = 2

    @property
    def operands(self) -> tuple[str, ...]:
        return self.input, self.factor

    def channels(self, source: Tensor) -> int:
        return source.shape[0]

    def problems(self, sources: Sequence[Tensor]):
        if sources[0].shape != sources[1].shape:
            yield "factors differ in shape"

    def accumulate(self, operands: Sequence[np.ndarray], zero_point: int) -> np.ndarray:
        return np.prod(operands, axis=0, dtype=np.int64)

    def sum_range(self, operands: Sequence[Range]) -> Range:
        ends = [a * b for a in operands[0] for b in operands[1]]
        return np.min(ends, axis=0), np.max(ends, axis=0)

    def sum_distance(self, apart: Sequence[np.ndarray]) -> np.ndarray:
        return 128 * (apart[0] + apart[1])


SHAPE = (5, 4, 6)


def stage(channels: int, shift: int = 16) -> Requantize:
    return Requantize(np.zeros(channels, np.int64), np.full(channels, 1 << 16), np.full(channels, shift), 0, -128, 127)


def graph() -> Graph:
    """A maximum; products of the input with a copy of it; a copy after each, which the layer before it can do."""
    layers = (
        Highest("highest", "x", "h", requantize=stage(1)),
        Pool("after", "h", "y", maximum=False, requantize=replace(stage(1), low=-5)),
        Pool("half", "x", "c", maximum=False, requantize=stage(5, 17)),
        Products("products", "x", "p", factor="c", requantize=stage(5, 22)),
        Pool("again", "p", "z", maximum=False, requantize=replace(stage(5), high=100)),
    )
    tensors = {name: Tensor(name, (1, *SHAPE[1:]) if name in "hy" else SHAPE, 1.0, 0, onnx_name=name * (name in "yz"))
               for name in "xhycpz"}
    return Graph("kinds", tensors, layers, {"x": ("x", ())}, {"y": ("y", ()), "z": ("z", ())})


def test_rules() -> None:
    made = graph()
    verify(made)
    highest, after, half, products, again = made.layers
    for layers, message in [
        ((highest, after, products, half, again), "layer products: input 'c' is read before it is written"),
        ((highest, after, half, replace(products, factor="h"), again), "layer products: factors differ in shape"),
        ((replace(highest, output="p"),), r"layer highest: output is \(5, 4, 6\), its layer makes \(1, 4, 6\)"),
    ]:
        with pytest.raises(GraphError, match=message):
            verify(replace(made, layers=layers))


def test_values_and_ranges(rng: Rng) -> None:
    made = graph()
    x = random_inputs(made, int(rng.integers(1000)))["x"][None]
    outputs, kept = reference.run(made, {"x": x}, keep=True)
    assert kept is not None
    np.testing.assert_array_equal(outputs["y"], np.maximum(x.max(axis=1, keepdims=True), -5))
    c = (x.astype(int) + 1) >> 1
    np.testing.assert_array_equal(outputs["z"], np.clip((x * c + 32) >> 6, -128, 100))
    for layer in made.layers:
        for name, (low, high) in zip(layer.operands, input_ranges(made)[layer.name], strict=True):
            assert (low[:, None, None] <= kept[name]).all() and (kept[name] <= high[:, None, None]).all()
    bounds = Bounds(made, kept)
    assert bounds["y"].max() == 1 and bounds["z"].max() == 2, "c is rounded here alone, and multiplied"


def test_operands_and_what_is_added(rng: Rng) -> None:
    """Of several tensors the sums' come first, then those of the epilogue."""
    x, factor, other = rng.integers(-128, 128, (3, *SHAPE)).astype(np.int8)
    added = Add(middle=Tensor("m", SHAPE, 1.0, 0), other="o", multiplier_a=1 << 14, multiplier_b=1 << 14, constant=0,
                shift=14, zero_point=0, low=-128, high=127)
    layer = replace(graph().layers[3], epilogue=(added,))
    assert layer.reads == ("x", "c", "o")
    product = np.clip((x.astype(int) * factor + 32) >> 6, -128, 127)
    np.testing.assert_array_equal(run_layer(layer, x, [factor, other]), np.clip(product + other, -128, 127))


def test_passes(rng: Rng) -> None:
    """Copies go into what makes their input, whatever that is; nothing is dropped that a second operand is."""
    made = graph()
    simple = run_passes(made)
    assert [layer.name for layer in simple.layers] == ["highest", "half", "products"]
    x = random_inputs(made, int(rng.integers(1000)))["x"][None]
    for name, values in reference.run(made, {"x": x})[0].items():
        np.testing.assert_array_equal(reference.run(simple, {"x": x})[0][name], values)


class Computed(MappedLayer):
    """In a way that there is not: what is asked of a mapped layer before anything is emitted."""

    mode = "some"


@dataclass
class Alone(Step):
    layers: Sequence[MappedLayer] = ()

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        raise AssertionError


def test_operands_are_in_memory_until_they_are_read() -> None:
    made, config = graph(), NpuConfig.preset(64)
    steps = []
    for layer in made.layers:
        source, target = made.tensors[layer.input], made.tensors[layer.output]
        geometry = Geometry.of(layer, source, target)
        plan = Plan(geometry, (geometry.spatial_tile(0, 1, 0, 24, config),), 1, True, False, 0, 0)
        steps.append(Alone((Computed(layer=layer, source=source, target=target, config=config,
                                     requantize=layer.requantize, plan=plan),)))
    mapped = MappedGraph(made, config, steps)
    verify_mapped(mapped)
    lives = {name: (life.first, life.last) for name, (_, life) in in_memory(mapped, keep_all=False).items()}
    assert lives == {"x": (-1, 3), "h": (0, 1), "y": (1, 5), "c": (2, 3), "p": (3, 4), "z": (4, 5)}
    with pytest.raises(StageError, match="layer products reads c before it is written"):
        verify_mapped(replace(mapped, steps=[*steps[:2], *steps[3:], steps[2]]))


def test_room() -> None:
    """Sums of any kind are proven to fit."""
    products = replace(graph().layers[3], requantize=replace(stage(5), bias=np.full(5, 1 << 26)))
    any_value = np.full(5, -128), np.full(5, 127)
    with pytest.raises(LayerError, match="layer products: channel 0 sums to -16256..16384 with bias 67108864"):
        fit_sums(products, NpuConfig(acc_width=24), [any_value, any_value])


def test_machines_say_which_layer() -> None:
    """A machine with everything: layers of these kinds are named, each with a reason of one line."""
    made = run_passes(graph())
    config = NpuConfig.preset(64, **NpuConfig.preset(64).feature_fields(FEATURES))
    for options in (CompileOptions(), CompileOptions(density=0.5), CompileOptions(winograd="narrow")):
        with pytest.raises(UnfitError) as caught:
            compile_graph(made, config, options)
        assert {name: (reason.code, str(reason)) for name, reason in caught.value.reasons.items()} == {
            layer.name: ("layer-kind", f"no machine computes layers of the kind {layer.op}; leave it to the processor")
            for layer in made.layers if layer.name != "half"}
    assert "it is a highest" in exact_layers(made, config)["highest"]
    with pytest.raises(CompileError, match="layer highest: cannot be computed by streams: it is a highest"):
        prepare(made, config, CompileOptions(stochastic={"highest": Streams(64)}))
    with pytest.raises(CompileError, match="layer products: only dense 3x3 convolutions of stride 1 have a Winograd"):
        narrow_graph(made, {"products": (0,) * 16})
