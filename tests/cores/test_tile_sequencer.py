"""Tile sequencer: tiles of all kinds in order, each cycle what the loops say, tokens, weights, pace, errors."""

import pytest

from cores.arch.error_codes import ErrorCode
from cores.arch.instruction import Instruction, encode
from cores.arch.isa import Opcode, StepKind, WordForm
from cores.arch.registers import ENGINE_STATES
from cores.arch.stochastic import MIN_LENGTH_LOG, Circuit
from cores.buffers.accumulators import Accumulators
from cores.compute.tile_loops import TileLoops
from cores.compute.tile_sequencer import TileSequencer
from cores.config import NpuConfig
from tests.cores.simulation import Bench
from tests.cores.tile_values import flags_of_steps, is_window, loop_cycles, random_geometry, random_tile

SIZES = {"input_depth": 512, "acc_depth": 64}
CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, pixel_lanes=1, winograd=1, **SIZES),
    "binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, gather=1, binary_rows=4, **SIZES),
    "two_banks": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1, **SIZES),
    "streams": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=2, depthwise=1, stochastic_rows=2, stochastic_bits=4,
                         stochastic_circuit=Circuit.AND_LOOP, **SIZES),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, **SIZES),
    "phases": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=8, select_fanin=1, depthwise=1, **SIZES),
}
#: In register ``stream_shift``, where there are streams.
SHIFT = 1
STATES = ENGINE_STATES["compute"]
FLAGS = ("wait_load", "wait_store", "post_load", "post_store")


class SequencerBench(Bench):
    """Gives instructions, tokens and weights, and compares every issue with the loops."""

    def __init__(self, config, *, min_step=4, scarce=0.0, **options):
        self.config, self.min_step, self.scarce = config, min_step, scarce
        self.sequencer = TileSequencer(config, min_step=min_step, distance=config.window_reads + 1)
        super().__init__(self.sequencer, **options)
        self.begin()

    def begin(self) -> None:
        """Forget the program."""
        self.work: list = []        # (index, geometry, tile, LoopCycle) that are to be issued
        self.steps: list = []       # (COMPUTE, group) of their steps, in order
        self.levels = {"load": 0, "store": 0}
        self.takes = {"load": 0, "store": 0}
        self.waits = {"load": 0, "store": 0}
        self.issued_at: list[int] = []
        self.started = 0
        self.last_step = -self.min_step
        #: Whether the latest issue was one of a window, and for how many cycles its word of streams stayed.
        self.kind: tuple[bool, int] | None = None
        self.stays, self.inside = 1, 0      # of the word of streams at work
        self.errors: list = []

    def program(self, tiles) -> None:
        """``tiles``: COMPUTE_SETs and what is to be done with them."""
        index = int(self.rng.integers(1 << 20))
        for instruction in tiles:
            word = int.from_bytes(encode(instruction), "little")
            self.to_send["queue"].append({"index": index, "word": word})
            if instruction.opcode == Opcode.COMPUTE_SET:
                geometry = instruction
            else:
                cycles = list(loop_cycles(self.config, geometry, instruction))
                self.work += [(index, geometry, instruction, cycle) for cycle in cycles]
                if instruction.opcode == Opcode.COMPUTE:
                    self.steps += [(instruction, cycle.group) for cycle in cycles if cycle.at_start]
                for queue in self.waits:
                    self.waits[queue] += instruction[f"wait_{queue}"]
            index += 1

    def random_tiles(self, count: int, *, tokens: bool = True) -> list[Instruction]:
        tiles = []
        for _ in range(count):
            if not tiles or self.rng.random() < 0.7:
                tiles.append(random_geometry(self.config, self.rng))
                geometry = tiles[-1]
            tile = random_tile(self.config, self.rng, geometry)
            flags = {flag: int(self.rng.integers(2)) for flag in FLAGS if tokens} | (
                {"post_store": 0} if tile.opcode == Opcode.POOL else {})
            tiles.append(Instruction(tile.opcode, **{**tile.fields, **flags}))
        return tiles

    # -- a cycle ------------------------------------------------------------------------------------------------------

    async def surround(self, ctx) -> None:
        """For ever: tokens now and then, weights and room after the pool unit; look at every cycle."""
        sequencer, before = self.sequencer, None
        if self.config.stochastic_rows:
            ctx.set(sequencer.stream_shift, SHIFT)
        while True:
            ready = {name: not self.pauses(self.scarce) for name in ("weights_ready", "pool_ready")}
            for name, value in ready.items():
                ctx.set(getattr(sequencer, name), value)
            for queue in self.levels:
                if self.levels[queue] < 3 and not self.pauses(self.scarce):
                    self.levels[queue] += 1
                ctx.set(getattr(sequencer, f"{queue}_level"), self.levels[queue])
            fill = {name.removeprefix("fill_"): getattr(sequencer, name) for name in sequencer.signature.members
                    if name.startswith("fill_")}
            _, reset, *sampled = await ctx.tick().sample(
                sequencer.issue, *sequencer.address, sequencer.load_take, sequencer.store_take, sequencer.post_load,
                sequencer.state, sequencer.error, sequencer.idle, sequencer.index, *fill.values())
            if reset:
                before = None
                continue
            issue, sampled = sampled[0], sampled[1:]
            address, sampled = sampled[:self.config.banks], sampled[self.config.banks:]
            load_take, store_take, post_load, state, error, idle, index = sampled[:7]
            for queue, take in (("load", load_take), ("store", store_take)):
                assert take <= self.levels[queue], f"a token of {queue} that is not there"
                self.levels[queue] -= take
                self.takes[queue] += take
            if error.valid:
                self.errors.append((error.code, error.index))
                continue
            now = {**ready, "busy": STATES[state] == "busy", "index": index, "idle": idle,
                   "fill": dict(zip(fill, sampled[7:], strict=True))}
            if before is not None:
                self.compare(issue, address, post_load, before, now)
            before = now

    def compare(self, issue, address, post_load, before, now) -> None:
        """An issue with the work that is next; ``before``: the cycle in which it was decided, which ``now`` reports."""
        config = self.config
        works = issue.gemm or issue.pool or (config.depthwise and issue.window)
        works = bool(works or (Accumulators.split(config) and issue.upper_gemm))
        if config.stochastic_rows and issue.stochastic:
            self.compare_streams(issue, address, works)
            if not works:
                assert now["busy"] and not post_load
                if issue.step_start:
                    self.start_step(before)
                return
        assert works == now["busy"]
        assert not (now["idle"] and (issue.gemm or issue.pool))
        starts = 0
        if works:
            assert self.work, "more than the program says"
            index, geometry, tile, wanted = self.work.pop(0)
            pool = tile.opcode == Opcode.POOL
            window = is_window(tile)
            starts = int(wanted.at_start and not pool)
            streams = not pool and tile["kind"] == StepKind.STOCHASTIC
            if streams and self.stays > 1:      # it has begun before
                starts = 0
            assert now["index"] == index
            found = {"pool": issue.pool, "gemm": issue.gemm, "step_start": issue.step_start, "post": post_load}
            assert found == {"pool": pool, "gemm": not pool and wanted.lower is not None, "step_start": starts,
                             "post": wanted.last and tile["post_load"]}
            assert {bank: address[bank] for bank in wanted.entries} == wanted.entries
            if wanted.first_bank is not None:
                assert (issue.turn + issue.lane) % config.banks == wanted.first_bank
            if pool:
                assert (issue.window_start, issue.window_end, issue.maximum) == (
                    wanted.at_start and not tile["resume"], wanted.last_tap and not tile["open"], tile["maximum"])
            else:
                self.compare_word(issue, geometry, tile, wanted)
            if pool and wanted.at_start:
                assert before["pool_ready"]
            kind = window, self.stays if streams else 0
            if self.kind not in (None, kind):
                assert self.cycle - self.issued_at[-1] - max(0, kind[1] - 1) > config.window_reads + 1
            self.kind = kind
            self.issued_at.append(self.cycle)
        else:
            assert not post_load and not issue.step_start
        if starts:
            self.start_step(before)
        elif before["fill"]["valid"]:
            self.compare_fill(before["fill"])

    def start_step(self, before) -> None:
        assert before["weights_ready"] and self.cycle - self.last_step >= self.min_step
        self.last_step = self.cycle
        self.compare_fill(before["fill"])
        self.started += 1

    def compare_streams(self, issue, address, last) -> None:
        """A cycle of a word of streams, whose ``last`` the loops count."""
        _, _, tile, wanted = self.work[0]
        made = max(tile["made"] - SHIFT, 0) + MIN_LENGTH_LOG
        self.stays = (1 << made) // self.config.stochastic_bits
        self.inside = 0 if issue.word_start else self.inside + 1
        assert (issue.length, issue.made) == (max(tile["length"] - SHIFT, 0) + MIN_LENGTH_LOG, made)
        assert last == (self.inside == self.stays - 1)
        assert issue.step_start == (wanted.at_start and issue.word_start)
        assert issue.stochastic_take == 1 << wanted.group
        assert {bank: address[bank] for bank in wanted.entries} == wanted.entries

    def compare_word(self, issue, geometry, tile, wanted) -> None:
        config = self.config
        if wanted.lower is not None:
            assert issue.acc_address == wanted.lower
        if Accumulators.split(config):
            assert issue.upper_gemm == (wanted.upper is not None)
            assert wanted.upper is None or issue.upper_address == wanted.upper
        assert (issue.first, issue.bank) == (tile["first"] and wanted.first_step, tile["bank"])
        assert issue.post_store == (wanted.last and tile["post_store"])
        if config.depthwise:
            assert (issue.spread, issue.alternate) == tuple(
                geometry["words"] == form for form in (WordForm.SPREAD, WordForm.ALTERNATE))
        if config.binary_rows:
            binary = tile["kind"] == StepKind.BINARY
            assert (issue.binary, issue.binary_take) == (binary, binary << wanted.group)

    def compare_fill(self, fill) -> None:
        """What the weight loader is told is the first step that has not started."""
        assert fill["valid"] and self.started < len(self.steps)
        tile, group = self.steps[self.started]
        assert (fill["kinds"], fill["group"]) == (flags_of_steps(self.config, tile), group)


@pytest.mark.parametrize("idle, scarce", [(0.0, 0.0), (0.7, 0.0), (0.0, 0.6), (0.4, 0.4)])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_tiles(name, idle, scarce, rng):
    """``scarce``: how often there are no weights, no tokens and no room after the pool unit."""
    bench = SequencerBench(CONFIGS[name], rng=rng, idle=idle, scarce=scarce)

    async def compare(ctx):
        bench.program(bench.random_tiles(3))
        await bench.cycles(ctx, 25)
        await bench.reset(ctx)
        bench.begin()
        assert ctx.get(bench.sequencer.idle)
        bench.program(bench.random_tiles(7))
        await bench.until(ctx, lambda: not bench.work)
        await bench.cycles(ctx, 3)
        assert ctx.get(bench.sequencer.idle) and bench.takes == bench.waits and bench.started == len(bench.steps)
        assert not bench.errors and ctx.get(bench.sequencer.state) == STATES.index("idle")

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("min_step", [1, 4, 9])
def test_rate(min_step, rng):
    """A word a cycle, ``min_step`` cycles a step at least, and no gap from one instruction to the next."""
    bench = SequencerBench(CONFIGS["one_pixel"], rng=rng, min_step=min_step)
    tiles = []
    for _ in range(7):
        # Long enough for the next two instructions to be taken from the queue meanwhile.
        geometry = random_geometry(bench.config, rng)
        geometry = Instruction(Opcode.COMPUTE_SET, **{**geometry.fields, "rows": 3})
        tiles += [geometry, random_tile(bench.config, rng, geometry)]

    async def compare(ctx):
        bench.program(tiles)
        cycle, last_step, expected = 0, -min_step, []
        for _, _, tile, work in bench.work:
            if work.at_start and tile.opcode == Opcode.COMPUTE:
                cycle = last_step = max(cycle, last_step + min_step)
            expected.append(cycle)
            cycle += 1
        await bench.until(ctx, lambda: not bench.work)
        assert [at - bench.issued_at[0] for at in bench.issued_at] == expected

    bench.run(compare, background=[bench.surround])


@pytest.mark.parametrize("words, code", [
    ([Instruction(Opcode.COMPUTE, blocks=1, groups=1)], ErrorCode.ILLEGAL),
    ([Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=3),
      Instruction(Opcode.COMPUTE, blocks=1, groups=1, buf_base=510)], ErrorCode.BUFFER),
    ([Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=3),
      Instruction(Opcode.COMPUTE, blocks=1, groups=1, buf_base=509)], None),
    ([Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=5, cols=13),
      Instruction(Opcode.COMPUTE, blocks=1, groups=1)], ErrorCode.BUFFER),
    ([Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=4, cols=16),
      Instruction(Opcode.COMPUTE, blocks=1, groups=1)], None),
    ([Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=4, cols=16),
      Instruction(Opcode.COMPUTE, blocks=1, groups=1, acc_base=1)], ErrorCode.BUFFER),
], ids=["no_geometry", "beyond_the_buffer", "last_entry", "beyond_the_bank", "last_word", "based_beyond_the_bank"])
def test_errors(words, code, rng):
    sequencer = TileSequencer(CONFIGS["one_pixel"], min_step=1, distance=1)
    bench = Bench(sequencer, rng=rng)

    async def compare(ctx):
        ctx.set(sequencer.weights_ready, 1)
        for index, word in enumerate(words, start=70):
            bench.to_send["queue"].append({"index": index, "word": int.from_bytes(encode(word), "little")})
        for _ in range(100):
            error = ctx.get(sequencer.error)
            if error.valid:
                assert (error.code, error.index) == (code, 70 + len(words) - 1)
                return
            await ctx.tick()
        assert code is None

    bench.run(compare)


@pytest.mark.parametrize("cycles", [0, 1, 4, 30])
def test_halt(cycles, rng):
    """Nothing is taken from the queue, and no instruction begins."""
    bench = SequencerBench(CONFIGS["one_pixel"], rng=rng)

    async def compare(ctx):
        bench.program(bench.random_tiles(8))
        await bench.cycles(ctx, cycles)
        ctx.set(bench.sequencer.halt, 1)
        halted = bench.cycle
        await bench.cycles(ctx, 300)
        for _ in range(len(bench.work)):        # an instruction that has begun may be a long one
            if bench.work[0][3].first_step and bench.work[0][3].at_start:
                break
            await bench.cycles(ctx, 10)
        assert all(at < halted for at in bench.sent_at["queue"])
        sent, left = len(bench.sent_at["queue"]), len(bench.work)
        await bench.cycles(ctx, 50)
        assert (sent, left) == (len(bench.sent_at["queue"]), len(bench.work))
        assert bench.work[0][3].first_step and bench.work[0][3].at_start, "an instruction that has begun ends"

    bench.run(compare, background=[bench.surround])


def test_halt_keeps_what_is_decoded(rng):
    """An instruction whose token comes after the halt does not take it."""
    sequencer = TileSequencer(CONFIGS["one_pixel"], min_step=1, distance=1)
    bench = Bench(sequencer, rng=rng)
    geometry = Instruction(Opcode.COMPUTE_SET, kernel_h=1, kernel_w=1, stride=1, rows=1, cols=3)

    async def compare(ctx):
        ctx.set(sequencer.weights_ready, 1)
        for word in (geometry, Instruction(Opcode.COMPUTE, blocks=1, groups=1, wait_load=1)):
            bench.to_send["queue"].append({"index": 7, "word": int.from_bytes(encode(word), "little")})
        await bench.cycles(ctx, 10)
        assert STATES[ctx.get(sequencer.state)] == "wait_load"
        ctx.set(sequencer.halt, 1)
        ctx.set(sequencer.load_level, 1)
        for _ in range(10):
            assert not ctx.get(sequencer.load_take) and not ctx.get(sequencer.issue.gemm)
            await ctx.tick()
        ctx.set(sequencer.halt, 0)
        for _ in range(TileLoops.PREPARE + 1):      # it is prepared, and its token taken a cycle after its start
            assert not ctx.get(sequencer.load_take)
            await ctx.tick()
        assert ctx.get(sequencer.load_take)

    bench.run(compare)


@pytest.mark.parametrize("name", ["min_step", "distance"])
def test_refuses_what_takes_no_cycles(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        TileSequencer(CONFIGS["one_pixel"], **{"min_step": 4, "distance": 3, name: 0})
