"""Where the cycles of a program go, layer by layer; from the time model or from a trace of the RTL alike.

Every cycle belongs to one layer, so layers add up to the whole: an instruction of the compute queue (COMPUTE, POOL) has
the cycles from the end of the one before it to its own end, hence also its wait for data, tokens and weights; what
follows the last one (its stores, END) goes to the last one's layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cores.config import NpuConfig
from cores.isa import INSTRUCTION_BYTES, Instruction, Opcode, decode
from cores.numerics import MAP_PIXELS
from cores.registers import ENGINE_STATES

__all__ = ["LayerTiming", "instruction_beats", "layer_timings"]

_COMPUTE = tuple(ENGINE_STATES).index("compute")


class Layer(Protocol):
    """What is known of a layer: its dense network's ``macs``, and ``useful_macs``, those left after pruning."""

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

    ``last``: (engine, instruction), the last cycle with it in hand; ``counts``: (engine, state, instruction), cycles.
    """

    @property
    def last(self) -> np.ndarray: ...
    @property
    def counts(self) -> np.ndarray: ...


@dataclass(frozen=True)
class LayerTiming:
    """One layer. ``cycles`` is the compute engine's busy cycles and all ``stalls``; ``dram_bytes`` counts its
    instructions too; ``utilisation`` is of all multipliers, or all lanes of the binary unit, by ``useful_macs``."""

    name: str
    op: str
    mode: str
    cycles: int
    macs: int
    useful_macs: int
    utilisation: float
    dram_bytes: int
    stalls: dict[str, int]


def instruction_beats(instructions: Sequence[Instruction]) -> np.ndarray:
    """Beats of data that each instruction moves over the bus, int64 (n,); its own fetch is not counted."""
    beats = np.zeros(len(instructions), np.int64)
    cols = pixels = 0   # pixels: the beats of a block that a STORE takes to memory
    for index, instruction in enumerate(instructions):
        match instruction.opcode:
            case Opcode.LOAD_SET:
                cols = instruction["cols"]
            case Opcode.STORE_SET:
                width = -(-instruction["cols"] // MAP_PIXELS) if instruction["binary"] else instruction["cols"]
                pixels = 0 if instruction["local"] else instruction["rows"] * width
            case Opcode.LOAD_ACT:
                beats[index] = instruction["blocks"] * instruction["rows"] * cols
            case Opcode.LOAD_WGT:
                beats[index] = instruction["beats"]
            case Opcode.LOAD_SIDE:
                beats[index] = instruction["rows"] * instruction["cols"]
            case Opcode.STORE:
                beats[index] = instruction["blocks"] * pixels
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
                      if instruction.opcode in (Opcode.COMPUTE, Opcode.POOL)], np.int64)
    ends = record.last[_COMPUTE, works] + 1
    spans = np.diff(ends, prepend=0)
    spans[-1:] += cycles - ends[-1:]

    def by_layer(index: np.ndarray, values: np.ndarray) -> np.ndarray:
        totals = np.zeros(len(program.layers), np.int64)
        np.add.at(totals, owners[index], values)
        return totals

    total = by_layer(works, spans)
    states = {name: by_layer(works, record.counts[_COMPUTE, code, works])
              for code, name in enumerate(ENGINE_STATES["compute"]) if name != "idle"}
    moved = instruction_beats(instructions) * program.config.beat_bytes + INSTRUCTION_BYTES
    owned = np.flatnonzero(owners >= 0)
    traffic = by_layer(owned, moved[owned])
    config = program.config
    rates = {"binary": config.binary_bits * config.binary_rows * config.pixel_lanes}
    timings = []
    for number, layer in enumerate(program.layers):
        own = int(total[number])
        stalls = {name: int(spent[number]) for name, spent in states.items() if name != "busy"}
        # Cycles in which the compute queue was empty: the program's start and end.
        stalls["idle"] = own - sum(int(spent[number]) for spent in states.values())
        timings.append(LayerTiming(
            layer.name, layer.op, layer.mode, own, layer.macs, layer.useful_macs,
            layer.useful_macs / max(1, rates.get(layer.mode, config.macs) * own), int(traffic[number]), stalls,
        ))
    return timings
