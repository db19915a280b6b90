"""Store engine against the golden model: values, order, addresses, tokens, rate and errors under random stalls."""

import random
from itertools import product

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction_layout import QueuedInstruction
from cores.arch.isa import Opcode, WordForm
from cores.arch.registers import ENGINE_STATES
from cores.buffers.input_buffer import LocalBeat
from cores.bus.axi import write_run_layout
from cores.config import NpuConfig
from cores.timing.store import RequantizerTiming
from tests.bench import bench_parameters
from tests.cores.bus_models import watch_streams
from tests.cores.pins import Pins, reported, value_of
from tests.cores.store_stimulus import StoreStimulus

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
RUN = write_run_layout(CONFIG)
WRITE = LocalBeat(CONFIG)
DATA_ADDRESS = 0x3_4000_0000
REGION_BEATS = 1 << 30
#: Forms of a bank's words that the configuration has.
FORMS = [WordForm.PIXELS]
if CONFIG.depthwise:
    FORMS.append(WordForm.SPREAD)
if CONFIG.banks > CONFIG.pixel_lanes:
    FORMS.append(WordForm.ALTERNATE)
if CONFIG.winograd:
    FORMS.append(WordForm.TILES)


class Environment(Pins):
    """All around the engine, a cycle at a time: inputs change at the rising edge, outputs are read at the falling.

    ``stalls``: how often each stream stands still; a stream that is not named, as often as ``""`` says.
    """

    def __init__(self, dut, stimulus: StoreStimulus, **stalls: float):
        self.dut, self.stimulus, self.stalls = dut, stimulus, stalls
        self.feeds = {
            "queue": [QueuedInstruction.const({"index": index, "word": word}).as_bits()
                      for index, word in enumerate(stimulus.instructions)],
            "side": list(stimulus.side),
            "pooled": list(stimulus.pooled),
        }
        self.accepted = {"run": [], "data": []}
        self.offered = dict.fromkeys(self.feeds, False)
        self.held: dict[str, int | None] = dict.fromkeys(self.accepted)
        self.level = self.tokens_given = self.tokens_taken = self.posts = self.cycle = 0
        self.memory: list[dict[int, int]] = [{}, {}]
        self.read_data, self.reads, self.errors, self.states = 0, False, [], []
        self.driven: dict[str, int] = {}
        self.beat_cycles: list[int] = []
        #: What goes to the input buffer, and the tokens given when that many beats had.
        self.entries: list[tuple[int, int, int]] = []
        self.posted_at: list[int] = []

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
        for name, feed in self.feeds.items():
            # A stream that has offered a payload keeps it until it is taken.
            if not self.offered[name]:
                self.offered[name] = bool(feed) and self.moves(name)
            self.drive(f"{name}__valid", int(self.offered[name]))
            if self.offered[name]:
                self.drive(f"{name}__payload", feed[0])
        # What is said to be there in the next cycle, whatever leaves in this one.
        more = CONFIG.own_stage and len(self.feeds["side"]) > self.offered["side"] and self.moves("side")
        if CONFIG.own_stage:
            self.drive("side_more", int(more))
        ready = {name: self.moves(name) for name in self.accepted}
        for name, moves in ready.items():
            self.drive(f"{name}__ready", int(moves))
        # A bank becomes final when its token is given, the one before it having been read.
        number = self.tokens_given
        if number < len(self.stimulus.banks) and self.posts == number and self.moves("token"):
            self.give_bank(number)
            self.tokens_given += 1
            self.level += self.stimulus.flags[number].get("wait_compute", 0)
        self.drive("compute_level", self.level)
        self.drive("read_data", self.read_data)

        await FallingEdge(self.dut.clk)
        for name, feed in self.feeds.items():
            if self.offered[name] and self.sample(f"{name}__ready"):
                feed.pop(0)
                self.offered[name] = False
        self.offered["side"] |= more
        for name, taken in self.accepted.items():
            payload = self.sample(f"{name}__payload") if self.sample(f"{name}__valid") else None
            assert self.held[name] in (None, payload), f"{name} changes its offer"
            self.held[name] = payload
            if payload is not None and ready[name]:
                self.held[name] = None
                taken.append(payload)
                if name == "data":
                    self.beat_cycles.append(self.cycle)
        take = self.sample("compute_take")
        assert take <= self.level, "a token is taken that is not there"
        self.level -= take
        self.tokens_taken += take
        posted = self.sample("post_compute")
        self.posts += posted
        if posted:
            self.posted_at.append(len(self.entries))
        if CONFIG.local_store:
            kept, enable = self.sample("kept"), WRITE["enable"]
            if kept >> enable.offset & (1 << enable.width) - 1:     # in few cycles, and a layout takes longer than one
                write = WRITE.from_bits(kept)
                assert write.enable & (write.enable - 1) == 0, "a beat goes to one bank"
                self.entries.append((write.enable.bit_length() - 1, write.address, write.payload))
                self.beat_cycles.append(self.cycle)
        read_before, self.reads = self.reads, bool(self.sample("read_enable"))
        if self.reads:
            word = self.memory[self.sample("read_bank")].get(self.sample("read_address"))
            assert word is not None, "a word is read that is not final"
            self.read_data = word
        elif read_before:
            # Held by the real memory; what is not held must not matter either.
            self.read_data = random.getrandbits(CONFIG.acc_width * CONFIG.acc_lanes)
        if error := reported(self.sample("error")):
            self.errors.append(error)
        self.states.append(ENGINE_STATES["store"][self.sample("state")])
        self.cycle += 1
        await RisingEdge(self.dut.clk)

    async def run(self) -> None:
        """Until all is stored. Raises AssertionError when nothing moves any more."""
        quiet = 0
        await self.step()
        while any(self.feeds.values()) or not value_of(self.dut.idle):
            before = self._moved()
            await self.step()
            quiet = 0 if before != self._moved() else quiet + 1
            assert quiet < 500, f"stuck in {self.states[-1]} with {self.errors}"
        # The token of a local STORE comes when its last beat has been written.
        for _ in range(2):
            await self.step()

    def _moved(self) -> int:
        return sum(map(len, (*self.feeds.values(), *self.accepted.values(), self.entries)))

    def check(self) -> None:
        """Runs, beats, entries and tokens are what the stimulus says."""
        expected = [{"address": DATA_ADDRESS + run["start"] * CONFIG.beat_bytes,
                     "length": run["beats"] - 1, **{name: run[name] for name in ("last", "post", "index")}}
                    for run in self.stimulus.runs]
        runs = [RUN.from_bits(bits) for bits in self.accepted["run"]]
        assert [{name: run[name] for name in RUN.members} for run in runs] == expected
        assert len(self.accepted["data"]) == len(self.stimulus.beats)
        for number, (beat, wanted) in enumerate(zip(self.accepted["data"], self.stimulus.beats, strict=True)):
            assert beat == wanted, f"beat {number} is {beat:x}, not {wanted:x}"
        assert self.entries == self.stimulus.entries
        assert self.tokens_taken == sum(flags.get("wait_compute", 0) for flags in self.stimulus.flags)
        assert self.posts == len(self.stimulus.flags) and not self.errors


def blocks_of_bank(words: WordForm) -> int:
    return 1 if words in (WordForm.SPREAD, WordForm.ALTERNATE) else CONFIG.oc_groups


def random_program(rng: np.random.Generator, stores: int) -> StoreStimulus:
    """A geometry often serves several chains, and a chain several geometries."""
    stimulus, signs, local = StoreStimulus(CONFIG, rng), False, False
    while len(stimulus.flags) < stores:
        begins = not stimulus.flags
        changes = begins or rng.random() < 0.7
        if changes:
            signs = bool(CONFIG.binary_rows) and rng.random() < 0.6
        # Signs are not stored to the buffer.
        if begins or not changes or (signs and local) or rng.random() < 0.7:
            words = WordForm(rng.choice(FORMS))
            local = bool(CONFIG.local_store) and not signs and rng.random() < 0.6
            cols = int(rng.integers(1, 30 if signs else 10))
            rows = int(rng.integers(1, min(6, CONFIG.acc_depth // cols)))
            stimulus.geometry(rows=rows, cols=cols, words=words, local=local)
        if changes:
            stimulus.chain(add=bool(rng.random() < 0.5), signs=signs)
        for _ in range(rng.integers(1, 4)):
            pooled = words != WordForm.TILES and bool(rng.random() < 0.4)
            blocks = int(rng.integers(1, 6 if pooled else blocks_of_bank(words) + 1))
            stimulus.store(blocks=blocks, bank=int(rng.integers(2)), pooled=pooled, post_compute=1,
                           wait_compute=int(not pooled or rng.random() < 0.5), post_load=int(rng.random() < 0.5),
                           repeats=int(rng.choice([0, 0, 1, 2, 5])))
    return stimulus


async def start(dut, stimulus: StoreStimulus, **stalls: float) -> Environment:
    environment = Environment(dut, stimulus, **stalls)
    await environment.reset()
    return environment


def begin(dut) -> np.random.Generator:
    cocotb.start_soon(Clock(dut.clk, 2, "ns").start())
    watch_streams(dut)
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
    """A beat a cycle without add, also from block to block and of pixels that are repeated; in three cycles with it, or
    in fewer if second stages have multipliers of their own. Lanes for a part of a beat take so many times as long.

    Eight beats in sixteen cycles of pixels that bend at their lanes' one multiplier.
    """
    rng = begin(dut)
    rows, cols = 3, 11  # incomplete words and pairs of rows
    pixels = rows * cols
    for words, add in product(FORMS, (False, True)):
        tiles = words == WordForm.TILES
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=rows, cols=cols, words=words)
        stimulus.chain(add=add)
        shares = add and not (CONFIG.own_stage and stimulus.bends)
        rate = 9 if tiles else CONFIG.store_parts * (CONFIG.residual_cycles if shares else 1)
        repeats = int(rng.integers(0, 4))
        stimulus.store(blocks=blocks_of_bank(words), bank=1, post_compute=1, wait_compute=1, repeats=repeats)
        if not tiles:
            stimulus.store(blocks=3, pooled=True, post_compute=1, repeats=repeats)
        environment = await start(dut, stimulus)
        await environment.run()
        environment.check()
        gaps = np.diff(environment.beat_cycles)
        from_block_to_block = gaps[pixels - 1::pixels]
        if stimulus.bends and not tiles and not CONFIG.own_stage and CONFIG.store_parts == 1:
            block = np.array(environment.beat_cycles[:pixels])
            assert (block[8:] - block[:-8] == 16).all(), gaps
            continue
        cocotb.log.info("%s add=%s: cycles between blocks %s, all %d", words.name, add, from_block_to_block,
                        environment.cycle)
        assert (np.delete(gaps, np.arange(pixels - 1, len(gaps), pixels)) == rate).all(), gaps
        # With add, the eight beats of parameters come only when the last residual has gone; those of narrow lanes when
        # the last part has.
        waits = shares or CONFIG.store_parts > 1
        later = CONFIG.own_stage or CONFIG.store_parts > 1 and RequantizerTiming.late(CONFIG)
        between = blocks_of_bank(words) - 1
        of_one_store = np.delete(from_block_to_block, slice(between, between + 1))
        assert (of_one_store <= rate + (15 if rate == 9 else 12 + later) * waits).all(), from_block_to_block


@cocotb.test(skip=not CONFIG.binary_rows)
async def full_rate_of_signs(dut):
    """A pixel a cycle without add, in three with it: a full beat in eight times that; the write engine is not waited
    for."""
    rng = begin(dut)
    rows, cols = 2, 24
    for add in (False, True):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=rows, cols=cols)
        stimulus.chain(add=add, signs=True)
        rate = 8 * (CONFIG.residual_cycles if add and not (CONFIG.own_stage and stimulus.bends) else 1)
        stimulus.store(blocks=1, bank=1, post_compute=1, wait_compute=1)
        environment = await start(dut, stimulus)
        await environment.run()
        environment.check()
        assert (np.diff(environment.beat_cycles) == rate).all(), environment.beat_cycles


@cocotb.test(skip=not CONFIG.maximum)
@cocotb.parametrize(stalls=[0.0, 0.4])
async def maxima(dut, stalls):
    """Among other STOREs, without a stall and with many; a store of signs after one of maxima and the other way round.
    """
    rng = begin(dut)
    forms = [words for words in FORMS if words != WordForm.ALTERNATE]
    stimulus = StoreStimulus(CONFIG, rng)
    for number in range(10):
        words = WordForm(rng.choice(forms))
        if number % 3 == 2:
            stimulus.geometry(rows=2, cols=int(rng.integers(1, 12)), words=words)
            stimulus.chain(add=bool(rng.random() < 0.5), signs=bool(CONFIG.binary_rows))
        else:
            stimulus.maxima(rows=int(rng.integers(1, 4)), cols=int(rng.integers(1, 6)), words=words)
        repeats = 1 if Opcode.STORE_MAXIMUM in stimulus.operations else 0
        stimulus.store(blocks=blocks_of_bank(words), bank=number % 2, post_compute=1, wait_compute=1,
                       post_load=number % 2, repeats=repeats)
    environment = await start(dut, stimulus, **{"": stalls})
    await environment.run()
    environment.check()


@cocotb.test(skip=not CONFIG.maximum)
async def full_rate_of_maxima(dut):
    """A value a cycle, also where the write engine takes none for a while: a beat each four."""
    rng = begin(dut)
    stimulus = StoreStimulus(CONFIG, rng)
    stimulus.maxima(rows=4, cols=6, words=WordForm.PIXELS)
    while stimulus.bends:
        stimulus.instructions.clear()
        stimulus.maxima(rows=4, cols=6, words=WordForm.PIXELS)
    stimulus.store(blocks=1, bank=1, post_compute=1, wait_compute=1, repeats=1)
    environment = await start(dut, stimulus)
    await environment.run()
    environment.check()
    assert (np.diff(environment.beat_cycles) == 4).all(), environment.beat_cycles


@cocotb.test(skip=not CONFIG.local_store)
async def local_rate(dut):
    """A beat a cycle into the buffer, over rows and blocks; the token when the last is there, a cycle later."""
    rng = begin(dut)
    for words in FORMS:
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=4, cols=9, words=words, local=True)
        stimulus.chain(add=False)
        for _ in range(3):
            stimulus.store(blocks=blocks_of_bank(words), post_compute=1, wait_compute=1)
        environment = await start(dut, stimulus)
        await environment.run()
        environment.check()
        beats = 36 * blocks_of_bank(words)
        assert environment.posted_at == [beats, 2 * beats, 3 * beats]
        gaps = np.diff(environment.beat_cycles)
        ends = slice(35, None, 36) if CONFIG.store_parts > 1 else (beats - 1, 2 * beats - 1)
        assert (np.delete(gaps, ends) == CONFIG.store_parts).all(), gaps


@cocotb.test(skip=not CONFIG.local_store)
async def local_range(dut):
    """A beat beyond the last entry is an error, and so is a row that begins there; what just fits is none."""
    rng = begin(dut)
    depth, banks = CONFIG.input_depth, CONFIG.banks
    for offset, cols, wrong in ((depth - 3, 2 * banks, False), (depth - 3, 2 * banks + 1, True),
                                (depth, 1, True), (1 << 27, 1, True), (depth - 1, banks, True)):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=2, cols=cols, local=True)
        stimulus.instructions.clear()
        stimulus.fields["row_pitch"] = 1
        stimulus.emit(Opcode.STORE_SET, **stimulus.fields)
        stimulus.chain(add=False)
        stimulus.store(blocks=1, post_compute=1, offset=offset)
        environment = await start(dut, stimulus)
        for _ in range(100):
            await environment.step()
        assert set(environment.errors) == ({(ErrorCode.BUFFER, stimulus.flags[0]["index"])} if wrong else set())
        assert wrong or environment.entries == stimulus.entries


@cocotb.test()
async def write_range(dut):
    """A run outside the writable region is not issued; the runs before it are."""
    rng = begin(dut)
    for below, beyond, runs in ((0, 0, 3), (1, 0, 0), (0, 1, 2)):
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=3, cols=5)
        while not stimulus.fields["row_pitch"]:
            stimulus.geometry(rows=3, cols=5)
        stimulus.chain(add=False)
        stimulus.store(blocks=1, pooled=True, post_compute=1, offset=1000)
        environment = await start(dut, stimulus)
        dut.write_start.value = 1000 + below
        dut.data_beats.value = stimulus.runs[-1]["start"] + 5 - beyond
        for _ in range(100):
            await environment.step()
        expected = [(ErrorCode.WRITE_RANGE, stimulus.flags[0]["index"])] if below or beyond else []
        assert environment.errors == expected
        assert len(environment.accepted["run"]) == runs


async def too_many_words(dut, rng: np.random.Generator) -> None:
    """The last position of the last tile is in the last word, or one beyond: only that tile's last pixel needs it."""
    pitch = (CONFIG.acc_depth - 1) // 15
    for extra in (0, 1):
        stimulus = StoreStimulus(CONFIG, rng)
        tiles = (CONFIG.acc_depth - 15 * pitch) * CONFIG.pixel_lanes + extra
        stimulus.geometry(rows=2, cols=2 * tiles, words=WordForm.TILES, position_words=pitch)
        stimulus.chain(add=False)
        stimulus.store(blocks=1, post_compute=1)
        environment = await start(dut, stimulus)
        for _ in range(9 * 4 * tiles + 100):
            await environment.step()
        assert environment.errors == ([(ErrorCode.BUFFER, stimulus.flags[0]["index"])] if extra else [])
        assert len(environment.accepted["data"]) == 4 * tiles - extra


@cocotb.test()
async def program_errors(dut):
    """A tile that just fits and one that does not, more blocks than a bank has, a STORE without STORE_SET or without
    STORE_REQUANT.
    """
    rng = begin(dut)
    for words, extra in product(sorted({*FORMS} - {WordForm.TILES}), (0, 1)):
        # Two words a row, or for two rows, the second of them incomplete: it counts whole.
        cols = (CONFIG.banks if words == WordForm.SPREAD else CONFIG.pixel_lanes) + 1
        rows = CONFIG.acc_depth // 2 * (2 if words == WordForm.ALTERNATE else 1) + extra
        stimulus = StoreStimulus(CONFIG, rng)
        stimulus.geometry(rows=rows, cols=cols, words=words)
        stimulus.chain(add=False)
        stimulus.store(blocks=1, post_compute=1)
        environment = await start(dut, stimulus)
        for _ in range(rows * cols * CONFIG.store_parts + 100):
            await environment.step()
        assert environment.errors == ([(ErrorCode.BUFFER, stimulus.flags[0]["index"])] if extra else [])
        assert len(environment.accepted["data"]) == (rows - extra) * cols

    if CONFIG.winograd:
        await too_many_words(dut, rng)
    cases = [(words, True, blocks_of_bank(words) + 1, ErrorCode.BUFFER) for words in FORMS]
    cases += [(None, True, 1, ErrorCode.ILLEGAL), (WordForm.PIXELS, False, 1, ErrorCode.ILLEGAL)]
    for words, chained, blocks, code in cases:
        stimulus = StoreStimulus(CONFIG, rng)
        if words is not None:
            stimulus.geometry(rows=1, cols=1, words=words)
        if chained:
            stimulus.chain(add=False)
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
