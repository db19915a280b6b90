"""The bring-up ladder: a sound device climbs it, and each fault that is put in is named."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

import npudriver.__main__ as commands
from cores.arch.isa import Opcode
from cores.device import driver_machine
from gen.bringup.programs import bring_up
from npudriver import Backend, Deployment, Machine
from npudriver.bringup import BRINGUP, Trial
from npudriver.doctor import LADDER, Bench, Finding, examine
from npudriver.doctor.difference import SWAPS, difference, pattern, swapped
from sim.devices import FunctionalBackend, InjectedFault, RtlBackend
from sim.rtl.machine import RtlMachine
from tests.confinement import CONFIG as LIMITED

from .faulty import FaultyBackend
from .small import CONFIG, MACHINE, machine_of_json, program

REG = MACHINE.registers


@cache
def trials() -> Sequence[Trial]:
    return bring_up(CONFIG).trials


def findings(backend: Backend, machine: Machine | None = None, programs: Sequence[Trial] | None = None,
             ) -> list[Finding]:
    """``programs``: those of `CONFIG` unless there are others."""
    chosen = trials() if programs is None else programs
    return list(examine(Bench(backend, machine or machine_of_json(), trials=chosen)))


def stuck_bit(data: np.ndarray) -> np.ndarray:
    words = data.copy()
    words[2::4] |= 8
    return words


def flipped(data: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    changed = data.copy()
    changed[rng.integers(0, data.size, 50)] ^= np.uint8(1) << rng.integers(0, 8, 50, np.uint8)
    return changed


def one_address_line(data: np.ndarray) -> np.ndarray:
    places = np.arange(data.size)
    return data[places & ~(1 << 12)] if data.size > 1 << 12 else data


def nothing(data: np.ndarray) -> np.ndarray:
    return np.zeros_like(data)


def late(size: int) -> Callable[[np.ndarray], np.ndarray]:
    """Writes of ``size`` bytes and more that are in memory only when the next ones are made."""
    held: dict[int, np.ndarray] = {}

    def change(data: np.ndarray) -> np.ndarray:
        if data.size < size:
            return data
        before = held.get(data.size, data)
        held[data.size] = data.copy()
        return before
    return change


def kept(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What becomes of all that any program has written."""
    return lambda code, data: change(data)


def of(opcode: Opcode, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Of what programs with an operation have written alone."""
    return lambda code, data: change(data) if (code[::16] & 127 == opcode).any() else data


def sporadic(count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Bits that flip, others each time."""
    rng = np.random.default_rng(3)

    def change(data: np.ndarray) -> np.ndarray:
        changed = data.copy()
        changed[rng.integers(0, data.size, count)] ^= np.uint8(1) << rng.integers(0, 8, count, np.uint8)
        return changed
    return change


def one_lane(data: np.ndarray) -> np.ndarray:
    changed = data.copy()
    changed[5::CONFIG.beat_bytes] |= 0x10
    return changed


def odd_pixels(data: np.ndarray) -> np.ndarray:
    """Of maps of nine columns, as those of the programs are, which begin a page after their input."""
    changed, beat = data.copy(), CONFIG.beat_bytes
    beats = changed[4096:4096 + (data.size - 4096) // (9 * beat) * 9 * beat].reshape(-1, 9, beat)
    beats[:, 1::2] ^= 0x3F
    return changed


def faults() -> dict[str, tuple[dict[str, Any], str, str]]:
    """Fault -> (what is put in, check that fails, words of what is said); some count or keep what passes, so each use
    takes them anew.
    """
    return {
        "no bitstream": (dict(register=lambda address, value: 0xFFFFFFFF), "identity", "no bitstream"),
        "wrong bitstream": (dict(register=lambda address, value: value ^ (address == REG["config"])), "identity",
                            "of another configuration"),
        "register port swaps bytes": (dict(register=lambda address, value: int.from_bytes(value.to_bytes(4, "big"),
                                                                                         "little")),
                                      "identity", "the bytes of each word are swapped"),
        "registers do not hold": (dict(write=lambda address, value: None), "registers", "writes do not arrive"),
        "stuck line of the register port": (dict(write=lambda address, value: (address, value & ~(1 << 7))),
                                            "registers", "bit 7 is stuck at 0"),
        "stuck address line of the register port": (
            dict(write=lambda address, value: (address & ~4, value)), "registers",
            "address line 2 of the register port is stuck at 0, of"),
        "stuck data line": (dict(read_back=stuck_bit), "memory", "data line 19 of 32 is stuck at 1"),
        "stuck address line": (dict(read_back=one_address_line), "memory", "address line 12 is stuck"),
        "clock too fast, as bit errors": (dict(read_back=flipped), "memory", "timing or signal integrity"),
        "swapped bytes": (dict(arrives=lambda data: swapped(data, "the bytes of each 32-bit word")), "fetch",
                          "swaps the bytes of each 32-bit word"),
        "swapped halves": (dict(arrives=lambda data: swapped(data, "the 32-bit halves of each 64-bit word")), "fetch",
                           "swaps the 32-bit halves of each 64-bit word"),
        "cache not written back": (dict(arrives=nothing), "fetch", "the cache is not written back"),
        "wrong base address": (dict(shift=1 << 31), "fetch", "no memory at the address"),
        "machine's writes are swapped": (dict(leaves=kept(lambda data: swapped(
            data, "the 32-bit halves of each 64-bit word"))), "loop",
            "the 32-bit halves of each 64-bit word are swapped"),
        "stuck data line of the machine's writes": (dict(leaves=kept(stuck_bit)), "loop",
                                                    "data line 19 of 32 is stuck at"),
        "inputs are not written back": (dict(arrives=late(8192)), "loop", "cache is not written back"),
        "outputs are not invalidated": (dict(stale=True), "loop", "cache is not invalidated"),
        "clock too fast, at the memory port": (dict(leaves=kept(sporadic(40))), "loop", "errors differ between runs"),
        "clock too fast, in the multipliers": (dict(leaves=of(Opcode.COMPUTE, sporadic(40))), "dense",
                                               "errors differ between runs"),
        "a lane of the multipliers": (dict(leaves=of(Opcode.COMPUTE, one_lane)), "dense",
                                      "only channel 5 of each block, only bit 4, the same in each run"),
        "a pixel lane of the multipliers": (dict(leaves=of(Opcode.COMPUTE, odd_pixels)), "dense",
                                            "only odd columns"),
        "the store's sum": (dict(leaves=of(Opcode.STORE_ADD, lambda data: data ^ 0x81)), "add",
                            "the same in each run: this engine"),
        "interrupt stuck at 0": (dict(interrupt=False), "interrupt", "stuck at 0"),
        "interrupt stuck at 1": (dict(interrupt=True), "interrupt", "stuck at 1"),
    }


#: Their names.
FAULTS = tuple(faults())


def test_a_sound_device():
    found = findings(FunctionalBackend(CONFIG))
    assert [finding.check for finding in found] == [*(check.name for check in LADDER),
                                                    *(trial.name for trial in trials())]
    assert all(finding.ok for finding in found), "\n".join(map(str, found))


def test_a_machine_with_limits():
    """Its limits are set for the programs, and open to nothing afterwards."""
    backend = FunctionalBackend(LIMITED)
    programs = bring_up(LIMITED).trials
    found = findings(backend, driver_machine(LIMITED), programs)
    assert all(finding.ok for finding in found), "\n".join(map(str, found))
    assert len(found) == len(LADDER) + len(programs)
    assert backend.read32(driver_machine(LIMITED).registers["limit_lock"]) == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault):
    named(FunctionalBackend(CONFIG), fault)


def named(backend: Backend, fault: str) -> None:
    changes, check, words = faults()[fault]
    *before, last = findings(FaultyBackend(backend, **changes))
    assert all(finding.ok for finding in before)
    assert (last.check, last.ok) == (check, False), str(last)
    assert words in str(last) and "\n" not in str(last) and last.next


class Rewired(FaultyBackend):
    """Addresses of registers have a line at one level: of reads, of writes, or of both."""

    def __init__(self, line: int, level: int, reads: bool, writes: bool) -> None:
        super().__init__(FunctionalBackend(CONFIG))
        self._line, self._level, self._reads, self._writes = line, level, reads, writes

    def _wired(self, address: int) -> int:
        return address & ~(1 << self._line) | self._level << self._line

    def read32(self, address: int) -> int:
        return super().read32(self._wired(address) if self._reads else address)

    def write32(self, address: int, value: int) -> None:
        super().write32(self._wired(address) if self._writes else address, value)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("line", range(2, 7))
@pytest.mark.parametrize(("reads", "writes"), [(True, True), (True, False), (False, True)])
def test_stuck_lines_of_the_register_port(line, level, reads, writes):
    """Each is named, but for reads that lead to registers which are zero, as those of no machine are."""
    last = findings(Rewired(line, level, reads, writes))[-1]
    assert last.check == ("identity" if reads else "registers")
    if reads and level and line > 3:
        assert "nothing answers" in str(last) or "another peripheral" in str(last)
        assert "address line of it is stuck at 1" in str(last)
    else:
        assert f"address line {line} of the register port is stuck at {level}" in last.wrong, str(last)
        assert f"of {'reads' if reads else 'writes'}" in last.wrong


def test_a_memory_that_never_answers():
    """By the machine's TIMEOUT, and where not even that comes."""
    for fault in (InjectedFault.STALL, InjectedFault.SILENT):
        backend = FunctionalBackend(CONFIG)
        backend.faults.append(fault)
        last = findings(backend)[-1]
        assert last.check == "fetch" and "never answers" in str(last)


def test_a_machine_that_another_has_left_running():
    backend = FunctionalBackend(CONFIG)
    backend.faults.append(InjectedFault.ENDLESS)
    backend.write32(REG["control"], MACHINE.control["START"])
    found = findings(backend)
    assert found[1].found == "a program that was running has been stopped"
    assert len(found) == len(LADDER) + len(trials()) and all(finding.ok for finding in found)


@pytest.mark.rtl
@pytest.mark.parametrize("names", [(), pytest.param(FAULTS, marks=pytest.mark.full)], ids=["sound", "faults"])
def test_on_the_verilog(names):
    """One simulation for a sound device and for every fault."""
    with RtlMachine(CONFIG) as machine:
        found = findings(RtlBackend(CONFIG, machine=machine))
        assert all(finding.ok for finding in found), "\n".join(map(str, found))
        assert len(found) == len(LADDER) + len(trials())
        for fault in names:
            named(RtlBackend(CONFIG, machine=machine), fault)


def test_differences():
    data = pattern(1 << 12)
    assert difference(data, data) == ""
    for swap in SWAPS:
        assert difference(data, swapped(data, swap)) == f"{swap} are swapped"
    assert "0x00" in difference(data, np.zeros_like(data))
    for width, line in ((8, 3), (32, 31), (64, 40)):
        changed = data.copy()
        changed[line // 8::width // 8] &= np.uint8(255 ^ 1 << line % 8)
        assert difference(data, changed) == f"data line {line} of {width} is stuck at 0"


@pytest.mark.parametrize(("device", "words"), [("uio:nothing_of_that_name", "not loaded"),
                                               ("tcp://127.0.0.1:1", "nothing answers there")])
def test_a_device_that_cannot_be_opened(device, words, tmp_path, capsys):
    """Is a finding as well, on standard output and in JSON."""
    Deployment(name="small", board="b", device="uio:", machine=MACHINE, inputs={"x": ("uint8", [4, 6, 6])},
               outputs=[program().outputs[0].name], segments=[program()]).save(tmp_path)
    assert commands.main(["doctor", str(tmp_path), "--device", device, "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)
    assert finding["check"] == "open" and words in finding["wrong"] and finding["next"]
    assert commands.main(["doctor", str(tmp_path), "--device", "nonsense:"]) != 0
    assert "bad-url" in capsys.readouterr().err


def test_the_command(tmp_path, monkeypatch, capsys):
    backend: Backend = FunctionalBackend(CONFIG)
    monkeypatch.setattr(commands, "open_backend", lambda url: backend)
    Deployment(name="small", board="b", device="uio:", machine=MACHINE, inputs={"x": ("uint8", [4, 6, 6])},
               outputs=[program().outputs[0].name], segments=[program()]).save(tmp_path)
    assert commands.main(["doctor", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.count("ok     ") == len(LADDER) + 1 and f"there is no {BRINGUP} here" in said
    (tmp_path / BRINGUP).write_bytes(bring_up(CONFIG).content())
    for options in ([str(tmp_path)], [str(tmp_path / BRINGUP)], [str(tmp_path), "--programs", str(tmp_path / BRINGUP)]):
        assert commands.main(["doctor", *options]) == 0
        said = capsys.readouterr().out
        assert said.count("ok     ") == len(LADDER) + len(trials()) and "ok     dense: " in said
    (tmp_path / BRINGUP).write_bytes(bring_up(LIMITED).content())
    assert commands.main(["doctor", str(tmp_path)]) == 1 and "another machine" in capsys.readouterr().err
    (tmp_path / BRINGUP).unlink()
    backend = FaultyBackend(FunctionalBackend(CONFIG), interrupt=False)
    assert commands.main(["doctor", str(tmp_path), "--json"]) == 1
    assert [entry["ok"] for entry in json.loads(capsys.readouterr().out)] == [True] * 5 + [False]
