"""AMD Kria KV260: the K26 module, whose Zynq UltraScale+ is like a ZU5EV."""

from boards.board import Board
from boards.linux import ZYNQ_ULTRASCALE
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

BOARDS = (
    Board(
        name="kv260", title="Kria KV260", family="xcup", part="xck26-sfvc784-2LV-c", clock_mhz=300,
        resources={"lut": 117_120, "ff": 234_240, "dsp": 1248, "bram36": 144},
        multiplier_width=27, memory_bus_bits=(32, 64, 128), read_ports=2, address_width=40,
        # The SMMU-500 passes what no device tree gives it.
        iommu="unused",
        registers_base=0xA000_0000,
        linux=ZYNQ_ULTRASCALE,
        memory=MemoryPort(
            # Data sheet of the module, DS987: 64 bits at 2400 Mb/s.
            device="4 GB DDR4-2400", transfers=2400e6, width_bits=64,
            # As on the ZCU102, whose controller and width it shares.
            efficiency=0.75, efficiency_basis="assumed", read_latency_ns=150, latency_basis="assumed",
            # JESD79-4, chips of 8 Gbit and 16 pins: tRFC1 350 ns, pages of 2 KiB in each of four.
            refresh_interval_ns=7800, refresh_ns=350, row_bytes=8192, banks=8, row_miss_ns=28.3, write_to_read_ns=7.5),
        amaranth_platform="boards.platforms.ultrascale:KV260Platform", vendor_board="kv260_som",
    ),
)
