"""Buffer port: entries meet their values, tiles are written in between, tokens come with what can be read."""

import pytest

from cores.config import NpuConfig
from cores.load.buffer_port import BufferPort
from cores.load.winograd.tile_port import TilePort
from tests.cores.simulation import Bench, random_fields

CONFIGS = {
    "plain": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, input_depth=256),
    "gather": NpuConfig(oc_lanes=16, ic_lanes=8, nnz_lanes=4, depthwise=1, gather=1, binary_rows=2, input_depth=256),
    "winograd": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, gather=1, binary_rows=1, input_depth=256),
    "winograd_local": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, winograd=1, local_store=1, input_depth=256),
    "exact": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, winograd=2, local_store=1, input_depth=256),
}
#: Cycles between two tiles' tokens.
TILE_CYCLES = 16


def extended(config, value: int) -> int:
    """The int8 values of ``write_lanes`` beats as the buffer has them."""
    bits, mask = config.activation_bits, (1 << config.activation_bits) - 1
    return sum(((value >> 8 * lane & 255 ^ 128) - 128 & mask) << bits * lane
               for lane in range(config.write_lanes * config.ic_lanes))


@pytest.mark.parametrize("latency", [0, 1, 2])
@pytest.mark.parametrize("idle, entries_often", [(0.0, 1.0), (0.5, 0.6), (0.0, 0.3)])
@pytest.mark.parametrize("name", CONFIGS)
def test_buffer_port(name, latency, idle, entries_often, rng):
    """``entries_often``: in how many cycles an entry sets out. Without ``local_store`` none does while tiles come."""
    config = CONFIGS[name]
    port = TilePort(config, latency=latency) if config.winograd else BufferPort(config, latency=latency)
    bench = Bench(port, rng=rng, idle=idle)
    pending = 0         # tokens that have not come

    def written(ctx, entry, value, tile):
        """What the buffer's write port must say."""
        if entry["enable"]:
            return {"enable": entry["enable"], "address": entry["address"] & config.input_depth - 1,
                    "data": extended(config, value["data"]), **{name: value[name] for name in value if name != "data"}}
        if tile:
            copies = sum(1 << config.entry_bits * lane for lane in range(config.write_lanes))
            return {"enable": 1 << tile["bank"], "address": tile["address"], "data": tile["data"] * copies,
                    "bytes": (1 << config.beat_bytes) - 1, "zero": 0}
        return {"enable": 0}

    async def run(ctx, cycles, *, tiles):
        nonlocal pending
        nothing = {"enable": 0, "address": 0, "post": 0}
        under_way = [nothing] * latency
        for cycle in range(cycles + latency):
            entry = nothing
            if cycle < cycles and not (tiles and not config.local_store):
                enable = int(rng.integers(1, 1 << config.banks)) if rng.random() < entries_often else 0
                entry = random_fields(rng, port.entry.shape(), enable=enable, post=int(rng.random() < 0.1))
            value = random_fields(rng, port.value.shape())
            ctx.set(port.entry, entry)
            ctx.set(port.value, value)
            now, *under_way = [*under_way, entry]
            tile = None
            if tiles:
                if cycle % TILE_CYCLES == 0:
                    layout = port.tiles.payload.shape()
                    bench.to_send["tiles"].extend(
                        random_fields(rng, layout, bank=int(rng.integers(config.banks)), post=int(number == 7))
                        for number in range(8))
                tile = bench.to_send["tiles"][0] if ctx.get(port.tiles.valid) else None
                assert ctx.get(port.tiles.ready) == (not now["enable"] if config.local_store else 1)
                tile = tile if ctx.get(port.tiles.ready) else None
            for name, wanted in written(ctx, now, value, tile).items():
                if name in port.write.signature.members:
                    assert ctx.get(getattr(port.write, name)) == wanted, name
            assert ctx.get(port.busy) == any(other["enable"] for other in under_way)
            assert ctx.get(port.owed) == pending
            pending += now["post"] + (tile["post"] if tile else 0)
            assert ctx.get(port.post_compute) == (pending > 0)
            pending -= pending > 0
            await ctx.tick()
        ctx.set(port.entry, nothing)

    async def compare(ctx):
        nonlocal pending
        await run(ctx, 40, tiles=bool(config.winograd))
        await bench.reset(ctx)
        pending = 0
        for tiles in [False, bool(config.winograd)] * 2:
            await run(ctx, 80, tiles=tiles)
            await bench.until(ctx, lambda: not bench.to_send["tiles"])
            await bench.cycles(ctx, TILE_CYCLES)
            pending = 0
            assert not ctx.get(port.owed) and not ctx.get(port.busy)

    bench.run(compare)
