"""Loads of a machine with a binary unit: signs of int8 blocks, eight to an entry, and flags of padding."""

import random

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from cores.arch.instruction import Instruction
from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from sim.gather import gather_box
from sim.signs import sign_runs
from sim.storage import entry_places
from tests.bench import bench_parameters
from tests.cores.bench_gather import GatherProgram, random_gather
from tests.cores.load_surroundings import REGION, Surroundings
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES = CONFIG.beat_bytes
#: First bytes of an entry's halves.
HALVES = {0: 0, CONFIG.sign_bytes: 1}

#: Bank, entry, byte of it, value, and with the first byte of a half its flag.
Write = tuple[int, int, int, int, bool | None]


class SignProgram(GatherProgram):
    """``writes`` are single bytes; what boxes of pixels and gathered runs give."""

    def _entry(self, bank: int, entry: int, place: int, values: np.ndarray, zero: np.ndarray) -> None:
        self.writes += [(bank, entry, place + byte, int(value) & 255,
                         bool(zero[HALVES[place + byte]]) if place + byte in HALVES else None)
                        for byte, value in enumerate(values)]

    def _box(self, geometry: Instruction, act: Instruction) -> None:
        data = self._data(geometry, act)
        if self.gather is not None:
            runs = gather_box(CONFIG, geometry, self.gather, act, data)
            for block, row, output in np.ndindex(runs.entries.shape):
                zero = runs.padding[block, row, output] & bool(geometry["pad_zero"])
                self._entry(int(runs.banks[output]), int(runs.entries[block, row, output]), int(runs.places[block]),
                            runs.values[block, row, output, :runs.widths[block]], zero)
            return
        pads = [(0, 0), (act["pad_top"], act["pad_bottom"]), (geometry["pad_left"], geometry["pad_right"])]
        padding = np.pad(np.zeros(data.shape[:3], bool), pads, constant_values=True)
        pixels = np.pad(data, [*pads, (0, 0)], constant_values=geometry["pad_value"])
        if geometry["form"] != EntryForm.BYTES:
            pixels, padding = sign_runs(pixels, padding, pair=geometry["form"] == EntryForm.SIGN_PAIRS)
        else:
            padding = np.stack([padding] * 2, axis=-1)
        length = pixels.shape[3]
        banks, entries = entry_places(CONFIG.banks, geometry["stride"], 0, pixels.shape[2])
        for block, row, column in np.ndindex(padding.shape[:3]):
            number, place = divmod(block * length, LANES)
            entry = act["buf_base"] + number * geometry["buf_block_pitch"] + row * geometry["buf_row_pitch"]
            self._entry(int(banks[column]), entry + int(entries[column]), place, pixels[block, row, column],
                        padding[block, row, column] & bool(geometry["pad_zero"]))


class SignSurroundings(Surroundings):
    """Takes writes apart into bytes."""

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            enable = value_of(dut.write__enable)
            if enable:
                mask, value, entry, zero = (value_of(port) for port in (
                    dut.write__bytes, dut.write__data, dut.write__address, dut.write__zero))
                for bank in range(CONFIG.banks):
                    number = bank % CONFIG.write_lanes
                    beat = value >> number * CONFIG.beat_bits
                    self.writes += [(bank, entry, lane, beat >> 8 * lane & 255,
                                     bool(zero >> 2 * number + HALVES[lane] & 1) if lane in HALVES else None)
                                    for lane in range(LANES) if enable >> bank & mask >> lane & 1]
                self.write_cycles.append(self.cycle)
            if value_of(dut.post_compute):
                self.posts.append((len(self.writes), *map(len, self.rings.values())))
            self.note_error()


async def run(dut, program: SignProgram, **options) -> SignSurroundings:
    around = SignSurroundings(dut, program, **options)
    await around.begin()
    expected = [program.writes, program.posts]
    await around.end(lambda: around.errors or all(
        len(seen) >= len(wanted) for seen, wanted in zip([around.writes, around.posts], expected, strict=True)))
    around.check()
    assert value_of(dut.idle)
    return around


def random_box(program: SignProgram) -> None:
    """LOAD_SET and a LOAD_ACT of up to two entries of signs or a few of pixels."""
    form = random.choice([EntryForm.BYTES, EntryForm.SIGNS, EntryForm.SIGN_PAIRS])
    sign, pair = form != EntryForm.BYTES, form == EntryForm.SIGN_PAIRS
    cols, rows, blocks = random.randint(1, 12), random.randint(0, 4), random.randint(1, 16 if sign else 3)
    left, right, top, bottom = (random.choice([0, 0, 1, 3]) for _ in range(4))
    if rows + top + bottom == 0:
        rows = 1
    cols += pair
    stride = random.randint(1, 4)
    _, entries = entry_places(CONFIG.banks, stride, 0, left + cols + right)
    row_pitch = int(entries.max()) + 1 + random.randint(0, 2)
    block_pitch = row_pitch * (top + rows + bottom)
    room = CONFIG.input_depth - (-(-blocks // (4 if pair else 8)) if sign else blocks) * block_pitch
    assert room >= 0
    program.add(Opcode.LOAD_SET, cols=cols, pad_left=left, pad_right=right, pad_value=random.randint(-128, 127),
                stride=stride, buf_row_pitch=row_pitch, buf_block_pitch=block_pitch, form=form,
                pad_zero=random.randrange(2), row_pitch=random.randint(0, 60), block_pitch=random.randint(0, 200))
    program.add(Opcode.LOAD_ACT, offset=random.randrange(REGION // 8), buf_base=random.choice([0, room]),
                blocks=blocks, rows=rows, pad_top=top, pad_bottom=bottom, wait_compute=random.randrange(2),
                post_compute=random.randrange(2))


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.4])
async def signs_and_flags(dut, stall):
    """Boxes of signs and of pixels, with gathered runs between them."""
    for _ in range(6):
        program = SignProgram()
        for _ in range(12):
            if random.random() < 0.7:
                random_box(program)
            else:
                random_gather(program, form=random.choice(list(EntryForm)), pad_zero=random.randrange(2))
        await run(dut, program, stall=stall)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_pixel_a_cycle(dut):
    """Signs take no longer than the pixels do, and those of pairs of pixels no longer than either."""
    for form in (EntryForm.SIGNS, EntryForm.SIGN_PAIRS):
        program = SignProgram()
        program.add(Opcode.LOAD_SET, cols=20, row_pitch=20, block_pitch=80, stride=1, buf_row_pitch=20, form=form,
                    pad_left=1)
        program.add(Opcode.LOAD_ACT, rows=4, blocks=8)
        around = await run(dut, program)
        assert around.write_cycles[-1] - around.write_cycles[1] + 2 <= 4 * 8 * 21
