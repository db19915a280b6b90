"""Limits on simulated devices: the driver locks them around a program's memory, and nothing else is reached."""

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cores.arch.error_codes import LimitCode
from cores.arch.isa import Opcode
from cores.arch.registers import BASE_ALIGNMENT
from cores.device import driver_machine
from gen.ir import reference
from gen.run.workload import Workload, open_workload
from npudriver import Backend, Device, DeviceError, FaultError, open_backend
from npudriver.backends.uio import UioBackend
from sim.devices import FunctionalBackend
from sim.rtl import Bus, RtlMachine
from tests.confinement import CONFIG
from tests.errors import raises
from tests.gen.qdq import Builder

from .compiled_c import example_sources, on_rtl
from .fake_board import make_files
from .serving import serving
from .simulated import SIMULATORS, simulated

MACHINE = driver_machine(CONFIG)
#: Operations that ask for memory.
_LOADS = {Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE}


@cache
def workload() -> Workload:
    """uint8 (4, 20, 20) -> uint8 (8, 20, 20): maps of more than a page, so that limits can end within a row."""
    b = Builder(np.random.default_rng(0), number=np.uint8)
    real = b.dequantize(b.input(1, 4, 20, 20))
    b.output(b.quantize(b.node("Conv", real, b.weights(8, 4, 3, 3), pads=[1, 1, 1, 1])))
    return open_workload(Path("limits.onnx"), CONFIG, content=b.build().SerializeToString())


@pytest.fixture(scope="module")
def simulation() -> Iterator[RtlMachine]:
    with RtlMachine(CONFIG) as machine:
        yield machine


@pytest.fixture(params=SIMULATORS)
def backend(request: pytest.FixtureRequest) -> Backend:
    return simulated(request, CONFIG, Bus(stall_probability=0.3))


@pytest.fixture
def device(backend: Backend) -> Iterator[Device]:
    with Device(backend, MACHINE) as device:
        yield device


def sample(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.integers(0, 256, (4, 20, 20), np.uint8)}


def limits(device: Device) -> tuple[int, int, int]:
    registers = device.registers
    first, last = (registers.read(f"limit_{name}_low") | registers.read(f"limit_{name}_high") << 32
                   for name in ("first", "last"))
    return registers.read("limit_lock"), first, last


def fails(device: Device, program, region: tuple[int, int]) -> tuple[LimitCode, int, int]:
    """Code, index and address of a START with other limits than the driver's."""
    registers = device.registers
    registers.start(dataclasses.replace(program.job(program.slots[0]), region=region))
    device.backend.wait_interrupt(0.01)
    code, index = registers.finish()
    address = registers.read("limit_address_low") | registers.read("limit_address_high") << 32
    return LimitCode(code), index, address


def test_results_are_the_same(device, rng):
    """Programs take turns, each within its own limits; these are open to nobody once they are unloaded."""
    first, second = device.load(workload().program.deployed), device.load(workload().program.deployed)
    for loaded in (first, second, first):
        inputs = sample(rng)
        (found,) = loaded.run(inputs).values()
        outputs, _ = reference.run(workload().graph, {"x": inputs["x"][None]})
        np.testing.assert_array_equal(found, next(iter(outputs.values()))[0])
        assert limits(device) == (1, *loaded.region)
        assert all(loaded.region[0] <= buffer.address and buffer.address + buffer.size - 1 <= loaded.region[1]
                   for buffer in (loaded.code, *(slot.region for slot in loaded.slots)))
    assert first.region[1] < second.region[0]
    second.unload()
    assert limits(device) == (1, *first.region)
    first.unload()
    assert limits(device)[0] == 0


def test_locked_limits_stand_still(device):
    registers = device.registers
    registers.confine(0x4000_0000, 0x4000_0FFF)
    for name in ("first_low", "first_high", "last_low", "last_high"):
        registers.write(f"limit_{name}", 0x12345000)
    assert limits(device) == (1, 0x4000_0000, 0x4000_0FFF)
    registers.write("limit_lock", 0)
    registers.write("limit_first_low", 0x1234_5678)
    registers.write("limit_last_low", 0x2345_6789)
    assert limits(device) == (0, 0x1234_5000, 0x2345_6FFF)


def test_what_is_held_back(device, rng):
    """Code, instruction and address are the same on both devices; the result is left as it was."""
    program = device.load(workload().program.deployed, slots=1)
    program.run(sample(rng))
    first, last = program.region
    region, beat = program.slots[0].region, MACHINE.beat_bytes
    names = [instruction.opcode.name for instruction in workload().program.instructions]
    output, = program.outputs.values()
    before = region.read(0, region.size)
    code, index, address = fails(device, program, (first, region.address - 1))
    load = workload().program.instructions[index]
    assert (code, address) == (LimitCode.LOAD_LIMIT, region.address + load["offset"] * beat)
    assert load.opcode is next(one.opcode for one in workload().program.instructions if one.opcode in _LOADS)
    np.testing.assert_array_equal(region.read(0, region.size), before)
    # The output's last page is left out.
    end = region.address + (output.offset + output.beats(beat)) * beat - 1
    code, index, address = fails(device, program, (first, end // BASE_ALIGNMENT * BASE_ALIGNMENT - 1))
    assert (code, names[index], address) == (LimitCode.STORE_LIMIT, "STORE", end // BASE_ALIGNMENT * BASE_ALIGNMENT)
    code, index, address = fails(device, program, (region.address, last))
    assert (code, index, address) == (LimitCode.FETCH_LIMIT, 0, program.code.address)


def test_nothing_is_reached_without_a_lock(device, rng):
    program = device.load(workload().program.deployed)
    device.registers.confine(*program.region)
    device.registers.write("limit_lock", 0)
    device.registers.start(dataclasses.replace(program.job(program.slots[0]), region=None))
    device.backend.wait_interrupt(0.01)
    assert device.registers.finish() == (LimitCode.FETCH_LIMIT, 0)


def test_a_run_cannot_be_unlocked(device, rng):
    program = device.load(workload().program.deployed)
    inference = program.submit(sample(rng))
    device.registers.write("limit_lock", 0)
    assert limits(device)[0] == 1
    inference.result()


def test_limits_that_another_has_locked(device, rng, monkeypatch):
    """As with a process that keeps their page to itself: the driver goes on within them, and says so outside."""
    program = device.load(workload().program.deployed)
    device.registers.confine(*program.region)
    monkeypatch.setattr(device.registers, "_confined", None)
    write = device.backend.write32
    monkeypatch.setattr(device.backend, "write32", lambda address, value: None if address >= 0x1000 else write(
        address, value))
    program.run(sample(rng))
    other = device.load(workload().program.deployed)
    with raises(DeviceError, "outside-limits"):
        other.run(sample(rng))


def test_the_error_has_the_address(device, rng, monkeypatch):
    program = device.load(workload().program.deployed)
    monkeypatch.setattr(program, "region", (program.slots[0].region.address, program.region[1]))
    with pytest.raises(FaultError, match=f"FETCH_LIMIT at .*, bus address {program.code.address:#x}: the program lies"):
        program.run(sample(rng))


def test_a_server_keeps_the_limits(rng):
    """They are around its buffer, whatever a client writes and after a reset that it asks for."""
    backend = FunctionalBackend(CONFIG)
    names = ("limit_lock", "limit_first_low", "limit_last_low")
    with serving(backend) as url:
        with Device(open_backend(url), MACHINE) as device:
            found = [device.registers.read(name) for name in names]
            assert found[0] == 1 and found[2] - found[1] + 1 == 1 << 20
            for name in names:
                device.registers.write(name, 0)
            assert [device.registers.read(name) for name in names] == found
            inputs = sample(rng)
            (result,) = device.load(workload().program.deployed).run(inputs).values()
            device.reset()
            assert [device.registers.read(name) for name in names] == found
        outputs, _ = reference.run(workload().graph, {"x": inputs["x"][None]})
        np.testing.assert_array_equal(result, next(iter(outputs.values()))[0])


def test_their_page_is_a_device_of_its_own(tmp_path):
    """Who may not open it reads zeros, and what he writes goes nowhere."""
    make_files(tmp_path)
    folder, dev = tmp_path / "class" / "uio", tmp_path / "dev"

    def opened() -> UioBackend:
        return UioBackend(sysfs=str(tmp_path / "class"), dev=str(dev), interrupt=str(tmp_path / "interrupt"))

    address = MACHINE.registers["limit_first_low"]
    backend = opened()
    backend.write32(address, 0x1234_5000)
    assert backend.read32(address) == 0
    backend.close()
    assert not any((dev / "uio3").read_bytes())
    shutil.copytree(folder / "uio3", folder / "uio4")
    (folder / "uio4" / "name").write_text("npu-limits\n")
    (dev / "uio4").write_bytes(bytes(BASE_ALIGNMENT))
    backend = opened()
    backend.write32(address, 0x1234_5000)
    assert backend.read32(address) == 0x1234_5000
    backend.close()
    assert (dev / "uio4").read_bytes()[address - 0x1000:][:4] == bytes.fromhex("00503412")


@pytest.mark.rtl
def test_the_c_library_sets_them(tmp_path):
    """Two inferences on the Verilog, which reaches nothing without."""
    work = workload()
    example_sources(tmp_path, work.program.deployed, work)
    done = subprocess.run([on_rtl(tmp_path, config=CONFIG)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "0 values differ from the expected ones"
    source = tmp_path / "npugen.c"
    text = source.read_text()
    for line, instead, words in (
            ("status = confine(device, program);", "(void)confine;", "FETCH_LIMIT at instruction 0"),
            # As if another had locked them before.
            ("NPUGEN_REG_LIMIT_LOCK, 0);", "NPUGEN_REG_LIMIT_LOCK, 1);",
             "memory at addresses that the machine does not reach")):
        assert line in text
        source.write_text(text.replace(line, instead))
        done = subprocess.run([on_rtl(tmp_path, config=CONFIG)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1 and words in done.stderr, done.stderr
