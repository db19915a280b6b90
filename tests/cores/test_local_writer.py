"""Local writer: beats of rows to neighbouring banks, tokens when they can be read, beats beyond the buffer."""

import pytest

from cores.arch.error_codes import ErrorCode
from cores.config import NpuConfig
from cores.load.buffer_writer import BufferWriter
from cores.store.local_writer import LocalWriter
from tests.cores.simulation import Bench, random_bits

CONFIGS = {
    "one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, local_store=1, input_depth=256),
    "two_banks": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, local_store=1, input_depth=256),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, local_store=1, input_depth=256),
}


class LocalBench(Bench):
    """Notes what is written, posted and reported, with the cycle of each."""

    def __init__(self, config, **options):
        self.config, self.writer = config, LocalWriter(config)
        super().__init__(self.writer, **options)
        self.kept, self.posts, self.errors = [], [], []

    async def note(self, ctx) -> None:
        writer = self.writer
        while True:
            _, reset, kept, posted, error = await ctx.tick().sample(writer.kept, writer.posted, writer.error)
            if reset:
                continue
            cycle = self.cycle - 1
            if kept.enable:
                assert kept.enable.bit_count() == 1
                self.kept.append((cycle, kept.enable.bit_length() - 1, kept.address, kept.payload))
            if posted:
                self.posts.append(cycle)
            if error.valid:
                assert error.code == ErrorCode.BUFFER
                self.errors.append((cycle, error.index))

    def random_store(self):
        """Runs of a STORE: rows beginning where they are told to, or following one another."""
        rng, rows = self.rng, int(self.rng.integers(1, 5))
        follows, post, index = bool(rng.integers(2)), int(rng.integers(2)), random_bits(rng, 24)
        beats = int(rng.choice([1, 2, 3, rng.integers(1, 20)]))
        base = int(rng.integers(self.config.input_depth - 100))
        bank = int(rng.integers(self.config.banks))
        return [{"entry": base + 20 * row, "bank": bank, "beats": beats, "one": int(beats == 1),
                 "follows": int(follows and row > 0), "last": int(row == rows - 1), "post": post, "index": index}
                for row in range(rows)]

    def expected(self, runs) -> list[tuple[int, int]]:
        """(bank, entry) of every beat."""
        places: list[tuple[int, int]] = []
        banks, entry, beat = self.config.banks, 0, 0
        for run in runs:
            if not run["follows"]:
                entry, beat = run["entry"], run["bank"]
            for _ in range(run["beats"]):
                places.append((beat % banks, entry + beat // banks))
                beat += 1
        return places


@pytest.mark.parametrize("idle", [0.0, 0.5])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_stores(name, idle, rng):
    """A beat a cycle, also from run to run; tokens come when the last beat can be read."""
    config = CONFIGS[name]
    bench = LocalBench(config, rng=rng, idle=idle)

    def offer(runs):
        beats = [random_bits(rng, config.beat_bits) for run in runs for _ in range(run["beats"])]
        bench.to_send["run"].extend(runs)
        bench.to_send["data"].extend(beats)
        return beats

    async def compare(ctx):
        offer([run for _ in range(5) for run in bench.random_store()])
        await bench.cycles(ctx, 15)
        await bench.reset(ctx)
        await bench.cycles(ctx, 5)
        for noted in (bench.kept, bench.posts, bench.errors):
            noted.clear()
        stores = [bench.random_store() for _ in range(30)]
        beats = offer([run for store in stores for run in store])
        await bench.until(ctx, lambda: len(bench.kept) == len(beats))
        await bench.cycles(ctx, 5)
        written = [(bank, entry) for store in stores for bank, entry in bench.expected(store)]
        assert [entry for _, *entry in bench.kept] == [
            [*place, beat] for place, beat in zip(written, beats, strict=True)]
        assert [cycle for cycle, *_ in bench.kept] == [at + LocalWriter.LATENCY for at in bench.sent_at["data"]]
        lasts, number = [], -1
        for store in stores:
            number += sum(run["beats"] for run in store)
            lasts += [bench.kept[number][0]] * store[0]["post"]
        assert bench.posts == [cycle + BufferWriter.latency(config) for cycle in lasts]
        assert not bench.errors
        if not idle:
            assert bench.sent_at["data"][-1] - bench.sent_at["data"][0] == len(beats) - 1

    bench.run(compare, background=[bench.note])


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("beyond", [0, 1])
def test_the_last_entry(name, beyond, rng):
    """A beat after it is reported as it is kept, whether its run went beyond or the one that it follows."""
    config = CONFIGS[name]
    bench = LocalBench(config, rng=rng)
    first = {"entry": config.input_depth - 2, "bank": 0, "beats": 2 * config.banks, "one": 0, "follows": 0, "last": 0,
             "post": 0, "index": 6}
    second = {**first, "index": 7, "beats": 1, "one": 1, "follows": beyond, "last": 1}

    async def compare(ctx):
        for run in (first, second):
            bench.to_send["run"].append(run)
            bench.to_send["data"].extend([5] * run["beats"])
        await bench.until(ctx, lambda: len(bench.sent_at["data"]) == first["beats"] + second["beats"])
        await bench.cycles(ctx, 3)
        assert bench.errors == ([(bench.kept[-1][0], 7)] if beyond else [])

    bench.run(compare, background=[bench.note])
