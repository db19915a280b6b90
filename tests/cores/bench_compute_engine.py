"""Compute engine against plain NumPy: sums of random tiles, windows of the pool unit, tokens, rate and bounds."""

import random
from itertools import product

import cocotb
import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind, WordForm
from cores.arch.rows import RowPass
from cores.compute.compute_engine import ComputeEngine
from sim.rows import exponentials, moments
from tests.bench import bench_parameters
from tests.cores.compute_environment import (
    BANKS,
    CONFIG,
    DN,
    GROUPS,
    PX,
    TM,
    TN,
    W_LIMIT,
    WEIGHT_KINDS,
    X_TYPE,
    Tile,
    beats_of,
    random_weights,
    start,
)
from tests.cores.pins import value_of


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def sums(dut, stall):
    """COMPUTEs of random tiles, alternating banks, some continuing the sums of the one before."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng)
        await environment.fill(tile)
        bank, expected = number % 2, 0
        base = {}
        if CONFIG.winograd:
            base["acc_base"] = int(rng.integers(CONFIG.acc_depth - tile.rows * -(-tile.cols // PX) + 1))
        environment.push(tile.set_instruction())
        parts = int(rng.integers(1, 3))
        for part in range(parts):
            kind = StepKind(rng.choice(WEIGHT_KINDS))
            groups = int(rng.integers(1, CONFIG.groups_dense + 1))
            beats, part_sums = random_weights(rng, tile, kind, groups=groups)
            environment.weights += beats
            expected = expected + part_sums
            environment.push(Instruction(
                Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=groups, kind=kind,
                first=int(part == 0), bank=bank, **base, wait_load=int(part == 0), wait_store=int(part == 0),
                post_load=int(part == parts - 1), post_store=int(part == parts - 1)))
        for _ in range(random.randrange(20)):
            await environment.step()
        assert environment.stores_posted == number, "a COMPUTE ran without its tokens"
        environment.load_level += 1
        for _ in range(random.randrange(20)):
            await environment.step()
        environment.store_level += 1
        await environment.until(lambda count=number + 1: environment.stores_posted == count)
        assert environment.loads_posted == number + 1
        np.testing.assert_array_equal(await environment.read_bank(bank, tile, *base.values()), expected)
        assert not environment.weights and not environment.errors
    await environment.until(lambda: value_of(dut.idle), 100)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6])
async def windows(dut, stall):
    """POOLs, maximum and sum, in the order block, row, column."""
    environment, rng = await start(dut, stall=stall)
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, limit=128)
        await environment.fill(tile)
        maximum = bool(rng.integers(2))
        environment.push(tile.set_instruction())
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=tile.blocks, maximum=int(maximum),
                                     post_load=1))
        taps = [[tile.tap(block, ky, kx) for ky, kx in np.ndindex(*tile.kernel)] for block in range(tile.blocks)]
        reduce = np.max if maximum else np.sum
        expected = np.stack([reduce(np.stack(block), axis=0) for block in taps]).reshape(-1, TN)
        await environment.until(lambda want=expected: len(environment.pooled) >= len(want))
        np.testing.assert_array_equal(np.array(environment.pooled), expected)
        environment.pooled.clear()
        await environment.until(lambda count=number + 1: environment.loads_posted == count, 100)
    await environment.until(lambda: value_of(dut.idle), 100)
    assert not environment.errors and not environment.pooled


@cocotb.test(skip=not CONFIG.rows)
@cocotb.parametrize(stall=[0.0, 0.6])
async def rows(dut, stall):
    """Softmax and normalisations of random tiles, tails of channels and all, with windows between."""
    environment, rng = await start(dut, stall=stall)
    for _ in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, stride=(1, 1), limit=128)
        if tile.rows * tile.cols > CONFIG.rows:
            continue
        channels = int(rng.integers(TN * (tile.blocks - 1) + 1 if rng.random() < 0.7 else 1, TN * tile.blocks + 1))
        if rng.random() < 0.2:
            tile.values[:] = rng.integers(-128, 128)
        scale, zero_point = float(rng.choice([0.003, 0.05, 0.7])), int(rng.integers(-128, 128))
        if kind := rng.integers(3):
            unit = moments(channels, scale, zero_point, 1e-5, centred=bool(kind == 1))[0]
        else:
            unit = exponentials(channels, scale)
            for place, entry in enumerate(unit.table):
                environment.push(Instruction(Opcode.ROWS_TABLE, place=place, entry=int(entry)))
        await environment.fill(tile)
        environment.push(Instruction(Opcode.ROWS_SET, pixels=tile.rows * tile.cols, **unit.fields))
        environment.push(tile.set_instruction(kernel_h=1, kernel_w=1))
        for row_pass in (RowPass.MAXIMUM, RowPass.TOTAL, RowPass.RESULT)[unit.moments:]:
            environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=tile.blocks, row_pass=row_pass))
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1))
        values = np.stack([tile.tap(block, 0, 0).reshape(-1, TN) for block in range(tile.blocks)])
        row = values.transpose(0, 2, 1).reshape(-1, values.shape[1])
        expected = np.zeros(row.shape, np.int64)
        expected[:channels] = unit.of(row[:channels])
        expected = expected.reshape(tile.blocks, TN, -1).transpose(0, 2, 1).reshape(-1, TN)
        expected = np.concatenate([expected, values[0]])
        await environment.until(lambda want=expected: len(environment.pooled) >= len(want))
        np.testing.assert_array_equal(environment.pooled, expected)
        environment.pooled.clear()
    await environment.until(lambda: value_of(dut.idle), 100)
    assert not environment.errors and not environment.pooled


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.6])
async def windows_in_pieces(dut, stall):
    """A window's rows of taps by POOLs of their own, one result for all; whole windows between."""
    environment, rng = await start(dut, stall=stall)
    for _ in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, limit=128)
        await environment.fill(tile)
        maximum, last = int(rng.integers(2)), int(tile.kernel[0]) - 1
        reduce = np.max if maximum else np.sum
        environment.push(tile.set_instruction(kernel_h=1, rows=1, cols=1))
        for ky in range(last + 1):
            environment.push(Instruction(Opcode.POOL, buf_base=tile.base + ky * tile.row_pitch, blocks=1,
                                         maximum=maximum, resume=int(ky > 0), open=int(ky < last)))
        environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1, maximum=maximum))
        rows = [np.stack([tile.tap(0, ky, kx)[0, 0] for kx in range(tile.kernel[1])]) for ky in range(last + 1)]
        await environment.until(lambda: len(environment.pooled) >= 2)
        np.testing.assert_array_equal(environment.pooled, [reduce(np.concatenate(rows), axis=0),
                                                           reduce(rows[0], axis=0)])
        environment.pooled.clear()
    await environment.until(lambda: value_of(dut.idle), 100)
    assert not environment.errors and not environment.pooled


@cocotb.test(skip=not CONFIG.depthwise)
@cocotb.parametrize(form=["spread", "columns", "alternate", "shift"], stall=[0.0, 0.5])
async def spread_words(dut, form, stall):
    """Groups of output lanes on different pixels, windows of taps, and plain COMPUTEs and POOLs between them."""
    if form in ("alternate", "shift") and not CONFIG.groups_alternate:
        return
    environment, rng = await start(dut, stall=stall)
    environment.load_level = environment.store_level = 200
    for _ in range(int(bench_parameters().get("tiles", 8))):
        if form == "spread":
            tile, fields, beats, expected = spread_tile(rng)
        else:
            tile, fields, beats, expected = window_tile(rng, alternate=form != "columns", shift=form == "shift")
        await environment.fill(tile)
        environment.weights += beats
        environment.push(tile.set_instruction(**fields))
        kind = StepKind.INDEXED if form == "spread" else StepKind.WINDOW
        environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=1, kind=kind,
                                     first=1, post_store=1))
        # What follows at once must neither disturb it nor be disturbed.
        after = Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=PX)
        environment.push(after)
        pool = bool(rng.integers(2))
        if pool:
            environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1))
        else:
            weights = rng.integers(-W_LIMIT, W_LIMIT, (TM, DN))
            environment.weights += beats_of(weights.ravel(), CONFIG.weight_bits)
            environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=1, groups=1, first=1, bank=1,
                                         post_store=1))
        await environment.until(lambda: environment.stores_posted + len(environment.pooled) // PX == 2)
        words = await environment.read_words(0, *expected.shape[:2])
        valid = expected != INVALID
        np.testing.assert_array_equal(words[valid], expected[valid])
        inputs = [tile.values[0, 0, column] if column < tile.values.shape[2] else None for column in range(PX)]
        got = np.array(environment.pooled) if pool else (await environment.read_words(1, 1, 1))[0, 0]
        for pixel, x in enumerate(inputs):
            if x is not None and tile.bank_stride == 1:
                want = x.astype(np.int8) if pool else weights @ x[np.arange(DN) * CONFIG.groups_dense].astype(np.int64)
                np.testing.assert_array_equal(got[pixel], want)
        environment.stores_posted = 0
        environment.pooled.clear()
        assert not environment.weights and not environment.errors
    await environment.until(lambda: value_of(dut.idle), 100)


#: Of a window's row in a step.
TAPS = CONFIG.window_taps

#: Marks accumulators that no output pixel belongs to.
INVALID = 1 << 40


def spread_tile(rng: np.random.Generator):
    """A tile of a narrow layer; the groups have weights of their own, which is more than the compiler uses."""
    tile = Tile(rng)
    beats, sums = random_weights(rng, tile, StepKind.INDEXED, groups=1)
    words = -(-tile.cols // BANKS)
    expected = np.full((tile.rows, words, PX, TM), INVALID, np.int64)
    for column in range(tile.cols):
        group, pixel = column % BANKS // PX, column % PX
        lanes = slice(group * TN, (group + 1) * TN)
        expected[:, column // BANKS, pixel, lanes] = sums[lanes, :, column].T
    return tile, {"words": WordForm.SPREAD}, beats, expected


def window_tile(rng: np.random.Generator, *, alternate: bool, shift: bool):
    """A depthwise tile: stride 1, or 2 with ``alternate``; any, in phases, where rows have taps of their own."""
    phases = int(rng.integers(1, 4)) if CONFIG.own_taps else 1
    stride = (2, 2) if alternate else (int(rng.integers(1, 3)), phases)
    while True:
        tile = Tile(rng, blocks=1, stride=stride, bank_stride=phases)
        height, width = (int(k) for k in tile.kernel)
        if not shift or height == 3:
            break
    # The first column of each step's taps, which are ``phases`` apart.
    parts = [kx for kx in range(width) if kx % (TAPS * phases) < phases]
    weights = rng.integers(-W_LIMIT, W_LIMIT, (TN, height, width))
    reach = (tile.cols - 1) * stride[1] // phases + min(TAPS, -(-width // phases))
    words = -(-tile.cols // (PX if alternate else BANKS))
    reads = max(words, -(-reach // BANKS))
    steps = height if not alternate else 4 if shift else height + 2
    beats: list[int] = []
    for ky, first in product(range(steps), parts):
        lanes = np.zeros((GROUPS, TN, DN), np.int64)
        for group in range(GROUPS):
            row = ky
            if alternate and group:
                row = 2 if shift and ky == 0 else ky - 2
            if 0 <= row < height:
                of_step = weights[:, row, first:first + TAPS * phases:phases]
                lanes[group, :, :of_step.shape[1]] = of_step
        beats += beats_of(lanes.ravel(), CONFIG.weight_bits)
    sums = np.zeros((TN, tile.rows, tile.cols), np.int64)
    for ky, kx in np.ndindex(height, width):
        sums += weights[:, ky, kx, None, None] * tile.tap(0, ky, kx).transpose(2, 0, 1)
    pairs = -(-tile.rows // 2) if alternate else tile.rows
    expected = np.full((pairs, words, PX, TM), INVALID, np.int64)
    for row, column in np.ndindex(tile.rows, tile.cols):
        if alternate:
            place, group = (row // 2, column // PX, column % PX), row % 2
        else:
            place, group = (row, column // BANKS, column % PX), column % BANKS // PX
        expected[place][group * TN:(group + 1) * TN] = sums[:, row, column]
    fields = {"kernel_h": steps, "kernel_w": len(parts), "rows": pairs, "reads": reads, "shift": int(shift),
              "words": WordForm.ALTERNATE if alternate else WordForm.SPREAD}
    if alternate:
        fields["buf_row_step"] = 4 * tile.row_pitch
    return tile, fields, beats, expected


@cocotb.test()
async def rate(dut):
    """A word every cycle, across steps and instructions, once weights are there in time."""
    environment, rng = await start(dut, stall=0.0)
    tile = Tile(rng)
    step = max(CONFIG.weight_beats + CONFIG.index_beats, ComputeEngine.min_step(CONFIG))
    tile.kernel, tile.stride, tile.blocks = np.array([2, 2]), np.array([1, 1]), 1
    tile.rows, tile.cols = 2, PX * -(-step // 2)
    height, width = tile.rows + 1, tile.cols + 1
    tile.row_pitch = tile._entries(width)
    tile.block_pitch, tile.base = tile.row_pitch * height, 0
    tile.values = rng.integers(-128, 128, (1, height, width, TN), dtype=X_TYPE)
    tile.zeros = np.zeros((1, height, width, 2), bool)
    await environment.fill(tile)
    environment.push(tile.set_instruction())
    count = 6
    for number in range(count):
        beats, _ = random_weights(rng, tile, StepKind.INDEXED, groups=1)
        environment.weights += beats
        environment.push(Instruction(Opcode.COMPUTE, buf_base=0, blocks=1, groups=1, kind=StepKind.INDEXED, first=1,
                                     bank=number % 2, post_store=1))
    await environment.until(lambda: environment.stores_posted == 1)
    began = environment.cycle
    await environment.until(lambda: environment.stores_posted == count)
    words = tile.rows * tile.cols // PX
    assert environment.cycle - began == (count - 1) * 4 * words


@cocotb.test()
async def bounds(dut):
    """An input-buffer or accumulator address out of bounds is reported with the instruction's index."""
    cases = [(CONFIG.input_depth - 1, 4 * BANKS, 0), (0, PX * (CONFIG.acc_depth + 1), 0)]
    if CONFIG.winograd:
        cases += [(0, PX * 3, CONFIG.acc_depth - 2), (0, 1, (1 << 12) - 1), (0, 1, CONFIG.acc_depth)]
    for base, cols, word in cases:
        environment, _ = await start(dut, stall=0.0)
        environment.push(Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols))
        environment.push(Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, groups=1, first=1,
                                     acc_base=word))
        environment.weights += [0] * CONFIG.weight_beats
        await environment.until(lambda errors=environment.errors: bool(errors), 5000)
        assert environment.errors[0] == (ErrorCode.BUFFER, 1)
