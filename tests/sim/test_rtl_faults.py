"""What goes wrong on the generated Verilog: bus errors, damaged programs, aborts.

The machine stops, writes nothing that it may not, leaves no burst unfinished, and the next program runs as before.
"""

import random
from functools import partial

import numpy as np
import pytest

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.registers import Status
from cores.config import NpuConfig
from sim import functional
from sim.errors import MachineError
from sim.rtl import Bus, BusFault, Driver, DriverError, ProtocolError, RtlMachine, run_program
from sim.rtl.machine import RunStatus
from tests.compiled import compile_random, random_image
from tests.errors import raises
from tests.random_layers import random_graph, random_inputs

from .cases import PARAMETERS, compute_set, load_set, requant, store_set
from .on_rtl import machines, random_bus
from .programs import END, assemble

CONFIG = NpuConfig.preset(16)
#: Cycles a machine may take to stop once it is told to: bursts under way, with the slowest bus of `random_bus`.
STOPPING = 100_000

machine = machines({"16": CONFIG})


class Workload:
    """A random program that works, to damage and to run again."""

    def __init__(self, machine: RtlMachine, seed: int) -> None:
        self.machine, self.chance = machine, random.Random(seed)
        self.program, graph = compile_random(CONFIG, seed, max_size=10, make=partial(random_graph, max_channels=40))
        self.image = random_image(self.program, random_inputs(graph, seed), seed)
        machine.set_bus(Bus())
        self.good = self.run()

    def run(self, code: bytes | None = None, *, faults: tuple[BusFault, ...] = (), **options):
        self.machine.set_faults(*faults)
        return run_program(self.machine, code or self.program.code, self.image, write_start=self.program.write_start,
                           **options)

    def check_still_works(self) -> None:
        self.machine.set_bus(Bus())
        again = self.run()
        np.testing.assert_array_equal(again.image, self.good.image)
        assert again.cycles == self.good.cycles, "something was left over"


def check_bus_error(machine: RtlMachine, seed: int) -> None:
    work = Workload(machine, seed)
    chance = work.chance
    write, response = chance.random() < 0.5, chance.choice([AxiResponse.SLVERR, AxiResponse.DECERR])
    bursts = work.good.stats.write_bursts if write else work.good.stats.read_bursts
    machine.set_bus(random_bus(chance))
    with pytest.raises(MachineError) as caught:
        work.run(faults=(BusFault(write=write, response=response, burst=chance.randrange(bursts)),))
    assert caught.value.cause is ErrorCode[f"{'WRITE' if write else 'READ'}_{response.name}"]
    assert caught.value.index <= len(work.program.instructions)
    work.check_still_works()


def stop(machine: RtlMachine) -> None:
    driver = Driver(machine, CONFIG)
    driver.abort()
    for _ in range(STOPPING // 100):
        if Status.BUSY not in driver.status():
            break
        machine.run(100)
    assert driver.status() == Status(0), "an abort is neither done nor an error"
    assert machine.stats.in_flight == 0, "bursts are under way after an abort"


def check_damaged_program(machine: RtlMachine, seed: int) -> None:
    work = Workload(machine, seed)
    code = np.frombuffer(work.program.code, np.uint8).copy()
    for _ in range(work.chance.randint(1, 3)):
        code[work.chance.randrange(code.size)] ^= 1 << work.chance.randrange(8)
    machine.set_bus(random_bus(work.chance))
    try:
        work.run(code.tobytes(), timeout=5000, limit=100_000)
    except MachineError as error:
        assert error.index <= len(work.program.instructions)
    except ProtocolError as error:
        assert error.code == "not-done"  # damage can ask for a billion cycles of work
        stop(machine)
        assert machine.stats.stray_writes == 0
    work.check_still_works()


@pytest.mark.parametrize("number", range(10))
def test_bus_errors(machine, seed, number):
    check_bus_error(machine, seed + number)


@pytest.mark.parametrize("number", range(20))
def test_damaged_programs(machine, seed, number):
    check_damaged_program(machine, seed + number)


@pytest.mark.parametrize("number", range(5))
def test_abort(machine, seed, number):
    work = Workload(machine, seed + number)
    machine.set_bus(random_bus(work.chance))
    with raises(ProtocolError, "not-done"):
        work.run(limit=work.chance.randrange(1, work.good.cycles // 2))
    stop(machine)
    assert machine.stats.stray_writes == 0
    work.check_still_works()


@pytest.mark.parametrize("clears", [False, True])
def test_late_answers_raise_no_second_interrupt(machine, seed, clears):
    """Silence, TIMEOUT, CLEAR or not, then all that the memory owed."""
    work = Workload(machine, seed)
    machine.set_bus(Bus(latency=3000))
    if clears:
        with pytest.raises(MachineError, match=r"TIMEOUT .* waits for the bus.*; the memory has not answered \d+ bur"):
            work.run(timeout=500)   # CLEARs on its way out
    else:
        with raises(ProtocolError, "not-done"):
            work.run(timeout=500, limit=600)
        assert machine.run(2000) is RunStatus.INTERRUPT
    driver = Driver(machine, CONFIG)
    assert driver.status() == Status.BUSY | (Status(0) if clears else Status.ERROR)
    with raises(DriverError, "device-busy"):
        work.run()
    if clears:
        assert machine.run(10_000) is RunStatus.LIMIT, "a second interrupt"
    else:
        for _ in range(STOPPING):   # `run` returns at once while the interrupt is up; accesses take time too
            if Status.BUSY not in driver.status():
                break
    assert machine.stats.in_flight == 0 and machine.stats.stray_writes == 0
    assert driver.status() == (Status(0) if clears else Status.ERROR)
    assert driver.read("error_code") == (ErrorCode.NONE if clears else ErrorCode.TIMEOUT)
    work.check_still_works()


def test_abort_on_a_silent_bus_is_a_timeout(machine, seed):
    work = Workload(machine, seed)
    machine.set_bus(Bus(latency=3000))
    with raises(ProtocolError, "not-done"):
        work.run(timeout=500, limit=100)
    driver = Driver(machine, CONFIG)
    driver.abort()
    assert machine.run(1000) is RunStatus.INTERRUPT
    assert driver.status() == Status.BUSY | Status.ERROR
    with pytest.raises(MachineError, match="TIMEOUT"):
        driver.finish()
    assert machine.run(10_000) is RunStatus.LIMIT and driver.status() == Status(0)
    work.check_still_works()


@pytest.mark.parametrize("instructions", [
    [Instruction(Opcode.LOAD_WGT, beats=1), Instruction(Opcode.LOAD_WGT, beats=1, wait_compute=1)],
    [Instruction(Opcode.LOAD_WGT, beats=1), load_set(), Instruction(Opcode.LOAD_ACT, blocks=1, rows=1, stores=3)],
    [compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1)],
    [compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_store=1)],
    [compute_set(), Instruction(Opcode.POOL, blocks=1)],            # as many windows as the pool unit keeps
    [compute_set(rows=5), Instruction(Opcode.POOL, blocks=1)],      # more
    [compute_set(rows=1), Instruction(Opcode.POOL, blocks=1)],      # fewer
    [store_set(), requant(), Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1)],
    [Instruction(Opcode.LOAD_WGT, beats=1, wait_compute=1), Instruction(Opcode.LOAD_WGT, beats=1),
     compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1, wait_load=1),
     store_set(), requant(), Instruction(Opcode.STORE, offset=512, blocks=1, wait_compute=1),
     Instruction(Opcode.SYNC)],
])
def test_a_deadlock_names_what_each_queue_lacks(machine, instructions):
    """In the words of the functional simulator, which finds the same."""
    code, image = assemble(*instructions, END), np.zeros(1024 * CONFIG.beat_bytes, np.uint8)
    machine.set_bus(Bus())
    with pytest.raises(MachineError, match="nothing can move: ") as expected:
        functional.run(CONFIG, code, image.copy(), write_start=512)
    with pytest.raises(MachineError) as found:
        run_program(machine, code, image, write_start=512, timeout=500)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("instructions, reason", [
    ([Instruction(Opcode.LOAD_WGT, beats=1, wait_compute=1)] + 40 * [Instruction(Opcode.LOAD_WGT, beats=1)],
     r"dispatcher waits for room in the load queue \(instruction \d+\); load 0 waits for 1 token"),
    ([Instruction(Opcode.LOAD_WGT, beats=CONFIG.weight_depth + 10)], "load 0 waits for room in the weight ring"),
    ([load_set(cols=1), Instruction(Opcode.LOAD_SIDE, cols=1, rows=CONFIG.side_depth + 10)],
     "load 1 waits for room in the side ring"),
    ([compute_set(), Instruction(Opcode.COMPUTE, blocks=1, groups=1, first=1)], "compute 1 waits for weights"),
    ([store_set(), requant(), Instruction(Opcode.STORE, offset=512, blocks=1)], "store 2 waits for channel parameters"),
    ([store_set(), requant(), Instruction(Opcode.STORE, offset=512, blocks=1, pooled=1), PARAMETERS],
     "store 2 waits for the pool unit"),
])
def test_a_starved_engine_names_what_it_lacks(machine, instructions, reason):
    image = np.zeros(2048 * CONFIG.beat_bytes, np.uint8)
    machine.set_bus(Bus())
    with pytest.raises(MachineError, match=f"TIMEOUT .*{reason}"):
        run_program(machine, assemble(*instructions, END), image, write_start=512, timeout=500)


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_faults(machine, seed, part):
    for number in range(20):
        check_bus_error(machine, seed + number)
        check_damaged_program(machine, seed + number)
