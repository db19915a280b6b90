"""Binary programs written by hand: signs are loaded, counted, and stored as a map; slow and plain on purpose."""

import numpy as np
import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import EntryForm, Opcode, StepKind, WordForm
from cores.config import NpuConfig
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, run
from sim.signs import pack_map, unpack_map
from tests.sim.programs import END, Memory, Requantize, assemble, entries, pad, to_blocks

CONFIGS = (NpuConfig.preset(16, binary_rows=2, gather=1), NpuConfig.preset(256, binary_rows=8, gather=1, depthwise=1))


def pack_weights(config: NpuConfig, weights: np.ndarray) -> bytes:
    """``weights`` (tm, blocks * 8 * tn, KH, KW) of -1 and 1: for block, ky, kx a beat for each lane."""
    stream, bits = bytearray(), 8 * config.ic_lanes
    for block in range(weights.shape[1] // bits):
        for ky in range(weights.shape[2]):
            for kx in range(weights.shape[3]):
                for lane in range(config.oc_lanes):
                    of_lane = weights[lane, block * bits:(block + 1) * bits, ky, kx]
                    word = sum(1 << i for i in range(bits) if of_lane[i] > 0)
                    stream += word.to_bytes(config.beat_bytes, "little")
    return bytes(stream)


def count(x: np.ndarray, zeros: np.ndarray, weights: np.ndarray, stride: int) -> np.ndarray:
    """128 times how many bits of ``x`` (C, H, W), -1 and 1, equal those of the weights; half of them where ``zeros``
    (H, W).
    """
    kernel = weights.shape[2]
    height, width = ((n - kernel) // stride + 1 for n in x.shape[1:])
    sums = np.zeros((len(weights), height, width), np.int64)
    for row in range(height):
        for col in range(width):
            for ky in range(kernel):
                for kx in range(kernel):
                    y, z = row * stride + ky, col * stride + kx
                    if zeros[y, z]:
                        sums[:, row, col] += x.shape[0] // 2
                    else:
                        sums[:, row, col] += (weights[:, :, ky, kx] == x[:, y, z]).sum(axis=1)
    return 128 * sums


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: str(c.macs))
@pytest.mark.parametrize("stride, pad_value, pad_zero", [(1, 0, 1), (1, -1, 0), (2, 5, 0), (2, -7, 1)])
@pytest.mark.parametrize("binary_store", [0, 1])
def test_layer(config: NpuConfig, stride: int, pad_value: int, pad_zero: int, binary_store: int,
               rng: np.random.Generator) -> None:
    tn, tm, blocks = config.ic_lanes, config.oc_lanes, 2
    pads, size = (1, 2, 0, 1), (5, 11)
    x = rng.integers(-128, 128, (8 * tn * blocks, *size)).astype(np.int8)
    weights = rng.choice(np.array([-1, 1]), (tm, len(x), 3, 3))
    stage = Requantize.random(rng, tm, 0.5 / 128)
    stage.bias = -rng.integers(128 * 4 * len(x), 128 * 5 * len(x), tm)
    memory = Memory(config)
    stream, parameters, source = (memory.put(pack_weights(config, weights)), memory.put(stage.pack()),
                                  memory.put(to_blocks(config, x)))
    padded = pad(x, pads, pad_value)
    zeros = pad(np.zeros((1, *size)), pads, 1)[0] * pad_zero > 0
    expected = stage.apply(count(np.where(padded < 0, -1, 1), zeros, weights, stride))
    rows, cols = expected.shape[1:]
    width = -(-cols // 8) if binary_store else cols
    target = memory.reserve(tm // tn * rows * width)
    pitch = entries(config, padded.shape[2] + (config.banks - 1) * stride, stride)
    height = padded.shape[1]
    program = [
        Instruction(Opcode.LOAD_SET, cols=size[1], row_pitch=size[1], block_pitch=size[0] * size[1], pad_left=pads[1],
                    pad_right=pads[3], pad_value=pad_value, stride=stride, buf_row_pitch=pitch,
                    buf_block_pitch=height * pitch, form=EntryForm.SIGNS,
                    pad_zero=pad_zero),
        Instruction(Opcode.LOAD_ACT, offset=source, blocks=8 * blocks, rows=size[0], pad_top=pads[0], post_compute=1),
        Instruction(Opcode.LOAD_WGT, offset=stream, beats=blocks * 9 * tm),
        Instruction(Opcode.LOAD_SIDE, offset=parameters, cols=8, rows=tm // tn, row_pitch=8),
        Instruction(Opcode.COMPUTE_SET, kernel_h=3, kernel_w=3, stride=stride, rows=rows, cols=cols,
                    buf_row_pitch=pitch, buf_row_step=stride * pitch, buf_block_pitch=height * pitch),
        Instruction(Opcode.COMPUTE, blocks=blocks, groups=tm // config.binary_rows, first=1, kind=StepKind.BINARY,
                    wait_load=1, post_store=1),
        *stage.set(rows, cols, width, rows * width),
        *([Instruction(Opcode.STORE_SIGNS)] if binary_store else []),
        Instruction(Opcode.STORE, offset=target, blocks=tm // tn, wait_compute=1),
        END,
    ]
    for order in ORDERS:
        image = memory.image()
        run(config, assemble(*program), image, write_start=target, strict=True, order=order)
        beats = image[target * config.beat_bytes:].reshape(tm // tn, rows, width, tn)
        for lane in range(tm):
            for row in range(rows):
                for col in range(cols):
                    value = expected[lane, row, col]
                    if binary_store:
                        byte = beats[lane // tn, row, col // 8, col % 8 * tn // 8 + lane % tn // 8]
                        assert byte >> lane % 8 & 1 == int(value >= 0)
                    else:
                        assert beats[lane // tn, row, col, lane % tn].view(np.int8) == value
        if binary_store and cols % 8:
            assert not beats[:, :, -1, cols % 8 * tn // 8:].any()


def test_maps_both_ways(rng: np.random.Generator) -> None:
    values = rng.integers(-128, 128, (3, 13, 16)).astype(np.int8)
    np.testing.assert_array_equal(unpack_map(pack_map(values), 13), np.where(values < 0, -1, 1))


@pytest.mark.parametrize("changes, set_changes, text", [
    (dict(groups=3), {}, "3 groups of output lanes, not 4"),
    ({}, dict(words=WordForm.SPREAD), "steps are plain")])
def test_forms_without_meaning(changes: dict, set_changes: dict, text: str) -> None:
    config = CONFIGS[1]
    fields = dict(kernel_h=1, kernel_w=1, stride=1, rows=1, cols=1, buf_row_pitch=1, buf_row_step=1, buf_block_pitch=1)
    compute = dict(blocks=1, groups=4, first=1, kind=StepKind.BINARY)
    program = [Instruction(Opcode.COMPUTE_SET, **fields, **set_changes),
               Instruction(Opcode.COMPUTE, **{**compute, **changes}), END]
    with pytest.raises(HazardError, match=text):
        run(config, assemble(*program), np.zeros(1024, np.uint8), write_start=0)


@pytest.mark.parametrize("fields, text", [
    (dict(form=EntryForm.SIGNS), "LOAD_SET has no form SIGNS"), (dict(pad_zero=1), "LOAD_SET has no pad_zero")])
def test_other_machines_have_no_such_fields(fields: dict, text: str) -> None:
    program = assemble(Instruction(Opcode.LOAD_SET, cols=1, stride=1, **fields), END)
    with pytest.raises(MachineError, match=text) as caught:
        run(NpuConfig.preset(16), program, np.zeros(64, np.uint8), write_start=0)
    assert caught.value.cause == ErrorCode.ILLEGAL
