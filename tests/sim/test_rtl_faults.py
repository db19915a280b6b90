"""What goes wrong on the generated Verilog: bus errors, damaged programs, aborts.

The machine stops, writes nothing that it may not, leaves no burst unfinished, and the next program runs as before.
"""

import random

import numpy as np
import pytest

from cores.axi import AxiResponse
from cores.config import NpuConfig
from cores.isa import ErrorCode
from cores.registers import Status
from gen.random_layers import random_inputs
from sim.errors import MachineError
from sim.rtl import Bus, BusFault, Driver, ProtocolError, RtlMachine, run_program
from tests.compiled import compile_random, random_image

from .on_rtl import random_bus

CONFIG = NpuConfig.preset(16)
#: Cycles a machine may take to stop once it is told to: bursts under way, with the slowest bus of `random_bus`.
STOPPING = 100_000


@pytest.fixture(scope="module")
def machine():
    with RtlMachine(CONFIG, seed=1) as machine:
        yield machine


class Workload:
    """A random program that works, to damage and to run again."""

    def __init__(self, machine: RtlMachine, seed: int) -> None:
        self.machine, self.chance = machine, random.Random(seed)
        self.program, graph = compile_random(CONFIG, seed, max_size=10)
        self.image = random_image(self.program, random_inputs(graph, seed), seed)
        machine.set_bus(Bus())
        self.good = self.run()

    def run(self, code: bytes | None = None, **options):
        return run_program(CONFIG, code or self.program.code, self.image, write_start=self.program.write_start,
                           machine=self.machine, **options)

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
    assert caught.value.code is ErrorCode[f"{'WRITE' if write else 'READ'}_{response.name}"]
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
        work.run(code.tobytes(), timeout=5000, limit=300_000)
    except MachineError as error:
        assert error.index <= len(work.program.instructions)
    except ProtocolError as error:
        assert "not done after" in str(error)  # damage can ask for a billion cycles of work
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
    with pytest.raises(ProtocolError, match="not done after"):
        work.run(limit=work.chance.randrange(1, work.good.cycles // 2))
    stop(machine)
    assert machine.stats.stray_writes == 0
    work.check_still_works()


@pytest.mark.full
@pytest.mark.parametrize("part", range(10))
def test_many_faults(machine, seed, part):
    for number in range(20):
        check_bus_error(machine, seed + number)
        check_damaged_program(machine, seed + number)
