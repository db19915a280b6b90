"""What every machine has: widths and counts that follow from its fields, each stated here, and its rules."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cores.arch.isa import StepKind
from cores.config.fields import Fields
from cores.errors import ArgumentError

__all__ = ["SHARED_TURNS", "ConfigError", "Core"]

#: Turns of a pixel with another operand, all at the same multiplier: its own, the operand's, and the first result's.
SHARED_TURNS = 3


class ConfigError(ArgumentError):
    """A configuration that cannot be built; the message says what to change."""

    code = "configuration-file"


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class Core(Fields):
    """`Fields`, what follows from them, and which of them can be built. A unit overrides what it changes."""

    @property
    def macs(self) -> int:
        """int8 multiply-accumulates a cycle."""
        return self.oc_lanes * self.nnz_lanes * self.pixel_lanes

    @property
    def beat_bytes(self) -> int:
        """Bytes of a beat: the AXI data bus, one pixel of one channel block."""
        return self.ic_lanes

    @property
    def beat_bits(self) -> int:
        return 8 * self.beat_bytes

    @property
    def activation_bits(self) -> int:
        """Bits of an activation in the input buffer and at the multipliers; a beat has 8."""
        return 8

    @property
    def weight_bits(self) -> int:
        """Bits of a weight in the weight stream."""
        return 8

    @property
    def array_sum_bits(self) -> int:
        """Bits of a sum of ``nnz_lanes`` products."""
        return self.activation_bits + self.weight_bits + (self.nnz_lanes - 1).bit_length()

    @property
    def sum_bits(self) -> int:
        """Bits of what is added to an accumulator at once, by the multiplier array or another unit."""
        return self.array_sum_bits

    @property
    def entry_bits(self) -> int:
        """Bits of an entry of an input-buffer bank: a beat, its activations extended to ``activation_bits``."""
        return self.ic_lanes * self.activation_bits

    @property
    def groups_dense(self) -> int:
        """Steps that a dense block takes (tn / dn)."""
        return self.ic_lanes // self.nnz_lanes

    @property
    def oc_groups(self) -> int:
        """Channel blocks that one set of output lanes makes (tm / tn)."""
        return self.oc_lanes // self.ic_lanes

    @property
    def banks(self) -> int:
        """Input-buffer banks: pixels of a block read at once."""
        return self.pixel_lanes

    @property
    def write_lanes(self) -> int:
        """Beats that are written to the input buffer at once, to neighbouring banks."""
        return 1

    @property
    def window_reads(self) -> int:
        """Reads of ``banks`` pixels that the taps of one word reach over: one, but in depthwise windows."""
        return 1

    @property
    def gathered_taps(self) -> int:
        """Taps of a depthwise window that a step takes where each lane has all channels of a tap to select from."""
        return 0

    @property
    def own_taps(self) -> int:
        """The same where output lanes select from the pixels of a word, and have taps of their own channel beside."""
        return 0

    @property
    def window_taps(self) -> int:
        """Taps of a depthwise window that a step takes: those of a row of the kernel, in the first reduction lanes."""
        return self.gathered_taps or self.own_taps

    @property
    def groups_alternate(self) -> bool:
        """Whether groups of output lanes can make alternate rows of windows."""
        return self.gathered_taps > 0 and self.oc_groups == 2

    @property
    def word_places(self) -> int:
        """Places of an accumulator word: sums of one pixel from one group of output lanes."""
        return self.pixel_lanes * self.oc_groups

    @property
    def groups_share(self) -> bool:
        """Whether the groups of a word can hold further columns or rows of one block."""
        return self.banks > self.pixel_lanes

    def word_columns(self, *, spread: bool) -> int:
        """Output columns of an accumulator word; ``spread``: all groups hold columns of one block."""
        return self.banks if spread else self.pixel_lanes

    @property
    def index_bits(self) -> int:
        """Bits of the channel index beside a weight; 1 where a lane has a single channel, and then nothing reads it."""
        return max(1, (self.select_fanin - 1).bit_length())

    @property
    def weight_beats(self) -> int:
        """Beats of the weights of one step."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.weight_bits / self.beat_bits)

    @property
    def index_beats(self) -> int:
        """Beats of the indices of one step (indexed mode only)."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.index_bits / self.beat_bits)

    @cached_property
    def unit_rows(self) -> Mapping[StepKind, int]:
        """Kinds of steps whose sums are made by another unit than the multiplier array, and the output lanes that each
        unit has: a step takes a beat of weights for every one of them.
        """
        return {kind: rows for kind, rows in self.rows_by_kind() if rows}

    def rows_by_kind(self) -> Iterator[tuple[StepKind, int]]:
        """What a unit adds to `unit_rows`."""
        yield from ()

    @cached_property
    def own_beats(self) -> Mapping[StepKind, int]:
        """Kinds of steps that take another number of beats than a dense step's weights, and indices, do."""
        return dict(self.beats_by_kind())

    def beats_by_kind(self) -> Iterator[tuple[StepKind, int]]:
        """What a unit adds to `own_beats`."""
        yield from self.unit_rows.items()

    def unit_groups(self, kind: StepKind) -> int:
        """Groups of a unit's output lanes, the steps of a block of its COMPUTE; 0 without the unit."""
        rows = self.unit_rows.get(kind, 0)
        return self.oc_lanes // rows if rows else 0

    def step_beats(self, kind: StepKind = StepKind.DENSE) -> int:
        """Beats of the weight ring that a step takes."""
        own = self.weight_beats + (self.index_beats if kind.has_indices else 0)
        return self.own_beats.get(kind, own)

    @property
    def joins_sums(self) -> bool:
        """Whether sums of another unit than the multiplier array go to the same accumulators."""
        return bool(self.unit_rows)

    @property
    def own_stage(self) -> bool:
        """Whether second stages of stores have multipliers of their own."""
        return False

    @property
    def residual_cycles(self) -> int:
        """Cycles of the store engine's multipliers for a pixel of a block and another operand."""
        return SHARED_TURNS

    @property
    def store_parts(self) -> int:
        """Turns in which the store engine's lanes take a beat's channels."""
        return 1

    @property
    def acc_lanes(self) -> int:
        return self.oc_lanes * self.pixel_lanes

    def window_base(self, lane: int) -> int:
        """First channel that reduction lane ``lane`` can select; its index counts from there."""
        return lane * self.groups_dense // self.select_fanin * self.select_fanin

    def require(self, name: str, condition: bool, what: str) -> None:
        """Raises ConfigError unless ``condition`` holds of the field."""
        if not condition:
            raise ConfigError(f"{name} must {what}, not {getattr(self, name)}",
                              code="configuration-rule", parameter=name, found=getattr(self, name))

    def require_switch(self, name: str) -> None:
        self.require(name, getattr(self, name) in (0, 1), "be 0 or 1")

    def require_rows(self, name: str) -> int:
        """``name``: the field of a unit's output lanes, of which one step takes 32 at the most."""
        rows: int = getattr(self, name)
        tm = self.oc_lanes
        self.require(name, rows == 0 or _is_power_of_two(rows) and max(1, tm // 32) <= rows <= tm,
                     f"be 0 or a power of two from {max(1, tm // 32)} to oc_lanes={tm}")
        return rows

    def check(self) -> None:
        """Raises ConfigError for a value or a combination that cannot be built."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{field.name} must be an integer, not {value!r}",
                                  code="configuration-rule", parameter=field.name, found=value)
        self._check_lanes()
        self._check_memories()

    def _check_lanes(self) -> None:
        tn, tm, dn = self.ic_lanes, self.oc_lanes, self.nnz_lanes
        self.require("ic_lanes", tn in (4, 8, 16, 32), "be 4, 8, 16 or 32 (the AXI data bus is 8 * ic_lanes bits)")
        self.require("nnz_lanes", _is_power_of_two(dn) and dn <= tn, f"be a power of two up to ic_lanes={tn}")
        self.require("oc_lanes", _is_power_of_two(tm) and tn <= tm <= 16 * tn,
                 f"be a power of two from ic_lanes={tn} to {16 * tn}, as a store writes whole channel blocks")
        self.require("pixel_lanes", self.pixel_lanes in (1, 2), "be 1 or 2")
        fanin = self.select_fanin
        self.require("select_fanin", _is_power_of_two(fanin) and tn // dn <= fanin <= tn,
                 f"be a power of two from ic_lanes / nnz_lanes={tn // dn} to ic_lanes={tn}")
        self.require("acc_width", 24 <= self.acc_width <= 32, "be in 24..32")
        self.require("multiplier_width", self.multiplier_width in (18, 25, 27), "be 18, 25 or 27")
        self.require_switch("hard_block_registers")
        self.require("hard_block_registers", self.hard_block_registers == 1 or self.multiplier_width == 18,
                 f"be 1 with multipliers of {self.multiplier_width} bits")

    def _check_memories(self) -> None:
        # Rings and FIFOs of the memory engines take whole bursts of 256 beats.
        for name, low, high in (("input_depth", 256, 16384), ("acc_depth", 64, 4096), ("weight_depth", 512, 16384),
                                ("side_depth", 512, 16384), ("outstanding_reads", 2, 64),
                                ("outstanding_writes", 2, 64)):
            value = getattr(self, name)
            self.require(name, _is_power_of_two(value) and low <= value <= high, f"be a power of two in {low}..{high}")
        depth = self.queue_depth
        self.require("queue_depth", depth == 1 or _is_power_of_two(depth) and 4 <= depth <= 64,
                     "be 1, or a power of two in 4..64")
        self.require("address_width", 32 <= self.address_width <= 64, "be in 32..64")
        self.require("axi_prot", 0 <= self.axi_prot <= 7, "be in 0..7")
