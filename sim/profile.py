"""Where the cycles of a program go, layer by layer; from the time model or from a trace of the RTL alike.

Every cycle belongs to one layer, so layers add up to the whole. An instruction of the compute queue (COMPUTE, POOL) has
the cycles from the end of the one before it to its own end, its wait for data, tokens and weights among them. The
cycles after the last one (its stores, END) go to the last one's layer.

A layer's cycles are its useful ones, those of lanes that had nothing useful to do, and stalls, each with its cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, StepKind, WordForm
from cores.arch.numerics import MAP_PIXELS, POSITIONS
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.timing.compute import ComputeEngineTiming
from cores.timing.store import STORE_STAGES

__all__ = ["LayerTiming", "instruction_beats", "layer_timings"]

_COMPUTE = tuple(ENGINE_STATES).index("compute")
_BUSY = ENGINE_STATES["compute"].index("busy")
_WORKING = (Opcode.COMPUTE, Opcode.POOL)
#: Operation of a STORE -> values that it makes one of.
_JOINED = {Opcode.STORE_SIGNS: MAP_PIXELS, **{stage.OPCODE: stage.VALUES for stage in STORE_STAGES}}
#: Products for each MAC of a layer, where a mode makes fewer: 16 for four pixels instead of 36.
_MULTIPLIED = {"winograd": POSITIONS / 36}


class Layer(Protocol):
    """What is known of a layer: its dense network's ``macs``, ``useful_macs``, those left after pruning, and
    ``lane_macs``, these with channels rounded up to lanes, or 0 where the model asks for none of them.
    """

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def macs(self) -> int: ...
    @property
    def useful_macs(self) -> int: ...
    @property
    def lane_macs(self) -> int: ...


class Program(Protocol):
    """A compiled program; ``instruction_layers`` has the number of every instruction's layer, or -1."""

    @property
    def config(self) -> NpuConfig: ...
    @property
    def code(self) -> bytes: ...
    @property
    def layers(self) -> Sequence[Layer]: ...
    @property
    def instruction_layers(self) -> Sequence[int]: ...


class Record(Protocol):
    """When instructions ended and what engines did: a `sim.cycles.Timing` or the trace of `sim.rtl`.

    ``first``, ``last``: (engine, instruction), the first and last cycle with it in hand; ``counts``: (engine, state,
    instruction), cycles.
    """

    @property
    def first(self) -> np.ndarray: ...
    @property
    def last(self) -> np.ndarray: ...
    @property
    def counts(self) -> np.ndarray: ...


@dataclass(frozen=True)
class LayerTiming:
    """One layer. ``cycles`` is ``useful``, ``idle_pixels``, ``idle_lanes`` and all ``stalls`` together.

    The first three are the cycles in which the array, or the pool unit, was at work, divided by what its lanes did:
    ``idle_pixels`` had no output pixel (odd rows), ``idle_lanes`` no channel, tap or weight. ``utilisation`` is of all
    multipliers, or all lanes of the binary unit, by ``useful_macs``; ``dram_bytes`` counts instructions too.
    ``slots``: multiplications that could have been made in these cycles, where the layer has any.
    """

    name: str
    op: str
    mode: str
    cycles: int
    macs: int
    useful_macs: int
    utilisation: float
    dram_bytes: int
    useful: int
    idle_pixels: int
    idle_lanes: int
    stalls: dict[str, int]
    lane_macs: int
    slots: int


@dataclass(frozen=True)
class _Work:
    """What a COMPUTE or POOL has to do. ``pixels``: the share of its pixel lanes that have an output pixel.

    ``hurried``: cycles that its steps are too short by for the pipeline, which the engine spends in ``setup``;
    ``starved``: that it is their weights' number which keeps them longer still, a beat of them a cycle.
    """

    pixels: float
    hurried: int
    starved: bool

    @classmethod
    def of(cls, config: NpuConfig, geometry: Instruction, instruction: Instruction) -> "_Work":
        if instruction.opcode == Opcode.POOL:
            return cls(1.0, 0, False)
        rows, cols, taps = geometry["rows"], geometry["cols"], geometry["kernel_h"] * geometry["kernel_w"]
        lanes = config.word_columns(spread=geometry["words"] == WordForm.SPREAD)
        reads = max(1, geometry["reads"]) if instruction["kind"] == StepKind.WINDOW else -(-cols // lanes)
        beats = config.step_beats(StepKind(instruction["kind"]))
        steps = instruction["blocks"] * taps * instruction["groups"]
        shortest = ComputeEngineTiming.min_step(config)
        return cls(min(1.0, cols / (reads * lanes)), steps * max(0, shortest - rows * reads), beats > shortest)


def _stalls(config: NpuConfig, record: Record, instructions: Sequence[Instruction],
            works: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Cycles of each cause, and busy ones without an output pixel, of the instructions ``works``."""
    states = {name: record.counts[_COMPUTE, code, works] for code, name in enumerate(ENGINE_STATES["compute"])}
    geometry: Instruction | None = None
    found = []
    for instruction in instructions:
        if instruction.opcode == Opcode.COMPUTE_SET:
            geometry = instruction
        elif instruction.opcode in _WORKING:
            assert geometry is not None
            found.append(_Work.of(config, geometry, instruction))
    hurried = np.minimum(states["setup"], [work.hurried for work in found])
    starved = np.where([work.starved for work in found], hurried, 0)
    causes = {
        "wait_weights": states["wait_weights"] + starved, "wait_load": states["wait_load"],
        "wait_store": states["wait_store"], "short_steps": hurried - starved, "setup": states["setup"] - hurried}
    return causes, states["busy"] * (1 - np.array([work.pixels for work in found]))


def instruction_beats(instructions: Sequence[Instruction]) -> np.ndarray:
    """Beats of data that each instruction moves over the bus, int64 (n,); its own fetch is not counted."""
    beats = np.zeros(len(instructions), np.int64)
    cols = 0
    values = 1          # of a beat that is stored
    geometry: Instruction | None = None     # of STOREs
    for index, instruction in enumerate(instructions):
        match instruction.opcode:
            case Opcode.LOAD_SET:
                cols = instruction["cols"]
            case Opcode.STORE_SET:
                geometry = instruction
            case Opcode.STORE_REQUANT:
                values = 1
            case opcode if opcode in _JOINED:
                values *= _JOINED[opcode]
            case Opcode.LOAD_ACT:
                beats[index] = instruction["blocks"] * instruction["rows"] * cols
            case Opcode.LOAD_WGT:
                beats[index] = instruction["beats"]
            case Opcode.LOAD_SIDE:
                beats[index] = instruction["rows"] * instruction["cols"]
            case Opcode.STORE:
                assert geometry is not None
                if not geometry["local"]:
                    beats[index] = instruction["blocks"] * geometry["rows"] * -(-geometry["cols"] // values)
    return beats


def layer_timings(program: Program, record: Record, cycles: int) -> list[LayerTiming]:
    """The program's layers, in order; ``cycles`` from its start to its end, on the record's clock.

    Raises ValueError when the record is of another program.
    """
    code = program.code
    instructions = [decode(code[at:at + INSTRUCTION_BYTES]) for at in range(0, len(code), INSTRUCTION_BYTES)]
    if record.last.shape[1] != len(instructions):
        raise ValueError(f"record of {record.last.shape[1]} instructions, program of {len(instructions)}")
    owners = np.array(program.instruction_layers)
    works = np.array([i for i, instruction in enumerate(instructions)
                      if instruction.opcode in _WORKING], np.int64)
    ends = record.last[_COMPUTE, works] + 1
    spans = np.diff(ends, prepend=0)
    spans[-1:] += cycles - ends[-1:]

    def by_layer(index: np.ndarray, values: np.ndarray) -> np.ndarray:
        totals = np.zeros(len(program.layers), values.dtype)
        np.add.at(totals, owners[index], values)
        return totals

    total = by_layer(works, spans)
    causes, unused = _stalls(program.config, record, instructions, works)
    busy = by_layer(works, record.counts[_COMPUTE, _BUSY, works])
    stalled, unused = {name: by_layer(works, spent) for name, spent in causes.items()}, by_layer(works, unused)
    moved = instruction_beats(instructions) * program.config.beat_bytes + INSTRUCTION_BYTES
    owned = np.flatnonzero(owners >= 0)
    traffic = by_layer(owned, moved[owned])
    config = program.config
    rates = {"binary": config.binary_macs}
    timings = []
    for number, layer in enumerate(program.layers):
        own = int(total[number])
        stalls = {name: int(spent[number]) for name, spent in stalled.items()}
        # Cycles in which the compute queue was empty: the program's start and end.
        stalls["idle"] = own - int(busy[number]) - sum(stalls.values())
        rate = rates.get(layer.mode, config.macs)
        # A pool unit's lanes all work; weights that are zero and left out are no work.
        useful = int(busy[number])
        if layer.macs:
            useful = min(useful, round(layer.useful_macs * _MULTIPLIED.get(layer.mode, 1.0) / rate))
        pixels = min(int(busy[number]) - useful, round(unused[number]))
        timings.append(LayerTiming(
            layer.name, layer.op, layer.mode, own, layer.macs, layer.useful_macs,
            layer.useful_macs / max(1, rate * own), int(traffic[number]), useful, pixels,
            int(busy[number]) - useful - pixels, stalls, layer.lane_macs,
            rate * int(busy[number]) if layer.macs else 0))
    return timings
