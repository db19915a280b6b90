"""One channel of the Winograd transformer against the golden model: whole tiles, rows either way round, holds."""

import random

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.load.winograd.winograd_lane import Operation
from sim.golden import winograd_input
from tests.bench import bench_parameters
from tests.cores.bus_models import start

NARROW = bench_parameters()["narrow"]
LATENCY = 2 if NARROW else 1
#: Pixels of a column, and columns, that position i or j adds or subtracts: (first, second).
OPERANDS = (0, 2), (1, 2), (2, 1), (1, 3)


def bits(values, width: int) -> int:
    return sum((int(value) & (1 << width) - 1) << width * place for place, value in enumerate(values))


async def columns_of(dut, tile: np.ndarray, i: int, *, swapped: bool) -> tuple[list[int], bool]:
    """The vertical sums of a tile's four columns for row ``i``, and whether they are inverted.

    The line memory has the upper pair of rows in front, or with ``swapped`` the lower one.
    """
    first, second = OPERANDS[i]
    inverted = i != 1 and (first > second) != swapped
    found = []
    dut.vertical.value = Operation.const({"subtract": i != 1, "carry": i != 1 and not inverted}).as_bits()
    for column in range(4):
        pair = sorted((first, second), reverse=swapped)
        dut.pixels.value = bits((tile[row, column] for row in pair), 8)
        await RisingEdge(dut.clk)
        dut.pixels.value = random.getrandbits(16)
        await FallingEdge(dut.clk)
        found.append(dut.column.value.to_signed())
    return found, inverted


async def values_of(dut, columns: list[int], inverted: bool, shifts: list[int], *, stall: float) -> list[int]:
    """The four transformed values of a row of positions, held now and then."""
    found: list[int] = []
    issued = 0
    inside: list[int | None] = [None] * LATENCY          # positions in the pipeline, the latest first
    while len(found) < 4:
        hold = random.random() < stall
        dut.hold.value = int(hold)
        going = issued if issued < 4 else None
        if hold or going is None:
            dut.columns.value, dut.horizontal.value = random.getrandbits(18), random.getrandbits(2)
        else:
            dut.columns.value = bits((columns[column] for column in OPERANDS[going]), 9)
            subtract = going != 1
            dut.horizontal.value = Operation.const({"subtract": subtract, "carry": subtract != inverted}).as_bits()
        # What belongs to the columns of the step before.
        summed = inside[0]
        dut.invert.value = random.getrandbits(1) if summed is None else int(inverted)
        if NARROW:
            dut.shift.value = random.getrandbits(2) if summed is None else shifts[summed]
        await FallingEdge(dut.clk)
        if inside[-1] is not None:
            value = dut.value.value.to_signed()
            if not hold:
                found.append(value)
        await RisingEdge(dut.clk)
        if not hold:
            inside = [going, *inside[:-1]]
            issued += 1
    return found


async def check(dut, tile: np.ndarray, shifts: np.ndarray, *, stall: float,
                rows: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    expected = winograd_input(tile, shifts if NARROW else None)
    for i in rows:
        swapped = bool(random.getrandbits(1))
        columns, inverted = await columns_of(dut, tile, i, swapped=swapped)
        found = await values_of(dut, columns, inverted, shifts[4 * i:4 * i + 4].tolist(), stall=stall)
        assert found == expected[i].tolist(), (
            f"row {i}, swapped {swapped}, shifts {shifts}: {found}, not {expected[i]} of\n{tile}")


async def begin(dut) -> np.random.Generator:
    await start(dut, pixels=0, vertical=0, hold=0, columns=0, horizontal=0, invert=0)
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def random_tiles(dut, stall):
    """Tiles of any pixels, of extremes, and of few values, where most sums are near zero or half way."""
    rng = await begin(dut)
    for number in range(150):
        choices = (np.arange(-128, 128), np.array([-128, 127]), np.arange(-3, 4))[number % 3]
        await check(dut, rng.choice(choices, (4, 4)), rng.integers(0, 3, 16), stall=stall)


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not NARROW)
async def every_value(dut):
    """Each transformed value with each shift, either way round: which way halves go, and what is clipped."""
    await begin(dut)
    for total in range(-510, 511):
        # Of d[0, 0] - d[2, 0] - d[0, 2] + d[2, 2], each has a quarter.
        quarters = [(total + number) // 4 for number in range(4)]
        tile = np.zeros((4, 4), np.int64)
        tile[0, 0], tile[2, 2], tile[2, 0], tile[0, 2] = *quarters[:2], -quarters[2], -quarters[3]
        for shift in range(3):
            await check(dut, tile, np.full(16, shift), stall=0.0, rows=(0,))
