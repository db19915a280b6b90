"""Pointwise, depthwise, pointwise as one pass: plans, programs on the functional simulator, cycles."""

import random
from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.errors import CompileError
from gen.ir.graph import Graph
from gen.ir.queries import count_readers
from gen.ir.tensor import Part, Tensor
from gen.lowering import steps
from gen.lowering.verify import StageError, verify_mapped
from gen.mapping import chain_plans, chained, fused
from gen.mapping.chained import ChainedLayers
from gen.mapping.registry import map_graph
from gen.mapping.trial import Trial
from gen.memory.placement import Destination, Strips, WindowRows
from gen.options import CompileOptions
from gen.tiling.geometry import split
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.gen.test_compiler import conv_graph, run_and_compare
from tests.random_layers import random_chains

CONFIGS = {
    **{str(macs): NpuConfig.preset(macs, depthwise=1, local_store=1) for macs in (32, 64, 256)},
    "small": NpuConfig.preset(256, depthwise=1, local_store=1, input_depth=512, acc_depth=64, weight_depth=512,
                              queue_depth=4),
}
ORDERS = ("load", "compute", "store", 5)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> random.Random:
    """Layers are put in a chain wherever that is possible, in any way."""
    return chain_always(monkeypatch, random.Random(1))


def chain_always(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> random.Random:
    monkeypatch.setattr(chained, "_PROMISING", 1e9)
    monkeypatch.setattr(chained, "_CANDIDATES", 1000)
    monkeypatch.setattr(Trial, "cycles", lambda self, steps, limit=0.0: (
        20 + chance.random() - 9 * sum(isinstance(step, ChainedLayers) for step in steps)))
    return chance


def chain_graph(channels: tuple[int, int, int, int], size: tuple[int, int], *, kernel: int = 3, stride: int = 1,
                pads: tuple[int, int, int, int] = (1, 1, 1, 1), seed: int = 0) -> Graph:
    """A 1x1 layer, a depthwise one and another 1x1 layer; zero points other than 0."""
    rng = np.random.default_rng(seed)
    source, inner, same, outputs = channels
    assert inner == same
    layers, tensors, before = [], {}, None
    for name, shape, depthwise in (("a", (inner, source, 1, 1), False), ("b", (inner, 1, kernel, kernel), True),
                                   ("c", (outputs, inner, 1, 1), False)):
        graph = conv_graph(rng.integers(-100, 100, shape), size, depthwise=depthwise,
                           **(dict(stride=stride, pad=pads[0]) if depthwise else {}))
        (layer,) = graph.layers
        if depthwise:
            height, width = ((length + pads[axis] + pads[axis + 2] - kernel) // stride + 1
                             for axis, length in enumerate(size))
            size, layer = (height, width), replace(layer, pads=pads)
        first = replace(graph.tensors["x"], name="x") if before is None else before
        tensors[first.name] = first
        before = replace(graph.tensors["y"], name=name, shape=(shape[0], *size),
                         zero_point=graph.tensors["x"].zero_point)
        layers.append(replace(layer, name=name, input=first.name, output=name))
        tensors[name] = before
    return Graph("chain", tensors, tuple(layers), {"x": ("x", ())}, {"c": ("c", ())})


def chains_of(graph: Graph, config: NpuConfig) -> list[ChainedLayers]:
    return [step for step in map_graph(graph, config, CompileOptions()).steps if isinstance(step, ChainedLayers)]


# -- places ----------------------------------------------------------------------------------------------------------

def test_places_of_rows():
    form = WindowRows(blocks=2, height=6, width=5, left=1, row_pitch=2, depth=5, runs=((0, 4, 1), (3, 1, 0), (4, 2, 1)),
                      banks=4)
    place = form.at(100)
    assert (form.block_pitch, form.entries) == (10, 20)
    assert place.destinations(1, 0) == (Destination(100 + 10 + 2, 2, 10, 1),)
    assert place.destinations(0, 3 * 5) == (Destination(100 + 8, 2, 10, 1), Destination(100, 2, 10, 1))
    assert replace(form, left=5).at(0).destinations(0, 5 * 5) == (Destination(2 * 2 + 1, 2, 10, 1),)


# -- programs --------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_random_chains(name, seed, always):
    config, found, bands = CONFIGS[name], 0, set()
    for number in range(12):
        graph = random_chains(seed + number)
        try:
            program, graph = compile_kept(graph, config, density=0.25 if number % 3 == 0 else None)
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        steps = chains_of(graph, config)
        found += len(steps)
        bands |= {min(len(step.plan.bands), 3) for step in steps}
        run_and_compare(program, graph, seed, ("load", "compute", "store", number))
    assert found > 4 and len(bands) > 1


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_chains(name, seed, always):
    for number in range(150):
        try:
            program, graph = compile_kept(random_chains(seed + number, count=3), CONFIGS[name])
        except CompileError as error:
            assert error.code == "no-tile"
            continue
        run_and_compare(program, graph, seed, ("load", number))


@pytest.mark.slow
@pytest.mark.parametrize("channels, size, form", [
    ((16, 40, 40, 24), (14, 14), dict()),
    ((24, 32, 32, 24), (15, 13), dict(stride=2)),
    ((24, 32, 32, 24), (16, 16), dict(stride=2, pads=(0, 0, 1, 1))),
    ((8, 48, 48, 8), (19, 21), dict(kernel=5, pads=(2, 2, 2, 2))),
    ((8, 20, 20, 70), (22, 12), dict(kernel=5, stride=2, pads=(2, 2, 2, 2))),
    ((33, 17, 17, 9), (9, 10), dict(pads=(0, 0, 0, 0))),
    ((5, 16, 16, 3), (12, 30), dict(pads=(2, 1, 0, 2))),
], ids=str)
def test_shapes(channels, size, form, always):
    """Several bands in the same places, rows that are stored twice, padding at the end; a machine of own taps has some
    of them.
    """
    graph, config = chain_graph(channels, size, **form), CONFIGS["256"]
    turns, between = set(), set()
    for number in range(12):
        program, done = compile_kept(graph, config)
        (step,) = chains_of(graph, config)
        again = len(step.plan.rows.runs) > len(step.plan.bands)
        turns.add(again)
        between.add(step.plan.between)
        stores = [i for i, layer in zip(program.instructions, program.instruction_layers, strict=True)
                  if i.opcode is Opcode.STORE_SET and layer == 0]
        assert stores and all(i["local"] and i["bank"] == form.get("pads", (1, 1))[1] % 4 for i in stores)
        run_and_compare(program, done, 1, (ORDERS[number % 4],))
    assert between == {False, True} and True in turns


def test_modes(always):
    graph, config = chain_graph((16, 40, 40, 24), (14, 14)), CONFIGS["256"]
    program, _ = compile_kept(graph, config)
    assert [layer.mode for layer in program.layers][:1] == ["fused"] and "a" not in program.tensors
    for options in (CompileOptions(fusion="off"), CompileOptions(depthwise="plain")):
        program, _ = compile_graph(graph, config, options)
        assert list(program.tensors) == ["x", "a", "b", "c"]


def test_who_is_in_no_chain(always):
    """A tensor that others read, or that is an output, is in memory."""
    graph, config = chain_graph((16, 40, 40, 24), (14, 14)), CONFIGS["256"]
    assert chains_of(graph, config)
    assert not chains_of(replace(graph, outputs={**graph.outputs, "a": ("a", ())}), config)
    tensors = {**graph.tensors, "d": Tensor("d", (24, 14, 14), 1.0, 0)}
    other = replace(graph.layers[2], name="d", input="a", output="d")
    two = replace(graph, tensors=tensors, layers=(*graph.layers, other), outputs={**graph.outputs, "d": ("d", ())})
    assert not chains_of(two, config)
    own_taps = NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=2, depthwise=1, local_store=1)
    assert chains_of(graph, own_taps)
    assert not chains_of(chain_graph((16, 40, 40, 24), (14, 14), stride=2), own_taps)      # its columns lie by phases


@pytest.mark.parametrize("name", "ab")
@pytest.mark.parametrize("is_part", [False, True])
def test_tensors_that_are_shared(name, is_part, always):
    """Parts and wholes are in memory, even where nothing reads the other one."""
    graph, config = chain_graph((16, 32, 32, 24), (14, 14)), CONFIGS["256"]
    tensor = graph.tensors[name]
    part, whole = (tensor, replace(tensor, name="d", shape=(64, 14, 14))) if is_part else (
        replace(tensor, name="d", shape=(16, 14, 14)), tensor)
    tensors = {**graph.tensors, whole.name: whole, part.name: replace(part, part=Part(whole.name, 0))}
    for _ in range(6):
        mapped = map_graph(replace(graph, tensors=tensors), config, CompileOptions())
        verify_mapped(mapped)
        assert name not in mapped.kept


def test_blocks_without_weights(always):
    """A STORE that no COMPUTE reads has no token that loads could wait for."""
    graph, config = chain_graph((16, 40, 40, 24), (14, 14)), CONFIGS["256"]
    *before, last = graph.layers
    last = replace(last, weights=last.weights * (np.arange(40) < 32)[:, None, None])
    for _ in range(6):
        kept = map_graph(replace(graph, layers=(*before, last)), config, CompileOptions()).kept
        assert not any(isinstance(form, Strips) for form in kept.values())


@pytest.mark.parametrize("changes, message", [
    (dict(left=2), "does not read a by its rows"),
    (dict(height=13), "the rows of a in the input buffer are not those"),
    (dict(runs=((0, 13, 1),)), "the rows of a in the input buffer are not those"),
])
def test_rules(changes, message, always):
    graph, config = chain_graph((16, 40, 40, 24), (14, 14)), CONFIGS["256"]
    mapped = map_graph(graph, config, CompileOptions())
    verify_mapped(mapped)
    (step,) = (step for step in mapped.steps if isinstance(step, ChainedLayers))
    broken = replace(step, plan=replace(step.plan, rows=replace(step.plan.rows, **changes)))
    with pytest.raises(StageError, match=message):
        verify_mapped(replace(mapped, steps=[broken if one is step else one for one in mapped.steps]))


@pytest.mark.parametrize("module", [chain_plans, fused])
def test_tall_maps(module, monkeypatch):
    """Numbers of bands are looked at that give bands of different heights, not all."""
    counts = list[int]()
    monkeypatch.setattr(module, "split", lambda size, parts, multiple: counts.append(parts) or split(
        size, parts, multiple))
    monkeypatch.setattr(chain_plans, "_plan", lambda *_: None)
    monkeypatch.setattr(fused, "_TILE_BANDS", ())
    map_graph(chain_graph((8, 8, 8, 8), (900, 2)), CONFIGS["256"], CompileOptions())
    assert 20 < len(counts) < 150


def test_rows_are_found_at_once():
    """Not by a walk through the runs for each row, of which tall maps have thousands."""
    walks = list[None]()

    class Runs(tuple[tuple[int, int, int], ...]):
        def __iter__(self):
            walks.append(None)
            return super().__iter__()

    runs = [run for band in range(50) for run in ((4 * band - 2, 2, 9), (4 * band, 4, 1))][1:]
    form = WindowRows(1, 200, 2, 0, 1, 12, Runs(runs), 2)
    for row in range(200):
        assert form.runs_of(row) == [run for run in runs if run[0] <= row < run[0] + run[1]]
        assert len(form.at(7).destinations(0, 2 * row)) == len(form.runs_of(row))
    assert len(walks) == 1


def test_readers_are_counted_once(monkeypatch):
    counted = list[Graph]()
    monkeypatch.setattr(steps, "count_readers", lambda graph: counted.append(graph) or count_readers(graph))
    map_graph(random_chains(2, count=4, max_channels=16, max_size=4), CONFIGS["32"], CompileOptions())
    assert len(counted) == 1


# -- time ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("channels, size, stride, density, gain", [
    ((16, 96, 96, 24), (56, 56), 2, None, 1.1), ((16, 96, 96, 24), (56, 56), 2, 0.25, 1.15),
])
def test_chains_gain(channels, size, stride, density, gain):
    graph, config = chain_graph(channels, size, stride=stride, pads=(0, 0, 1, 1)), CONFIGS["256"]
    before, after = (estimate(config, compile_kept(graph, config, fusion=mode, density=density)[0].code).cycles
                     for mode in ("off", "auto"))
    assert before > gain * after
