"""Stochastic COMPUTEs against the golden model, between others, at full rate and with starved weights."""

import cocotb
import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.compute.compute_engine import ComputeEngine
from sim.stochastic.fast import accumulate
from sim.stochastic.streams import Streams
from tests.bench import bench_parameters
from tests.cores.compute_environment import CONFIG, PX, TM, TN, WEIGHT_KINDS, Environment, Tile, random_weights, start
from tests.cores.pins import value_of
from tests.cores.stochastic_values import random_streams, random_values

if CONFIG.binary_rows:
    from tests.cores.bench_binary_compute import random_rows as binary_rows

ROWS, BITS = CONFIG.stochastic_rows, CONFIG.stochastic_bits
#: Cycles that a stochastic COMPUTE may take here.
_MOST_CYCLES = 4000


def random_rows(rng: np.random.Generator, tile: Tile, streams: Streams):
    """Beats for all steps, and the sums (TM, rows, cols) that they make."""
    beats: list[int] = []
    sums = np.zeros((TM, tile.rows, tile.cols), np.int64)
    for block, ky, kx in np.ndindex(tile.blocks, *tile.kernel):
        x = tile.tap(block, ky, kx).reshape(-1, TN)
        weights = random_values(rng, (TM, TN))
        beats += [int.from_bytes(row.tobytes(), "little") for row in weights]
        made = accumulate(CONFIG.circuit, x, weights, streams, fan_in=TN)
        sums += made.T.reshape(sums.shape)
    return beats, sums


def steps_of(tile: Tile) -> int:
    return tile.blocks * int(np.prod(tile.kernel)) * CONFIG.stochastic_groups


def words_of(tile: Tile) -> int:
    return tile.rows * -(-tile.cols // PX)


def small_tile(rng: np.random.Generator) -> Tile:
    """One whose streams can be of 64 bits at least."""
    while True:
        tile = Tile(rng)
        if steps_of(tile) * words_of(tile) * 64 // BITS <= _MOST_CYCLES:
            return tile


async def compute(environment: Environment, rng: np.random.Generator, tile: Tile, kind: StepKind, **fields: int):
    """Push a COMPUTE of the tile with random weights; its sums."""
    if kind == StepKind.STOCHASTIC:
        most = _MOST_CYCLES * BITS // (steps_of(tile) * words_of(tile))
        streams = random_streams(rng, most=1 << max(3, most.bit_length() - 1))
        beats, sums = random_rows(rng, tile, streams.shortened(environment.stream_shift))
        groups, fields = CONFIG.stochastic_groups, fields | streams.fields
    elif kind == StepKind.BINARY:
        groups = CONFIG.binary_groups
        beats, sums = binary_rows(rng, tile)
    else:
        groups = int(rng.integers(1, CONFIG.groups_dense + 1))
        beats, sums = random_weights(rng, tile, kind, groups=groups)
    environment.weights += beats
    environment.push(Instruction(Opcode.COMPUTE, buf_base=tile.base, blocks=tile.blocks, groups=groups, kind=kind,
                                 **fields))
    return sums


async def begin(dut, *, stall: float, shift: int = 0) -> tuple[Environment, np.random.Generator]:
    environment, rng = await start(dut, stall=stall)
    environment.stream_shift = shift
    dut.stream_shift.value = shift
    return environment, rng


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5], shift=[0, 2])
async def sums(dut, stall, shift):
    """Random tiles; stochastic and other COMPUTEs follow each other at once and continue each other's sums."""
    environment, rng = await begin(dut, stall=stall, shift=shift)
    environment.load_level = environment.store_level = 200
    # Each unit is as likely as the others; the array has two kinds.
    kinds = [*[StepKind.STOCHASTIC] * 2, *WEIGHT_KINDS, *[StepKind.BINARY] * (2 if CONFIG.binary_rows else 0)]
    for number in range(int(bench_parameters().get("tiles", 4))):
        tile = small_tile(rng)
        await environment.fill(tile)
        environment.push(tile.set_instruction())
        parts = [StepKind.STOCHASTIC, *map(StepKind, rng.choice(kinds, int(rng.integers(0, 3))))]
        rng.shuffle(parts)
        expected, windows = 0, 0
        for part, kind in enumerate(parts):
            expected = expected + await compute(
                environment, rng, tile, kind, first=int(part == 0), bank=number % 2, wait_load=1, wait_store=1,
                post_load=1, post_store=int(part == len(parts) - 1))
            if rng.integers(4) == 0:
                environment.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1, maximum=1))
                windows += tile.rows * tile.cols
        await environment.until(lambda count=number + 1: environment.stores_posted == count)
        await environment.until(lambda count=windows: len(environment.pooled) == count)
        np.testing.assert_array_equal(await environment.read_bank(number % 2, tile), expected)
        environment.pooled.clear()
        assert not environment.weights and not environment.errors
    await environment.until(lambda: value_of(dut.idle), 100)


@cocotb.test()
async def rate(dut):
    """A word every made / bits cycles, across steps and instructions, once weights are there in time."""
    environment, rng = await begin(dut, stall=0.0)
    streams = Streams(8 * BITS)
    words = -(-max(ROWS + ComputeEngine.handover(CONFIG, StepKind.STOCHASTIC), ComputeEngine.min_step(CONFIG)) // 8)
    tile = Tile.line(rng, words)
    await environment.fill(tile)
    environment.push(tile.set_instruction())
    for bank in range(3):
        beats, _ = random_rows(rng, tile, streams)
        environment.weights += beats
        environment.push(Instruction(Opcode.COMPUTE, buf_base=0, blocks=1, groups=CONFIG.stochastic_groups, first=1,
                                     kind=StepKind.STOCHASTIC, bank=bank % 2, post_store=1, **streams.fields))
    await environment.until(lambda: environment.stores_posted == 1)
    began = environment.cycle
    await environment.until(lambda: environment.stores_posted == 3)
    assert environment.cycle - began == 2 * steps_of(tile) * words * 8
