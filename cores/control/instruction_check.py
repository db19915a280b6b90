"""Tells legal instructions from illegal ones, from the instruction set's tables."""

from collections.abc import Collection

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import opcode_of
from ..arch.isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, NOT_ALL_ZERO, TOKEN_FLAGS, Opcode, Queue
from ..arch.units import is_supported, reserved_fields
from ..config import NpuConfig

__all__ = ["InstructionCheck"]

_BITS = 8 * INSTRUCTION_BYTES
_HEADER_BITS = sum(field.bits for field in HEADER)


def _forbidden(opcode: Opcode, config: NpuConfig) -> set[int]:
    """Bits that must be zero in ``opcode``: token flags it may not set, fields that this machine's operation does not
    have, and all above its fields.
    """
    bits: set[int] = set()
    position = HEADER[0].bits
    for field in HEADER[1:]:
        if field.name not in TOKEN_FLAGS[opcode]:
            bits.update(range(position, position + field.bits))
        position += field.bits
    reserved = reserved_fields(opcode, config)
    for field in LAYOUTS[opcode]:
        if field.name in reserved:
            bits.update(range(position, position + field.bits))
        position += field.bits
    return bits | set(range(position, _BITS))


class InstructionCheck(wiring.Component):
    """``illegal`` and ``queue`` of the ``word`` of the last ``take``, `LATENCY` cycles behind it.

    Illegal is what `instruction.decode` refuses: unknown opcodes, reserved bits, zeros where the minimum is one,
    foreign tokens; and what the configuration does not have (`units.missing`).
    """

    #: Cycles: which groups of bits have a 1; whether the operation has a rule that this breaks.
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

    def _rules(self) -> list[tuple[Collection[Opcode], list[int], bool]]:
        """Operations, bits, and whether it is a 1 among these that is wrong in them, or that there is none."""
        # Bits that the same operations forbid share a rule.
        forbidden = {op: _forbidden(op, self._config) for op in self._operations}
        groups: dict[frozenset[Opcode], list[int]] = {}
        for bit in range(HEADER[0].bits, _BITS):
            if operations := frozenset(op for op in forbidden if bit in forbidden[op]):
                groups.setdefault(operations, []).append(bit)
        rules: list[tuple[Collection[Opcode], list[int], bool]] = [
            (sorted(operations), bits, True) for operations, bits in groups.items()]
        for op in self._operations:
            position, needed = _HEADER_BITS, []
            for field in LAYOUTS[op]:
                bits = list(range(position, position + field.bits))
                if field.minimum:
                    rules.append(([op], bits, False))
                if field.name in NOT_ALL_ZERO.get(op, ()):
                    needed += bits
                position += field.bits
            if needed:
                rules.append(([op], needed, False))
        return rules

    def elaborate(self, platform):
        m = Module()
        rules = self._rules()
        opcode = Signal.like(opcode_of(self.word), name="opcode")
        unknown = Signal()
        found = Signal(len(rules))      # for each rule, a 1 among its bits
        with m.If(self.take):
            m.d.sync += [
                opcode.eq(opcode_of(self.word)),
                unknown.eq(~opcode_of(self.word).matches(*self._operations)),
                found.eq(Cat(Cat(self.word[bit] for bit in bits).any() for _, bits, _ in rules)),
            ]
        broken = [opcode.matches(*operations) & (found[number] == wrong)
                  for number, (operations, _, wrong) in enumerate(rules)]
        m.d.sync += self.illegal.eq(unknown | Cat(broken).any())
        with m.Switch(opcode):
            for op in self._operations:
                with m.Case(op):
                    m.d.comb += self.next_queue.eq(op.queue)
        m.d.sync += self.queue.eq(self.next_queue)
        return m
