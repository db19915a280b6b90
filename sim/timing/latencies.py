"""Fixed latencies of the hardware in cycles: every one says which registers it counts."""

__all__ = [
    "AR_CYCLES", "AW_CYCLES", "BUFFERED_FIFO", "DISPATCH_CYCLES", "END_CYCLES", "FETCH_ARRIVAL", "FIFO",
    "FIRST_REQUEST", "GATHER_CYCLES", "LOAD_ARRIVAL", "POOL_CYCLES", "POOL_SLOTS", "RELEASE_CYCLES", "ROW_CYCLES",
    "RUN_CYCLES", "START_CYCLES", "STORE_TO_BUS", "TOKEN", "WINDOW_CYCLES",
]

#: From a write into a FIFO until it can be read; and of those with an output register (rings, load data).
FIFO = 1
BUFFERED_FIFO = 2
#: From the cycle after an event (posts are registered) until the taker sees the counter's new level.
TOKEN = 2

#: START: reset, fetch_start, and the cycle in which the first request is offered.
START_CYCLES = 2
#: An instruction is first looked at, then dispatched; on a 64-bit bus its halves are joined before that.
DISPATCH_CYCLES = 2
#: SYNC and END let the machine be calm for three cycles.
END_CYCLES = 3

#: A read request: burst splitter, then the address register.
AR_CYCLES = 2
#: From a beat on the bus until the load engine's writer, or the decoder, can take it: a register, then the FIFO.
LOAD_ARRIVAL = 1 + BUFFERED_FIFO
FETCH_ARRIVAL = 1 + FIFO
#: From accepting a load instruction to its first request (range check between), and from a row's last request to the
#: next row's first.
FIRST_REQUEST = 2
ROW_CYCLES = 2

#: From taking a LOAD_GATHER to the last cycle in which its settings are being made.
GATHER_CYCLES = 1

#: From the last tap of a window until its result can be taken: address, memory, tap, sum, FIFO.
POOL_CYCLES = 5
#: Windows that may be begun and not taken.
POOL_SLOTS = 11

#: From the last issue of a COMPUTE of windows until one of something else can become the running one, or the other way
#: round: besides ``window_reads``.
WINDOW_CYCLES = 2

#: From a pixel's issue until the channel parameters' registers are free again.
RELEASE_CYCLES = 5
#: From offering one run of a store to offering the next; and from there to its address.
RUN_CYCLES = 3
AW_CYCLES = 2
#: From a beat's leaving the requantizer until the bus: store buffer, write buffer.
STORE_TO_BUS = 2 * FIFO
