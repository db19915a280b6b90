"""The bring-up ladder in C: the faults of the Python one, on the same simulated devices, at the other end of a pipe."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cores.config import NpuConfig
from gen.bringup.programs import bring_up
from gen.deploy.c_bringup import c_bringup
from gen.deploy.c_sources import library_files
from npudriver import Backend
from npudriver.doctor import LADDER
from npudriver.dump import Dump, take_dump
from sim.devices import FunctionalBackend, InjectedFault, RtlBackend
from sim.devices.memory import SimulatedMemory
from sim.rtl.machine import RtlMachine
from tests.c_targets import TARGETS, build, require
from tests.confinement import CONFIG as LIMITED
from tests.piped_device import run_piped
from tests.selection import with_full

from .compiled_c import HERE, compiled, compiler, example_sources
from .fake_board import make_files
from .faulty import FaultyBackend
from .small import CONFIG, MACHINE, program, workload
from .test_doctor import FAULTS, Rewired, faults, kept, late, sporadic

REG = MACHINE.registers
SOURCES = ["piped_doctor.c", "npugen_doctor.c", "npugen_dump.c", "npugen.c", "npugen_bringup_data.S"]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror", "-O2"]


def sources(folder: Path, config: NpuConfig) -> Path:
    for name, content in {**library_files(config), **c_bringup(bring_up(config))}.items():
        (folder / name).write_bytes(content)
    for name in ("piped_backend.h", "piped_doctor.c"):
        shutil.copy(HERE / name, folder)
    return folder


@pytest.fixture(scope="module")
def doctor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program for `CONFIG`, with the sanitizer of undefined behaviour."""
    folder = sources(tmp_path_factory.mktemp("doctor"), CONFIG)
    return compiled(folder, "-D_POSIX_C_SOURCE=200809L", *SOURCES)


def lines(doctor: Path, backend: Backend, config: NpuConfig = CONFIG) -> list[str]:
    return run_piped([doctor], config, [], [], device=backend).lines


def checks(config: NpuConfig = CONFIG) -> list[str]:
    return [*(check.name for check in LADDER), *(trial.name for trial in bring_up(config).trials)]


def test_a_sound_device(doctor):
    assert [line.partition(":")[0] for line in lines(doctor, FunctionalBackend(CONFIG))] == [
        f"ok {name}" for name in checks()]


def test_a_machine_with_limits(tmp_path):
    built = compiled(sources(tmp_path, LIMITED), "-D_POSIX_C_SOURCE=200809L", *SOURCES)
    assert [line.partition(":")[0] for line in lines(built, FunctionalBackend(LIMITED), LIMITED)] == [
        f"ok {name}" for name in checks(LIMITED)]


@pytest.mark.rtl
def test_on_the_verilog(doctor):
    with RtlMachine(CONFIG) as machine:
        backend = RtlBackend(CONFIG, machine=machine)
        backend.memory = SimulatedMemory(0x4000_0000, 1 << 24, backend._map)    # a pipe has addresses of 32 bits
        found = lines(doctor, backend)
    assert [line.partition(":")[0] for line in found] == [f"ok {name}" for name in checks()], "\n".join(found)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(doctor, fault):
    """By the words of the Python doctor."""
    changes, check, words = faults()[fault]
    if fault == "inputs are not written back":
        changes = dict(arrives=late(8192 + 1))      # a pattern of the host's own memory has 16 KiB here
    *before, last = lines(doctor, FaultyBackend(FunctionalBackend(CONFIG), **changes))
    assert all(line.startswith("ok ") for line in before), before
    assert last.startswith(f"FAILED {check}: ") and words in last, last
    assert last.split(" | ")[2], "nothing is said to be done"


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("line", range(2, 7))
@pytest.mark.parametrize(("reads", "writes"), [(True, True), (True, False), (False, True)])
def test_stuck_lines_of_the_register_port(doctor, line, level, reads, writes):
    last = lines(doctor, Rewired(line, level, reads, writes))[-1]
    assert last.startswith(f"FAILED {'identity' if reads else 'registers'}: ")
    if reads and level and line > 3:
        assert "address line of it is stuck at 1" in last
    else:
        assert f"address line {line} of the register port is stuck at {level}" in last, last
        assert f"of {'reads' if reads else 'writes'}" in last


def test_a_memory_that_never_answers(doctor):
    for fault in (InjectedFault.STALL, InjectedFault.SILENT):
        backend = FunctionalBackend(CONFIG)
        backend.faults.append(fault)
        last = lines(doctor, backend)[-1]
        assert last.startswith("FAILED fetch: ") and "never answers" in last


def test_a_machine_that_another_has_left_running(doctor):
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(InjectedFault.ENDLESS)
    backend.write32(REG["control"], MACHINE.control["START"])
    found = lines(doctor, backend)
    assert "a program that was running has been stopped" in found[1] and len(found) == len(checks())


@pytest.mark.parametrize("target", with_full(TARGETS, "gcc", "gcc-sanitized", "aarch64", "riscv32-soft"))
def test_on_other_processors(target, tmp_path):
    """The same lines as here, of a sound device and of one whose clock is too fast."""
    require(TARGETS[target])
    command = build(sources(tmp_path, CONFIG), TARGETS[target], program=SOURCES[0], library=SOURCES[1:])
    found = run_piped(command, CONFIG, [], [], device=FunctionalBackend(CONFIG)).lines
    assert [line.partition(":")[0] for line in found] == [f"ok {name}" for name in checks()]
    faulty = FaultyBackend(FunctionalBackend(CONFIG), leaves=kept(sporadic(40)))
    assert "errors differ between runs" in run_piped(command, CONFIG, [], [], device=faulty).lines[-1]


def dumped(doctor: Path, backend: Backend, config: NpuConfig = CONFIG) -> Dump:
    said = run_piped([doctor, "dump"], config, [], [], device=backend).lines
    return Dump.from_json("".join(said).encode(), "d")


def test_dumps(doctor):
    """Of a machine that hangs, as Python takes them; and of another device, of which nothing more is read."""
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(InjectedFault.SILENT)
    backend.write32(REG["data_beats"], 77)
    backend.write32(REG["control"], MACHINE.control["START"])
    backend._registers["counter_cycles_high"] = 5
    found, wanted = dumped(doctor, backend), take_dump(backend, MACHINE)
    assert found.registers == wanted.registers and found.machine == wanted.machine and not found.trouble
    assert found.samples[0].status == MACHINE.status["BUSY"] and found.samples[0].counters["cycles"] == 5 << 32
    assert [sample.counters for sample in found.samples] == [sample.counters for sample in wanted.samples]
    assert found.samples[1].microseconds >= 1000
    read: list[int] = []

    def register(address: int, value: int) -> int:
        read.append(address)
        return value ^ (address == REG["id"])

    other = dumped(doctor, FaultyBackend(FunctionalBackend(CONFIG), register=register))
    assert not other.samples and set(read) <= {REG[name] for name in MACHINE.fingerprint} == {
        REG[name] for name in other.registers}


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_nothing_is_said_of_the_sources(name, tmp_path):
    """Also of the program for Linux."""
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    sources(tmp_path, CONFIG)
    example_sources(tmp_path, program(), workload())
    for source in ("npugen_doctor.c", "npugen_dump.c", "doctor.c", "example.c"):
        done = subprocess.run([name, *STRICT, "-c", "-o", "/dev/null", source], cwd=tmp_path, capture_output=True,
                              text=True)
        assert (done.returncode, done.stderr) == (0, ""), source


def test_on_the_files_of_a_board(tmp_path):
    """Linux's backend opens them; there is no machine behind, which the first check says."""
    sources(tmp_path, CONFIG)
    example_sources(tmp_path, program(), workload())
    make_files(tmp_path)
    text = (tmp_path / "npugen_uio.c").read_text()
    (tmp_path / "npugen_uio.c").write_text(text.replace('"/dev"', '"dev"').replace('"/sys/class"', '"class"'))
    subprocess.run(["make", "-s", "doctor", f"CC={compiler()}", "CFLAGS=-O1 -Werror"], cwd=tmp_path, check=True)
    built = tmp_path / "doctor"
    done = subprocess.run([built], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("FAILED identity: register at 0x0 is ") and done.stdout.count("\n") == 1
    done = subprocess.run([built, "dump"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"") and not Dump.from_json(done.stdout, "d").samples
    done = subprocess.run([built, "dump", "gpu"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "example: gpu: no such UIO device\n")
