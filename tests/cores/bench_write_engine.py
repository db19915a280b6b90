"""Write engine against cocotbext-axi's memory and against one with many bursts in flight."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamWrite, AxiWriteBus

from cores.arch.axi import AxiResponse
from cores.arch.error_codes import ErrorCode
from cores.bus.axi import write_run_layout
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.bus_models import PipelinedMemory, send, start, watch_stable
from tests.cores.pins import reported, value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
BYTES = CONFIG.beat_bytes
RUN = write_run_layout(CONFIG)
PAGES = 16
MEMORY_BYTES = 4096 * PAGES
QUIET = dict(run__valid=0, data__valid=0, halt=0)


class Runs:
    """Random runs that do not overlap, their data, and the memory that they make of ``before``."""

    def __init__(self, before: bytes, count: int):
        self.runs, self.beats, self.after, self.posted = [], [], bytearray(before), 0
        position = 0
        for index in range(count):
            position += BYTES * random.choice([0, 0, 1, random.randrange(60)])
            length = random.choice([1, 2, 7, random.randint(1, 30), random.randint(1, 600)])
            length = min(length, (len(before) - position) // BYTES)
            if length <= 0:     # the memory is full
                break
            last, post = random.random() < 0.5, random.random() < 0.7
            self.posted += last and post
            self.runs.append(run(position, length, last=last, post=post, index=index))
            words = [random.getrandbits(8 * BYTES) for _ in range(length)]
            self.beats += words
            content = b"".join(word.to_bytes(BYTES, "little") for word in words)
            self.after[position:position + len(content)] = content
            position += len(content)


def run(address: int, beats: int, *, last=False, post=False, index=0) -> int:
    return RUN.const({"address": address, "length": beats - 1, "last": last, "post": post, "index": index}).as_bits()


def watch_bus(dut):
    return [cocotb.start_soon(watch_stable(dut, "axi__aw", ("addr", "len"))),
            cocotb.start_soon(watch_stable(dut, "axi__w", ("data", "strb", "last")))]


async def count_pulses(signal, clock, pulses: list) -> None:
    while True:
        await RisingEdge(clock)
        if value_of(signal):
            pulses.append(1)


async def settle(dut, limit: int = 20_000) -> None:
    for _ in range(limit):
        await RisingEdge(dut.clk)
        if value_of(dut.idle):
            return
    raise AssertionError("the bus did not come to rest")


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.6], stall=[0.0, 0.5])
async def memory_holds_the_runs(dut, idle, stall):
    await start(dut, **QUIET)
    before = random.randbytes(MEMORY_BYTES)
    ram = AxiRamWrite(AxiWriteBus.from_prefix(dut, "axi_"), dut.clk, size=MEMORY_BYTES)
    ram.write(0, before)
    for channel in (ram.aw_channel, ram.w_channel, ram.b_channel):
        channel.set_pause_generator(iter(lambda: random.random() < stall, None))
    checks, pulses = watch_bus(dut), []
    checks.append(cocotb.start_soon(count_pulses(dut.stored, dut.clk, pulses)))
    runs = Runs(before, 25)
    sender = cocotb.start_soon(send(dut, "run", runs.runs, idle=idle))
    await send(dut, "data", runs.beats, idle=idle)
    await sender
    await settle(dut)
    await ClockCycles(dut.clk, 3)
    for check in checks:
        check.cancel()
    assert ram.read(0, MEMORY_BYTES) == bytes(runs.after)
    assert len(pulses) == runs.posted


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def many_bursts_in_flight(dut):
    """The same through a memory that takes beats ahead of their addresses and answers late."""
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    runs = Runs(bytes(content), 60)
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, latency=25, stall=0.3)
    tasks, pulses = [*watch_bus(dut), cocotb.start_soon(memory.serve_writes())], []
    tasks.append(cocotb.start_soon(count_pulses(dut.stored, dut.clk, pulses)))
    sender = cocotb.start_soon(send(dut, "run", runs.runs))
    await send(dut, "data", runs.beats)
    await sender
    await settle(dut)
    await ClockCycles(dut.clk, 3)
    for task in tasks:
        task.cancel()
    assert content == runs.after
    assert len(pulses) == runs.posted


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(length=[7, 1])
async def short_runs_keep_the_bus_busy(dut, length):
    """A beat every cycle as long as outstanding_writes bursts cover the latency."""
    await start(dut, **QUIET)
    latency = min(40, CONFIG.outstanding_writes * length - 6)
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=bytearray(MEMORY_BYTES), latency=latency)
    server = cocotb.start_soon(memory.serve_writes())
    addresses = [128 * BYTES * (k % 16) + 3 * BYTES for k in range(60)]
    sender = cocotb.start_soon(send(dut, "run", [run(address, length) for address in addresses]))
    await send(dut, "data", range(length * 60))
    await sender
    await settle(dut)
    server.cancel()
    assert memory.last_beat - memory.first_beat + 1 == memory.beats == length * 60, "bubbles on the bus"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def stored_waits_for_the_responses(dut):
    await start(dut, **QUIET)
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=bytearray(MEMORY_BYTES), latency=200)
    server, pulses = cocotb.start_soon(memory.serve_writes()), []
    check = cocotb.start_soon(count_pulses(dut.stored, dut.clk, pulses))
    # The second run crosses a page: its first burst's answer must not be taken for the run's.
    runs = [run(0, 4), run(4096 - 2 * BYTES, 4, last=True, post=True), run(8192, 1, last=True)]
    sender = cocotb.start_soon(send(dut, "run", runs))
    await send(dut, "data", range(9))
    await sender
    for _ in range(400):
        await RisingEdge(dut.clk)
        if pulses:
            break
    assert memory.cycle >= memory.first_beat + 7 + 200, "stored before the last response"
    await settle(dut)
    await ClockCycles(dut.clk, 3)
    server.cancel()
    check.cancel()
    assert len(pulses) == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(response=[AxiResponse.SLVERR, AxiResponse.DECERR])
async def error_response_is_reported(dut, response):
    await start(dut, **QUIET)
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=bytearray(MEMORY_BYTES), latency=8,
                             fail=lambda address: response if address // 4096 == 5 else 0)
    tasks, pulses = [cocotb.start_soon(memory.serve_writes())], []
    tasks.append(cocotb.start_soon(count_pulses(dut.stored, dut.clk, pulses)))
    reports = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            if report := reported(value_of(dut.error)):
                reports.append(report)

    tasks.append(cocotb.start_soon(watch()))
    runs = [run(4096 * k, 3, last=True, post=True, index=1000 + k) for k in range(10)]
    sender = cocotb.start_soon(send(dut, "run", runs))
    await send(dut, "data", range(30))
    await sender
    await settle(dut)
    await ClockCycles(dut.clk, 3)
    for task in tasks:
        task.cancel()
    expected = ErrorCode.WRITE_SLVERR if response == AxiResponse.SLVERR else ErrorCode.WRITE_DECERR
    assert reports == [(expected, 1005)], reports
    assert len(pulses) == 9, "the failed run must not be reported as stored"


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def halt_completes_the_bursts_without_strobes(dut):
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, latency=20, stall=0.4)
    tasks = [*watch_bus(dut), cocotb.start_soon(memory.serve_writes())]
    for _ in range(20):
        before = bytes(content)
        runs = Runs(before, 30)
        senders = [cocotb.start_soon(send(dut, "run", runs.runs)),
                   cocotb.start_soon(send(dut, "data", runs.beats, idle=random.choice([0.0, 0.5, 0.95])))]
        await ClockCycles(dut.clk, random.randint(1, 200))
        dut.halt.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        issued, strobed = len(memory.writes) + value_of(dut.axi__awvalid), len(memory.strobes)
        await settle(dut)
        assert len(memory.writes) <= issued, "a burst began after halt"
        # At most the beat that was waiting on the bus still has its strobes.
        assert not any(memory.strobes[strobed + 1:])
        changed = [k for k in range(MEMORY_BYTES) if content[k] != before[k]]
        assert all(content[k] == runs.after[k] for k in changed), "a byte that no run writes"
        for sender in senders:
            sender.cancel()
        dut.run__valid.value, dut.data__valid.value, dut.rst.value = 0, 0, 1
        await RisingEdge(dut.clk)
        dut.rst.value = dut.halt.value = 0
        fresh = Runs(bytes(content), 2)
        sender = cocotb.start_soon(send(dut, "run", fresh.runs))
        await send(dut, "data", fresh.beats)
        await sender
        await settle(dut)
        assert content == fresh.after
    for task in tasks:
        task.cancel()
