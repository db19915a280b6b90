"""Stream source against the golden model's thresholds, and the marks beside them."""

import numpy as np
import pytest

from cores.arch.stochastic import Circuit, Sequence
from cores.compute.stochastic.stream_source import StreamSource
from sim.stochastic.streams import selected_input
from tests.cores.simulation import log_seed, simulate
from tests.cores.stochastic_values import random_streams


@pytest.mark.parametrize("circuit, inputs, bits", [
    (Circuit.XNOR_MUX, 16, 1), (Circuit.AND_LOOP, 4, 8), (Circuit.UGEMM, 8, 1), (Circuit.AND_SEP_OR, 32, 4)])
def test_thresholds(circuit, inputs, bits):
    rng = np.random.default_rng(log_seed())
    source = StreamSource(circuit=circuit, inputs=inputs, bits=bits)
    words = [random_streams(rng, most=256 if bits == 8 else 64) for _ in range(8)]
    starts, cycle = {}, 0
    for streams in words:
        starts[cycle] = streams
        cycle += streams.made // bits + int(rng.choice([0, 0, 1, 5]))

    async def bench(ctx):
        word, step = None, 0
        for now in range(cycle + 4):
            begun = starts.get(now - source.LATENCY)
            if begun:
                word, step = begun, 0
            assert ctx.get(source.fresh) == (now - 1 in starts)
            assert ctx.get(source.valid) == (word is not None)
            assert ctx.get(source.first) == (begun is not None)
            if word is not None:
                part = slice(step * bits, (step + 1) * bits)
                for sequence, port in ((Sequence.ACTIVATIONS, source.activations), (Sequence.WEIGHTS, source.weights)):
                    expected = word.thresholds(sequence, bipolar=circuit.bipolar)[part]
                    assert [ctx.get(port[bit]) for bit in range(bits)] == expected.tolist()
                assert [ctx.get(source.select.inputs[bit]) for bit in range(bits)] == selected_input(
                    word, inputs)[part].tolist()
                assert ctx.get(source.select.choose) == sum(
                    int(one) << bit for bit, one in enumerate(word.select()[part]))
                step += 1
                assert ctx.get(source.last) == (step * bits == word.made)
                word = None if step * bits == word.made else word
            streams = starts.get(now)
            ctx.set(source.start, streams is not None)
            ctx.set(source.length, streams.length.bit_length() - 1 if streams else int(rng.integers(11)))
            ctx.set(source.made, streams.made.bit_length() - 1 if streams else int(rng.integers(11)))
            await ctx.tick()

    simulate(source, bench)


@pytest.mark.parametrize("circuit, bits, message", [
    (Circuit.AND_LOOP, 3, "bits must be 1, 2, 4 or 8, not 3"),
    (Circuit.UGEMM, 2, "bits must be 1 with ugemm, whose bits depend on those before, not 2")])
def test_parameters(circuit, bits, message):
    with pytest.raises(ValueError, match=message):
        StreamSource(circuit=circuit, inputs=16, bits=bits)
