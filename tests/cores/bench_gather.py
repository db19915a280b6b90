"""Gathered loads of the load engine: random runs, places, pads and blocks against the golden model; rate, errors."""

import random

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from sim.gather import gather_box
from tests.bench import bench_parameters
from tests.cores.load_surroundings import REGION, Program, Surroundings, content, fails
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
LANES = CONFIG.beat_bytes


class GatherProgram(Program):
    """Also knows LOAD_GATHER; ``writes`` are single bytes then: bank, entry, byte of it, value."""

    def __init__(self) -> None:
        super().__init__()
        self.gather: Instruction | None = None

    def add(self, opcode: Opcode, **fields: int) -> None:
        if opcode == Opcode.LOAD_SET:
            self.gather = None
        super().add(opcode, **fields)
        if opcode == Opcode.LOAD_GATHER:
            self.gather = self.instructions[-1]

    def _data(self, geometry: Instruction, act: Instruction) -> np.ndarray:
        """The bytes of a box, int8 (blocks, rows, cols, lanes)."""
        data = np.zeros((act["blocks"], act["rows"], geometry["cols"], LANES), np.uint8)
        for block, row, col in np.ndindex(data.shape[:3]):
            beat = act["offset"] + block * geometry["block_pitch"] + row * geometry["row_pitch"] + col
            data[block, row, col] = list(content(beat).to_bytes(LANES, "little"))
        return data.view(np.int8)

    def _box(self, geometry: Instruction, act: Instruction) -> None:
        if self.gather is None:
            first = len(self.writes)
            super()._box(geometry, act)
            self.writes[first:] = [(bank, entry, lane, beat >> 8 * lane & 255)
                                   for bank, entry, beat in self.writes[first:] for lane in range(LANES)]
            return
        runs = gather_box(CONFIG, geometry, self.gather, act, self._data(geometry, act))
        for block, row, output in np.ndindex(runs.entries.shape):
            for byte in range(runs.widths[block]):
                self.writes.append((int(runs.banks[output]), int(runs.entries[block, row, output]),
                                    int(runs.places[block]) + byte, int(runs.values[block, row, output, byte]) & 255))


class GatherSurroundings(Surroundings):
    """Takes writes apart into bytes."""

    async def _watch(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            enable = value_of(dut.write__enable)
            if enable:
                mask, value, entry = (value_of(port) for port in (dut.write__bytes, dut.write__data,
                                                                   dut.write__address))
                assert enable.bit_count() <= CONFIG.write_lanes
                for bank in range(CONFIG.banks):
                    beat = value >> bank % CONFIG.write_lanes * CONFIG.beat_bits
                    self.writes += [(bank, entry, lane, beat >> 8 * lane & 255) for lane in range(LANES)
                                    if enable >> bank & mask >> lane & 1]
                self.write_cycles.append(self.cycle)
            if value_of(dut.post_compute):
                self.posts.append((len(self.writes), *map(len, self.rings.values())))
            self.note_error()


async def run(dut, program: GatherProgram, **options) -> GatherSurroundings:
    around = GatherSurroundings(dut, program, **options)
    await around.begin()
    expected = [program.writes, program.posts, *program.rings.values()]
    found = [around.writes, around.posts, *around.rings.values()]
    await around.end(lambda: around.errors or all(
        len(seen) >= len(wanted) for seen, wanted in zip(found, expected, strict=True)))
    around.check()
    assert value_of(dut.idle)
    return around


def runs_fields(*, legal: bool = True) -> dict[str, int]:
    """Random fields of LOAD_GATHER; also such as no compiler makes unless ``legal``."""
    length = random.randint(1, min(LANES, 31))
    if random.random() < 0.4:
        length = random.choice([size for size in (1, 2, 4, 8, 16) if size <= LANES])
    if not legal and random.random() < 0.5:
        return {"outputs": random.randint(1, 20), "length": random.randint(1, 31), "step": random.randint(0, 63),
                "start": random.randint(-32, 31), "place": random.randint(0, 31), "bytes": random.randint(0, 400)}
    return {"outputs": random.choice([1, 2, 3, random.randint(1, 40)]), "length": length,
            "step": random.choice([0, 1, length, LANES, random.randint(0, 63)]),
            "start": random.choice([0, -1, -LANES, -32, 31, random.randint(-32, 31)]),
            "place": random.randint(0, LANES - length), "bytes": 0}


def random_gather(program: Program, *, legal: bool = True, **settings: int) -> None:
    """LOAD_SET with ``settings``, LOAD_GATHER and a LOAD_ACT or two, within the input buffer."""
    while True:
        fields = runs_fields(legal=legal)
        rows, top, bottom = random.randint(0, 4), random.choice([0, 0, 1, 3]), random.choice([0, 0, 1, 2])
        blocks = random.randint(1, 5) if not legal or not LANES % fields["length"] else 1
        end = fields["start"] + (fields["outputs"] - 1) * fields["step"] + fields["length"]
        cols = max(1, random.choice([-(-end // LANES), random.randint(1, 12), random.randint(1, 3)]))
        pitches = {"row_pitch": random.randint(0, 60), "block_pitch": random.randint(0, 400)}
        row_entries = -(-fields["outputs"] // CONFIG.banks)
        row_pitch = row_entries + random.randint(0, 2)
        block_pitch = row_pitch * (top + rows + bottom) + random.randint(0, 2)
        spare = CONFIG.input_depth - (blocks + 1) * block_pitch
        reach = (blocks - 1) * pitches["block_pitch"] + max(rows - 1, 0) * pitches["row_pitch"] + cols
        if rows + top + bottom and spare >= 0 and reach <= REGION:
            break
    if legal:
        fields["bytes"] = random.choice([cols * LANES, random.randint(0, cols * LANES), cols * LANES + 5])
    program.add(Opcode.LOAD_SET, cols=cols, pad_left=random.randrange(16), pad_right=random.randrange(16),
                pad_value=random.randint(-128, 127), stride=random.randint(1, 4), buf_row_pitch=row_pitch,
                buf_block_pitch=block_pitch, **pitches, **settings)
    for _ in range(random.choice([1, 2])):
        program.add(Opcode.LOAD_GATHER, **fields)
        program.add(Opcode.LOAD_ACT, offset=random.randint(0, REGION - reach), buf_base=random.choice([0, spare]),
                    blocks=blocks, rows=rows, pad_top=top, pad_bottom=bottom, wait_compute=random.randrange(2),
                    stores=random.choice([0, 0, 2]), post_compute=random.randrange(2))
        fields = {**fields, "place": random.randint(0, LANES - fields["length"]) if legal else fields["place"]}


def random_loads(count: int, *, legal: bool = True) -> GatherProgram:
    program = GatherProgram()
    while len(program.instructions) < count:
        kind = random.random()
        if kind < 0.15:
            program.add(Opcode.LOAD_WGT, offset=random.randrange(REGION - 50), beats=random.randint(1, 50),
                        post_compute=random.randrange(2))
        elif kind < 0.3:
            program.add(Opcode.LOAD_SET, cols=random.randint(1, 9), pad_left=random.randrange(3), stride=2,
                        row_pitch=20, block_pitch=50, buf_row_pitch=14, buf_block_pitch=30, pad_value=7)
            program.add(Opcode.LOAD_ACT, offset=random.randrange(REGION - 200), blocks=2, rows=2, pad_top=1,
                        post_compute=random.randrange(2))
        else:
            random_gather(program, legal=legal)
    return program


@cocotb.test(timeout_time=4, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.2, 0.7])
async def random_runs(dut, stall):
    for _ in range(8):
        await run(dut, random_loads(24), stall=stall)


@cocotb.test(timeout_time=4, timeout_unit="ms")
async def senseless_runs(dut):
    """Runs that do not fit their entries lose what comes after them; any fields give what the golden model says."""
    for _ in range(15):
        await run(dut, random_loads(20, legal=False), stall=random.choice([0.0, 0.3]))


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_pair_a_cycle(dut):
    """From row to row no cycle is lost, whether beats or runs are the more."""
    pair = CONFIG.write_lanes
    for step, length, outputs, cols in ((1, 1, 11, 1), (3, 3, 40, 15 * 8 // LANES + 1), (LANES // 2, LANES - 1, 31, 17),
                                        (1, 4, 5, 2)):
        program = GatherProgram()
        rows = 6
        program.add(Opcode.LOAD_SET, cols=cols, row_pitch=cols, stride=1, buf_row_pitch=-(-outputs // CONFIG.banks))
        program.add(Opcode.LOAD_GATHER, outputs=outputs, step=step, length=length, start=-1, bytes=cols * LANES)
        program.add(Opcode.LOAD_ACT, rows=rows, blocks=1)
        around = await run(dut, program)
        # A first run of padding does not wait for the memory.
        taken = around.write_cycles[-1] - around.write_cycles[1] + 2
        end = -1 + (outputs - 1) * step + length
        beats = 1 + max(cols, -(-end // LANES))
        ideal = rows * max(-(-outputs // pair), beats)
        cocotb.log.info("%d runs of %d: %d cycles, at least %d", rows * outputs, length, taken, ideal)
        # Where both are the same the window runs empty between rows; beats after the last run's are passed over.
        lost = 2 * (-(-outputs // pair) == beats) + beats - 1 - -(-end // LANES)
        assert taken <= ideal + 3 + rows * lost


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_buffer_is_not_overrun(dut):
    for base in (0, 1):
        program = GatherProgram()
        entries = -(-9 // CONFIG.banks)
        program.add(Opcode.LOAD_SET, cols=4, row_pitch=4, stride=1, buf_row_pitch=entries, buf_block_pitch=2 * entries)
        program.add(Opcode.LOAD_GATHER, outputs=9, step=2, length=LANES // 2, place=LANES // 2, bytes=30)
        program.add(Opcode.LOAD_ACT, buf_base=CONFIG.input_depth - 4 * entries + base, rows=2, blocks=2)
        if base:
            await fails(dut, ErrorCode.BUFFER, 2, program, GatherSurroundings)
        else:
            await run(dut, program)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def geometry_must_be_set(dut):
    program = GatherProgram()
    program.add(Opcode.LOAD_GATHER, outputs=9, step=2, length=1, bytes=30)
    program.add(Opcode.LOAD_ACT, rows=1, blocks=1)
    await fails(dut, ErrorCode.ILLEGAL, 1, program, GatherSurroundings)
