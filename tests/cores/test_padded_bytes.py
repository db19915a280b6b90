"""Padded bytes against NumPy: data, padding, both in a beat, and signs."""

import numpy as np
import pytest

from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from cores.load.gather.padded_bytes import PaddedBytes
from sim.signs import pack_signs
from tests.cores.simulation import random_bits, random_fields, simulate
from tests.cores.store_values import pack

CONFIGS = {
    "8": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1),
    "8_binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1),
    "32_binary": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1, gather=1, binary_rows=1),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_bytes(name, rng):
    config = CONFIGS[name]
    lanes, count, padded = config.beat_bytes, config.sign_bytes, PaddedBytes(config)
    layout = instruction_layout(Opcode.LOAD_SET)

    async def compare(ctx):
        before = there = None       # signs of the last beat that entered, and which count as present
        for _ in range(300):
            values = rng.integers(-128, 128, lanes).astype(np.int8)
            pad_value = int(rng.choice([-128, -1, 0, 127, rng.integers(-128, 128)]))
            form = EntryForm(rng.choice(list(EntryForm) if config.binary_rows else [EntryForm.BYTES]))
            signs, pad_zero = form != EntryForm.BYTES, int(rng.integers(2))
            # A pixel's signs are of data or of padding as a whole.
            data = np.full(lanes, rng.integers(2)) if signs or rng.random() < 0.3 else rng.integers(0, 2, lanes)
            geometry = random_fields(rng, layout, pad_value=pad_value, form=form, pad_zero=pad_zero)
            ctx.set(padded.beat, pack(values, 8))
            ctx.set(padded.data, pack(data, 1))
            enters = int(rng.integers(2))
            if config.binary_rows:
                ctx.set(padded.enter, enters)
            for _ in range(PaddedBytes.LATENCY):
                await ctx.tick()
                if config.binary_rows:
                    ctx.set(padded.enter, 0)
                ctx.set(padded.beat, random_bits(rng, config.beat_bits))
                ctx.set(padded.data, random_bits(rng, lanes))
            ctx.set(padded.geometry, geometry)
            expected = np.where(data, values, pad_value).astype(np.int8)
            present = data if pad_zero else np.ones(lanes, np.int64)
            if signs:
                # They are after those of the beat that entered before.
                own = pack_signs(expected).view(np.int8)
                expected[:2 * count] = np.concatenate([own if before is None else before, own])
                present = np.concatenate([present[:count] if there is None else there, present[count:]])
            known = slice(count if signs and before is None else 0, lanes)
            found = np.array([ctx.get(padded.bytes[lane]) for lane in range(lanes)], np.uint8).view(np.int8)
            np.testing.assert_array_equal(found[known], expected[known], (data, form))
            if config.binary_rows:
                there_now = np.array([ctx.get(padded.present) >> lane & 1 for lane in range(lanes)])
                np.testing.assert_array_equal(there_now[known], present[known])
                await ctx.tick()
                before = (expected[count:2 * count] if signs else None) if enters else before
                there = (present[count:2 * count] if signs else None) if enters else there

    simulate(padded, compare)
