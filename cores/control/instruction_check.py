"""Tells legal instructions from illegal ones, from the instruction set's tables."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..arch.instruction_layout import opcode_of
from ..arch.isa import HEADER, INSTRUCTION_BYTES, LAYOUTS, NOT_ALL_ZERO, TOKEN_FLAGS, Opcode, Queue, is_supported
from ..config import NpuConfig

__all__ = ["InstructionCheck"]

_BITS = 8 * INSTRUCTION_BYTES
_HEADER_BITS = sum(field.bits for field in HEADER)


def _forbidden(opcode: Opcode) -> set[int]:
    """Bits that must be zero in ``opcode``: token flags it may not set, and all above its fields."""
    bits: set[int] = set()
    position = HEADER[0].bits
    for field in HEADER[1:]:
        if field.name not in TOKEN_FLAGS[opcode]:
            bits.update(range(position, position + field.bits))
        position += field.bits
    end = _HEADER_BITS + sum(field.bits for field in LAYOUTS[opcode])
    return bits | set(range(end, _BITS))


class InstructionCheck(wiring.Component):
    """``illegal`` and ``queue`` of ``word``, a cycle after it.

    Illegal is what ``isa.decode`` refuses: unknown opcodes, reserved bits, zeros where the minimum is one, foreign
    tokens; and operations that the configuration does not have (`isa.is_supported`).
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        super().__init__({
            "word": In(_BITS),    # an instruction
            "illegal": Out(1),    # a cycle later: what is wrong with it
            "queue": Out(Queue),  # a cycle later: where it goes
        })

    def elaborate(self, platform):
        m = Module()
        opcode = opcode_of(self.word)
        reasons = [~opcode.matches(*(op for op in Opcode if is_supported(op, self.config)))]

        # Bits that the same operations forbid share one term: their OR, and whether it is one of these operations.
        groups: dict[frozenset[Opcode], list[int]] = {}
        forbidden = {op: _forbidden(op) for op in Opcode}
        for bit in range(HEADER[0].bits, _BITS):
            operations = frozenset(op for op in Opcode if bit in forbidden[op])
            if operations:
                groups.setdefault(operations, []).append(bit)
        for operations, bits in groups.items():
            reasons.append(opcode.matches(*sorted(operations)) & Cat(self.word[bit] for bit in bits).any())

        for op in Opcode:
            position, needed = _HEADER_BITS, []
            for field in LAYOUTS[op]:
                value = self.word[position:position + field.bits]
                if field.minimum:
                    reasons.append((opcode == op) & ~value.any())
                if field.name in NOT_ALL_ZERO.get(op, ()):
                    needed.append(value)
                position += field.bits
            if needed:
                reasons.append((opcode == op) & ~Cat(needed).any())

        m.d.sync += self.illegal.eq(Cat(reasons).any())
        with m.Switch(opcode):
            for op in Opcode:
                with m.Case(op):
                    m.d.sync += self.queue.eq(op.queue)
        return m
