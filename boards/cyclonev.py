"""Boards with a Cyclone V SoC: DE10-Nano, DE1-SoC."""

from dataclasses import replace

from boards.board import Board
from boards.linux import CYCLONE_V
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

_DE10_NANO = Board(
    # Two 18x19 products a DSP block: two pixels on one multiplier would take the whole block and win nothing.
    name="cyclonev", title="DE10-Nano", family="cyclonev", part="5CSEBA6U23I7", clock_mhz=125,
    resources={"lut": 83_820, "ff": 167_640, "dsp": 112, "m10k": 553},
    multiplier_width=18, memory_bus_bits=(32, 64, 128, 256), address_width=32, registers_base=0xFF20_0000,
    linux=CYCLONE_V,
    memory=MemoryPort(
        # Cyclone V Hard Processor System Technical Reference Manual: 400 MHz at most.
        device="1 GB DDR3-800", transfers=800e6, width_bits=32,
        # As the controller of the Zynq-7020, for want of a measurement through the FPGA-to-SDRAM port.
        efficiency=0.85, efficiency_basis="assumed", read_latency_ns=250, latency_basis="assumed",
        # JESD79-3, two chips of 4 Gbit and 16 pins: tRFC 260 ns, pages of 2 KiB in each; tRP and tRCD 13.75 ns.
        refresh_interval_ns=7800, refresh_ns=260, row_bytes=4096, banks=8, row_miss_ns=27.5, write_to_read_ns=7.5),
    amaranth_platform="amaranth_boards.de10_nano:DE10NanoPlatform",
)

BOARDS = (
    _DE10_NANO,
    replace(_DE10_NANO, name="de1-soc", title="DE1-SoC", part="5CSEMA5F31C6",
            resources={"lut": 64_140, "ff": 128_300, "dsp": 87, "m10k": 397},
            amaranth_platform="amaranth_boards.de1_soc:DE1SoCPlatform"),
)
