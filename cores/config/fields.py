"""What a machine is chosen by."""

from dataclasses import dataclass

__all__ = ["Fields"]


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `NpuConfig`, which checks them.

    A *beat* is ``ic_lanes`` bytes: one pixel of one channel block, one word of the AXI data bus and one entry of an
    input-buffer bank. Depths are counted in beats unless said otherwise.
    """

    #: Output channels computed at once (tm).
    oc_lanes: int = 32
    #: Input channels of a block (tn); also the bytes of a beat.
    ic_lanes: int = 16
    #: Weights of one block multiplied in a step, per output channel (dn).
    nnz_lanes: int = 4
    #: Pixels computed at once (px); two share a multiplier where it is wide enough.
    pixel_lanes: int = 2
    #: Channels that one multiplier can select from; 0 stands for all ``ic_lanes``.
    select_fanin: int = 0
    #: Bits of an accumulator; the compiler proves that every layer fits.
    acc_width: int = 27
    #: Width of the multiplier port that carries activations: 27 DSP48E2, 25 DSP48E1, 18 elsewhere.
    multiplier_width: int = 27
    #: 1: the device's tools join products of two 18-bit multipliers in look-up tables, and do not use the output
    #: registers of block RAMs: the requantizer sees to both (docs/datapath.md, "Bare blocks").
    bare_blocks: int = 0
    #: Entries of each of the ``banks`` input-buffer banks.
    input_depth: int = 4096
    #: Words (``oc_lanes * pixel_lanes`` accumulators each) of each of the two accumulator banks.
    acc_depth: int = 256
    #: Beats of the weight ring.
    weight_depth: int = 1024
    #: Beats of the ring that carries channel parameters and residuals to the store engine.
    side_depth: int = 512
    #: Instructions each queue holds.
    queue_depth: int = 16
    #: Read bursts in flight.
    outstanding_reads: int = 16
    #: Write bursts in flight.
    outstanding_writes: int = 8
    #: Bits of an AXI address.
    address_width: int = 40
    #: AxPROT of all bursts (docs/integration.md): bit 1 marks them as not secure.
    axi_prot: int = 0
    #: 1: groups of output lanes can work on different pixels, and reduction lanes on different taps: layers with few
    #: output channels and depthwise layers fill the array (docs/architecture.md, "Spread words").
    depthwise: int = 0
    #: 1: loads gather runs of bytes: layers of few input channels take kernel rows as channels, and signs come as bits.
    gather: int = 0
    #: Output lanes of the binary unit, each with 8 * ic_lanes bits of each of ``pixel_lanes`` pixels; 0: no unit.
    #: ``oc_lanes * nnz_lanes / ic_lanes`` make eight times the MACs, ``oc_lanes`` populate it fully.
    binary_rows: int = 0
    #: 1: the binary unit is an engine of its own, with its own input buffer and accumulators, instead of a part of the
    #: compute engine. Binary and other COMPUTEs then cannot add to the same sums.
    binary_engine: int = 0
    #: Winograd F(2x2,3x3): 0 without, 1 narrow (transformed values of 8 bits), 2 exact (all activations have 10 bits in
    #: the machine, all weights 12).
    winograd: int = 0
    #: 1: a STORE can write to the input buffer, so that a pointwise layer follows a depthwise one without memory.
    local_store: int = 0
    #: 1: a STORE can look its results up in a table of 256 bytes: any function of a value.
    table: int = 0
    #: 1: a STORE can multiply its results by those of another tensor, or by a vector of one number a channel.
    product: int = 0
    #: Output lanes of the stochastic unit, each with streams of ic_lanes channels of each of ``pixel_lanes`` pixels; 0:
    #: no unit.
    stochastic_rows: int = 0
    #: How they add the products of their streams: a `cores.arch.stochastic.Circuit`.
    stochastic_circuit: int = 0
    #: Bits of a stream that are made in a cycle; 0 without the unit.
    stochastic_bits: int = 0
