"""What the engines have in common: their end of an instruction queue, their tokens, and what they report."""

from collections.abc import Collection
from types import SimpleNamespace

from amaranth.hdl import Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Flow, In, Out, connect, flipped

from ..arch.instruction_layout import INDEX_BITS, QueuedInstruction
from ..arch.isa import HEADER, OPERATIONS, Opcode, Queue
from ..arch.registers import STATE_BITS, settings_of
from ..bus.axi import ErrorReport
from ..config import NpuConfig
from ..lib.component import Component

__all__ = ["ENGINES", "TAKE_BITS", "EnginePort", "connect_shared", "lacks", "setting_ports", "token_bits",
           "token_takers"]

#: Bits of a number of tokens that are taken at once.
TAKE_BITS = next(field.bits for field in HEADER if field.name == "stores")

#: Queues that an engine each executes.
ENGINES = (Queue.LOAD, Queue.COMPUTE, Queue.STORE)


def _flags(queue: Queue) -> frozenset[str]:
    return frozenset().union(*(OPERATIONS[opcode].tokens for opcode in Opcode if opcode.queue == queue))


def token_takers() -> list[tuple[Queue, Queue]]:
    """Giver and taker of every kind of token."""
    return [(giver, taker) for giver in ENGINES for taker in ENGINES
            if f"post_{taker.name.lower()}" in _flags(giver)]


def token_bits(giver: Queue, taker: Queue) -> int:
    """Bits of the counter of these tokens: a load may wait for as many STOREs as a layer has."""
    return 16 if (giver, taker) == (Queue.STORE, Queue.LOAD) else 8


def lacks(level: Value, wanted: Value) -> Value:
    """Whether there are fewer tokens than an instruction wants to take."""
    return wanted & ~level.any() if len(wanted) == 1 else level < wanted


class EnginePort(wiring.Signature):
    """Ports of what executes a queue, and of its sequencer, ``without`` those that it does not have.

    For each queue that it gets tokens from, ``X_level`` and ``X_take``; for each that it gives some, ``post_X``.
    """

    def __init__(self, queue: Queue, *, without: Collection[str] = ()):
        takes = [giver for giver, taker in token_takers() if taker == queue]
        posts = [taker for giver, taker in token_takers() if giver == queue]
        members = {
            "queue": In(stream.Signature(QueuedInstruction)),  # instructions, in order
            **{f"{giver.name.lower()}_level": In(token_bits(giver, queue)) for giver in takes},  # tokens of that queue
            **{f"{giver.name.lower()}_take": Out(TAKE_BITS) for giver in takes},  # of these, taken now
            **{f"post_{taker.name.lower()}": Out(1) for taker in posts},  # a token for that queue
            "state": Out(STATE_BITS),  # code of `registers.ENGINE_STATES`
            "index": Out(INDEX_BITS),  # instruction in hand
            "error": Out(ErrorReport),  # stops the machine
            "idle": Out(1),             # nothing is in hand
            "halt": In(1),              # begin nothing more
        }
        super().__init__({name: member for name, member in members.items() if name not in without})


def setting_ports(queue: Queue, config: NpuConfig, flow: Flow) -> dict[str, wiring.Member]:
    """Ports for what the host has set for what executes a queue; they stand still during a run."""
    return {register.name: flow(register.bits) for register in settings_of(queue.name.lower(), config)}


def connect_shared(m: Module, outer: Component, inner: Component | wiring.PureInterface,
                   *names: str) -> None:
    """Connect ports of ``outer``, inside it, to those of the same names of a part, ``inner``."""
    signature = wiring.Signature({name: inner.signature.members[name] for name in names})

    def part(interface, of):
        return SimpleNamespace(signature=of, **{name: getattr(interface, name) for name in names})

    connect(m, part(flipped(outer), signature.flip()), part(inner, signature))
