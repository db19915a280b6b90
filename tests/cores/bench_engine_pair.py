"""Engine pair: what it reports, errors of either engine, halt, reset; sums and order are bench_binary_compute's."""

import random

import cocotb
import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.arch.registers import ENGINE_STATES
from cores.compute.compute_engine import ComputeEngine
from cores.compute.engine_pair import EnginePair
from tests.cores.bench_binary_compute import compute
from tests.cores.compute_environment import CONFIG, PX, Environment, Tile, start
from tests.cores.pins import value_of

BUSY, IDLE = (ENGINE_STATES["compute"].index(state) for state in ("busy", "idle"))

#: Cycles until an instruction is seen: the pair looks at it, an engine reports it, and the pair that.
LATE = EnginePair.LATENCY + ComputeEngine.REPORT + 1


class Watched(Environment):
    """Notes which instructions are at work, in order, and that the pair is idle only when nothing is left to do."""

    def __init__(self, dut, *, stall: float):
        super().__init__(dut, stall=stall)
        self.busy: list[int] = []
        self.due = 0                    # COMPUTEs pushed that post
        self.unseen = 0                 # for how many cycles one has waited while the pair seems idle

    async def step(self):
        left = bool(self.queue)
        await super().step()
        # Here the edge after the cycle that was seen has just come; its outputs are still to be read.
        state = self.sample("state")
        waits = (state == IDLE and self.driven["queue__valid"] and not self.sample("queue__ready")
                 and not self.sample("halt"))
        self.unseen = self.unseen + 1 if waits else 0
        assert self.unseen <= LATE, "an instruction waits, and none is seen"
        if state == BUSY and (not self.busy or self.busy[-1] != self.sample("index")):
            self.busy.append(self.sample("index"))
        if not left and self.stores_posted < self.due:
            assert not self.sample("idle"), f"{self.stores_posted} of {self.due} done"


async def begin(dut, *, stall: float) -> tuple[Watched, np.random.Generator]:
    _, rng = await start(dut, stall=stall)
    return Watched(dut, stall=stall), rng


async def program(bench: Watched, rng: np.random.Generator, tile: Tile, count: int) -> tuple[list[int], list]:
    """COMPUTEs on either engine and POOLs: the indices of all that works, and the last sums of each bank."""
    await bench.fill(tile)
    bench.push(tile.set_instruction())
    indices, expected = [], [None, None]
    for number in range(count):
        indices.append(bench.index)
        expected[number % 2] = await compute(bench, rng, tile, binary=bool(rng.integers(2)), first=1, bank=number % 2,
                                             post_store=1)
        bench.due += 1
        if rng.integers(3) == 0:
            indices.append(bench.index)
            bench.push(Instruction(Opcode.POOL, buf_base=tile.base, blocks=1, maximum=1))
        if rng.integers(3) == 0:
            bench.push(tile.set_instruction())
    return indices, expected


async def finish(bench: Watched, tile: Tile, expected: list) -> None:
    await bench.until(lambda: bench.stores_posted == bench.due and not bench.queue)
    await bench.step()
    await bench.step()
    await bench.until(lambda: value_of(bench.dut.idle))
    for bank in range(2):
        np.testing.assert_array_equal(await bench.read_bank(bank, tile), expected[bank])
    assert not bench.errors and not bench.weights


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4])
async def report(dut, stall):
    """Every instruction is seen at work, in order, and the pair is not idle before."""
    bench, rng = await begin(dut, stall=stall)
    for _ in range(4):
        tile = Tile(rng, limit=128)
        bench.busy.clear()
        indices, expected = await program(bench, rng, tile, 8)
        await finish(bench, tile, expected)
        assert bench.busy == indices


@cocotb.test()
async def errors(dut):
    """Of either engine: with its instruction's index, after one of the other engine."""
    for kind in (StepKind.DENSE, StepKind.BINARY):
        binary = kind == StepKind.BINARY
        for base, cols in ((CONFIG.input_depth - 1, 4 * CONFIG.banks), (0, PX * (CONFIG.acc_depth + 1))):
            bench, rng = await begin(dut, stall=0.0)
            tile = Tile(rng)
            bench.push(tile.set_instruction())
            await compute(bench, rng, tile, binary=not binary, first=1)
            bench.push(Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols))
            index = bench.index
            bench.push(Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, first=1, kind=kind,
                                   groups=CONFIG.binary_groups if binary else 1))
            bench.weights += [0] * (CONFIG.oc_lanes if binary else CONFIG.weight_beats)
            await bench.until(lambda errors=bench.errors: bool(errors))
            assert set(bench.errors) == {(ErrorCode.BUFFER, index)}


@cocotb.test()
async def halted_and_reset(dut):
    """What runs is finished and no more is begun, on either engine; a reset at any time leaves nothing behind."""
    for number in range(6):
        bench, rng = await begin(dut, stall=0.2)
        tile = Tile(rng, limit=128)
        indices, _ = await program(bench, rng, tile, 8)
        for _ in range(random.randrange(20, 400)):
            await bench.step()
        if number % 2:
            dut.halt.value = 1
            await bench.step()
            running = len(bench.busy)
            for _ in range(3000):
                await bench.step()
            assert bench.busy == indices[:len(bench.busy)] and len(bench.busy) <= running + 1
        bench, rng = await begin(dut, stall=0.0)
        _, expected = await program(bench, rng, tile, 3)
        await finish(bench, tile, expected)
