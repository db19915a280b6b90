"""Input buffer against arrays: neighbouring banks written at once, single bytes, flags, reads beside writes."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.buffers.input_buffer import InputBuffer
from cores.config import NpuConfig
from tests.cores.simulation import Bench
from tests.cores.store_values import pack

CONFIGS = {
    "one_bank": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, input_depth=256),
    "four_banks": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, input_depth=256),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=2, input_depth=256),
    "gather": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, input_depth=256),
    "binary": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=2, input_depth=256),
}
#: Entries that are used, so that reads meet writes.
ENTRIES = [*range(6), 255]


@pytest.mark.parametrize("name", CONFIGS)
def test_input_buffer(name, rng):
    """A write and a read a cycle; an entry that is written as it is read is read as it was."""
    config = CONFIGS[name]
    buffer = InputBuffer(config)
    banks, lanes, bits = config.banks, config.beat_bytes, config.activation_bits
    bench = Bench(buffer, rng=rng)

    async def use(ctx, cycles, values, zeros):
        """``values`` (banks, entries, lanes), -1 where a byte has not been written, and the flags of their halves."""
        under_way = []      # what was read, the latest last
        for _ in range(cycles):
            entry = int(rng.choice(ENTRIES))
            groups = range(0, banks, config.write_lanes)
            enabled = np.zeros(banks, bool)
            group = int(rng.choice(groups))
            enabled[group:group + config.write_lanes] = rng.random(config.write_lanes) < 0.7
            data = rng.integers(0, 1 << bits, (config.write_lanes, lanes))
            changed = (rng.random(lanes) < 0.5) if config.gather and rng.random() < 0.7 else np.ones(lanes, bool)
            zero = rng.integers(0, 2, (config.write_lanes, 2))
            ctx.set(buffer.write.enable, pack(enabled.astype(int), 1))
            ctx.set(buffer.write.address, entry)
            ctx.set(buffer.write.data, pack(data.ravel(), bits))
            if config.gather:
                ctx.set(buffer.write.bytes, pack(changed.astype(int), 1))
            if config.binary_rows:
                ctx.set(buffer.write.zero, pack(zero.ravel(), 1))
            read = rng.choice(ENTRIES, banks)
            expected = under_way.pop(0) if len(under_way) == InputBuffer.LATENCY else None
            for bank in range(banks):
                ctx.set(buffer.read_address[bank], int(read[bank]))
                if expected is not None:
                    found, (known, flags) = ctx.get(Value.cast(buffer.read_data[bank])), expected[bank]
                    of_lanes = np.array([found >> lane * bits & (1 << bits) - 1 for lane in range(lanes)])
                    assert ((of_lanes == known) | (known < 0)).all(), f"bank {bank}"
                    for half, flag in enumerate(flags) if config.binary_rows else ():
                        assert flag in (-1, ctx.get(buffer.read_zero[bank]) >> half & 1), f"bank {bank}"
            under_way.append([(values[bank, read[bank]].copy(), zeros[bank, read[bank]].copy())
                              for bank in range(banks)])
            for bank in np.flatnonzero(enabled):
                values[bank, entry] = np.where(changed, data[bank % config.write_lanes], values[bank, entry])
                for half, byte in enumerate((0, config.sign_bytes)):
                    if changed[byte]:
                        zeros[bank, entry, half] = zero[bank % config.write_lanes, half]
            await ctx.tick()

    async def compare(ctx):
        values, zeros = np.full((banks, 256, lanes), -1), np.full((banks, 256, 2), -1)
        await use(ctx, 100, values, zeros)
        ctx.set(buffer.write.enable, 0)
        await bench.reset(ctx)          # leaves what is written
        await use(ctx, 400, values, zeros)

    bench.run(compare)
