"""Pool unit against the golden model: windows of every size under idle cycles and back-pressure, rate, room, reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.numerics import POOL_WIDTH
from cores.config import NpuConfig
from sim.golden import pool_accumulate
from tests.bench import bench_parameters
from tests.cores.bus_models import start
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES, BANKS = CONFIG.ic_lanes, CONFIG.banks
#: Taps of the largest window, and of a large one.
LARGEST, LARGE = 1 << POOL_WIDTH - 8, 1 << 12
#: Cycles from a window's last tap to its result.
LATENCY = 3

#: Taps (taps, LANES) int8, and whether their maximum is wanted.
Window = tuple[np.ndarray, bool]


def result(window: Window) -> list[int]:
    taps, maximum = window
    column = np.moveaxis(taps, 0, -1)[:, :, None]
    return pool_accumulate(column, maximum, (len(taps), 1), (1, 1), (0, 0, 0, 0), 0).ravel().tolist()


def random_windows(rng: np.random.Generator, count: int) -> list[Window]:
    windows = []
    for _ in range(count):
        size = int(rng.choice([1, 1, 2, 3, 4, 9, 25]))
        values = rng.integers(-128, 128, (size, LANES), dtype=np.int8)
        if rng.integers(3) == 0:
            values = rng.choice(np.array([-128, -127, 126, 127], np.int8), (size, LANES))
        windows.append((values, bool(rng.integers(2))))
    return windows


async def run(dut, windows: list[Window], *, idle: float = 0.0, stall: float = 0.0,
              cycles: int | None = None) -> list[int]:
    """Begin windows where there is room; compare all results. Returns the cycles of the last taps and of the results.

    Breaks off after ``cycles``.
    """
    taps = [(number, place) for number, (values, _) in enumerate(windows) for place in range(len(values))]
    expected = [result(window) for window in windows]
    ended, came = [], []
    offered = None
    cycle = 0
    while len(came) < len(windows) and (cycles is None or cycle < cycles):
        # ``ready`` is looked at where a window begins; from then on its taps come as they like.
        going = bool(taps) and random.random() >= idle and (taps[0][1] > 0 or value_of(dut.ready))
        bank = random.randrange(BANKS)
        pixels = random.getrandbits(8 * LANES * BANKS)
        dut.enable.value = int(going)
        for name in ("start", "end", "maximum"):
            getattr(dut, name).value = random.getrandbits(1)
        if going:
            number, place = taps.pop(0)
            values, maximum = windows[number]
            dut.start.value, dut.end.value = int(place == 0), int(place == len(values) - 1)
            dut.maximum.value = int(maximum)
            field = 8 * LANES
            tap = int.from_bytes(values[place].tobytes(), "little")
            pixels = pixels & ~((1 << field) - 1 << field * bank) | tap << field * bank
            if place == len(values) - 1:
                ended.append(cycle)
        dut.pixel_bank.value, dut.pixels.value = bank, pixels
        willing = random.random() >= stall
        dut.output__ready.value = int(willing)
        await FallingEdge(dut.clk)
        if value_of(dut.output__valid):
            assert not value_of(dut.idle)
            word = value_of(dut.output__payload)
            assert offered is None or word == offered, "payload changed while it was waiting"
            offered = None if willing else word
            if willing:
                fields = [word >> lane * POOL_WIDTH & (1 << POOL_WIDTH) - 1 for lane in range(LANES)]
                found = [field - (field >> POOL_WIDTH - 1 << POOL_WIDTH) for field in fields]
                assert found == expected[len(came)], (
                    f"window {len(came)}: {found}, not {expected[len(came)]} of {windows[len(came)]}")
                came.append(cycle)
        else:
            assert offered is None, "an offer was withdrawn"
        await RisingEdge(dut.clk)
        cycle += 1
    dut.enable.value = 0
    return [after - before for before, after in zip(ended, came, strict=False)]


async def begin(dut) -> np.random.Generator:
    await start(dut, enable=0, start=0, end=0, maximum=0, pixel_bank=0, pixels=0, output__ready=0)
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.4], stall=[0.0, 0.4, 0.9])
async def random_windows_of_both_kinds(dut, idle, stall):
    rng = await begin(dut)
    waits = await run(dut, random_windows(rng, 100), idle=idle, stall=stall)
    if not stall:
        assert set(waits) == {LATENCY}
    await RisingEdge(dut.clk)
    await FallingEdge(dut.clk)
    assert value_of(dut.idle)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def largest_sums(dut):
    """-128 as often as a sum holds it; a few thousand times -128, and 127; maxima of the same."""
    rng = await begin(dut)
    ends = [np.full((LARGE, LANES), value, np.int8) for value in (-128, 127)]
    ends.append(rng.choice(np.array([-128, 127], np.int8), (1, LANES)).repeat(LARGE, axis=0))
    largest = np.full((LARGEST, LANES), -128, np.int8), False
    await run(dut, [largest, *((values, maximum) for values in ends for maximum in (False, True))])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def room(dut):
    """Windows of one tap, a cycle each: none is lost when nothing is taken away, and at least eight are kept."""
    rng = await begin(dut)
    begun = 0
    for _ in range(60):
        going = value_of(dut.ready)
        dut.enable.value = dut.start.value = dut.end.value = going
        dut.pixels.value = begun * ((1 << 8 * LANES * BANKS) - 1) // 255
        begun += going
        await RisingEdge(dut.clk)
    assert begun >= 8 and not value_of(dut.ready)
    dut.enable.value, dut.output__ready.value = 0, 1
    for number in range(begun):
        await FallingEdge(dut.clk)
        assert value_of(dut.output__valid)
        assert value_of(dut.output__payload) & (1 << POOL_WIDTH) - 1 == number
        await RisingEdge(dut.clk)
    await run(dut, random_windows(rng, 5))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    for cycles in (1, 2, 3, 10, 30):
        rng = await begin(dut)
        await run(dut, random_windows(rng, 20), stall=0.8, cycles=cycles)
        rng = await begin(dut)
        assert value_of(dut.idle) and value_of(dut.ready) and not value_of(dut.output__valid)
        await run(dut, random_windows(rng, 5))
