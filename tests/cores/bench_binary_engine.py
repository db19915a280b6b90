"""Binary engine against the golden model: sums in both banks, which of them it is at, rate, bounds, halt, reset."""

import random
from types import SimpleNamespace

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, StepKind
from cores.compute.compute_engine import ComputeEngine
from tests.cores.bench_binary_compute import compute
from tests.cores.compute_environment import CONFIG, PX, TN, Environment, Tile
from tests.cores.pins import value_of


class Engine:
    """The engine as `Environment` wants it, with the port of a pool unit that it drives."""

    pooled__ready = SimpleNamespace(value=0)

    def __init__(self, dut):
        self._dut = dut

    def __getattr__(self, name: str):
        return getattr(self._dut, name)


class Bench(Environment):
    """Counts the words computed into each bank; a COMPUTE is ``due`` to post, and before it has the engine is not idle.
    """

    def __init__(self, dut, *, stall: float):
        super().__init__(Engine(dut), stall=stall)
        self.computed = [0, 0]
        self.due = 0

    def sample(self, port: str) -> int:
        return 0 if port == "pooled__valid" else super().sample(port)

    async def step(self):
        left = bool(self.queue)
        await super().step()
        # Here the edge after the cycle that was seen has just come; its outputs are still to be read.
        for bank in range(2):
            self.computed[bank] += value_of(self.dut.computed) >> bank & 1
        assert left or self.stores_posted >= self.due or not value_of(self.dut.idle)


async def start(dut, *, stall: float) -> tuple[Bench, np.random.Generator]:
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    bench = Bench(dut, stall=stall)
    await bench.reset()
    return bench, np.random.default_rng(random.getrandbits(32))


async def one_tile(bench: Bench, rng: np.random.Generator, bank: int) -> None:
    """COMPUTEs that go on with each other's sums."""
    tile = Tile(rng)
    await bench.fill(tile)
    bench.push(tile.set_instruction())
    parts = int(rng.integers(1, 4))
    bench.load_level, bench.store_level, bench.loads_posted, bench.stores_posted = 1, 1, 0, 0
    bench.computed, bench.due = [0, 0], 1
    expected = 0
    for part in range(parts):
        last = int(part == parts - 1)
        expected = expected + await compute(bench, rng, tile, binary=True, first=int(part == 0), bank=bank,
                                            wait_load=int(part == 0), wait_store=int(part == 0), post_load=last,
                                            post_store=last)
    await bench.until(lambda: bench.stores_posted == 1)
    assert bench.loads_posted == 1 and not bench.weights and not bench.errors
    words = parts * tile.blocks * int(tile.kernel.prod()) * CONFIG.binary_groups * tile.rows * -(-tile.cols // PX)
    assert bench.computed == [words * (bank == number) for number in range(2)]
    np.testing.assert_array_equal(await bench.read_bank(bank, tile), expected)


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def counts(dut, stall):
    bench, rng = await start(dut, stall=stall)
    for number in range(6):
        await one_tile(bench, rng, number % 2)
    await bench.until(lambda: value_of(dut.idle), 100)


@cocotb.test()
async def rate(dut):
    """As `ComputeEngine`: a word every cycle if a step has as many as its rows take to arrive, else as long as these
    take."""
    bench, rng = await start(dut, stall=0.0)
    step = max(CONFIG.binary_rows, ComputeEngine.min_step(CONFIG))
    for words in (step + 3, step, 1):
        tile = Tile(rng, blocks=1, stride=(1, 1), bank_stride=1)
        tile.kernel, tile.rows, tile.cols, tile.base = np.array([1, 1]), 1, words * PX, 0
        tile.values = rng.integers(-128, 128, (1, 1, tile.cols, TN), dtype=np.int8)
        tile.zeros = np.zeros((*tile.values.shape[:3], 2), bool)
        await bench.fill(tile)
        bench.push(tile.set_instruction())
        for bank in range(4):
            await compute(bench, rng, tile, binary=True, first=1, bank=bank % 2, post_store=1)
        bench.stores_posted = 0
        await bench.until(lambda: bench.stores_posted == 1)
        began = bench.cycle
        await bench.until(lambda: bench.stores_posted == 4)
        assert bench.cycle - began == 3 * CONFIG.binary_groups * max(words, step)


@cocotb.test()
async def bounds(dut):
    """An address beyond the input buffer or the accumulators, a COMPUTE without a COMPUTE_SET: with its index."""
    for base, cols, code in ((CONFIG.input_depth - 1, 4 * CONFIG.banks, ErrorCode.BUFFER),
                             (0, PX * (CONFIG.acc_depth + 1), ErrorCode.BUFFER), (0, 0, ErrorCode.ILLEGAL)):
        bench, _ = await start(dut, stall=0.0)
        bench.index = 5
        if cols:
            bench.push(Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=cols))
        index = bench.index
        bench.push(Instruction(Opcode.COMPUTE, buf_base=base, blocks=1, groups=CONFIG.binary_groups, first=1,
                               kind=StepKind.BINARY))
        bench.weights += [0] * CONFIG.oc_lanes
        await bench.until(lambda errors=bench.errors: bool(errors), 5000)
        assert bench.errors[0] == (code, index)


@cocotb.test()
async def reset_in_mid_stream(dut):
    """After any number of cycles; and what is halted takes no further instruction."""
    for cycles in (20, 57, 130, 200):
        bench, rng = await start(dut, stall=0.2)
        tile = Tile(rng)
        await bench.fill(tile)
        bench.push(tile.set_instruction())
        for bank in range(2):
            await compute(bench, rng, tile, binary=True, first=1, bank=bank, post_store=1)
        for _ in range(cycles):
            await bench.step()
        bench, rng = await start(dut, stall=0.0)
        await ClockCycles(dut.clk, 10)
        assert value_of(dut.idle)
        await one_tile(bench, rng, 1)
    tile = Tile(rng)
    bench.push(tile.set_instruction())
    bench.stores_posted = bench.due = 0
    for bank in range(6):
        await compute(bench, rng, tile, binary=True, first=1, bank=bank % 2, post_store=1)
    await bench.until(lambda: bench.stores_posted == 1)
    dut.halt.value = 1
    for _ in range(4000):
        await bench.step()
    assert bench.stores_posted <= 2 and len(bench.queue) >= 2
