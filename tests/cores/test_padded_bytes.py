"""Padded bytes against NumPy: data, padding, both in a beat, and signs."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.arch.instruction_layout import instruction_layout
from cores.arch.isa import Opcode
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
    lanes, padded = config.beat_bytes, PaddedBytes(config)
    layout = instruction_layout(Opcode.LOAD_SET)

    async def compare(ctx):
        for _ in range(300):
            values = rng.integers(-128, 128, lanes).astype(np.int8)
            pad_value = int(rng.choice([-128, -1, 0, 127, rng.integers(-128, 128)]))
            sign, pad_zero = (int(flag) for flag in rng.integers(0, 2, 2))
            signs = sign and config.binary_rows
            # A pixel's signs are of data or of padding as a whole.
            data = np.full(lanes, rng.integers(2)) if signs or rng.random() < 0.3 else rng.integers(0, 2, lanes)
            geometry = random_fields(rng, layout, pad_value=pad_value, sign=sign, pad_zero=pad_zero)
            ctx.set(padded.beat, pack(values, 8))
            ctx.set(padded.data, pack(data, 1))
            for _ in range(PaddedBytes.LATENCY):
                await ctx.tick()
                ctx.set(padded.beat, random_bits(rng, config.beat_bits))
                ctx.set(padded.data, random_bits(rng, lanes))
            ctx.set(padded.geometry, geometry)
            expected = np.where(data, values, pad_value).astype(np.int8)
            if signs:
                expected[:lanes // 8] = pack_signs(expected).view(np.int8)
            assert ctx.get(Value.cast(padded.bytes)) == pack(expected, 8), (data, sign)
            if config.binary_rows:
                assert ctx.get(padded.present) == (pack(data, 1) if pad_zero else (1 << lanes) - 1)

    simulate(padded, compare)
