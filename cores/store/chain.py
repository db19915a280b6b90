"""The chain of operations that turns sums into what is stored, as the store engine keeps it."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data

from ..arch.instruction_layout import instruction_layout, is_operation
from ..arch.isa import SECOND_STAGES, Opcode
from ..arch.units import is_supported
from ..config import NpuConfig

__all__ = ["Chain", "take_operation"]


def Chain(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """``requant``: the STORE_REQUANT that began it, if it has ``begun``. ``second``: the instruction of its second
    stage, of which it has one if ``adds``: a STORE_LEAKY if ``leaky``, a STORE_MULTIPLY if ``multiplies``. ``signs``,
    ``table``: it has STORE_SIGNS, STORE_TABLE.
    """
    return data.StructLayout({
        "requant": instruction_layout(Opcode.STORE_REQUANT),
        "begun": 1,
        "second": data.UnionLayout({op.name.lower().removeprefix("store_"): instruction_layout(op)
                                    for op in SECOND_STAGES}),
        **dict.fromkeys(_flags(config), 1),
    })


def _flags(config: NpuConfig) -> dict[str, tuple[Opcode, ...]]:
    """Flag -> the machine's operations that set it; STORE_REQUANT clears all."""
    found = {"adds": SECOND_STAGES, "leaky": (Opcode.STORE_LEAKY,), "multiplies": (Opcode.STORE_MULTIPLY,),
             "signs": (Opcode.STORE_SIGNS,), "table": (Opcode.STORE_TABLE,)}
    supported = {name: tuple(op for op in opcodes if is_supported(op, config)) for name, opcodes in found.items()}
    return {name: opcodes for name, opcodes in supported.items() if opcodes}


def take_operation(m: Module, chain: data.View, word: Value, config: NpuConfig) -> None:
    """The chain with the operation ``word``, or as it is where that is none of a chain's."""
    flags = _flags(config)
    with m.If(is_operation(word, Opcode.STORE_REQUANT, config)):
        m.d.sync += [chain.requant.eq(instruction_layout(Opcode.STORE_REQUANT)(word)),
                     chain.begun.eq(1), *[chain[name].eq(0) for name in flags]]
    for name, opcodes in flags.items():
        with m.If(Cat(is_operation(word, opcode, config) for opcode in opcodes).any()):
            m.d.sync += chain[name].eq(1)
            if name == "adds":
                m.d.sync += Value.cast(chain.second).eq(word)
