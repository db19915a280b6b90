"""Tensors that are parts of others: rules, moving within blocks, places in memory, programs."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.epilogue.upsample import Upsample
from gen.ir.errors import CompileError, GraphError
from gen.ir.graph import Conv, Graph, Move, Pool
from gen.ir.parts import origin
from gen.ir.queries import count_readers
from gen.ir.tensor import Part, Requantize
from gen.ir.verify import verify
from gen.lowering.placed import PlacedGraph, in_memory
from gen.lowering.verify import StageError, verify_mapped, verify_placed
from gen.mapping.pack import steps_on
from gen.mapping.registry import map_graph
from gen.memory.region import Lifetime
from gen.options import CompileOptions
from gen.passes import remove_dead, run_passes
from gen.passes.align_parts import align_parts
from gen.passes.fold_picks import fold_picks
from gen.passes.space_parts import space_parts
from gen.program.file import load_program, save_program
from gen.program.program import ProgramError
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order
from tests.gen.test_compiler import run_and_compare
from tests.npu_files import changed
from tests.random_layers import RandomBuilder
from tests.random_parts import random_parts

Rng = np.random.Generator

#: Blocks of 4 and of 8 channels; depthwise layers that hand on what they make.
CONFIGS = [NpuConfig.preset(16),
           NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, gather=1, input_depth=512,
                     acc_depth=64, weight_depth=512)]
TN = CONFIGS[0].ic_lanes


def side_by_side(rng: Rng, *channels: int) -> Graph:
    """Layers ``t1``, ``t2``, ... that read an input and make the parts of ``whole``, which another layer reads."""
    b = RandomBuilder(rng, 64, 6, depthwise=0, upsampled=0)
    entrance = b.tensor((3, 5, 6))

    def pointwise(name: str, count: int) -> str:
        source = b.tensors[name]
        b.chance = lambda probability: False    # type: ignore[method-assign]   # nothing is added
        return b.make_conv(source, count, False, (1, 1), (1, 1), (0, 0, 0, 0), (5, 6)).name

    names = [pointwise(entrance.name, count) for count in channels]
    whole = b.tensor((sum(channels), 5, 6))
    first = 0
    for name, count in zip(names, channels, strict=True):
        b.tensors[name] = replace(b.tensors[name], part=Part(whole.name, first))
        first += count
    return Graph("joined", b.tensors, b.layers, {"input": (entrance.name, ())},
                 {"output": (pointwise(whole.name, 5), ())})


def with_tensor(graph: Graph, name: str, **changes: object) -> Graph:
    return replace(graph, tensors={**graph.tensors, name: replace(graph.tensors[name], **changes)})


# -- the graph -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken, message", [
    (lambda g: with_tensor(g, "t1", part=Part("nothing", 0)), "tensor t1: is part of 'nothing', which is not in the"),
    (lambda g: with_tensor(g, "t1", part=Part("t3", 5)), "tensor t1: 8 channels from 5 on are no part of 12"),
    (lambda g: with_tensor(g, "t1", part=Part("t3", -1)), "tensor t1: 8 channels from -1 on are no part of 12"),
    (lambda g: with_tensor(g, "t1", part=Part("t1", 0)), "tensor t1: 8 channels from 0 on are no part of 8"),
    (lambda g: with_tensor(g, "t3", shape=(12, 6, 6)), r"tensor t1: is \(5, 6\) large and part of 't3', which is"),
    (lambda g: with_tensor(g, "t1", signs=True), "tensor t1: signs are neither parts nor have any"),
    (lambda g: with_tensor(g, "t0", part=Part("t3", 0)), "input input: tensor 't0' is part of another"),
    (lambda g: with_tensor(g, "t1", part=Part("t3", 2)), "layer layer1: output 't2' is written twice"),
    (lambda g: replace(g, layers=g.layers[1:]), "layer layer2: input 't3' is read before it is written"),
    (lambda g: replace(g, layers=g.layers[1:2], outputs={"y": ("t3", ())}), "output y: tensor 't3' is never written"),
])
def test_rules(broken: Callable[[Graph], Graph], message: str, rng: Rng) -> None:
    graph = side_by_side(rng, 8, 4)
    verify(graph)
    with pytest.raises(GraphError, match=message):
        verify(broken(graph))


def test_a_tensor_is_read_where_channels_of_it_are(rng: Rng) -> None:
    graph = side_by_side(rng, 8, 4)
    assert count_readers(graph) == {"t0": 2, "t1": 1, "t2": 1, "t3": 1, "t4": 1}
    cut = replace(graph.tensors["t2"], name="cut", part=Part("t3", 6))
    layer = replace(graph.layers[-1], name="more", input="cut", output="more",
                    weights=graph.layers[-1].weights[:, :4])
    graph = replace(graph, tensors={**graph.tensors, "cut": cut, "more": replace(graph.tensors["t4"], name="more")},
                    layers=[*graph.layers, layer], outputs={"output": ("more", ())})
    verify(graph)
    assert count_readers(graph) == {"t0": 2, "t1": 2, "t2": 2, "t3": 2, "t4": 0, "cut": 2, "more": 1}
    # Without the layer that nobody reads, the parts that `cut` has channels of stay.
    assert [layer.name for layer in remove_dead(graph).layers] == ["layer0", "layer1", "more"]


def test_parts_on_blocks_stay(rng: Rng) -> None:
    graph = side_by_side(rng, 8, 16, 5)
    assert align_parts(graph, 8) is graph
    # A block of the second and the third part is one; the first is still where it belongs.
    moved = align_parts(graph, 16)
    assert moved.tensors["t1"].part is None and moved.tensors["t2"].part is None
    graph = side_by_side(rng, 16, 8, 5)
    moved = align_parts(graph, 16)
    assert [bool(moved.tensors[name].part) for name in ("t1", "t2", "t3")] == [True, False, False]
    assert len(moved.layers) == len(graph.layers) + 2


def same_outputs(one: Graph, other: Graph, rng: Rng) -> None:
    inputs = {name: rng.integers(-128, 128, (2, *one.tensors[tensor].shape)).astype(np.int8)
              for name, (tensor, _) in one.inputs.items()}
    (expected, _), (found, _) = (reference.run(graph, inputs) for graph in (one, other))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_passes_change_no_value(rng: Rng, seed: int) -> None:
    for number in range(12):
        graph = random_parts(seed + number)
        same_outputs(graph, run_passes(graph), rng)
        for tn in (1, 4, 8, 16):
            moved = align_parts(graph, tn)
            verify(moved)
            same_outputs(graph, moved, rng)
            assert all(origin(moved.tensors, name)[1].start % tn == 0 for name in moved.tensors)


def _spaced(graph: Graph, config: NpuConfig) -> Graph:
    return space_parts(graph, config, steps_on(config))


def _folded(graph: Graph, config: NpuConfig) -> Graph:
    return fold_picks(graph, config.ic_lanes, steps_on(config))


def _changed(change: Callable[[Graph], Graph], graphs: Iterator[Graph]) -> list[tuple[Graph, Graph]]:
    """The first six of ``graphs`` of which ``change`` makes other ones, and these; of a few hundred there are some."""
    pairs = ((graph, change(graph)) for graph in itertools.islice(graphs, 400))
    found = list(itertools.islice(((graph, made) for graph, made in pairs if made is not graph), 6))
    assert len(found) == 6
    return found


@pytest.mark.parametrize("config", [*CONFIGS, NpuConfig.preset(256)])
def test_spaced_parts_change_no_value(config: NpuConfig, rng: Rng, seed: int) -> None:
    for graph, apart in _changed(lambda graph: _spaced(graph, config), map(random_parts, itertools.count(seed))):
        verify(apart)
        same_outputs(graph, apart, rng)
        same_outputs(graph, align_parts(apart, config.ic_lanes), rng)


def test_spaced_parts(rng: Rng) -> None:
    """The whole has channels between its parts, of which the layer after it knows nothing, and no layer is added."""
    graph = side_by_side(rng, 5, 12, 3)
    apart = _spaced(graph, CONFIGS[1])
    assert align_parts(apart, 8) is apart and len(apart.layers) == len(graph.layers)
    whole = apart.tensors[apart.layers[-1].input]
    assert (whole.shape[0], whole.gaps, whole.onnx_name) == (27, (range(5, 8), range(20, 24)), "")
    assert [origin(apart.tensors, name)[1].start for name in ("t1", "t2", "t3")] == [0, 8, 24]
    for before, after in zip(graph.layers, apart.layers, strict=True):
        assert isinstance(before, Conv) and isinstance(after, Conv) and before.products == after.products
    program, computed = compile_kept(graph, CONFIGS[1])
    assert sum(layer.macs for layer in program.layers) == 30 * sum(
        layer.products for layer in graph.layers if isinstance(layer, Conv))
    check_in_every_order(program, computed, 1)


def test_parts_that_cannot_be_spaced(rng: Rng) -> None:
    """A whole that is an output, one that would be more than twice as many blocks, and one that is moved."""
    graph = side_by_side(rng, 5, 12, 3)
    few = side_by_side(rng, 2, 2, 2)
    places = np.arange(30)[::-1].copy()
    moved = replace(graph, layers=(*graph.layers, Move("move", "t4", "t6", requantize=same_stage(20), places=places,
                                                       shape=(5, 6))),
                    tensors={**graph.tensors, "t6": replace(graph.tensors["t4"], name="t6")})
    for other in (replace(graph, outputs={**graph.outputs, "whole": ("t4", ())}), few, moved):
        verify(other)
        assert _spaced(other, CONFIGS[1]) is other


def picked(rng: Rng, order: Sequence[int], *, twice: bool = False) -> Graph:
    """Channels of ``order`` of what a layer makes, 48 of them, for another layer; ``twice``: by two such layers."""
    graph = side_by_side(rng, 24, 24)
    tensors, point = dict(graph.tensors), graph.tensors["t3"].zero_point
    source, picks, orders = "t3", [], [order, range(len(order))[::-1]] if twice else [order]
    for number, some in enumerate(orders):
        name, size = f"p{number}", len(some)
        weights = (np.array(some)[:, None] == np.arange(tensors[source].shape[0])).astype(np.int16)
        stage = replace(same_stage(size), bias=np.full(size, -point), zero_point=point)
        picks.append(Conv(name, source, name, weights=weights[:, :, None, None], requantize=stage))
        tensors[name] = replace(tensors["t3"], name=name, shape=(size, 5, 6))
        source = name
    weights = rng.integers(-99, 99, (5, len(order), 1, 1)).astype(np.int16)
    last = replace(graph.layers[-1], input=source, weights=weights)
    found = replace(graph, tensors=tensors, layers=(*graph.layers[:-1], *picks, last))
    verify(found)
    return found


SHUFFLED = np.arange(48).reshape(2, 24).T.ravel()


@pytest.mark.parametrize("order, twice", [
    (SHUFFLED, False), (SHUFFLED[24:], False), (SHUFFLED, True), ([40, 3], False)])
def test_channels_in_another_order(order: Sequence[int], twice: bool, rng: Rng) -> None:
    graph, config = picked(rng, order, twice=twice), NpuConfig.preset(256)
    folded = _folded(graph, config)
    verify(folded)
    same_outputs(graph, folded, rng)
    assert [layer.name for layer in folded.layers] == ["layer0", "layer1", "layer2"]
    last = folded.layers[-1]
    assert isinstance(last, Conv) and last.products == 5 * len(order)
    first = min(order) // 16 * 16
    assert folded.tensors[last.input].shape[0] == max(order) + 1 - first
    assert origin(folded.tensors, last.input)[1].start == first
    program, computed = compile_kept(graph, config)
    assert len(program.layers) == 3
    check_in_every_order(program, computed, 1)


def test_layers_that_pick_and_stay(rng: Rng) -> None:
    """Those with another reader, another scale, an output of the model, and those that make a wide layer slower."""
    graph, config = picked(rng, SHUFFLED), NpuConfig.preset(256)
    *front, pick, last = graph.layers
    assert isinstance(pick, Conv) and isinstance(last, Conv)
    pool = Pool("pool", "p0", "q", maximum=True, pad_value=0, requantize=same_stage(48))
    other_scale = replace(pick, requantize=replace(pick.requantize, multiplier=pick.requantize.multiplier // 2))
    apart = picked(rng, [0, 1, 16, 17, 32, 33])
    wide = rng.integers(-9, 9, (256, 6, 1, 1)).astype(np.int16)
    many = replace(with_tensor(apart, "t4", shape=(256, 5, 6)), layers=(*apart.layers[:-1], replace(
        apart.layers[-1], weights=wide, epilogue=(), requantize=same_stage(256))))
    for other in (
            replace(graph, layers=(*front, pick, pool, last),
                    tensors={**graph.tensors, "q": replace(graph.tensors["p0"], name="q")}),
            replace(graph, layers=(*front, other_scale, last)),
            replace(graph, outputs={**graph.outputs, "also": ("p0", ())})):
        verify(other)
        assert _folded(other, config) is other
    assert _folded(many, NpuConfig.preset(256, "dense")) is many


def test_folded_picks_change_no_value(rng: Rng, seed: int) -> None:
    graphs = (align_parts(random_parts(number), 8) for number in itertools.count(seed))
    for graph, made in _changed(lambda graph: _folded(graph, CONFIGS[1]), graphs):
        verify(made)
        same_outputs(graph, made, rng)


def test_parts_are_spaced_where_that_is_faster(rng: Rng) -> None:
    """A wide layer that reads them takes more steps for it with lanes that have a choice of two channels."""
    graph = side_by_side(rng, 24, 24)
    last = replace(graph.layers[-1], weights=rng.integers(-9, 9, (256, 48, 1, 1)).astype(np.int16), epilogue=(),
                   requantize=same_stage(256))
    graph = replace(with_tensor(graph, "t4", shape=(256, 5, 6)), layers=(*graph.layers[:-1], last))
    verify(graph)
    assert _spaced(graph, NpuConfig.preset(256, "dense")) is graph
    assert _spaced(graph, NpuConfig.preset(256)) is not graph


def same_stage(channels: int) -> Requantize:
    return Requantize(np.zeros(channels, np.int64), np.full(channels, 1 << 16), np.full(channels, 16), 0, -128, 127)


def test_copies_that_do_more_stay(rng: Rng) -> None:
    """Upsampled ones, of which the layers that move channels know nothing."""
    graph = side_by_side(rng, 5, 5)
    point = graph.tensors["t3"].zero_point
    parts = {name: replace(graph.tensors[name], shape=(5, 10, 6), zero_point=point) for name in ("t1", "t2")}
    whole, end = (replace(graph.tensors[name], shape=(channels, 10, 6)) for name, channels in (("t3", 10), ("t4", 5)))
    source = replace(graph.tensors["t1"], name="source", part=None)
    first, _, last = graph.layers
    copies = [Pool(f"copy {name}", "source", name, maximum=False, pad_value=0,
                   requantize=replace(first.requantize, zero_point=point, low=-128, high=127),
                   epilogue=(Upsample((2, 1)),))
              for name in parts]
    tensors = {**graph.tensors, **parts, "t3": whole, "t4": end, "source": source}
    # A `Leaky` in the last layer would have a tensor of the smaller size in the middle; its bounds have nine bits.
    whole_range = replace(last.requantize, low=-128, high=127)
    layers = [replace(first, output="source"), *copies, replace(last, epilogue=(), requantize=whole_range)]
    graph = replace(graph, tensors=tensors, layers=layers)
    verify(graph)
    moved = align_parts(graph, 8)
    verify(moved)
    same_outputs(graph, moved, rng)
    assert [layer.repeats for layer in moved.layers] == [(1, 1), (2, 1), (2, 1), (1, 1), (1, 1), (1, 1)]


def test_too_many_channels_to_move(rng: Rng, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.passes.align_parts._MAX_WEIGHTS", 300)
    graph = side_by_side(rng, 17, 15)
    with pytest.raises(CompileError, match="layer t3: tensor t1 has 17 channels, too many to be moved to 32 within"):
        compile_graph(replace(graph, outputs={**graph.outputs, "whole": ("t3", ())}), CONFIGS[0])


# -- memory ----------------------------------------------------------------------------------------------------------


def test_places_are_those_of_blocks(rng: Rng) -> None:
    program, graph = compile_graph(side_by_side(rng, 2 * TN, TN, 3), CONFIGS[0])
    whole = program.tensors["t4"]
    assert [program.tensors[name].offset - whole.offset for name in ("t1", "t2", "t3")] == [0, 60, 90]
    assert [program.tensors[name].whole for name in ("t1", "t2", "t3", "t4")] == ["t4", "t4", "t4", None]
    assert len(graph.layers) == 4 and program.written == ("t0", "t1", "t2", "t3", "t5")


def test_a_whole_is_needed_from_its_first_part_on(rng: Rng) -> None:
    needed = in_memory(map_graph(side_by_side(rng, TN, TN), CONFIGS[0], CompileOptions()), keep_all=False)
    assert {name: life for name, (_, life) in needed.items()} == {
        "t0": Lifetime(-1, 1), "t1": Lifetime(0, 2), "t2": Lifetime(0, 2), "t3": Lifetime(0, 2), "t4": Lifetime(2, 3)}


@pytest.mark.parametrize("broken, message", [
    (lambda p: move(p, "t2", 30), "tensor t2 is not where it belongs in t3"),
    (lambda p: move(p, "t1", 0, whole="t0"), "tensor t1 is not where it belongs in t3"),
    (lambda p: move(p, "t1", 0, interleaved=True), "tensor t1 is not where it belongs in t3"),
])
def test_placed_parts(broken: Callable[[PlacedGraph], PlacedGraph], message: str, rng: Rng) -> None:
    placed = PlacedGraph.of(map_graph(side_by_side(rng, TN, TN), CONFIGS[0], CompileOptions()))
    verify_placed(placed)
    with pytest.raises(StageError, match=message):
        verify_placed(broken(placed))


def move(placed: PlacedGraph, name: str, beats: int, **changes: object) -> PlacedGraph:
    place = placed.tensors[name]
    place = replace(place, offset=place.offset + beats, **changes)      # type: ignore[arg-type]
    return replace(placed, tensors={**placed.tensors, name: place})


@pytest.mark.parametrize("channels, message", [
    ((TN - 1, TN), "tensor t2 does not begin at a block of t3"), ((TN, 1, TN), "tensor t3 does not begin at a block")])
def test_mapped_parts(channels: tuple[int, int], message: str, rng: Rng) -> None:
    graph = side_by_side(rng, *channels)
    with pytest.raises(StageError, match=message):
        verify_mapped(map_graph(graph, CONFIGS[0], CompileOptions()))


# -- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: str(c.macs))
def test_random_parts(config: NpuConfig, seed: int) -> None:
    """In strict mode: who reads a whole waits for all who write its parts."""
    for number in range(4):
        graph = random_parts(seed + number)
        kept = bool(number % 2)
        program, graph = compile_graph(graph, config, CompileOptions(keep_all=kept))
        run_and_compare(program, graph, seed, ("load", "compute", "store", number), reused=not kept)


@pytest.mark.full
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: str(c.macs))
def test_many_random_parts(config: NpuConfig, seed: int) -> None:
    for number in range(120):
        graph = random_parts(seed + number, steps=12, max_channels=40)
        kept = bool(number % 2)
        program, graph = compile_graph(graph, config, CompileOptions(keep_all=kept))
        run_and_compare(program, graph, seed, ("load", "compute", "store", number), reused=not kept)


def test_files(rng: Rng, tmp_path: Path) -> None:
    program, _ = compile_kept(side_by_side(rng, TN, TN), CONFIGS[0])
    save_program(program, tmp_path / "a.npu")
    assert load_program(tmp_path / "a.npu").tensors == program.tensors
    place = program.tensors["t2"]
    for changes in ({"whole": "nothing"}, {"whole": "t1"}, {"offset": place.offset + 1},
                    {"offset": place.offset + 30}, {"offset": place.offset - 60}, {"shape": [4, 6, 6]},
                    {"interleaved": True}):
        changed(tmp_path / "a.npu", tmp_path / "b.npu",
                lambda header, changes=changes: header["tensors"]["t2"].update(changes))
        with pytest.raises(ProgramError, match="b.npu: damaged .tensor 't2' (is no part of|lies outside)"):
            load_program(tmp_path / "b.npu")
