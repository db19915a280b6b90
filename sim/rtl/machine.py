"""One simulated NPU: its clock, its memory, its register port, its trace."""

import ctypes
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from pathlib import Path

import numpy as np

from cores.arch.axi import AxiResponse
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.errors import NpugenError

from ..timing.dram import DramTiming
from ..timing.latencies import MEMORY
from .build import build_library
from .events import Events
from .observed import observed_verilog, watched_words

__all__ = [
    "Bus", "BusFault", "ENGINES", "ProtocolError", "RtlMachine", "RunStatus", "Standing", "Stats", "Trace",
    "WriteOrder",
]

#: First axis of the trace arrays.
ENGINES = tuple(ENGINE_STATES)
#: Second axis of the trace's histogram: a state's code (cores/arch/registers.py), padded to the engine with the most.
_TRACE_STATES = max(map(len, ENGINE_STATES.values()))
_NEVER = (1 << 64) - 1


class ProtocolError(NpugenError):
    """The hardware broke a rule of AXI or of its trace ports; the message names the rule and the cycle."""

    code = "bus-protocol"


class RunStatus(IntEnum):
    LIMIT = 0
    INTERRUPT = 1
    FAILED = 2


class WriteOrder(IntEnum):
    """What a memory may wait for before it takes write addresses and data."""

    ANY = 0
    ADDRESS_FIRST = 1
    DATA_FIRST = 2


@dataclass(frozen=True, kw_only=True)
class Bus:
    """Behaviour of the memory.

    ``latency``: cycles from an accepted address (writes: the last beat) to the first answer. ``bandwidth``: beats a
    cycle of each direction. ``stall_probability``: how often a channel pauses; latencies then vary up to twofold.
    ``dram``: a memory whose rows, refreshes and shared data pins say when bursts are answered, in place of the latency.

    Raises ValueError for a value out of range.
    """

    latency: int = MEMORY
    bandwidth: float = 1.0
    stall_probability: float = 0.0
    write_order: WriteOrder = WriteOrder.ANY
    dram: DramTiming | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.latency <= 100_000:
            raise ValueError(f"latency must be in 1..100000 cycles, not {self.latency!r}")
        if not 0 < self.bandwidth <= 1:
            raise ValueError(f"bandwidth must be above 0 and at most 1 beat a cycle, not {self.bandwidth!r}")
        if not 0 <= self.stall_probability <= 0.99:
            raise ValueError(f"stall_probability must be in 0..0.99, not {self.stall_probability!r}")


@dataclass(frozen=True, kw_only=True)
class BusFault:
    """An error answer to bursts that touch [low, high); with ``burst``, counted from 0, to that one only."""

    write: bool = False
    response: AxiResponse = AxiResponse.SLVERR
    burst: int | None = None
    low: int = 0
    high: int = 1 << 63


@dataclass(frozen=True, eq=False)
class Trace:
    """What each engine did, cycle by cycle, by instruction. Cycles count from the START write.

    ``counts``: uint32 (engine, state, instruction), cycles spent there; state 0 (idle) is not counted.
    ``first``, ``last``: int64 (engine, instruction), the first and last cycle with it in hand; -1: never.
    """

    counts: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def empty(cls, instructions: int) -> "Trace":
        shape = (len(ENGINES), instructions)
        counts = np.zeros((len(ENGINES), _TRACE_STATES, instructions), np.uint32)
        return cls(counts, np.full(shape, -1, np.int64), np.full(shape, -1, np.int64))


_STATS = (
    "cycle", "started", "finished", "in_flight",
    "read_beats", "write_beats", "read_bursts", "write_bursts", "read_waits", "stray_writes",
)


class _CDram(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_int64) for field in fields(DramTiming)]


class _CStats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _STATS]


@dataclass(frozen=True)
class Stats:
    """``cycles``: from the START write to the interrupt, None before both. The others count since `RtlMachine.begin`.

    ``in_flight``: bursts the memory has not finished. ``read_waits``: cycles in which read data was not taken.
    ``stray_writes``: bursts with a strobe outside the writable regions.
    """

    cycle: int
    cycles: int | None
    in_flight: int
    read_beats: int
    write_beats: int
    read_bursts: int
    write_bursts: int
    read_waits: int
    stray_writes: int


class _CStanding(ctypes.Structure):
    _fields_ = [
        ("state", ctypes.c_uint32 * len(ENGINES)), ("index", ctypes.c_uint32 * len(ENGINES)),
        ("fetch_index", ctypes.c_uint32), ("fetch_waiting", ctypes.c_uint32), ("stores", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class Standing:
    """The machine in the cycle before it was stopped, for an error, a TIMEOUT or an ABORT.

    ``engines``: engine -> its state and the instruction that it is for. ``fetch_index``: the instruction to be
    dispatched next; ``fetch_waiting``: its queue is full. ``stores``: tokens of the store queue that the load queue
    could take.
    """

    engines: dict[str, tuple[str, int]]
    fetch_index: int
    fetch_waiting: bool
    stores: int


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    c = ctypes
    pointer, u8, u32, i64 = c.c_void_p, c.POINTER(c.c_uint8), c.POINTER(c.c_uint32), c.POINTER(c.c_int64)
    prototypes = {
        "npu_new": (pointer, c.c_uint64),
        "npu_delete": (None, pointer),
        "npu_reset": (None, pointer, c.c_uint),
        "npu_set_bus": (None, pointer, c.c_uint, c.c_double, c.c_double, c.c_int),
        "npu_set_dram": (None, pointer, c.POINTER(_CDram)),
        "npu_clear_regions": (None, pointer),
        "npu_add_region": (None, pointer, c.c_uint64, c.c_uint64, u8, c.c_uint64),
        "npu_clear_faults": (None, pointer),
        "npu_add_fault": (None, pointer, c.c_int, c.c_int64, c.c_uint64, c.c_uint64, c.c_int),
        "npu_clear_windows": (None, pointer),
        "npu_add_window": (None, pointer, c.c_int, c.c_uint64, c.c_uint64),
        "npu_access": (c.c_int64, pointer, c.c_int, c.c_uint, c.c_uint32),
        "npu_trace": (None, pointer, c.c_uint64, u32, i64, i64),
        "npu_run": (c.c_int, pointer, c.c_uint64),
        "npu_stats": (None, pointer, c.POINTER(_CStats)),
        "npu_standing": (None, pointer, c.POINTER(_CStanding)),
        "npu_clear_counts": (None, pointer),
        "npu_watched": (u32, pointer, c.POINTER(c.c_uint64)),
        "npu_failure": (c.c_char_p, pointer),
        "npu_waves": (c.c_int, pointer, c.c_char_p),
    }
    for name, (result, *arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class RtlMachine:
    """The Verilog of ``config`` in Verilator, with a memory of NumPy arrays on its bus.

    ``verilog`` replaces the generated text. A seed makes the random stalls the same again. ``waves`` names a VCD file
    to write, of the top module alone with ``top_only``; NPUGEN_WAVES=1 writes ``npu.<process>.vcd``, of all signals.
    With ``observed`` it keeps what the machine writes inside of itself, which `events` has; the text is
    `observed_verilog`'s then. Use it as a context manager or call `close`.

    Raises ToolError when the simulation cannot be built.
    """

    def __init__(self, config: NpuConfig, *, bus: Bus | None = None, seed: int = 0, verilog: str | None = None,
                 waves: Path | None = None, observed: bool = False, top_only: bool = False) -> None:
        self.config = config
        self._layout = None
        if observed:
            written, self._layout = observed_verilog(config)
            verilog = verilog or written
        if waves is None and os.environ.get("NPUGEN_WAVES", "0") not in ("", "0"):
            waves = Path(f"npu.{os.getpid()}.vcd")
        words = watched_words(self._layout) if self._layout is not None else 0
        self._library = _load(build_library(
            config, verilog=verilog, waves="none" if waves is None else "top" if top_only else "all",
            watch_words=words))
        self._handle = self._library.npu_new(seed)
        self._arrays: list[np.ndarray] = []  # the library works in them
        if waves is not None and not self._library.npu_waves(self._handle, str(waves).encode()):
            raise OSError(f"{waves}: the waveform file cannot be written")
        self.set_bus(bus or Bus())

    def __enter__(self) -> "RtlMachine":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if getattr(self, "_handle", None):
            self._library.npu_delete(self._handle)
            self._handle = None

    # -- memory --------------------------------------------------------------------------------------------------

    def set_bus(self, bus: Bus) -> None:
        self.bus = bus
        self._library.npu_set_bus(self._handle, bus.latency, bus.bandwidth, bus.stall_probability, int(bus.write_order))
        dram = None if bus.dram is None else _CDram(*(int(value) for value in asdict(bus.dram).values()))
        self._library.npu_set_dram(self._handle, None if dram is None else ctypes.byref(dram))

    def map_memory(self, regions: Mapping[int, np.ndarray], *, writable_from: Mapping[int, int] | None = None) -> None:
        """Put uint8 arrays at bus addresses, in place of all before; the machine works on the arrays themselves.

        ``writable_from``: the first byte of an array that may be written, 0 where not given.

        Raises ValueError for another type, more dimensions, or an array that is not contiguous or not writeable.
        """
        self._library.npu_clear_regions(self._handle)
        self._arrays = list(regions.values())
        for base, array in regions.items():
            if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(f"memory at {base:#x} must be a flat, contiguous uint8 array, not {array.dtype}")
            first = (writable_from or {}).get(base, 0)
            if first < array.size and not array.flags.writeable:
                raise ValueError(f"memory at {base:#x} is an array that cannot be written")
            data = array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
            self._library.npu_add_region(self._handle, base, array.size, data, first)

    def set_faults(self, *faults: BusFault) -> None:
        """Errors to answer with, in place of all before. Bursts count from the last `begin`."""
        self._library.npu_clear_faults(self._handle)
        for fault in faults:
            burst = -1 if fault.burst is None else fault.burst
            self._library.npu_add_fault(self._handle, fault.write, burst, fault.low, fault.high, int(fault.response))

    def set_windows(self, *, read: Collection[tuple[int, int]] = (), write: Collection[tuple[int, int]] = ()) -> None:
        """First and last byte of all memory that bursts may ask for, in place of all before; none: all of it may be.

        A burst that is offered, taken or not, and is not inside of one of them breaks a rule (`ProtocolError`).
        """
        self._library.npu_clear_windows(self._handle)
        for is_write, windows in enumerate((read, write)):
            for first, last in windows:
                self._library.npu_add_window(self._handle, is_write, first, last)

    # -- registers (RegisterPort of driver.py) ----------------------------------------------------------------------

    def read32(self, address: int) -> int:
        """Raises ProtocolError when the register port does not answer or answers with an error."""
        return self._access(False, address, 0)

    def write32(self, address: int, value: int) -> None:
        self._access(True, address, value)

    def _access(self, write: bool, address: int, value: int) -> int:
        answer = self._library.npu_access(self._handle, write, address, value)
        self._check()
        what = f"{'write to' if write else 'read of'} register {address:#x}"
        if answer < 0:
            raise ProtocolError(f"{what} was not answered")
        if answer >> 32:
            raise ProtocolError(f"{what} was answered with {AxiResponse(answer >> 32).name}")
        return answer & 0xFFFFFFFF

    # -- time ----------------------------------------------------------------------------------------------------

    def reset(self, cycles: int = 4) -> None:
        """Hold reset; the memory forgets what was in flight and what has failed."""
        self._library.npu_reset(self._handle, cycles)

    def begin(self, instructions: int = 0) -> Trace:
        """Clear the counts; the next START fills the trace returned, of a program of so many instructions."""
        trace = Trace.empty(instructions)
        self._library.npu_clear_counts(self._handle)
        self._trace = trace  # the library writes into its arrays
        self._library.npu_trace(
            self._handle, instructions, trace.counts.ctypes.data_as(ctypes.POINTER(ctypes.c_uint32)),
            *(a.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)) for a in (trace.first, trace.last)),
        )
        return trace

    def run(self, cycles: int) -> RunStatus:
        """Run until the interrupt or for so many cycles. Raises ProtocolError."""
        status = RunStatus(self._library.npu_run(self._handle, cycles))
        self._check()
        return status

    @property
    def stats(self) -> Stats:
        raw = _CStats()
        self._library.npu_stats(self._handle, ctypes.byref(raw))
        values = {name: getattr(raw, name) for name in _STATS}
        started, finished = values.pop("started"), values.pop("finished")
        return Stats(cycles=None if _NEVER in (started, finished) else finished - started, **values)

    @property
    def events(self) -> Events:
        """What the machine has written inside of itself since `begin`. Raises ValueError for one not observed."""
        if self._layout is None:
            raise ValueError("the machine is not observed")
        count = ctypes.c_uint64()
        data = self._library.npu_watched(self._handle, ctypes.byref(count))
        words = np.ctypeslib.as_array(data, (count.value,)) if count.value else np.zeros(0, np.uint32)
        records = words.reshape(-1, 2 + watched_words(self._layout)).copy()
        cycles = records[:, 0].astype(np.int64) + (records[:, 1].astype(np.int64) << 32)
        return Events(self._layout, cycles, records[:, 2:])

    @property
    def standing(self) -> Standing:
        raw = _CStanding()
        self._library.npu_standing(self._handle, ctypes.byref(raw))
        engines = {engine: (states[state], index) for (engine, states), state, index
                   in zip(ENGINE_STATES.items(), raw.state, raw.index, strict=True)}
        return Standing(engines, raw.fetch_index, bool(raw.fetch_waiting), raw.stores)

    def _check(self) -> None:
        failure = self._library.npu_failure(self._handle).decode()
        if failure:
            raise ProtocolError(failure)
