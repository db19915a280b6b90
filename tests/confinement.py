"""Mutated programs and registers on the Verilog of a small machine with limits: nothing leaves them, nothing hangs.

    python -m tests.confinement                     1,000 programs
    python -m tests.confinement --programs 10000    so many in all; those that are done already are not done again

Three of four programs are mutated with the host's registers as they should be: bursts may then read the program and
the data region, and write what of that is writable. With the fourth, registers of the regions are mutated as well, as
by somebody who has those but not the page of the limits, or the limits are narrower; bursts may go anywhere within
them. The memory looks at each address that is offered, pauses at random, and has other buffers beside the limits and
far away, which must stay as they are. A program that is not done in time is aborted, and the machine must be at rest
then. Now and again the program as it was must give its results.

What was done is kept line by line in build/confinement, a file for each state of the sources, so a run that is stopped
goes on where it was.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import random
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from cores.arch.error_codes import error_code
from cores.arch.instruction import Instruction, decode, encode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode
from cores.arch.registers import BASE_ALIGNMENT, Status
from cores.config import NpuConfig
from gen.files.sources import sources_digest
from npudriver.registers import Job
from sim.folders import cache_folder
from sim.functional import run
from sim.rtl import ProtocolError, RtlMachine
from sim.rtl.driver import Driver
from sim.rtl.machine import RunStatus
from sim.timing.dram import data_base
from tests.compiled import random_image
from tests.random_cases import compile_case
from tests.random_layers import random_inputs
from tests.sim.on_rtl import random_bus

__all__ = ["CONFIG", "Base", "Outcome", "confined", "intact", "mutated", "outcome_of"]

CONFIG = NpuConfig.preset(16, limits=1)
#: Programs that are mutated, and the largest height and width of their maps.
_BASES, _SIZE = 24, 6
#: Cycles without progress until the machine gives up, cycles until a program is aborted, and until it must rest then.
_TIMEOUT, _LIMIT, _REST = 2_000, 12_000, 20_000
_REGISTERS_TOO, _INTACT = 4, 100
_OTHERS, _FAR = 4 * BASE_ALIGNMENT, 0x2000_0000
_SOURCES = ("cores", "sim", "npudriver/registers.py", "tests/confinement.py", "tests/random_cases.py")


@dataclass(frozen=True)
class Outcome:
    """``end``: DONE, the name of an error, or ABORTED; ``broken``: what should not have been."""

    number: int
    end: str
    cycles: int
    broken: str = ""


@dataclass(frozen=True, eq=False)
class Base:
    """A program that works, its memory, and what becomes of that."""

    instructions: tuple[bytes, ...]
    image: np.ndarray
    write_start: int
    result: np.ndarray

    @property
    def code(self) -> bytes:
        return b"".join(self.instructions)


@lru_cache(maxsize=_BASES)
def base_of(number: int) -> Base:
    case, program, _ = compile_case(replace(CONFIG, limits=0), number % _BASES, max_size=_SIZE)
    image = random_image(program, random_inputs(case.graph, number), number)
    result = image.copy()
    run(CONFIG, program.code, result, write_start=program.write_start)
    parts = range(0, len(program.code), INSTRUCTION_BYTES)
    return Base(tuple(program.code[at:at + INSTRUCTION_BYTES] for at in parts), image, program.write_start, result)


# -- mutation ----------------------------------------------------------------------------------------------------------

def mutated(instructions: Collection[bytes], chance: random.Random) -> bytes:
    """A program with one to four changes."""
    changed = list(instructions)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(changed))
        match chance.randrange(8):
            case 0:
                changed[at] = _flipped(changed[at], chance)
            case 1:
                del changed[at:at + chance.choice((1, 1, 3))]
            case 2:
                changed.insert(at, chance.choice(changed))
            case 3:
                other = chance.randrange(len(changed))
                changed[at], changed[other] = changed[other], changed[at]
            case _:
                changed[at] = _other_fields(changed[at], chance)
        if not changed:
            changed = [encode(Instruction(Opcode.END))]
    return b"".join(changed)


def _flipped(word: bytes, chance: random.Random) -> bytes:
    return (int.from_bytes(word, "little") ^ 1 << chance.randrange(8 * len(word))).to_bytes(len(word), "little")


def _other_fields(word: bytes, chance: random.Random) -> bytes:
    """Another value for one or two fields: a small change, an extreme, or any that is legal; so it goes far."""
    with contextlib.suppress(ValueError):
        instruction = decode(word)
        names = [name for name in instruction.fields]
        for _ in range(16):
            fields = dict(instruction.fields)
            for name in chance.sample(names, min(len(names), chance.choice((1, 1, 2)))):
                bits = chance.randrange(1, 33)
                fields[name] = chance.choice((fields[name] + chance.randint(-4, 4), 0, (1 << bits) - 1,
                                              chance.getrandbits(bits)))
            with contextlib.suppress(ValueError):
                data = encode(Instruction(instruction.opcode, **fields))
                decode(data)
                return data
    return _flipped(word, chance)


def _other_registers(job: Job, chance: random.Random) -> Job:
    """Another place or size of a region: near the limits, at others' memory, or anywhere; or narrower limits."""
    def place(known: int) -> int:
        return chance.choice((known + BASE_ALIGNMENT * chance.randint(-6, 6), _FAR,
                              chance.getrandbits(CONFIG.address_width - 12) * BASE_ALIGNMENT))

    def size(known: int, bits: int) -> int:
        return chance.choice((known + chance.randint(0, 2048), (1 << bits) - 1, chance.getrandbits(bits)))

    assert job.region is not None
    first, last = job.region
    changes = {
        "program": place(job.program), "data": place(job.data), "instructions": size(job.instructions, 24),
        "data_beats": size(job.data_beats, 32), "write_start": 0,
        "region": (first, last - BASE_ALIGNMENT * chance.randint(0, max(0, (last - job.data) // BASE_ALIGNMENT))),
    }
    # Of most programs all or nearly all is fetched, so that their loads and stores are tried.
    often = [name for name in changes if name not in ("program", "instructions")]
    names = chance.sample(often if chance.random() < 0.8 else list(changes), chance.choice((1, 2, 3)))
    return replace(job, **{name: changes[name] for name in names})


# -- runs --------------------------------------------------------------------------------------------------------------

class _Memory:
    """Program and data in one piece, as a driver has them; beside it, and far away, what is others'."""

    def __init__(self, machine: RtlMachine, code: bytes, base: Base) -> None:
        config = machine.config
        beat, page = config.beat_bytes, BASE_ALIGNMENT
        room = -(-len(code) // page) * page
        self.array = np.zeros(room + -(-base.image.size // page) * page, np.uint8)
        self.array[:len(code)] = np.frombuffer(code, np.uint8)
        self.array[room:room + base.image.size] = base.image
        self.data = self.array[room:room + base.image.size]
        first = data_base(config)
        self.region = first, first + self.array.size - 1
        self.job = Job(program=first, instructions=len(code) // INSTRUCTION_BYTES, data=first + room,
                       data_beats=base.image.size // beat, write_start=base.write_start, timeout=_TIMEOUT,
                       region=self.region)
        end = first + -(-len(code) // beat) * beat - 1
        data = first + room, first + room + base.image.size - 1
        self.strict = {"read": [(first, end), data], "write": [(data[0] + base.write_start * beat, data[1])]}
        self._others = {address: np.full(_OTHERS, 0xC3, np.uint8)
                        for address in (first - _OTHERS, self.region[1] + 1, _FAR)}
        machine.map_memory({first: self.array, **self._others})

    @property
    def others_changed(self) -> bool:
        return any((array != 0xC3).any() for array in self._others.values())


def outcome_of(machine: RtlMachine, number: int) -> Outcome:
    """Of a mutated program. Raises ProtocolError for an address that may not be asked for, or a broken rule of AXI."""
    chance, base = random.Random(number), base_of(number)
    memory = _Memory(machine, mutated(base.instructions, chance), base)
    job, windows = memory.job, memory.strict
    if number % _REGISTERS_TOO == 0:
        job = _other_registers(job, chance)
        windows = {"read": [job.region], "write": [job.region]}
    bus = random_bus(chance)
    machine.set_bus(bus if chance.random() < 0.25 else replace(bus, stall_probability=chance.choice((0.1, 0.3, 0.5))))
    machine.set_windows(**windows)
    machine.begin()
    driver = Driver(machine, machine.config)
    driver.start(job)
    broken, end = "", "ABORTED"
    if machine.run(_LIMIT) is RunStatus.INTERRUPT:
        code, _ = driver.registers.finish()
        end = error_code(code).name if code else "DONE"
    else:
        driver.abort()
        machine.run(_REST)
        if Status.BUSY in driver.status():
            broken = "the machine does not stop"
    if memory.others_changed:
        broken = "memory of others has changed"
    return Outcome(number, end, machine.stats.cycles or 0, broken)


def intact(machine: RtlMachine, number: int) -> str:
    """What is wrong with a program as it was; nothing is."""
    base = base_of(number)
    memory = _Memory(machine, base.code, base)
    machine.set_windows(**memory.strict)
    machine.begin()
    driver = Driver(machine, machine.config)
    driver.start(memory.job)
    if machine.run(100 * _LIMIT) is not RunStatus.INTERRUPT:
        return "the program as it was does not end"
    driver.finish()
    return "" if (memory.data == base.result).all() else "the program as it was gives other results"


def confined(machine: RtlMachine, numbers: Collection[int]) -> Iterator[Outcome]:
    """The outcomes of these programs, on a machine that has been reset."""
    for number in numbers:
        try:
            outcome = outcome_of(machine, number)
            if number % _INTACT == 0 and not outcome.broken:
                outcome = replace(outcome, broken=intact(machine, number))
        except ProtocolError as error:
            machine.reset()
            outcome = Outcome(number, "BROKEN", 0, str(error))
        yield outcome


def _load(path: Path) -> dict[int, Outcome]:
    """What a file has; a last line that was cut is left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        for line in path.read_text().splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.number] = outcome
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.confinement", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000, metavar="N", help="in all (default 1000)")
    parser.add_argument("--json", action="store_true", help="print one object")
    arguments = parser.parse_args()
    digest = hashlib.sha256(sources_digest(*_SOURCES).encode()).hexdigest()
    path = cache_folder() / "confinement" / f"{digest[:16]}.jsonl"
    done = _load(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    began, kept = time.monotonic(), len(done)
    with path.open("a") as file, RtlMachine(CONFIG) as machine:
        if done and not path.read_text().endswith("\n"):
            file.write("\n")
        machine.reset()
        for outcome in confined(machine, [number for number in range(arguments.programs) if number not in done]):
            done[outcome.number] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            print(f"\r{len(done):,} programs ", end="", file=sys.stderr, flush=True)
    ends = collections.Counter(outcome.end for outcome in done.values())
    broken = [outcome for outcome in done.values() if outcome.broken]
    if arguments.json:
        json.dump({"programs": len(done), "broken": len(broken), "ends": ends}, sys.stdout, indent=1)
        return bool(broken)
    print(f"\r{path}: {len(done):,} programs ({kept:,} of them before), {len(broken):,} broken "
          f"({time.monotonic() - began:.0f} s)")
    print(", ".join(f"{name} {count:,}" for name, count in ends.most_common()))
    for outcome in broken:
        print(f"program {outcome.number}: {outcome.end}: {outcome.broken}")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
