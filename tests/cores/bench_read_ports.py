"""Reads of a wide master on two narrow memories, each with pauses and a latency of its own."""

import itertools
import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from cores.arch.axi import MAX_BURST
from cores.bus.read_ports import ReadPorts
from tests.bench import bench_parameters
from tests.cores.bus_models import PipelinedMemory, start, watch_stable
from tests.cores.pins import value_of

BITS, PIECE, DEPTH = (bench_parameters()[name] for name in ("bits", "piece", "depth"))
BYTES = BITS // 8
#: Beats of the longest burst.
PAGE = min(MAX_BURST, 4096 // BYTES)
MEMORY_BYTES = 1 << 16
QUIET = {"wide__arvalid": 0, "wide__rready": 1, "wide__arburst": 1, "wide__arcache": 3, "wide__arprot": 0,
         **{f"port{port}__{name}": 0 for port in range(2) for name in ("arready", "rvalid")}}


def random_bursts(count: int) -> list[tuple[int, int]]:
    """(address, beats) inside a page each."""
    bursts = []
    for _ in range(count):
        beats = random.choice([1, 2, PIECE + 1, random.randint(1, PAGE), PAGE])
        page = random.randrange(MEMORY_BYTES // 4096) * 4096
        bursts.append((page + BYTES * random.randint(0, 4096 // BYTES - beats), beats))
    return bursts


class Master:
    """Reads bursts and looks at what comes, in order."""

    def __init__(self, dut, content: bytes, responses=lambda address: 0):
        self.dut, self.content, self.responses = dut, content, responses
        self.first = self.last = self.cycle = 0

    async def ask(self, bursts, *, idle: float = 0.0) -> None:
        dut = self.dut
        for address, beats in bursts:
            while random.random() < idle:
                dut.wide__arvalid.value = 0
                await RisingEdge(dut.clk)
            dut.wide__araddr.value, dut.wide__arlen.value, dut.wide__arvalid.value = address, beats - 1, 1
            await RisingEdge(dut.clk)
            while not value_of(dut.wide__arready):
                await RisingEdge(dut.clk)
        dut.wide__arvalid.value = 0

    async def expect(self, bursts, *, stall: float = 0.0) -> None:
        dut = self.dut
        for address, beats in bursts:
            for beat in range(beats):
                while True:
                    willing = random.random() >= stall
                    dut.wide__rready.value = willing
                    await RisingEdge(dut.clk)
                    self.cycle += 1
                    if willing and value_of(dut.wide__rvalid):
                        break
                self.first, self.last = self.first or self.cycle, self.cycle
                position = address + beat * BYTES
                expected = int.from_bytes(self.content[position:position + BYTES], "little")
                assert value_of(dut.wide__rdata) == expected, (hex(address), beat)
                assert value_of(dut.wide__rlast) == (beat == beats - 1), (hex(address), beats, beat)
                assert value_of(dut.wide__rresp) == self.responses(position), hex(position)
        dut.wide__rready.value = 1


def memories(dut, content: bytes, **options) -> list[PipelinedMemory]:
    """One on each port; ``options``: a value for both, or a pair. Checks what goes to them."""
    made = []
    for port in range(2):
        own = {name: value[port] if isinstance(value, tuple) else value for name, value in options.items()}
        memory = PipelinedMemory(dut, beat_bytes=BYTES // 2, memory=bytearray(content), prefix=f"port{port}__", **own)
        cocotb.start_soon(memory.serve_reads())
        cocotb.start_soon(watch_stable(dut, f"port{port}__ar", ("addr", "len", "size", "burst", "cache", "prot")))
        made.append(memory)
    return made


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.6], stall=[0.0, 0.5], pauses=[(0.0, 0.0), (0.6, 0.0), (0.3, 0.3)])
async def beats_come_in_order(dut, idle, stall, pauses):
    await start(dut, **QUIET)
    content = random.randbytes(MEMORY_BYTES)
    both = memories(dut, content, stall=pauses, latency=(random.randint(1, 60), random.randint(1, 60)))
    bursts, master = random_bursts(25), Master(dut, content)
    check = cocotb.start_soon(master.expect(bursts, stall=stall))
    await master.ask(bursts, idle=idle)
    await check
    assert value_of(dut.port0__arsize) == value_of(dut.port1__arsize) == (BYTES // 2 - 1).bit_length()
    assert (value_of(dut.port0__arburst), value_of(dut.port1__arcache)) == (1, 3)
    assert sum(memory.beats for memory in both) == 2 * sum(beats for _, beats in bursts)
    # Whole beats, in pieces that end at a multiple of PIECE beats at the latest.
    for memory in both:
        assert memory.reads
        for address, length in memory.reads:
            assert address % BYTES == 0 and length % 2 and length < MAX_BURST
            assert address % (BYTES * PIECE) + (length + 1) * BYTES // 2 <= BYTES * PIECE
    await ClockCycles(dut.clk, 3)
    assert not value_of(dut.wide__rvalid)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(beats=[PAGE, 14, PIECE + 1, 3])
async def both_ports_are_busy(dut, beats):
    """A beat a cycle, whatever the lengths, at 40 cycles of latency, if there is room for that many."""
    if DEPTH < 256:
        return
    await start(dut, **QUIET)
    content = random.randbytes(MEMORY_BYTES)
    memories(dut, content, latency=40)
    bursts = [(number % 16 * 4096, beats) for number in range(1 + 800 // beats)]
    master = Master(dut, content)
    check = cocotb.start_soon(master.expect(bursts))
    await master.ask(bursts)
    await check
    moved, took = sum(beats for _, beats in bursts), master.last - master.first + 1
    dut._log.info(f"bursts of {beats}: {moved} beats in {took} cycles")
    assert took <= 1.03 * moved + 10


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def the_worse_response_of_both_halves_counts(dut):
    await start(dut, **QUIET)
    content = random.randbytes(MEMORY_BYTES)
    answers = [random.choice([0, 0, 2, 3]) for _ in range(MEMORY_BYTES // BYTES)]
    memories(dut, content, stall=0.2, fail=lambda address: answers[address // BYTES])
    # A burst of a memory has one response here: that of its first beat.
    bursts = [(PIECE * BYTES * number, 1) for number in range(40)]
    master = Master(dut, content, lambda address: answers[address // BYTES])
    check = cocotb.start_soon(master.expect(bursts))
    await master.ask(bursts)
    await check


async def until(dut, *names: str) -> int:
    """Cycles from the one that ends now to that in which one of the signals is up."""
    for cycles in itertools.count(1):
        await RisingEdge(dut.clk)
        if any(value_of(dut[name]) for name in names):
            return cycles
    raise AssertionError


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_half_may_fail_alone(dut):
    await start(dut, **QUIET)
    for first, second, both in ((0, 2, 2), (3, 0, 3), (2, 3, 2), (0, 0, 0)):
        dut.wide__araddr.value, dut.wide__arlen.value, dut.wide__arvalid.value = 0x1000, 0, 1
        dut.port0__arready.value = dut.port1__arready.value = 1
        await RisingEdge(dut.clk)
        dut.wide__arvalid.value = 0
        assert await until(dut, "port0__arvalid", "port1__arvalid") == ReadPorts.REQUEST_LATENCY
        port = "port1" if value_of(dut.port1__arvalid) else "port0"
        for response, last in ((first, 0), (second, 1)):
            getattr(dut, f"{port}__rvalid").value, getattr(dut, f"{port}__rdata").value = 1, 0
            getattr(dut, f"{port}__rresp").value, getattr(dut, f"{port}__rlast").value = response, last
            await RisingEdge(dut.clk)
        getattr(dut, f"{port}__rvalid").value = 0
        assert await until(dut, "wide__rvalid") == ReadPorts.DATA_LATENCY
        assert (value_of(dut.wide__rresp), value_of(dut.wide__rlast)) == (both, 1)
        await ClockCycles(dut.clk, 2)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_master_that_waits_holds_no_port(dut):
    """Nothing is asked for without room, so memories never wait: `PipelinedMemory` looks."""
    await start(dut, **QUIET)
    content = random.randbytes(MEMORY_BYTES)
    both = memories(dut, content, latency=2)
    bursts, master = [(number % 16 * 4096, PAGE) for number in range(20)], Master(dut, content)
    dut.wide__rready.value = 0
    asking = cocotb.start_soon(master.ask(bursts))
    await ClockCycles(dut.clk, 4000)
    asked = sum((length + 1) // 2 for memory in both for _, length in memory.reads)
    assert 2 * (DEPTH - 3 * PIECE) <= asked <= min(2 * DEPTH, ReadPorts.PIECES * PIECE), asked
    await master.expect(bursts)
    await asking
