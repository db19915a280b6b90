"""Boards with a Lattice ECP5 of 84,000 LUTs: ULX3S-85F, ECPIX-5 85F."""

from dataclasses import replace

from boards.board import Board
from boards.memory import MemoryPort

__all__ = ["BOARDS"]

_ULX3S = Board(
    name="ecp5", title="ULX3S-85F", family="ecp5", part="LFE5U-85F-6BG381C", clock_mhz=85,
    resources={"lut": 83_640, "ff": 83_640, "dsp": 156, "ebr": 208},
    multiplier_width=18, hard_block_registers=0, memory_bus_bits=(64, 128, 256), address_width=32,
    memory=MemoryPort(
        # LiteDRAM's half-rate PHY runs it at twice the clock of the system.
        device="32 MB SDRAM", transfers=120e6, width_bits=16,
        # LiteDRAM keeps rows open and reads whole bursts; what its crossbar and its refresher take is assumed.
        efficiency=0.85, efficiency_basis="assumed", read_latency_ns=250, latency_basis="assumed",
        # MT48LC16M16: 8,192 refreshes in 64 ms, tRFC 66 ns, rows of 512 columns; tRP and tRCD 20 ns.
        refresh_interval_ns=7812.5, refresh_ns=66, row_bytes=1024, banks=4, row_miss_ns=40, write_to_read_ns=0),
    amaranth_platform="amaranth_boards.ulx3s:ULX3S_85F_Platform",
    nextpnr=("--85k", "--package", "CABGA381", "--speed", "6"),
    driver_device="tcp://localhost:1234",
)

BOARDS = (
    _ULX3S,
    replace(
        _ULX3S, name="ecpix-5", title="ECPIX-5 85F", part="LFE5UM5G-85F-8BG554I", clock_mhz=75,
        memory=MemoryPort(
            # LiteDRAM's ECP5 PHY runs it at twice the clock of the system, two transfers a cycle.
            device="512 MB DDR3L", transfers=300e6, width_bits=16,
            efficiency=0.85, efficiency_basis="assumed", read_latency_ns=250, latency_basis="assumed",
            # MT41K256M16: tRFC 260 ns, pages of 2 KiB; tRP and tRCD 13.75 ns.
            refresh_interval_ns=7812.5, refresh_ns=260, row_bytes=2048, banks=8, row_miss_ns=27.5,
            write_to_read_ns=7.5),
        amaranth_platform="amaranth_boards.ecpix5:ECPIX585Platform",
        nextpnr=("--um5g-85k", "--package", "CABGA554", "--speed", "8")),
)
