"""Memory that is handed out and given back, and how feature maps lie in it."""

import numpy as np
import pytest

from npudriver import OutOfMemoryError
from npudriver.arena import Arena
from npudriver.layout import beats, pack, unpack
from sim.signs import pack_map
from tests.sim.cases import CONFIGS
from tests.sim.programs import from_blocks, to_blocks


def test_parts_do_not_overlap(rng):
    """Random requests and returns: parts are aligned, inside, apart, and all of it can be had again."""
    arena, taken = Arena(0x1000, 0x10000), {}
    refused = 0
    for _ in range(500):
        if taken and rng.random() < 0.5:
            address = int(rng.choice(list(taken)))
            del taken[address]
            arena.free(address)
            continue
        size, alignment = int(rng.integers(1, 0x3000)), int(2 ** rng.integers(0, 13))
        try:
            address = arena.allocate(size, alignment)
        except OutOfMemoryError:
            refused += 1
            continue
        assert address % alignment == 0 and 0x1000 <= address and address + size <= 0x11000
        assert all(address + size <= other or other + length <= address for other, length in taken.items())
        taken[address] = size
        assert arena.free_bytes == 0x10000 - sum(taken.values())
    assert refused and taken
    for address in taken:
        arena.free(address)
    assert arena.allocate(0x10000, 0x1000) == 0x1000


def test_what_an_arena_refuses():
    arena = Arena(0, 4096)
    with pytest.raises(ValueError, match="nothing was allocated at 0x10"):
        arena.free(16)
    with pytest.raises(ValueError, match="size and alignment must be 1 or more, not 0 and 1"):
        arena.allocate(0, 1)
    with pytest.raises(OutOfMemoryError, match="no room for 4,097 bytes .* 4,096 of 4,096 are free"):
        arena.allocate(4097, 1)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 3, 5), (13, 4, 7), (16, 2, 9), (33, 5, 3)])
@pytest.mark.parametrize("machine", ["px2", "tn16", "tn32"])
def test_blocks(rng, shape, machine):
    """As the hand-written programs of the simulators' tests have them."""
    config = CONFIGS[machine]
    values = rng.integers(-128, 128, shape).astype(np.int8)
    data = pack(values, config.beat_bytes)
    assert data.size == beats(shape, config.beat_bytes) * config.beat_bytes
    np.testing.assert_array_equal(data.view(np.int8), to_blocks(config, values).reshape(-1))
    np.testing.assert_array_equal(from_blocks(config, data, 0, shape), values)
    np.testing.assert_array_equal(unpack(data, shape, config.beat_bytes), values)


@pytest.mark.parametrize("shape", [(1, 3, 5), (3, 6, 6), (3, 4, 7), (8, 2, 2)])
def test_interleaved(rng, shape):
    """(H, W, C), every row beginning a beat."""
    channels, height, width = shape
    values = rng.integers(-128, 128, shape).astype(np.int8)
    data = pack(values, 16, interleaved=True)
    assert data.size == beats(shape, 16, interleaved=True) * 16
    rows = data.view(np.int8).reshape(height, -1)
    assert rows.shape[1] % 16 == 0 and rows.shape[1] - channels * width < 16
    np.testing.assert_array_equal(rows[:, :channels * width], values.transpose(1, 2, 0).reshape(height, -1))
    assert not rows[:, channels * width:].any()
    np.testing.assert_array_equal(unpack(data, shape, 16, interleaved=True), values)


@pytest.mark.parametrize("shape", [(8, 2, 8), (16, 3, 5), (13, 4, 9)])
def test_signs(rng, shape):
    """As the store engine packs them."""
    values = rng.choice(np.array([-1, 1], np.int8), shape)
    blocks = to_blocks(CONFIGS["px2"], values)
    data = np.concatenate([pack_map(block).reshape(-1) for block in blocks])
    assert data.size == beats(shape, 8, signs=True) * 8
    np.testing.assert_array_equal(unpack(data, shape, 8, signs=True), values)
