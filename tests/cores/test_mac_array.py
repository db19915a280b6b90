"""Multiplier array against the golden convolution; with ``depthwise``, against what a lane's pixel of a read is."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.compute.mac_array import MacArray
from cores.config import NpuConfig
from sim.golden import conv2d_accumulate
from tests.cores.mac_values import MacStep, dense, random_integers, random_step
from tests.cores.simulation import Bench, random_bits
from tests.cores.store_values import pack

CONFIGS = {
    "packed": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2),
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, gather=1, binary_rows=2),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=2),
    "two_banks": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1),
    "own_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1),
    "own_taps_four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, select_fanin=4, depthwise=1),
    "two_own_taps": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, select_fanin=4, depthwise=1, multiplier_width=18),
}

#: ``source`` of a word: one of a read's words, spread, or a window of either kind.
SOURCES = {
    "part0": {}, "part1": {"part": 1}, "spread": {"spread": 1}, "window": {"window": 1, "spread": 1},
    "alternate": {"window": 1, "alternate": 1},
}


def step_of(config: NpuConfig, rng: np.random.Generator, names: list[str]) -> tuple[MacStep, list[str]]:
    """A random step, and the source of each of its words: with taps of their own channel, all or none are windows."""
    step = random_step(config, rng, config.oc_lanes)
    if not config.depthwise:
        return step, ["part0"] * step.words
    if config.own_taps:
        windows = bool(rng.integers(2))
        names = [name for name in names if (name == "window") == windows]
        if windows:
            step.weights[:, config.own_taps:] = 0
    return step, [str(name) for name in rng.choice(names, step.words)]


def sources_of(config: NpuConfig, reads: np.ndarray, source: str, group: int) -> np.ndarray:
    """Pixels (nnz_lanes, ic_lanes, px) of a group's lanes; ``reads`` (columns, ic_lanes): what they reach over.

    The newest read is the last ``banks`` columns.
    """
    px, lanes = config.pixel_lanes, np.arange(config.nnz_lanes)[:, None]
    pixels = np.arange(px)
    newest = len(reads) - config.banks
    columns = {
        "part0": newest + pixels + 0 * lanes,
        "part1": newest + (px + pixels) % config.banks + 0 * lanes,
        "spread": newest + px * group + pixels + 0 * lanes,
        "window": np.minimum(px * group + pixels + lanes, len(reads) - 1),
        "alternate": 2 * pixels + lanes,
    }[source]
    return reads[columns].transpose(0, 2, 1)


def expected_sums(config: NpuConfig, step: MacStep, reads: np.ndarray, source: str) -> np.ndarray:
    """Sums (px, oc_lanes) of a word."""
    weights = dense(config, step)
    if config.own_taps and source == "window":      # of their own channel, whatever the indices
        outputs = np.arange(config.oc_lanes)
        weights = np.zeros_like(weights)
        weights[outputs, :, outputs % config.ic_lanes] = step.weights
    if not config.depthwise:
        x = reads[-config.banks:].T[:, None, :]
        return conv2d_accumulate(x, weights.sum(axis=1)[..., None, None], False, (1, 1), (0,) * 4, 0)[:, 0].T
    groups = np.arange(config.oc_lanes) // config.ic_lanes % config.oc_groups
    pixels = np.stack([sources_of(config, reads, source, group) for group in range(config.oc_groups)])
    return np.einsum("ojc,ojcp->po", weights, pixels[groups])


@pytest.mark.parametrize("name", CONFIGS)
def test_mac_array(name, rng):
    """A read a cycle, from any bank on, and of each a word; windows begin as soon as they have their reads."""
    config = CONFIGS[name]
    array, latency, align = MacArray(config), MacArray.latency(config), MacArray.align(config)
    names = [name for name in SOURCES if (config.oc_groups > 1 or name != "part1")
             and (config.gathered_taps or name != "alternate")]
    # Reads before the newest that a window reaches back over.
    back = config.window_reads - 1
    lanes, bits = config.oc_lanes * config.nnz_lanes, config.activation_bits
    fields = array.source.shape().members if config.depthwise else {}
    bench = Bench(array)

    async def stream(ctx, count, *, cycles=None):
        steps = [step_of(config, rng, names) for _ in range(count)]
        of_word = [step for step, sources in steps for _ in sources]
        reads = [random_integers(rng, (config.banks, config.ic_lanes), bits) for _ in range(back + len(of_word))]
        of_word = [None] * back + of_word
        kinds = ["part0"] * back + [source for _, sources in steps for source in sources]
        turns = rng.integers(0, config.banks, len(reads))
        for cycle in range(cycles or len(reads) + latency):
            reading = reads[cycle] if cycle < len(reads) else random_integers(rng, reads[0].shape, bits)
            turn = int(turns[cycle]) if cycle < len(reads) else 0
            for pixel in range(config.banks):
                ctx.set(Value.cast(array.pixels[(pixel + turn) % config.banks]), pack(reading[pixel], bits))
            ctx.set(array.turn, turn)
            if config.depthwise:
                late = cycle - 1
                kind = SOURCES[kinds[late]] if 0 <= late < len(reads) else {"part": int(rng.integers(2))}
                ctx.set(array.source, {name: kind.get(name, 0) for name in fields})

            def begins(word):
                """The step whose first word this is."""
                known = back <= word < len(reads)
                return of_word[word] if known and of_word[word] is not of_word[word - 1] else None
            indexed, weighted = begins(cycle - align + 1), begins(cycle - align)
            if config.own_taps:
                windows = kinds[cycle - align + 1] == "window" if indexed else rng.integers(2)
                ctx.set(array.window, int(windows))
            ctx.set(Value.cast(array.indices), pack(indexed.indices.ravel(), config.index_bits) if indexed else
                    random_bits(rng, lanes * config.index_bits))
            ctx.set(Value.cast(array.weights), pack(weighted.weights.ravel(), config.weight_bits) if weighted else
                    random_bits(rng, lanes * config.weight_bits))
            ctx.set(array.load_indices, indexed is not None)
            ctx.set(array.load_weights, weighted is not None and not weighted.clear)
            if config.binary_rows:
                ctx.set(array.clear_weights, weighted is not None and weighted.clear)
            done = cycle - latency
            if back <= done < len(reads):
                carries = ctx.get(array.carries)
                found = np.array([[ctx.get(array.sums[pixel * config.oc_lanes + oc]) + (carries >> oc & pixel)
                                   for oc in range(config.oc_lanes)] for pixel in range(config.pixel_lanes)])
                reached = np.concatenate(reads[done - back:done + 1])
                wanted = expected_sums(config, of_word[done], reached, kinds[done])
                assert (found == wanted).all(), f"word {done}, {kinds[done]}: {found.tolist()}, not {wanted.tolist()}"
            await ctx.tick()

    async def compare(ctx):
        await stream(ctx, 10, cycles=7)
        await bench.reset(ctx)
        await stream(ctx, 40)

    bench.run(compare)
