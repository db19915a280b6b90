"""Tells legal instructions from illegal ones, from the instruction set's tables."""

from collections.abc import Collection, Sequence

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..arch.instruction_layout import opcode_of
from ..arch.isa import HEADER, HEADER_BITS, INSTRUCTION_BYTES, LAYOUTS, OPERATIONS, QUEUE_OPERATIONS, Opcode, Queue
from ..arch.isa_features import is_supported, kinds_of, reserved_fields
from ..config import NpuConfig
from ..lib.component import Component

__all__ = ["InstructionCheck"]

_BITS = 8 * INSTRUCTION_BYTES
#: Operations that a cycle tells apart, and whose rules it looks at.
_FEW = 20


def _forbidden(opcode: Opcode, config: NpuConfig) -> set[int]:
    """Bits that must be zero in ``opcode``: token flags it may not set, fields that this machine's operation does not
    have, and all above its fields.
    """
    bits: set[int] = set()
    position = HEADER[0].bits
    for field in HEADER[1:]:
        if field.name not in OPERATIONS[opcode].tokens:
            bits.update(range(position, position + field.bits))
        position += field.bits
    reserved = reserved_fields(opcode, config)
    for field in LAYOUTS[opcode]:
        if field.name in reserved:
            bits.update(range(position, position + field.bits))
        position += field.bits
    return bits | set(range(position, _BITS))


class InstructionCheck(Component):
    """``illegal`` and ``queue`` of the ``word`` of the last ``take``, `LATENCY` cycles after it.

    Illegal is what `instruction.decode` refuses: unknown opcodes, reserved bits, zeros where the minimum is one,
    foreign tokens; and what the configuration does not have (`units.missing`).
    """

    #: Cycles: which rules the word breaks; whether one of them is its operation's.
    LATENCY = 2

    def __init__(self, config: NpuConfig):
        self._config = config
        #: Those that the machine has.
        self._operations = [op for op in Opcode if is_supported(op, config)]
        super().__init__({
            "word": In(_BITS),    # an instruction
            "take": In(1),        # look at it
            "illegal": Out(1),    # there is something wrong with it
            "queue": Out(Queue),  # where it goes
            "next_queue": Out(Queue),  # the same a cycle earlier
        })

    def _rules(self) -> list[tuple[Collection[Opcode], Value]]:
        """Operations, and what of the word is wrong in them."""
        # Bits that the same operations forbid share a rule.
        forbidden = {op: _forbidden(op, self._config) for op in self._operations}
        groups: dict[frozenset[Opcode], list[int]] = {}
        for bit in range(HEADER[0].bits, _BITS):
            if operations := frozenset(op for op in forbidden if bit in forbidden[op]):
                groups.setdefault(operations, []).append(bit)
        rules: list[tuple[Collection[Opcode], Value]] = [
            (sorted(operations), Cat(self.word[bit] for bit in bits).any()) for operations, bits in groups.items()
        ]
        for op in self._operations:
            position, some = HEADER_BITS, []
            for field in LAYOUTS[op]:
                value = self.word[position:position + field.bits]
                if field.minimum:
                    rules.append(([op], ~value.any()))
                if field.kinds:
                    rules.append(([op], ~value.matches(*kinds_of(field, self._config))))
                if field.name in OPERATIONS[op].some:
                    some.append(value)
                position += field.bits
            if some:
                rules.append(([op], ~Cat(some).any()))
        return rules

    def _meant(self, m: Module, opcode: Value, groups: Sequence[tuple[Opcode, ...]]
               ) -> dict[tuple[Opcode, ...], Value]:
        """Operations -> whether the word is one of them, beside ``opcode``.

        Of many operations that is a register: to tell them apart takes more levels than there are beside the rules.
        """
        if len(self._operations) <= _FEW:
            return {group: opcode.matches(*group) for group in groups}
        meant: dict[tuple[Opcode, ...], Value] = {
            group: Signal(name=f"meant{number}") for number, group in enumerate(dict.fromkeys(groups))}
        with m.If(self.take):
            m.d.sync += [signal.eq(opcode_of(self.word).matches(*group)) for group, signal in meant.items()]
        return meant

    def elaborate(self, platform):
        m = Module()
        rules = self._rules()
        opcode = Signal.like(opcode_of(self.word), name="opcode")
        unknown = Signal()
        found = Signal(len(rules))      # for each rule, whether the word breaks it
        with m.If(self.take):
            m.d.sync += [
                opcode.eq(opcode_of(self.word)),
                unknown.eq(~opcode_of(self.word).matches(*self._operations)),
                found.eq(Cat(wrong for _, wrong in rules)),
            ]
        meant = self._meant(m, opcode, [tuple(operations) for operations, _ in rules])
        broken = [meant[tuple(operations)] & found[number] for number, (operations, _) in enumerate(rules)]
        m.d.sync += self.illegal.eq(unknown | Cat(broken).any())
        m.d.comb += self.next_queue.eq(opcode[exact_log2(QUEUE_OPERATIONS):])
        m.d.sync += self.queue.eq(self.next_queue)
        return m
