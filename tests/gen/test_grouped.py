"""Convolutions in groups, without the zeros between these."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from gen.bench.layers import LayerBenchmark, conv_graph
from gen.compiler import compile_graph
from gen.ir.errors import GraphError
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.parts import without_gaps
from gen.ir.tensor import Part, Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.base import MappingContext
from gen.mapping.grouped import GroupedMapping
from gen.mapping.pack import steps_on
from gen.mapping.plain import PlainMapping
from gen.onnx.handlers.conv import ungrouped
from gen.onnx.importer import load
from gen.options import CompileOptions
from gen.passes.arrange_groups import arrange_groups
from gen.passes.split_multipliers import split_multipliers
from gen.program.program import Program
from sim.cycles import estimate
from tests.compiled import compile_kept, compile_random, golden_tensors
from tests.every_order import check_in_every_order
from tests.gen.float_models import FloatBuilder
from tests.gen.quantizing import quantized
from tests.gen.test_compiler import run_and_compare
from tests.random_layers import random_graph, random_inputs

Rng = np.random.Generator

#: Lanes that reach all channels of a block and lanes that do not; the last has small memories.
CONFIGS = {
    "256": NpuConfig.preset(256, depthwise=1), "1024": NpuConfig.preset(1024, depthwise=1),
    "1024 dense": NpuConfig.preset(1024, "dense", depthwise=1), "plain": NpuConfig.preset(256),
    "small": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=256, acc_depth=64,
                       weight_depth=512, queue_depth=4),
}


def grouped_graph(rng: Rng, groups: int, inputs: int, outputs: int, *, kernel: tuple[int, int] = (3, 3),
                  stride: tuple[int, int] = (1, 1), size: tuple[int, int] = (9, 11), pad: int = 1, limit: int = 120,
                  density: float = 1.0) -> Graph:
    """A layer of so many ``inputs`` and ``outputs`` a group."""
    weights = rng.integers(-limit, limit + 1, (groups * outputs, inputs, *kernel)).astype(np.int16)
    weights *= rng.random(weights.shape) < density
    made = [output_size(length, taps, step, pad, pad) for length, taps, step in zip(size, kernel, stride, strict=True)]
    spread = float(np.sqrt(max(1.0, (weights.astype(float)**2).sum(axis=(1, 2, 3)).mean()))) * 60
    count = len(weights)
    stage = Requantize(rng.integers(-999, 999, count), rng.integers(40_000, 60_000, count),
                       int(np.log2(spread)) + rng.integers(10, 12, count), 3, -128, 127)
    layer = Conv("layer", "x", "y", weights=ungrouped(weights, groups), groups=groups, stride=stride, pads=(pad,) * 4,
                 requantize=stage)
    return Graph("grouped", {"x": Tensor("x", (groups * inputs, *size), 1.0, int(rng.integers(-128, 128))),
                             "y": Tensor("y", (len(weights), *made), 1.0, 3)},
                 (layer,), {"input": ("x", ())}, {"output": ("y", ())})


def slots(program: Program) -> int:
    """Multiplier slots that a program issues, those of pixels beyond a row's last among them."""
    config, issued = program.config, 0
    geometry: Instruction | None = None
    for instruction in program.instructions:
        if instruction.opcode == Opcode.COMPUTE_SET:
            geometry = instruction
        elif instruction.opcode == Opcode.COMPUTE:
            assert geometry is not None
            words = -(-geometry["cols"] // config.word_columns(spread=geometry["words"] == WordForm.SPREAD))
            issued += (instruction["blocks"] * instruction["groups"] * geometry["kernel_h"] * geometry["kernel_w"]
                       * geometry["rows"] * words * config.macs)
    return issued


@pytest.mark.parametrize("config", CONFIGS)
def test_values(config: str, rng: Rng, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every order: groups that share blocks and that go over their ends, unequal ones, odd maps, wide weights."""
    monkeypatch.setattr(GroupedMapping, "demanded", True)
    modes = set()
    for _ in range(6):
        groups, inputs, outputs = int(rng.integers(2, 9)), *(int(count) for count in rng.integers(1, 25, 2))
        kernel = tuple(int(taps) for taps in rng.integers(1, 4, 2))
        graph = grouped_graph(
            rng, groups, inputs, outputs, kernel=(kernel[0], kernel[1]),
            stride=(int(rng.integers(1, 3)), int(rng.integers(1, 3))),
            size=(int(rng.integers(3, 15)), int(rng.integers(3, 20))), pad=int(rng.integers(0, 2)),
            limit=int(rng.choice([120, 255])), density=float(rng.choice([1.0, 1.0, 0.3])))
        verify(graph)
        program, graph = compile_kept(graph, CONFIGS[config])
        check_in_every_order(program, graph, seed)
        modes.add(program.layers[0].mode)
    if config != "plain":
        assert "grouped" in modes


@pytest.mark.parametrize("config", CONFIGS)
def test_random_networks(config: str, seed: int) -> None:
    """With residuals, leaky layers and pools between them, in half of which tensors make room for others."""
    modes = set()
    for number in range(8):
        program, graph = compile_random(CONFIGS[config], seed + number, max_size=14,
                                        make=partial(random_graph, layers=3, grouped=0.8))
        run_and_compare(program, graph, seed, ("load", "compute", "store", number), reused=True)
        modes |= {layer.mode for layer in program.layers}
    assert config == "plain" or "grouped" in modes


@pytest.mark.parametrize("width", [4, 8, 16])
def test_no_zeros_are_multiplied(width: int, rng: Rng) -> None:
    """Of groups that blocks consist of; without the unit each block takes the time of both groups of lanes."""
    graph = grouped_graph(rng, 128 // width, width, width, size=(16, 16))
    program, plain = (compile_kept(graph, CONFIGS[config])[0] for config in ("256", "plain"))
    macs = 128 * width * 9 * 256
    assert [layer.macs for layer in (*program.layers, *plain.layers)] == [macs, macs]
    assert program.layers[0].useful_macs == macs
    assert (slots(program), slots(plain)) == (macs, 2 * macs)
    cycles = [estimate(one.config, one.code).cycles for one in (program, plain)]
    assert cycles[0] < 0.6 * cycles[1]


def test_estimate(rng: Rng) -> None:
    """What mappings are compared by is near what the time model says, and the cheaper one is taken."""
    for inputs, outputs, size in ((8, 8, (28, 28)), (16, 16, (7, 7)), (56, 28, (14, 14)), (4, 8, (56, 56))):
        graph = grouped_graph(rng, 8, inputs, outputs, size=size)
        context = MappingContext(graph, CONFIGS["256"], CompileOptions()).context(graph.layers[0])
        found, plain = GroupedMapping.propose(context), PlainMapping.propose(context)
        assert found and plain and found.cost < plain.cost
        program, _ = compile_kept(graph, CONFIGS["256"])
        assert program.layers[0].mode == "grouped"
        assert estimate(program.config, program.code).cycles == pytest.approx(found.plan.cycles, rel=0.1)


def test_wide_groups_do_not_fit(rng: Rng) -> None:
    """One output tile reads more than the input buffer holds: the layer is computed tap by tap, in chunks."""
    graph = grouped_graph(rng, 2, 400, 8, kernel=(1, 1), pad=0, size=(5, 9))
    program, graph = compile_kept(graph, CONFIGS["small"])
    assert program.layers[0].mode != "grouped"
    check_in_every_order(program, graph, 1)


def test_pruned_groups(rng: Rng) -> None:
    graph = grouped_graph(rng, 8, 16, 16, size=(16, 16))
    program, pruned = compile_kept(graph, CONFIGS["256"], density=0.25)
    assert program.layers[0].mode == "grouped"
    # The layer reads a model input, so it stays.
    assert program.layers[0].useful_macs == program.layers[0].macs
    layer = pruned.layers[0]
    assert isinstance(layer, Conv)
    kept = np.add.outer(np.arange(128), np.arange(128)) % 4 == 0
    few = replace(layer, weights=layer.weights * kept[:, :, None, None])
    program, computed = compile_kept(replace(graph, layers=(few,)), CONFIGS["256"])
    check_in_every_order(program, computed, 1)
    assert program.layers[0].useful_macs == np.count_nonzero(few.weights) * 256 < program.layers[0].macs / 3


@pytest.mark.parametrize("groups, message", [
    (3, "are not in 3 groups"), (0, "are not in 0 groups"), (8, "for 4 input channels, not for 2 of 16")])
def test_rules(groups: int, message: str, rng: Rng) -> None:
    graph = grouped_graph(rng, 4, 4, 4)
    layer = graph.layers[0]
    assert isinstance(layer, Conv)
    with pytest.raises(GraphError, match=message):
        verify(replace(graph, layers=(replace(layer, groups=groups),)))


# -- the order of channels -------------------------------------------------------------------------------------------


def pair_graph(rng: Rng, groups: int, inputs: int, outputs: int, *, size: tuple[int, int] = (9, 11)) -> Graph:
    """A 1x1 layer, and one in groups that reads what it makes."""
    graph = grouped_graph(rng, groups, inputs, outputs, size=size)
    channels = groups * inputs
    stage = Requantize(rng.integers(-999, 999, channels), rng.integers(50_000, 60_000, channels),
                       rng.integers(22, 24, channels), graph.tensors["x"].zero_point, -100, 127)
    first = Conv("first", "in", "x", weights=rng.integers(-120, 121, (channels, 20, 1, 1)).astype(np.int16),
                 requantize=stage)
    return replace(graph, tensors={"in": Tensor("in", (20, *size), 1.0, 5), **graph.tensors},
                   layers=(first, *graph.layers), inputs={"input": ("in", ())})


def steps_of_pixels(program: Program, layer: int) -> int:
    """Steps of all output tiles of a layer, of each pixel."""
    steps = 0
    geometry: Instruction | None = None
    for instruction, owner in zip(program.instructions, program.instruction_layers, strict=True):
        if instruction.opcode == Opcode.COMPUTE_SET:
            geometry = instruction
        elif instruction.opcode == Opcode.COMPUTE and owner == layer:
            assert geometry is not None
            taps, pixels = geometry["kernel_h"] * geometry["kernel_w"], geometry["rows"] * geometry["cols"]
            steps += taps * instruction["blocks"] * instruction["groups"] * pixels
    return steps


#: Lanes, groups and their width, and the steps of a tap of all output blocks in the channels' own order and arranged.
ARRANGED = [
    (NpuConfig.preset(256, "dense", depthwise=1), 8, 8, 4 * 2, 4),
    (NpuConfig.preset(256, "dense"), 8, 4, 2 * 2, 2), (NpuConfig.preset(512), 8, 16, 4 * 4, 4 * 2),
    (NpuConfig.preset(256), 8, 8, 2 * 4, 2 * 2), (NpuConfig.preset(256), 4, 56, 136, 7 * 14),
]


@pytest.mark.parametrize("config, groups, width, before, after", ARRANGED)
def test_arranged(config: NpuConfig, groups: int, width: int, before: int, after: int, rng: Rng, seed: int,
                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer in front makes channels in an order of fewer steps; what comes out stays the same."""
    graph = pair_graph(rng, groups, width, width, size=(16, 16))
    inputs = random_inputs(graph, seed)
    program, arranged = compile_kept(graph, config)
    assert steps_of_pixels(program, 1) == 9 * 256 * after
    assert program.layers[1].macs == groups * width * width * 9 * 256 == program.layers[1].useful_macs
    check_in_every_order(program, arranged, seed)
    assert arranged.layers[1].input != "x" and arranged.tensors[arranged.layers[1].input].onnx_name == ""
    np.testing.assert_array_equal(golden_tensors(graph, inputs)["y"], golden_tensors(arranged, inputs)["y"])
    monkeypatch.setattr("gen.compiler.arrange_groups", lambda graph, config, steps: graph)
    assert steps_of_pixels(compile_kept(graph, config)[0], 1) == 9 * 256 * before


@pytest.mark.parametrize("inputs, outputs, size", [(3, 5, (5, 6)), (12, 4, (3, 9)), (20, 20, (8, 7)), (24, 10, (4, 5))])
def test_any_groups_are_arranged(inputs: int, outputs: int, size: tuple[int, int], rng: Rng, seed: int) -> None:
    for config in (*CONFIGS.values(), NpuConfig.preset(512), NpuConfig.preset(64, "dense")):
        graph = pair_graph(rng, 5, inputs, outputs, size=size)
        program, arranged = compile_kept(graph, config)
        check_in_every_order(program, arranged, seed)
        values = random_inputs(graph, seed)
        np.testing.assert_array_equal(golden_tensors(graph, values)["y"], golden_tensors(arranged, values)["y"])


def test_channels_stay_that_others_know(rng: Rng) -> None:
    """Those of a model's tensor, those with two readers, and what is part of another or added to one."""
    config, graph = ARRANGED[0][0], pair_graph(rng, 8, 8, 8)
    assert arrange_groups(graph, config, steps_on(config)) is not graph
    first, layer = graph.layers
    assert isinstance(first, Conv) and isinstance(layer, Conv)
    output = {**graph.outputs, "also": ("x", ())}
    again, z = replace(layer, name="again", output="z"), Tensor("z", (64, 9, 11), 1.0, 3)
    whole = {**graph.tensors, "x": replace(graph.tensors["x"], part=Part("w", 0)),
             "w": Tensor("w", (96, 9, 11), 1.0, graph.tensors["x"].zero_point)}
    depthwise = replace(first, depthwise=True, input="v", weights=first.weights[:, :1])
    for other in (
            replace(graph, outputs=output), replace(graph, tensors=whole),
            replace(graph, layers=(first, layer, again), tensors={**graph.tensors, "z": z}),
            replace(graph, layers=(depthwise, layer), tensors={**graph.tensors, "v": Tensor("v", (64, 9, 11), 1.0, 5)},
                    inputs={"input": ("v", ())}), grouped_graph(rng, 8, 8, 8)):
        verify(other)
        assert arrange_groups(other, config, steps_on(config)) is other


# -- multipliers of channels -----------------------------------------------------------------------------------------


def multiplied_graph(rng: Rng, channels: int, many: int, *, stride: int = 1, kernel: tuple[int, int] = (3, 3)) -> Graph:
    """A layer with so many outputs of each channel, and a 1x1 layer after it."""
    graph = grouped_graph(rng, channels, 1, many, size=(16, 16), stride=(stride, stride), kernel=kernel)
    made = graph.tensors["y"].shape
    stage = Requantize(rng.integers(-999, 999, 20), np.full(20, 60_000), np.full(20, 26), 1, -100, 127)
    last = Conv("last", "y", "z", weights=rng.integers(-120, 121, (20, made[0], 1, 1)).astype(np.int16),
                requantize=stage)
    return replace(graph, tensors={**graph.tensors, "z": Tensor("z", (20, *made[1:]), 1.0, 1)},
                   layers=(*graph.layers, last), outputs={"output": ("z", ())})


@pytest.mark.parametrize("channels, many, kernel", [(32, 2, (3, 3)), (20, 3, (3, 3)), (5, 2, (5, 3)), (16, 4, (1, 3))])
def test_multipliers(channels: int, many: int, kernel: tuple[int, int], rng: Rng, seed: int) -> None:
    """As many depthwise layers in windows, whose results are where the next layer has weights for them."""
    graph = multiplied_graph(rng, channels, many, kernel=kernel)
    values, taps = random_inputs(graph, seed), kernel[0] * kernel[1]
    for config in (CONFIGS["256"], NpuConfig.preset(64, "dense", depthwise=1)):
        program, split = compile_kept(graph, config)
        assert [layer.mode for layer in program.layers[:-1]] == ["window"] * many
        pixels = int(np.prod(graph.tensors["z"].shape[1:]))
        assert sum(layer.macs for layer in program.layers) == channels * many * (taps + 20) * pixels
        check_in_every_order(program, split, seed)
        np.testing.assert_array_equal(golden_tensors(graph, values)["z"], golden_tensors(split, values)["z"])


def test_multipliers_of_parts_that_lie_apart(rng: Rng, seed: int, tmp_path: Path) -> None:
    """Channels between those that such layers read, and others between what they make."""
    b = FloatBuilder(rng, [1, 3, 8, 8])
    x = b.same_conv("x", 3, 40, kernel=1)
    for outputs in (5, 12):
        channels = 40 if outputs == 5 else 45
        x = b.node("Concat", b.node("Relu", b.same_conv(x, channels, outputs)), x, axis=1)
    x = b.same_conv(x, 57, 114, group=57)
    model = b.model(b.same_conv(x, 114, 4, kernel=1, name="y"), rank=4)
    (tmp_path / "m.onnx").write_bytes(quantized(model, rng.normal(size=(4, 3, 8, 8)).astype(np.float32)
                                                ).model.SerializeToString())
    graph = load(tmp_path / "m.onnx")
    program, made = compile_kept(graph, NpuConfig.preset(64, depthwise=1))
    (whole,) = (tensor for tensor in made.tensors.values() if tensor.name.endswith("/split/spaced"))
    assert len(without_gaps(whole, np.arange(whole.shape[0]), axis=0)) == 114 < whole.shape[0]
    check_in_every_order(program, made, seed)
    values, (tensor, _) = random_inputs(graph, seed), graph.outputs["y"]
    np.testing.assert_array_equal(golden_tensors(graph, values)[tensor], golden_tensors(made, values)[tensor])


def test_multipliers_that_stay(rng: Rng) -> None:
    """With a stride, of a result that is an output or one that is pooled, with weights for other channels."""
    graph = multiplied_graph(rng, 16, 2)
    layer, last = graph.layers
    assert isinstance(layer, Conv) and split_multipliers(graph, 16) is not graph
    pool = Pool("pool", "y", "p", maximum=True, requantize=replace(
        layer.requantize, bias=layer.requantize.bias * 0))
    for other in (
            multiplied_graph(rng, 16, 2, stride=2), replace(graph, outputs={**graph.outputs, "also": ("y", ())}),
            replace(graph, layers=(layer, pool, last),
                    tensors={**graph.tensors, "p": replace(graph.tensors["y"], name="p")}),
            replace(graph, layers=(replace(layer, weights=np.roll(layer.weights, 1, axis=1)), last))):
        verify(other)
        assert split_multipliers(other, 16) is other
    assert len(compile_kept(graph, CONFIGS["plain"])[1].layers) == 2


@pytest.mark.parametrize("channels, outputs, lanes", [(3, 5, (4, 16)), (8, 16, (8, 16)), (17, 33, (20, 48))])
def test_slots_with_channels_rounded_up(channels: int, outputs: int, lanes: tuple[int, int]) -> None:
    """Of nodes of the model alone: sums in the lanes of an output, results in blocks of channels."""
    config = NpuConfig.preset(256)
    graph = conv_graph(LayerBenchmark(name="x", channels=channels, outputs=outputs, size=4, kernel=1), config=config)
    (layer,) = graph.layers
    for nodes, wanted in (("node",), 16 * lanes[0] * lanes[1]), ((), 0):
        named = replace(graph, layers=(replace(layer, onnx_nodes=nodes),))
        (info,) = compile_graph(named, config)[0].layers
        assert (info.useful_macs, info.lane_macs) == (16 * channels * outputs, wanted)
