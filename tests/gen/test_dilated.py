"""Dilated convolutions without the zeros between their taps."""

from itertools import product

import numpy as np
import pytest

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.ir.tensor import Requantize, Tensor
from gen.mapping.base import Mapping, MappingContext
from gen.mapping.dilated import DilatedMapping, zeros_between_taps
from gen.mapping.plain import PlainMapping
from gen.mapping.registry import map_graph
from gen.options import CompileOptions
from sim.cycles import estimate
from tests.compiled import compile_kept
from tests.every_order import check_in_every_order

Rng = np.random.Generator

#: One and two pixels a word; full and limited choice of channels; lanes of depthwise layers.
CONFIGS = {
    "16": NpuConfig.preset(16), "64": NpuConfig.preset(64), "windows": NpuConfig.preset(64, depthwise=1),
    "dense": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=16, pixel_lanes=2, select_fanin=1),
}


def proposed(graph: Graph, config: NpuConfig, kind: type[Mapping]) -> Mapping | None:
    return kind.propose(MappingContext(graph, config, CompileOptions()).context(graph.layers[0]))


def dilated_graph(rng: Rng, apart: tuple[int, int], *, taps: tuple[int, int] = (3, 3), stride: tuple[int, int] = (1, 1),
                  channels: tuple[int, int] = (20, 37), size: tuple[int, int] = (19, 22), depthwise: bool = False,
                  density: float = 1.0) -> Graph:
    """A layer with padding such that as much comes out as goes in."""
    inputs, outputs = channels if not depthwise else (channels[0],) * 2
    extent = [(count - 1) * step + 1 for count, step in zip(taps, apart, strict=True)]
    weights = np.zeros((outputs, 1 if depthwise else inputs, *extent), np.int16)
    picked = rng.integers(-120, 121, (*weights.shape[:2], *taps))
    weights[:, :, ::apart[0], ::apart[1]] = picked * (rng.random(picked.shape) < density)
    weights[0, 0, 0, 0] = weights[0, 0, -1, -1] = 1       # of pruned ones, too, the first and the last are there
    pads = ((extent[0] - 1) // 2, (extent[1] - 1) // 2, extent[0] // 2, extent[1] // 2)
    made = [(length - 1) // step + 1 for length, step in zip(size, stride, strict=True)]
    spread = float(np.sqrt(max(1.0, (weights.astype(float)**2).sum(axis=(1, 2, 3)).mean()))) * 60
    shift = int(np.log2(spread)) + 10
    stage = Requantize(rng.integers(-999, 999, outputs), np.full(outputs, 60_000), np.full(outputs, shift), 3, -128,
                       127)
    layer = Conv("layer", "x", "y", weights=weights, stride=stride, pads=pads, requantize=stage, depthwise=depthwise)
    return Graph("dilated", {"x": Tensor("x", (inputs, *size), 1.0, -7),
                             "y": Tensor("y", (outputs, made[0], made[1]), 1.0, 3)},
                 (layer,), {"input": ("x", ())}, {"output": ("y", ())})


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("apart, stride", [
    *product([(2, 2), (3, 1), (1, 2), (4, 6)], [(1, 1)]), ((2, 4), (2, 2)), ((3, 2), (1, 2)), ((2, 3), (2, 1))])
def test_values(config: str, apart: tuple[int, int], stride: tuple[int, int], rng: Rng, seed: int) -> None:
    """In every order; where it takes fewer cycles, by the time model too, than with the zeros."""
    for density, depthwise in ((1.0, False), (0.2, False), (1.0, True)):
        graph = dilated_graph(rng, apart, stride=stride, density=density, depthwise=depthwise)
        program, graph = compile_kept(graph, CONFIGS[config])
        check_in_every_order(program, graph, seed)
        plain, found = (proposed(graph, CONFIGS[config], kind) for kind in (PlainMapping, DilatedMapping))
        assert plain is not None
        if found is not None and not depthwise:
            assert found.cost < plain.cost and program.layers[0].mode == "dilated"
            assert estimate(CONFIGS[config], program.code).cycles == pytest.approx(found.plan.cycles, rel=0.2)


@pytest.mark.parametrize(("apart", "stride", "said"), [(2, 1, False), (3, 1, True), (1, 1, False), (2, 2, True),
                                                       (4, 2, False)])
def test_zeros_that_are_multiplied(apart: int, stride: int, said: bool, rng: Rng) -> None:
    """What a machine of two banks cannot leave out is said, and what it could."""
    config = NpuConfig.preset(64)
    graph = dilated_graph(rng, (2, apart), stride=(1, stride), channels=(64, 64), size=(24, 40))
    mapped = map_graph(graph, config, CompileOptions())
    line = zeros_between_taps(layer for step in mapped.steps for layer in step.layers)
    assert config.banks == 2
    assert line == ("columns of zeros are multiplied, too, in layer layer, whose kernels are dilated; where columns "
                    f"are a multiple of {2 * stride} apart the machine leaves them out") * said
