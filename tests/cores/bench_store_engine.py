"""Store engine against the golden model: values, order, addresses, tokens, rate and errors under random stalls."""

import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.axi import ErrorReport, write_run_layout
from cores.config import NpuConfig
from cores.instruction_layout import QueueEntry
from cores.isa import ErrorCode, Opcode
from cores.registers import ENGINE_STATES
from tests.bench import bench_parameters
from tests.cores.store_stimulus import StoreStimulus

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
RUN = write_run_layout(CONFIG)
DATA_ADDRESS = 0x3_4000_0000
REGION_BEATS = 1 << 30


class Environment:
    """All around the engine, a cycle at a time: inputs change at the rising edge, outputs are read at the falling.

    ``stalls``: how often each stream stands still; a stream that is not named, as often as ``""`` says.
    """

    def __init__(self, dut, stimulus: StoreStimulus, **stalls: float):
        self.dut, self.stimulus, self.stalls = dut, stimulus, stalls
        self.feeds = {
            "queue": [QueueEntry.const({"index": index, "word": word}).as_bits()
                      for index, word in enumerate(stimulus.instructions)],
            "side": list(stimulus.side),
            "pooled": list(stimulus.pooled),
        }
        self.accepted = {"run": [], "data": []}
        self.offered = dict.fromkeys(self.feeds, False)
        self.held: dict[str, int | None] = dict.fromkeys(self.accepted)
        self.level = self.tokens_given = self.tokens_taken = self.posts = self.cycle = 0
        self.memory: list[dict[int, np.ndarray]] = [{}, {}]
        self.read_data, self.errors, self.states = 0, [], []
        self.beat_cycles: list[int] = []

    async def reset(self):
        dut = self.dut
        for name in self.feeds:
            getattr(dut, f"{name}__valid").value = 0
        for port in (dut.run__ready, dut.data__ready, dut.halt, dut.compute_level, dut.read_data):
            port.value = 0
        dut.write_start.value, dut.data_beats.value, dut.data_address.value = 0, REGION_BEATS, DATA_ADDRESS
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0

    def moves(self, name: str) -> bool:
        return random.random() >= self.stalls.get(name, self.stalls.get("", 0.0))

    def give_bank(self, number: int) -> None:
        if self.stimulus.banks[number] is not None:
            self.memory[self.stimulus.flags[number]["bank"]] = self.stimulus.banks[number]

    async def step(self) -> None:
        """One cycle."""
        dut = self.dut
        for name, feed in self.feeds.items():
            # A stream that has offered a payload keeps it until it is taken.
            if not self.offered[name]:
                self.offered[name] = bool(feed) and self.moves(name)
            getattr(dut, f"{name}__valid").value = int(self.offered[name])
            if self.offered[name]:
                getattr(dut, f"{name}__payload").value = feed[0]
        for name in self.accepted:
            getattr(dut, f"{name}__ready").value = int(self.moves(name))
        # A bank becomes final when its token is given, the one before it having been read.
        number = self.tokens_given
        if number < len(self.stimulus.banks) and self.posts == number and self.moves("token"):
            self.give_bank(number)
            self.tokens_given += 1
            self.level += self.stimulus.flags[number].get("wait_compute", 0)
        dut.compute_level.value = self.level
        dut.read_data.value = self.read_data

        await FallingEdge(dut.clk)
        for name, feed in self.feeds.items():
            if self.offered[name] and int(getattr(dut, f"{name}__ready").value):
                feed.pop(0)
                self.offered[name] = False
        for name, taken in self.accepted.items():
            valid, payload = int(getattr(dut, f"{name}__valid").value), int(getattr(dut, f"{name}__payload").value)
            assert self.held[name] is None or (valid and payload == self.held[name]), f"{name} changes its offer"
            self.held[name] = payload if valid else None
            if valid and int(getattr(dut, f"{name}__ready").value):
                self.held[name] = None
                taken.append(payload)
                if name == "data":
                    self.beat_cycles.append(self.cycle)
        take = int(dut.compute_take.value)
        assert take <= self.level, "a token is taken that is not there"
        self.level -= take
        self.tokens_taken += take
        self.posts += int(dut.post_compute.value)
        if int(dut.read_enable.value):
            word = self.memory[int(dut.read_bank.value)].get(int(dut.read_address.value))
            assert word is not None, "a word is read that is not final"
            mask = (1 << CONFIG.acc_width) - 1
            self.read_data = sum((int(value) & mask) << CONFIG.acc_width * lane for lane, value in enumerate(word))
        else:
            # Held by the real memory; what is not held must not matter either.
            self.read_data = random.getrandbits(CONFIG.acc_width * CONFIG.acc_lanes)
        error = ErrorReport.from_bits(int(dut.error.value))
        if error.valid:
            self.errors.append((error.code, error.index))
        self.states.append(ENGINE_STATES["store"][int(dut.state.value)])
        self.cycle += 1
        await RisingEdge(dut.clk)

    async def run(self) -> None:
        """Until all is stored. Raises AssertionError when nothing moves any more."""
        quiet = 0
        await self.step()
        while any(self.feeds.values()) or not int(self.dut.idle.value):
            before = sum(map(len, (*self.feeds.values(), *self.accepted.values())))
            await self.step()
            quiet = 0 if before != sum(map(len, (*self.feeds.values(), *self.accepted.values()))) else quiet + 1
            assert quiet < 500, f"stuck in {self.states[-1]} with {self.errors}"

    def check(self) -> None:
        """Runs, beats and tokens are what the stimulus says."""
        expected = [{"address": DATA_ADDRESS + run["start"] * CONFIG.beat_bytes,
                     **{name: run[name] for name in ("beats", "last", "post", "index")}} for run in self.stimulus.runs]
        runs = [RUN.from_bits(bits) for bits in self.accepted["run"]]
        assert [{name: run[name] for name in RUN.members} for run in runs] == expected
        assert len(self.accepted["data"]) == len(self.stimulus.beats)
        for number, (beat, wanted) in enumerate(zip(self.accepted["data"], self.stimulus.beats, strict=True)):
            assert beat == wanted, f"beat {number} is {beat:x}, not {wanted:x}"
        assert self.tokens_taken == sum(flags.get("wait_compute", 0) for flags in self.stimulus.flags)
        assert self.posts == len(self.stimulus.flags) and not self.errors


def random_program(rng: np.random.Generator, stores: int) -> StoreStimulus:
    stimulus = StoreStimulus(CONFIG, rng)
    while len(stimulus.flags) < stores:
        stimulus.geometry(rows=int(rng.integers(1, 6)), cols=int(rng.integers(1, 10)), add=bool(rng.random() < 0.5))
        for _ in range(rng.integers(1, 4)):
            pooled = bool(rng.random() < 0.4)
            blocks = int(rng.integers(1, 6 if pooled else CONFIG.oc_groups + 1))
            stimulus.store(blocks=blocks, bank=int(rng.integers(2)), pooled=pooled, post_compute=1,
                           wait_compute=int(not pooled or rng.random() < 0.5), post_load=int(rng.random() < 0.5))
    return stimulus


async def start(dut, stimulus: StoreStimulus, **stalls: float) -> Environment:
    environment = Environment(dut, stimulus, **stalls)
    await environment.reset()
    return environment


def begin(dut) -> np.random.Generator:
    cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test()
@cocotb.parametrize(stalls=[0.0, 0.3, 0.8])
async def random_stores(dut, stalls):
    """Programs of all kinds, fast and slow surroundings."""
    environment = await start(dut, random_program(begin(dut), 12), **{"": stalls})
    await environment.run()
    environment.check()


@cocotb.test()
async def one_side_slow(dut):
    """Each stream in turn is the slow one: a source runs dry, or the write engine stands still."""
    rng = begin(dut)
    for slow in ("queue", "side", "pooled", "run", "data", "token"):
        environment = await start(dut, random_program(rng, 4), **{slow: 0.85})
        await environment.run()
        environment.check()


@cocotb.test()
async def full_rate(dut):
    """A beat a cycle without add, also from block to block; a beat in three cycles with it."""
    rng = begin(dut)
    for add, rate in ((False, 1), (True, 3)):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=4, cols=15, add=add)
        stimulus.store(blocks=CONFIG.oc_groups, bank=1, post_compute=1, wait_compute=1)
        stimulus.store(blocks=3, pooled=True, post_compute=1)
        environment = await start(dut, stimulus)
        await environment.run()
        environment.check()
        gaps = np.diff(environment.beat_cycles)
        from_block_to_block = gaps[59::60]
        cocotb.log.info("add=%s: cycles between blocks %s, all %d", add, from_block_to_block, environment.cycle)
        assert (np.delete(gaps, np.arange(59, len(gaps), 60)) == rate).all(), gaps
        # With add, the eight beats of parameters come only when the last residual has gone.
        of_one_store = np.delete(from_block_to_block, CONFIG.oc_groups - 1)
        assert (of_one_store <= (15 if add else 1)).all(), from_block_to_block


@cocotb.test()
async def write_range(dut):
    """A run outside the writable region is not issued; the runs before it are."""
    rng = begin(dut)
    for below, beyond, runs in ((0, 0, 3), (1, 0, 0), (0, 1, 2)):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=3, cols=5, add=False)
        while not stimulus.fields["row_pitch"]:
            stimulus.geometry(rows=3, cols=5, add=False)
        stimulus.store(blocks=1, pooled=True, post_compute=1, offset=1000)
        environment = await start(dut, stimulus)
        dut.write_start.value = 1000 + below
        dut.data_beats.value = stimulus.runs[-1]["start"] + 5 - beyond
        for _ in range(100):
            await environment.step()
        expected = [(ErrorCode.WRITE_RANGE, stimulus.flags[0]["index"])] if below or beyond else []
        assert environment.errors == expected
        assert len(environment.accepted["run"]) == runs


@cocotb.test()
async def program_errors(dut):
    """A tile that just fits and one that does not, more blocks than a bank has, a STORE without a STORE_SET."""
    rng = begin(dut)
    # Rows of an odd number of columns: their last word counts whole.
    cols, rows = (3 if CONFIG.pixel_lanes == 2 else 2), CONFIG.acc_depth // 2
    for extra, code in ((0, None), (1, ErrorCode.BUFFER)):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=rows + extra, cols=cols, add=False)
        stimulus.store(blocks=1, post_compute=1)
        environment = await start(dut, stimulus)
        for _ in range(rows * cols + 100):
            await environment.step()
        assert environment.errors == ([(code, stimulus.flags[0]["index"])] if code else [])

    for geometry, blocks, code in ((True, CONFIG.oc_groups + 1, ErrorCode.BUFFER), (False, 1, ErrorCode.ILLEGAL)):
        stimulus = StoreStimulus(CONFIG, rng)
        if geometry:
            stimulus.geometry(rows=1, cols=1, add=False)
        index = stimulus.emit(Opcode.STORE, blocks=blocks)
        environment = await start(dut, stimulus)
        for _ in range(50):
            await environment.step()
        assert environment.errors == [(code, index)]
        assert not environment.accepted["run"] and not environment.accepted["data"]


@cocotb.test()
async def halted(dut):
    """After ``halt`` no instruction is taken; a reset in the middle of a STORE leaves nothing behind."""
    rng = begin(dut)
    environment = await start(dut, random_program(rng, 6))
    for _ in range(40):
        await environment.step()
    dut.halt.value = 1
    await environment.step()
    left = len(environment.feeds["queue"])
    for _ in range(300):
        await environment.step()
    assert left and len(environment.feeds["queue"]) == left
    environment = await start(dut, random_program(rng, 6))
    await environment.run()
    environment.check()
