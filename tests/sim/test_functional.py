"""The functional simulator against direct computation."""

import dataclasses

import numpy as np
import pytest

from cores.arch.instruction import Instruction, decode, encode
from cores.arch.isa import Opcode, StepKind
from sim.functional import run
from sim.store_operations import residual_add

from .cases import (
    CONFIGS,
    SMALL,
    chain,
    check,
    place,
    pool_program,
    random_layer,
)
from .programs import END, Layer, Memory, Requantize, assemble, from_blocks, layer_program, to_blocks

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
    compute = next(i for i, part in enumerate(parts) if decode(part).opcode == Opcode.COMPUTE)
    weights = next(i for i, part in enumerate(parts) if decode(part).opcode == Opcode.LOAD_WGT)
    fields = dict(buf_base=0, blocks=1, groups=2, kind=StepKind.INDEXED)
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
    at = next(i for i, instruction in enumerate(program) if instruction.opcode == Opcode.STORE_REQUANT)
    program.insert(at + 1, Instruction(Opcode.STORE_ADD, **second))
    # The residual blocks the load queue until the STORE runs: the STORE must be in its queue by then.
    expected = residual_add(layer.output(x), other, *second.values())
    check(config, assemble(*program, END), memory.image(), 0, [(target, expected)])
