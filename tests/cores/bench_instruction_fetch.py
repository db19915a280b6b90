"""Instruction fetch: programs from a memory behind the request port to three queues."""

import random
from collections import deque

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, decode, encode
from cores.arch.instruction_layout import QueuedInstruction
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, Queue
from cores.bus.axi import read_data_layout, read_request_layout
from cores.config import NpuConfig
from cores.control.instruction_fetch import InstructionFetch
from tests.bench import bench_parameters
from tests.cores.bus_models import collect, start
from tests.cores.instruction_samples import broken_word, random_instruction
from tests.cores.pins import reported, value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
BYTES = CONFIG.beat_bytes
#: Instructions in as many beats as a request has.
REQUEST_LENGTH = InstructionFetch.REQUEST_BEATS * BYTES // INSTRUCTION_BYTES
REQUEST, DATA = read_request_layout(CONFIG), read_data_layout(CONFIG)
BASE = 0x12_3456_7000
END, SYNC = encode(Instruction(Opcode.END)), encode(Instruction(Opcode.SYNC))
QUEUES = {Queue.LOAD: "load", Queue.COMPUTE: "compute", Queue.STORE: "store"}


class Machine:
    """What surrounds the fetch: program memory, engines that take instructions, and notes of what comes out."""

    def __init__(self, dut, program: list[bytes], *, length: int | None = None, latency: int = 40, stall: float = 0.0,
                 fail=lambda address: 0):
        self.dut, self.latency, self.stall, self.fail = dut, latency, stall, fail
        self.length = len(program) if length is None else length
        self.memory = b"".join(program)
        self.asked: list[int] = []          # beats by address
        self.received = {name: [] for name in QUEUES.values()}
        self.reports, self.done, self.dispatched, self.waited = [], 0, 0, 0
        self.pending: deque = deque()       # beats asked for and not delivered
        self.cycle = 0

    async def begin(self) -> None:
        dut = self.dut
        await start(dut, start=0, halt=0, engines_idle=1, data=0, request__ready=0, load__ready=0, compute__ready=0,
                    store__ready=0, program_address=BASE, program_length=self.length)
        self.tasks = [cocotb.start_soon(task) for task in (
            self._memory(), self._watch(), *(collect(dut, name, self._sink(name), stall=self.stall)
                                             for name in QUEUES.values()))]
        dut.start.value = 1
        await RisingEdge(dut.clk)
        dut.start.value = 0

    def _sink(self, name):
        return lambda bits: self.received[name].append(QueuedInstruction.from_bits(bits))

    async def _memory(self):
        dut, pending = self.dut, self.pending
        while True:
            ready = random.random() >= self.stall
            dut.request__ready.value = ready
            value = 0
            if pending and pending[0][0] <= self.cycle and random.random() >= self.stall:
                _, address, last = pending.popleft()
                word = self.memory[address - BASE:address - BASE + BYTES]
                value = DATA.const({"valid": 1, "data": int.from_bytes(word, "little"), "last": last,
                                    "response": self.fail(address)}).as_bits()
            dut.data.value = value
            await RisingEdge(dut.clk)
            self.cycle += 1
            if ready and value_of(dut.request__valid):
                request = REQUEST.from_bits(value_of(dut.request__payload))
                assert request.length < InstructionFetch.REQUEST_BEATS, "a request longer than there is room for"
                for beat in range(request.length + 1):
                    self.asked.append(request.address + beat * BYTES)
                    pending.append((self.cycle + self.latency, self.asked[-1], beat == request.length))

    async def _watch(self):
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if report := reported(value_of(dut.error)):
                self.reports.append(report)
            self.done += value_of(dut.done)
            self.dispatched += value_of(dut.dispatched)
            self.waited += value_of(dut.waiting)

    async def until(self, condition, limit: int = 20_000) -> None:
        for _ in range(limit):
            await RisingEdge(self.dut.clk)
            if condition():
                return
        raise AssertionError("nothing came")

    async def end(self) -> None:
        """A few cycles more, in which nothing may happen; then the rules that hold for every program."""
        await ClockCycles(self.dut.clk, 100)
        for task in self.tasks:
            task.cancel()
        assert self.done + len(self.reports) <= 1
        assert self.asked == [BASE + BYTES * k for k in range(len(self.asked))], "beats out of order"
        assert len(self.asked) <= -(-self.length * INSTRUCTION_BYTES // BYTES), "asked beyond the program"


def check_queues(machine: Machine, program: list[bytes], count: int) -> None:
    """The first ``count`` instructions are in their queues, in order and with their indices."""
    expected = {name: [] for name in QUEUES.values()}
    for index, word in enumerate(program[:count]):
        queue = decode(word).opcode.queue
        if queue in QUEUES:
            expected[QUEUES[queue]].append((index, int.from_bytes(word, "little")))
    for name, entries in machine.received.items():
        assert [(entry.index, entry.word) for entry in entries] == expected[name], name


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.6],
                    length=[1, 2, 3, *range(REQUEST_LENGTH - 2, REQUEST_LENGTH + 2), 64, 151])
async def instructions_reach_their_queues(dut, stall, length):
    program = [encode(random_instruction()) for _ in range(length - 1)]
    for position in random.sample(range(length - 1), min(3, length - 1)):
        program[position] = SYNC
    program.append(END)
    machine = Machine(dut, program, stall=stall)
    await machine.begin()
    await machine.until(lambda: machine.done)
    await machine.end()
    assert machine.done == 1 and not machine.reports and machine.dispatched == length
    check_queues(machine, program, length)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(end=[1, 6, 7, 13, 14, 15, 16, 29, 30, 31])
async def what_follows_end_is_not_dispatched(dut, end):
    """Wherever END lies in what is kept: taking it may make room for a request."""
    program = [*(encode(random_instruction()) for _ in range(end)), END,
               *(encode(random_instruction()) for _ in range(100))]
    machine = Machine(dut, program)
    await machine.begin()
    await machine.until(lambda: machine.done)
    asked_at_done = len(machine.asked)
    assert not machine.pending, "data of this program would come into the next"
    await machine.end()
    assert machine.done == 1 and not machine.reports
    assert len(machine.asked) == asked_at_done, "a request after done"
    check_queues(machine, program, end + 1)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def keeps_up_with_engines(dut):
    """Instructions in the buffer go out at one in two cycles, three on a 64-bit bus, five on one of 32 bits."""
    program = [encode(random_instruction()) for _ in range(15)] + [END]
    machine = Machine(dut, program, latency=2)
    await machine.begin()
    await machine.until(lambda: machine.dispatched == 1)
    begin = machine.cycle
    await machine.until(lambda: machine.dispatched == 15)
    assert machine.cycle - begin <= 14 * max(2, 1 + INSTRUCTION_BYTES // BYTES) + 2
    await machine.until(lambda: machine.done)
    await machine.end()


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(barrier=[SYNC, END])
async def barriers_wait_for_the_engines(dut, barrier):
    program = [encode(random_instruction((Queue.LOAD,))), barrier, encode(random_instruction()), END]
    machine = Machine(dut, program)
    await machine.begin()
    await machine.until(lambda: machine.dispatched == 1)
    dut.engines_idle.value = 0
    await ClockCycles(dut.clk, 200)
    assert machine.dispatched == 1 and not machine.done
    dut.engines_idle.value = 1      # a gap between two engines
    await RisingEdge(dut.clk)
    dut.engines_idle.value = 0
    await ClockCycles(dut.clk, 20)
    assert machine.dispatched == 1 and not machine.done
    dut.engines_idle.value = 1
    await machine.until(lambda: machine.done)
    await machine.end()
    assert machine.dispatched == (4 if barrier is SYNC else 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def full_queue_is_waited_for(dut):
    """An engine that takes nothing fills its queue; the others' instructions in front of it still get through."""
    depth = CONFIG.queue_depth
    program = [encode(random_instruction((Queue.STORE,))) for _ in range(depth)]
    program += [encode(random_instruction((Queue.LOAD,))), encode(random_instruction((Queue.STORE,))), END]
    machine = Machine(dut, program)
    machine.stall = 0.0
    await machine.begin()
    machine.tasks.pop().cancel()        # the store engine
    dut.store__ready.value = 0
    await ClockCycles(dut.clk, 400)
    assert machine.dispatched == depth + 1 and len(machine.received["load"]) == 1
    assert machine.waited > 100 and not machine.done
    machine.tasks.append(cocotb.start_soon(collect(dut, "store", machine._sink("store"))))
    await machine.until(lambda: machine.done)
    await machine.end()
    check_queues(machine, program, len(program))


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(attempt=list(range(12)))
async def illegal_instruction_stops(dut, attempt):
    position = attempt * 3
    program = [encode(random_instruction()) for _ in range(40)] + [END]
    program[position] = broken_word()
    machine = Machine(dut, program, stall=0.3)
    await machine.begin()
    await machine.until(lambda: machine.reports)
    await machine.end()
    assert machine.reports == [(ErrorCode.ILLEGAL, position)], (machine.reports, program[position].hex())
    assert machine.dispatched == position
    check_queues(machine, program, position)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(length=[0, 1, 16, 33])
async def missing_end_stops(dut, length):
    program = [encode(random_instruction()) for _ in range(length + 4)]
    machine = Machine(dut, program, length=length)
    await machine.begin()
    await machine.until(lambda: machine.reports)
    await machine.end()
    assert machine.reports == [(ErrorCode.NO_END, length)]
    check_queues(machine, program, length)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(response=[AxiResponse.SLVERR, AxiResponse.DECERR], position=[0, 5, 22])
async def bus_error_stops_at_its_instruction(dut, response, position):
    program = [encode(random_instruction()) for _ in range(40)] + [END]
    # Of several beats any may fail.
    bad = BASE + (position * INSTRUCTION_BYTES + random.choice([0, 4, 8, 12])) // BYTES * BYTES
    machine = Machine(dut, program, fail=lambda address: response if address == bad else 0)
    await machine.begin()
    await machine.until(lambda: machine.reports)
    await machine.end()
    first = (bad - BASE + INSTRUCTION_BYTES - 1) // INSTRUCTION_BYTES if BYTES > INSTRUCTION_BYTES else position
    code = ErrorCode.READ_SLVERR if response == AxiResponse.SLVERR else ErrorCode.READ_DECERR
    assert machine.reports == [(code, first)]
    check_queues(machine, program, first)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def error_beyond_end_does_not_matter(dut):
    program = [encode(random_instruction()), END, *(encode(random_instruction()) for _ in range(30))]
    machine = Machine(dut, program, fail=lambda address: 2 if address >= BASE + 32 else 0)
    await machine.begin()
    await machine.until(lambda: machine.done)
    await machine.end()
    assert not machine.reports


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halt_stops_dispatching_and_reset_starts_afresh(dut):
    program = [encode(random_instruction()) for _ in range(100)] + [END]
    machine = Machine(dut, program, stall=0.2)
    await machine.begin()
    await ClockCycles(dut.clk, random.randint(60, 160))
    dut.halt.value = 1
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    dispatched = machine.dispatched
    await machine.end()
    assert machine.dispatched == dispatched and not machine.reports and not machine.done
    again = Machine(dut, program)
    await again.begin()
    await again.until(lambda: again.done)
    await again.end()
    check_queues(again, program, len(program))
