"""Stochastic lane: bits that are no number's, against the circuits' rules in a few lines."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from cores.compute.stochastic.stochastic_lane import StochasticLane
from tests.cores.simulation import log_seed, simulate


def signs(values: np.ndarray) -> np.ndarray:
    """What blocks of four give that hold the rest: (bits, blocks) -> (bits, blocks)."""
    held, out = np.zeros(values.shape[1], int), []
    for value in values:
        held = held + value
        out.append(np.sign(held))
        held = held - out[-1]
    return np.array(out)


def expected(circuit: Circuit, a, w, negative, choose, chosen) -> int:
    """``a``, ``w`` (bits, N), ``negative`` (N), ``choose``, ``chosen`` (bits,)."""
    both, equal = a & w, a == w
    positive, minus = (both & ~negative).sum(1), (both & negative).sum(1)

    def stream(added, halves=1):
        held, out = 0, []
        for value in added:
            held += value
            out.append(held >= halves)
            held -= halves * out[-1]
        return np.array(out)

    match circuit:
        case Circuit.XNOR_MUX:
            return a.shape[1] * (2 * equal[np.arange(len(a)), chosen].astype(int) - 1).sum()
        case Circuit.AND_SEP_OR:
            return (2 * np.where(choose, positive > 0, minus == 0).astype(int) - 1).sum()
        case Circuit.AND_SEP_COUNTER:
            return (2 * np.where(choose, stream(positive), ~stream(minus)).astype(int) - 1).sum()
        case Circuit.UGEMM:
            return (2 * stream(2 * equal.sum(1) - (a.shape[1] - 1), 2).astype(int) - 1).sum()
        case Circuit.AND_ACC:
            return signs(np.where(negative, -1, 1 )[None] * both @ np.kron(np.eye(a.shape[1] // 4, dtype=int),
                                                                          np.ones((4, 1), int))).sum()
        case _:
            return (positive - minus).sum()


@pytest.mark.parametrize("circuit, inputs, bits", [
    *((circuit, 16, 1) for circuit in Circuit), (Circuit.XNOR_MUX, 8, 2), (Circuit.AND_SEP_OR, 4, 8),
    (Circuit.AND_LOOP, 8, 4)])
def test_sums(circuit, inputs, bits):
    rng = np.random.default_rng(log_seed())
    lane = StochasticLane(circuit=circuit, inputs=inputs, bits=bits)
    due = lane.timing(circuit, inputs=inputs, bits=bits)
    ports, sums, cycle = {}, {}, 0
    for _ in range(10):
        steps = int(rng.choice([1, 2, 8, 40]))
        share = rng.random(3)
        a, w = (rng.random((steps * bits, inputs)) < part for part in share[:2])
        negative = rng.random(inputs) < share[2]
        choose, chosen = rng.random(len(a)) < 0.5, rng.integers(inputs, size=len(a))
        for step in range(steps):
            part = slice(step * bits, (step + 1) * bits)
            for after, values in (
                    (0, {"activations": a[part], "weights": w[part], "negative": negative}),
                    (due.held, {"first_held": step == 0}), (due.select, {"select": (choose[part], chosen[part])}),
                    (due.counted, {"first": step == 0, "valid": 1})):
                ports.setdefault(cycle + step + after, {}).update(values)
        cycle += steps
        sums[cycle - 1 + due.counted + 1] = expected(circuit, a, w, negative, choose, chosen)
        cycle += int(rng.choice([0, 0, 3]))

    def word(values) -> int:
        return sum(int(bit) << number for number, bit in enumerate(values))

    async def bench(ctx):
        for now in range(max(sums) + 1):
            if now in sums:
                assert ctx.get(lane.count) == sums[now]
            values = ports.get(now, {})
            for name in ("activations", "weights"):
                for bit, one in enumerate(values.get(name, [])):
                    ctx.set(getattr(lane, name)[bit], word(one))
            if "negative" in values:
                ctx.set(lane.negative, word(values["negative"]))
            if "select" in values:
                ctx.set(lane.select.choose, word(values["select"][0]))
                for bit, one in enumerate(values["select"][1]):
                    ctx.set(lane.select.inputs[bit], int(one))
            for name in ("first_held", "first", "valid"):
                ctx.set(getattr(lane, name), int(values.get(name, 0)))
            await ctx.tick()

    simulate(lane, bench)


def test_inputs():
    with pytest.raises(ValueError, match="inputs must be 4, 8, 16 or 32, not 12"):
        StochasticLane(circuit=Circuit.AND_LOOP, inputs=12, bits=1)
