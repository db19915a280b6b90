"""Dumps of devices: what is read, of which device, and by which commands."""

import json
from pathlib import Path

import pytest

import npudriver.__main__ as commands
from cores.arch.error_codes import ErrorCode
from gen.bringup.programs import bring_up
from npudriver import Backend, Deployment, TransportError
from npudriver.bringup import BRINGUP
from npudriver.dump import Dump, take_dump
from sim.devices import FunctionalBackend, InjectedFault
from tests.confinement import CONFIG as LIMITED

from .faulty import FaultyBackend
from .small import CONFIG, MACHINE, program

REG = MACHINE.registers


class Watched(FunctionalBackend):
    """Keeps what is read and written."""

    def __init__(self, config=CONFIG) -> None:
        super().__init__(config)
        self.reads: list[int] = []
        self.writes: list[int] = []

    def read32(self, address: int) -> int:
        self.reads.append(address)
        return super().read32(address)

    def write32(self, address: int, value: int) -> None:
        self.writes.append(address)
        super().write32(address, value)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    Deployment(name="small", board="b", device="uio:", machine=MACHINE, inputs={"x": ("uint8", [4, 6, 6])},
               outputs=[program().outputs[0].name], segments=[program()]).save(tmp_path)
    return tmp_path


@pytest.mark.parametrize("config", [CONFIG, LIMITED], ids=["plain", "limits"])
def test_every_register_is_in_it(config):
    """All but commands; nothing is written, and a counter's low half is read before its high one."""
    backend = Watched(config)
    machine = backend._machine
    dump = take_dump(backend, machine)
    assert not backend.writes and not dump.trouble
    counters = {name for name in machine.registers if name.startswith("counter_")}
    assert set(dump.registers) == set(machine.registers) - counters - {"control"}
    assert [set(sample.counters) for sample in dump.samples] == [set(machine.counters)] * 2
    for name in machine.counters:
        at = backend.reads.index(machine.registers[f"counter_{name}_low"])
        assert backend.reads[at + 1] == machine.registers[f"counter_{name}_high"]
    assert Dump.from_json(dump.to_json().encode(), "d") == dump


@pytest.mark.parametrize("name", ["id", "version"])
def test_another_device_is_left_alone(name):
    """Nothing is read beyond what identifies it."""
    backend = Watched()
    dump = take_dump(FaultyBackend(backend, register=lambda address, value: value ^ (address == REG[name])), MACHINE)
    assert set(backend.reads) == {REG[name] for name in MACHINE.fingerprint} and not dump.samples
    assert Dump.from_json(dump.to_json().encode(), "d") == dump


def test_another_configuration_is_read():
    dump = take_dump(FaultyBackend(FunctionalBackend(CONFIG),
                                   register=lambda address, value: value ^ (address == REG["config"])), MACHINE)
    assert len(dump.samples) == 2


def test_a_way_that_fails():
    """What was read until then is in the dump."""
    def register(address: int, value: int) -> int:
        if address == REG["data_beats"]:
            raise TransportError("the cable is out")
        return value

    dump = take_dump(FaultyBackend(FunctionalBackend(CONFIG), register=register), MACHINE)
    assert dump.trouble == "the cable is out" and "program_length" in dump.registers
    assert Dump.from_json(dump.to_json().encode(), "d") == dump


def test_the_command(package, monkeypatch, capsys):
    backend: Backend = FunctionalBackend(CONFIG)
    monkeypatch.setattr(commands, "open_backend", lambda url: backend)
    backend.faults.append(InjectedFault.SILENT)
    backend.write32(REG["control"], MACHINE.control["START"])
    assert commands.main(["dump", str(package)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["registers"]["status"] == MACHINE.status["BUSY"]
    assert commands.main(["dump", str(package), "-o", str(package / "d.json")]) == 0
    assert Dump.from_json((package / "d.json").read_bytes(), "d").samples[1].status == MACHINE.status["BUSY"]
    assert commands.main(["dump", str(package), "-o", str(package / "no" / "d.json")]) == 1
    assert "unreadable-file" in capsys.readouterr().err
    (package / BRINGUP).write_bytes(bring_up(CONFIG).content())
    assert commands.main(["dump", str(package / BRINGUP)]) == 0
    assert Dump.from_json(capsys.readouterr().out.encode(), "d").machine == MACHINE
    backend = FaultyBackend(FunctionalBackend(CONFIG), register=lambda address, value: 0)
    assert commands.main(["dump", str(package)]) == 1


@pytest.mark.parametrize(("fault", "status", "code"), [
    (InjectedFault.SILENT, "BUSY", ErrorCode.NONE), (InjectedFault.STALL, "ERROR", ErrorCode.TIMEOUT),
    (InjectedFault.NONE, None, ErrorCode.NONE)])
def test_of_the_doctor(package, monkeypatch, fault, status, code):
    """Of the program that failed, before its traces are cleared; of a sound device at the end."""
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(fault)
    monkeypatch.setattr(commands, "open_backend", lambda url: backend)
    path = package / "d.json"
    assert commands.main(["doctor", str(package), "--dump", str(path)]) == (0 if status is None else 1)
    dump = Dump.from_json(path.read_bytes(), "d")
    assert dump.samples[0].status == (0 if status is None else MACHINE.status[status])
    assert dump.registers["error_code"] == code
