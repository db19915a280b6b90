"""Register file through cocotbext-axi's AXI4-Lite master."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from cores.arch.registers import COUNTER_BITS, COUNTERS, MAGIC, VERSION, Control, address_of, counters_of, registers_of
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.bus_models import start, watch_stable
from tests.cores.pins import value_of

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
#: Bits that writable registers keep.
KEPT = {
    "program_low": 0xFFFFF000, "program_high": (1 << CONFIG.address_width - 32) - 1, "program_length": 0xFFFFFF,
    "data_low": 0xFFFFF000, "data_high": (1 << CONFIG.address_width - 32) - 1, "data_beats": 0xFFFFFFFF,
    "write_start": 0xFFFFFFFF, "timeout": 0xFFFFFFFF, "irq_enable": 1,
    **({"stream_shift": 7} if CONFIG.stochastic_rows else {}),
}
#: Those that ports of their names have.
SHOWN = ("program_length", "data_beats", "write_start", "timeout", "irq_enable",
         *(["stream_shift"] if CONFIG.stochastic_rows else []))
STATUS = dict(busy=0, done=0, error=0, error_code=0, error_index=0, counter_value=0, counter_valid=0)


async def master_of(dut, stall: float) -> AxiLiteMaster:
    """A master whose channels pause on their own, so that address and data come in any order."""
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "bus_"), dut.clk)  # drives the bus during the reset too
    await start(dut, **STATUS)
    for channel in (master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                    master.read_if.ar_channel, master.read_if.r_channel):
        channel.set_pause_generator(iter(lambda: random.random() < stall, None))
    for prefix, names in (("bus__b", ("resp",)), ("bus__r", ("data", "resp"))):
        cocotb.start_soon(watch_stable(dut, prefix, names))
    return master


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(stall=[0.0, 0.7])
async def writable_registers_keep_what_is_written(dut, stall):
    master = await master_of(dut, stall)
    model = {name: (1 << 20 if name == "timeout" else 0) for name in KEPT}
    for _ in range(150):
        name = random.choice(list(KEPT))
        if random.random() < 0.5:
            offset = random.randrange(4)
            value = random.randbytes(random.randint(1, 4 - offset))
            await master.write(address_of(name) + offset, value)
            old = bytearray(model[name].to_bytes(4, "little"))
            old[offset:offset + len(value)] = value
            model[name] = int.from_bytes(old, "little") & KEPT[name]
        else:
            assert await master.read_dword(address_of(name)) == model[name], name
    await ClockCycles(dut.clk, 2)
    assert value_of(dut.program_address) == model["program_high"] << 32 | model["program_low"]
    assert value_of(dut.data_address) == model["data_high"] << 32 | model["data_low"]
    for name in SHOWN:
        assert value_of(dut[name]) == model[name], name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def writes_and_reads_queue_up(dut):
    """The master offers the next address before it has taken the last answer."""
    master = await master_of(dut, 0.6)
    values = [random.getrandbits(32) for _ in range(40)]
    writes = [master.init_write(address_of("write_start"), value.to_bytes(4, "little")) for value in values]
    for write in writes:
        await write.wait()
    names = [random.choice(["id", "version", "write_start"]) for _ in range(40)]
    reads = [master.init_read(address_of(name), 4) for name in names]
    known = {"id": MAGIC, "version": VERSION, "write_start": values[-1]}
    for name, read in zip(names, reads, strict=True):
        await read.wait()
        assert int.from_bytes(read.data.data, "little") == known[name], name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def control_needs_its_strobe(dut):
    await start(dut, **STATUS)
    dut.bus__awaddr.value, dut.bus__wdata.value, dut.bus__bready.value = address_of("control"), 0xFFFFFFFF, 1
    dut.bus__awvalid.value = dut.bus__wvalid.value = 1
    for strobe in (0b1110, 0b0001):
        dut.bus__wstrb.value = strobe
        await RisingEdge(dut.clk)
        while not value_of(dut.bus__awready):
            await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)       # a command comes with the answer
        assert value_of(dut.start) == strobe & 1
    dut.bus__awvalid.value = dut.bus__wvalid.value = 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reads_and_writes_at_once(dut):
    master = await master_of(dut, 0.4)

    async def write_all():
        for k in range(60):
            await master.write_dword(address_of("data_beats"), k)

    writer, seen = cocotb.start_soon(write_all()), []
    while not writer.done():
        seen.append(await master.read_dword(address_of("data_beats")))
    assert seen == sorted(seen)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def read_only_and_reserved_addresses(dut):
    master = await master_of(dut, 0.2)
    lanes = [CONFIG.oc_lanes, CONFIG.ic_lanes, CONFIG.nnz_lanes, CONFIG.pixel_lanes]
    fixed = {
        "id": MAGIC, "version": VERSION, "config": CONFIG.digest, "control": 0, "status": 0,
        "lanes": int.from_bytes(bytes(lanes), "little"), "error_code": 0, "error_index": 0,
    }
    known = {register.address for register in registers_of(CONFIG)}
    reserved = random.sample([address for address in range(0, 4096, 4) if address not in known], 40)
    reserved += [] if CONFIG.stochastic_rows else [address_of("stream_shift")]
    reserved += [0x2C, 0x4C, address_of(f"counter_{COUNTERS[-1]}_high") + 4, 4092]
    writable = {name: await master.read_dword(address_of(name)) for name in KEPT}
    for address in [*(address_of(name) for name in fixed if name != "control"), *reserved]:
        await master.write_dword(address, 0xFFFFFFFF)
    for name, value in fixed.items():
        assert await master.read_dword(address_of(name)) == value, name
    for address in reserved:
        assert await master.read_dword(address) == 0, hex(address)
    for name, value in writable.items():
        assert await master.read_dword(address_of(name)) == value, name


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def control_pulses(dut):
    master = await master_of(dut, 0.5)
    ports, pulses = {Control.START: dut.start, Control.ABORT: dut.stop, Control.CLEAR: dut.clear}, []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            flags = [flag for flag, port in ports.items() if value_of(port)]
            if flags:
                pulses.append(sum(flags))

    cocotb.start_soon(watch())
    written = [1, 2, 4, 5, 7, 0, 8, 1]
    for value in written:
        await master.write_dword(address_of("control"), value)
    await master.write(address_of("control") + 1, b"\xff\xff\xff")   # not the byte that has the bits
    await master.write_dword(address_of("status"), 7)
    await ClockCycles(dut.clk, 4)
    assert pulses == [value & 7 for value in written if value & 7]


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def status_and_error(dut):
    master = await master_of(dut, 0.0)
    for done, error in ((0, 0), (1, 0), (0, 1)):
        code, index = random.randrange(16), random.randrange(1 << 24)
        dut.busy.value, dut.done.value, dut.error.value = 1, done, error
        dut.error_code.value, dut.error_index.value = code, index
        assert await master.read_dword(address_of("status")) == 1 | done << 1 | error << 2
        assert await master.read_dword(address_of("error_code")) == code
        assert await master.read_dword(address_of("error_index")) == index


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_run_keeps_its_regions(dut):
    master = await master_of(dut, 0.0)
    names = ("program_low", "program_length", "data_low", "data_beats", "write_start")
    for name in names:
        await master.write_dword(address_of(name), 0x5000)
    dut.busy.value = 1
    for name in (*names, "timeout"):
        await master.write_dword(address_of(name), 0x9000)
    assert [await master.read_dword(address_of(name)) for name in names] == [0x5000] * len(names)
    assert await master.read_dword(address_of("timeout")) == 0x9000
    dut.busy.value = 0
    await master.write_dword(address_of("data_beats"), 0x9000)
    assert await master.read_dword(address_of("data_beats")) == 0x9000


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counters_are_caught_when_they_come_by(dut):
    master = await master_of(dut, 0.3)
    values = [random.getrandbits(COUNTER_BITS) for _ in counters_of(CONFIG)]

    async def counters():
        visit = 0
        while True:
            visit = (visit + 1) % len(values)
            await RisingEdge(dut.clk)
            # What the component sees after this edge; its select is known only once the bus has its address.
            dut.counter_value.value = values[visit]
            dut.counter_valid.value = 0
            await RisingEdge(dut.clk)
            # Before the first address simulators of four states do not know it.
            if dut.counter_select.value.is_resolvable and value_of(dut.counter_select) == visit:
                dut.counter_valid.value = 1
                await RisingEdge(dut.clk)
                dut.counter_valid.value = 0

    cocotb.start_soon(counters())
    for _ in range(3):
        for number, name in enumerate(counters_of(CONFIG)):
            low = await master.read_dword(address_of(f"counter_{name}_low"))
            assert await master.read_dword(address_of("data_beats")) == 0     # the high half is kept meanwhile
            high = await master.read_dword(address_of(f"counter_{name}_high"))
            assert low | high << 32 == values[number], name
