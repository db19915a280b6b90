"""Widths and counts that follow from a configuration's fields: each stated here, and read everywhere."""

import math

from cores.arch.isa import StepKind
from cores.arch.numerics import SIGN_BLOCKS
from cores.arch.stochastic import Circuit
from cores.arch.stochastic import sum_bits as stochastic_sum_bits
from cores.config.fields import Fields

__all__ = ["Derived"]


class Derived(Fields):
    """`Fields`, and what follows from them."""

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
        return 10 if self.winograd == 2 else 8

    @property
    def weight_bits(self) -> int:
        """Bits of a weight in the weight stream."""
        return 12 if self.winograd == 2 else 8

    @property
    def array_sum_bits(self) -> int:
        """Bits of a sum of ``nnz_lanes`` products."""
        return self.activation_bits + self.weight_bits + (self.nnz_lanes - 1).bit_length()

    @property
    def sum_bits(self) -> int:
        """Bits of what is added to an accumulator at once, by the multiplier array or another unit."""
        streams = stochastic_sum_bits(self.ic_lanes) if self.stochastic_rows else 0
        return max(self.array_sum_bits, streams)

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
        return self.pixel_lanes * self.oc_groups if self.depthwise else self.pixel_lanes

    @property
    def write_lanes(self) -> int:
        """Beats that are written to the input buffer at once, to neighbouring banks."""
        return self.pixel_lanes if self.gather else 1

    @property
    def window_reads(self) -> int:
        """Reads of ``banks`` pixels that the taps of one word of a depthwise window reach over."""
        return (self.banks + self.nnz_lanes - 2) // self.banks + 1

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
        """Bits of the channel index beside a weight; one that nothing reads where there is nothing to select."""
        return max(1, (self.select_fanin - 1).bit_length())

    @property
    def weight_beats(self) -> int:
        """Beats of the weights of one step."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.weight_bits / self.beat_bits)

    @property
    def index_beats(self) -> int:
        """Beats of the indices of one step (indexed mode only)."""
        return math.ceil(self.oc_lanes * self.nnz_lanes * self.index_bits / self.beat_bits)

    def step_beats(self, kind: StepKind = StepKind.DENSE) -> int:
        """Beats of the weight ring that a step takes."""
        match kind:
            case StepKind.BINARY:
                return self.binary_rows
            case StepKind.STOCHASTIC:
                return self.stochastic_rows
            case StepKind.INDEXED:
                return self.weight_beats + self.index_beats
            case _:
                return self.weight_beats

    @property
    def binary_bits(self) -> int:
        """Channels of a block of a binary COMPUTE, a bit each: they fill an entry of the input buffer."""
        return self.beat_bits

    @property
    def sign_bytes(self) -> int:
        """Bytes of the signs of a pixel of an int8 block."""
        return self.beat_bytes // SIGN_BLOCKS

    @property
    def binary_groups(self) -> int:
        """Groups of ``binary_rows`` output lanes, the steps of a block of a binary COMPUTE; 0 without the unit."""
        return self.oc_lanes // self.binary_rows if self.binary_rows else 0

    @property
    def binary_macs(self) -> int:
        """Products of bits that the binary unit makes in a cycle."""
        return self.binary_bits * self.binary_rows * self.pixel_lanes

    @property
    def circuit(self) -> Circuit:
        """Of the stochastic unit."""
        return Circuit(self.stochastic_circuit)

    @property
    def stochastic_groups(self) -> int:
        """Groups of ``stochastic_rows`` output lanes, the steps of a block of a stochastic COMPUTE; 0 without the unit.
        """
        return self.oc_lanes // self.stochastic_rows if self.stochastic_rows else 0

    @property
    def joins_sums(self) -> bool:
        """Whether sums of another unit than the multiplier array go to the same accumulators."""
        return bool(self.binary_rows or self.stochastic_rows)

    @property
    def acc_lanes(self) -> int:
        return self.oc_lanes * self.pixel_lanes

    def window_base(self, lane: int) -> int:
        """First channel that reduction lane ``lane`` can select; its index counts from there."""
        return lane * self.groups_dense // self.select_fanin * self.select_fanin
