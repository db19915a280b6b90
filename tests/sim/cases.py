"""Machines, layers and programs that several tests of the simulators share."""

import dataclasses

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from sim.functional import ORDERS, run
from sim.store_operations import residual_add

from .programs import (
    END,
    Layer,
    Memory,
    Requantize,
    assemble,
    entries,
    from_blocks,
    layer_program,
    pad,
    to_blocks,
    windows,
)

SMALL = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=2, input_depth=256, acc_depth=64, weight_depth=512)
CONFIGS = {
    "px2": SMALL,
    "px1": dataclasses.replace(SMALL, pixel_lanes=1, input_depth=512),
    "tn16": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, input_depth=512, acc_depth=64),
    "tn16-fanin4": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=8, select_fanin=4, input_depth=512, acc_depth=64),
    "tn32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=1, input_depth=512, acc_depth=64),
    "depthwise": dataclasses.replace(SMALL, depthwise=1),
    "depthwise-4banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=256, acc_depth=64, depthwise=1),
    "wired": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, input_depth=256, acc_depth=64),
}


def random_layer(rng: np.random.Generator, config: NpuConfig, channels: int, *, kernel: tuple[int, int],
                 stride: tuple[int, int], pads: tuple[int, int, int, int], tile_rows: int, groups: int = 0,
                 words: WordForm = WordForm.PIXELS) -> Layer:
    """A layer whose weights fit ``groups`` steps a block: few enough channels that a lane reaches are not zero."""
    blocks, outputs = -(-channels // config.ic_lanes), config.oc_lanes if words == WordForm.PIXELS else config.ic_lanes
    weights = rng.integers(-128, 128, (outputs, blocks * config.ic_lanes, *kernel)).astype(np.int8)
    weights[:, channels:] = 0
    if groups:
        window = config.select_fanin
        keep = groups * config.nnz_lanes * window // config.ic_lanes
        order = rng.random((outputs, weights.shape[1] // window, window, *kernel)).argsort(axis=2)
        weights = np.where((order < keep).reshape(weights.shape), weights, 0).astype(np.int8)
    requantize = Requantize.random(rng, outputs)
    return Layer(weights, stride, pads, int(rng.integers(-128, 128)), requantize, tile_rows, groups, words)


#: Program, image, write_start, and (beat, value) of every output.
Case = tuple[bytes, np.ndarray, int, list[tuple[int, np.ndarray]]]


def place(config: NpuConfig, layers: list[Layer], x: np.ndarray) -> Case:
    """Program, image, write_start of a chain of layers; and for each its beat and what it should make."""
    memory, outputs, value = Memory(config), [], x
    for layer in layers:
        value = layer.output(value)
        outputs.append(value)
    # The constants come first, and what they need is known only when they are packed: place twice.
    constants = 0
    for _ in range(2):
        memory = Memory(config)
        source = constants
        targets = [source + -(-len(x) // config.ic_lanes) * x[0].size]
        for output in outputs:
            targets.append(targets[-1] + len(output) // config.ic_lanes * output[0].size)
        program, stores, used, begin, size = [], 0, 0, source, x.shape[1:]
        for layer, output, target in zip(layers, outputs, targets[:-1], strict=True):
            part, count = layer_program(config, layer, memory, begin, size, target, stores=stores, banks_used=used)
            program += part
            stores, used, begin, size = count, used + count, target, output.shape[1:]
        constants = memory.beats
    memory.put(to_blocks(config, x))
    memory.reserve(targets[-1] - memory.beats)
    return assemble(*program, END), memory.image(), constants, list(zip(targets, outputs, strict=False))


def check(config: NpuConfig, code: bytes, image: np.ndarray, write_start: int,
          expected: list[tuple[int, np.ndarray]]) -> None:
    for order in ORDERS:
        result = image.copy()
        run(config, code, result, write_start=write_start, strict=True, order=order)
        for beat, value in expected:
            found = from_blocks(config, result, beat, value.shape)
            np.testing.assert_array_equal(found, value, err_msg=f"order {order}")


def chain(seed: int, config: NpuConfig = SMALL) -> Case:
    """Two layers of three tiles each, the second reading the first."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (config.ic_lanes, 9, 9)).astype(np.int8)
    first = random_layer(rng, config, config.ic_lanes, kernel=(3, 3), stride=(1, 1), pads=(1, 1, 1, 1), tile_rows=3)
    second = random_layer(rng, config, config.oc_lanes, kernel=(1, 1), stride=(1, 1), pads=(0, 0, 0, 0), tile_rows=3)
    return place(config, [first, second], x)


def pool_program(rng: np.random.Generator, config: NpuConfig, *, maximum: bool, add: bool, kernel: tuple[int, int],
                 stride: tuple[int, int], size: tuple[int, int] = (7, 9), late_residual: bool = False):
    """Two blocks pooled, a residual added: (instructions, image, write_start, [(target, expected)])."""
    lanes, blocks = config.ic_lanes, 2
    x = rng.integers(-128, 128, (blocks * lanes, *size)).astype(np.int8)
    pads = (1, 0, 0, 1)
    padded = pad(x, pads, -7)
    values = windows(padded, kernel, stride)
    sums = values.max((3, 4)) if maximum else values.sum((3, 4))
    rows, cols = sums.shape[1:]
    requantize = Requantize.random(rng, blocks * lanes, 0.9 if maximum else 1 / np.prod(kernel))
    expected = requantize.apply(sums)
    other = rng.integers(-128, 128, expected.shape).astype(np.int8)
    second = dict(multiplier_a=70000, multiplier_b=100000, constant=-123456, shift=17, zero_point=3, low=-120, high=100)
    if add:
        expected = residual_add(expected, other, *second.values())
    memory = Memory(config)
    parameters = memory.put(requantize.pack())
    source, residual = memory.put(to_blocks(config, x)), memory.put(to_blocks(config, other))
    start = memory.beats
    target = memory.reserve(blocks * rows * cols)
    pitch = entries(config, size[1] + 1, stride[1])
    tall = size[0] + 1
    load = Instruction(Opcode.LOAD_ACT, offset=source, blocks=blocks, rows=size[0], pad_top=1, post_compute=1)
    side = []
    for block in range(blocks):
        side.append(Instruction(Opcode.LOAD_SIDE, offset=parameters + 8 * block, cols=8, rows=1))
        if add:
            side.append(Instruction(Opcode.LOAD_SIDE, offset=residual + block * rows * cols, cols=cols, rows=rows,
                                    row_pitch=cols))
    if late_residual:
        # The residual stands after a load that waits for the POOL.
        side.insert(1, Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=1))
    instructions = [
        Instruction(Opcode.LOAD_SET, cols=size[1], row_pitch=size[1], block_pitch=size[0] * size[1], pad_right=1,
                    pad_value=-7, stride=stride[1], buf_row_pitch=pitch, buf_block_pitch=tall * pitch),
        load, *side,
        Instruction(Opcode.COMPUTE_SET, kernel_h=kernel[0], kernel_w=kernel[1], stride=stride[1], rows=rows, cols=cols,
                    buf_row_pitch=pitch, buf_row_step=stride[0] * pitch, buf_block_pitch=tall * pitch),
        Instruction(Opcode.POOL, blocks=blocks, maximum=int(maximum), wait_load=1, post_load=1),
        *requantize.set(rows, cols, cols, rows * cols),
        *([Instruction(Opcode.STORE_ADD, **second)] if add else []),
        Instruction(Opcode.STORE, offset=target, blocks=blocks, pooled=1),
        END,
    ]
    return instructions, memory.image(), start, [(target, expected)]


def load_set(**fields: int) -> Instruction:
    defaults = dict(cols=4, row_pitch=4, block_pitch=16, stride=1, buf_row_pitch=2, buf_block_pitch=8)
    return Instruction(Opcode.LOAD_SET, **{**defaults, **fields})


def compute_set(**fields: int) -> Instruction:
    defaults = dict(kernel_h=1, kernel_w=1, stride=1, rows=4, cols=4, buf_row_pitch=2, buf_row_step=2,
                    buf_block_pitch=8)
    return Instruction(Opcode.COMPUTE_SET, **{**defaults, **fields})


def store_set(**fields: int) -> Instruction:
    defaults = dict(rows=4, cols=4, row_pitch=4, block_pitch=16)
    return Instruction(Opcode.STORE_SET, **{**defaults, **fields})


def requant(**fields: int) -> Instruction:
    return Instruction(Opcode.STORE_REQUANT, **{"low": -128, "high": 127, **fields})


PARAMETERS = Instruction(Opcode.LOAD_SIDE, offset=0, cols=8, rows=1)
