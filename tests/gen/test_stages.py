"""The rules of mapped and placed graphs, each broken once."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.lowering.placed import PlacedGraph
from gen.lowering.steps import MappedGraph
from gen.lowering.verify import StageError, verify_mapped, verify_placed
from gen.mapping.base import Mapping, Single
from gen.mapping.registry import MAPPINGS, map_graph
from gen.options import CompileOptions
from tests.gen.test_memory import chain

CONFIG = NpuConfig.preset(64, input_depth=256, acc_depth=64)


@pytest.fixture
def mapped(rng: np.random.Generator) -> MappedGraph:
    return map_graph(chain(3, rng), CONFIG, CompileOptions())


def with_plan(mapped: MappedGraph, spatial_tiles: slice) -> MappedGraph:
    layer = mapped.steps[0].layers[0]
    plan = replace(layer.plan, spatial_tiles=layer.plan.spatial_tiles[spatial_tiles])
    return replace(mapped, steps=[Single(replace(layer, plan=plan)), *mapped.steps[1:]])


@pytest.mark.parametrize("broken, message", [
    (lambda m: replace(m, steps=m.steps[::-1]), "layer t3 reads t2 before it is written"),
    (lambda m: replace(m, steps=[*m.steps, m.steps[0]]), "layer t1 writes t1 again"),
    (lambda m: replace(m, steps=m.steps[:2]), "output y: no step writes t3"),
    (lambda m: replace(m, graph=replace(m.graph, layers=m.graph.layers[1:])), "layer t1 is not in the graph"),
    (lambda m: with_plan(m, slice(1, None)), "the tiles of layer t1 do not cover its output once"),
    (lambda m: replace(m, graph=replace(
        m.graph, tensors={name: replace(t, scale=2.0) for name, t in m.graph.tensors.items()})),
     "layer t1 has another output than the graph"),
])
def test_mapped_graphs(mapped, broken, message):
    verify_mapped(mapped)
    assert len(mapped.steps[0].layers[0].plan.spatial_tiles) > 1
    with pytest.raises(StageError, match=message):
        verify_mapped(broken(mapped))


def moved(placed: PlacedGraph, name: str, offset: int) -> PlacedGraph:
    return replace(placed, tensors={**placed.tensors, name: replace(placed.tensors[name], offset=offset)})


@pytest.mark.parametrize("broken, message", [
    (lambda p: moved(p, "t1", p.tensors["t0"].offset), "tensors t0 and t1 are needed at the same time"),
    (lambda p: moved(p, "t1", 0), "tensor t1 lies outside"),
    (lambda p: moved(p, "t1", p.end), "tensor t1 lies outside"),
    (lambda p: moved(p, "t1", p.tensors["t1"].offset - 1), "tensor t1 does not begin at a multiple of 4096 bytes"),
    (lambda p: replace(p, tensors={name: place for name, place in p.tensors.items() if name != "t2"}), "has no place"),
    (lambda p: replace(p, write_start=0), "constants reach into"),
])
def test_placed_graphs(mapped, broken, message):
    placed = PlacedGraph.of(mapped)
    verify_placed(placed)
    with pytest.raises(StageError, match=message):
        verify_placed(broken(placed))


def kinds(of: type[Mapping]) -> set[type[Mapping]]:
    """Those below a class that propose themselves."""
    found = {of} if "propose" in vars(of) and of is not Mapping else set()
    return found.union(*map(kinds, of.__subclasses__()))


def test_every_mapping_is_in_the_registry():
    assert kinds(Mapping) == set(MAPPINGS)
