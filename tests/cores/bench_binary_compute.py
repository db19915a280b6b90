"""Binary COMPUTEs against plain NumPy, between ordinary ones, at full rate and with starved weights."""

import cocotb
import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.compute.compute_engine import ComputeEngine
from sim.golden import binary_sums
from tests.bench import bench_parameters
from tests.cores.compute_environment import CONFIG, TM, TN, WEIGHT_KINDS, Environment, Tile, random_weights, start
from tests.cores.pins import value_of

ROWS, BITS = CONFIG.binary_rows, CONFIG.binary_bits


def random_rows(rng: np.random.Generator, tile: Tile):
    """Beats for all steps, and the sums (TM, rows, cols) that they make."""
    beats: list[int] = []
    sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
    bits = np.unpackbits(tile.values.view(np.uint8), axis=-1, bitorder="little")
    down, right = (int(s) for s in tile.stride)
    for block, ky, kx in np.ndindex(tile.blocks, *tile.kernel):
        taps = slice(ky, ky + down * tile.rows, down), slice(kx, kx + right * tile.cols, right)
        x, zeros = bits[block][taps], tile.zeros[block][taps]
        weights = rng.integers(0, 2, (TM, BITS), dtype=np.uint8)
        # Rows that agree with a pixel everywhere, nowhere, or in all but one bit.
        pixel = x[rng.integers(tile.rows), rng.integers(tile.cols)]
        weights[rng.integers(TM)], weights[rng.integers(TM)] = pixel, 1 - pixel
        weights[rng.integers(TM)] = pixel ^ (np.arange(BITS) == rng.integers(BITS))
        beats += [int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little") for row in weights]
        sums += binary_sums(x, weights, zeros).transpose(2, 0, 1)
    return beats, sums


async def compute(environment: Environment, rng: np.random.Generator, tile: Tile, *, binary: bool, **fields: int):
    """Push a COMPUTE of the tile with random weights, of bits or of any other kind; its sums."""
    kind = StepKind.BINARY if binary else StepKind(rng.choice(WEIGHT_KINDS))
    if binary:
        groups = CONFIG.binary_groups
        beats, sums = random_rows(rng, tile)
    else:
        groups = int(rng.integers(1, CONFIG.groups_dense + 1))
        beats, sums = random_weights(rng, tile, kind, groups=groups)
    environment.weights += beats
    environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=groups, kind=kind,
                                 **fields))
    return sums


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def counts(dut, stall):
    """Random tiles; binary and ordinary COMPUTEs follow each other at once and continue each other's sums."""
    environment, rng = await start(dut, stall=stall)
    environment.load_level = environment.store_level = 200
    for number in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng)
        await environment.fill(tile)
        environment.push(tile.set_instruction())
        parts = [bool(binary) for binary in rng.integers(0, 2, int(rng.integers(1, 4)))]
        expected, last = 0, number % 3 != 1
        if CONFIG.binary_engine:    # each engine has its own sums
            parts = [last] * len(parts)
        for part, binary in enumerate([*parts, last]):
            expected = expected + await compute(
                environment, rng, tile, binary=binary, first=int(part == 0), bank=number % 2, wait_load=1, wait_store=1,
                post_load=1, post_store=int(part == len(parts)))
        await environment.until(lambda count=number + 1: environment.stores_posted == count)
        np.testing.assert_array_equal(await environment.read_bank(number % 2, tile), expected)
        assert not environment.weights and not environment.errors
    await environment.until(lambda: value_of(dut.idle), 100)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def turns(dut, stall):
    """Binary and other COMPUTEs and POOLs in turn, all in the queue at once; a bank keeps its sums until its token."""
    environment, rng = await start(dut, stall=stall)
    for _ in range(int(bench_parameters().get("tiles", 8))):
        tile = Tile(rng, limit=128)
        await environment.fill(tile)
        most = np.max([tile.tap(0, ky, kx) for ky, kx in np.ndindex(*tile.kernel)], axis=0).reshape(-1, TN)
        environment.push(tile.set_instruction())
        expected, windows = [], 0
        for number in range(4):
            expected.append(await compute(environment, rng, tile, binary=bool(rng.integers(2)), first=1,
                                          bank=number % 2, wait_store=1, post_store=1))
            if rng.integers(3) == 0:
                environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1, maximum=1))
                windows += 1
            if rng.integers(3) == 0:
                environment.push(tile.set_instruction())
        for half in range(2):
            environment.stores_posted, environment.store_level = 0, 2
            await environment.until(lambda: environment.stores_posted == 2)
            for _ in range(int(rng.integers(1, 60))):
                await environment.step()
            assert environment.stores_posted == 2, "a COMPUTE ran without its token"
            for bank in range(2):
                np.testing.assert_array_equal(await environment.read_bank(bank, tile), expected[2 * half + bank])
        await environment.until(lambda: value_of(dut.idle) and not environment.queue)
        np.testing.assert_array_equal(np.array(environment.pooled).reshape(-1, TN), np.tile(most, (windows, 1)))
        environment.pooled.clear()
        assert not environment.weights and not environment.errors


@cocotb.test()
async def rate(dut):
    """A word every cycle, once a step has as many words as it takes to gather the next one's rows."""
    environment, rng = await start(dut, stall=0.0)
    step = max(ROWS, ComputeEngine.min_step(CONFIG))
    cycles = {}
    for words in (step, step - 3):
        tile = Tile.line(rng, words)
        await environment.fill(tile)
        environment.push(tile.set_instruction())
        posted = environment.stores_posted
        for bank in range(3):
            await compute(environment, rng, tile, binary=True, first=1, bank=bank % 2, post_store=1)
        await environment.until(lambda count=posted + 1: environment.stores_posted == count)
        began = environment.cycle
        await environment.until(lambda count=posted + 3: environment.stores_posted == count)
        cycles[words] = environment.cycle - began
    steps = 2 * 4 * CONFIG.binary_groups
    assert cycles[step] == steps * step
    assert cycles[step - 3] == steps * step
