"""What every machine is chosen by; each optional unit has its own fields (`cores.config.units`)."""

from dataclasses import dataclass

__all__ = ["Fields"]


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of `NpuConfig` that belong to no optional unit.

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
    #: 0: the device's tools use the output registers of neither multipliers nor block RAMs, and join products of two
    #: 18-bit multipliers in look-up tables: the requantizer sees to both (docs/datapath.md, "Hard blocks without output
    #: registers").
    hard_block_registers: int = 1
    #: Entries of each of the ``banks`` input-buffer banks.
    input_depth: int = 4096
    #: Words (``oc_lanes * pixel_lanes`` accumulators each) of each of the two accumulator banks.
    acc_depth: int = 256
    #: Beats of the weight ring.
    weight_depth: int = 1024
    #: Beats of the ring that carries channel parameters and residuals to the store engine.
    side_depth: int = 512
    #: Instructions each queue holds; one is in a register, more are in a memory.
    queue_depth: int = 16
    #: Read bursts in flight.
    outstanding_reads: int = 16
    #: Write bursts in flight.
    outstanding_writes: int = 8
    #: Bits of an AXI address.
    address_width: int = 40
    #: AxPROT of all bursts (docs/integration.md): bit 1 marks them as not secure.
    axi_prot: int = 0
