"""Why the machine stood still when TIMEOUT stopped it: what each queue had in hand and lacks."""

from dataclasses import replace

from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, Queue
from sim.standstill import nothing_moves, tokens_of

from .machine import Standing

__all__ = ["why_nothing_moves"]


def why_nothing_moves(code: bytes, standing: Standing, *, unanswered: int) -> str:
    """In the words of `sim.functional`. ``unanswered``: bursts that the memory owes."""
    if not unanswered and _pooled_waits(code, standing):
        # The engine has nothing more to issue, but is not done: its state is that of a POOL that waits.
        index = standing.engines["compute"][1]
        standing = replace(standing, engines={**standing.engines, "compute": ("wait_store", index)})
    reasons = {name: _lacks(name, state, code, index, standing) for name, (state, index) in standing.engines.items()}
    held = {name: index for name, (state, index) in standing.engines.items() if state != "idle"}
    text = nothing_moves({"dispatcher": _dispatcher_lacks(code, standing), **reasons}, held)
    return text + (f"; the memory has not answered {unanswered} bursts" if unanswered else "")


def _pooled_waits(code: bytes, standing: Standing) -> bool:
    """Whether nothing is left but results of the last POOL that no STORE takes."""
    if any(state != "idle" for state, _ in standing.engines.values()):
        return False
    try:
        waiting, last = (_instruction(code, index) for index in (standing.fetch_index, standing.engines["compute"][1]))
    except ValueError:      # as far as the program goes
        return False
    return waiting.opcode.queue == Queue.CONTROL and last.opcode == Opcode.POOL


def _instruction(code: bytes, index: int) -> Instruction:
    return decode(code[index * INSTRUCTION_BYTES:(index + 1) * INSTRUCTION_BYTES])


def _dispatcher_lacks(code: bytes, standing: Standing) -> str:
    index = standing.fetch_index
    if standing.fetch_waiting:
        return f"room in the {_instruction(code, index).opcode.queue.name.lower()} queue (instruction {index})"
    if any(state != "idle" for state, _ in standing.engines.values()):
        # Nothing but SYNC and END waits at the dispatcher with room in the queues, once the program is here.
        try:
            opcode = _instruction(code, index).opcode
        except ValueError:
            return f"instruction {index}"
        if opcode.queue == Queue.CONTROL:
            return f"all engines to be idle ({opcode.name} at {index})"
    return f"the bus (instruction {index})"


def _lacks(engine: str, state: str, code: bytes, index: int, standing: Standing) -> str:
    """What an engine in one of `registers.ENGINE_STATES` waits for; the states are wider than the reasons."""
    if state == "idle":
        return "an instruction"
    if state == "wait_bus":
        return "the bus"
    if not state.startswith("wait_"):
        return f"the end of what it does ({state})"
    instruction = _instruction(code, index)
    match engine, state:
        case "load", "wait_ring":
            return f"room in the {'weight' if instruction.opcode == Opcode.LOAD_WGT else 'side'} ring"
        case "load", "wait_store":
            return tokens_of("store", instruction["stores"], standing.stores)
        case "compute", "wait_weights":
            return "weights"
        case "compute", "wait_store" if instruction.opcode == Opcode.POOL and not instruction["wait_store"]:
            return "a STORE to take pooled pixels"
        case "store", "wait_side":
            return "channel parameters or residual pixels in the side ring"
        case "store", "wait_compute" if instruction["pooled"]:
            return "the pool unit"
    return tokens_of(state.removeprefix("wait_"), 1, 0)
