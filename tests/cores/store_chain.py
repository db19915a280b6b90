"""Chains of operations on results: at random, what they make of sums, and how the store engine keeps them.

A chain is a dictionary of its operations by opcode, in the order in which they are given.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import SECOND_STAGES, Opcode
from cores.arch.numerics import FIRST_BITS, MAX_SHIFT, MIN_SHIFT, MULTIPLIER_BITS, PRODUCT_MULTIPLIER_BITS
from cores.config import NpuConfig
from cores.store.chain import Chain
from sim.golden import requantize
from sim.signs import pack_map
from sim.store_operations import leaky, maxima, product, residual_add
from tests.cores.store_values import random_clip

__all__ = [
    "Operations", "chain_of", "chain_result", "kept_chain", "layout_of", "random_chain", "random_second_stage",
    "second_result", "second_stage", "takes_residuals",
]

Operations = Mapping[Opcode, Instruction]


def chain_of(*operations: Instruction) -> dict[Opcode, Instruction]:
    return {operation.opcode: operation for operation in operations}


def random_second_stage(config: NpuConfig, rng: np.random.Generator) -> Instruction:
    """Any of those that the machine has."""
    top = 1 << MULTIPLIER_BITS
    multipliers = [int(rng.choice([0, top - 1, rng.integers(top // 2, top)], p=[0.1, 0.2, 0.7])) for _ in "ab"]
    shift = int(rng.integers(MIN_SHIFT, 20)) if rng.random() < 0.8 else int(rng.integers(MIN_SHIFT, MAX_SHIFT + 1))
    constant = int(rng.choice([-(1 << 27), (1 << 27) - 1, rng.integers(-(1 << 24), 1 << 24)], p=[0.1, 0.1, 0.8]))
    broadcast = int(config.product and rng.random() < 0.4)
    if config.product and rng.random() < 0.5:
        multiplier = int(rng.choice([0, (1 << PRODUCT_MULTIPLIER_BITS) - 1, rng.integers(1 << 14, 1 << 15)]))
        zero = int(rng.choice([-128, 127, rng.integers(-128, 128)]))
        return Instruction(Opcode.STORE_MULTIPLY, multiplier=multiplier, constant=zero * multiplier,
                           broadcast=broadcast, shift=int(rng.integers(MIN_SHIFT, 26)), **random_clip(rng))
    if rng.random() < 0.4:
        return Instruction(Opcode.STORE_LEAKY, multiplier=multipliers[0], negative=multipliers[1], shift=shift,
                           **random_clip(rng))
    return Instruction(Opcode.STORE_ADD, multiplier_a=multipliers[0], multiplier_b=multipliers[1], constant=constant,
                       broadcast=broadcast, shift=shift, **random_clip(rng))


def random_chain(config: NpuConfig, rng: np.random.Generator, *, add: bool = False,
                 others: tuple[Instruction, ...] = ()) -> dict[Opcode, Instruction]:
    """STORE_REQUANT, then in any order a second stage if ``add``, and the ``others``."""
    following = [*others, *([random_second_stage(config, rng)] if add else [])]
    rng.shuffle(following)
    return chain_of(Instruction(Opcode.STORE_REQUANT, **random_clip(rng, FIRST_BITS if add else 8)), *following)


def second_stage(chain: Operations) -> Instruction | None:
    return next((chain[opcode] for opcode in SECOND_STAGES if opcode in chain), None)


def takes_residuals(chain: Operations) -> bool:
    """Whether it has another operand."""
    return Opcode.STORE_ADD in chain or Opcode.STORE_MULTIPLY in chain


def chain_result(chain: Operations, source: np.ndarray, channels, residual: np.ndarray | None) -> np.ndarray:
    """int8 (lanes, rows, cols) of ``source``, int64 of the same shape; rows of signs, or of maxima, if the chain has
    these.

    ``channels``: (bias, multiplier, shift). ``residual``: of a shape that broadcasts to that of ``source``.
    """
    requant = chain[Opcode.STORE_REQUANT]
    result = requantize(source, *channels, *(requant[name] for name in ("zero_point", "low", "high")))
    stage = second_stage(chain)
    if stage is not None:
        result = second_result(stage, result, residual)
    if Opcode.STORE_MAXIMUM in chain:
        result = maxima(result)
    if Opcode.STORE_SIGNS in chain:
        result = pack_map(result.transpose(1, 2, 0)).transpose(2, 0, 1)
    return result


def second_result(stage: Instruction, own: np.ndarray, residual: np.ndarray | None) -> np.ndarray:
    """What a second stage makes of the first one's result and of the other operand, if it has one."""
    last = [stage[name] for name in ("shift", "zero_point", "low", "high")]
    match stage.opcode:
        case Opcode.STORE_LEAKY:
            return leaky(own, stage["multiplier"], stage["negative"], *last)
        case Opcode.STORE_MULTIPLY:
            return product(own, residual, stage["multiplier"], stage["constant"], *last)
    return residual_add(own, residual, stage["multiplier_a"], stage["multiplier_b"], stage["constant"], *last)


#: Made once: that takes longer than a pixel of a bench.
layout_of = cache(instruction_layout)


@cache
def _members(config: NpuConfig) -> frozenset[str]:
    return frozenset(Chain(config).members)


def kept_chain(config: NpuConfig, chain: Operations) -> dict:
    """Members of the `Chain` that the engine has after these operations; without ``second`` if it has no such stage."""
    def word(instruction: Instruction):
        return layout_of(instruction.opcode).const({"opcode": int(instruction.opcode), **instruction.fields})

    stage = second_stage(chain)
    flags = {"adds": stage is not None, "leaky": Opcode.STORE_LEAKY in chain,
             "multiplies": Opcode.STORE_MULTIPLY in chain, "signs": Opcode.STORE_SIGNS in chain,
             "table": Opcode.STORE_TABLE in chain, "maximum": Opcode.STORE_MAXIMUM in chain}
    second = {"second": {stage.opcode.name.lower().removeprefix("store_"): word(stage)}} if stage else {}
    return {"requant": word(chain[Opcode.STORE_REQUANT]), "begun": 1, **second,
            **{name: int(value) for name, value in flags.items() if name in _members(config)}}
