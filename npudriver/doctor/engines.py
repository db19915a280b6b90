"""Whether an engine, by a program of its own, makes of known inputs what the golden model makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np

from ..backend import Buffer
from ..bringup import Trial
from ..registers import Registers
from .check import Bench, CheckError
from .difference import pattern_of
from .running import BUSY, execute

__all__ = ["engine"]

#: Of each run, what is done to the bits of what a program only copies, and of what lies where results are to be.
_KEYS, _FILLS = (0x00, 0xFF, 0x5A), (0xFF, 0xA5, 0x3C)
#: Bytes of the shortest cache line of any processor here.
_LINE = 32
_TIMING = "bits flip now and then: the clock is too fast for the design as it is placed, or for the memory"
_SLOWER = "look at the tool's timing report, and build with a lower --clock"


@dataclass(frozen=True)
class _Run:
    """uint8 of one size: what was to be found, what lay there before, what was found, and what the run before had."""

    wanted: np.ndarray
    before: np.ndarray
    found: np.ndarray
    earlier: np.ndarray

    @property
    def wrong(self) -> np.ndarray:
        return np.flatnonzero(self.wanted != self.found)


def engine(bench: Bench, trial: Trial) -> str:
    """Run a program several times. Raises CheckError that names the first wrong byte and what is most likely wrong."""
    expected = np.frombuffer(trial.expected, np.uint8)
    runs: list[_Run] = []
    for key, fill in zip(_KEYS, _FILLS):
        wanted = expected ^ np.uint8(key) if trial.source >= 0 else expected
        earlier = runs[-1].wanted if runs else wanted
        runs.append(_Run(wanted, expected ^ np.uint8(fill), _found(bench, trial, wanted, expected ^ np.uint8(fill)),
                         earlier))
    if all(not run.wrong.size for run in runs):
        return f"{trial.text}: {expected.size:,} bytes right in {len(runs)} runs"
    wrong, following = _cause(trial, bench.machine.beat_bytes, runs)
    raise CheckError(_first(trial, bench.machine.beat_bytes, runs), wrong=wrong, next=following)


def _found(bench: Bench, trial: Trial, wanted: np.ndarray, before: np.ndarray) -> np.ndarray:
    """What a run leaves. Raises CheckError for one that does not end, or not well."""
    beat = bench.machine.beat_bytes
    region = np.zeros(trial.data_beats * beat, np.uint8)
    region[:len(trial.data)] = np.frombuffer(trial.data, np.uint8)
    if trial.source >= 0:
        region[trial.source * beat:][:wanted.size] = wanted
    first = trial.output * beat
    region[first:first + wanted.size] = before
    found: list[np.ndarray] = []

    def take(registers: Registers, memory: Buffer) -> None:
        found.append(memory.read(first, wanted.size))

    outcome = execute(bench, np.frombuffer(trial.code, np.uint8), len(trial.code) // bench.machine.instruction_bytes,
                      region, trial.data_beats, trial.write_start, then=take)
    if not outcome:
        return found[0]
    if outcome in (BUSY, "TIMEOUT"):
        raise CheckError("the program does not end", wrong="an engine waits for what never comes",
                         next="take a dump (--dump) and let `python -m gen explain` say which, and for what")
    if outcome.startswith(("READ", "WRITE")):
        raise CheckError(f"the program stopped with {outcome}", wrong="the bus refuses what the machine asks of it in "
                         "its data region", next="check that the interconnect lets it read and write there, in bursts")
    raise CheckError(f"the program stopped with {outcome}", wrong="the machine read other bytes than the host wrote, "
                     "or decodes them wrongly", next="take a dump (--dump), and compare the bitstream with the package")


def _first(trial: Trial, beat: int, runs: Sequence[_Run]) -> str:
    """How much is wrong, and where it begins."""
    bad = [run for run in runs if run.wrong.size]
    run, (_, rows, cols) = bad[0], trial.shape
    at = int(run.wrong[0])
    pixel, lane = divmod(at, beat)
    return (f"{run.wrong.size:,} of {run.wanted.size:,} bytes are wrong in {len(bad)} of {len(runs)} runs; the first, "
            f"byte {at:#x} (block {pixel // (rows * cols)}, row {pixel // cols % rows}, column {pixel % cols}, channel "
            f"{lane}), is {int(run.found[at]):#04x}, not {int(run.wanted[at]):#04x}")


def _cause(trial: Trial, beat: int, runs: Sequence[_Run]) -> tuple[str, str]:
    """What is most likely wrong, and what to do."""
    bad = [run for run in runs if run.wrong.size]
    if all(np.array_equal(run.found[run.wrong], run.before[run.wrong]) for run in bad):
        what = "whole cache lines are" if all(_in_lines(run) for run in bad) and any(
            run.wrong.size < run.wanted.size for run in bad) else "memory is"
        why = "its cache is not invalidated before it reads, or the machine's writes do not arrive"
        return (f"{what} as the host had left it: {why}",
                "check that the back end invalidates the cache, and the memory port's write channels")
    if trial.source >= 0 and all(np.array_equal(run.found[run.wrong], run.earlier[run.wrong]) for run in bad):
        return ("the machine read what was there before: the host's cache is not written back",
                "check that the back end flushes the cache")
    errors = [run.wanted ^ run.found for run in runs]
    if len(bad) < len(runs) or any(not np.array_equal(errors[0], error) for error in errors[1:]):
        known = {pattern_of(run.wanted, run.found) for run in bad} if trial.source >= 0 else set()
        if len(known) == 1 and known != {""}:
            return f"of the machine's writes, {known.pop()}", "compare the memory port with the block design's"
        return f"errors differ between runs: {_TIMING}", _SLOWER
    run = bad[0]
    kind = pattern_of(run.wanted, run.found) if _is_power(run.wanted.size) else ""
    if kind:
        return f"of what the machine writes, {kind}", "compare the memory port with the block design's"
    where = [*_common(trial, beat, run), f"the same in each run: {_FABRIC[trial.source >= 0]}"]
    return ", ".join(where), _SLOWER


#: Whether a program only copies -> what may be wrong with it.
_FABRIC = {True: "the load engine, the input buffer or the store engine",
           False: "this engine's logic, a block of memory or a multiplier, or a path that always misses its timing"}


def _common(trial: Trial, beat: int, run: _Run) -> Sequence[str]:
    """What wrong bytes have in common."""
    lanes = np.unique(run.wrong % beat)
    bits = np.bitwise_or.reduce(run.wanted ^ run.found)
    columns = np.unique(run.wrong // beat % trial.shape[2] % 2)
    words = []
    if lanes.size <= beat // 2:
        words.append(f"only channel{'s' if lanes.size > 1 else ''} {', '.join(map(str, lanes[:8]))} of each block")
    if bits & (bits - 1) == 0:
        words.append(f"only bit {int(bits).bit_length() - 1}")
    if columns.size == 1 and trial.shape[2] > 1:
        words.append(f"only {('even', 'odd')[int(columns[0])]} columns")
    return words


def _in_lines(run: _Run) -> bool:
    """Whether wrong bytes are whole lines, but for those at the ends."""
    wrong = run.wanted != run.found
    whole = wrong[:wrong.size // _LINE * _LINE].reshape(-1, _LINE)
    return bool((whole.all(axis=1) == whole.any(axis=1)).all())


def _is_power(size: int) -> bool:
    return size >= 16 and size & (size - 1) == 0
