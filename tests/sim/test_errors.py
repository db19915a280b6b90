"""Every error of a program, on the functional simulator and on the RTL: the same code and the same instruction."""

from collections.abc import Iterator

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from sim.errors import MachineError
from sim.functional import run
from sim.machine import TOKEN_MAXIMUM
from sim.rtl import RtlMachine, run_program

from .cases import PARAMETERS, compute_set, load_set, requant, store_set
from .programs import END, assemble

CONFIG = NpuConfig.preset(16)
BEATS, WRITE_START = 1024, 512
LAST = CONFIG.input_depth - 1

WEIGHTS = Instruction(Opcode.LOAD_WGT, offset=0, beats=CONFIG.weight_beats)
WRONG = Instruction(Opcode.SYNC)    # its first byte is replaced


def compute(**fields: int) -> Instruction:
    return Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, **fields)


def store(**fields: int) -> Instruction:
    return Instruction(Opcode.STORE, **{"offset": 600, "blocks": 1, **fields})


#: Name -> code, index (None: not the same every time), instructions.
PROGRAMS: dict[str, tuple[ErrorCode, int | None, list[Instruction]]] = {
    "illegal": (ErrorCode.ILLEGAL, 1, [load_set(), WRONG, END]),
    "load without geometry": (ErrorCode.ILLEGAL, 0, [Instruction(Opcode.LOAD_ACT, blocks=1, rows=4), END]),
    "padding without geometry": (ErrorCode.ILLEGAL, 0, [Instruction(Opcode.LOAD_ACT, blocks=1, pad_top=1), END]),
    "compute without geometry": (ErrorCode.ILLEGAL, 0, [compute(), END]),
    "pool without geometry": (ErrorCode.ILLEGAL, 0, [Instruction(Opcode.POOL, blocks=1), END]),
    "store without geometry": (ErrorCode.ILLEGAL, 0, [store(), END]),
    "no end": (ErrorCode.NO_END, 2, [load_set(), compute_set()]),
    "activations outside": (ErrorCode.READ_RANGE, 1, [
        load_set(), Instruction(Opcode.LOAD_ACT, offset=BEATS - 15, blocks=1, rows=4), END]),
    "weights outside": (ErrorCode.READ_RANGE, 0, [Instruction(Opcode.LOAD_WGT, offset=BEATS - 4, beats=5), END]),
    "side data outside": (ErrorCode.READ_RANGE, 0, [
        Instruction(Opcode.LOAD_SIDE, offset=BEATS - 24, cols=4, rows=3, row_pitch=11), END]),
    "store without a chain": (ErrorCode.ILLEGAL, 1, [store_set(), store(), END]),
    "store below": (ErrorCode.WRITE_RANGE, 6, [
        PARAMETERS, WEIGHTS, compute_set(), compute(post_store=1), store_set(), requant(),
        store(offset=511, wait_compute=1), END]),
    "store beyond": (ErrorCode.WRITE_RANGE, 6, [
        PARAMETERS, WEIGHTS, compute_set(), compute(post_store=1), store_set(), requant(),
        store(offset=1009, wait_compute=1), END]),
    "load past the buffer": (ErrorCode.BUFFER, 1, [
        load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4, buf_base=LAST - 6), END]),
    # Entries that would be inside again if they were computed in a few bits more than an entry has.
    "load far past the buffer": (ErrorCode.BUFFER, 1, [
        load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4, buf_base=4 * CONFIG.input_depth), END]),
    "second block far past the buffer": (ErrorCode.BUFFER, 1, [
        load_set(buf_block_pitch=(1 << 14) - 100), Instruction(Opcode.LOAD_ACT, blocks=2, rows=4, buf_base=200), END]),
    "compute far past the buffer": (ErrorCode.BUFFER, 2, [
        WEIGHTS, compute_set(), compute(buf_base=4 * CONFIG.input_depth), END]),
    "row far past the buffer": (ErrorCode.BUFFER, 2, [
        WEIGHTS, compute_set(buf_row_step=(1 << 14) - 100), compute(buf_base=200), END]),
    "compute past the buffer": (ErrorCode.BUFFER, 2, [WEIGHTS, compute_set(), compute(buf_base=LAST - 6), END]),
    "unwanted pixel past the buffer": (ErrorCode.BUFFER, 2, [
        Instruction(Opcode.LOAD_WGT, offset=0, beats=2 * CONFIG.weight_beats), compute_set(kernel_w=2, rows=1, cols=3),
        compute(buf_base=LAST - 1), END]),
    "pool past the buffer": (ErrorCode.BUFFER, 5, [
        PARAMETERS, compute_set(), store_set(), requant(), store(pooled=1),
        Instruction(Opcode.POOL, buf_base=LAST - 6, blocks=1), END]),
    "tile larger than a bank": (ErrorCode.BUFFER, 2, [
        WEIGHTS, compute_set(rows=1, cols=2 * CONFIG.acc_depth + 1, buf_row_step=0), compute(), END]),
    "more blocks than a bank": (ErrorCode.BUFFER, 2, [store_set(), requant(), store(blocks=CONFIG.oc_groups + 1), END]),
    "missing token": (ErrorCode.TIMEOUT, 1, [compute_set(), compute(wait_load=1), END]),
    "no weights": (ErrorCode.TIMEOUT, 1, [compute_set(), compute(), END]),
    "no parameters": (ErrorCode.TIMEOUT, 2, [store_set(), requant(), store(), END]),
    "load and compute stuck": (ErrorCode.TIMEOUT, 0, [
        Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=1), compute_set(), compute(wait_load=1), END]),
    "too many tokens": (ErrorCode.TOKEN, None, [
        *[Instruction(Opcode.LOAD_WGT, offset=0, beats=1, post_compute=1)] * (TOKEN_MAXIMUM + 1), END]),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[RtlMachine]:
    with RtlMachine(CONFIG) as machine:
        yield machine


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_error(machine, name):
    code, index, instructions = PROGRAMS[name]
    program = assemble(*instructions)
    if WRONG in instructions:
        at = 16 * instructions.index(WRONG)
        program = program[:at] + b"\x0f" + program[at + 1:]
    memory = np.zeros(BEATS * CONFIG.beat_bytes, np.uint8)
    for found in (lambda: run(CONFIG, program, memory.copy(), write_start=WRITE_START),
                  lambda: run_program(machine, program, memory, write_start=WRITE_START, timeout=2000)):
        with pytest.raises(MachineError) as caught:
            found()
        assert caught.value.cause == code
        assert index is None or caught.value.index == index
