"""Value table: loaded from a stream that pauses, then looked up in, or not."""

import numpy as np
import pytest
from amaranth.hdl import Cat

from cores.config import NpuConfig
from cores.store.value_table import ValueTable
from sim.store_operations import look_up
from sim.table import pack_table
from tests.cores.simulation import Bench

CONFIGS = {str(lanes): NpuConfig(oc_lanes=lanes, ic_lanes=lanes, nnz_lanes=1, table=1) for lanes in (8, 16, 32)}


class TableBench(Bench):
    def __init__(self, config, **options):
        self.table, self.config = ValueTable(config), config
        self._input, self._output = Cat(*self.table.values, self.table.valid), Cat(*self.table.output)
        super().__init__(self.table, **options)

    async def load(self, ctx, values, disabled=0.0):
        """A table, whose beats wait in the stream; returns the cycles from the first beat to ``loaded``."""
        beats = [int.from_bytes(beat.tobytes(), "little") for beat in pack_table(values, self.config.beat_bytes)]
        self.to_send["beats"].extend(beats)
        loaded, begin = False, self.cycle
        while not loaded:
            ctx.set(self.table.enable, not self.pauses(disabled))
            _, _, loaded = await ctx.tick().sample(self.table.loaded)
            assert self.cycle - begin < 10_000
        ctx.set(self.table.enable, 0)
        assert not self.to_send["beats"]
        await ctx.tick()

    async def look_up(self, ctx, beats, use):
        """``beats`` (N, lanes) with pauses; what comes out, and when it went in and came."""
        found, sent, came = [], [], []
        ctx.set(self.table.use, use)
        for beat in [*beats, *[None] * ValueTable.LATENCY]:
            while beat is not None and self.pauses(0.3):
                await self._cycle(ctx, None, found, came)
            if beat is not None:
                sent.append(self.cycle)
            await self._cycle(ctx, beat, found, came)
        assert [at - ValueTable.LATENCY for at in came] == sent
        return np.array(found, np.int8)

    async def _cycle(self, ctx, beat, found, came):
        values = self.rng.integers(-128, 128, self.config.ic_lanes) if beat is None else beat
        # All at once: the design settles after each `set`.
        ctx.set(self._input, int.from_bytes(values.astype(np.int8).tobytes(), "little")
                | (beat is not None) << 8 * len(values))
        now = self.cycle
        _, _, valid, output = await ctx.tick().sample(self.table.output_valid, self._output)
        if valid:
            found.append(np.frombuffer(output.to_bytes(self.config.ic_lanes, "little"), np.int8))
            came.append(now)


@pytest.mark.slow
@pytest.mark.parametrize("idle, disabled", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.4, 0.4)])
@pytest.mark.parametrize("name", CONFIGS)
def test_value_table(name, idle, disabled, rng):
    """Every value in every lane; tables one after the other; a reset in the middle of one."""
    config = CONFIGS[name]
    bench = TableBench(config, rng=rng, idle=idle)
    values = np.stack([rng.permutation(256) - 128 for _ in range(config.ic_lanes)], axis=1)

    async def compare(ctx):
        ctx.set(bench.table.enable, 1)      # broken off
        bench.to_send["beats"].extend([0, 0])
        await bench.until(ctx, lambda: len(bench.sent_at["beats"]) == 1)
        ctx.set(bench.table.enable, 0)
        await bench.reset(ctx)
        for _ in range(2):
            table = rng.integers(-128, 128, 256).astype(np.int8)
            await bench.load(ctx, table, disabled)
            if not idle and not disabled:
                at = bench.sent_at["beats"][-ValueTable.load_beats(config):]
                assert set(np.diff(at)) == {ValueTable.load_cycles(config)}
            np.testing.assert_array_equal(await bench.look_up(ctx, values, 1), look_up(values, table))
            np.testing.assert_array_equal(await bench.look_up(ctx, values[:20], 0), values[:20])

    bench.run(compare)
