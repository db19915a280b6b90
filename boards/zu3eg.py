"""Avnet Ultra96-V2: Zynq UltraScale+ ZU3EG."""

from boards.board import Board
from boards.linux import ZYNQ_ULTRASCALE
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

BOARDS = (
    Board(
        name="zu3eg", title="Ultra96-V2", family="xcup", part="xczu3eg-sbva484-1-i", clock_mhz=333,
        resources={"lut": 70_560, "ff": 141_120, "dsp": 360, "bram36": 216},
        multiplier_width=27, memory_bus_bits=(32, 64, 128), read_ports=2, address_width=40,
        # The SMMU-500 passes what no device tree gives it.
        iommu="unused",
        registers_base=0xA000_0000,
        linux=ZYNQ_ULTRASCALE,
        memory=MemoryPort(
            device="2 GB LPDDR4", transfers=2133e6, width_bits=32,
            # Manev, Vaishnav, Koch: Unexpected Diversity, FPT 2019, have measured both on this board and on the ZCU102.
            efficiency=0.925, efficiency_basis="measured",
            # As on the Zynq-7020, whose HP ports are like these, less for the faster clocks in between.
            read_latency_ns=150, latency_basis="assumed",
            # JESD209-4, channels of 8 Gbit: tREFI 3.904 us, tRFCab 280 ns, pages of 2 KiB in each of two channels.
            refresh_interval_ns=3904, refresh_ns=280, row_bytes=4096, banks=8, row_miss_ns=36, write_to_read_ns=10),
        amaranth_platform="boards.platforms.ultrascale:Ultra96V2Platform", vendor_board="ultra96v2",
    ),
)
