"""The memory of a board, in cycles of a machine's clock."""

from boards.board import Board
from cores.config import NpuConfig
from cores.timing.bus import ReadPortsTiming
from sim.rtl.machine import Bus
from sim.timing.dram import TICKS, DramTiming

__all__ = ["bus_of"]


def bus_of(board: Board | None, config: NpuConfig, mhz: float) -> Bus:
    """What the simulators need of a board's memory and of the port to it, for a machine at ``mhz``; None is ideal.

    What is left of the data rate after refreshes is the share that a master with long bursts gets, so that losses
    which are not modelled are in it.
    """
    if board is None:
        return Bus()
    port = board.memory

    def ticks(nanoseconds: float) -> int:
        return round(nanoseconds * mhz * TICKS / 1000)

    beyond = ReadPortsTiming.MORE_LATENCY if board.shares_reads(config.beat_bits) else 0
    refreshed = 1 - port.refresh_ns / port.refresh_interval_ns
    rate = min(port.peak, port.sustained / refreshed)
    return Bus(dram=DramTiming(
        latency=port.latency_cycles(mhz) + beyond, beat=max(1, ticks(config.beat_bytes / rate * 1e9)),
        row_bytes=port.row_bytes, banks=port.banks, row_miss=ticks(port.row_miss_ns),
        refresh_interval=ticks(port.refresh_interval_ns), refresh=ticks(port.refresh_ns),
        turn=ticks(port.write_to_read_ns), shared=port.shared,
        read_pace=board.port_cycles(config.beat_bits, write=False),
        write_pace=board.port_cycles(config.beat_bits, write=True)))
