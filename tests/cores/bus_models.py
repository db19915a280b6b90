"""What the cores' cocotb benches share: stream ends, AXI monitors and a pipelined AXI memory."""

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import cocotb
from cocotb.clock import Clock
from cocotb.task import Task
from cocotb.triggers import RisingEdge, ValueChange

from tests.bench import produced_streams
from tests.cores.pins import value_of

__all__ = [
    "PipelinedMemory", "burst_crosses_page", "collect", "send", "start", "watch_resolved", "watch_stable",
    "watch_streams",
]

#: Of an AXI memory's ports, those that a `PipelinedMemory` looks at or drives.
_SIGNALS = ("araddr", "arlen", "arvalid", "arready", "rdata", "rresp", "rlast", "rvalid", "rready", "awaddr", "awlen",
            "awvalid", "awready", "wdata", "wstrb", "wlast", "wvalid", "wready", "bresp", "bvalid", "bready")


async def start(dut, **inputs: int) -> None:
    """Start the clock, set ``inputs``, reset for three cycles, and watch the streams that the component produces."""
    cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
    for name, value in inputs.items():
        getattr(dut, name).value = value
    dut.rst.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    await RisingEdge(dut.clk)
    watch_streams(dut)


async def send(dut, name: str, items, *, idle: float = 0.0) -> None:
    """Send payloads (integers) into the component's input stream ``name``, pausing with probability ``idle``."""
    valid, ready, payload = (getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload"))
    for item in items:
        while random.random() < idle:
            valid.value = 0
            await RisingEdge(dut.clk)
        valid.value, payload.value = 1, item
        await RisingEdge(dut.clk)
        while not value_of(ready):
            await RisingEdge(dut.clk)
    valid.value = 0


async def collect(dut, name: str, sink: Callable[[int], None], *, stall: float = 0.0) -> None:
    """For ever: take payloads of the output stream ``name``, refusing with probability ``stall``."""
    valid, ready, payload = (getattr(dut, f"{name}__{part}") for part in ("valid", "ready", "payload"))
    while True:
        willing = random.random() >= stall
        ready.value = willing
        await RisingEdge(dut.clk)
        if willing and value_of(valid):
            sink(value_of(payload))


#: Tasks of the latest `watch_streams`.
_watches: list[Task] = []


def watch_streams(dut) -> None:
    """Hold the streams that the component produces to the stream rule: an offer stands until it is taken.

    A bench that starts anew calls it again, which ends what watched before: two see what one sees.
    """
    while _watches:
        _watches.pop().cancel()
    _watches.extend(cocotb.start_soon(watch_stable(dut, f"{name}__", ("payload",))) for name in produced_streams())


async def watch_stable(dut, prefix: str, names: tuple[str, ...]) -> None:
    """For ever: the rule that a stream or an AXI channel (``prefix`` "axi__aw") keeps valid and ``names`` until it gets
    ready, or the component a reset.
    """
    valid, ready = getattr(dut, f"{prefix}valid"), getattr(dut, f"{prefix}ready")
    signals = [getattr(dut, prefix + name) for name in names]
    waiting = None
    while True:
        await RisingEdge(dut.clk)
        offered, taken = value_of(valid), value_of(ready)
        # What is taken at once need not be looked at.
        now = tuple(value_of(signal) for signal in signals) if offered and (waiting or not taken) else None
        assert waiting is None or now == waiting, f"{prefix}: {names} went from {waiting} to {now} before ready"
        waiting = None if taken or value_of(dut.rst) else now


async def watch_resolved(signal) -> None:
    """For ever: no bit of ``signal`` is X or Z."""
    while True:
        assert signal.value.is_resolvable, f"{signal._name} is {signal.value}"
        await ValueChange(signal)


def burst_crosses_page(address: int, length: int, beat_bytes: int) -> bool:
    """Whether an INCR burst of ``length`` + 1 beats leaves its 4 KiB page."""
    return address // 4096 != (address + (length + 1) * beat_bytes - 1) // 4096


class PipelinedMemory:
    """An AXI memory on ports ``axi__*``, or of another ``prefix``, that answers bursts ``latency`` cycles after their
    address, several at a time.

    ``stall`` is the chance that a channel pauses in a cycle. ``fail(address)`` gives the response of a burst. Bursts
    are noted in ``reads`` and ``writes`` as (address, length); ``strobes`` holds the strobes of every beat written.
    ``beats`` counts data beats and ``last_beat`` is the cycle of the latest.
    """

    def __init__(self, dut, *, beat_bytes: int, memory: bytearray, latency: int = 40, stall: float = 0.0,
                 fail: Callable[[int], int] = lambda address: 0, prefix: str = "axi__"):
        self.axi = SimpleNamespace(**{name: getattr(dut, prefix + name) for name in _SIGNALS
                                      if hasattr(dut, prefix + name)})
        self.dut, self.beat_bytes, self.memory = dut, beat_bytes, memory
        self.latency, self.stall, self.fail = latency, stall, fail
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.strobes: list[int] = []
        self.cycle = self.beats = 0
        self.first_beat = self.last_beat = 0

    def pausing(self) -> bool:
        return random.random() < self.stall

    def _note_beat(self) -> None:
        self.first_beat = self.cycle if not self.beats else self.first_beat
        self.last_beat = self.cycle
        self.beats += 1

    async def serve_reads(self) -> None:
        dut, axi, pending = self.dut, self.axi, deque()     # beats to come: (earliest cycle, address, last, response)
        axi.arready.value = axi.rvalid.value = 0
        while True:
            ready = not self.pausing()
            axi.arready.value = ready
            offered = pending and pending[0][0] <= self.cycle and not self.pausing()
            if offered:
                _, address, last, response = pending.popleft()
                axi.rdata.value = int.from_bytes(self.memory[address:address + self.beat_bytes], "little")
                axi.rlast.value, axi.rresp.value = last, response
            axi.rvalid.value = bool(offered)
            await RisingEdge(dut.clk)
            self.cycle += 1
            if offered:
                assert value_of(axi.rready), "read data must always be taken"
                self._note_beat()
            if ready and value_of(axi.arvalid):
                address, length = value_of(axi.araddr), value_of(axi.arlen)
                assert not burst_crosses_page(address, length, self.beat_bytes), (address, length)
                self.reads.append((address, length))
                response = self.fail(address)
                pending.extend((self.cycle + self.latency, address + beat * self.beat_bytes, beat == length, response)
                               for beat in range(length + 1))

    async def serve_writes(self) -> None:
        """Takes beats before their addresses too, as AXI allows."""
        dut, axi, addresses, beats, answers = self.dut, self.axi, deque(), deque(), deque()
        axi.awready.value = axi.wready.value = axi.bvalid.value = 0
        sent = 0
        while True:
            take_address, take_beat = not self.pausing(), not self.pausing()
            axi.awready.value, axi.wready.value = take_address, take_beat
            answer = answers and answers[0][0] <= self.cycle and not self.pausing()
            if answer:
                axi.bresp.value = answers.popleft()[1]
            axi.bvalid.value = bool(answer)
            await RisingEdge(dut.clk)
            self.cycle += 1
            if answer:
                assert value_of(axi.bready), "responses must always be taken"
            if take_address and value_of(axi.awvalid):
                address, length = value_of(axi.awaddr), value_of(axi.awlen)
                assert not burst_crosses_page(address, length, self.beat_bytes), (address, length)
                self.writes.append((address, length))
                addresses.append((address, length))
            if take_beat and value_of(axi.wvalid):
                beats.append((value_of(axi.wdata), value_of(axi.wstrb), value_of(axi.wlast)))
                self.strobes.append(beats[-1][1])
                self._note_beat()
            while addresses and beats:
                address, length = addresses[0]
                word, strobe, last = beats.popleft()
                assert last == (sent == length), f"WLAST at beat {sent} of a burst of {length + 1}"
                for byte in range(self.beat_bytes):
                    if strobe >> byte & 1:
                        self.memory[address + sent * self.beat_bytes + byte] = word >> 8 * byte & 255
                sent += 1
                if last:
                    addresses.popleft()
                    answers.append((self.cycle + self.latency, self.fail(address)))
                    sent = 0
