"""Maximum stage: the largest of each four values, or each value, with pauses."""

import numpy as np
import pytest

from cores.config import NpuConfig
from cores.store.maximum.maximum_stage import MaximumStage
from tests.cores.simulation import Bench


@pytest.mark.parametrize("pauses", [0.0, 0.5])
def test_maximum_stage(pauses, rng):
    """In use and not, one after the other; a beat a cycle; what makes none is said a cycle later."""
    config = NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, maximum=1)
    stage = MaximumStage(config)
    bench = Bench(stage, rng=rng)

    async def compare(ctx):
        for use in (1, 0, 1, 1, 0):
            ctx.set(stage.use, use)
            values = rng.choice([-128, -1, 0, 127, *rng.integers(-128, 128, 8)], (40, config.ic_lanes))
            found, single = [], 0
            for beat in [*values, *[None] * MaximumStage.LATENCY]:
                for given in [None] * (beat is not None and bench.pauses(pauses)) + [beat]:
                    ctx.set(stage.valid, given is not None)
                    for lane in range(config.ic_lanes):
                        ctx.set(stage.values[lane], int(rng.integers(-128, 128) if given is None else given[lane]))
                    _, _, valid, packed, *output = await ctx.tick().sample(
                        stage.output_valid, stage.packed, *stage.output)
                    single += packed
                    assert not (valid and packed)
                    found += [output] if valid else []
            expected = values.reshape(-1, 4, config.ic_lanes).max(axis=1) if use else values
            np.testing.assert_array_equal(found, expected)
            assert single == (3 * len(expected) if use else 0)

    bench.run(compare)
