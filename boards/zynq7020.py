"""Boards with a Zynq-7020 and 16 bits of DDR3: PYNQ-Z1, PYNQ-Z2, Arty Z7-20."""

from dataclasses import replace

from boards.board import Board
from boards.linux import ZYNQ_7000
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

_PYNQ_Z1 = Board(
    name="zynq7020", title="PYNQ-Z1", family="xc7", part="xc7z020clg400-1", clock_mhz=150,
    resources={"lut": 53_200, "ff": 106_400, "dsp": 220, "bram36": 140},
    multiplier_width=25, memory_bus_bits=(32, 64), read_ports=2, address_width=32, registers_base=0x43C0_0000,
    linux=ZYNQ_7000,
    memory=MemoryPort(
        device="512 MB DDR3-1050", transfers=1050e6, width_bits=16,
        # UG585, "DDR Efficiency": reads and writes of consecutive addresses, bursts of 16.
        efficiency=0.87, efficiency_basis="published",
        # github.com/ammrat13/pynqz2-ram-tester: 374 ns for 128 bytes of 8 a cycle at 100 MHz, the processor in between.
        read_latency_ns=214, latency_basis="measured",
        # JESD79-3, a chip of 4 Gbit: tRFC 260 ns, pages of 2 KiB; tRP and tRCD 13.1 ns.
        refresh_interval_ns=7800, refresh_ns=260, row_bytes=2048, banks=8, row_miss_ns=26.3, write_to_read_ns=7.5),
    # The device is the Arty Z7-20's, which amaranth-boards has.
    amaranth_platform="amaranth_boards.arty_z7:ArtyZ720Platform", vendor_board="pynq-z1",
)

BOARDS = (
    _PYNQ_Z1,
    replace(_PYNQ_Z1, name="pynq-z2", title="PYNQ-Z2", vendor_board="pynq-z2"),
    replace(_PYNQ_Z1, name="arty-z7-20", title="Arty Z7-20", vendor_board="arty-z7-20"),
)
