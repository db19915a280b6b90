"""Products of two activations on the array: values, ranges, order of writes and loads, and what machines refuse."""

from dataclasses import replace
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.check.bounds import Bounds
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.errors import GraphError, UnfitError
from gen.ir.graph import Graph, MatMul
from gen.ir.ranges import input_ranges
from gen.ir.verify import verify
from gen.lowering.tiles import Tile
from gen.mapping import turn
from gen.onnx.runtime import RuntimeModel
from sim.cycles import estimate
from sim.errors import HazardError
from tests.compiled import compile_kept, golden_tensors
from tests.every_order import check_in_every_order
from tests.random_layers import random_inputs
from tests.random_products import product_graph, random_products
from tests.selection import with_full

MACHINES = {
    "16": NpuConfig.preset(16, gather=1, input_depth=512),
    "64": NpuConfig.preset(64, gather=1),
    "256": NpuConfig.preset(256, gather=1, depthwise=1),
    "windows": NpuConfig.preset(512, gather=1),
    "one pixel": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, pixel_lanes=1, select_fanin=4, input_depth=512,
                           acc_depth=64, gather=1),
    "whole beats": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=8, input_depth=256, acc_depth=64, gather=1),
}
#: That turn matrices on their way to the weight ring.
TURNING = {
    "turn 16": NpuConfig.preset(16, turn=1, input_depth=512),
    "turn 64": NpuConfig.preset(64, turn=1, gather=1, local_store=1, depthwise=1),
    "turn 256": NpuConfig.preset(256, turn=1),
    "turn spread": NpuConfig.preset(256, turn=1, depthwise=1),
    "turn windows": NpuConfig.preset(512, turn=1),
    "turn one pixel": NpuConfig(oc_lanes=32, ic_lanes=8, nnz_lanes=4, pixel_lanes=1, select_fanin=4, input_depth=512,
                                acc_depth=64, turn=1),
    "turn whole beats": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=8, input_depth=256, acc_depth=64, turn=1),
}

#: 197 keys, of which no set of lanes is whole, a head of 20 channels, zero points; both ways.
SCORES = product_graph(reduced=20, rows=197, size=(197, 1), zero_points=(3, -7), outputs=224)
VALUES = product_graph(reduced=197, rows=20, size=(1, 45), zero_points=(-128, 5), by_channels=True)


@pytest.mark.slow
@pytest.mark.parametrize("form, name", with_full(
    list(product(("scores", "values"), MACHINES)), *(
        ("values", name) if index % 2 else ("scores", name) for index, name in enumerate(MACHINES, 1))))
def test_directed(form: str, name: str) -> None:
    graph = {"scores": SCORES, "values": VALUES}[form]
    program, turned = compile_kept(graph, MACHINES[name])
    assert [(layer.op, layer.mode) for layer in program.layers] == [("turn", "gathered"), ("matmul", "activations")]
    assert program.layers[1].macs == 20 * 197 * graph.tensors["a"].shape[1] * graph.tensors["a"].shape[2]
    check_in_every_order(program, turned, 1)
    inputs = random_inputs(graph, 1)
    np.testing.assert_array_equal(golden_tensors(graph, inputs)["y"], golden_tensors(turned, inputs)["y"])


@pytest.mark.parametrize("name", [*MACHINES, *TURNING])
def test_random(name: str, seed: int) -> None:
    for number in range(seed, seed + 4):
        made = random_products(number, largest=70, parts=1 if name in MACHINES else 5)
        program, graph = compile_kept(made, {**MACHINES, **TURNING}[name])
        check_in_every_order(program, graph, number)


#: Windows of 7x7 pixels, with heads of 20 channels: no lanes, no blocks are whole.
WINDOW = dict(size=(7, 7), zero_points=(-128, 5), parts=6)
IN_PARTS = {
    "scores": product_graph(reduced=20, rows=49, outputs=64, **WINDOW),     # type: ignore[arg-type]
    "values": product_graph(reduced=49, rows=20, by_channels=True, **WINDOW),   # type: ignore[arg-type]
}


@pytest.mark.parametrize("form, name", with_full(
    list(product(IN_PARTS, TURNING)), ("scores", "turn 64"), ("values", "turn 256"), ("scores", "turn one pixel")))
def test_parts(form: str, name: str) -> None:
    """Each part of the pixels has a matrix of its own: the values are those of as many products."""
    graph = IN_PARTS[form]
    program, kept = compile_kept(graph, TURNING[name])
    assert program.layers[0].macs == 6 * 49 * 49 * 20
    check_in_every_order(program, kept, 1)
    inputs, (layer,) = random_inputs(graph, 1), graph.layers
    assert isinstance(layer, MatMul)
    one, whole = replace(layer, parts=1), layer.accumulate([inputs["a"], inputs["b"]], -128)
    for part in range(6):
        a, b = (np.split(array.reshape(len(array), 1, -1), 6, axis=2)[part] for array in (inputs["a"], inputs["b"]))
        np.testing.assert_array_equal(np.split(whole.reshape(len(whole), -1), 6, axis=1)[part],
                                      one.accumulate([a, b], -128)[:, 0])


@pytest.mark.parametrize("rows", [16, 48])
def test_spread_words(rows: int) -> None:
    """As many channels as a group of lanes has: all groups get them, and make other pixels."""
    sizes = dict(reduced=49, by_channels=True, **WINDOW)
    cycles = []
    for unit in ({}, {"depthwise": 1}):
        config = NpuConfig.preset(256, turn=1, **unit)
        program, kept = compile_kept(product_graph(rows=rows, **sizes), config)     # type: ignore[arg-type]
        check_in_every_order(program, kept, 1)
        cycles.append(estimate(config, program.code).cycles)
    assert cycles[1] < 0.75 * cycles[0]


def test_a_part_has_no_keys_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of the first part for all of them give other bytes."""
    load = Tile.load_turned
    monkeypatch.setattr(Tile, "load_turned", lambda self, part, first, *others: load(self, part, first % 49, *others))
    program, kept = compile_kept(product_graph(reduced=16, rows=49, **WINDOW),  # type: ignore[arg-type]
                                 TURNING["turn 64"])
    with pytest.raises(AssertionError, match="layer product"):
        check_in_every_order(program, kept, 1)


def test_parts_take_the_corner_turn() -> None:
    with pytest.raises(UnfitError, match="in parts of their pixels; build with --features turn"):
        compile_graph(IN_PARTS["scores"], MACHINES["64"])


@pytest.mark.parametrize("form, name", with_full(
    list(product(("scores", "values"), TURNING)), *(
        ("values", name) if index % 2 else ("scores", name) for index, name in enumerate(TURNING, 1))))
def test_turned_on_the_way(form: str, name: str) -> None:
    graph = {"scores": SCORES, "values": VALUES}[form]
    program, kept = compile_kept(graph, TURNING[name])
    assert [(layer.op, layer.mode) for layer in program.layers] == [("matmul", "activations")]
    assert Opcode.LOAD_TURN in {instruction.opcode for instruction in program.instructions}
    check_in_every_order(program, kept, 1)


def test_values_are_those_of_onnxruntime(rng: np.random.Generator) -> None:
    """Of MatMulInteger, which subtracts the zero points."""
    for by_channels in (False, True):
        graph = product_graph(reduced=9, rows=11, size=(3, 4), zero_points=(-128, 5), by_channels=by_channels)
        inputs = random_inputs(graph, int(rng.integers(1000)))
        a, b = inputs["a"].reshape(9, -1).T, inputs["b"].reshape(11, 9).T if by_channels else inputs["b"].reshape(9, 11)
        node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
        model = helper.make_model(helper.make_graph(
            [node], "product", [helper.make_tensor_value_info(n, TensorProto.INT8, x.shape) for n, x in zip(
                "ab", (a, b), strict=True)], [helper.make_tensor_value_info("y", TensorProto.INT32, (12, 11))],
            [helper.make_tensor(f"z{n}", TensorProto.INT8, (), [z]) for n, z in zip("ab", (-128, 5), strict=True)]),
            opset_imports=[helper.make_opsetid("", 17)])
        onnx.checker.check_model(model)
        expected, = RuntimeModel(model).run({"a": np.ascontiguousarray(a), "b": np.ascontiguousarray(b)})
        (layer,) = graph.layers
        sums = layer.accumulate([inputs["a"], inputs["b"]], -128) + layer.requantize.bias[:, None, None]
        np.testing.assert_array_equal(sums.reshape(11, 12).T, expected)


@pytest.mark.parametrize("by_channels", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_ranges_and_distances(rng: np.random.Generator, parts: int, by_channels: bool) -> None:
    made = product_graph(reduced=6, rows=5, size=(1, 7), zero_points=(100, -128), by_channels=by_channels, outputs=8,
                         parts=parts)
    for graph in (made, compile_graph(made, MACHINES["16"] if parts == 1 else TURNING["turn 16"])[1]):
        reads = input_ranges(graph)
        for _ in range(20):
            ends = {name: rng.choice([-128, 127], graph.tensors[name].shape).astype(np.int8) for name in "ab"}
            tensors = golden_tensors(graph, ends)
            for layer in graph.layers:
                low, high = layer.sum_range(reads[layer.name])
                sums = layer.accumulate([tensors[name] for name in layer.operands], 0)
                assert (low[:, None, None] <= sums).all() and (sums <= high[:, None, None]).all()
                other = [tensors[name] ^ rng.integers(0, 3, tensors[name].shape, np.int8) for name in layer.operands]
                apart = [abs(x.astype(int) - y) for x, y in zip(
                    other, (tensors[name] for name in layer.operands), strict=True)]
                assert (abs(layer.accumulate(other, 0) - sums) <= layer.sum_distance(apart)).all()
        _, kept = reference.run(graph, {name: ends[name][None] for name in "ab"}, keep=True)
        assert kept is not None and Bounds(graph, kept)["y"].max() == 1, "nothing but the rounding of y"


def test_rules() -> None:
    graph = product_graph(reduced=6, rows=5, size=(1, 7))
    verify(graph)
    for wrong, message in [
        (product_graph(reduced=6, rows=5, size=(1, 7), by_channels=True), "multiplies with 5 rows of 6, and there are"),
        (product_graph(reduced=7, rows=5, size=(1, 7)), "multiplies 6 channels with"),
    ]:
        tensors = {**graph.tensors, "b": wrong.tensors["b"]} if "rows of" in message else wrong.tensors
        with pytest.raises(GraphError, match=message if "rows of" in message else "multiplies"):
            verify(Graph("wrong", tensors, graph.layers, graph.inputs, graph.outputs))


@pytest.mark.parametrize(("name", "load"), [("16", Opcode.LOAD_WGT), ("turn 16", Opcode.LOAD_ACT)])
def test_weights_wait_until_they_are_stored(name: str, load: Opcode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second product's matrix is the first one's result. Without the token the strict simulator names both
    instructions."""
    graph = product_graph(reduced=8, rows=8, size=(8, 1))
    (first,) = graph.layers
    second = replace(first, name="again", matrix="y", output="z", zero_points=(0, 3))
    tensors = {**graph.tensors, "z": replace(graph.tensors["y"], name="z")}
    both = Graph("two", tensors, (first, second), graph.inputs, {"z": ("z", ())})
    program, _ = compile_kept(both, {**MACHINES, **TURNING}[name])
    assert any(i.opcode is load and i["stores"] for i in program.instructions)
    monkeypatch.setattr("gen.lowering.stores.Stores.last_writer", lambda *_: -1)
    program, both = compile_kept(both, {**MACHINES, **TURNING}[name])
    with pytest.raises(HazardError, match="no token orders it after instruction"):
        check_in_every_order(program, both, 1)


def test_nothing_is_zero_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that take what lies beside the last channel, or pixel, for data give other bytes."""
    loads = turn.TurnMapping._loads
    for graph in (SCORES, VALUES):
        monkeypatch.setattr(turn.TurnMapping, "_loads", lambda self, spatial: [
            replace(load, valid=self.config.beat_bytes) for load in loads(self, spatial)])
        program, turned = compile_kept(graph, MACHINES["64"])
        with pytest.raises(AssertionError, match="layer product/turn"):
            check_in_every_order(program, turned, 1)
        monkeypatch.undo()


def test_multipliers_are_used() -> None:
    """Of a head of a ViT with 197 tokens and 64 channels, by 256 multipliers: the share of cycles, turning included."""
    scores, values = dict(reduced=64, rows=197, outputs=224), dict(reduced=197, rows=64, by_channels=True)
    for unit, least, zero_points, sizes in [
        ("gather", 0.57, (0, 0), scores), ("gather", 0.47, (0, 0), values),
        ("turn", 0.84, (-128, 0), scores), ("turn", 0.89, (-128, 0), values),
    ]:
        graph = product_graph(size=(197, 1), zero_points=zero_points, **sizes)  # type: ignore[arg-type]
        program, _ = compile_kept(graph, NpuConfig.preset(256, **{unit: 1}))
        cycles = estimate(program.config, program.code).cycles
        assert 197 * 197 * 64 / 256 / cycles > least


def test_machines_that_cannot() -> None:
    graph = product_graph(reduced=4, rows=5, size=(1, 7))
    for config, reason in [(NpuConfig.preset(16), "build with --features gather"),
                           (NpuConfig.preset(64, gather=1, winograd=2, multiplier_width=18), "weights of 8 bits, not")]:
        with pytest.raises(UnfitError) as caught:
            compile_graph(graph, config)
        assert {name: reason in str(why) for name, why in caught.value.reasons.items()} == {"product": True}
    big = product_graph(reduced=4, rows=4000, size=(1, 7), by_channels=True)
    with pytest.raises(UnfitError, match="more than input_depth=512 has room for"):
        compile_graph(big, MACHINES["16"])


def test_two_products_of_one_matrix() -> None:
    """Each has it turned; the second one's input is a product."""
    graph = product_graph(reduced=8, rows=8, size=(1, 8))
    (first,) = graph.layers
    assert isinstance(first, MatMul)
    second = MatMul("again", "y", "z", matrix="b", outputs=8, rows=8, reduced=8, zero_points=(3, 0),
                    requantize=first.requantize)
    tensors = {**graph.tensors, "z": replace(graph.tensors["y"], name="z")}
    both = Graph("two", tensors, (first, second), graph.inputs, {"z": ("z", ())})
    program, turned = compile_kept(both, MACHINES["16"])
    check_in_every_order(program, turned, 3)
