"""What stands around a load engine, cycle by cycle: a slow memory, sinks that stall, tokens; and what must come."""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.axi import AxiResponse
from cores.arch.instruction_layout import QueuedInstruction
from cores.arch.registers import ENGINE_STATES
from cores.bus.axi import read_request_layout
from cores.config import NpuConfig
from cores.load.gather.byte_window import ByteWindow
from cores.load.gather.run_gatherer import RunGatherer
from tests.bench import bench_parameters
from tests.cores.bus_models import watch_streams
from tests.cores.load_stimulus import LoadStimulus
from tests.cores.pins import Pins, reported

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
REQUEST = read_request_layout(CONFIG)
DATA_ADDRESS = 0x3_4000_0000
#: Beats that the engine has room for.
ROOM = 512
#: Beats that may be taken and not yet written.
IN_GATHERER = (ByteWindow.SLOTS + RunGatherer.LATENCY) * CONFIG.gather
RINGS = ("weights", "side")
#: Cycles from an entry's setting out until its error is reported: it is placed, the engine tells.
REPORT_CYCLES = 2


def _beat(entry: int) -> int:
    """An entry of the input buffer, whose activations may be wider than the int8 they are, as it came from memory."""
    extra, beat = CONFIG.activation_bits - 8, 0
    for lane in range(CONFIG.ic_lanes):
        value = entry >> lane * CONFIG.activation_bits & (1 << CONFIG.activation_bits) - 1
        assert value >> 8 == (value >> 7 & 1) * ((1 << extra) - 1), f"lane {lane} is not an int8: {value:x}"
        beat |= (value & 255) << 8 * lane
    return beat


class Environment(Pins):
    """All around the engine, a cycle at a time: inputs change at the rising edge, outputs are read at the falling.

    The memory has random beats; it answers a request ``latency`` (lowest, highest) cycles after it at the soonest, in
    order, and never waits for the engine. ``responses`` are its answers for single beats. ``stalls``: how often each
    side stands still; one that is not named, as often as ``""`` says.
    """

    def __init__(self, dut, stimulus: LoadStimulus, *, latency: tuple[int, int] = (1, 60), **stalls: float):
        self.dut, self.stimulus, self.latency, self.stalls = dut, stimulus, latency, stalls
        self.queue = deque(QueuedInstruction.const({"index": index, "word": word}).as_bits()
                           for index, word in enumerate(stimulus.instructions))
        self.taken = 0                                      # instructions
        self.requests = deque(stimulus.requests)            # still to be asked for
        self.memory: dict[int, int] = {}
        self.responses: dict[int, AxiResponse] = {}
        self.answers: deque[tuple[int, int, bool]] = deque()    # (earliest cycle, beat, last of its request)
        self.offered = False
        self.held: dict[str, int | None] = dict.fromkeys(("request", *RINGS))
        self.given = {"compute": 0, "store": 0}             # tokens
        self.used = {"compute": 0, "store": 0}
        self.stores_of = np.cumsum([load.stores for load in stimulus.loads])
        self.waits_of = np.cumsum([load.wait_compute for load in stimulus.loads])
        self.posts_due = [load.end for load in stimulus.loads if load.post_compute]
        # Writes leave the gatherer cycles after their beats: what goes to a ring next may be there first.
        self.due = {port: deque(delivery for delivery in stimulus.deliveries if delivery.port == port)
                    for port in ("write", *RINGS)}
        self.posts = self.asked = self.consumed = self.delivered = self.cycle = 0
        self.halt = False
        self.errors: list[tuple[int, int]] = []
        self.error_cycles: list[int] = []
        self.states: list[str] = []
        self.driven: dict[str, int] = {}
        self.delivery_cycles: list[int] = []

    async def reset(self, *, region_beats: int | None = None) -> None:
        """``region_beats``: beats of the data region; just what is needed if None."""
        dut = self.dut
        for port in (dut.queue__valid, dut.request__ready, dut.weights__ready, dut.side__ready, dut.halt, dut.response,
                     dut.compute_level, dut.store_level):
            port.value = 0
        dut.data_address.value = DATA_ADDRESS
        dut.data_beats.value = self.stimulus.region_beats if region_beats is None else region_beats
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0

    def moves(self, name: str) -> bool:
        return random.random() >= self.stalls.get(name, self.stalls.get("", 0.0))

    def beat(self, number: int) -> int:
        if number not in self.memory:
            self.memory[number] = random.getrandbits(CONFIG.beat_bits)
        return self.memory[number]

    def _answer(self) -> int:
        """Bits of the read data port."""
        if not self.answers or self.answers[0][0] > self.cycle or not self.moves("memory"):
            return self.driven.get("response", 0) & ~1
        _, number, last = self.answers.popleft()
        response = self.responses.get(number, AxiResponse.OKAY)
        return 1 | self.beat(number) << 1 | last << CONFIG.beat_bits + 1 | response << CONFIG.beat_bits + 2

    def _give_tokens(self) -> None:
        """One compute token or a few store tokens in a cycle, no more than the loads take."""
        if self.given["compute"] < (self.waits_of[-1] if len(self.waits_of) else 0) and self.moves("compute"):
            self.given["compute"] += 1
        if len(self.stores_of) and self.moves("store"):
            self.given["store"] = min(int(self.stores_of[-1]), self.given["store"] + random.randint(1, 20))

    def level(self, kind: str) -> int:
        return self.given[kind] - self.used[kind]

    def _deliver(self, port: str, place: tuple[int, int] | None, value: int) -> None:
        assert self.delivered < len(self.stimulus.deliveries), f"a beat too many to {port}"
        wanted = self.due[port].popleft() if CONFIG.gather else self.stimulus.deliveries[self.delivered]
        text = f"beat {self.delivered}, for load {wanted.load}"
        assert (port, place) == (wanted.port, wanted.place), f"{text}: to {port} {place}, not {wanted}"
        expected = wanted.padding if wanted.source is None else self.memory.get(wanted.source)
        assert value == expected, f"{text} from {wanted.source}: {value:x}, not {expected}"
        assert self.used["compute"] >= self.waits_of[wanted.load], f"{text}: without its token"
        self.delivered += 1
        self.consumed += wanted.source is not None
        self.delivery_cycles.append(self.cycle)

    def _ask(self, payload: int) -> None:
        request = REQUEST.from_bits(payload)
        assert self.requests, "a request too many"
        wanted = self.requests.popleft()
        got = (request.address, request.length + 1)
        assert got == (DATA_ADDRESS + wanted.offset * CONFIG.beat_bytes, wanted.beats), f"{got} instead of {wanted}"
        assert self.used["store"] >= self.stores_of[wanted.load], f"{wanted} without its tokens"
        self.asked += wanted.beats
        assert self.asked - self.consumed <= ROOM + IN_GATHERER, "data is asked for that there is no room for"
        soonest = self.cycle + random.randint(*self.latency)
        self.answers.extend((soonest, wanted.offset + beat, beat == wanted.beats - 1) for beat in range(wanted.beats))

    def _offer(self, name: str) -> int | None:
        """Payload that an output stream of the engine offers; it must not change before it is taken."""
        payload = self.sample(f"{name}__payload") if self.sample(f"{name}__valid") else None
        assert self.held[name] in (None, payload), f"{name} changes its offer"
        self.held[name] = payload
        return payload

    async def step(self) -> None:
        """One cycle."""
        # A stream that has offered a payload keeps it until it is taken.
        self.offered = self.offered or (bool(self.queue) and self.moves("queue"))
        self.drive("queue__valid", int(self.offered))
        if self.offered:
            self.drive("queue__payload", self.queue[0])
        ready = {name: self.moves(name) for name in self.held}
        for name, moves in ready.items():
            self.drive(f"{name}__ready", int(moves))
        self.drive("response", self._answer())
        self._give_tokens()
        for kind in self.given:
            self.drive(f"{kind}_level", self.level(kind))
        self.drive("halt", int(self.halt))

        await FallingEdge(self.dut.clk)
        if self.sample("idle"):
            # All that was taken before this cycle.
            done = [load for load in self.stimulus.loads if load.index < self.taken]
            assert not done or self.delivered >= done[-1].end, "idle before all is delivered"
        if self.offered and self.sample("queue__ready"):
            self.queue.popleft()
            self.taken += 1
            self.offered = False
        for kind in self.used:
            take = self.sample(f"{kind}_take")
            assert take <= self.level(kind), f"a {kind} token is taken that is not there"
            self.used[kind] += take
        enable = self.sample("write__enable")
        if enable:
            assert enable.bit_count() == 1, "a beat is written to more than one bank"
            bank = enable.bit_length() - 1
            entry = self.sample("write__data") >> bank % CONFIG.write_lanes * CONFIG.entry_bits
            self._deliver("write", (bank, self.sample("write__address")), _beat(entry & (1 << CONFIG.entry_bits) - 1))
        # What is written was taken a cycle ago and its room is free again; what goes to a ring leaves only now.
        payload = self._offer("request")
        if payload is not None and ready["request"]:
            self.held["request"] = None
            self._ask(payload)
        for name in RINGS:
            payload = self._offer(name)
            if payload is not None and ready[name]:
                self.held[name] = None
                self._deliver(name, None, payload)
        if self.sample("post_compute"):
            assert self.posts < len(self.posts_due), "a token is posted too many"
            assert self.delivered >= self.posts_due[self.posts], "a token is posted before the last write"
            self.posts += 1
        if error := reported(self.sample("error")):
            self.errors.append(error)
            self.error_cycles.append(self.cycle)
        self.states.append(ENGINE_STATES["load"][self.sample("state")])
        self.cycle += 1
        await RisingEdge(self.dut.clk)

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    async def run(self) -> None:
        """Until all is delivered. Raises AssertionError when nothing moves any more."""
        moved, since = None, 0
        while self.queue or not self.sample("idle") or self.delivered < len(self.stimulus.deliveries):
            await self.step()
            now = len(self.queue), self.delivered, self.asked, len(self.answers)
            moved, since = now, 0 if now != moved else since + 1
            assert since < 500, f"stuck in {self.states[-1]} after {self.delivered} beats, with {self.errors}"
        await self.steps(3)

    def check(self) -> None:
        """All is asked for and delivered (each was compared when it came), all tokens are taken and posted."""
        assert not self.requests and self.delivered == len(self.stimulus.deliveries)
        assert self.used == {"compute": sum(load.wait_compute for load in self.stimulus.loads),
                             "store": sum(load.stores for load in self.stimulus.loads)}
        assert self.posts == len(self.posts_due) and not self.errors
        assert self.states[-1] == "idle"


def random_program(rng: np.random.Generator, loads: int) -> LoadStimulus:
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.geometry()
    while len(stimulus.loads) < loads:
        flags = {"wait_compute": int(rng.random() < 0.4), "post_compute": int(rng.random() < 0.5),
                 "stores": int(rng.choice([0, 0, 1, rng.integers(1, 256)]))}
        long = rng.random() < 0.1
        kind = rng.integers(4)
        if kind == 0:
            stimulus.weights(int(rng.integers(250, 700) if long else rng.integers(1, 40)), **flags)
        elif kind == 1:
            cols = int(rng.integers(250, 300) if long else rng.integers(1, 20))
            stimulus.side(cols=cols, rows=int(rng.integers(1, 4)), **flags)
        else:
            if rng.random() < 0.6:
                stimulus.geometry(cols=int(rng.integers(250, 300)) if long else None)
            long = stimulus.fields["cols"] >= 250
            stimulus.box(blocks=1 if long else None, rows=2 if long else None, pads=(1, 0) if long else None, **flags)
    return stimulus


def begin(dut) -> np.random.Generator:
    cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
    watch_streams(dut)
    return np.random.default_rng(random.getrandbits(32))


async def start(dut, stimulus: LoadStimulus, *, region_beats: int | None = None, **options) -> Environment:
    environment = Environment(dut, stimulus, **options)
    await environment.reset(region_beats=region_beats)
    return environment
