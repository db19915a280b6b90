"""Load engine against a memory whose every beat is known: boxes with padding, rings, tokens, rate, errors."""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.arch.isa import Opcode
from tests.cores.load_surroundings import CONFIG, REGION, Program, Surroundings, fails, random_program, run


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.2, 0.7])
async def random_loads(dut, stall):
    for _ in range(3):
        await run(dut, random_program(14), stall=stall)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_pixel_a_cycle(dut):
    """Padded boxes one after the other: nothing is lost but the memory's first answer."""
    program = Program()
    width = 18 if CONFIG.pixel_lanes == 1 else 9
    program.add(Opcode.LOAD_SET, cols=16, pad_left=1, pad_right=1, row_pitch=16, block_pitch=64, stride=1,
                buf_row_pitch=width, buf_block_pitch=6 * width)
    for _ in range(4):
        program.add(Opcode.LOAD_ACT, blocks=2, rows=4, pad_top=1, pad_bottom=1)
    around = await run(dut, program)
    gaps = np.diff(around.write_cycles) - 1
    assert np.count_nonzero(gaps) <= 1 and gaps.sum() <= around.latency, gaps


def _box_of_tiles(program: Program, *, tiles: tuple[int, int] = (2, 3), **act: int) -> None:
    rows, cols = tiles
    program.add(Opcode.LOAD_SET, cols=2 * cols + 1, pad_left=1, row_pitch=20, block_pitch=200, stride=1,
                buf_block_pitch=rows * cols)
    program.add(Opcode.LOAD_WINOGRAD, tile_cols=cols, position_pitch=rows * cols)
    program.add(Opcode.LOAD_ACT, **({"blocks": 2, "rows": 2 * rows + 2} | act))


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not CONFIG.winograd)
async def tokens_of_tiles(dut):
    """A box's token comes with its last entry; other loads go on meanwhile, and no token is lost where two meet."""
    for count in range(1, 40):
        program = Program()
        _box_of_tiles(program, tiles=(1, 2), blocks=1, post_compute=1)
        for _ in range(count):
            program.add(Opcode.LOAD_WGT, offset=3, beats=1, post_compute=1)
        program.add(Opcode.LOAD_SET, cols=3, stride=1)
        program.add(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1)
        around = await run(dut, program)
        entries = 16 * 2
        before = [writes for writes, *_ in around.posts if writes < entries]
        assert len(before) <= count, "a token came before its last entry"
        assert around.posts[-1][0] == len(program.writes)
        assert count < 20 or before, "nothing went on"


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not CONFIG.winograd)
async def an_entry_a_cycle(dut):
    """From the first to the last entry of a box, the bus being fast enough."""
    program = Program()
    _box_of_tiles(program, tiles=(3, 6), blocks=3)
    around = await run(dut, program)
    assert (np.diff(around.write_cycles) == 1).all(), np.diff(around.write_cycles)


@cocotb.test(timeout_time=1, timeout_unit="ms", skip=not CONFIG.winograd)
async def boxes_are_made_of_tiles(dut):
    """An entry too far, also while another load is at work; a box that does not fit its tiles."""
    program = Program()
    _box_of_tiles(program, buf_base=CONFIG.input_depth - 15 * 6 - 6)
    program.add(Opcode.LOAD_WGT, offset=3, beats=100)
    await fails(dut, ErrorCode.BUFFER, 2, program)
    for changes in ({"rows": 5}, {"rows": 2}):
        program = Program()
        _box_of_tiles(program, **changes)
        await fails(dut, ErrorCode.BUFFER, 2, program)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_beat_a_cycle(dut):
    """A long LOAD_WGT keeps the bus busy: it takes no longer than its beats."""
    program = Program()
    program.add(Opcode.LOAD_WGT, offset=3, beats=3000)
    around = await run(dut, program)
    assert around.cycle <= 3000 + around.latency + 100


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def offsets_reach_the_end_of_the_largest_region(dut):
    """Channel blocks beyond 2^30 beats."""
    program = Program()
    program.add(Opcode.LOAD_SET, cols=2, block_pitch=(1 << 24) - 1, stride=1, buf_row_pitch=1, buf_block_pitch=2)
    program.add(Opcode.LOAD_ACT, offset=(1 << 28) - 1, blocks=100, rows=1)
    await run(dut, program, region=(1 << 32) - 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def ranges_are_checked(dut):
    """The last row that fits is read, the first that does not is an error."""
    for beyond in (0, 1):
        rows = Program()
        rows.add(Opcode.LOAD_SET, cols=3, row_pitch=10, block_pitch=100, stride=1, buf_row_pitch=3, buf_block_pitch=12)
        rows.add(Opcode.LOAD_ACT, offset=REGION - 133 + beyond, blocks=2, rows=4)
        weights = Program()
        weights.add(Opcode.LOAD_WGT, offset=REGION - 5 + beyond, beats=5)
        for index, program in ((1, rows), (0, weights)):
            if beyond:
                await fails(dut, ErrorCode.READ_RANGE, index, program)
            else:
                await run(dut, program)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_buffer_is_not_overrun(dut):
    """Also where an entry computed in too few bits would be inside again."""
    for base, pitch, wrong in ((CONFIG.input_depth - 8, 8, True), (CONFIG.input_depth - 16, 8, False),
                               ((1 << 14) - 1, 8, True), (200, (1 << 14) - 100, True)):
        program = Program()
        program.add(Opcode.LOAD_SET, cols=8, row_pitch=8, block_pitch=8, stride=1, buf_row_pitch=8,
                    buf_block_pitch=pitch)
        program.add(Opcode.LOAD_ACT, buf_base=base, blocks=2, rows=1)
        if wrong:
            await fails(dut, ErrorCode.BUFFER, 1, program)
        else:
            await run(dut, program)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(rows=[0, 1])
async def geometry_must_be_set(dut, rows):
    program = Program()
    program.add(Opcode.LOAD_ACT, blocks=1, rows=rows, pad_top=1)
    around = await fails(dut, ErrorCode.ILLEGAL, 0, program)
    assert not around.requested


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(response=[AxiResponse.SLVERR, AxiResponse.DECERR])
async def bus_errors_name_their_instruction(dut, response):
    """The first beat that fails counts, not what was asked for after it."""
    program = Program()
    program.add(Opcode.LOAD_WGT, offset=0, beats=20)
    program.add(Opcode.LOAD_SIDE, offset=100, cols=4, rows=2, row_pitch=10)
    program.add(Opcode.LOAD_WGT, offset=200, beats=20)
    code = ErrorCode.READ_SLVERR if response == AxiResponse.SLVERR else ErrorCode.READ_DECERR
    await fails(dut, code, 1, program, fail=lambda beat: response if beat >= 112 else AxiResponse.OKAY)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halt_asks_for_no_more(dut):
    """And a reset in the middle leaves nothing behind."""
    program = Program()
    program.add(Opcode.LOAD_WGT, offset=0, beats=4000)
    around = Surroundings(dut, program, stall=0.3)
    await around.begin()
    await ClockCycles(dut.clk, 300)
    dut.halt.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    requested = around.requested
    await around.end(lambda: True)
    assert 0 < around.requested == requested < 4000
    await run(dut, random_program(6))
