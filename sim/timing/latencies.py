"""Latencies in cycles that the time model puts together from those of the components, and what is no component's."""

from cores.buffers.input_buffer import InputBuffer
from cores.bus.read_engine import ReadEngine
from cores.compute.pool_unit import PoolUnit
from cores.compute.tile_sequencer import TileSequencer
from cores.lib.fifo import BufferedFifo, Fifo, ShallowFifo
from cores.store.channel_parameters import ChannelParameters
from cores.store.requantizer import Requantizer

__all__ = [
    "FETCH_ARRIVAL", "ISSUE_TO_DATA", "LOAD_ARRIVAL", "MEMORY", "POOL_CYCLES", "RELEASE_CYCLES", "STORE_TO_BUS",
]

#: From a read's address on the bus to its first beat, and from a write's last beat to its response, unless said
#: otherwise: an assumption about the memory.
MEMORY = 40

#: From a beat on the bus until the load engine's writer, or the decoder, can take it.
LOAD_ARRIVAL = ReadEngine.DATA_LATENCY + BufferedFifo.LATENCY
FETCH_ARRIVAL = ReadEngine.DATA_LATENCY + ShallowFifo.LATENCY

#: From an issue of the compute engine until its entries are read.
ISSUE_TO_DATA = TileSequencer.LATENCY + InputBuffer.LATENCY
#: From the issue of a window's last tap until its result can be taken.
POOL_CYCLES = ISSUE_TO_DATA + PoolUnit.LATENCY

#: From a pixel's issue until the channel parameters' registers are free again.
RELEASE_CYCLES = Requantizer.RELEASE + ChannelParameters.RELEASE_CYCLES
#: From a beat's leaving the requantizer until the bus: store buffer, write buffer.
STORE_TO_BUS = 2 * Fifo.LATENCY
