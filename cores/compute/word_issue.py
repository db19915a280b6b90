"""What the sequencer tells the pipeline after it, cycle by cycle."""

from amaranth.lib import data

from ..buffers.accumulators import Accumulators
from ..buffers.input_buffer import BankShape
from ..config import NpuConfig
from .word_parts import word_kinds

__all__ = ["WordIssue"]


class WordIssue(data.StructLayout):
    """What one issued cycle means, for the pipeline after the input buffer; of words that not all machines have, what
    their `WordKind` says.
    """

    def __init__(self, config: NpuConfig):
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
            **{name: shape for kind in word_kinds(config) for name, shape in kind.members().items()},
            **({"upper_gemm": 1, "upper_address": range(config.acc_depth)} if Accumulators.split(config) else {}),
        })
