"""The instruction set: one layout that the decoder, the assembler, the simulators and the documents read.

An instruction is 128 bits, little-endian in memory. Bits 0..17 are the header, the same in every instruction; the
operation's own fields follow from bit 18 in the order given here; the bits above must be zero.

Addresses of memory are in beats, relative to the data region. What each operation does is in docs/architecture.md;
its exact effect is `sim/functional.py`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .numerics import CONSTANT_BITS, FIRST_BITS, MULTIPLIER_BITS
from .stochastic import LENGTH_BITS

__all__ = [
    "Field", "GEOMETRY", "HEADER", "HEADER_BITS", "INSTRUCTION_BYTES", "LAYOUTS", "MAX_TILE_COLS", "NOT_ALL_ZERO",
    "Opcode", "Queue", "SETTERS", "TOKEN_FLAGS", "largest_field",
]

INSTRUCTION_BYTES = 16

#: Tiles side by side that a LOAD_ACT behind LOAD_WINOGRAD can make: what the line memory has room for.
MAX_TILE_COLS = 63


class Queue(enum.IntEnum):
    """The queue an instruction goes to; CONTROL is the dispatcher itself."""

    CONTROL = 0
    LOAD = 1
    COMPUTE = 2
    STORE = 3


class Opcode(enum.IntEnum):
    END = 1
    SYNC = 2
    LOAD_SET = 3
    LOAD_ACT = 4
    LOAD_WGT = 5
    LOAD_SIDE = 6
    COMPUTE_SET = 7
    COMPUTE = 8
    POOL = 9
    STORE_SET = 10
    STORE_ADD = 11
    STORE = 12
    LOAD_GATHER = 13
    LOAD_WINOGRAD = 14
    STORE_TABLE = 15

    @property
    def queue(self) -> Queue:
        if self <= Opcode.SYNC:
            return Queue.CONTROL
        if self <= Opcode.LOAD_SIDE or self in (Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD):
            return Queue.LOAD
        return Queue.COMPUTE if self <= Opcode.POOL else Queue.STORE


@dataclass(frozen=True)
class Field:
    """``bits`` wide; ``signed`` in two's complement; a ``minimum`` of 1 makes zero illegal."""

    name: str
    bits: int
    signed: bool = False
    minimum: int = 0


#: Header. Token flags name the *other* queue: wait_X takes a token that X posted to this queue, post_X gives one to X.
#: ``stores`` (load queue only) is how many store-to-load tokens to take before starting.
HEADER: tuple[Field, ...] = (
    Field("opcode", 4),
    Field("wait_load", 1),
    Field("wait_compute", 1),
    Field("wait_store", 1),      # compute queue only; the load queue uses ``stores``
    Field("post_load", 1),
    Field("post_compute", 1),
    Field("post_store", 1),
    Field("stores", 8),
)

#: Operations that only set what those behind them in their queue use.
SETTERS = frozenset({Opcode.LOAD_SET, Opcode.LOAD_GATHER, Opcode.LOAD_WINOGRAD, Opcode.COMPUTE_SET, Opcode.STORE_SET,
                     Opcode.STORE_ADD, Opcode.STORE_TABLE})


#: The SET that an operation needs in front of it in its queue.
GEOMETRY: Mapping[Opcode, Opcode] = {
    Opcode.LOAD_ACT: Opcode.LOAD_SET, Opcode.COMPUTE: Opcode.COMPUTE_SET, Opcode.POOL: Opcode.COMPUTE_SET,
    Opcode.STORE: Opcode.STORE_SET,
}

_LOAD_FLAGS = frozenset({"wait_compute", "stores", "post_compute"})

#: Token flags that each operation may set. A POOL leaves nothing in a bank, so it has no ``post_store``.
TOKEN_FLAGS: Mapping[Opcode, frozenset[str]] = {
    **dict.fromkeys((Opcode.END, Opcode.SYNC, *sorted(SETTERS)), frozenset()),
    **dict.fromkeys((Opcode.LOAD_ACT, Opcode.LOAD_WGT, Opcode.LOAD_SIDE), _LOAD_FLAGS),
    Opcode.COMPUTE: frozenset({"wait_load", "wait_store", "post_load", "post_store"}),
    Opcode.POOL: frozenset({"wait_load", "wait_store", "post_load"}),
    Opcode.STORE: frozenset({"wait_compute", "post_load", "post_compute"}),
}

#: Fields of each operation above the header.
LAYOUTS: Mapping[Opcode, tuple[Field, ...]] = {
    Opcode.END: (),
    Opcode.SYNC: (),
    # Geometry that the LOAD_ACTs behind it share.
    Opcode.LOAD_SET: (
        Field("cols", 12, minimum=1),            # data pixels of a row
        Field("row_pitch", 20),                  # memory, beats from a row to the next
        Field("block_pitch", 24),                # memory, beats from a channel block to the next
        Field("pad_left", 4),
        Field("pad_right", 4),
        Field("pad_value", 8, signed=True),
        Field("stride", 3, minimum=1),           # the layer's horizontal stride: decides the bank of a column
        Field("buf_row_pitch", 12),              # input buffer, entries of a bank from a row to the next
        Field("buf_block_pitch", 14),
        Field("sign", 1),                        # keep the signs alone, eight blocks to an entry
        Field("pad_zero", 1),                    # padding counts as zero in a COMPUTE with ``binary``
        Field("pair", 1),                        # sign: behind a pixel's signs in its entry come its right neighbour's
    ),
    # Until the next LOAD_SET, rows of memory are bytes, and runs of them go to parts of entries.
    Opcode.LOAD_GATHER: (
        Field("outputs", 12, minimum=1),         # runs of a row, one for each output column
        Field("length", 5, minimum=1),           # bytes of a run
        Field("step", 6),                        # bytes from a run to the next
        Field("start", 6, signed=True),          # first byte of the first run, from the row's first beat
        Field("place", 5),                       # byte of the entry where a run begins
        Field("bytes", 16),                      # data bytes of a row, from its first beat; padding follows
    ),
    # Until the next LOAD_SET, boxes of pixels become transformed tiles.
    Opcode.LOAD_WINOGRAD: (
        Field("shifts", 32),                     # narrow: 2 bits for each of the 16 positions
        Field("tile_cols", 8, minimum=1),        # 2x2 output tiles of a row
        Field("position_pitch", 14),             # input buffer, entries from a position to the next
    ),
    # Box of activations -> input buffer, padded.
    Opcode.LOAD_ACT: (
        Field("offset", 28),                     # memory, first data pixel
        Field("buf_base", 14),                   # input buffer, first entry
        Field("blocks", 10, minimum=1),
        Field("rows", 10),                       # data rows; 0 when all of it is padding
        Field("pad_top", 6),
        Field("pad_bottom", 6),
    ),
    # Contiguous beats -> weight ring.
    Opcode.LOAD_WGT: (
        Field("offset", 28),
        Field("beats", 24, minimum=1),
    ),
    # Rows of beats -> side ring (channel parameters, residual).
    Opcode.LOAD_SIDE: (
        Field("offset", 28),
        Field("cols", 12, minimum=1),
        Field("rows", 10, minimum=1),
        Field("row_pitch", 20),
    ),
    # Geometry that the COMPUTEs and POOLs behind it share.
    Opcode.COMPUTE_SET: (
        Field("kernel_h", 6, minimum=1),
        Field("kernel_w", 6, minimum=1),
        Field("stride", 3, minimum=1),           # horizontal; vertical is in buf_row_step
        Field("rows", 10, minimum=1),            # output rows of the tile
        Field("cols", 12, minimum=1),            # output columns of the tile
        Field("buf_row_pitch", 12),
        Field("buf_row_step", 14),               # entries from an output row to the next
        Field("buf_block_pitch", 14),
        # The rest needs ``depthwise`` in the configuration; docs/architecture.md, "Spread words".
        Field("spread", 1),                      # a word has a pixel pair for each group of output lanes
        Field("window", 1),                      # reduction lanes are neighbouring taps of one channel
        Field("alternate", 1),                   # window, stride 2: groups of output lanes make alternate rows
        Field("shift", 1),                       # alternate: in the first ky's steps the upper group is a row behind
        Field("reads", 12),                      # window: reads of a row, of ``banks`` pixels each
    ),
    # A tile through the multiplier array: for block, ky, kx, group: all pixels.
    Opcode.COMPUTE: (
        Field("buf_base", 14),
        Field("blocks", 10, minimum=1),
        Field("groups", 6, minimum=1),           # steps of a block (n)
        Field("indexed", 1),                     # weights carry indices; else lane j of step n: channel j * tn/dn + n
        Field("first", 1),                       # start from zero instead of the bank's sums
        Field("bank", 1),                        # accumulator bank
        Field("binary", 1),                      # blocks of 8 * tn channels of a bit each
        Field("acc_base", 12),                   # first word of the tile in the bank
        # Activations and weights as streams of bits, on the stochastic unit; docs/stochastic.md.
        Field("stochastic", 1),
        Field("length", LENGTH_BITS),            # of a stream: log2, less MIN_LENGTH_LOG
        Field("made", LENGTH_BITS),              # bits of it that are made: the same; at most ``length``
    ),
    # Windows of one channel block after the other -> store engine, without the multipliers.
    Opcode.POOL: (
        Field("buf_base", 14),
        Field("blocks", 10, minimum=1),
        Field("maximum", 1),                     # 1: maximum, 0: sum
        # Parts of one window, of a POOL with a single one:
        Field("resume", 1),                      # it goes on with what the POOL before it left open
        Field("open", 1),                        # the next POOL goes on with it: no result yet
    ),
    # Geometry and first-stage requantisation that the STOREs behind it share.
    Opcode.STORE_SET: (
        Field("rows", 10, minimum=1),
        Field("cols", 12, minimum=1),
        Field("row_pitch", 20),                  # memory, beats
        Field("block_pitch", 24),
        Field("zero_point", 8, signed=True),
        Field("low", FIRST_BITS, signed=True),   # clip after requantisation; beyond int8 only with ``add``
        Field("high", FIRST_BITS, signed=True),
        Field("add", 1),                         # apply STORE_ADD's second stage, as a rule to a residual as well
        Field("spread", 1),                      # words are those of a COMPUTE with ``spread``
        Field("alternate", 1),                   # words are those of a COMPUTE with ``alternate``
        Field("binary", 1),                      # write signs, eight pixels of a row to a beat
        Field("winograd", 1),                    # words are sums of transformed tiles
        Field("local", 1),                       # to the input buffer; pitches and offset count its entries
        Field("position_words", 12),             # winograd: words from a position to the next
    ),
    # Second stage: y = clip(((a * multiplier_a + b * multiplier_b + constant) >> shift, rounded) + zero_point), b from
    # the side ring. With ``bend`` there is neither b nor constant, and a takes multiplier_b where it is negative.
    Opcode.STORE_ADD: (
        Field("multiplier_a", MULTIPLIER_BITS),
        Field("multiplier_b", MULTIPLIER_BITS),
        Field("constant", CONSTANT_BITS, signed=True),
        Field("shift", 6),
        Field("zero_point", 8, signed=True),
        Field("low", 8, signed=True),
        Field("high", 8, signed=True),
        Field("bend", 1),
        # With ``product``, not together with ``bend``: y = clip((a * (b * multiplier_b - constant) >> shift, rounded) +
        # zero_point).
        Field("product", 1),
        Field("broadcast", 1),                   # b is one beat for each block, the same for all of its pixels
    ),
    # What the STOREs behind it make of their results, until the next one.
    Opcode.STORE_TABLE: (
        Field("use", 1),                         # the value of the table in each one's place
        Field("load", 1),                        # take the table from the side ring first
    ),
    # Accumulators (or the pool unit's stream) -> requantise -> memory.
    Opcode.STORE: (
        Field("offset", 28),
        Field("blocks", 10, minimum=1),          # channel blocks to write; from a bank at most tm / tn
        Field("bank", 1),
        Field("pooled", 1),                      # source: 0 accumulator bank, 1 pool unit
        Field("repeats", 5),                     # further times that each pixel is written in its row
    ),
}

#: Fields of which at least one must not be zero: a box without rows has no last pixel.
NOT_ALL_ZERO: Mapping[Opcode, tuple[str, ...]] = {Opcode.LOAD_ACT: ("rows", "pad_top", "pad_bottom")}

HEADER_BITS = sum(field.bits for field in HEADER)

for _opcode, _fields in LAYOUTS.items():
    assert HEADER_BITS + sum(field.bits for field in _fields) <= 8 * INSTRUCTION_BYTES, _opcode


def largest_field(opcode: Opcode, name: str) -> int:
    """The largest value of an instruction's unsigned field."""
    return (1 << next(field.bits for field in LAYOUTS[opcode] if field.name == name)) - 1
