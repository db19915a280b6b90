"""Latencies in cycles that the time model puts together from those of the components, and what is no component's."""

from cores.timing.buffers import InputBufferTiming
from cores.timing.bus import ReadEngineTiming
from cores.timing.compute import TileSequencerTiming
from cores.timing.lib import BufferedFifoTiming, FifoTiming, ShallowFifoTiming
from cores.timing.pool import PoolUnitTiming
from cores.timing.store import ChannelParametersTiming, RequantizerTiming

__all__ = [
    "FETCH_ARRIVAL", "ISSUE_TO_DATA", "LOAD_ARRIVAL", "MEMORY", "POOL_CYCLES", "RELEASE_CYCLES", "STORE_TO_BUS",
]

#: From a read's address on the bus to its first beat, and from a write's last beat to its response, unless said
#: otherwise: an assumption about the memory.
MEMORY = 40

#: From a beat on the bus until the load engine's writer, or the decoder, can take it.
LOAD_ARRIVAL = ReadEngineTiming.DATA_LATENCY + BufferedFifoTiming.LATENCY
FETCH_ARRIVAL = ReadEngineTiming.DATA_LATENCY + ShallowFifoTiming.LATENCY

#: From an issue of the compute engine until its entries are read.
ISSUE_TO_DATA = TileSequencerTiming.LATENCY + InputBufferTiming.LATENCY
#: From the issue of a window's last tap until its result can be taken.
POOL_CYCLES = ISSUE_TO_DATA + PoolUnitTiming.LATENCY

#: From a pixel's issue until the channel parameters' registers are free again.
RELEASE_CYCLES = RequantizerTiming.RELEASE + ChannelParametersTiming.RELEASE_CYCLES
#: From a beat's leaving the requantizer until the bus: store buffer, write buffer.
STORE_TO_BUS = 2 * FifoTiming.LATENCY
