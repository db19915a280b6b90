"""Winograd F(2x2, 3x3): golden functions against slow ones, and transformed tiles on the functional simulator."""

import dataclasses
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from sim import golden
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, execute, run
from sim.machine import Machine
from tests.errors import raises

from .programs import END, Memory, Requantize, assemble, from_blocks, pad, to_blocks

NARROW = NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=256, acc_depth=128,
                   weight_depth=512, winograd=1)
CONFIGS = {
    "narrow": NARROW,
    "narrow-px1": dataclasses.replace(NARROW, pixel_lanes=1, input_depth=512, acc_depth=256),
    "narrow-4banks": dataclasses.replace(NARROW, nnz_lanes=4, depthwise=1),
    "exact": dataclasses.replace(NARROW, winograd=2, pixel_lanes=1, input_depth=512, acc_depth=256, acc_width=30),
    "exact-px2": dataclasses.replace(NARROW, winograd=2, multiplier_width=18, acc_width=30),
}
#: Of tile rows and columns, the taps with their signs.
B = [{0: 1, 2: -1}, {1: 1, 2: 1}, {1: -1, 2: 1}, {1: 1, 3: -1}]
A = [{0: 1, 1: 1, 2: 1}, {1: 1, 2: -1, 3: -1}]


# -- golden functions ------------------------------------------------------------------------------------------------


def test_exact_form_is_direct_convolution(seed):
    rng = np.random.default_rng(seed)
    for _ in range(250):
        channels, outputs, height, width = (int(v) for v in rng.integers(1, [7, 5, 10, 10]))
        pads = tuple(int(v) for v in rng.integers(0, 3, 4))
        if height + pads[0] + pads[2] < 3 or width + pads[1] + pads[3] < 3:
            continue
        x = rng.integers(-128, 128, (2, channels, height, width)).astype(np.int8)
        weights = rng.integers(-255, 256, (outputs, channels, 3, 3))
        value = int(rng.integers(-128, 128))
        direct = golden.conv2d_accumulate(x, weights, False, (1, 1), pads, value)
        tiles = golden.winograd_accumulate(x, golden.winograd_weights(weights), pads, value)
        np.testing.assert_array_equal(tiles, 4 * direct)


def test_widths():
    """Transformed int8 needs 10 bits for pixels and 12 for weights, and no fewer."""
    signs = np.sign(golden.winograd_weights(np.zeros((3, 3))) + 1)
    assert signs.shape == (4, 4)
    lowest = highest = 0
    for i in range(4):
        for j in range(4):
            taps = np.zeros((4, 4), int)
            for a, s in B[i].items():
                for b, t in B[j].items():
                    taps[a, b] = s * t
            for tile in (np.where(taps > 0, 127, -128), np.where(taps > 0, -128, 127)):
                value = golden.winograd_input(tile)[i, j]
                assert value == (taps * tile).sum()
                lowest, highest = min(lowest, value), max(highest, value)
    assert (lowest, highest) == (-512, 510)
    corners = [golden.winograd_weights(np.full((3, 3), value)) for value in (-128, 127)]
    assert (corners[0].min(), corners[1].max()) == (-1152, 1143)


def slow_narrow(x, weights, pads, pad_value, shifts):
    """Sums of the narrow form, pixel by pixel, in exact fractions."""
    padded = pad(x, (pads[0], pads[1], pads[2] + 1, pads[3] + 1), pad_value)
    rows, cols = x.shape[1] + pads[0] + pads[2] - 2, x.shape[2] + pads[1] + pads[3] - 2
    out = np.zeros((len(weights), rows, cols), np.int64)
    for y in range(rows):
        for c in range(cols):
            tile = padded[:, y // 2 * 2:, c // 2 * 2:].astype(int)
            for i, s in A[y % 2].items():
                for j, t in A[c % 2].items():
                    shift = shifts[4 * i + j]
                    for channel in range(len(x)):
                        value = sum(p * q * int(tile[channel, a, b]) for a, p in B[i].items() for b, q in B[j].items())
                        rounded = floor(Fraction(value, 2**shift) + Fraction(1, 2)) if shift else value
                        out[:, y, c] += s * t * weights[:, channel, i, j] * min(max(rounded, -128), 127)
    return out


def test_narrow_form(seed):
    rng = np.random.default_rng(seed)
    for number in range(30):
        channels, outputs, height, width = (int(v) for v in rng.integers([1, 1, 2, 2], [4, 4, 7, 7]))
        pads = tuple(int(v) for v in rng.integers(1, 3, 4))
        x = rng.choice([-128, 127], (channels, height, width)) if number % 3 == 0 else rng.integers(
            -128, 128, (channels, height, width))
        weights = rng.integers(-128, 128, (outputs, channels, 4, 4))
        shifts = [int(v) for v in rng.integers(0, 3, 16)]
        value = int(rng.integers(-128, 128))
        sums = golden.winograd_accumulate(x.astype(np.int8), weights, pads, value, shifts)
        np.testing.assert_array_equal(sums, slow_narrow(x, weights, pads, value, shifts))


# -- a program by hand -----------------------------------------------------------------------------------------------


def pack_dense(config: NpuConfig, weights: np.ndarray) -> bytes:
    """``weights`` (tm, blocks * tn, 4, 4): for block, position, group."""
    stream = bytearray()
    for block in range(weights.shape[1] // config.ic_lanes):
        for position in range(16):
            for group in range(config.groups_dense):
                word = 0
                for lane in range(config.oc_lanes * config.nnz_lanes):
                    output, j = divmod(lane, config.nnz_lanes)
                    channel = block * config.ic_lanes + j * config.groups_dense + group
                    value = int(weights[output, channel, position // 4, position % 4])
                    word |= (value & (1 << config.weight_bits) - 1) << config.weight_bits * lane
                stream += word.to_bytes(config.weight_beats * config.beat_bytes, "little")
    return bytes(stream)


def tile_program(config: NpuConfig, seed: int, *, size=(5, 7)):
    """One output tile of two blocks: instructions without END, image, write_start, result."""
    rng = np.random.default_rng(seed)
    channels, (rows, cols) = 2 * config.ic_lanes, size
    x = rng.integers(-128, 128, (channels, rows, cols)).astype(np.int8)
    shifts = [int(v) for v in rng.integers(0, 3, 16)] if config.winograd == 1 else None
    if shifts is None:
        weights = golden.winograd_weights(rng.integers(-128, 128, (config.oc_lanes, channels, 3, 3)))
    else:
        weights = rng.integers(-128, 128, (config.oc_lanes, channels, 4, 4))
    value = int(rng.integers(-128, 128))
    sums = golden.winograd_accumulate(x, weights, (1, 1, 1, 1), value, shifts)
    requantize = Requantize.random(rng, config.oc_lanes, 2.0**-10)
    memory = Memory(config)
    source, stream = memory.put(to_blocks(config, x)), memory.put(pack_dense(config, weights))
    parameters = memory.put(requantize.pack())
    target = memory.beats
    memory.reserve(config.oc_groups * rows * cols)
    across, down = -(-cols // 2), -(-rows // 2)
    tiles = across * down
    pitch, words = -(-tiles // config.banks), -(-tiles // config.pixel_lanes)
    program = [
        Instruction(Opcode.LOAD_SET, cols=cols, row_pitch=cols, block_pitch=rows * cols, pad_left=1,
                    pad_right=2 * across + 1 - cols, pad_value=value, stride=1, buf_block_pitch=16 * pitch),
        Instruction(Opcode.LOAD_WINOGRAD, shifts=sum(s << 2 * p for p, s in enumerate(shifts or [])),
                    tile_cols=across, position_pitch=pitch),
        Instruction(Opcode.LOAD_ACT, offset=source, blocks=2, rows=rows, pad_top=1, pad_bottom=2 * down + 1 - rows,
                    post_compute=1),
        Instruction(Opcode.LOAD_SIDE, offset=parameters, cols=8, rows=config.oc_groups, row_pitch=8),
        Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=tiles),
    ]
    beats = 16 * config.groups_dense * config.weight_beats
    for block in range(2):
        program.append(Instruction(Opcode.LOAD_WGT, offset=stream + block * beats, beats=beats))
        for position in range(16):
            program.append(Instruction(
                Opcode.COMPUTE, buf_base=(16 * block + position) * pitch, blocks=1, groups=config.groups_dense,
                first=int(not block), bank=1, acc_base=position * words, wait_load=int(not (block or position)),
                post_store=block * position // 15))
    program += [
        *requantize.set(rows, cols, cols, rows * cols, words=WordForm.TILES, position_words=words),
        Instruction(Opcode.STORE, offset=target, blocks=config.oc_groups, bank=1, wait_compute=1),
    ]
    return program, memory.image(), target, requantize.apply(sums)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [(5, 7), (6, 6), (1, 1), (2, 9)])
def test_program(name, size, seed):
    config = CONFIGS[name]
    program, image, target, expected = tile_program(config, seed, size=size)
    for order in ORDERS:
        result = image.copy()
        run(config, assemble(*program, END), result, write_start=target, strict=True, order=order)
        np.testing.assert_array_equal(from_blocks(config, result, target, expected.shape), expected)


def changed(program: list[Instruction], number: int, **fields: int) -> list[Instruction]:
    result = list(program)
    result[number] = Instruction(result[number].opcode, **{**result[number].fields, **fields})
    return result


LAST_COMPUTE, STORE_SET = -4, -3


@pytest.mark.parametrize(("number", "fields", "at", "text"), [
    (1, {"tile_cols": 3}, 2, "a box of 8x10 pixels does not make rows of 3 tiles"),
    (0, {"pad_left": 15, "pad_right": 15, "cols": 100, "row_pitch": 0, "block_pitch": 0}, 2, "a box of 8x130 pixels"),
    (2, {"pad_bottom": 1}, 2, "a box of 7x10 pixels"),
    (2, {"pad_bottom": 0, "rows": 1}, 2, "a box of 2x10 pixels"),
    (1, {"position_pitch": 40}, 2, "input-buffer entry"),
    (2, {"buf_base": 250}, 2, "input-buffer entry"),
    (LAST_COMPUTE, {"acc_base": 123}, LAST_COMPUTE, "129 accumulator words of 128"),
    (STORE_SET, {"position_words": 9}, -1, "139 accumulator words of 128"),
])
def test_buffer_errors(number, fields, at, text, seed):
    program, image, target, _ = tile_program(NARROW, seed)
    program = changed(program, number, **fields)
    if "cols" in fields:        # a row of one tile too many for the line memory
        program = changed(program, 1, tile_cols=64, position_pitch=0)
    for order in ORDERS:
        with pytest.raises(MachineError, match=text) as caught:
            run(NARROW, assemble(*program, END), image.copy(), write_start=target, order=order)
        assert (caught.value.cause, caught.value.index) == (ErrorCode.BUFFER, range(len(program))[at])


def test_other_machines(seed):
    """No machine without the unit has its operation, fields and kinds."""
    program, image, target, _ = tile_program(NARROW, seed)
    plain = dataclasses.replace(NARROW, winograd=0)
    with pytest.raises(MachineError, match="no LOAD_WINOGRAD") as caught:
        run(plain, assemble(*program, END), image.copy(), write_start=target)
    assert (caught.value.cause, caught.value.index) == (ErrorCode.ILLEGAL, 1)
    for instruction in program[LAST_COMPUTE:STORE_SET + 1]:
        with pytest.raises(MachineError, match="has no (acc_base|words TILES)"):
            run(plain, assemble(instruction, END), image.copy(), write_start=target)


@pytest.mark.parametrize(("number", "fields", "text"), [
    (1, {"shifts": 3}, "a shift of 3"),
    (LAST_COMPUTE - 1, {"acc_base": 122}, "adds to accumulators that were never computed"),
    (-1, {"pooled": 1}, "pooled pixels are not sums of tiles"),
    (3, {"post_compute": 1}, "its token may come before the tiles of instruction 2 are there"),
])
def test_hazards(number, fields, text, seed):
    program, image, target, _ = tile_program(NARROW, seed)
    program = changed(changed(program, number, **fields), -1, blocks=1)
    with pytest.raises(HazardError, match=text):
        run(NARROW, assemble(*program, END), image, write_start=target, strict=True)


def test_load_set_ends_the_mode(seed):
    """After another LOAD_SET pixels are loaded as they are."""
    program, image, target, _ = tile_program(NARROW, seed)
    with raises(HazardError, "written-twice", index=3):
        run(NARROW, assemble(*program[:2], *program[:1], *program[2:], END), image, write_start=target, strict=True)


@pytest.mark.parametrize("first", [Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD])
def test_modes_do_not_mix(first, seed):
    """After one LOAD_SET loads gather or transform."""
    config = dataclasses.replace(NARROW, gather=1)
    program, image, target, _ = tile_program(config, seed)
    gather = Instruction(Opcode.LOAD_GATHER, outputs=1, length=1)
    at = 1 if first == Opcode.LOAD_GATHER else 2
    with pytest.raises(HazardError, match="after one LOAD_SET"):
        run(config, assemble(*program[:at], gather, *program[at:], END), image, write_start=target)


def test_no_tile_counts_as_padding(seed):
    """What marked its entries as zero is overwritten."""
    config = dataclasses.replace(NARROW, gather=1, binary_rows=2)
    program, image, target, _ = tile_program(config, seed)
    machine = Machine(config, assemble(*program, END), image, write_start=target, strict=True)
    machine.zeros[:] = True
    execute(machine, "load")
    # 3 * 4 tiles of two blocks, two to an entry.
    assert not machine.zeros.reshape(config.banks, -1, 2)[:, :2 * 16 * 6].any()


def test_words_that_are_not_read(seed):
    """A single pixel is made of the first three positions each way: where the others would be plays no part."""
    program, image, target, expected = tile_program(NARROW, seed, size=(1, 1))
    for number, instruction in enumerate(program):
        if instruction.opcode == Opcode.COMPUTE:
            program = changed(program, number, acc_base=min(12 * instruction["acc_base"], 121))
    program = changed(program, STORE_SET, position_words=12)
    run(NARROW, assemble(*program, END), image, write_start=target, strict=True)
    np.testing.assert_array_equal(from_blocks(NARROW, image, target, expected.shape), expected)
