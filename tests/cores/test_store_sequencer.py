"""Store sequencer: pixels set out when all they need is there, in order; tokens, parameters, pace, errors."""

from collections import deque

import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import Opcode
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.store.store_sequencer import StoreSequencer
from tests.cores.simulation import Bench
from tests.cores.store_places import random_order, store_places
from tests.cores.store_values import random_second_stage

CONFIGS = {
    "two_places": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1, acc_depth=64),
    "spread": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, acc_depth=64),
    "winograd": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, acc_depth=512),
    "table": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, table=1, acc_depth=64),
}
STATES = ENGINE_STATES["store"]
#: Cycles that a pixel is under way in the requantizer, or what is behind it.
UNDER_WAY = 20
#: Words that make a Winograd pixel, and multiplications' cycles of one to which a residual is added.
WORDS, ADD_CYCLES = 9, 3
#: Cycles to a pixel's second turn at the multiplier.
SECOND = 8


class SequencerBench(Bench):
    """Plays what is around the sequencer, and knows which pixel is next and whether it may set out."""

    def __init__(self, config, *, scarce=0.0, **options):
        self.config, self.scarce, self.sequencer = config, scarce, StoreSequencer(config)
        super().__init__(self.sequencer, **options)
        self.begin()

    def begin(self) -> None:
        self.pixels: list[dict] = []        # that are to set out
        self.waits = self.takes = self.posts = self.level = 0
        self.wanted_posts = self.blocks = self.loaded = self.used = self.stores = self.started = 0
        self.held = False
        self.runs_busy = 0
        self.ready = dict.fromkeys(("room", "side_valid", "pooled_valid"), False)
        self.issued_at: list[int] = []
        self.reads: deque = deque(maxlen=WORDS)     # words read in the last cycles
        self.residuals = self.wanted_residuals = 0
        self.residual_due = False           # in the next cycle
        self.tables = self.wanted_tables = 0
        # Cycles: at work; of the second stage; that may be, as the STORE has set out; and those reported as busy.
        self.works, self.adds, self.behind, self.reported = set(), set(), set(), set()
        self.errors: list = []

    def random_stores(self, count: int) -> list[Instruction]:
        rng, instructions = self.rng, []
        for _ in range(count):
            geometry, store = random_order(self.config, rng)
            fields = {"add": int(rng.random() < 0.4), "zero_point": 3}
            if self.config.binary_rows:
                fields["binary"] = int(rng.integers(2))
            if self.config.local_store:
                fields["local"] = int(rng.integers(2))
            instructions.append(Instruction(Opcode.STORE_SET, **{**geometry.fields, **fields}))
            if fields["add"]:
                instructions.append(Instruction(Opcode.STORE_ADD, **random_second_stage(rng)))
            if self.config.table and rng.random() < 0.7:
                use, load = rng.integers(2, size=2).tolist()
                instructions.append(Instruction(Opcode.STORE_TABLE, use=use, load=load))
            flags = {flag: int(rng.integers(2)) for flag in ("wait_compute", "post_compute", "post_load")}
            instructions.append(Instruction(
                Opcode.STORE, offset=int(rng.integers(1 << 20)), bank=int(rng.integers(2)), blocks=store["blocks"],
                repeats=store["repeats"], pooled=int(rng.random() < 0.3 and not geometry["winograd"]), **flags))
        return instructions

    def program(self, instructions: list[Instruction]) -> None:
        """Send them, and expect their pixels."""
        second, used = None, 0
        for index, instruction in enumerate(instructions, start=int(self.rng.integers(1000))):
            self.to_send["queue"].append({"index": index, "word": int.from_bytes(encode(instruction), "little")})
            if instruction.opcode == Opcode.STORE_SET:
                geometry = instruction
            elif instruction.opcode == Opcode.STORE_ADD:
                second = instruction
            elif instruction.opcode == Opcode.STORE_TABLE:
                used = instruction["use"]
                self.wanted_tables += instruction["load"]
            else:
                self._expect(geometry, second, used, instruction, index)

    def _expect(self, geometry, second, used, store, index) -> None:
        size, cols = geometry["rows"] * geometry["cols"], geometry["cols"]
        words, selects = store_places(self.config, geometry, store)
        for number, (word, select) in enumerate(zip(words.tolist(), selects.tolist(), strict=True)):
            pixel = number % size
            column, copies = pixel % cols, 1 + store["repeats"]
            self.pixels.append({
                "index": index, "geometry": geometry, "second": second, "used": used, "store": store, "word": word,
                "tables": self.wanted_tables,
                "select": select, "begins": number == 0, "block": self.blocks + number // size,
                "block_start": pixel == 0, "block_end": pixel == size - 1, "row_end": column == cols - 1,
                "leaves": column == cols - 1 or column % copies == copies - 1,
                "end": number == len(words) - 1, "stores": self.stores, "waits": self.waits + store["wait_compute"]})
        self.blocks += store["blocks"]
        self.stores += 1
        self.waits += store["wait_compute"]
        self.wanted_posts += store["post_compute"] and not geometry["local"]

    # -- a cycle ------------------------------------------------------------------------------------------------------

    async def surround(self, ctx) -> None:
        sequencer, posts = self.sequencer, False
        while True:
            # What a pixel needs stays there until it sets out.
            ready = self.ready = {name: before or (name != "room" and not self.pauses(self.scarce))
                                  for name, before in self.ready.items()}
            self.level += self.level < 3 and not self.pauses(self.scarce)
            drained = not self.issued_at or self.cycle - self.issued_at[-1] > UNDER_WAY
            # Parameters come while they are wanted and none are held.
            load = (not self.held and ctx.get(sequencer.parameters_wanted) and not self.pauses(self.scarce))
            self.runs_busy = max(0, self.runs_busy - 1)
            # In the next cycle; until a pixel has it.
            room = {"room": ready["room"] or not self.pauses(self.scarce), "room_behind": not self.pauses(self.scarce)}
            for name, value in {**ready, **room, "compute_level": self.level, "drained": drained,
                                "parameters_loaded": load, "runs_idle": not self.runs_busy}.items():
                ctx.set(getattr(sequencer, name), int(value))
            if self.config.table:
                loaded = ctx.get(sequencer.table_wanted) and not self.pauses(0.9)
                assert drained or not loaded
                ctx.set(sequencer.table_loaded, int(loaded))
                self.tables += loaded
            names = ("issue", "read", "read_address", "pooled_ready", "take_residual", "compute_take", "post_compute",
                     "runs_start", "error", "index", "idle", "geometry", "second", "store", "state")
            queue = sequencer.queue
            _, reset, offered, taken, word, *found = await ctx.tick().sample(
                queue.valid, queue.ready, queue.p.word, *(getattr(sequencer, name) for name in names))
            if reset:
                posts = False
                continue
            sets = (word & 15) in (Opcode.STORE_SET, Opcode.STORE_ADD, Opcode.STORE_TABLE)
            assert drained or not (offered and taken and sets), "the requantizer reads what is set"
            cycle = dict(zip(names, found, strict=True))
            if cycle["error"].valid:
                self.errors.append((cycle["error"].code, cycle["error"].index))
            assert cycle["compute_take"] <= self.level
            self.level -= cycle["compute_take"]
            self.takes += cycle["compute_take"]
            assert cycle["post_compute"] == posts, "a token comes a cycle behind the last pixel"
            self.reads.append(cycle["read_address"] if cycle["read"] else None)
            if STATES[cycle["state"]] == "busy":
                self.reported.add(self.cycle - 1)       # it is that of the cycle before
            assert cycle["take_residual"] or not self.residual_due
            assert ready["side_valid"] or not cycle["take_residual"]
            self.residual_due = False
            if cycle["take_residual"]:
                self.residuals += 1
                self.ready["side_valid"] = False
            if self.config.table and self.pixels and cycle["issue"].valid:
                used = ctx.get(sequencer.table_used)
                assert (used, self.tables) == (self.pixels[0]["used"], self.pixels[0]["tables"])
            posts = self.compare(cycle, ready) if self.pixels else False
            if cycle["runs_start"]:
                assert not self.runs_busy
                self.started, self.runs_busy = self.started + 1, 5 + int(self.rng.integers(30))
            if load:
                self.held, self.loaded = True, self.loaded + 1
            if cycle["issue"].valid:
                self.held = self.held and not cycle["issue"].release
                self.ready["pooled_valid"] = False
            self.ready["room"] = room["room_behind" if cycle["issue"].valid else "room"]

    def compare(self, cycle, ready) -> bool:
        """What sets out. Returns whether a token must follow."""
        pixel, issue = self.pixels[0], cycle["issue"]
        geometry, store = pixel["geometry"], pixel["store"]
        pops = cycle["pooled_ready"] and ready["pooled_valid"]
        assert pops == (issue.valid and store["pooled"] and pixel["leaves"])
        if not issue.valid:
            return False
        assert not cycle["idle"] and ready["room"]
        assert cycle["index"] == pixel["index"]
        assert self.takes >= pixel["waits"] and self.started > pixel["stores"]
        assert self.loaded > pixel["block"], "parameters that are not there"
        assert ready["pooled_valid"] or not store["pooled"]
        for name, instruction in (("geometry", geometry), ("second", pixel["second"]), ("store", store)):
            if name != "second" or geometry["add"]:
                layout = instruction_layout(instruction.opcode)
                assert cycle[name] == layout.from_bits(int.from_bytes(encode(instruction), "little"))
        self.pixels.pop(0)
        wanted = {"pooled": store["pooled"], "select": pixel["select"], "load": pixel["block_start"] or geometry["add"],
                  "release": pixel["block_end"] if geometry["add"] else pixel["block_start"]}
        if self.config.binary_rows:
            wanted["row_end"] = pixel["row_end"]
        assert {name: issue[name] for name in wanted} == wanted
        self.compare_reads(pixel)
        self.compare_residuals(pixel)
        if geometry["add"] and pixel["second"]["bend"] and not geometry["winograd"] and not geometry["binary"]:
            assert self.cycle - SECOND not in self.issued_at, "a second turn is due"
        elif geometry["add"] and not pixel["begins"]:
            assert (self.cycle - self.issued_at[-1]) % ADD_CYCLES == 0
        self.issued_at.append(self.cycle)
        # A residual's addition takes two further cycles.
        first = self.cycle - (WORDS - 1 if geometry["winograd"] else 0)
        self.works.update(range(first, self.cycle + 1))
        if geometry["add"]:
            self.adds.add(self.cycle + 1)
            (self.behind if pixel["end"] else self.adds).update(range(self.cycle + 2, self.cycle + ADD_CYCLES))
        return bool(pixel["end"] and store["post_compute"] and not geometry["local"])

    def compare_reads(self, pixel) -> None:
        if pixel["store"]["pooled"]:
            assert self.reads[-1] is None
        elif pixel["geometry"]["winograd"]:
            positions = {divmod(read - pixel["word"], pixel["geometry"]["position_words"]) for read in self.reads}
            assert len(positions) == WORDS and {rest for _, rest in positions} == {0}
        else:
            assert self.reads[-1] == pixel["word"]

    def compare_residuals(self, pixel) -> None:
        """A pixel's is taken a cycle behind it; a Winograd pixel's a cycle behind the first of its words."""
        if pixel["geometry"]["add"] and not pixel["second"]["bend"]:
            self.wanted_residuals += 1
            self.residual_due = not pixel["geometry"]["winograd"]
        assert self.residuals == self.wanted_residuals - self.residual_due


@pytest.mark.parametrize("idle, scarce", [(0.0, 0.0), (0.7, 0.0), (0.0, 0.6), (0.3, 0.3)])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_stores(name, idle, scarce, rng):
    """``scarce``: how often there is no room, no residual, no pooled beat, no token, no parameters."""
    bench = SequencerBench(CONFIGS[name], rng=rng, idle=idle, scarce=scarce)
    sequencer = bench.sequencer

    async def compare(ctx):
        bench.program(bench.random_stores(3))
        await bench.cycles(ctx, 60)
        await bench.reset(ctx)
        bench.begin()
        bench.program(bench.random_stores(5))
        await bench.until(ctx, lambda: not bench.pixels)
        await bench.cycles(ctx, 60)
        assert ctx.get(sequencer.idle) and STATES[ctx.get(sequencer.state)] == "idle"
        assert (bench.takes, bench.started, bench.loaded) == (bench.waits, bench.stores, bench.blocks)
        assert not ctx.get(sequencer.parameters_wanted) and not bench.errors
        assert bench.works | bench.adds <= bench.reported <= bench.works | bench.adds | bench.behind

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("add, bend", [(0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("name", ["spread", "winograd"])
def test_rate(name, add, bend, rng):
    """A pixel a cycle, also from block to block; three with a residual; nine of a Winograd layer, with or without.

    Eight in sixteen cycles that bend.
    """
    config = CONFIGS[name]
    bench = SequencerBench(config, rng=rng)
    winograd = int(name == "winograd")
    fields = {"winograd": 1, "position_words": 8} if winograd else {}
    geometry = Instruction(Opcode.STORE_SET, rows=2, cols=12, add=add, **fields)
    store = Instruction(Opcode.STORE, blocks=config.oc_groups)

    async def compare(ctx):
        bench.program([geometry, Instruction(Opcode.STORE_ADD, shift=12, bend=bend), store])
        count = len(bench.pixels)
        await bench.until(ctx, lambda: not bench.pixels)
        if bend and not winograd:
            starts = [at - bench.issued_at[0] for at in bench.issued_at[::8]]
            assert starts[:3] == [0, 16, 32]    # the first block's
            return
        pace = WORDS if winograd else ADD_CYCLES if add else 1
        assert bench.issued_at[-1] - bench.issued_at[0] == pace * (count - 1)

    bench.run(compare, background=[bench.surround])


SET = Instruction(Opcode.STORE_SET, rows=1, cols=4)


@pytest.mark.parametrize("name, words, inputs, code", [
    ("spread", [Instruction(Opcode.STORE, blocks=1)], {}, ErrorCode.ILLEGAL),
    ("spread", [SET, Instruction(Opcode.STORE, blocks=3)], {}, ErrorCode.BUFFER),
    ("spread", [SET, Instruction(Opcode.STORE, blocks=2)], {}, None),
    ("spread", [Instruction(Opcode.STORE_SET, rows=1, cols=4, spread=1), Instruction(Opcode.STORE, blocks=2)], {},
     ErrorCode.BUFFER),
    ("spread", [SET, Instruction(Opcode.STORE, blocks=3, pooled=1)], {}, None),
    ("two_places", [Instruction(Opcode.STORE_SET, rows=65, cols=1), Instruction(Opcode.STORE, blocks=1)], {},
     ErrorCode.BUFFER),
    ("two_places", [Instruction(Opcode.STORE_SET, rows=64, cols=1), Instruction(Opcode.STORE, blocks=1)], {}, None),
    ("two_places", [SET, Instruction(Opcode.STORE, blocks=1)], {"runs_failed": 1}, ErrorCode.WRITE_RANGE),
    ("spread", [Instruction(Opcode.STORE_SET, rows=1, cols=4, local=1), Instruction(Opcode.STORE, blocks=1)],
     {"runs_failed": 1}, ErrorCode.BUFFER),
], ids=["no_geometry", "too_many_blocks", "all_blocks", "spread_blocks", "pooled_blocks", "beyond_the_bank",
        "last_word", "outside_the_region", "outside_the_buffer"])
def test_errors(name, words, inputs, code, rng):
    """Reported with the STORE's index; nothing sets out any more until a reset."""
    bench = SequencerBench(CONFIGS[name], rng=rng)
    sequencer = bench.sequencer

    async def compare(ctx):
        for port, value in inputs.items():
            ctx.set(getattr(sequencer, port), value)
        for index, word in enumerate([*words, words[-1]], start=40):
            bench.to_send["queue"].append({"index": index, "word": int.from_bytes(encode(word), "little")})
        await bench.cycles(ctx, 400)
        index = 40 + len(words) - 1
        assert set(bench.errors) == (set() if code is None else {(code, index)})
        taken = len(bench.sent_at["queue"])
        assert taken == len(words) + (code is None)
        if code is not None:
            assert not ctx.get(sequencer.issue.valid) and not ctx.get(sequencer.idle)
            ctx.set(sequencer.runs_failed, 0)
            await bench.reset(ctx)
            assert ctx.get(sequencer.queue.ready)

    bench.run(compare, background=[bench.surround])


def test_halt(rng):
    bench = SequencerBench(CONFIGS["two_places"], rng=rng)

    async def compare(ctx):
        bench.program(bench.random_stores(4))
        await bench.cycles(ctx, 10)
        ctx.set(bench.sequencer.halt, 1)
        halted = bench.cycle
        await bench.cycles(ctx, 300)
        assert bench.pixels and all(at < halted for at in bench.sent_at["queue"])

    bench.run(compare, background=[bench.surround])
