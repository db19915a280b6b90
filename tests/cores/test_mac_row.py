"""Row of multipliers against sums of products: packed and separate pixels, new weights at any time."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.compute.mac_array import MacRow
from cores.config import NpuConfig
from tests.cores.mac_values import dense, random_integers, random_step
from tests.cores.simulation import Bench, random_bits
from tests.cores.store_values import pack

#: Pixels alone; packed, and separated before the adder tree, in it, and after it; apart; few channels to select from.
CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1),
    "one_lane": NpuConfig.preset(16),
    "separated_before": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, multiplier_width=25),
    "separated_within": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8),
    "separated_behind": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4),
    "apart": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, multiplier_width=18),
    "few_channels": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, select_fanin=2),
    "wired": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, winograd=2),
    "binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, gather=1, binary_rows=2),
    "depthwise": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1),
    "own_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1),
    "few_channels_own_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=4, select_fanin=4, depthwise=1),
}


def pack_channels(config: NpuConfig, channels: np.ndarray) -> int:
    """Pixels (..., px) as a row takes them: two in one number of 17 bits if they share a multiplier, or singly."""
    if config.pixel_lanes == 2 and config.multiplier_width > 18:
        return pack((channels @ [1, 256]).ravel(), 17)
    return pack(channels.ravel(), config.activation_bits)


@pytest.mark.parametrize("name", CONFIGS)
def test_mac_row(name, rng):
    """A word a cycle; what the row does not look at is noise. A reset in mid-stream disturbs nothing later."""
    config = CONFIGS[name]
    row, latency = MacRow(config), MacRow.latency(config)
    lanes, px, taps = config.nnz_lanes, config.pixel_lanes, config.own_taps
    bench = Bench(row)

    async def stream(ctx, count, *, cycles=None):
        steps = [random_step(config, rng, 1) for _ in range(count)]
        # Of all channels of each lane's tap; of a block's channels and the row's own taps; or of a block's channels.
        shape = (lanes, config.ic_lanes, px) if config.gathered_taps else (config.ic_lanes + taps, px)
        windows = {id(step): bool(taps and rng.integers(2)) for step in steps}
        words = [random_integers(rng, shape, config.activation_bits) for step in steps for _ in range(step.words)]
        starts, expected = {}, []
        for step in steps:
            first = len(expected)
            starts[first] = step
            for word in words[first:first + step.words]:
                block = word[..., :config.ic_lanes, :]
                lane_words = np.broadcast_to(block, (lanes, *block.shape[-2:]))
                products = np.einsum("jc,jcp->jp", dense(config, step)[0], lane_words)
                if windows[id(step)]:
                    products[:taps] = step.weights[0, :taps, None] * word[config.ic_lanes:]
                expected.append(products.sum(axis=0))
        # Of a step, the indices come in the cycle in front of its first word's, the weights with it.
        for cycle in range(-1, cycles or len(words) + latency):
            indexed, weighted = starts.get(cycle + 1), starts.get(cycle)
            ctx.set(row.load_indices, indexed is not None)
            if taps:
                ctx.set(row.window, int(windows[id(indexed)] if indexed else rng.integers(2)))
            for lane in range(lanes):
                ctx.set(row.indices[lane], int(indexed.indices[0, lane]) if indexed else
                        random_bits(rng, config.index_bits))
                ctx.set(row.weights[lane], int(weighted.weights[0, lane]) if weighted else 0)
            ctx.set(row.load_weights, weighted is not None and not weighted.clear)
            if config.binary_rows:
                ctx.set(row.clear_weights, weighted is not None and weighted.clear)
            channels = Value.cast(row.channels)
            ctx.set(channels, pack_channels(config, words[cycle]) if 0 <= cycle < len(words) else
                    random_bits(rng, len(channels)))
            done = cycle - latency
            if done >= 0:
                carry = ctx.get(row.carry)
                found = [ctx.get(row.sums[pixel]) + carry * (pixel == 1) for pixel in range(px)]
                assert found == expected[done].tolist(), f"word {done}"
            await ctx.tick()

    async def compare(ctx):
        await stream(ctx, 20, cycles=9)
        await bench.reset(ctx)
        await stream(ctx, 60)

    bench.run(compare)
