"""Packed weights against a reader that follows docs/architecture.md literally."""

import numpy as np
import pytest

from cores.arch.isa import StepKind
from cores.arch.numerics import MIN_SHIFT
from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.ir.tensor import Requantize
from gen.lowering.placed import pack_parameters
from gen.mapping.pack import pack, slices_of
from gen.passes.prune import prune, prune_weights
from gen.tiling.weights import PackedWeights
from tests.random_layers import random_graph

CONFIGS = [
    NpuConfig.preset(256),
    NpuConfig.preset(16),
    NpuConfig.preset(64),
    NpuConfig.preset(512, select_fanin=8),
    NpuConfig.preset(256, select_fanin=4),
    NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, select_fanin=16),
    NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=8, select_fanin=1),
]


def conv(weights: np.ndarray, depthwise: bool = False) -> Conv:
    channels = len(weights)
    ones = np.ones(channels, np.int64)
    return Conv("layer", "x", "y", weights=weights.astype(np.int16), depthwise=depthwise,
                requantize=Requantize(ones, ones, 16 * ones, 0, -128, 127))


def unpack(packed: PackedWeights, layer: Conv, config: NpuConfig) -> np.ndarray:
    """Weights (OC, channels of whole blocks, taps) from the beats, one byte and index at a time."""
    oc, ic, kernel_h, kernel_w = layer.weights.shape
    channels = oc if layer.depthwise else ic
    taps = kernel_h * kernel_w
    tn, dn, tm = config.ic_lanes, config.nnz_lanes, config.oc_lanes
    out = np.zeros((len(packed.tiles) * tm, -(-channels // tn) * tn, taps), np.int64)
    for tile, slices in enumerate(packed.tiles):
        for item in slices:
            beats = packed.data[item.offset:]
            for block in range(item.block, item.block + item.blocks):
                for tap in range(taps):
                    for group in range(item.groups):
                        step, beats = beats[:item.step_beats(config)], beats[item.step_beats(config):]
                        indices, weights = step[:-config.weight_beats], step[-config.weight_beats:]
                        weights, bits = weights.reshape(-1).view(np.int8), int.from_bytes(indices.tobytes(), "little")
                        for i in range(tm):
                            for j in range(dn):
                                position = i * dn + j
                                index = bits >> position * config.index_bits & (1 << config.index_bits) - 1
                                channel = j * tn // dn + group
                                if item.kind == StepKind.INDEXED:
                                    channel = config.window_base(j) + index
                                out[tile * tm + i, block * tn + channel, tap] += weights[position]
    return out


def check(layer: Conv, config: NpuConfig) -> PackedWeights:
    tiles = slices_of(layer, config)
    packed = PackedWeights(pack(layer, tiles, config), tiles)
    got = unpack(packed, layer, config)
    oc, ic = layer.weights.shape[:2]
    expected = np.zeros_like(got)
    flat = layer.weights.reshape(oc, ic, -1)
    if layer.depthwise:
        expected[np.arange(oc), np.arange(oc)] = flat[:, 0]
    else:
        expected[:oc, :ic] = flat
    assert np.array_equal(got, expected)
    return packed


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.oc_lanes}x{c.ic_lanes}x{c.nnz_lanes}of{c.select_fanin}")
@pytest.mark.parametrize("limit", [127, 255])
@pytest.mark.parametrize("density", [1.0, 0.3, 0.05])
def test_every_weight_arrives_once(config, limit, density, rng):
    shape = (int(rng.integers(1, 70)), int(rng.integers(1, 50)), int(rng.integers(1, 3)), int(rng.integers(1, 4)))
    weights = rng.integers(-limit, limit + 1, shape) * (rng.random(shape) < density)
    check(conv(weights), config)


@pytest.mark.parametrize("config", CONFIGS[:4], ids=lambda c: f"{c.macs}")
def test_depthwise_is_one_step_a_tap(config, rng):
    packed = check(conv(rng.integers(-127, 128, (45, 1, 3, 3)), depthwise=True), config)
    assert all(item.groups == 1 and item.kind == StepKind.INDEXED for tile in packed.tiles for item in tile)


def test_dense_blocks_have_no_indices(rng):
    config = NpuConfig.preset(256)
    packed = check(conv(rng.integers(1, 100, (32, 32, 3, 3))), config)
    assert [(p.blocks, p.groups, p.kind) for p in packed.tiles[0]] == [(2, 4, StepKind.DENSE)]
    assert len(packed.data) == 2 * 9 * 4 * config.weight_beats


def test_few_channels_take_few_steps(rng):
    packed = check(conv(rng.integers(1, 100, (32, 19, 3, 3))), NpuConfig.preset(256))
    assert [(p.block, p.blocks, p.groups, p.kind) for p in packed.tiles[0]] == [
        (0, 1, 4, StepKind.DENSE), (1, 1, 1, StepKind.INDEXED)]


def test_blocks_of_zeros_take_no_step(rng):
    weights = rng.integers(1, 100, (32, 48, 1, 1))
    weights[:, 16:32] = 0
    packed = check(conv(weights), NpuConfig.preset(256))
    assert [(p.block, p.blocks) for p in packed.tiles[0]] == [(0, 1), (2, 1)]


def test_a_layer_of_zeros_still_clears_its_sums():
    packed = check(conv(np.zeros((5, 40, 1, 1))), NpuConfig.preset(256))
    assert [(p.block, p.blocks, p.groups) for p in packed.tiles[0]] == [(0, 1, 1)]


def test_wide_weights_add_a_pass_where_they_are(rng):
    weights = rng.integers(1, 100, (32, 48, 1, 1))
    weights[3, 20], weights[3, 21] = 255, -255
    packed = check(conv(weights), NpuConfig.preset(256))
    assert [(p.block, p.blocks, p.groups, p.kind) for p in packed.tiles[0]] == [
        (0, 3, 4, StepKind.DENSE), (1, 1, 1, StepKind.INDEXED)]


def test_parameters():
    config = NpuConfig.preset(256)
    values = Requantize(np.array([-5, 7]), np.array([3, 0x1FFFF]), np.array([12, 43]), 0, -128, 127)
    packed = pack_parameters(values, config)
    assert packed.shape == (8, 16)
    words = packed.reshape(-1).view("<u4").reshape(16, 2)
    assert words[0].tolist() == [(1 << 32) - 5, 12 << 24 | 3]
    assert words[1].tolist() == [7, 43 << 24 | 0x1FFFF]
    assert words[2:].tolist() == [[0, MIN_SHIFT << 24]] * 14


def pruned_weights(weights: np.ndarray, config: NpuConfig, density: float) -> np.ndarray:
    return prune_weights(weights.astype(np.int16), max(1, round(density * config.groups_dense)), config)


def test_pruning_keeps_the_largest_of_each_block(rng):
    weights = rng.permutation(np.arange(1, 32 * 16 * 9 + 1) % 251 - 125).reshape(32, 16, 3, 3)
    pruned = pruned_weights(weights, NpuConfig.preset(256), 0.25)
    for oc in range(32):
        for tap in np.ndindex(3, 3):
            before, after = np.abs(weights[oc, :, *tap]), np.abs(pruned[oc, :, *tap])
            assert np.count_nonzero(after) <= 4
            assert np.array_equal(np.sort(after)[-4:], np.sort(before)[-4:])


def test_pruning_leaves_small_blocks_alone(rng):
    weights = rng.integers(1, 100, (8, 20, 1, 1))
    pruned = pruned_weights(weights, NpuConfig.preset(256), 0.25)
    assert np.array_equal(pruned[:, 16:], weights[:, 16:])
    assert (np.count_nonzero(pruned[:, :16, 0, 0], axis=1) == 4).all()


def test_pruned_layers_pack_into_single_steps(rng):
    config = NpuConfig.preset(256)
    weights = pruned_weights(rng.integers(1, 127, (64, 64, 3, 3)), config, 0.25)
    packed = check(conv(weights), config)
    assert {(p.blocks, p.groups, p.kind) for tile in packed.tiles for p in tile} == {(4, 1, StepKind.INDEXED)}


@pytest.mark.parametrize("fanin", [4, 8])
def test_pruning_respects_windows(fanin, rng):
    config = NpuConfig.preset(256, select_fanin=fanin)
    weights = pruned_weights(rng.integers(1, 127, (32, 32, 1, 1)), config, 0.5)
    packed = check(conv(weights), config)
    assert {p.groups for p in packed.tiles[0]} == {2}


def test_pruning_moves_the_bias_along():
    for seed in range(20):
        graph = random_graph(seed, layers=2)
        pruned = prune(graph, NpuConfig.preset(256), 0.25)
        for old, new in zip(graph.layers, pruned.layers, strict=True):
            if old.op != "conv":
                assert new is old
                continue
            zero_point = graph.tensors[old.input].zero_point
            before = old.requantize.bias + zero_point * old.weights.sum(axis=(1, 2, 3), dtype=np.int64)
            after = new.requantize.bias + zero_point * new.weights.sum(axis=(1, 2, 3), dtype=np.int64)
            assert np.array_equal(before, after)
        assert pruned.layers[0] is graph.layers[0]


@pytest.mark.parametrize("density", [0, -1, 1.5])
def test_density_is_checked(density):
    with pytest.raises(ValueError, match="density must be above 0 and at most 1"):
        prune(random_graph(1), NpuConfig.preset(256), density)
