"""Requantizer against the golden model: every shift, extreme sources, ties, both stages."""

import random
from functools import cache

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.numerics import MAX_SHIFT, MIN_SHIFT, POOL_WIDTH
from cores.config import NpuConfig
from cores.store.chain import Chain
from cores.store.requantizer import PixelIssue, Requantizer
from cores.store.requantizer_lane import ChannelLayout
from tests.bench import bench_parameters
from tests.cores.pins import value_of
from tests.cores.store_chain import Operations, chain_of, chain_result, kept_chain, random_chain, second_stage
from tests.cores.store_values import pack, random_channels, random_sources

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
ISSUE, CHANNEL, CHAIN = PixelIssue(CONFIG), ChannelLayout(CONFIG.acc_width), Chain(CONFIG)
LANES, WIDTH = CONFIG.ic_lanes, CONFIG.acc_width
PLACES = CONFIG.acc_lanes // LANES


@cache
def issue_bits(**fields: int) -> int:
    return ISSUE.const(fields).as_bits()


def chain_bits(chain: Operations) -> int:
    """As the engine keeps it; where it has no second stage, there is what an earlier one left."""
    bits = CHAIN.const(kept_chain(CONFIG, chain)).as_bits()
    if second_stage(chain) is None:
        second = CHAIN["second"]
        bits |= random.getrandbits(second.width) << second.offset
    return bits


def clip(zero_point: int = 0, low: int = -128, high: int = 127) -> Operations:
    """A chain of a first stage alone."""
    return chain_of(Instruction(Opcode.STORE_REQUANT, zero_point=zero_point, low=low, high=high))


async def begin(dut) -> np.random.Generator:
    cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
    dut.issue.value = dut.chain.value = 0
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    return np.random.default_rng(random.getrandbits(32))


async def block(dut, rng: np.random.Generator, channels, source: np.ndarray, *, chain: Operations,
                pooled: bool) -> None:
    """One block of pixels ``source`` (lanes, pixels) with random gaps; compares every output and its cycle."""
    pixels = source.shape[1]
    residual = rng.integers(-128, 128, (*source.shape, 1))
    wanted = chain_result(chain, source[:, :, None], channels, residual)
    adds = second_stage(chain) is not None
    latency, raster = Requantizer.latency(CONFIG, add=adds), CONFIG.residual_cycles if adds else 1
    dut.chain.value = chain_bits(chain)
    parameters = [CHANNEL.const({"bias": int(b), "multiplier": int(m), "shift": int(s) - MIN_SHIFT}).as_bits()
                  for b, m, s in zip(*channels, strict=True)]
    dut.channels.value = pack(np.array(parameters, object), CHANNEL.size)
    due: list[int] = []
    #: Residuals by the cycle in which they are taken.
    residuals: dict[int, int] = {}
    word, done, cycle, issued = 0, 0, 0, 0
    while done < pixels:
        turn = cycle % raster == 0
        if Opcode.STORE_LEAKY in chain:
            turn = CONFIG.own_stage or cycle % 16 < 8
        go = issued < pixels and turn and random.random() < 0.7
        place = random.randrange(PLACES)
        dut.accumulators.value = word
        word = random.getrandbits(WIDTH * CONFIG.acc_lanes)
        dut.issue.value = issue_bits(valid=int(go), pooled=int(pooled), select=place,
                                     load=int(issued == 0 or (adds and not CONFIG.own_stage)), release=0,
                                     **({"first": 1, "negate": 1} if CONFIG.winograd else {}))
        dut.pooled.value = random.getrandbits(POOL_WIDTH * LANES)
        if go:
            if pooled:
                dut.pooled.value = pack(source[:, issued], POOL_WIDTH)
            else:
                field = WIDTH * LANES
                word &= ~((1 << field) - 1 << field * place)
                word |= pack(source[:, issued], WIDTH) << field * place
            residuals[cycle + Requantizer.RESIDUAL] = pack(residual[:, issued, 0], 8)
            due.append(cycle + latency)
            issued += 1
        dut.residual.value = residuals.pop(cycle, random.getrandbits(8 * LANES))
        await FallingEdge(dut.clk)
        assert value_of(dut.output_valid) == (cycle in due)
        if value_of(dut.output_valid):
            values = np.frombuffer(value_of(dut.output).to_bytes(LANES, "little"), np.int8)
            assert (values == wanted[:, done, 0]).all(), (
                f"pixel {done}: {values}, not {wanted[:, done, 0]}; source {source[:, done]}, "
                f"channels {channels}, {chain}")
            done += 1
        await RisingEdge(dut.clk)
        cycle += 1


@cocotb.test()
async def random_blocks(dut):
    """Blocks of random and extreme numbers, from accumulators and the pool unit, with and without add."""
    rng = await begin(dut)
    for _ in range(40):
        channels = random_channels(rng, LANES, WIDTH)
        pooled, pixels = bool(rng.random() < 0.4), int(rng.integers(1, 60))
        source = random_sources(rng, (LANES, pixels), channels, POOL_WIDTH if pooled else WIDTH, WIDTH)
        chain = random_chain(CONFIG, rng, add=bool(rng.random() < 0.5))
        await block(dut, rng, channels, source, chain=chain, pooled=pooled)


@cocotb.test()
async def every_shift(dut):
    """Around every power of two, every shift: what is kept, what saturates, which way halves go."""
    rng = await begin(dut)
    limit = 1 << WIDTH - 1
    edges = [0, *(1 << bit for bit in range(WIDTH - 1)), limit - 1]
    values = np.unique([sign * edge + near for edge in edges for sign in (1, -1) for near in (-1, 0, 1)])
    values = np.append(values[(values >= -limit) & (values < limit)], -limit)
    for start in range(MIN_SHIFT, MAX_SHIFT + 1, LANES):
        shift = np.minimum(start + np.arange(LANES), MAX_SHIFT)
        for multiplier in (1 << 16, (1 << 17) - 1):
            channels = np.zeros(LANES, np.int64), np.full(LANES, multiplier), shift
            source = np.tile(values, (LANES, 1))
            await block(dut, rng, channels, source, chain=clip(), pooled=False)


@cocotb.test()
async def every_zero_point(dut):
    """Each zero point with results that just reach the ends of its range."""
    rng = await begin(dut)
    # multiplier / 2**shift = 1/2, so every other source is a tie
    channels = np.zeros(LANES, np.int64), np.full(LANES, 1 << 16), np.full(LANES, 17)
    for zero_point in range(-128, 128, 5):
        source = np.arange(-560, 560)[: 1120 // LANES * LANES].reshape(-1, LANES).T
        await block(dut, rng, channels, source, chain=clip(zero_point), pooled=False)
    for low, high in ((-128, -128), (127, 127), (-1, 0), (0, 6)):
        await block(dut, rng, channels, source, chain=clip(3, low, high), pooled=True)
