"""Read engine against cocotbext-axi's memory and against one with many bursts in flight."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiRamRead, AxiReadBus

from cores.bus.axi import read_data_layout, read_request_layout
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.bus_models import PipelinedMemory, burst_crosses_page, send, start, watch_stable
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
BYTES = CONFIG.beat_bytes
REQUEST, DATA = read_request_layout(CONFIG), read_data_layout(CONFIG)
VALID = DATA["valid"].offset
MEMORY_BYTES = 1 << 16
QUIET = dict(fetch_request__valid=0, load_request__valid=0, halt=0, axi__arready=0, axi__rvalid=0)


def request(address: int, beats: int) -> int:
    return REQUEST.const({"address": address, "length": beats - 1}).as_bits()


def random_requests(count: int, most: int = 256) -> list[tuple[int, int]]:
    """(address, beats), many of them near a page boundary."""
    requests = []
    for _ in range(count):
        beats = random.choice([1, 2, random.randint(1, min(20, most)), random.randint(1, most), most])
        page = random.randrange(1, MEMORY_BYTES // 4096 - 2) * 4096
        offset = random.choice([0, -BYTES, -BYTES * random.randint(1, beats), BYTES * random.randrange(4096 // BYTES)])
        requests.append((page + offset, beats))
    return requests


async def expect(dut, name: str, memory, requests, *, responses=lambda address: 0) -> None:
    """The data of ``requests``, beat by beat, on port ``name``."""
    port = getattr(dut, name)
    for address, beats in requests:
        for beat in range(beats):
            await RisingEdge(dut.clk)
            while not port.value[VALID]:    # the rest may be X
                await RisingEdge(dut.clk)
            value = DATA.from_bits(value_of(port))
            position = address + beat * BYTES
            assert value.data == int.from_bytes(memory[position:position + BYTES], "little"), hex(position)
            assert value.last == (beat == beats - 1), (hex(address), beats, beat)
            assert value.response == responses(position)


async def watch_bursts(dut) -> None:
    while True:
        await RisingEdge(dut.clk)
        if value_of(dut.axi__arvalid):
            address, length = value_of(dut.axi__araddr), value_of(dut.axi__arlen)
            assert not burst_crosses_page(address, length, BYTES), (hex(address), length)


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.6], stall=[0.0, 0.5])
async def both_requesters_get_their_data(dut, idle, stall):
    await start(dut, **QUIET)
    content = random.randbytes(MEMORY_BYTES)
    ram = AxiRamRead(AxiReadBus.from_prefix(dut, "axi_"), dut.clk, size=MEMORY_BYTES)
    ram.write(0, content)
    ram.ar_channel.set_pause_generator(iter(lambda: random.random() < stall, None))
    ram.r_channel.set_pause_generator(iter(lambda: random.random() < stall, None))
    checks = [cocotb.start_soon(watch_bursts(dut)), cocotb.start_soon(watch_stable(dut, "axi__ar", ("addr", "len")))]
    tasks = []
    for name in ("fetch", "load"):
        requests = random_requests(12)
        tasks.append(cocotb.start_soon(expect(dut, f"{name}_data", content, requests)))
        tasks.append(cocotb.start_soon(send(dut, f"{name}_request", [request(*r) for r in requests], idle=idle)))
    for task in tasks:
        await task
    for check in checks:
        check.cancel()
    await ClockCycles(dut.clk, 3)
    assert value_of(dut.idle)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def short_requests_keep_the_bus_busy(dut):
    """7-beat requests at 40 cycles latency: a beat every cycle once the first has come."""
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content)
    server = cocotb.start_soon(memory.serve_reads())
    # Inside pages, so that a request is a burst: 16 of them in flight cover the latency.
    requests = [(4096 + 128 * BYTES * (k % 8) + 7 * BYTES, 7) for k in range(60)]
    check = cocotb.start_soon(expect(dut, "load_data", content, requests))
    await send(dut, "load_request", [request(*r) for r in requests])
    await check
    server.cancel()
    assert len(memory.reads) == len(requests)
    assert memory.last_beat - memory.first_beat + 1 == memory.beats == 7 * 60, "bubbles on the bus"


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def one_address_a_cycle(dut):
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, latency=3)
    server = cocotb.start_soon(memory.serve_reads())
    requests = [(4096 + BYTES * k, 1) for k in range(100)]
    check = cocotb.start_soon(expect(dut, "load_data", content, requests))
    await send(dut, "load_request", [request(*r) for r in requests])
    await check
    server.cancel()
    assert memory.last_beat - memory.first_beat + 1 == 100


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def fetch_goes_first(dut):
    await start(dut, **QUIET)
    load = cocotb.start_soon(send(dut, "load_request", [request(4096 * k, 8) for k in range(1, 9)]))
    await ClockCycles(dut.clk, 10)
    fetch = cocotb.start_soon(send(dut, "fetch_request", [request(0x8000 + 4096 * k, 1) for k in range(3)]))
    await RisingEdge(dut.clk)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, latency=5)
    server = cocotb.start_soon(memory.serve_reads())
    await fetch
    await load
    await ClockCycles(dut.clk, 100)
    server.cancel()
    order = [address for address, _ in memory.reads]
    # When the fetch requests come one load request is in the address register, one in the splitter, and one waits.
    assert order == [0x1000, 0x2000, 0x3000, 0x8000, 0x9000, 0xA000, *(4096 * k for k in range(4, 9))], order


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def error_responses_go_with_their_beats(dut):
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    answers = {page: random.choice([0, 0, 2, 3]) for page in range(MEMORY_BYTES // 4096)}
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, stall=0.3,
                             fail=lambda address: answers[address // 4096])
    server = cocotb.start_soon(memory.serve_reads())
    requests = random_requests(20, most=40)
    check = cocotb.start_soon(expect(dut, "load_data", content, requests,
                                     responses=lambda address: answers[address // 4096]))
    await send(dut, "load_request", [request(*r) for r in requests])
    await check
    server.cancel()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def halt_lets_the_bus_come_to_rest(dut):
    await start(dut, **QUIET)
    content = bytearray(random.randbytes(MEMORY_BYTES))
    memory = PipelinedMemory(dut, beat_bytes=BYTES, memory=content, stall=0.5)
    server = cocotb.start_soon(memory.serve_reads())
    stable = cocotb.start_soon(watch_stable(dut, "axi__ar", ("addr", "len")))
    for _ in range(10):
        requests = random_requests(30)
        sender = cocotb.start_soon(send(dut, "load_request", [request(*r) for r in requests]))
        await ClockCycles(dut.clk, random.randint(1, 150))
        dut.halt.value = 1
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        issued = len(memory.reads) + value_of(dut.axi__arvalid)
        for _ in range(20_000):
            if value_of(dut.idle):
                break
            await RisingEdge(dut.clk)
        assert value_of(dut.idle), "the bus did not come to rest"
        assert len(memory.reads) <= issued, "a burst began after halt"
        assert memory.beats == sum(length + 1 for _, length in memory.reads)
        sender.cancel()
        # What was left over is gone after a reset.
        dut.load_request__valid.value, dut.rst.value = 0, 1
        await RisingEdge(dut.clk)
        dut.rst.value = dut.halt.value = 0
        fresh = random_requests(2)
        check = cocotb.start_soon(expect(dut, "fetch_data", content, fresh))
        await send(dut, "fetch_request", [request(*r) for r in fresh])
        await check
    stable.cancel()
    server.cancel()
