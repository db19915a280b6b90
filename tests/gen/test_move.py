"""Layers that move pixels: as boxes, on every order of the machine's queues, and beside the golden model."""

from dataclasses import replace

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.errors import GraphError
from gen.ir.verify import verify
from gen.mapping.move import _boxes
from gen.mapping.registry import map_graph
from gen.options import CompileOptions
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order
from tests.moves import ORDERS, move_graph, patches, windows

Rng = np.random.Generator
CONFIGS = (NpuConfig.preset(16), NpuConfig.preset(256, depthwise=1),
           NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1))


@pytest.mark.parametrize("name", ORDERS)
def test_every_order(name: str, rng: Rng) -> None:
    places, most = ORDERS[name]
    pixels = int(places.max()) + 1
    graph = move_graph(places, 20, pixels)
    verify(graph)
    values = rng.integers(-128, 128, (2, 20, 1, pixels)).astype(np.int8)
    (layer,) = graph.layers
    np.testing.assert_array_equal(layer.accumulate([values], 3)[..., 0, :], values[..., 0, :][..., places])
    boxes = _boxes(np.arange(len(places)), places.astype(np.int64), 1000, 4)
    assert len(boxes) <= most and sum(box.rows * box.cols for box in boxes) == len(places)
    for number, config in enumerate(CONFIGS):
        made = move_graph(places, 20, pixels, added=number == 1)
        check_in_every_order(*compile_kept(made, config), number)


@pytest.mark.slow
def test_boxes_that_the_buffer_has_no_room_for(rng: Rng) -> None:
    """Neither long runs nor many rows are too much."""
    config = NpuConfig.preset(16, input_depth=256)
    for places in (np.arange(2500), windows(50, 50, 25), patches(50, 50, 2)):
        program, graph = compile_kept(move_graph(places, 40, 2500), config)
        check_in_every_order(program, graph, 1)


#: Pixels of each operand, and places in all of them.
SEVERAL = {
    "side by side": ((6, 1, 9), np.arange(16)), "vectors": ((1,) * 7, np.arange(7)[::-1]),
    "phases": ((12,) * 4, np.arange(48).reshape(2, 2, 3, 4).transpose(2, 0, 3, 1).ravel()),
    "not all": ((8, 8, 3), np.array([9, 10, 11, 1, 2, 3, 1, 2, 18])),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_operands(name: str, rng: Rng) -> None:
    pixels, places = SEVERAL[name]
    graph = move_graph(places, 20, *pixels)
    verify(graph)
    values = [rng.integers(-128, 128, (20, 1, count)).astype(np.int8) for count in pixels]
    (layer,) = graph.layers
    np.testing.assert_array_equal(layer.accumulate(values, 3)[:, 0], np.concatenate(values, -1)[:, 0, places])
    for number, config in enumerate(CONFIGS):
        check_in_every_order(*compile_kept(graph, config), number)


def test_operands_that_differ() -> None:
    graph = move_graph(np.arange(4), 3, 2, 2)
    graph.tensors["x2"] = replace(graph.tensors["x2"], scale=2.0)
    with pytest.raises(GraphError, match="differ"):
        verify(graph)


def test_a_tile_that_is_missing() -> None:
    mapped = map_graph(move_graph(windows(14, 14, 7), 3, 196), CONFIGS[0], CompileOptions())
    (layer,) = (layer for step in mapped.steps for layer in step.layers)
    assert layer.covers_output()
    tiles = layer.plan.spatial_tiles
    for wrong in (tiles[1:], (tiles[0], *tiles[:-1])):
        assert not replace(layer, plan=replace(layer.plan, spatial_tiles=wrong)).covers_output()


@pytest.mark.parametrize("places", [np.array([0, 6]), np.array([-1, 0]), np.zeros(3, np.int64)], ids=str)
def test_wrong_places(places: np.ndarray) -> None:
    graph = move_graph(np.zeros(2, np.int64), 3, 6)
    (layer,) = graph.layers
    object.__setattr__(layer, "places", places.astype(np.int64))
    with pytest.raises(GraphError, match="moves"):
        verify(graph)
