"""What the sequencer tells the pipeline after it, cycle by cycle."""

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import data

from ..buffers.accumulators import Accumulators
from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from ..lib.component import record
from .stochastic.stream_source import LogShape

__all__ = ["WordIssue", "issue_stages"]


class WordIssue(data.StructLayout):
    """What one issued cycle means, for the pipeline after the input buffer.

    Of each unit beside the multiplier array, by the name of its kind of step in small letters: ``KIND``, the word is
    its; ``KIND_take``, the group of output lanes that its rows belong to.
    """

    def __init__(self, config: NpuConfig):
        units = {kind.name.lower(): config.unit_groups(kind) for kind in config.unit_rows}
        super().__init__({
            "gemm": 1,             # a word for the multiplier array
            "pool": 1,             # a window tap for the pool unit
            "turn": BankShape(config),  # the bank of pixel 0
            "step_start": 1,       # first word of a step: take the weights over
            "first": 1,            # accumulate from zero
            "bank": 1,
            "acc_address": range(config.acc_depth),
            "post_store": 1,       # last word of a COMPUTE that posts a token
            "lane": BankShape(config),  # pixel of the read: of POOL's tap, of a plain word's pixel 0
            "window_start": 1,     # POOL: first tap
            "window_end": 1,       # POOL: last tap
            "maximum": 1,
            **({"spread": 1, "window": 1, "alternate": 1} if config.depthwise else {}),
            **dict.fromkeys(units, 1),
            **{f"{name}_take": groups for name, groups in units.items()},
            # A word of streams is there in all of its cycles, and ``gemm`` in the last; in its first, what they are.
            **({"word_start": 1, "length": LogShape, "made": LogShape} if config.stochastic_rows else {}),
            **({"upper_gemm": 1, "upper_address": range(config.acc_depth)} if Accumulators.split(config) else {}),
        })


def issue_stages(m: Module, config: NpuConfig, first: Any, count: int, name: str) -> list[Any]:
    """What ``first``, of `WordIssue`, was in the last ``count`` cycles, the present one first."""
    chain = [first]
    for number in range(1, count + 1):
        stage = record(WordIssue(config), name=f"{name}{number}")
        m.d.sync += Value.cast(stage).eq(chain[-1])
        chain.append(stage)
    return chain
