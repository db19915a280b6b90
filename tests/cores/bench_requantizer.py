"""Requantizer against the golden model: every shift, extreme sources, ties, both stages."""

import random
from functools import cache

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode
from cores.arch.numerics import FIRST_BITS, MAX_SHIFT, MIN_SHIFT, POOL_WIDTH
from cores.config import NpuConfig
from cores.store.requantizer import PixelIssue, Requantizer
from cores.store.requantizer_lane import ChannelLayout
from sim.golden import requantize
from tests.bench import bench_parameters
from tests.cores.store_values import (
    pack,
    random_channels,
    random_clip,
    random_second_stage,
    random_sources,
    second_result,
)

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
ISSUE, CHANNEL = PixelIssue(CONFIG), ChannelLayout(CONFIG.acc_width)
LANES, WIDTH = CONFIG.ic_lanes, CONFIG.acc_width
PLACES = CONFIG.acc_lanes // LANES


@cache
def issue_bits(**fields: int) -> int:
    return ISSUE.const(fields).as_bits()


def instruction_bits(opcode: Opcode, fields: dict[str, int]) -> int:
    return int.from_bytes(encode(Instruction(opcode, **fields)), "little")


async def begin(dut) -> np.random.Generator:
    cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
    dut.issue.value = dut.add.value = 0
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    return np.random.default_rng(random.getrandbits(32))


async def block(dut, rng: np.random.Generator, channels, source: np.ndarray, *, clip: dict[str, int], pooled: bool,
                second: dict[str, int] | None = None) -> None:
    """One block of pixels ``source`` (lanes, pixels) with random gaps; compares every output and its cycle."""
    pixels = source.shape[1]
    wanted = requantize(source[:, :, None], *channels, *clip.values())
    residual = rng.integers(-128, 128, wanted.shape)
    if second:
        wanted = second_result(wanted, residual, second)
    latency, raster = Requantizer.latency(CONFIG, add=bool(second)), 3 if second else 1
    dut.first.value = instruction_bits(Opcode.STORE_SET, {"rows": 1, "cols": 1, **clip})
    dut.second.value = instruction_bits(Opcode.STORE_ADD, second) if second else random.getrandbits(128)
    dut.add.value = int(bool(second))
    parameters = [CHANNEL.const({"bias": int(b), "multiplier": int(m), "shift": int(s) - MIN_SHIFT}).as_bits()
                  for b, m, s in zip(*channels, strict=True)]
    dut.channels.value = pack(np.array(parameters, object), CHANNEL.size)
    due: list[int] = []
    #: Residuals by the cycle in which they are taken.
    residuals: dict[int, int] = {}
    word, done, cycle, issued = 0, 0, 0, 0
    while done < pixels:
        turn = cycle % 16 < 8 if second and second["bend"] else cycle % raster == 0
        go = issued < pixels and turn and random.random() < 0.7
        place = random.randrange(PLACES)
        dut.accumulators.value = word
        word = random.getrandbits(WIDTH * CONFIG.acc_lanes)
        dut.issue.value = issue_bits(valid=int(go), pooled=int(pooled), select=place,
                                     load=int(issued == 0 or second is not None), release=0,
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
        assert int(dut.output_valid.value) == (cycle in due)
        if int(dut.output_valid.value):
            values = np.frombuffer(int(dut.output.value).to_bytes(LANES, "little"), np.int8)
            assert (values == wanted[:, done, 0]).all(), (
                f"pixel {done}: {values}, not {wanted[:, done, 0]}; source {source[:, done]}, "
                f"channels {channels}, {clip}, {second}")
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
        second = random_second_stage(rng, products=bool(CONFIG.product)) if rng.random() < 0.5 else None
        clip = random_clip(rng, FIRST_BITS if second else 8)
        await block(dut, rng, channels, source, clip=clip, pooled=pooled, second=second)


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
            await block(dut, rng, channels, source, clip={"zero_point": 0, "low": -128, "high": 127}, pooled=False)


@cocotb.test()
async def every_zero_point(dut):
    """Each zero point with results that just reach the ends of its range."""
    rng = await begin(dut)
    # multiplier / 2**shift = 1/2, so every other source is a tie
    channels = np.zeros(LANES, np.int64), np.full(LANES, 1 << 16), np.full(LANES, 17)
    for zero_point in range(-128, 128, 5):
        source = np.arange(-560, 560)[: 1120 // LANES * LANES].reshape(-1, LANES).T
        await block(dut, rng, channels, source, clip={"zero_point": zero_point, "low": -128, "high": 127}, pooled=False)
    for low, high in ((-128, -128), (127, 127), (-1, 0), (0, 6)):
        await block(dut, rng, channels, source, clip={"zero_point": 3, "low": low, "high": high}, pooled=True)
