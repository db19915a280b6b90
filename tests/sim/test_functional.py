"""The functional simulator against direct computation, and every way a program can fail."""

import dataclasses

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.isa import HEADER, ErrorCode, Instruction, Opcode, encode
from sim import golden
from sim.errors import HazardError, MachineError
from sim.functional import ORDERS, TOKEN_MAXIMUM, run

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
    "px1": dataclasses.replace(SMALL, pixel_lanes=1),
    "tn16": NpuConfig(oc_lanes=32, ic_lanes=16, nnz_lanes=4, input_depth=512, acc_depth=64),
    "tn16-fanin4": NpuConfig(oc_lanes=16, ic_lanes=16, nnz_lanes=8, select_fanin=4, input_depth=512, acc_depth=64),
    "tn32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=4, pixel_lanes=1, input_depth=512, acc_depth=64),
    "depthwise": dataclasses.replace(SMALL, depthwise=1),
    "depthwise-4banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, input_depth=256, acc_depth=64, depthwise=1),
    "wired": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, input_depth=256, acc_depth=64),
}


def random_layer(rng: np.random.Generator, config: NpuConfig, channels: int, *, kernel: tuple[int, int],
                 stride: tuple[int, int], pads: tuple[int, int, int, int], tile_rows: int, groups: int = 0,
                 spread: int = 0) -> Layer:
    """A layer whose weights fit ``groups`` steps a block: few enough channels that a lane reaches are not zero."""
    blocks, outputs = -(-channels // config.ic_lanes), config.ic_lanes if spread else config.oc_lanes
    weights = rng.integers(-128, 128, (outputs, blocks * config.ic_lanes, *kernel)).astype(np.int8)
    weights[:, channels:] = 0
    if groups:
        window = config.select_fanin
        keep = groups * config.nnz_lanes * window // config.ic_lanes
        order = rng.random((outputs, weights.shape[1] // window, window, *kernel)).argsort(axis=2)
        weights = np.where((order < keep).reshape(weights.shape), weights, 0).astype(np.int8)
    requantize = Requantize.random(rng, outputs)
    return Layer(weights, stride, pads, int(rng.integers(-128, 128)), requantize, tile_rows, groups, spread)


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


# -- convolution ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("kernel,stride,pads,size", [
    ((1, 1), (1, 1), (0, 0, 0, 0), (4, 6)),
    ((3, 3), (1, 1), (1, 1, 1, 1), (5, 7)),
    ((3, 3), (2, 2), (0, 0, 1, 1), (8, 8)),
    ((2, 5), (3, 3), (1, 2, 0, 3), (7, 11)),
    ((5, 2), (1, 2), (2, 0, 2, 1), (6, 5)),
    ((4, 4), (1, 1), (0, 0, 0, 0), (4, 4)),
])
@pytest.mark.parametrize("indexed", [False, True])
def test_convolution(seed, name, kernel, stride, pads, size, indexed):
    rng, config = np.random.default_rng(seed), CONFIGS[name]
    channels = int(rng.integers(1, 2 * config.ic_lanes + 1))
    groups = int(rng.integers(1, config.groups_dense + 1)) if indexed else 0
    layer = random_layer(rng, config, channels, kernel=kernel, stride=stride, pads=pads, tile_rows=2, groups=groups)
    x = rng.integers(-128, 128, (channels, *size)).astype(np.int8)
    check(config, *place(config, [layer], x))


@pytest.mark.parametrize("name", CONFIGS)
def test_chain_of_layers(seed, name):
    config = dataclasses.replace(CONFIGS[name], oc_lanes=CONFIGS[name].ic_lanes)
    check(config, *chain(seed, config))


def test_more_groups_than_dense_add_up(seed):
    """A weight of 255 as 127 and 128 on two slots of the same channel, in two COMPUTEs on one bank."""
    rng = np.random.default_rng(seed)
    config = dataclasses.replace(SMALL, acc_width=24)
    layer = random_layer(rng, config, 3, kernel=(1, 1), stride=(1, 1), pads=(0, 0, 0, 0), tile_rows=2, groups=2)
    x = rng.integers(-128, 128, (3, 2, 4)).astype(np.int8)
    code, image, start, [(target, _)] = place(config, [layer], x)
    parts = [code[16 * i:16 * i + 16] for i in range(len(code) // 16)]
    compute = next(i for i, part in enumerate(parts) if part[0] & 15 == Opcode.COMPUTE)
    weights = next(i for i, part in enumerate(parts) if part[0] & 15 == Opcode.LOAD_WGT)
    fields = dict(buf_base=0, blocks=1, groups=2, indexed=1)
    parts[compute] = (encode(Instruction(Opcode.COMPUTE, **fields, first=1, wait_load=1))
                      + encode(Instruction(Opcode.COMPUTE, **fields, post_store=1)))
    parts[weights] *= 2
    double = dataclasses.replace(layer, weights=(2 * layer.weights.astype(np.int16)))
    check(config, b"".join(parts), image, start, [(target, double.output(x))])


def test_accumulators_wrap():
    """A sum past the top of an accumulator comes out at its bottom: 200 times 2 * -128 * -128 * 8 needs 27 bits."""
    config = dataclasses.replace(SMALL, acc_width=24, weight_depth=4096)
    requantize = Requantize(np.zeros(8, np.int64), np.full(8, 1 << 16), np.full(8, 32))
    layer = Layer(np.full((8, 8, 16, 16), -128, np.int8), (1, 1), (0, 0, 0, 0), 0, requantize, 1)
    x = np.full((8, 16, 16), -128, np.int8)
    code, image, start, [(target, value)] = place(config, [layer], x)
    run(config, code, image, write_start=start)
    total = 128 * 128 * 8 * 256
    wrapped = (total + (1 << 23)) % (1 << 24) - (1 << 23)
    expected = requantize.apply(np.full((8, 1, 1), wrapped))
    assert expected[0, 0, 0] != value[0, 0, 0]
    np.testing.assert_array_equal(from_blocks(config, image, target, (8, 1, 1)), expected)


# -- pool, residual ------------------------------------------------------------------------------------------------


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
        expected = golden.residual_add(expected, other, *second.values())
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
        # The residual stands behind a load that waits for the POOL.
        side.insert(1, Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=1))
    instructions = [
        Instruction(Opcode.LOAD_SET, cols=size[1], row_pitch=size[1], block_pitch=size[0] * size[1], pad_right=1,
                    pad_value=-7, stride=stride[1], buf_row_pitch=pitch, buf_block_pitch=tall * pitch),
        load, *side,
        Instruction(Opcode.COMPUTE_SET, kernel_h=kernel[0], kernel_w=kernel[1], stride=stride[1], rows=rows, cols=cols,
                    buf_row_pitch=pitch, buf_row_step=stride[0] * pitch, buf_block_pitch=tall * pitch),
        Instruction(Opcode.POOL, blocks=blocks, maximum=int(maximum), wait_load=1, post_load=1),
        Instruction(Opcode.STORE_ADD, **second),
        requantize.set(rows, cols, cols, rows * cols, add=int(add)),
        Instruction(Opcode.STORE, offset=target, blocks=blocks, pooled=1),
        END,
    ]
    return instructions, memory.image(), start, [(target, expected)]


@pytest.mark.parametrize("name", ["px2", "px1", "tn16", "tn32", "depthwise-4banks"])
@pytest.mark.parametrize("maximum", [True, False])
@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("kernel,stride", [((1, 1), (1, 1)), ((3, 2), (2, 2)), ((2, 3), (1, 3)), ((8, 10), (1, 1))])
def test_pool(seed, name, maximum, add, kernel, stride):
    config = CONFIGS[name]
    rng = np.random.default_rng(seed)
    instructions, *rest = pool_program(rng, config, maximum=maximum, add=add, kernel=kernel, stride=stride)
    check(config, assemble(*instructions), *rest)


def test_residual_on_a_convolution(seed):
    """A residual larger than the side ring arrives while the STORE drains it."""
    rng, config = np.random.default_rng(seed), dataclasses.replace(SMALL, acc_depth=512, input_depth=2048)
    layer = random_layer(rng, config, 8, kernel=(1, 1), stride=(1, 1), pads=(0, 0, 0, 0), tile_rows=25)
    x, other = (rng.integers(-128, 128, (8, 25, 25)).astype(np.int8) for _ in range(2))
    second = dict(multiplier_a=131071, multiplier_b=1, constant=(1 << 27) - 1, shift=43, zero_point=-128, low=-128,
                  high=127)
    memory = Memory(config)
    source, residual = memory.put(to_blocks(config, x)), memory.put(to_blocks(config, other))
    target = memory.reserve(625)
    program, _ = layer_program(config, layer, memory, source, (25, 25), target)
    side = next(i for i, instruction in enumerate(program) if instruction.opcode == Opcode.LOAD_SIDE)
    program.insert(side + 1, Instruction(Opcode.LOAD_SIDE, offset=residual, cols=25, rows=25, row_pitch=25))
    program.insert(0, Instruction(Opcode.STORE_ADD, **second))
    at = next(i for i, instruction in enumerate(program) if instruction.opcode == Opcode.STORE_SET)
    program[at] = layer.requantize.set(25, 25, 25, 625, add=1)
    # The residual blocks the load queue until the STORE runs: the STORE must be in its queue by then.
    expected = golden.residual_add(layer.output(x), other, *second.values())
    check(config, assemble(*program, END), memory.image(), 0, [(target, expected)])


# -- errors --------------------------------------------------------------------------------------------------------


def fails(code: ErrorCode, index: int, *instructions: Instruction, config: NpuConfig = SMALL, beats: int = 1024,
          write_start: int = 512, text: str = "") -> np.ndarray:
    memory = np.zeros(beats * config.beat_bytes, np.uint8)
    for order in ORDERS:
        with pytest.raises(MachineError, match=text or None) as caught:
            run(config, assemble(*instructions), memory, write_start=write_start, order=order)
        assert (caught.value.code, caught.value.index) == (code, index)
    return memory


def load_set(**fields: int) -> Instruction:
    defaults = dict(cols=4, row_pitch=4, block_pitch=16, stride=1, buf_row_pitch=2, buf_block_pitch=8)
    return Instruction(Opcode.LOAD_SET, **{**defaults, **fields})


def compute_set(**fields: int) -> Instruction:
    defaults = dict(kernel_h=1, kernel_w=1, stride=1, rows=4, cols=4, buf_row_pitch=2, buf_row_step=2,
                    buf_block_pitch=8)
    return Instruction(Opcode.COMPUTE_SET, **{**defaults, **fields})


def store_set(**fields: int) -> Instruction:
    defaults = dict(rows=4, cols=4, row_pitch=4, block_pitch=16, low=-128, high=127)
    return Instruction(Opcode.STORE_SET, **{**defaults, **fields})


PARAMETERS = Instruction(Opcode.LOAD_SIDE, offset=0, cols=8, rows=1)


@pytest.mark.parametrize("word", [
    0, 15,                                                              # no such operation
    Opcode.END | 1 << 127,                                              # reserved bit
    Opcode.END | 1 << 4,                                                # token flag of another queue
    Opcode.LOAD_WGT,                                                    # no beats
    Opcode.COMPUTE | 1 << HEADER[0].bits + 6,                           # stores on the compute queue
    Opcode.LOAD_ACT | 1 << 60,                                          # a block without rows
    *(int.from_bytes(encode(Instruction(opcode, **fields)), "little") for opcode, fields in [
        (Opcode.LOAD_SET, dict(cols=1, stride=1, post_compute=1)),      # a SET operation with a token
        (Opcode.STORE_ADD, dict(wait_compute=1)),
        (Opcode.POOL, dict(blocks=1, post_store=1)),
    ]),
])
def test_illegal(word):
    code = encode(Instruction(Opcode.SYNC)) + int(word).to_bytes(16, "little") + encode(END)
    with pytest.raises(MachineError) as caught:
        run(SMALL, code, np.zeros(64, np.uint8), write_start=0)
    assert (caught.value.code, caught.value.index) == (ErrorCode.ILLEGAL, 1)


@pytest.mark.parametrize("setter,instruction", [
    ("LOAD_SET", Instruction(Opcode.LOAD_ACT, blocks=1, rows=4)),
    ("LOAD_SET", Instruction(Opcode.LOAD_ACT, blocks=1, pad_top=1)),
    ("COMPUTE_SET", Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)),
    ("COMPUTE_SET", Instruction(Opcode.POOL, blocks=1)),
    ("STORE_SET", Instruction(Opcode.STORE, offset=600, blocks=1)),
])
def test_no_geometry(setter, instruction):
    fails(ErrorCode.ILLEGAL, 0, instruction, END, text=f"no {setter}")


def test_no_end():
    fails(ErrorCode.NO_END, 2, load_set(), Instruction(Opcode.SYNC))
    fails(ErrorCode.NO_END, 0)


@pytest.mark.parametrize("instruction", [
    Instruction(Opcode.LOAD_ACT, offset=1024 - 15, blocks=1, rows=4),
    Instruction(Opcode.LOAD_ACT, offset=1024 - 31, blocks=2, rows=4),
    Instruction(Opcode.LOAD_WGT, offset=1020, beats=5),
    Instruction(Opcode.LOAD_WGT, offset=(1 << 28) - 1, beats=1),
    Instruction(Opcode.LOAD_SIDE, offset=1000, cols=4, rows=3, row_pitch=11),
])
def test_read_range(instruction):
    fails(ErrorCode.READ_RANGE, 1, load_set(), instruction, END)


def test_last_beat_can_be_read():
    memory = np.zeros(1024 * 8, np.uint8)
    code = assemble(load_set(), Instruction(Opcode.LOAD_ACT, offset=1024 - 16, blocks=1, rows=4),
                    Instruction(Opcode.LOAD_WGT, offset=1020, beats=4), END)
    result = run(SMALL, code, memory, write_start=0)
    assert (result.instructions, result.read_beats, result.write_beats) == (4, 20, 0)


@pytest.mark.parametrize("offset,row_pitch,written", [
    (511, 4, 0), (0, 4, 0), (1009, 4, 3), (1021, 4, 0), (600, 200, 3),
])
def test_write_range(offset, row_pitch, written):
    """Rows are written up to the first that is not wholly inside."""
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, post_store=1)
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=2)
    memory = fails(ErrorCode.WRITE_RANGE, 6, PARAMETERS, weights, compute_set(), compute, Instruction(Opcode.SYNC),
                   store_set(row_pitch=row_pitch, low=1),
                   Instruction(Opcode.STORE, offset=offset, blocks=1, wait_compute=1), END)
    expected = np.zeros((1024, 8), np.uint8)
    for row in range(written):
        expected[offset + row * row_pitch:][:4] = 1
    np.testing.assert_array_equal(memory.reshape(-1, 8), expected)


@pytest.mark.parametrize("instructions", [
    [load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4, buf_base=249)],
    [load_set(buf_block_pitch=125), Instruction(Opcode.LOAD_ACT, blocks=3, rows=4)],
    [load_set(pad_right=1), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, buf_base=254)],
    [compute_set(rows=9, cols=15), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)],      # 9 * 8 words
    [store_set(rows=9, cols=15), Instruction(Opcode.STORE, offset=600, blocks=1)],
    [store_set(), Instruction(Opcode.STORE, offset=600, blocks=2)],
])
def test_buffer(instructions):
    fails(ErrorCode.BUFFER, 1, *instructions, END)


def test_buffer_of_windows():
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=4)
    compute = Instruction(Opcode.COMPUTE, buf_base=249, blocks=1, groups=1, first=1)
    fails(ErrorCode.BUFFER, 2, weights, compute_set(), compute, END)
    # Columns 0..2 are in entries 0 and 1; the pixel that nobody wants would be in entry 256 of bank 1.
    odd = compute_set(kernel_w=2, rows=1, cols=3)
    compute = Instruction(Opcode.COMPUTE, buf_base=254, blocks=1, groups=1, first=1)
    fails(ErrorCode.BUFFER, 2, weights, odd, compute, END)
    store = Instruction(Opcode.STORE, offset=600, blocks=1, pooled=1)
    fails(ErrorCode.BUFFER, 4, PARAMETERS, compute_set(), store_set(), store,
          Instruction(Opcode.POOL, buf_base=249, blocks=1), END)


def test_missing_token():
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1)
    fails(ErrorCode.TIMEOUT, 1, compute_set(), compute, END,
          text="compute 1 waits for 1 token.s. of the load queue")


def test_starved_rings():
    compute, store = Instruction(Opcode.COMPUTE, blocks=1, groups=1), Instruction(Opcode.STORE, offset=600, blocks=1)
    pool = Instruction(Opcode.POOL, blocks=1)
    fails(ErrorCode.TIMEOUT, 1, compute_set(), compute, END, text="weights")
    fails(ErrorCode.TIMEOUT, 1, store_set(), store, END, text="channel parameters")
    fails(ErrorCode.TIMEOUT, 0, Instruction(Opcode.LOAD_WGT, offset=0, beats=513), END, text="room in the weight ring")
    fails(ErrorCode.TIMEOUT, 1, compute_set(), pool, END, text="a STORE to take pooled pixels")


def test_full_queue_blocks_the_dispatcher():
    """Loads that wait for a COMPUTE behind them fill their queue, so it is never dispatched."""
    many = [Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=int(i == 0))
            for i in range(SMALL.queue_depth + 2)]
    tail = [compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, post_load=1), END]
    fails(ErrorCode.TIMEOUT, 0, *many, *tail, text="dispatcher waits for room in the load queue")


def test_residual_behind_the_pool_that_waits_for_it(seed):
    """The pool unit cannot run ahead of the residual: it ends only when its last pixel has been added."""
    rng = np.random.default_rng(seed)
    instructions, image, start, _ = pool_program(rng, SMALL, maximum=True, add=True, kernel=(1, 1),
                                                 stride=(1, 1), late_residual=True)
    with pytest.raises(MachineError, match="TIMEOUT"):
        run(SMALL, assemble(*instructions), image, write_start=start)


def test_token_overflow():
    weights = [Instruction(Opcode.LOAD_WGT, offset=0, beats=1, post_compute=1)] * TOKEN_MAXIMUM
    memory = np.zeros(64 * 8, np.uint8)
    run(SMALL, assemble(*weights, END), memory, write_start=0)
    fails(ErrorCode.TOKEN, TOKEN_MAXIMUM, *weights, weights[0], END)


@pytest.mark.parametrize("memory", [
    np.zeros(63, np.uint8), np.zeros(64, np.int8), np.zeros((8, 8), np.uint8), np.zeros(128, np.uint8)[::2],
])
def test_bad_memory(memory):
    with pytest.raises(ValueError, match="memory must be"):
        run(SMALL, assemble(END), memory, write_start=0)


def test_bad_code_and_write_start():
    memory = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        run(SMALL, b"123", memory, write_start=0)
    with pytest.raises(ValueError, match="write_start must be in 0..8"):
        run(SMALL, assemble(END), memory, write_start=9)


# -- hazards -------------------------------------------------------------------------------------------------------


def legal_parameters() -> np.ndarray:
    """A data region of 1024 beats of `SMALL`, zero but for the shifts of the first block's channel parameters."""
    memory = np.zeros((1024, 8), np.uint8)
    memory[:8, 7] = 12
    return memory.ravel()


def hazard(text: str, *instructions: Instruction) -> None:
    for order in ORDERS:
        with pytest.raises(HazardError, match=text):
            run(SMALL, assemble(*instructions, END), legal_parameters(), write_start=512, strict=True, order=order)


def test_never_there():
    weights = Instruction(Opcode.LOAD_WGT, offset=0, beats=2)
    compute = Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)
    act = Instruction(Opcode.LOAD_ACT, blocks=1, rows=4)
    store = Instruction(Opcode.STORE, offset=600, blocks=1)
    hazard("never loaded", weights, compute_set(), compute)
    hazard("accumulators that were never computed", load_set(), act, weights, Instruction(Opcode.SYNC), compute_set(),
           Instruction(Opcode.COMPUTE, blocks=1, groups=1))
    hazard("stores accumulators that were never computed", PARAMETERS, store_set(), store)
    hazard("no STORE_ADD", store_set(add=1), store)


def test_leftovers_and_oddities():
    hazard("1 beats are left in the weight ring", Instruction(Opcode.LOAD_WGT, offset=0, beats=1))
    hazard("8 beats are left in the side ring", PARAMETERS)
    hazard("an input-buffer entry twice", load_set(buf_row_pitch=1), Instruction(Opcode.LOAD_ACT, blocks=1, rows=4))
    hazard("5 groups of a dense block of 4", compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=5, first=1))


def test_every_token_of_a_chain_matters(seed):
    """Without any one of the waits of a correct program, strict mode refuses it in every order."""
    code, image, start, expected = chain(seed)
    check(SMALL, code, image, start, expected)
    dropped = 0
    for at in range(len(code) // 16):
        word = int.from_bytes(code[16 * at:16 * at + 16], "little")
        position = HEADER[0].bits
        for field in HEADER[1:]:
            mask = (1 << field.bits) - 1 << position
            position += field.bits
            if not field.name.startswith(("wait", "stores")) or not word & mask:
                continue
            dropped += 1
            broken = code[:16 * at] + (word & ~mask).to_bytes(16, "little") + code[16 * at + 16:]
            for order in ORDERS:
                with pytest.raises(HazardError):
                    run(SMALL, broken, image.copy(), write_start=start, strict=True, order=order)
    assert dropped > 15


#: A tile of one pixel row, stored to beats 512..515.
ROW = [
    load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, post_compute=1), PARAMETERS,
    Instruction(Opcode.LOAD_WGT, offset=0, beats=2), compute_set(rows=1), store_set(rows=1),
    Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1, post_store=1),
]


def test_load_of_what_is_being_stored():
    store = Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1, post_load=1)
    load = dict(offset=512, blocks=1, rows=1, buf_base=64)
    hazard("which stores what it loads|which loads the memory it overwrites", *ROW, store,
           Instruction(Opcode.LOAD_ACT, **load))
    code = assemble(*ROW, store, Instruction(Opcode.LOAD_ACT, **load, stores=1), END)
    for order in ORDERS:
        run(SMALL, code, legal_parameters(), write_start=512, strict=True, order=order)


def test_read_accumulators_do_not_mean_written_memory():
    """A token that came by way of the compute queue says that the bank was read, not that the data is in memory."""
    second = [
        Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1, post_compute=1),
        Instruction(Opcode.LOAD_WGT, offset=0, beats=2),
        Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_store=1, post_load=1),
    ]
    hazard("which stores what it loads", *ROW, *second,
           Instruction(Opcode.LOAD_ACT, offset=512, blocks=1, rows=1, buf_base=64, wait_compute=1))


def test_too_few_stores_awaited(seed):
    """Taking two of three store tokens lets the next layer begin while the last tile is still under way."""
    code, image, start, _ = chain(seed)
    words = [code[i:i + 16] for i in range(0, len(code), 16)]
    position = sum(field.bits for field in HEADER[:-1])
    at = next(i for i, word in enumerate(words) if int.from_bytes(word, "little") >> position & 255)
    assert int.from_bytes(words[at], "little") >> position & 255 == 3
    words[at] = (int.from_bytes(words[at], "little") - (1 << position)).to_bytes(16, "little")
    for order in ORDERS:
        with pytest.raises(HazardError, match="no token orders it behind"):
            run(SMALL, b"".join(words), image.copy(), write_start=start, strict=True, order=order)
