"""Gathered path against the golden model: boxes of pixels, of signs and of gathered runs, behind one another."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.arch.isa import Instruction, Opcode, encode
from cores.config import NpuConfig
from cores.load.gather.gathered_path import GatheredPath
from sim.gather import gather_box
from sim.signs import pack_signs
from tests.cores.instruction_samples import extent_of, setting_of
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits
from tests.cores.store_values import pack

CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1),
    "pairs": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, local_store=1),
    "binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1),
}
#: Bytes of a beat in all of them.
LANES = 8


def random_box(config, rng):
    """LOAD_SET, LOAD_GATHER or None, LOAD_ACT."""
    gather = None
    fields = {"cols": rng.integers(1, 6), "stride": 1, "pad_left": rng.integers(4), "pad_right": rng.integers(4),
              "pad_value": rng.integers(-128, 128)}
    if config.binary_rows:
        fields |= {"sign": rng.integers(2), "pad_zero": rng.integers(2)}
    blocks = rng.integers(1, 4)
    if rng.random() < 0.6:
        length = int(rng.choice([1, 2, 4, 8]))
        gather = Instruction(
            Opcode.LOAD_GATHER, outputs=int(rng.integers(1, 9)), length=length, step=int(rng.integers(20)),
            start=int(rng.integers(-20, 20)), place=int(rng.integers(LANES // length) * length),
            bytes=int(rng.integers(8 * fields["cols"] + 9)))
    act = {"blocks": blocks, "rows": rng.integers(4), "pad_top": rng.integers(3), "pad_bottom": rng.integers(3)}
    act["pad_top"] += not any(act[name] for name in ("rows", "pad_top", "pad_bottom"))
    return (Instruction(Opcode.LOAD_SET, **{name: int(value) for name, value in fields.items()}), gather,
            Instruction(Opcode.LOAD_ACT, **{name: int(value) for name, value in act.items()}))


def expected_runs(config, geometry, gather, act, data):
    """(bytes that change, their values, zero flag, row_end, block_end, next_entry) of every run, in order."""
    blocks, height = act["blocks"], act["pad_top"] + act["rows"] + act["pad_bottom"]
    if gather is not None:
        runs = gather_box(config, geometry, gather, act, data)
        values, padding, places, widths = runs.values, runs.padding, runs.places, runs.widths
    else:
        pads = ((0, 0), (act["pad_top"], act["pad_bottom"]), (geometry["pad_left"], geometry["pad_right"]))
        padding = np.pad(np.zeros(data.shape[:3], bool), pads, constant_values=True)
        values = np.pad(data, (*pads, (0, 0)), constant_values=geometry["pad_value"])
        places, length = np.zeros(blocks, np.int64), LANES
        if geometry["sign"]:
            values, length = pack_signs(values).view(np.int8), LANES // 8
            places = np.arange(blocks) * length % LANES
        widths = np.full(blocks, length)
    length = values.shape[3]
    for block, row, output in np.ndindex(blocks, height, values.shape[2]):
        place, width = int(places[block]), int(widths[block])
        row_end = output == values.shape[2] - 1
        yield (((1 << width) - 1) << place, pack(values[block, row, output, :width], 8) << 8 * place,
               bool(padding[block, row, output]) and bool(geometry["pad_zero"]),
               row_end, row_end and row == height - 1, place + length >= LANES)


class PathBench(Bench):
    """Shows instructions, walks through boxes, compares what is placed, and its values `LATENCY` cycles behind."""

    def __init__(self, config, **options):
        self.config, self.path = config, GatheredPath(config)
        super().__init__(self.path, **options)

    async def _take(self, ctx, instruction: Instruction) -> None:
        ctx.set(Value.cast(self.path.word), int.from_bytes(encode(instruction), "little"))
        ctx.set(self.path.setting, setting_of(instruction.opcode))
        ctx.set(self.path.extent, extent_of(instruction))
        await ctx.tick()
        ctx.set(self.path.setting, {})

    async def box(self, ctx, geometry, gather, act, *, broken_off: int | None = None) -> None:
        path, rng, config = self.path, self.rng, self.config
        await self._take(ctx, geometry)
        # A LOAD_GATHER puts an end to ``sign``: `LoadDispatch` clears it.
        fields = {**geometry.fields, "sign": 0 if gather else geometry["sign"]}
        ctx.set(Value.cast(path.geometry), int.from_bytes(encode(Instruction(Opcode.LOAD_SET, **fields)), "little"))
        if gather is not None:
            await self._take(ctx, gather)
            assert not ctx.get(path.settled)
            await ctx.tick()
        assert ctx.get(path.settled)
        left, width, height = ctx.get(path.left), ctx.get(path.width), extent_of(act)
        box = {name: act[name] for name in ("blocks", "rows", "pad_top")} | {"height": height, "width": width}
        data = rng.integers(-128, 128, (box["blocks"], box["rows"], geometry["cols"], LANES)).astype(np.int8)
        runs = list(expected_runs(config, geometry, gather, act, data))
        walk = list(np.ndindex(box["blocks"], height, width))
        ctx.set(path.box, box)
        ctx.set(path.start, 1)
        await self._take(ctx, act)
        ctx.set(path.start, 0)
        # What sets out is placed a cycle behind, kept beats are not.
        under_way: list = [None] * (GatheredPath.LATENCY - 1)
        kept, finished, cycle = None, False, 0
        while walk or runs or not finished or any(under_way):
            if cycle == broken_off:
                return
            late, kept = kept, None
            if config.local_store:
                kept = {"enable": 1 << int(rng.integers(config.banks)), "payload": random_bits(rng, config.beat_bits)}
                kept = kept if self.pauses(self.stall) else None
                ctx.set(path.kept, kept or {"enable": 0})
            enter = {"valid": 0, "beat": random_bits(rng, 64), "is_data": 0}
            assert walk or not ctx.get(path.room), "the next box has not started"
            if ctx.get(path.room) and walk and not self.pauses(self.idle):
                block, row, col = walk.pop(0)
                row, column = row - box["pad_top"], col - left
                is_data = 0 <= row < box["rows"] and 0 <= column < geometry["cols"]
                row_end = col == width - 1
                block_end = row_end and row == height - box["pad_top"] - 1
                enter = {"valid": 1, "is_data": int(is_data), "row_end": int(row_end), "block_end": int(block_end),
                         "end": int(block_end and block == box["blocks"] - 1),
                         "beat": pack(data[block, row, column], 8) if is_data else random_bits(rng, 64)}
            ctx.set(path.enter, enter)
            self._compare_value(ctx, under_way.pop(0))
            under_way.append(late)
            placed = ctx.get(path.placed)
            if placed.lanes:
                assert not late
                of_cycle = [runs.pop(0) for _ in range(placed.lanes.bit_count())]
                assert placed.lanes == (1 << len(of_cycle)) - 1 and placed.run == (gather is not None)
                *_, row_end, block_end, next_entry = of_cycle[-1]
                assert placed.row_end == row_end
                if row_end:
                    assert placed.block_end == block_end and (not block_end or placed.next_entry == next_entry)
                under_way[-1] = of_cycle
            if ctx.get(path.finish):
                assert not finished and not walk and not runs
                finished = True
            await ctx.tick()
            cycle += 1
            assert cycle < 5000, "nothing more happens"

    def _compare_value(self, ctx, wanted) -> None:
        """``wanted``: a kept beat, or the runs that were placed."""
        value, bits = self.path.value, self.config.beat_bits
        if isinstance(wanted, dict):
            assert ctx.get(value.data) == wanted["payload"] * sum(1 << bits * n for n in range(self.config.write_lanes))
            assert ctx.get(value.bytes) == (1 << LANES) - 1
        elif wanted:
            assert ctx.get(value.bytes) == wanted[0][0]
            mask = sum(255 << 8 * byte for byte in range(LANES) if wanted[0][0] >> byte & 1)
            for number, (_, run, zero, *_) in enumerate(wanted):
                assert ctx.get(value.data) >> number * bits & mask == run
                if self.config.binary_rows:
                    assert ctx.get(value.zero) >> number & 1 == zero


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_gathered_path(name, idle, stall, rng):
    """``stall``: how often the store engine's beats go in front."""
    config = CONFIGS[name]
    bench = PathBench(config, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        for cycles in (3, 12):
            await bench.box(ctx, *random_box(config, rng), broken_off=cycles)
            await bench.reset(ctx)
        for _ in range(9):
            await bench.box(ctx, *random_box(config, rng))

    bench.run(compare)
