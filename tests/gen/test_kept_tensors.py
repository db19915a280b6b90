"""Tensors that stay in the input buffer: places, rules, and programs of layers that hand on whole tensors so."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from gen.compiler import generate
from gen.ir.epilogue.add import Add
from gen.ir.graph import Graph, Pool
from gen.ir.tensor import Tensor
from gen.lowering.placed import PlacedGraph, in_buffer
from gen.lowering.steps import MappedGraph
from gen.lowering.verify import StageError, verify_mapped, verify_placed
from gen.mapping.base import Mapping, Single
from gen.mapping.registry import map_graph
from gen.memory.input_buffer import InputBuffer
from gen.memory.placement import BufferPlacement, Destination, Strips
from gen.memory.region import Lifetime
from gen.options import CompileOptions
from gen.program.program import Program
from gen.tiling.geometry import split
from tests.gen.test_compiler import conv_graph, run_and_compare

CONFIG = NpuConfig.preset(64, depthwise=1, local_store=1)
Rng = np.random.Generator


def chain(rng: Rng, *channels: int, size: tuple[int, int] = (6, 7), pooled: int = -1) -> Graph:
    """1x1 convolutions from t0 to the last of so many tensors; that which writes t``pooled`` is a copy."""
    tensors = {f"t{number}": Tensor(f"t{number}", (count, *size), 1.0, 3) for number, count in enumerate(channels)}
    layers = []
    for number, (before, after) in enumerate(zip(channels, channels[1:], strict=False), start=1):
        (conv,) = conv_graph(rng.integers(-60, 61, (after, before, 1, 1)), size).layers
        names = {"name": f"t{number}", "input": f"t{number - 1}", "output": f"t{number}"}
        stage = replace(conv.requantize, shift=np.full(after, 25))      # most values within int8, and different
        conv = replace(conv, requantize=stage)
        copy = Pool("", "", "", maximum=False, pad_value=0, requantize=replace(
            stage, bias=np.full(after, -3), multiplier=np.full(after, 1 << 16), shift=np.full(after, 16)))
        layers.append(replace(copy if number == pooled else conv, **names))
    last = f"t{len(channels) - 1}"
    return Graph("chain", tensors, tuple(layers), {"x": ("t0", ())}, {"y": (last, ())})


def keeping(graph: Graph, config: NpuConfig, *names: str, parts: int = 1) -> MappedGraph:
    """The mapped graph, each layer in ``parts`` spatial tiles, these tensors in the input buffer: a strip for each."""
    mapped = map_graph(graph, config, CompileOptions(fusion="off"))
    steps = []
    for (layer,) in (step.layers for step in mapped.steps):
        channels, height, width = layer.target.shape
        cut = split(height * width, parts, config.banks)
        spatial_tiles = tuple(layer.plan.geometry.spatial_tile(0, 1, *part, config) for part in cut)
        strips = Strips(-(-channels // config.ic_lanes), tuple(start for start, _ in cut), height * width, len(cut),
                        config.banks)
        assert isinstance(layer, Mapping)
        if layer.plan.geometry.kernel == (1, 1):
            layer = replace(layer, plan=replace(layer.plan, spatial_tiles=spatial_tiles))
        steps.append(Single(layer, strips if layer.layer.output in names else None))
    return replace(mapped, steps=steps)


def compiled(graph: Graph, config: NpuConfig, *names: str, parts: int = 1) -> Program:
    return generate(graph, config, CompileOptions(keep_all=True), mapped=keeping(graph, config, *names, parts=parts))


# -- places ----------------------------------------------------------------------------------------------------------

def strips(blocks: int = 2, starts: tuple[int, ...] = (0, 10, 20), pixels: int = 25, slots: int = 2) -> Strips:
    return Strips(blocks, starts, pixels, slots, banks=4)


def test_strips():
    form = strips()
    assert (form.pitches, form.slot_entries, form.entries) == ((3, 3, 2), 6, 12)
    place = BufferPlacement(100, form)
    assert place.destinations(1, 4) == (Destination(100 + 3 + 1, 0, 3),)
    assert place.destinations(1, 14) == (Destination(106 + 3 + 1, 0, 3),)
    assert place.destinations(1, 24) == (Destination(100 + 2 + 1, 0, 2),)
    assert [place.part(20, range(*blocks)) for blocks in ((0, 1), (1, 2), (0, 2))] == [(100, 2), (102, 4), (100, 6)]


def test_what_is_kept_at_the_same_time_lies_apart(rng):
    for _ in range(50):
        kept = {}
        for number in range(int(rng.integers(1, 12))):
            first = int(rng.integers(0, 10))
            form = strips(int(rng.integers(1, 9)), (0,), int(rng.integers(1, 90)), 1)
            kept[str(number)] = form, Lifetime(first, first + int(rng.integers(0, 5)))
        buffer = InputBuffer(1000, kept)
        for name, place in buffer.places.items():
            assert buffer.room(kept[name][1]) <= place.offset <= 1000 - place.strips.entries
        for one, other in combinations(kept, 2):
            if kept[one][1].meets(kept[other][1]):
                low, high = sorted((buffer.places[name].offset, kept[name][0].entries) for name in (one, other))
                assert low[0] + low[1] <= high[0]


def test_room():
    form = strips(10, (0,), 40, 1)
    buffer = InputBuffer(250, {"a": (form, Lifetime(0, 1)), "b": (form, Lifetime(1, 3))})
    assert [buffer.room(Lifetime(step, step)) for step in range(5)] == [150, 50, 50, 50, 250]
    assert [buffer.room(Lifetime(step, 4), form) for step in (1, 2, 4)] == [-50, 50, 150]


def test_room_is_there_before_a_step_without_loads(rng):
    """What the step before it loads and computes on with weights of zero may come after its STOREs."""
    kept = in_buffer(keeping(chain(rng, 20, 20, 20, 20, 20), CONFIG, "t2", "t3")).kept
    assert {name: life for name, (_, life) in kept.items()} == {"t2": Lifetime(1, 2), "t3": Lifetime(1, 3)}


# -- programs --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("channels, size, parts, pooled, names", [
    ((20, 30, 24, 17), (6, 7), 1, -1, ("t1",)),
    ((20, 30, 24, 17), (6, 7), 1, -1, ("t1", "t2")),
    ((20, 40, 40, 17), (6, 7), 1, 2, ("t1",)),                  # a POOL reads it
    ((20, 40, 40, 17), (6, 7), 3, 2, ("t1", "t2")),             # and writes another
    ((9, 40, 70, 9, 50), (14, 13), 4, -1, ("t1", "t3")),
    ((130, 200, 8, 60), (1, 1), 1, -1, ("t1", "t2")),
], ids=str)
@pytest.mark.parametrize("macs", [32, 64, 256])
def test_whole_tensors_stay(channels, size, parts, pooled, names, macs, rng):
    config = NpuConfig.preset(macs, depthwise=1, local_store=1)
    graph = chain(rng, *channels, size=size, pooled=pooled)
    program = compiled(graph, config, *names, parts=parts)
    assert not set(names) & program.tensors.keys()
    modes = {layer.output: layer.mode for layer in program.layers}
    assert {name for name, mode in modes.items() if mode == "fused"} == set(names)
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5))
    apart = compiled(graph, config, parts=parts)
    loads = [sum(i.opcode is Opcode.LOAD_ACT for i in each.instructions) for each in (apart, program)]
    assert loads[1] < loads[0]


def test_read_twice_and_later(rng):
    """Two layers read it; what is loaded meanwhile keeps clear of it, and what is loaded later waits for the second."""
    graph = chain(rng, 20, 24, 60, 40, 24, 20, size=(10, 12))
    first, second, third, fourth, fifth = graph.layers
    fourth = replace(fourth, input="t1", weights=fourth.weights[:, :24])
    fifth = replace(fifth, input="t2", weights=rng.integers(-60, 61, (20, 60, 1, 1)).astype(np.int16))
    graph = replace(graph, layers=(first, second, third, fourth, fifth),
                    outputs={name: (name, ()) for name in ("t3", "t4", "t5")})
    config = NpuConfig.preset(64, depthwise=1, local_store=1, input_depth=256)
    run_and_compare(compiled(graph, config, "t1", parts=4), graph, 1, ("load", "compute", "store", 5))


@pytest.mark.parametrize("kept", [("t3",), ("t3", "t4")])
def test_side_data_before_steps_without_loads(kept, rng):
    """What is added may be loaded late: its place is not another's before a step has loaded something after that."""
    graph = chain(rng, 20, 20, 20, 20, 20, 20, size=(6, 7))
    target = graph.tensors["t2"]
    added = Add(middle=target, other="t0", multiplier_a=1 << 13, multiplier_b=1 << 13, constant=0, shift=14,
                zero_point=0, low=-128, high=127)
    layers = list(graph.layers)
    layers[1], layers[2] = replace(layers[1], epilogue=(added,)), replace(layers[2], input="t1")
    graph = replace(graph, layers=layers, outputs={**graph.outputs, "t2": ("t2", ())})
    program = generate(graph, CONFIG, CompileOptions(), mapped=keeping(graph, CONFIG, *kept))
    run_and_compare(program, graph, 1, ("load", "compute", "store", 5), reused=True)


# -- rules -----------------------------------------------------------------------------------------------------------

def with_strips(mapped: MappedGraph, **changes: object) -> MappedGraph:
    step = mapped.steps[0]
    assert isinstance(step, Single) and step.strips is not None
    return replace(mapped, steps=[replace(step, strips=replace(step.strips, **changes)), *mapped.steps[1:]])


@pytest.mark.parametrize("broken, message", [
    (lambda m: with_strips(m, blocks=1), "the strips of t1 in the input buffer are not those of its"),
    (lambda m: with_strips(m, starts=(1,)), "the strips of t1 in the input buffer are not those of its"),
    (lambda m: with_strips(m, starts=(0, 3)), "the tiles of layer t1 are no parts of the strips of t1"),
    (lambda m: replace(m, config=replace(m.config, local_store=0)), "tensor t1 cannot stay"),
    (lambda m: replace(m, packed=frozenset({"t1"})), "tensor t1 cannot stay"),
    (lambda m: replace(m, graph=replace(m.graph, outputs={"y": ("t2", ()), "z": ("t1", ())})), "tensor t1 cannot stay"),
])
def test_rules_of_mapped_graphs(broken: Callable[[MappedGraph], MappedGraph], message: str, rng: Rng):
    mapped = keeping(chain(rng, 20, 30, 24), CONFIG, "t1")
    verify_mapped(mapped)
    with pytest.raises(StageError, match=message):
        verify_mapped(broken(mapped))


def test_windows_must_be_strips(rng):
    """What reads a tensor with a kernel, or in other spatial tiles, needs it in memory."""
    graph = chain(rng, 20, 30, 24)
    wide = conv_graph(rng.integers(-60, 61, (24, 30, 3, 3)), (6, 7), pad=1).layers[0]
    graph = replace(graph, layers=(graph.layers[0], replace(wide, name="t2", input="t1", output="t2")))
    with pytest.raises(StageError, match="layer t2 does not read t1 by its strips"):
        verify_mapped(keeping(graph, CONFIG, "t1"))


def test_rules_of_places(rng):
    placed = PlacedGraph.of(keeping(chain(rng, 20, 30, 24, 8), CONFIG, "t1", "t2"))
    verify_placed(placed)
    first = placed.buffer.places["t1"]
    for offset, message in ((first.offset, "tensors t1 and t2 are in the input buffer at the same time"),
                            (CONFIG.input_depth, "tensor t2 lies outside the input buffer")):
        buffer = in_buffer(placed.mapped)
        buffer.places["t2"] = replace(buffer.places["t2"], offset=offset)
        with pytest.raises(StageError, match=message):
            verify_placed(replace(placed, buffer=buffer))
