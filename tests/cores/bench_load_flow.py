"""Load engine, cycle by cycle: requests, order, room for data, tokens, states and rate; see also bench_load_engine."""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction_layout import QueueEntry
from cores.arch.registers import ENGINE_STATES
from cores.buffers.input_buffer import write_latency
from cores.bus.axi import AxiResponse, ErrorReport, read_request_layout
from cores.config import NpuConfig
from cores.load.gather.byte_window import ByteWindow
from cores.load.gather.run_gatherer import RunGatherer
from tests.bench import bench_parameters
from tests.cores.bus_models import watch_streams
from tests.cores.load_stimulus import LoadStimulus
from tests.cores.pins import Pins

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
        self.queue = deque(QueueEntry.const({"index": index, "word": word}).as_bits()
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
        # Writes leave the gatherer cycles behind their beats: what goes to a ring next may be there first.
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
        error = ErrorReport.from_bits(self.sample("error"))
        if error.valid:
            self.errors.append((error.code, error.index))
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


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.3, 0.7])
async def random_loads(dut, stalls):
    """Programs of all kinds, fast and slow surroundings."""
    environment = await start(dut, random_program(begin(dut), 20), **{"": stalls})
    await environment.run()
    environment.check()


@cocotb.test()
async def one_side_slow(dut):
    """Each side in turn is the slow one: a source runs dry, or a sink stands still."""
    rng = begin(dut)
    for slow in ("queue", "request", "memory", "weights", "side", "compute", "store"):
        environment = await start(dut, random_program(rng, 6), **{slow: 0.85})
        await environment.run()
        environment.check()


@cocotb.test()
async def padding_alone(dut):
    """Boxes without data rows, of one row and of more, padded above, below or both; nothing is asked for them."""
    rng = begin(dut)
    stimulus = LoadStimulus(CONFIG, rng)
    for pads in ((1, 0), (0, 1), (3, 0), (0, 3), (2, 2)):
        for blocks in (1, 2):
            stimulus.geometry(cols=int(rng.integers(1, 6)))
            stimulus.box(blocks=blocks, rows=0, pads=pads, post_compute=1)
    stimulus.box(rows=1, blocks=1, pads=(0, 0), post_compute=1)
    environment = await start(dut, stimulus)
    await environment.run()
    environment.check()


@cocotb.test()
async def full_rate(dut):
    """A beat a cycle, also from one load to the next of its kind, as long as the memory keeps up."""
    rng = begin(dut)
    long = min(700, CONFIG.banks * CONFIG.input_depth // 2)
    programs = {}
    boxes = (long, (0, 0), 3, 1), (long // 2, (3, 2), 3, 2), (2, (0, 0), 5, 4), (1, (1, 1), 5, 4)
    for cols, pads, rows, blocks in boxes:
        stimulus = LoadStimulus(CONFIG, rng)
        stimulus.geometry(cols=cols, pads=pads, stride=1)
        for number in range(3):
            stimulus.box(blocks=blocks, rows=rows, pads=(1, 1) if any(pads) else (0, 0), wait_compute=int(not number))
        programs[f"boxes of {cols} columns"] = stimulus
    for name in RINGS:
        stimulus = LoadStimulus(CONFIG, rng)
        for number in range(3):
            flags = {"wait_compute": int(not number)}
            if name == "weights":
                stimulus.weights(700, **flags)
            else:
                stimulus.side(cols=300, rows=2, **flags)
        programs[name] = stimulus
    for name, stimulus in programs.items():
        environment = await start(dut, stimulus, latency=(40, 40), compute=1.0)
        await environment.steps(120)    # the data is on its way before the token
        environment.stalls["compute"] = 0.0
        await environment.run()
        environment.check()
        gaps = np.diff(environment.delivery_cycles)
        cocotb.log.info("%s: %d beats in %d cycles", name, len(gaps) + 1, gaps.sum() + 1)
        assert (gaps == 1).all(), (name, gaps)


@cocotb.test()
async def room(dut):
    """With its sink standing still the engine asks for what its FIFO holds, all of it and no beat more."""
    rng = begin(dut)
    for sink, state in (("weights", "wait_ring"), ("side", "wait_ring"), ("compute", "wait_compute")):
        stimulus = LoadStimulus(CONFIG, rng)
        if sink == "weights":
            stimulus.weights(1500)
        elif sink == "side":
            stimulus.side(cols=128, rows=10)
        else:
            stimulus.geometry(cols=64)
            stimulus.box(blocks=4, rows=5, pads=(1, 1), wait_compute=1)
        environment = await start(dut, stimulus, latency=(1, 20), **{sink: 1.0})
        await environment.steps(700)
        assert environment.asked == ROOM and not environment.delivered and not environment.answers
        assert environment.states[-1] == state
        assert environment.sample("index") == stimulus.loads[0].index
        environment.stalls[sink] = 0.0
        await environment.run()
        environment.check()


@cocotb.test()
async def tokens(dut):
    """Store tokens are taken in one go when all are there; nothing of the load or behind it is asked for before."""
    rng = begin(dut)
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.weights(5)
    stimulus.weights(3, stores=200, post_compute=1)
    stimulus.weights(2)
    environment = await start(dut, stimulus, latency=(5, 5), store=1.0)
    environment.given["store"] = 199
    await environment.steps(60)
    assert (environment.taken, environment.asked, environment.delivered) == (1, 5, 5)
    assert environment.states[-1] == "wait_store" and environment.sample("index") == 1
    assert environment.used["store"] == 0
    environment.given["store"] = 200
    await environment.run()
    environment.check()
    # Data is asked for long before the compute token comes, and what is behind it waits with it.
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.geometry(cols=4)
    stimulus.box(rows=2, wait_compute=1, post_compute=1)
    stimulus.weights(3)
    environment = await start(dut, stimulus, latency=(5, 5), compute=1.0)
    await environment.steps(80)
    assert not environment.requests and not environment.delivered and not environment.posts
    environment.stalls["compute"] = 0.0
    await environment.run()
    environment.check()
    assert environment.posts == 1
    # A slow memory is no fault of the ring's.
    stimulus = LoadStimulus(CONFIG, rng)
    stimulus.weights(3)
    environment = await start(dut, stimulus, latency=(50, 50))
    await environment.steps(30)
    assert environment.states[-1] == "wait_bus"


@cocotb.test()
async def read_range(dut):
    """A row that leaves the data region is not asked for; those before it are."""
    rng = begin(dut)
    for kind in ("box", "weights", "side"):
        while True:
            stimulus = LoadStimulus(CONFIG, rng)
            stimulus.weights(4)
            if kind == "box":
                stimulus.geometry(cols=7)
                stimulus.box(blocks=2, rows=3)
            elif kind == "weights":
                stimulus.weights(300)
            else:
                stimulus.side(cols=5, rows=3)
            ends = [request.offset + request.beats for request in stimulus.requests]
            if ends == sorted(set(ends)):
                break
        for beyond in (0, 1):
            environment = await start(dut, stimulus, region_beats=stimulus.region_beats - beyond)
            await environment.steps(700)
            expected = {(ErrorCode.READ_RANGE, stimulus.loads[1].index)} if beyond else set()
            assert set(environment.errors) == expected, (kind, environment.errors)
            # The 300 weights are one row of two requests.
            assert len(environment.requests) == beyond * (2 if kind == "weights" else 1)


@cocotb.test()
async def bus_errors(dut):
    """An error response is reported for the load whose beat it is, whatever is under way; EXOKAY is none."""
    rng = begin(dut)
    for code, response in ((ErrorCode.READ_SLVERR, AxiResponse.SLVERR), (ErrorCode.READ_DECERR, AxiResponse.DECERR),
                           (None, AxiResponse.EXOKAY)):
        for stalls in (0.0, 0.0, 0.5, 0.5):
            stimulus = random_program(rng, 6)
            sources = [delivery for delivery in stimulus.deliveries if delivery.source is not None]
            bad = sources[rng.integers(len(sources))]
            # The beat may be fetched more than once.
            wanted = [(code, stimulus.loads[delivery.load].index) for delivery in sources
                      if delivery.source == bad.source]
            environment = await start(dut, stimulus, **{"": stalls})
            environment.responses[bad.source] = response
            await environment.run()
            assert environment.errors == (wanted if code else []), (environment.errors, wanted)


@cocotb.test()
async def last_entry(dut):
    """A box that ends with the input buffer, and one that ends an entry behind it."""
    rng = begin(dut)
    for beyond in (0, 1):
        for stride in (1, 2, 3):
            stimulus = LoadStimulus(CONFIG, rng)
            stimulus.geometry(stride=stride)
            stimulus.box(blocks=2, rows=2, beyond=0)
            good = len(stimulus.deliveries)
            stimulus.box(blocks=2, rows=2, beyond=beyond)
            depth = CONFIG.input_depth
            # Entries behind the end have no place; where they would go does not matter any more.
            outside = [number for number, delivery in enumerate(stimulus.deliveries) if delivery.place[1] >= depth]
            assert bool(outside) == bool(beyond) and all(number >= good for number in outside)
            stimulus.deliveries = [delivery._replace(place=(delivery.place[0], delivery.place[1] % depth))
                                   for delivery in stimulus.deliveries]
            environment = await start(dut, stimulus)
            while environment.delivered < len(stimulus.deliveries):
                await environment.step()
            await environment.steps(REPORT_CYCLES)
            # Each of them is reported, as long behind its write as that is not behind its setting out.
            late = REPORT_CYCLES - write_latency(CONFIG)
            assert environment.error_cycles == [environment.delivery_cycles[number] + late for number in outside]
            assert set(environment.errors) == ({(ErrorCode.BUFFER, stimulus.loads[1].index)} if beyond else set())


@cocotb.test()
async def halted(dut):
    """After ``halt`` nothing is taken or asked for any more; a reset in mid-stream leaves nothing behind."""
    rng = begin(dut)
    for stalls in (0.0, 0.5):
        environment = await start(dut, random_program(rng, 30), request=1.0, **{"": stalls})
        while environment.held["request"] is None:
            await environment.step()
        environment.halt = True
        await environment.steps(50)
        assert environment.held["request"] is not None, "a request is withdrawn"
        environment = await start(dut, random_program(rng, 30), **{"": stalls})
        await environment.steps(int(rng.integers(50, 300)))
        environment.halt = True
        # What had been looked at when the halt came goes on, and a request that stands is taken.
        await environment.steps(20)
        before = environment.taken, environment.asked
        await environment.steps(200)
        assert environment.queue and (environment.taken, environment.asked) == before
        for cycles in (40, 150):
            environment = await start(dut, random_program(rng, 10), **{"": stalls})
            await environment.steps(cycles)
        environment = await start(dut, random_program(rng, 5), **{"": stalls})
        await environment.run()
        environment.check()
