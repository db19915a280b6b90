"""Winograd layers in the compiler: values of the narrow form, programs on the functional simulator, choices, cycles."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from cores.arch.isa import Opcode, WordForm
from cores.arch.numerics import MAX_SHIFT
from cores.config import NpuConfig
from gen.bench.layers import LayerBenchmark
from gen.bench.layers import conv_graph as benchmark_graph
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph
from gen.ir.layers.base import any_int8
from gen.ir.verify import verify
from gen.mapping.overflow_check import fit_exact, fit_sums
from gen.mapping.winograd.choice import choose_narrow
from gen.mapping.winograd.fit_shifts import fit_shifts
from gen.mapping.winograd.narrow import SAFE_SHIFTS, has_tiles, narrow_graph, narrow_layer
from gen.options import CompileOptions
from gen.passes.prune import prune_weights
from sim import golden
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.random_layers import random_graph

NARROW = [
    NpuConfig.preset(16, winograd=1),
    NpuConfig.preset(64, winograd=1, oc_lanes=32, nnz_lanes=4, depthwise=1),
    NpuConfig.preset(64, winograd=1, pixel_lanes=1, acc_depth=64, input_depth=256, queue_depth=4, weight_depth=512),
]
EXACT = [
    NpuConfig.preset(64, winograd=2, pixel_lanes=1, acc_width=31, acc_depth=512),
    NpuConfig.preset(64, winograd=2, multiplier_width=18, acc_width=31, oc_lanes=32, nnz_lanes=4, depthwise=1),
    NpuConfig.preset(16, winograd=2, pixel_lanes=1, select_fanin=8, acc_width=32, acc_depth=64, input_depth=256,
                     queue_depth=4, weight_depth=512),
]


def config_id(config: NpuConfig) -> str:
    return f"{config.macs}-{config.input_depth}"


def narrow_shifts(graph: Graph, config: NpuConfig, rng: np.random.Generator) -> dict[str, tuple[int, ...]]:
    """Random shifts for all layers that the narrow form has room for."""
    shifts = {}
    for layer in graph.layers:
        if isinstance(layer, Conv) and has_tiles(layer):
            wanted = tuple(int(v) for v in rng.integers(0, 3, 16))
            try:
                fit_sums(narrow_layer(layer, graph.tensors[layer.input].zero_point, wanted), config, ())
            except ValueError:
                continue
            shifts[layer.name] = wanted
    return shifts


# -- values ----------------------------------------------------------------------------------------------------------


def test_answer_to_a_constant_input_is_cancelled(rng):
    """What is left of an input of zero points is the layer's own bias, rounded to its new scale."""
    for zero_point in (-128, -3, 0, 127):
        layer = conv_graph(rng.integers(-128, 128, (6, 5, 3, 3)), (6, 6), pad=1).layers[0]
        true = rng.integers(-9999, 9999, 6)
        weights = layer.weights.sum(axis=(1, 2, 3), dtype=np.int64)
        layer = replace(layer, requantize=replace(layer.requantize, bias=true - zero_point * weights))
        narrow = narrow_layer(layer, zero_point, [int(v) for v in rng.integers(0, 3, 16)])
        x = np.full((5, 6, 6), zero_point, np.int8)
        sums = golden.winograd_accumulate(x, narrow.winograd.weights, (1,) * 4, zero_point, narrow.winograd.shifts)
        left = sums + narrow.requantize.bias[:, None, None]
        assert (left == left[:, :1, :1]).all()
        largest = (np.abs(golden.winograd_weights(layer.weights)).reshape(6, 5, 16)
                   << np.array(narrow.winograd.shifts)).max(axis=(1, 2))
        np.testing.assert_array_equal(left[:, 0, 0], np.rint(true * (4 * 127 / largest)))


def test_narrow_form_is_close(rng):
    layer = conv_graph(rng.integers(-128, 128, (8, 32, 3, 3)), (12, 12), pad=1).layers[0]
    x = np.clip(rng.normal(0, 30, (32, 12, 12)), -128, 127).astype(np.int8)
    narrow = narrow_layer(layer, 3)
    assert np.abs(narrow.winograd.weights).max(axis=(1, 2, 3)).tolist() == [127] * 8
    direct, form = (golden.run_layer(each, x, zero_point=3).astype(float) for each in (layer, narrow))
    assert 0 < np.abs(direct - form).mean() < 0.05 * direct.std()


def test_dead_channels_and_large_scales(rng):
    weights = rng.integers(-128, 128, (3, 4, 3, 3))
    weights[1] = 0
    layer = conv_graph(weights, (6, 6)).layers[0]
    layer = replace(layer, requantize=replace(layer.requantize, multiplier=np.array([0, 5, 90000])))
    narrow = narrow_layer(layer, 0)
    assert narrow.requantize.multiplier[0] == 0 and not narrow.winograd.weights[1].any()
    huge = replace(layer.requantize, multiplier=np.full(3, (1 << 17) - 1), shift=np.full(3, 12))
    with pytest.raises(ValueError, match="scales must be below 32"):
        narrow_layer(replace(layer, weights=np.sign(layer.weights) * 127, requantize=huge), 0)


def test_exact_parameters():
    layer = conv_graph(np.ones((2, 1, 3, 3)), (5, 5)).layers[0]
    config, single = NpuConfig(winograd=2, pixel_lanes=1), [any_int8(1)]
    exact = fit_exact(replace(layer, requantize=replace(layer.requantize, bias=np.array([3, -4]))), config, single)
    assert exact is not None
    assert (exact.bias.tolist(), exact.shift.tolist()) == ([12, -16], [32, 32])
    late = replace(layer, requantize=replace(layer.requantize, shift=np.array([MAX_SHIFT - 1, 30])))
    assert fit_exact(late, config, single) is None
    large = conv_graph(np.full((1, 2000, 3, 3), 20), (3, 3)).layers[0]
    operands = [any_int8(2000)]
    assert fit_sums(large, config, operands) and fit_exact(large, config, operands) is None
    assert fit_exact(large, replace(config, acc_width=29), operands) is not None


def test_narrow_sums_must_fit(rng):
    """A channel that cannot matter loses its weights in both forms; one that matters is refused."""
    layer = narrow_layer(conv_graph(rng.integers(1, 128, (2, 600, 3, 3)), (4, 4)).layers[0], 0)
    with pytest.raises(CompileError, match="build and compile with --acc-width"):
        fit_sums(layer, NpuConfig(winograd=1, acc_width=24), ())
    first = layer.requantize
    dead = replace(layer, requantize=replace(
        first, bias=np.array([1 << 30, 0]), multiplier=np.array([1, 1]), shift=np.array([43, 43])))
    fitted = fit_sums(dead, NpuConfig(winograd=1, acc_width=32), ())
    assert fitted.weights[0].any()
    fitted = fit_sums(dead, NpuConfig(winograd=1, acc_width=30), ())
    assert not fitted.weights[0].any() and not fitted.winograd.weights[0].any() and fitted.winograd.weights[1].any()


@pytest.mark.parametrize("changes, message", [
    ({"stride": (2, 2)}, "only dense 3x3 layers of stride 1"),
    ({"weights": None}, r"transformed weights must be \(OC, IC, 4, 4\)"),
    ({"shifts": (3,) * 16}, r"16 shifts of 0\.\.2"),
    ({"shifts": (2,) * 15}, r"16 shifts of 0\.\.2"),
])
def test_rules(changes, message, rng):
    graph = narrow_graph(conv_graph(rng.integers(-9, 9, (4, 4, 3, 3)), (7, 7)), {"only": SAFE_SHIFTS})
    layer = graph.layers[0]
    if "stride" in changes:
        layer = replace(layer, **changes)
        tensors = {**graph.tensors, "y": replace(graph.tensors["y"], shape=(4, 3, 3))}
    else:
        if "weights" in changes:
            changes = {"weights": layer.winograd.weights + 100}
        layer, tensors = replace(layer, winograd=replace(layer.winograd, **changes)), graph.tensors
    with pytest.raises(GraphError, match=message):
        verify(replace(graph, layers=(layer,), tensors=tensors))


# -- programs --------------------------------------------------------------------------------------------------------


def wherever(config: NpuConfig) -> Literal["auto", "exact"]:
    """The mode in which all layers that can take tiles, whatever they cost: narrow ones have shifts."""
    return "exact" if config.winograd == 2 else "auto"


def check_random(config: NpuConfig, seed: int, number: int) -> set[str]:
    rng = np.random.default_rng(seed)
    graph = random_graph(seed, winograd=0.7, max_size=20, max_channels=70)
    shifts = narrow_shifts(graph, config, rng) if config.winograd == 1 else {}
    try:
        density = 0.25 if number % 5 == 4 and not shifts else None
        program, graph = compile_kept(graph, config, density=density, winograd=wherever(config), winograd_shifts=shifts)
    except CompileError as error:
        assert error.code == "no-tile"
        return set()
    run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    return {layer.mode for layer in program.layers}


@pytest.mark.slow
@pytest.mark.parametrize("config", NARROW + EXACT, ids=config_id)
def test_random_graphs(config, seed):
    modes: set[str] = set()
    for number in range(8):
        modes |= check_random(config, seed + number, number)
    assert "winograd" in modes


@pytest.mark.full
@pytest.mark.parametrize("config", NARROW + EXACT, ids=config_id)
def test_many_random_graphs(config, seed):
    for number in range(60):
        check_random(config, seed + number, number)


@pytest.mark.slow
@pytest.mark.parametrize("config", [NARROW[0], EXACT[0]], ids=["narrow", "exact"])
@pytest.mark.parametrize("size, pad, channels", [
    ((14, 14), 1, (20, 40)), ((13, 7), 0, (8, 16)), ((3, 3), 0, (5, 3)), ((2, 30), 1, (17, 8)), ((9, 130), 1, (3, 8))])
def test_shapes(config, size, pad, channels, rng):
    graph = conv_graph(rng.integers(-128, 128, (channels[1], channels[0], 3, 3)), size, pad=pad)
    shifts = {"only": SAFE_SHIFTS} if config.winograd == 1 else {}
    program, graph = compile_kept(graph, config, winograd=wherever(config), winograd_shifts=shifts)
    assert program.layers[0].mode == "winograd"
    run_and_compare(program, graph, 1, ("load", "compute", "store", 7))


def test_fields(rng):
    config = NpuConfig.preset(256, winograd=1)
    graph = conv_graph(rng.integers(-128, 128, (32, 32, 3, 3)), (14, 14), pad=1)
    program, _ = compile_kept(graph, config, winograd="narrow")
    first = {}
    for instruction in program.instructions:
        first.setdefault(instruction.opcode, instruction)
    tiles = first[Opcode.LOAD_WINOGRAD]
    assert (tiles["shifts"], tiles["tile_cols"], tiles["position_pitch"]) == (0xAAAAAAAA, 7, 11)
    computes = [i for i in program.instructions if i.opcode is Opcode.COMPUTE]
    assert [i["acc_base"] for i in computes[:16]] == [11 * position for position in range(16)]
    assert [i["buf_base"] for i in computes[:16]] == [11 * position for position in range(16)]
    assert [i["first"] for i in computes[:32]] == [1] * 16 + [0] * 16
    assert (first[Opcode.COMPUTE_SET]["rows"], first[Opcode.COMPUTE_SET]["cols"]) == (1, 21)
    store = first[Opcode.STORE_SET]
    assert (store["words"], store["position_words"], store["rows"], store["cols"]) == (WordForm.TILES, 11, 6, 14)


@pytest.mark.slow
def test_mode_ends_with_the_layer(rng):
    """A layer after a Winograd layer loads pixels as they are, even where all else of its LOAD_SET is the same."""
    config = NARROW[0]
    for seed in range(6):
        graph = random_graph(seed, winograd=0.6, layers=3, max_size=9)
        program, graph = compile_kept(graph, config, winograd_shifts=narrow_shifts(graph, config, rng))
        mode, seen = "LOAD_SET", set()
        for instruction, number in zip(program.instructions, program.instruction_layers, strict=True):
            if instruction.opcode in (Opcode.LOAD_SET, Opcode.LOAD_WINOGRAD):
                mode = instruction.opcode.name
            if instruction.opcode is Opcode.LOAD_ACT:
                seen.add((program.layers[number].mode == "winograd", mode == "LOAD_WINOGRAD"))
        assert seen <= {(True, True), (False, False)}
        run_and_compare(program, graph, seed, ("load", "store"))


# -- choices ---------------------------------------------------------------------------------------------------------


def test_narrow_only_where_faster(rng):
    config = NpuConfig.preset(256, winograd=1)
    for weights, size, chosen in (((64, 64), 28, True), ((16, 16), 28, True), ((64, 64), 4, False)):
        graph = conv_graph(rng.integers(-128, 128, (*weights, 3, 3)), (size, size), pad=1)
        assert bool(choose_narrow(graph, config, CompileOptions())) == chosen
        program, computed = compile_kept(graph, config, winograd="narrow")
        assert (program.layers[0].mode == "winograd") == chosen == bool(computed.layers[0].winograd)
        direct, _ = compile_kept(graph, config)
        assert direct.layers[0].mode == "dense"
        assert (estimate(config, program.code).cycles < estimate(config, direct.code).cycles) == chosen
    quarter = prune_weights(rng.integers(1, 99, (64, 64, 3, 3)).astype(np.int16), 1, config)
    sparse, _ = compile_kept(conv_graph(quarter, (28, 28), pad=1), config, winograd="narrow")
    assert sparse.layers[0].mode == "sparse"


def test_exact_by_itself_where_faster(rng):
    config = NpuConfig.preset(256, winograd=2, pixel_lanes=1, nnz_lanes=8, acc_depth=1024, acc_width=29)
    graph = conv_graph(rng.integers(-128, 128, (64, 64, 3, 3)), (28, 28), pad=1)
    cycles = {}
    for mode in ("auto", "off", "exact"):
        program, computed = compile_kept(graph, config, winograd=mode)
        assert computed is graph
        assert program.layers[0].mode == ("dense" if mode == "off" else "winograd")
        cycles[mode] = estimate(config, program.code).cycles
    assert cycles["auto"] == cycles["exact"] < 0.5 * cycles["off"]
    small = conv_graph(rng.integers(-128, 128, (8, 8, 3, 3)), (6, 6), pad=1)
    assert compile_kept(small, config)[0].layers[0].mode == "dense"


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_other_machines_are_as_before(mode):
    config = NpuConfig.preset(256)
    for seed in range(4):
        graph = random_graph(seed)
        compiled = compile_kept(graph, config, winograd=mode)[0]
        assert compiled.code == compile_kept(graph, config)[0].code
    for mode in ("exact", "narrow"):
        with pytest.raises(CompileError, match="need a machine with winograd="):
            compile_kept(graph, config, winograd=mode)


def test_refused(rng):
    graph = conv_graph(rng.integers(-128, 128, (8, 8, 3, 3)), (6, 6), pad=1)
    for config in (NpuConfig.preset(16), EXACT[0]):
        with pytest.raises(CompileError, match=r"need a machine with winograd=1 \(--features winograd\), not"):
            compile_kept(graph, config, winograd="narrow")
        with pytest.raises(CompileError, match="layer only: the narrow Winograd form needs a machine with winograd=1"):
            compile_kept(graph, config, winograd_shifts={"only": SAFE_SHIFTS})
    with pytest.raises(CompileError, match="layer only: only dense 3x3 convolutions of stride 1"):
        narrow_graph(conv_graph(np.ones((8, 8, 1, 1)), (6, 6)), {"only": SAFE_SHIFTS})
    with pytest.raises(CompileError, match="no layer 'other'"):
        narrow_graph(graph, {"other": SAFE_SHIFTS})


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("channels, size, bound", [(64, 56, 2.2), (256, 14, 2.05), (128, 28, 2.2)])
def test_gain(channels, size, bound):
    """The array is busy: start to done, tiles take what their words say, give or take a layer's start and end."""
    layer = LayerBenchmark(name="x", channels=channels, outputs=channels, size=size, kernel=3)
    narrow, exact = NpuConfig.preset(256, winograd=1), NpuConfig.preset(
        256, winograd=2, pixel_lanes=1, nnz_lanes=8, acc_depth=1024, acc_width=29)
    for config, mode in ((narrow, "narrow"), (exact, "exact")):
        graph = benchmark_graph(layer, config=config)
        programs = [compile_kept(graph, config, winograd=m)[0] for m in ("off", mode)]
        cycles = [estimate(config, program.code).cycles for program in programs]
        assert cycles[0] > bound * cycles[1]


# -- calibration -----------------------------------------------------------------------------------------------------


def test_calibration_is_no_worse(rng):
    """Small values need no shift, so fewer bits are lost than with the safe shifts."""
    graph = conv_graph(rng.integers(-128, 128, (8, 16, 3, 3)), (10, 10), pad=1)
    samples = np.clip(rng.normal(3, 12, (4, 16, 10, 10)), -128, 127).astype(np.int8)
    shifts = fit_shifts(graph, ["only"], {"x": samples})
    assert set(shifts) == {"only"} and set(shifts["only"]) <= {0, 1, 2} and shifts["only"] != SAFE_SHIFTS
    direct = golden.run_layer(graph.layers[0], samples, zero_point=3).astype(int)
    errors = [((golden.run_layer(narrow_graph(graph, s).layers[0], samples, zero_point=3) - direct) ** 2).sum()
              for s in (shifts, {"only": SAFE_SHIFTS})]
    assert errors[0] < 0.7 * errors[1]
    assert fit_shifts(graph, [], {"x": samples}) == {}
