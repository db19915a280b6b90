"""AMD ZCU102: Zynq UltraScale+ ZU9EG."""

from boards.board import Board
from boards.linux import ZYNQ_ULTRASCALE
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

BOARDS = (
    Board(
        name="zcu102", title="ZCU102", family="xcup", part="xczu9eg-ffvb1156-2-e", clock_mhz=333,
        resources={"lut": 274_080, "ff": 548_160, "dsp": 2520, "bram36": 912},
        multiplier_width=27, memory_bus_bits=(32, 64, 128), read_ports=2, address_width=40,
        # The SMMU-500 passes what no device tree gives it.
        iommu="unused",
        registers_base=0xA000_0000,
        linux=ZYNQ_ULTRASCALE,
        memory=MemoryPort(
            device="4 GB DDR4-2133", transfers=2133e6, width_bits=64,
            # Manev, Vaishnav, Koch: Unexpected Diversity, FPT 2019.
            efficiency=0.75, efficiency_basis="measured",
            # As on the Ultra96-V2.
            read_latency_ns=150, latency_basis="assumed",
            # JESD79-4, chips of 8 Gbit and 16 pins: tRFC1 350 ns, pages of 2 KiB in each of four.
            refresh_interval_ns=7800, refresh_ns=350, row_bytes=8192, banks=8, row_miss_ns=28.1, write_to_read_ns=7.5),
        amaranth_platform="boards.platforms.ultrascale:ZCU102Platform", vendor_board="zcu102",
    ),
)
