"""The whole machine against cocotbext-axi: a second AXI memory and register master, independent of the runner's own."""

import itertools
import random
from functools import partial

import cocotb
import numpy as np
from amaranth.lib.wiring import Out
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiSlaveRead, AxiSlaveWrite, AxiWriteBus

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode
from cores.arch.registers import Control, Status, address_of
from cores.bus.read_ports import PORTS
from cores.config import NpuConfig
from cores.npu import Npu
from sim.errors import MachineError
from sim.functional import run
from sim.rtl.driver import Driver, Job
from tests.bench import bench_parameters
from tests.compiled import check_tensors, compile_random, golden_tensors, random_image
from tests.cores.bus_models import watch_resolved, watch_stable
from tests.cores.npu_programs import Case, convolutions, pooled_sum
from tests.cores.pins import value_of
from tests.random_layers import random_graph, random_inputs
from tests.sim.programs import END, assemble

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
#: Whether reads go over two ports.
SHARED = bench_parameters().get("shared", False)
PROGRAM, DATA = 0x1000_0000, 0x8_FFFF_F000
#: Long enough for the slowest case with pauses.
LIMIT_US = 2000


class SplitMemory:
    """Two regions, the first read-only; everything else, and what ``faulty`` says, is an error (SLVERR)."""

    def __init__(self) -> None:
        self.program = self.data = b""
        self.faulty = lambda write, address: False
        self.stray = 0

    def place(self, code: bytes, image: np.ndarray) -> None:
        self.program = code + bytes(-len(code) % CONFIG.beat_bytes)
        self.data = bytearray(image.tobytes())

    def _find(self, address: int, length: int):
        for base, memory in ((PROGRAM, self.program), (DATA, self.data)):
            if base <= address and address + length <= base + len(memory):
                return memory, address - base
        raise ValueError("outside the regions")

    async def read(self, address: int, length: int) -> bytes:
        memory, offset = self._find(address, length)
        if self.faulty(False, address):
            raise ValueError("fault")
        return bytes(memory[offset:offset + length])

    async def write(self, address: int, data: bytes) -> None:
        if not data:
            return
        try:
            memory, offset = self._find(address, len(data))
            assert isinstance(memory, bytearray)
        except (ValueError, AssertionError):
            self.stray += 1
            raise
        if self.faulty(True, address):
            raise ValueError("fault")
        memory[offset:offset + len(data)] = data


class Bench:
    """The machine under test with its memory and a driver, which runs in a thread as on a board."""

    def __init__(self, dut) -> None:
        self.dut, self.memory = dut, SplitMemory()
        self.reads, self.write_if = self._memory_ports()
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_"), dut.clk, dut.rst)
        for part in (*self.reads, self.write_if, self.master.read_if, self.master.write_if):
            part.log.setLevel("WARNING")
        self.read32 = resume(self.master.read_dword)
        self.write32 = resume(self.master.write_dword)
        self.driver = None

    def _memory_ports(self) -> tuple[list[AxiSlaveRead], AxiSlaveWrite]:
        clocked = {"clock": self.dut.clk, "reset": self.dut.rst, "target": self.memory}
        buses = [f"m_axi_read{port}_" for port in range(PORTS)] if SHARED else ["m_axi_"]
        return ([AxiSlaveRead(AxiReadBus.from_prefix(self.dut, bus), **clocked) for bus in buses],
                AxiSlaveWrite(AxiWriteBus.from_prefix(self.dut, "m_axi_"), **clocked))

    @classmethod
    async def start(cls, dut) -> "Bench":
        bench = cls(dut)
        cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
        dut.rst.value = 1
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        if cocotb.SIM_NAME.startswith("Icarus") and not bench_parameters().get("watched"):
            for path, member, _ in Npu(CONFIG).signature.flatten(Npu(CONFIG)):
                if member.flow is Out:
                    cocotb.start_soon(watch_resolved(getattr(dut, "__".join(map(str, path)))))
        bench.driver = await bridge(Driver)(bench, CONFIG)
        return bench

    def pause(self, probability: float) -> None:
        def generator(seed: int):
            chance = random.Random(seed)
            return (chance.random() < probability for _ in itertools.count())

        write, lite = self.write_if, self.master
        reads = [channel for read in self.reads for channel in (read.ar_channel, read.r_channel)]
        for channel in (*reads, write.aw_channel, write.w_channel, write.b_channel,
                        lite.write_if.aw_channel, lite.write_if.w_channel, lite.write_if.b_channel,
                        lite.read_if.ar_channel, lite.read_if.r_channel):
            channel.set_pause_generator(generator(random.getrandbits(32)))

    async def run(self, code: bytes, image: np.ndarray, write_start: int, *, timeout: int = 20_000) -> np.ndarray:
        """The data region after the program. Raises MachineError."""
        await self.begin(code, image, write_start, timeout=timeout)
        await self.interrupt()
        await bridge(self.driver.finish)()
        await RisingEdge(self.dut.clk)
        assert not value_of(self.dut.irq), "the interrupt outlives CLEAR"
        return np.frombuffer(bytes(self.memory.data), np.uint8)

    async def begin(self, code: bytes, image: np.ndarray, write_start: int, *, timeout: int = 20_000) -> None:
        self.memory.place(code, image)
        job = Job(program=PROGRAM, instructions=len(code) // 16, data=DATA,
                  data_beats=image.size // CONFIG.beat_bytes, write_start=write_start, timeout=timeout)
        await bridge(self.driver.start)(job)

    async def interrupt(self) -> None:
        if not value_of(self.dut.irq):
            await with_timeout(RisingEdge(self.dut.irq), LIMIT_US, "us")

    async def check(self, case: Case) -> None:
        expected = case.image.copy()
        run(CONFIG, case.code, expected, write_start=case.write_start, strict=True)
        found = await self.run(case.code, case.image, case.write_start)
        np.testing.assert_array_equal(found, expected)
        assert not self.memory.stray

    async def fails(self, code: ErrorCode, index: int | None, program: bytes, image: np.ndarray,
                    write_start: int, **options: int) -> None:
        """The program ends in this error and the machine is as good as new."""
        try:
            await self.run(program, image, write_start, **options)
        except MachineError as error:
            assert error.cause is code, error
            assert index is None or error.index == index, error
        else:
            raise AssertionError(f"the program did not fail with {code.name}")
        assert not self.memory.stray
        self.memory.faulty = lambda write, address: False
        await self.check(convolutions(CONFIG, 1))


@cocotb.test()
async def convolutions_run(dut):
    bench = await Bench.start(dut)
    for seed in range(2):
        await bench.check(convolutions(CONFIG, random.getrandbits(30) + seed))


@cocotb.test()
async def pooling_and_addition_run(dut):
    bench = await Bench.start(dut)
    for maximum in (False, True):
        await bench.check(pooled_sum(CONFIG, random.getrandbits(30), maximum=maximum))


@cocotb.test()
async def compiled_layers_run(dut):
    """Random graphs from the compiler, which uses the units that the machine has, against the golden layers."""
    bench = await Bench.start(dut)
    for _ in range(2):
        seed = random.getrandbits(30)
        program, graph = compile_random(CONFIG, seed, max_size=8, make=partial(random_graph, layers=4, max_channels=20))
        inputs = random_inputs(graph, seed)
        image = await bench.run(program.code, random_image(program, inputs, seed), program.write_start)
        check_tensors(program, graph, image, golden_tensors(graph, inputs), f"graph {seed}", reused=True)


@cocotb.test()
async def pauses_change_nothing(dut):
    bench = await Bench.start(dut)
    reads = [f"m_axi_read{port}__ar" for port in range(PORTS)] if SHARED else ["m_axi__ar"]
    addresses = [(channel, ("addr", "len")) for channel in (*reads, "m_axi__aw")]
    for channel, names in (*addresses, ("m_axi__w", ("data", "strb", "last"))):
        cocotb.start_soon(watch_stable(dut, channel, names))
    for pauses in (0.2, 0.6):
        bench.pause(pauses)
        await bench.check(convolutions(CONFIG, random.getrandbits(30)))
        await bench.check(pooled_sum(CONFIG, random.getrandbits(30), maximum=False))


@cocotb.test()
async def reset_in_the_middle(dut):
    bench = await Bench.start(dut)
    case = convolutions(CONFIG, 2)
    await bench.begin(case.code, case.image, case.write_start)
    await ClockCycles(dut.clk, random.randrange(50, 400))
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    assert await bridge(bench.driver.status)() == Status(0)
    await bench.check(case)


@cocotb.test()
async def illegal_instructions_stop(dut):
    bench = await Bench.start(dut)
    image = np.zeros(64 * CONFIG.beat_bytes, np.uint8)
    for index, word in ((0, bytes(16)), (2, bytes([Opcode.SYNC]) + bytes(14) + b"\x80")):
        code = index * assemble(Instruction(Opcode.SYNC)) + word + assemble(END)
        await bench.fails(ErrorCode.ILLEGAL, index, code, image, 0)
    await bench.fails(ErrorCode.NO_END, None, assemble(Instruction(Opcode.SYNC)), image, 0)


@cocotb.test()
async def ranges_are_kept(dut):
    bench = await Bench.start(dut)
    image = np.zeros(64 * CONFIG.beat_bytes, np.uint8)
    load = Instruction(Opcode.LOAD_WGT, offset=60, beats=5)
    await bench.fails(ErrorCode.READ_RANGE, 1, assemble(Instruction(Opcode.SYNC), load, END), image, 0)
    case = convolutions(CONFIG, 3)
    for write_start in (case.write_start + 200, case.image.size // CONFIG.beat_bytes):
        await bench.fails(ErrorCode.WRITE_RANGE, None, case.code, case.image, write_start)


@cocotb.test()
async def bus_errors_stop(dut):
    bench = await Bench.start(dut)
    case = convolutions(CONFIG, 4)
    for write, code in ((False, ErrorCode.READ_SLVERR), (True, ErrorCode.WRITE_SLVERR)):
        for _ in range(2):
            number, count = random.randrange(1, 60), itertools.count()
            bench.memory.faulty = lambda kind, address, w=write, n=number, c=count: kind == w and next(c) == n
            await bench.fails(code, None, case.code, case.image, case.write_start)


@cocotb.test()
async def a_missing_token_times_out(dut):
    bench = await Bench.start(dut)
    image = np.zeros(64 * CONFIG.beat_bytes, np.uint8)
    wait = Instruction(Opcode.LOAD_WGT, offset=0, beats=1, wait_compute=1)
    await bench.fails(ErrorCode.TIMEOUT, 0, assemble(wait, END), image, 0, timeout=500)


@cocotb.test()
async def a_silent_bus_is_reported_once(dut):
    """Nothing comes until the TIMEOUT is reported and cleared; then all that is owed."""
    bench = await Bench.start(dut)
    case = convolutions(CONFIG, 6)
    silent = True
    for channel in (*(read.r_channel for read in bench.reads), bench.write_if.b_channel):
        channel.set_pause_generator(iter(lambda: silent, None))
    await bench.begin(case.code, case.image, case.write_start, timeout=300)
    await bench.interrupt()
    try:
        await bridge(bench.driver.finish)()
    except MachineError as error:
        assert error.cause is ErrorCode.TIMEOUT, error
    assert await bridge(bench.driver.status)() == Status.BUSY
    silent = False
    for _ in range(200):
        await RisingEdge(dut.clk)
        assert not value_of(dut.irq), "a second interrupt"
    assert await bridge(bench.driver.status)() == Status(0)
    await bench.check(case)


@cocotb.test()
async def abort_stops(dut):
    bench = await Bench.start(dut)
    case = convolutions(CONFIG, 5)
    for _ in range(3):
        await bench.begin(case.code, case.image, case.write_start)
        await ClockCycles(dut.clk, random.randrange(1, 600))
        await bridge(bench.driver.abort)()
        for _ in range(1000):
            status = await bridge(bench.driver.status)()
            if Status.BUSY not in status:
                break
        assert Status.BUSY not in status
        await bridge(bench.write32)(address_of("control"), int(Control.CLEAR))
        await bench.check(case)
