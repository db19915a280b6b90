"""Random programs on the Verilog beside the functional simulator, as many as there is time for.

    python -m tests.soak                        300 programs on the machines of tests/random_cases.py
    python -m tests.soak --programs 5000        so many in all; those that are done already are not done again
    python -m tests.soak --against EARLIER      and say which take other cycles, or make other bytes, than recorded

Each program is run with a memory that pauses at random and again with one that does not; whatever an instruction writes
into the input buffer, the accumulators, the rings and memory is compared (`sim.cosim`). The first difference of a
program is printed, with its instruction and component, and the exit status is 1.

What was done is kept line by line in build/soak, a file for each state of the sources, so a run that is stopped goes on
where it was. Cycles are those without pauses; bytes are a digest of the data region afterwards.
"""

import argparse
import contextlib
import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from gen.files.sources import sources_digest
from sim.cosim import compare_program
from sim.folders import cache_folder
from sim.rtl import Bus, RtlMachine
from tests.compiled import random_image
from tests.random_cases import MACHINES, compile_case
from tests.random_layers import random_inputs
from tests.sim.on_rtl import random_bus

__all__ = ["Outcome", "differences", "load", "soak"]

#: What decides what a program does.
_SOURCES = ("cores", "gen", "sim", "tests/random_cases.py")


@dataclass(frozen=True)
class Outcome:
    """Of one program: ``name`` is its machine and its seed."""

    name: str
    kind: str
    instructions: int
    cycles: int
    bytes: str
    difference: str = ""


def load(path: Path) -> dict[str, Outcome]:
    """What a file of outcomes has, by name; a last line that was cut is left out."""
    found = {}
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        for line in path.read_text().splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.name] = outcome
    return found


def soak(done: Mapping[str, Outcome], programs: int, machines: Mapping[str, object]) -> Iterator[Outcome]:
    """The outcomes that are missing of ``programs`` in all, spread over ``machines``."""
    for number, name in enumerate(machines):
        seeds = range(programs // len(machines) + (number < programs % len(machines)))
        missing = [seed for seed in seeds if f"{name} {seed}" not in done]
        if missing:
            with RtlMachine(MACHINES[name], observed=True) as machine:
                for seed in missing:
                    yield _outcome(machine, name, seed)


def _outcome(machine: RtlMachine, name: str, seed: int) -> Outcome:
    case, program, _ = compile_case(machine.config, seed)
    image = random_image(program, random_inputs(case.graph, seed), seed)
    said = ""
    for bus in (random_bus(random.Random(seed)), Bus()):
        machine.set_bus(bus)
        result, found = compare_program(machine, program.code, image, write_start=program.write_start)
        if found and not said:
            said = f"{found[0]} ({bus})"
    return Outcome(f"{name} {seed}", case.kind, len(program.instructions), result.cycles,
                   hashlib.sha256(result.image.tobytes()).hexdigest()[:16], said)


def differences(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> Iterator[str]:
    """What is otherwise in ``after``, a line each."""
    for name, one in before.items():
        other = after.get(name)
        if other is None:
            yield f"{name}: not run"
        elif one.bytes != other.bytes:
            yield f"{name}: other bytes"
        elif one.cycles != other.cycles:
            yield f"{name}: {one.cycles:,} -> {other.cycles:,} cycles ({other.cycles / one.cycles - 1:+.2%})"


def _file() -> Path:
    digest = hashlib.sha256(sources_digest(*_SOURCES).encode()).hexdigest()
    return cache_folder() / "soak" / f"{digest[:16]}.jsonl"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=300, metavar="N", help="in all (default 300)")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="only these machines")
    parser.add_argument("--against", type=Path, metavar="EARLIER", help="a file that an earlier run has named")
    arguments = parser.parse_args()
    path = _file()
    done, before = load(path), load(arguments.against) if arguments.against else {}
    if arguments.against and not before:
        parser.error(f"{arguments.against}: no outcomes")
    path.parent.mkdir(parents=True, exist_ok=True)
    began, kept = time.monotonic(), len(done)
    with path.open("a") as file:
        if done and not path.read_text().endswith("\n"):
            file.write("\n")
        for outcome in soak(done, arguments.programs, dict.fromkeys(arguments.machine or MACHINES)):
            done[outcome.name] = outcome
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            print(f"\r{len(done):,} programs ", end="", file=sys.stderr, flush=True)
    wrong = [outcome for outcome in done.values() if outcome.difference]
    print(f"\r{path}: {len(done):,} programs ({kept:,} of them before), "
          f"{sum(outcome.instructions for outcome in done.values()):,} instructions, "
          f"{sum(outcome.cycles for outcome in done.values()):,} cycles; {len(wrong):,} differ "
          f"({time.monotonic() - began:.0f} s)")
    for outcome in wrong:
        print(f"{outcome.name} ({outcome.kind}): {outcome.difference}")
    changed = list(differences(before, done))
    print(*changed, sep="\n", end="\n" if changed else "")
    return bool(wrong or changed)


if __name__ == "__main__":
    sys.exit(main())
