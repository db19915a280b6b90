"""Store sequencer: pixels set out when all they need is there, in order; tokens, parameters, pace, errors."""

from collections import deque
from functools import cache
from typing import Any

import pytest
from amaranth.hdl import ShapeCastable, Value

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.isa import HEADER, SETTERS, Opcode, WordForm
from cores.arch.registers import ENGINE_STATES
from cores.config import NpuConfig
from cores.store.store_sequencer import StoreSequencer
from tests.cores.simulation import Bench
from tests.cores.store_chain import (
    Operations,
    kept_chain,
    layout_of,
    random_chain,
    random_second_stage,
    second_stage,
    takes_residuals,
)
from tests.cores.store_places import random_order, store_places

CONFIGS = {
    "two_places": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1, acc_depth=64),
    "spread": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, acc_depth=64),
    "winograd": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, acc_depth=512),
    "table": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, table=1, acc_depth=64),
    "product": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, product=1, acc_depth=64),
    "two_multipliers": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, acc_depth=512, store_multipliers=2),
    "three_multipliers": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, product=1, gather=1, binary_rows=1,
                                   acc_depth=64, store_multipliers=3),
    "narrow": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=1, table=1, acc_depth=64, store_lanes=2),
}
OPCODE = (1 << HEADER[0].bits) - 1
STATES = ENGINE_STATES["store"]
#: Cycles that a pixel is under way in the requantizer, or what is after it.
UNDER_WAY = 20
#: Words that make a Winograd pixel.
WORDS = 9
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
        """A geometry often serves several chains, a chain several geometries; operations join a chain in use."""
        rng, instructions, chain = self.rng, [], {}
        for number in range(count):
            if number == 0 or rng.random() < 0.8:
                geometry, store = random_order(self.config, rng)
                local = int(self.config.local_store and rng.integers(2))
                instructions.append(Instruction(Opcode.STORE_SET, **{**geometry.fields, "local": local}))
            if number == 0 or rng.random() < 0.7:
                chain = self.random_chain()
                instructions += chain.values()
            elif second_stage(chain) is None and rng.random() < 0.5:
                stage = random_second_stage(self.config, rng)
                chain[stage.opcode] = stage
                instructions.append(stage)
            flags = {flag: int(rng.integers(2)) for flag in ("wait_compute", "post_compute", "post_load")}
            pooled = int(rng.random() < 0.3 and geometry["words"] != WordForm.TILES)
            instructions.append(Instruction(
                Opcode.STORE, offset=int(rng.integers(1 << 20)), bank=int(rng.integers(2)), blocks=store["blocks"],
                repeats=store["repeats"], pooled=pooled, **flags))
        return instructions

    def random_chain(self) -> dict[Opcode, Instruction]:
        config, rng, others = self.config, self.rng, []
        if config.table and rng.random() < 0.6:
            others.append(Instruction(Opcode.STORE_TABLE, load=int(rng.integers(2))))
        if config.binary_rows and rng.random() < 0.5:
            others.append(Instruction(Opcode.STORE_SIGNS))
        return random_chain(config, rng, add=bool(rng.random() < 0.4), others=tuple(others))

    def program(self, instructions: list[Instruction]) -> None:
        """Send them, and expect their pixels."""
        chain: dict[Opcode, Instruction] = {}
        for index, instruction in enumerate(instructions, start=int(self.rng.integers(1000))):
            self.to_send["queue"].append({"index": index, "word": int.from_bytes(encode(instruction), "little")})
            match instruction.opcode:
                case Opcode.STORE_SET:
                    geometry = instruction
                case Opcode.STORE:
                    self._expect(geometry, dict(chain), instruction, index)
                case opcode:
                    if opcode == Opcode.STORE_REQUANT:
                        chain.clear()
                    if opcode == Opcode.STORE_TABLE:
                        self.wanted_tables += instruction["load"]
                    chain[opcode] = instruction

    def _expect(self, geometry, chain, store, index) -> None:
        size, cols = geometry["rows"] * geometry["cols"], geometry["cols"]
        words, selects = store_places(self.config, geometry, store)
        for number, (word, select) in enumerate(zip(words.tolist(), selects.tolist(), strict=True)):
            pixel = number % size
            column, copies = pixel % cols, 1 + store["repeats"]
            self.pixels += [{
                "index": index, "geometry": geometry, "chain": chain, "store": store, "word": word,
                "tables": self.wanted_tables, "select": select,
                "part": part, "begins": number == part == 0, "block": self.blocks + number // size,
                "block_start": pixel == 0, "block_end": pixel == size - 1 and last, "row_end": column == cols - 1,
                "leaves": last and (column == cols - 1 or column % copies == copies - 1),
                "end": number == len(words) - 1 and last, "stores": self.stores,
                "waits": self.waits + store["wait_compute"]}
                for part, last in enumerate([*[False] * (self.config.store_parts - 1), True])]
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
            more = self.config.own_stage and not self.pauses(self.scarce)
            if self.config.own_stage:
                ctx.set(sequencer.side_more, int(more))
            if self.config.table:
                loaded = ctx.get(sequencer.load_wanted) and not self.pauses(0.9)
                assert drained or not loaded
                ctx.set(sequencer.loaded, int(loaded))
                self.tables += loaded
            names = ("issue", "read", "read_address", "pooled_ready", "take_residual", "compute_take", "post_compute",
                     "runs_start", "error", "index", "idle", "geometry", "chain", "store", "state")
            queue = sequencer.queue
            _, reset, offered, taken, word, *found = await ctx.tick().sample(
                queue.valid, queue.ready, queue.p.word, *(Value.cast(getattr(sequencer, name)) for name in names))
            if reset:
                posts = False
                continue
            sets = (word & OPCODE) in SETTERS
            assert drained or not (offered and taken and sets), "the requantizer reads what is set"
            cycle = {name: self._apart(name, bits) for name, bits in zip(names, found, strict=True)}
            if cycle["error"].valid:
                self.errors.append((cycle["error"].code, cycle["error"].index))
            assert cycle["compute_take"] <= self.level
            self.level -= cycle["compute_take"]
            self.takes += cycle["compute_take"]
            assert cycle["post_compute"] == posts, "a token comes a cycle after the last pixel"
            self.reads.append(cycle["read_address"] if cycle["read"] else None)
            if STATES[cycle["state"]] == "busy":
                self.reported.add(self.cycle - 1)       # it is that of the cycle before
            assert cycle["take_residual"] or not self.residual_due
            assert ready["side_valid"] or not cycle["take_residual"]
            self.residual_due = False
            if cycle["take_residual"]:
                self.residuals += 1
                self.ready["side_valid"] = False
            self.ready["side_valid"] |= more
            if self.config.table and self.pixels and cycle["issue"].valid:
                assert self.tables == self.pixels[0]["tables"]
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

    @cache      # noqa: B019 - of a bench of a test
    def _apart(self, name: str, bits: int) -> Any:
        """The value of a port with a layout; once of all that stand, as it takes Amaranth longer than a cycle."""
        shape = getattr(self.sequencer, name).shape()
        return shape.from_bits(bits) if isinstance(shape, ShapeCastable) else bits

    def compare(self, cycle, ready) -> bool:
        """What sets out. Returns whether a token must follow."""
        pixel, issue = self.pixels[0], cycle["issue"]
        geometry, chain, store = pixel["geometry"], pixel["chain"], pixel["store"]
        tiles, second = geometry["words"] == WordForm.TILES, second_stage(chain)
        pops = cycle["pooled_ready"] and ready["pooled_valid"]
        assert pops == (issue.valid and store["pooled"] and pixel["leaves"])
        if not issue.valid:
            return False
        assert not cycle["idle"] and ready["room"]
        assert cycle["index"] == pixel["index"]
        assert self.takes >= pixel["waits"] and self.started > pixel["stores"]
        assert self.loaded > pixel["block"], "parameters that are not there"
        assert ready["pooled_valid"] or not store["pooled"]
        for name, instruction in (("geometry", geometry), ("store", store)):
            layout = layout_of(instruction.opcode)
            assert cycle[name] == layout.from_bits(int.from_bytes(encode(instruction), "little"))
        self.compare_chain(cycle["chain"], chain)
        self.pixels.pop(0)
        # Lanes that have no second turns keep what they hold; a residual for each pixel is before the next parameters.
        own = self.config.own_stage
        keeps = (not second or own) and self.config.store_parts == 1
        last_uses = takes_residuals(chain) and not second["broadcast"] if own else not keeps
        wanted = {"pooled": store["pooled"], "select": pixel["select"], "load": pixel["block_start"] or not keeps,
                  "release": pixel["block_end"] if last_uses else pixel["block_start"]}
        if self.config.store_parts > 1:
            wanted["part"] = pixel["part"]
        if self.config.binary_rows:
            wanted["row_end"] = pixel["row_end"]
        assert {name: issue[name] for name in wanted} == wanted
        self.compare_reads(pixel)
        self.compare_residuals(pixel)
        cycles = self.config.residual_cycles
        if own and (tiles or not takes_residuals(chain)):
            pass
        elif Opcode.STORE_LEAKY in chain and not tiles and Opcode.STORE_SIGNS not in chain and (
                self.config.store_parts == 1):
            assert self.cycle - SECOND not in self.issued_at, "a second turn is due"
        elif second and not pixel["begins"]:
            assert (self.cycle - self.issued_at[-1]) % cycles == 0
        self.issued_at.append(self.cycle)
        # A residual's addition takes further cycles.
        first = self.cycle - (WORDS - 1 if tiles else 0)
        self.works.update(range(first, self.cycle + 1))
        if cycles > 1 and (takes_residuals(chain) if own else second):
            self.adds.add(self.cycle + 1)
            (self.behind if pixel["end"] else self.adds).update(range(self.cycle + 2, self.cycle + cycles))
        return bool(pixel["end"] and store["post_compute"] and not geometry["local"])

    def compare_chain(self, found, chain: Operations) -> None:
        """What the engine keeps of it, and of none before it."""
        for name, value in kept_chain(self.config, chain).items():
            if name == "second":
                (stage, value), = value.items()
                assert found.second[stage] == value
            else:
                assert found[name] == value, name

    def compare_reads(self, pixel) -> None:
        if pixel["store"]["pooled"]:
            assert self.reads[-1] is None
        elif pixel["geometry"]["words"] == WordForm.TILES:
            positions = {divmod(read - pixel["word"], pixel["geometry"]["position_words"]) for read in self.reads}
            assert len(positions) == WORDS and {rest for _, rest in positions} == {0}
        else:
            assert self.reads[-1] == pixel["word"]

    def compare_residuals(self, pixel) -> None:
        """A pixel's is taken a cycle after it; a Winograd pixel's a cycle after the first of its words; one for a
        whole block with its first pixel.
        """
        chain = pixel["chain"]
        every = takes_residuals(chain) and not second_stage(chain)["broadcast"]
        if takes_residuals(chain) and not pixel["part"] and (pixel["block_start"] or every):
            self.wanted_residuals += 1
            self.residual_due = pixel["geometry"]["words"] != WordForm.TILES
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


REQUANT, ADD, LEAKY = (Instruction(Opcode.STORE_REQUANT, zero_point=3, low=-128, high=127),
                       Instruction(Opcode.STORE_ADD, shift=12), Instruction(Opcode.STORE_LEAKY, shift=12))


@pytest.mark.parametrize("second", [None, ADD, LEAKY], ids=["one_stage", "add", "leaky"])
@pytest.mark.parametrize("name, tiles", [("spread", False), ("winograd", True), ("two_multipliers", False),
                                         ("two_multipliers", True), ("three_multipliers", False),
                                         ("narrow", False)])
def test_rate(name, tiles, second, rng):
    """A pixel a cycle, also from block to block; three with a residual, two or one if that is on other multipliers;
    nine of a Winograd layer, with or without.

    Eight in sixteen cycles that bend at their lanes' one multiplier.
    """
    config = CONFIGS[name]
    bench = SequencerBench(config, rng=rng)
    fields = {"words": WordForm.TILES, "position_words": 8} if tiles else {}
    geometry = Instruction(Opcode.STORE_SET, rows=2, cols=12, **fields)
    parts = config.store_parts > 1
    # Narrow lanes take the next block's parameters after a block.
    store = Instruction(Opcode.STORE, blocks=1 if parts else config.oc_groups)

    async def compare(ctx):
        bench.program([geometry, REQUANT, *([second] if second else []), store])
        count = len(bench.pixels)
        await bench.until(ctx, lambda: not bench.pixels)
        if second is LEAKY and not tiles and not config.own_stage and not parts:
            starts = [at - bench.issued_at[0] for at in bench.issued_at[::8]]
            assert starts[:3] == [0, 16, 32]    # the first block's
            return
        pace = WORDS if tiles else config.residual_cycles if second is ADD or (parts and second) else 1
        assert bench.issued_at[-1] - bench.issued_at[0] == pace * (count - 1)

    bench.run(compare, background=[bench.surround])


SET, STORE = Instruction(Opcode.STORE_SET, rows=1, cols=4), Instruction(Opcode.STORE, blocks=1)
#: What joins a chain in a machine that has it, and the flags of `Chain` that it sets.
JOINING = [("two_places", Instruction(Opcode.STORE_SIGNS), {"signs"}), ("two_places", LEAKY, {"adds", "leaky"}),
           ("winograd", ADD, {"adds"}), ("table", Instruction(Opcode.STORE_TABLE), {"table"}),
           ("table", Instruction(Opcode.STORE_TABLE, load=1), {"table"}),
           ("product", Instruction(Opcode.STORE_MULTIPLY, shift=12, broadcast=1), {"adds", "multiplies"})]


@pytest.mark.parametrize("name, operation, sets", JOINING)
def test_chain(name, operation, sets, rng):
    """An operation joins the chain and stays in it, whatever geometry follows; STORE_REQUANT clears all; a reset too.
    """
    bench = SequencerBench(CONFIGS[name], rng=rng)
    other = Instruction(Opcode.STORE_SET, rows=2, cols=3)

    def flags(ctx) -> set[str]:
        chain = ctx.get(bench.sequencer.chain)
        return {flag for flag, field in chain.shape() if field.width == 1 and chain[flag]}

    async def run(ctx, *instructions):
        bench.program(list(instructions))
        await bench.until(ctx, lambda: not bench.pixels and not bench.to_send["queue"])
        await bench.cycles(ctx, UNDER_WAY)
        return flags(ctx)

    async def compare(ctx):
        assert flags(ctx) == set()
        assert await run(ctx, SET, REQUANT, STORE) == {"begun"}
        assert await run(ctx, SET, REQUANT, operation, STORE, other, STORE) == {"begun", *sets}
        assert await run(ctx, SET, REQUANT, STORE) == {"begun"}
        await bench.reset(ctx)
        assert flags(ctx) == set()

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("name, words, inputs, code", [
    ("spread", [REQUANT, STORE], {}, ErrorCode.ILLEGAL),
    ("spread", [SET, STORE], {}, ErrorCode.ILLEGAL),
    *((name, [SET, operation, STORE], {}, ErrorCode.ILLEGAL) for name, operation, _ in JOINING),
    ("spread", [SET, REQUANT, Instruction(Opcode.STORE, blocks=3)], {}, ErrorCode.BUFFER),
    ("spread", [SET, REQUANT, Instruction(Opcode.STORE, blocks=2)], {}, None),
    ("spread", [REQUANT, SET, Instruction(Opcode.STORE, blocks=2)], {}, None),
    *(("spread", [Instruction(Opcode.STORE_SET, rows=1, cols=4, words=words), REQUANT,
                  Instruction(Opcode.STORE, blocks=2)], {}, ErrorCode.BUFFER)
      for words in (WordForm.SPREAD, WordForm.ALTERNATE)),
    ("spread", [SET, REQUANT, Instruction(Opcode.STORE, blocks=3, pooled=1)], {}, None),
    ("two_places", [Instruction(Opcode.STORE_SET, rows=65, cols=1), REQUANT, STORE], {}, ErrorCode.BUFFER),
    ("two_places", [Instruction(Opcode.STORE_SET, rows=64, cols=1), REQUANT, STORE], {}, None),
    ("two_places", [SET, REQUANT, STORE], {"runs_failed": 1}, ErrorCode.WRITE_RANGE),
    ("spread", [Instruction(Opcode.STORE_SET, rows=1, cols=4, local=1), REQUANT, STORE], {"runs_failed": 1},
     ErrorCode.BUFFER),
], ids=["no_geometry", "no_chain", *(f"no_chain_{operation.opcode.name}_{name}_{number}"
                                     for number, (name, operation, _) in enumerate(JOINING)),
        "too_many_blocks", "all_blocks", "chain_before_geometry", "spread_blocks", "alternate_blocks", "pooled_blocks",
        "beyond_the_bank", "last_word", "outside_the_region", "outside_the_buffer"])
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
