"""What each engine does when: every instruction, and which layer each cycle belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from cores.arch.isa import Opcode
from cores.arch.registers import ENGINE_STATES
from gen.report.columns import pack
from gen.report.numbers import Column, Cycle, Positive
from gen.run.report import Measured
from sim.profile import instruction_beats

__all__ = ["Bus", "Engine", "HostSpan", "Segment", "Timeline", "timeline_of"]

_COMPUTE = tuple(ENGINE_STATES).index("compute")
_WORKING = (Opcode.COMPUTE, Opcode.POOL)
_WRITING = (Opcode.STORE,)
#: Steps of time in which the bus's beats are counted.
_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The instructions of an engine, in their order; the columns are as `gen.report.columns.pack` writes them.

    ``index``: an instruction's number in the program, counted on from segment to segment; ``start``: its first cycle;
    ``length``: its cycles from the first to the last; ``states``: cycles of those in each state. What is left of the
    length is a pause in which the engine had it in hand and did something else.
    """

    index: Column
    start: Column
    length: Column
    states: dict[str, Column]


@dataclass(frozen=True, kw_only=True)
class Bus:
    """Beats in each step of ``cycles`` cycles, those of an instruction spread evenly over its cycles, in thousandths of
    a beat; fetched instructions are not counted."""

    cycles: Positive
    read: Column
    write: Column


@dataclass(frozen=True, kw_only=True)
class HostSpan:
    """A segment of the processor: ``seconds`` as measured on the computer that made the report."""

    start: Cycle
    length: Cycle
    seconds: Annotated[float, Meta(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One of the accelerator, from its START to its END."""

    start: Cycle
    length: Cycle


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Cycles from the start of the inference, at the report's clock; segments follow each other without a pause.

    ``opcode`` and ``layer`` are of all instructions by number: indices of ``opcodes`` and of the report's layers, -1
    for none. ``owner``, ``owner_start``, ``owner_length``: runs of cycles, and the layer that the profile gives them
    to: without a gap, all cycles of the accelerator.
    """

    cycles: Positive
    opcodes: list[str]
    opcode: Column
    layer: Column
    engines: dict[str, Engine]
    bus: Bus
    owner: Column
    owner_start: Column
    owner_length: Column
    segments: list[Segment]
    host: list[HostSpan]


@dataclass(frozen=True, eq=False)
class _Placed:
    """A segment of the accelerator that begins at a cycle, after so many instructions and layers."""

    measured: Measured
    start: int
    instructions: int
    layers: int

    @property
    def opcodes(self) -> np.ndarray:
        return np.array([int(instruction.opcode) for instruction in self.measured.program.instructions])

    @property
    def owners(self) -> np.ndarray:
        own = np.array(self.measured.program.instruction_layers)
        return np.where(own < 0, -1, own + self.layers)

    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Layer, first cycle and number of cycles of each run, as `sim.profile` gives cycles to layers."""
        works = np.flatnonzero(np.isin(self.opcodes, [int(opcode) for opcode in _WORKING]))
        ends = self.measured.record.last[_COMPUTE, works] + 1
        ends[-1:] = self.measured.cycles
        owners = self.owners[works]
        kept = np.flatnonzero(np.append(owners[1:] != owners[:-1], True)) if len(owners) else np.zeros(0, np.int64)
        last = ends[kept]
        lengths = np.diff(last, prepend=0)
        return owners[kept], last - lengths + self.start, lengths


def timeline_of(parts: Sequence[Measured | float], mhz: float) -> Timeline:
    """Of segments in the order in which they run: a record of one of the accelerator, or the seconds of one of the
    processor."""
    placed: list[_Placed] = []
    host: list[HostSpan] = []
    now = instructions = layers = 0
    for part in parts:
        if isinstance(part, Measured):
            placed.append(_Placed(part, now, instructions, layers))
            now, layers = now + part.cycles, layers + len(part.program.layers)
            instructions += len(part.program.instruction_layers)
        else:
            length = max(1, round(part * mhz * 1e6))
            host.append(HostSpan(start=now, length=length, seconds=part))
            now += length
    codes = np.concatenate([part.opcodes for part in placed])
    used = sorted({int(code) for code in codes})
    runs = [part.runs() for part in placed]
    owner, owner_start, owner_length = (np.concatenate(columns) for columns in zip(*runs, strict=True))
    return Timeline(
        cycles=now, opcodes=[Opcode(code).name for code in used], opcode=pack(np.searchsorted(used, codes)),
        layer=pack(np.concatenate([part.owners for part in placed])),
        engines={name: _engine(placed, number, name) for number, name in enumerate(ENGINE_STATES)},
        bus=_bus(placed, now), owner=pack(owner), owner_start=pack(owner_start), owner_length=pack(owner_length),
        segments=[Segment(start=part.start, length=part.measured.cycles) for part in placed], host=host)


def _engine(placed: Sequence[_Placed], number: int, name: str) -> Engine:
    index, start, length = [], [], []
    counts: dict[str, list[np.ndarray]] = {state: [] for state in ENGINE_STATES[name][1:]}
    for part in placed:
        record = part.measured.record
        own = np.flatnonzero(record.last[number] >= 0)
        index.append(own + part.instructions)
        start.append(record.first[number, own] + part.start)
        length.append(record.last[number, own] - record.first[number, own] + 1)
        for code, state in enumerate(ENGINE_STATES[name]):
            if state in counts:
                counts[state].append(record.counts[number, code, own])
    return Engine(index=pack(np.concatenate(index)), start=pack(np.concatenate(start)),
                  length=pack(np.concatenate(length)),
                  states={state: pack(np.concatenate(columns)) for state, columns in counts.items()})


def _bus(placed: Sequence[_Placed], cycles: int) -> Bus:
    step = max(1, -(-cycles // _STEPS))
    edges = np.arange(0, cycles + step, step)
    found = {}
    for way, writes in (("read", False), ("write", True)):
        steps = np.zeros(len(edges) - 1)
        for part in placed:
            record = part.measured.record
            beats = instruction_beats(part.measured.program.instructions)
            own = np.flatnonzero((beats > 0) & (np.isin(part.opcodes, [int(code) for code in _WRITING]) == writes))
            last = record.last[:, own].max(axis=0) + 1
            first = np.where(record.first[:, own] < 0, 1 << 60, record.first[:, own]).min(axis=0)
            steps += _spread(first + part.start, last + part.start, beats[own], edges)
        found[way] = pack(np.round(1000 * steps).astype(np.int64))
    return Bus(cycles=int(step), **found)


def _spread(first: np.ndarray, last: np.ndarray, amounts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """(steps,) of the ``amounts``, each spread evenly from its first cycle to its last, which is left out."""
    # The total until a time is a sum of ramps: it bends up where one begins and down where it ends.
    rate = amounts / np.maximum(1, last - first)
    bends = np.concatenate([first, last])
    order = np.argsort(bends, kind="stable")
    times, change = bends[order], np.concatenate([rate, -rate])[order]
    slopes = np.concatenate([[0.0], np.cumsum(change)])
    reached = np.concatenate([[0.0], np.cumsum(slopes[1:-1] * np.diff(times))]) if len(times) else np.zeros(0)
    if not len(times):
        return np.zeros(len(edges) - 1)
    return np.maximum(0.0, np.diff(np.interp(edges, times, reached)))
