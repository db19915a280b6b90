"""Local STOREs in the functional simulator and the time model: places, order, and all that can go wrong."""

import dataclasses

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.config import NpuConfig
from sim.cycles import estimate
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, execute, run
from sim.machine import Machine
from tests.errors import raises

from .cases import SMALL, check
from .local_programs import copy_program
from .programs import assemble

CONFIGS = {
    "px2": dataclasses.replace(SMALL, local_store=1),
    "px1": dataclasses.replace(SMALL, pixel_lanes=1, local_store=1),
    "4banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=256, acc_depth=64, depthwise=1,
                        local_store=1),
}
FOUR = CONFIGS["4banks"]
SIGNS = dataclasses.replace(FOUR, gather=1, binary_rows=8)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("rows, cols, pitch", [(3, 5, 0), (1, 7, 0), (4, 4, 0), (3, 5, 6), (2, 9, 11), (5, 1, 0)])
def test_copies(seed, name, rows, cols, pitch):
    config = CONFIGS[name]
    program, *rest = copy_program(np.random.default_rng(seed), config, rows=rows, cols=cols, pitch=pitch)
    check(config, assemble(*program), *rest)
    assert estimate(config, assemble(*program)).write_beats == 2 * rows * cols


def fails(program, image: np.ndarray, start: int, error: type, text: str, config: NpuConfig = FOUR) -> None:
    for order in ORDERS:
        with pytest.raises(error, match=text):
            run(config, assemble(*program), image.copy(), write_start=start, strict=True, order=order)


@pytest.mark.parametrize("flags, text", [
    # Nothing says when the copy is there.
    (dict(keep=dict(post_compute=0), second=dict(wait_store=0)), "never loaded|stores what it reads"),
    (dict(keep=dict(post_load=1)), "no post_load"),
])
def test_hazards(seed, flags, text):
    program, image, start, _ = copy_program(np.random.default_rng(seed), FOUR, **flags)
    fails(program, image, start, HazardError, text)


@pytest.mark.parametrize("place, text", [(0, "which reads the input-buffer entries it overwrites|no token orders"),
                                         (5, "which reads the input-buffer entries it overwrites|no token orders")])
def test_overwrites_what_is_being_read(seed, place, text):
    """A pooled STORE waits for no token of its COMPUTE: over the entries that it reads it may not go."""
    program, image, start, _ = copy_program(np.random.default_rng(seed), FOUR, place=place)
    fails(program, image, start, HazardError, text)


def test_load_over_a_copy(seed):
    """A load over the copy has to wait for its reader."""
    load = Instruction(Opcode.LOAD_ACT, offset=0, buf_base=100, blocks=1, rows=1)
    program, image, start, _ = copy_program(np.random.default_rng(seed), FOUR, last=(load,))
    fails(program, image, start, HazardError, "overwrites|no token orders it")
    waiting = Instruction(Opcode.LOAD_ACT, **{**load.fields, "wait_compute": 1})
    program, *rest = copy_program(np.random.default_rng(seed), FOUR, last=(waiting,))
    check(FOUR, assemble(*program), *rest)


@pytest.mark.parametrize("place, good", [(256 - 8, True), (256 - 7, False), (256, False), (1 << 20, False)])
def test_range(seed, place, good):
    """Two blocks of four entries each."""
    flags = {} if good else dict(second=dict(buf_base=0, wait_store=1))
    program, image, start, expected = copy_program(np.random.default_rng(seed), FOUR, place=place, **flags)
    if good:
        check(FOUR, assemble(*program), image, start, expected)
        return
    for order in ORDERS:
        with raises(MachineError, "machine-buffer", index=10) as caught:
            run(FOUR, assemble(*program), image.copy(), write_start=start, order=order)
        assert caught.value.cause == ErrorCode.BUFFER


def test_needs_the_configuration(seed):
    """A machine without local stores does not have the field."""
    program, image, start, _ = copy_program(np.random.default_rng(seed), FOUR)
    plain = dataclasses.replace(FOUR, local_store=0)
    with pytest.raises(MachineError, match="STORE_SET has no local"):
        run(plain, assemble(*program), image.copy(), write_start=start)


def test_signs_stay_in_memory(seed):
    program, image, start, _ = copy_program(np.random.default_rng(seed), SIGNS)
    at = next(i for i, instruction in enumerate(program) if instruction.opcode == Opcode.STORE_REQUANT)
    program.insert(at + 1, Instruction(Opcode.STORE_SIGNS))
    fails(program, image, start, HazardError, "signs are not stored to the input buffer", SIGNS)


def test_no_copy_counts_as_padding(seed):
    """What marked its entries as zero is overwritten."""
    program, image, start, _ = copy_program(np.random.default_rng(seed), SIGNS, rows=3, cols=5)
    machine = Machine(SIGNS, assemble(*program), image, write_start=start, strict=True)
    machine.zeros[:] = True
    execute(machine, "load")
    pixels = np.arange(3 * 5)
    for block in range(2):
        entries = 100 + block * 4 + pixels // SIGNS.banks
        assert not machine.zeros[pixels % SIGNS.banks * SIGNS.input_depth + entries].any()
