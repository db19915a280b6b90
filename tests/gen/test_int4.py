"""Weights of four bits (docs/decisions/0025): which tiles have them, what they take, and that values stay the same."""

from dataclasses import replace

import numpy as np
import pytest

from cores.arch.isa import StepKind
from cores.config import ConfigError, NpuConfig
from cores.timing.compute import ComputeEngineTiming
from gen.compiler import compile_graph
from gen.ir.graph import Conv, Graph
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.mapping.pack import pack, slices_of
from sim import functional
from sim.cycles import estimate
from tests.compiled import check_tensors, compile_kept, golden_tensors, random_image
from tests.random_int4 import random_int4
from tests.random_layers import random_inputs

CONFIG = NpuConfig.preset(256, int4=1)
#: Wide and narrow lanes, words of one pixel, indices of fewer bits, windows, other units' rows.
CONFIGS = {
    "256": CONFIG,
    "dense": NpuConfig.preset(128, "dense", int4=1),
    "narrow": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, input_depth=512, int4=1),
    "fan-in 4": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, select_fanin=4, int4=1),
    "units": NpuConfig.preset(64, int4=1, depthwise=1, gather=1, winograd=1, binary_rows=16),
}


def dense(weights: np.ndarray, pixels: int = 4) -> Graph:
    """A 1x1 convolution of these weights, (channels, inputs)."""
    channels, inputs = weights.shape
    rng = np.random.default_rng(3)
    scale = np.full(channels, 1 << 16), np.full(channels, 24)
    requantize = Requantize(rng.integers(-99, 99, channels), *scale, 0, -128, 127)
    tensors = {name: Tensor(name, (count, 1, pixels), 0.1, 0) for name, count in (("x", inputs), ("y", channels))}
    layer = Conv("fc", "x", "y", weights=weights.astype(np.int16)[:, :, None, None], requantize=requantize)
    graph = Graph("dense", tensors, (layer,), {"x": ("x", ())}, {"y": ("y", ())})
    verify(graph)
    return graph


def kinds(weights: np.ndarray, config: NpuConfig = CONFIG) -> list[set[StepKind]]:
    layer = dense(weights).layers[0]
    assert isinstance(layer, Conv)
    return [{one.kind for one in tile} for tile in slices_of(layer, config)]


def check(graph: Graph, config: NpuConfig, seed: int) -> bool:
    """Whether a program has steps of four bits; all of its tensors are the golden layers'."""
    program, graph = compile_kept(graph, config)
    inputs = random_inputs(graph, seed)
    image = random_image(program, inputs, seed)
    functional.run(config, program.code, image, write_start=program.write_start)
    check_tensors(program, graph, image, golden_tensors(graph, inputs), f"graph {seed}")
    return any(one.opcode.name == "COMPUTE" and StepKind(one["kind"]).is_int4 for one in program.instructions)


def test_tiles_whose_weights_fit(rng: np.random.Generator) -> None:
    weights = rng.integers(-8, 8, (96, 64))
    assert kinds(weights) == [{StepKind.INT4}] * 3
    assert kinds(weights, replace(CONFIG, int4=0)) == [{StepKind.DENSE}] * 3
    for value in (-9, 8):
        weights[40, 7] = value      # in the second tile
        assert kinds(weights) == [{StepKind.INT4}, {StepKind.DENSE}, {StepKind.INT4}]


def test_tiles_with_indices(rng: np.random.Generator) -> None:
    """Where blocks with indices have weights beyond four bits, dense ones keep four, and the other way round."""
    weights = rng.integers(1, 8, (32, 64))
    weights[:, np.arange(64) % 4 > 0] = 0
    assert kinds(weights) == [{StepKind.INT4_INDEXED}]
    assert kinds(weights, replace(CONFIG, int4=0)) == [{StepKind.INDEXED}]
    weights[3, 4] = 9
    assert kinds(weights) == [{StepKind.INDEXED}]
    weights[:, 32:] = 3
    assert kinds(weights) == [{StepKind.INDEXED, StepKind.INT4}]
    weights[3, 4], weights[7, 40] = 7, -9
    assert kinds(weights) == [{StepKind.INT4_INDEXED, StepKind.DENSE}]


@pytest.mark.parametrize("extreme", [-8, 7])
def test_every_lane(extreme: int, rng: np.random.Generator) -> None:
    """Signs are extended in each lane, and none has another one's weight."""
    for config in CONFIGS.values():
        channels, inputs = 2 * config.oc_lanes, 2 * config.ic_lanes
        weights = np.where(rng.random((channels, inputs)) < 0.5, extreme, rng.integers(-8, 8, (channels, inputs)))
        assert check(dense(weights), config, 1)


def test_half_the_beats(rng: np.random.Generator) -> None:
    layer = dense(rng.integers(-8, 8, (70, 48))).layers[0]
    assert isinstance(layer, Conv)
    tiles = {config: slices_of(layer, config) for config in (CONFIG, replace(CONFIG, int4=0))}
    small, large = (pack(layer, slices, config) for config, slices in tiles.items())
    assert 2 * len(small) == len(large)


@pytest.mark.parametrize("macs, purpose", [(256, "sparse"), (512, "dense")])
def test_fully_connected_layers(macs: int, purpose: str, rng: np.random.Generator) -> None:
    """A step of one pixel takes as long as its weights come, or as a machine needs for a step."""
    check_rate(dense(rng.integers(-8, 8, (1024, 1024)), pixels=1), NpuConfig.preset(macs, purpose), 0, 0.65)


@pytest.mark.parametrize("fanin", [4, 16])
def test_sparse_fully_connected_layers(fanin: int, rng: np.random.Generator) -> None:
    weights = rng.integers(1, 8, (512, 4096))       # long sums, so that parameters are few beside weights
    weights[:, np.arange(4096) % 4 > 0] = 0
    plain = NpuConfig.preset(256, select_fanin=fanin)
    check_rate(dense(weights, pixels=1), plain, plain.index_beats, 0.75)


def check_rate(graph: Graph, plain: NpuConfig, indices: int, at_most: float) -> None:
    with_int4, without = (estimate(config, compile_graph(graph, config)[0].code).cycles
                          for config in (replace(plain, int4=1), plain))
    paces = [max(beats + indices, ComputeEngineTiming.min_step(plain))
             for beats in (plain.weight_beats // 2, plain.weight_beats)]
    assert with_int4 / without == pytest.approx(paces[0] / paces[1], rel=0.02)
    assert with_int4 < at_most * without


@pytest.mark.parametrize("name", CONFIGS)
def test_random_layers(name: str, seed: int) -> None:
    assert sum(check(random_int4(seed + number), CONFIGS[name], seed) for number in range(6)) > 0


def test_machines_that_cannot_have_them() -> None:
    for fields, words in ((dict(winograd=2, multiplier_width=18), "be 0 where weights have 12 bits"),
                          (dict(oc_lanes=8, ic_lanes=8, nnz_lanes=1), "are a single beat"),
                          (dict(oc_lanes=32, ic_lanes=32, nnz_lanes=2), "be 0 with select_fanin=32")):
        with pytest.raises(ConfigError, match=words):
            replace(NpuConfig.preset(64), int4=1, select_fanin=0, **fields)
