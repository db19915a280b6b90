"""The instruction set: one table that the decoder, the assembler, the simulators and the documents read.

An instruction is 128 bits, little-endian in memory. Bits 0..20 are the header, the same in every instruction; the
operation's own fields follow from bit 21 in the order given here; the bits above must be zero.

The two highest bits of an opcode are the queue it goes to, so each queue has 32 operations. Operations that set
something hold for those after them in their queue. What is done to a result before it is stored is a chain of
operations: STORE_REQUANT begins it, and each that follows adds itself; a STORE applies all of them, in the order of
their opcodes. A new operation takes an opcode of its own, and no bit of another one's.

Addresses of memory are in beats, relative to the data region. What each operation does is in docs/architecture.md;
its exact effect is `sim/functional.py`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .numerics import CONSTANT_BITS, FIRST_BITS, MULTIPLIER_BITS
from .rows import ENTRY_BITS, EPSILON_BITS, MEAN_PLACES
from .stochastic import LENGTH_BITS

__all__ = [
    "CHAIN", "EntryForm", "Field", "HEADER", "HEADER_BITS", "INSTRUCTION_BYTES", "Kind", "LAYOUTS", "MAX_TILE_COLS",
    "OPERATIONS", "Opcode", "Operation", "QUEUE_OPERATIONS", "Queue", "ROW_SETTERS", "SECOND_STAGES", "SETTERS",
    "StepKind", "WordForm", "largest_field", "loads",
]

INSTRUCTION_BYTES = 16

#: Tiles side by side that a LOAD_ACT after LOAD_WINOGRAD can make: what the line memory has room for.
MAX_TILE_COLS = 63

#: Opcodes of each queue.
QUEUE_OPERATIONS = 32


class Queue(enum.IntEnum):
    """The queue an instruction goes to; CONTROL is the dispatcher itself."""

    CONTROL = 0
    LOAD = 1
    COMPUTE = 2
    STORE = 3


class Opcode(enum.IntEnum):
    END = 1
    SYNC = 2

    LOAD_SET = 32
    LOAD_GATHER = 33
    LOAD_WINOGRAD = 34
    LOAD_TURN = 35
    LOAD_ACT = 40
    LOAD_WGT = 41
    LOAD_SIDE = 42

    COMPUTE_SET = 64
    COMPUTE = 72
    POOL = 73
    ROWS_TABLE = 94
    ROWS_SET = 95

    STORE_SET = 96
    STORE_REQUANT = 97
    STORE_ADD = 98
    STORE_MULTIPLY = 99
    STORE_LEAKY = 100
    STORE_TABLE = 104       # what only some machines have is told from the rest by few bits
    STORE_MAXIMUM = 106
    STORE_SIGNS = 108
    STORE = 127

    @property
    def queue(self) -> Queue:
        return Queue(self // QUEUE_OPERATIONS)


class Kind(enum.IntEnum):
    """A choice that a field names. ``unit``: the field of `NpuConfig` without which a machine does not have it.

    ``traits``: what it has in common with others, each of which engines know it by; its own name where it has none.
    """

    unit: str
    traits: tuple[str, ...]

    def __new__(cls, value: int, unit: str = "", traits: tuple[str, ...] = ()) -> "Kind":
        member = int.__new__(cls, value)
        member._value_, member.unit, member.traits = value, unit, traits
        return member

    def __init__(self, *_: object) -> None:
        self.traits = self.traits or (self.name.lower(),)


class StepKind(Kind):
    """What a step of a COMPUTE multiplies."""

    DENSE = 0                           # weights without indices: lane j of step n has channel j * tn/dn + n
    INDEXED = 1                         # weights that carry indices
    WINDOW = 2, "depthwise"             # lanes are neighbouring taps of a channel; docs/architecture.md, "Spread words"
    BINARY = 3, "binary_rows"           # blocks of 8 * tn channels of a bit each
    STOCHASTIC = 4, "stochastic_rows"   # activations and weights as streams of bits; docs/stochastic.md
    INT4 = 5, "int4"                    # as DENSE, with weights of four bits: that of lane n in bits 4 n and following
    INT4_INDEXED = 6, "int4", ("int4", "indexed")   # the same with indices

    @property
    def has_indices(self) -> bool:
        return "indexed" in self.traits

    @property
    def is_int4(self) -> bool:
        """Whether weights have four bits."""
        return "int4" in self.traits


class WordForm(Kind):
    """How the sums of a tile lie in accumulator words."""

    PIXELS = 0                  # a word has neighbouring pixels of all output lanes
    SPREAD = 1, "depthwise"     # it has a pixel pair for each group of output lanes
    ALTERNATE = 2, "depthwise"  # groups of output lanes make alternate rows
    TILES = 4, "winograd"       # it has sums of transformed tiles, whose positions lie apart


class EntryForm(Kind):
    """What a LOAD_ACT makes of a beat."""

    BYTES = 0                       # as it is
    SIGNS = 1, "binary_rows"        # the signs alone, of eight blocks to an entry
    SIGN_PAIRS = 3, "binary_rows"   # after a pixel's signs those of its right neighbour


@dataclass(frozen=True)
class Field:
    """``bits`` wide; ``signed`` in two's complement; a ``minimum`` of 1 makes zero illegal.

    ``kinds``: what it chooses from; any other value is illegal. ``unit``: the field of `NpuConfig` without which a
    machine does not have it: there it must be zero.
    """

    name: str
    bits: int
    signed: bool = False
    minimum: int = 0
    kinds: tuple[Kind, ...] = ()
    unit: str = ""


@dataclass(frozen=True)
class Operation:
    """``tokens``: header flags that it may set. ``some``: fields of which at least one must not be zero.

    ``setter``: it only sets what those after it in its queue use; ``after``: the setters without which it is illegal.
    ``unit``: the field of `NpuConfig` without which a machine does not have it.
    """

    fields: tuple[Field, ...] = ()
    tokens: frozenset[str] = frozenset()
    some: tuple[str, ...] = ()
    setter: bool = False
    after: tuple[Opcode, ...] = ()
    unit: str = ""


#: Header. Token flags name the *other* queue: wait_X takes a token that X posted to this queue, post_X gives one to X.
#: ``stores`` (load queue only) is how many store-to-load tokens to take before starting.
HEADER: tuple[Field, ...] = (
    Field("opcode", 7),
    Field("wait_load", 1),
    Field("wait_compute", 1),
    Field("wait_store", 1),      # compute queue only; the load queue uses ``stores``
    Field("post_load", 1),
    Field("post_compute", 1),
    Field("post_store", 1),
    Field("stores", 8),
)
HEADER_BITS = sum(field.bits for field in HEADER)

_LOAD_TOKENS = frozenset({"wait_compute", "stores", "post_compute"})


def _setter(*fields: Field, unit: str = "") -> Operation:
    return Operation(fields, setter=True, unit=unit)


#: What every second stage of requantisation has: y = clip((t >> shift, rounded) + zero_point, low, high).
_SECOND = (
    Field("shift", 6),
    Field("zero_point", 8, signed=True),
    Field("low", 8, signed=True),
    Field("high", 8, signed=True),
)

OPERATIONS: Mapping[Opcode, Operation] = {
    Opcode.END: Operation(),
    Opcode.SYNC: Operation(),
    # Geometry that the LOAD_ACTs after it share.
    Opcode.LOAD_SET: _setter(
        Field("cols", 12, minimum=1),            # data pixels of a row
        Field("row_pitch", 20),                  # memory, beats from a row to the next
        Field("block_pitch", 24),                # memory, beats from a channel block to the next
        Field("pad_left", 4),
        Field("pad_right", 4),
        Field("pad_value", 8, signed=True),
        Field("stride", 3, minimum=1),           # the layer's horizontal stride: decides the bank of a column
        Field("buf_row_pitch", 12),              # input buffer, entries of a bank from a row to the next
        Field("buf_block_pitch", 14),
        Field("form", 2, kinds=tuple(EntryForm)),  # of an entry
        Field("pad_zero", 1, unit="binary_rows"),  # padding counts as zero in a binary COMPUTE
    ),
    # Until the next LOAD_SET, rows of memory are bytes, and runs of them go to parts of entries.
    Opcode.LOAD_GATHER: _setter(
        Field("outputs", 12, minimum=1),         # runs of a row, one for each output column
        Field("length", 5, minimum=1),           # bytes of a run
        Field("step", 6),                        # bytes from a run to the next
        Field("start", 6, signed=True),          # first byte of the first run, from the row's first beat
        Field("place", 5),                       # byte of the entry where a run begins
        Field("bytes", 16),                      # data bytes of a row, from its first beat; padding follows
        unit="gather",
    ),
    # Until the next LOAD_SET, boxes of pixels become transformed tiles.
    Opcode.LOAD_WINOGRAD: _setter(
        Field("shifts", 32),                     # narrow: 2 bits for each of the 16 positions
        Field("tile_cols", 8, minimum=1),        # 2x2 output tiles of a row
        Field("position_pitch", 14),             # input buffer, entries from a position to the next
        unit="winograd",
    ),
    # Until the next LOAD_SET, boxes without padding become weights of dense steps: of each block those of all output
    # lanes, to the weight ring. What is beyond ``lanes`` and ``depth`` is 0. A row begins at a multiple of tn lanes.
    Opcode.LOAD_TURN: _setter(
        Field("by_channels", 1),                 # lanes are channels and pixels are multiplied; 0: the other way
        Field("lanes", 10),                      # output lanes that have data
        Field("depth", 6, minimum=1),            # values of a block that each multiplies
        Field("steps", 6, minimum=1),            # of a block
        Field("first", 1),                       # a box begins new sums of each lane's weights
        Field("bank", 1),                        # where these are kept
        unit="turn",
    ),
    # Box of activations -> input buffer, padded. A box without rows has no last pixel.
    Opcode.LOAD_ACT: Operation((
        Field("offset", 28),                     # memory, first data pixel
        Field("buf_base", 14),                   # input buffer, first entry
        Field("blocks", 10, minimum=1),
        Field("rows", 10),                       # data rows; 0 when all of it is padding
        Field("pad_top", 6),
        Field("pad_bottom", 6),
    ), _LOAD_TOKENS, some=("rows", "pad_top", "pad_bottom"), after=(Opcode.LOAD_SET,)),
    # Contiguous beats -> weight ring.
    Opcode.LOAD_WGT: Operation((
        Field("offset", 28),
        Field("beats", 24, minimum=1),
    ), _LOAD_TOKENS),
    # Rows of beats -> side ring (channel parameters, the other operand).
    Opcode.LOAD_SIDE: Operation((
        Field("offset", 28),
        Field("cols", 12, minimum=1),
        Field("rows", 10, minimum=1),
        Field("row_pitch", 20),
        # Of channel parameters: each bias is less the zero point times the sum of its lane's turned weights.
        Field("zero_point", 8, signed=True, unit="turn"),
        Field("bank", 1, unit="turn"),           # of sums
        Field("group", 4, unit="turn"),          # of tn lanes, those of the first parameters
    ), _LOAD_TOKENS),
    # Geometry that the COMPUTEs and POOLs after it share.
    Opcode.COMPUTE_SET: _setter(
        Field("kernel_h", 6, minimum=1),
        Field("kernel_w", 6, minimum=1),
        Field("stride", 3, minimum=1),           # horizontal; vertical is in buf_row_step
        Field("rows", 10, minimum=1),            # output rows of the tile
        Field("cols", 12, minimum=1),            # output columns of the tile
        Field("buf_row_pitch", 12),
        Field("buf_row_step", 14),               # entries from an output row to the next
        Field("buf_block_pitch", 14),
        Field("words", 3, kinds=(WordForm.PIXELS, WordForm.SPREAD, WordForm.ALTERNATE)),
        # Of steps that are windows:
        Field("shift", 1, unit="depthwise"),     # alternate: in the first ky's steps the upper group is a row behind
        Field("reads", 12, unit="depthwise"),    # reads of a row, of ``banks`` pixels each
    ),
    # A tile through the multiplier array: for block, ky, kx, group: all pixels.
    Opcode.COMPUTE: Operation((
        Field("buf_base", 14),
        Field("blocks", 10, minimum=1),
        Field("groups", 6, minimum=1),           # steps of a block (n)
        Field("kind", 4, kinds=tuple(StepKind)),
        Field("first", 1),                       # start from zero instead of the bank's sums
        Field("bank", 1),                        # accumulator bank
        Field("acc_base", 12, unit="winograd"),  # first word of the tile in the bank
        # Of streams:
        Field("length", LENGTH_BITS, unit="stochastic_rows"),  # log2, less MIN_LENGTH_LOG
        Field("made", LENGTH_BITS, unit="stochastic_rows"),    # bits of it that are made: the same; at most ``length``
    ), frozenset({"wait_load", "wait_store", "post_load", "post_store"}), after=(Opcode.COMPUTE_SET,)),
    # Windows of one channel block after the other -> store engine, without the multipliers. It leaves nothing in a
    # bank, so it has no ``post_store``.
    Opcode.POOL: Operation((
        Field("buf_base", 14),
        Field("blocks", 10, minimum=1),
        Field("maximum", 1),                     # 1: maximum, 0: sum
        # Parts of one window, of a POOL with a single one:
        Field("resume", 1),                      # it goes on with what the POOL before it left open
        Field("open", 1),                        # the next POOL goes on with it: no result yet
        Field("row_pass", 2, unit="rows"),       # RowPass: of rows, a pixel's channels each, instead of windows
    ), frozenset({"wait_load", "wait_store", "post_load"}), after=(Opcode.COMPUTE_SET,)),
    # What is done with the rows of the POOLs after it.
    Opcode.ROWS_SET: _setter(
        Field("pixels", 10, minimum=1),          # of a tile
        Field("channels", 11, minimum=1),        # of a row
        Field("moments", 1),                     # 1: normalised, 0: exponentials that add up to one
        # Of moments:
        Field("centred", 1),                     # the mean is subtracted
        Field("zero_point", 8, signed=True),     # this is
        Field("mean", MEAN_PLACES),                # 1 / channels
        Field("epsilon", EPSILON_BITS),          # added to channels**2 times the variance
        Field("base", 6, signed=True),           # exponent for which nothing is shifted
        unit="rows",
    ),
    # The exponential of a difference to the maximum.
    Opcode.ROWS_TABLE: _setter(
        Field("place", 8),                       # the difference, modulo 256
        Field("entry", ENTRY_BITS),
        unit="rows",
    ),
    # Geometry that the STOREs after it share.
    Opcode.STORE_SET: _setter(
        Field("rows", 10, minimum=1),
        Field("cols", 12, minimum=1),
        Field("row_pitch", 20),                  # memory, beats
        Field("block_pitch", 24),
        Field("words", 3, kinds=tuple(WordForm)),
        Field("position_words", 12, unit="winograd"),  # tiles: words from a position to the next
        Field("local", 1, unit="local_store"),   # to the input buffer; pitches and offset count its entries
        Field("bank", 3, unit="local_store"),    # local: modulo the number of banks, where each row begins
    ),
    # Begins the chain: sums become activations, by the channels' own parameters.
    Opcode.STORE_REQUANT: _setter(
        Field("zero_point", 8, signed=True),
        Field("low", FIRST_BITS, signed=True),   # clip; beyond int8 only in front of a second stage
        Field("high", FIRST_BITS, signed=True),
    ),
    # A second stage, of which a chain has one at most, with the other operand b from the side ring:
    # t = a * multiplier_a + b * multiplier_b + constant
    Opcode.STORE_ADD: _setter(
        *_SECOND,
        Field("multiplier_a", MULTIPLIER_BITS),
        Field("constant", CONSTANT_BITS, signed=True),
        Field("broadcast", 1, unit="product"),   # b is one beat for each block, the same for all of its pixels
        Field("multiplier_b", MULTIPLIER_BITS),
    ),
    # The same with t = a * (b * multiplier - constant); its fields lie where those of STORE_ADD do.
    Opcode.STORE_MULTIPLY: _setter(
        *_SECOND,
        Field("multiplier", MULTIPLIER_BITS),
        Field("constant", CONSTANT_BITS, signed=True),
        Field("broadcast", 1),
        unit="product",
    ),
    # A second stage without another operand: t = a * multiplier, or where a is negative a * negative.
    Opcode.STORE_LEAKY: _setter(
        *_SECOND,
        Field("multiplier", MULTIPLIER_BITS),
        Field("negative", MULTIPLIER_BITS),
    ),
    # Each result is replaced by its value in a table.
    Opcode.STORE_TABLE: _setter(
        Field("load", 1),                        # take the table from the side ring first
        unit="table",
    ),
    # Of each 2x2 results the largest is written. STORE_SET's cols is then the number of results in two rows, a multiple
    # of 4, and its rows that of what is written; with a STORE's repeats 1 each column gives its two rows' results.
    Opcode.STORE_MAXIMUM: _setter(
        Field("row_words", 12),                  # accumulator words from the upper row to the lower; 0 in tiles
        unit="maximum",
    ),
    # The signs of results are written, those of eight pixels of a row to a beat.
    Opcode.STORE_SIGNS: _setter(unit="binary_rows"),
    # Accumulators (or the pool unit's stream) -> the chain -> memory.
    Opcode.STORE: Operation((
        Field("offset", 28),
        Field("blocks", 10, minimum=1),          # channel blocks to write; from a bank at most tm / tn
        Field("bank", 1),
        Field("pooled", 1),                      # source: 0 accumulator bank, 1 pool unit
        Field("repeats", 5),                     # further times that each pixel is written in its row
    ), frozenset({"wait_compute", "post_load", "post_compute"}), after=(Opcode.STORE_SET, Opcode.STORE_REQUANT)),
}

#: Operations of a chain, and those that are its second stage.
CHAIN = tuple(op for op in Opcode if Opcode.STORE_SET < op < Opcode.STORE)
SECOND_STAGES = (Opcode.STORE_ADD, Opcode.STORE_MULTIPLY, Opcode.STORE_LEAKY)
#: Operations that set what only the row unit looks at.
ROW_SETTERS = (Opcode.ROWS_SET, Opcode.ROWS_TABLE)

#: Fields of each operation above the header; operations that only set something.
LAYOUTS: Mapping[Opcode, tuple[Field, ...]] = {opcode: operation.fields for opcode, operation in OPERATIONS.items()}
SETTERS = frozenset(opcode for opcode, operation in OPERATIONS.items() if operation.setter)

for _opcode, _fields in LAYOUTS.items():
    assert HEADER_BITS + sum(field.bits for field in _fields) <= 8 * INSTRUCTION_BYTES, _opcode


def largest_field(opcode: Opcode, name: str) -> int:
    """The largest value of an instruction's unsigned field."""
    return (1 << next(field.bits for field in LAYOUTS[opcode] if field.name == name)) - 1


def loads(opcode: Opcode) -> bool:
    """Whether an operation of the chain can take beats from the side ring when it is added."""
    return any(field.name == "load" for field in LAYOUTS[opcode])
