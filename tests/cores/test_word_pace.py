"""Word pace: how long each word stays, at every length, whatever comes between."""

import pytest

from cores.arch.stochastic import LENGTH_BITS, MIN_LENGTH_LOG
from cores.compute.stochastic.word_pace import WordPace
from cores.config import NpuConfig
from tests.cores.simulation import Bench


@pytest.mark.parametrize("bits", [1, 8])
def test_words_stay_as_their_streams_are_made(bits, rng):
    pace = WordPace(NpuConfig.preset(16, stochastic_rows=2, stochastic_bits=bits, stochastic_circuit=5))
    bench, highest = Bench(pace, rng=rng), (1 << LENGTH_BITS) - 1

    async def word(ctx, cycles: int) -> None:
        """One word from its first cycle to its last."""
        ctx.set(pace.begin, int(cycles > 1))
        for cycle in range(cycles):
            assert ctx.get(pace.several) == (cycles > 1)
            assert ctx.get(pace.inside) == (cycle > 0)
            assert ctx.get(pace.may_go) == (cycle == cycles - 1)
            await bench.cycles(ctx, 1)
            ctx.set(pace.begin, 0)
        assert not ctx.get(pace.inside) and ctx.get(pace.may_go) == (cycles == 1)

    async def instruction(ctx, stochastic: int, length: int, made: int, shift: int) -> None:
        for name, value in {"stochastic": stochastic, "length": length, "made": made, "shift": shift,
                            "take": 1}.items():
            ctx.set(getattr(pace, name), value)
        await bench.cycles(ctx, 1)
        ctx.set(pace.take, 0)
        assert ctx.get(pace.same)
        ctx.set(pace.stochastic, 1 - stochastic)
        assert not ctx.get(pace.same)
        other = int(rng.integers(highest + 1))
        ctx.set(pace.stochastic, stochastic)
        ctx.set(pace.made, other)
        assert ctx.get(pace.same) == (not stochastic or max(other - shift, 0) == max(made - shift, 0))
        logs = [max(log - shift, 0) + MIN_LENGTH_LOG for log in (length, made)]
        assert [ctx.get(pace.length_log), ctx.get(pace.made_log)] == logs
        for _ in range(2):
            await word(ctx, (1 << logs[1]) // bits if stochastic else 1)
            await bench.cycles(ctx, int(rng.integers(3)))
        ctx.set(pace.done, 1)
        await bench.cycles(ctx, 1)
        ctx.set(pace.done, 0)
        assert not ctx.get(pace.may_go)

    async def compare(ctx):
        for made in range(highest + 1):
            await instruction(ctx, 1, int(rng.integers(made, highest + 1)), made, int(rng.integers(highest + 1)))
            await instruction(ctx, int(rng.integers(2)), highest, 0, 0)
        await instruction(ctx, 1, highest, highest, 0)
        ctx.set(pace.begin, 1)
        await bench.cycles(ctx, 3)
        await bench.reset(ctx)
        ctx.set(pace.begin, 0)
        assert not ctx.get(pace.inside)
        await instruction(ctx, 1, 0, 0, 0)

    bench.run(compare)
