"""Instruction-level simulator: what a program does to memory, without time. The machine's executable specification.

Each queue is a coroutine that yields after every piece of work (None) or when it cannot go on (what it waits for); it
never changes what another may wait for without a None. The machine takes them in the chosen order, so a program without
hazards gives the same bytes in every order, and one that stands still is found to do so: hardware ends both a missing
token and a starved ring with TIMEOUT.
"""

import random
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cores.arch.error_codes import ErrorCode
from cores.arch.isa import INSTRUCTION_BYTES
from cores.config import NpuConfig

from .engines.compute import compute_engine
from .engines.load import load_engine
from .engines.store import store_engine
from .errors import MachineError
from .machine import Machine, Steps
from .standstill import nothing_moves

__all__ = ["ORDERS", "Order", "execute", "run"]

#: Which queue goes first whenever several can; an integer seeds a random choice.
Order = Literal["load", "compute", "store"] | int
ORDERS: tuple[Order, ...] = ("load", "compute", "store", 0, 1)


@dataclass(frozen=True)
class Result:
    """What a program that reached END did, as the register file counts it."""

    instructions: int
    read_beats: int
    write_beats: int


def execute(machine: Machine, order: Order) -> None:
    """Run to the end, the queues taken in ``order``. Raises as `run`."""
    actors: list[tuple[str, Steps]] = [
        ("dispatcher", machine.dispatch()), ("load", load_engine(machine)), ("compute", compute_engine(machine)),
        ("store", store_engine(machine))]
    chance = random.Random(order)
    if isinstance(order, str):
        actors.sort(key=lambda actor: (actor[0] != "dispatcher", actor[0] != order))
    while not machine.done:
        if isinstance(order, int):
            chance.shuffle(actors)
        reasons = []
        for name, steps in actors:
            reason = next(steps, "nothing")
            if reason is None or machine.done:
                break
            reasons.append((name, reason))
        else:
            _stand_still(machine, reasons)


def _stand_still(machine: Machine, reasons: list[tuple[str, str]]) -> None:
    held = {queue.name.lower(): index for queue, index in machine.in_hand.items()}
    # As the hardware reports it: the load queue's instruction, else the compute queue's, else the store queue's.
    index = next((index for index in machine.in_hand.values() if index is not None), machine.instructions)
    raise MachineError(ErrorCode.TIMEOUT, index, nothing_moves(dict(reasons), held))


def run(config: NpuConfig, code: bytes, memory: np.ndarray, *, write_start: int, strict: bool = False,
        order: Order = "load", stream_shift: int = 0, reach: range | None = None) -> Result:
    """Execute a program on its data region.

    ``memory``: uint8, one dimension, a whole number of beats, C-contiguous; modified in place. ``strict`` also refuses
    programs whose result is left to chance: data used before it is there, accesses that no token orders, leftovers.
    ``stream_shift``: what the register of that name has. ``reach``: the beats of the data region that are inside of the
    limits, of a machine that has any; None for all.

    Raises MachineError where the hardware would stop (TIMEOUT when nothing can move), HazardError in strict mode, and
    ValueError for a memory, code or ``write_start`` that is no such thing.
    """
    if memory.dtype != np.uint8 or memory.ndim != 1 or not memory.flags.c_contiguous or memory.size % config.beat_bytes:
        raise ValueError(f"memory must be a contiguous uint8 vector of whole beats of {config.beat_bytes} bytes")
    if len(code) % INSTRUCTION_BYTES:
        raise ValueError(f"code must be a multiple of {INSTRUCTION_BYTES} bytes, not {len(code)}")
    if not 0 <= write_start <= memory.size // config.beat_bytes:
        raise ValueError(f"write_start must be in 0..{memory.size // config.beat_bytes}, not {write_start}")
    machine = Machine(config, code, memory, write_start=write_start, strict=strict, stream_shift=stream_shift,
                      reach=reach)
    execute(machine, order)
    return Result(machine.instructions, machine.read_beats, machine.write_beats)
