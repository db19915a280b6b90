"""The chain of operations that turns sums into what is stored, as the store engine keeps it."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data

from ..arch.instruction_layout import instruction_layout, is_operation
from ..arch.isa import CHAIN, LAYOUTS, SECOND_STAGES, Opcode
from ..arch.isa_features import is_supported
from ..config import NpuConfig

__all__ = ["Chain", "chain_name", "keeps_word", "take_operation"]


def Chain(config: NpuConfig) -> data.StructLayout:  # noqa: N802 - a layout
    """``requant``: the STORE_REQUANT that began it, if it has ``begun``. ``second``: the instruction of its second
    stage, of which it has one if ``adds``: a STORE_LEAKY if ``leaky``, a STORE_MULTIPLY if ``multiplies``. Of every
    other operation that the machine has, by the last part of its name in small letters: ``NAME``, the chain has it;
    ``NAME_word``, its instruction, if that says more (`keeps_word`).
    """
    return data.StructLayout({
        "requant": instruction_layout(Opcode.STORE_REQUANT),
        "begun": 1,
        "second": data.UnionLayout({chain_name(op): instruction_layout(op) for op in SECOND_STAGES}),
        **dict.fromkeys(_flags(config), 1),
        **{f"{chain_name(op)}_word": instruction_layout(op) for op in _further(config) if keeps_word(op)},
    })


def chain_name(opcode: Opcode) -> str:
    return opcode.name.lower().removeprefix("store_")


def keeps_word(opcode: Opcode) -> bool:
    """Whether an operation's fields say how values change."""
    return any(field.name != "load" for field in LAYOUTS[opcode])


def _further(config: NpuConfig) -> list[Opcode]:
    """The machine's operations of a chain after the second stage."""
    first = (Opcode.STORE_REQUANT, *SECOND_STAGES)
    return [op for op in CHAIN if op not in first and is_supported(op, config)]


def _flags(config: NpuConfig) -> dict[str, tuple[Opcode, ...]]:
    """Flag -> the machine's operations that set it; STORE_REQUANT clears all."""
    found = {"adds": SECOND_STAGES, "leaky": (Opcode.STORE_LEAKY,), "multiplies": (Opcode.STORE_MULTIPLY,),
             **{chain_name(op): (op,) for op in _further(config)}}
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
    for op in _further(config):
        if keeps_word(op):
            with m.If(is_operation(word, op, config)):
                m.d.sync += Value.cast(chain[f"{chain_name(op)}_word"]).eq(word)
