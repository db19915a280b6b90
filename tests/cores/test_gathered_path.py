"""Gathered path against the golden model: boxes of pixels, of signs and of gathered runs, one after the other."""

import numpy as np
import pytest
from amaranth.hdl import Value

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from cores.load.gather.gathered_path import GatheredPath
from cores.load.padded_walk import PaddedWalk
from sim.gather import gather_box
from sim.signs import sign_runs
from tests.cores.instruction_samples import extent_of, setting_of, span_of
from tests.cores.simulation import IDLE_AND_STALL, Bench, random_bits
from tests.cores.store_values import pack

CONFIGS = {
    "one_pixel": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1),
    "pairs": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, local_store=1),
    "binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1, binary_rows=1),
}
#: Bytes of a beat in all of them.
LANES = 8


def random_boxes(config, rng):
    """LOAD_SET, LOAD_GATHER or None, LOAD_ACTs."""
    gather = None
    fields = {"cols": rng.integers(1, 6), "stride": 1, "pad_left": rng.integers(4), "pad_right": rng.integers(4),
              "pad_value": rng.integers(-128, 128)}
    if config.binary_rows:
        fields |= {"form": rng.choice(list(EntryForm)), "pad_zero": rng.integers(2)}
        fields["cols"] += fields["form"] == EntryForm.SIGN_PAIRS
    if rng.random() < 0.6:
        length = int(rng.choice([1, 2, 4, 8]))
        gather = Instruction(
            Opcode.LOAD_GATHER, outputs=int(rng.integers(1, 9)), length=length, step=int(rng.integers(20)),
            start=int(rng.integers(-20, 20)), place=int(rng.integers(LANES // length) * length),
            bytes=int(rng.integers(8 * fields["cols"] + 9)))
    acts = []
    for _ in range(rng.integers(1, 4)):
        act = {"blocks": rng.integers(1, 4), "rows": rng.integers(4), "pad_top": rng.integers(3),
               "pad_bottom": rng.integers(3), "buf_base": rng.integers(1 << 14), "post_compute": rng.integers(2)}
        act["pad_top"] += not any(act[name] for name in ("rows", "pad_top", "pad_bottom"))
        acts.append(Instruction(Opcode.LOAD_ACT, **{name: int(value) for name, value in act.items()}))
    return Instruction(Opcode.LOAD_SET, **{name: int(value) for name, value in fields.items()}), gather, acts


def expected_runs(config, geometry, gather, act, data):
    """(bytes that change, their values, zero flags, row_end, block_end, next_entry) of every run, in order."""
    blocks, height = act["blocks"], act["pad_top"] + act["rows"] + act["pad_bottom"]
    if gather is not None:
        runs = gather_box(config, geometry, gather, act, data)
        values, padding, places, widths = runs.values, runs.padding, runs.places, runs.widths
    else:
        pads = ((0, 0), (act["pad_top"], act["pad_bottom"]), (geometry["pad_left"], geometry["pad_right"]))
        padding = np.pad(np.zeros(data.shape[:3], bool), pads, constant_values=True)
        values = np.pad(data, (*pads, (0, 0)), constant_values=geometry["pad_value"])
        places, length = np.zeros(blocks, np.int64), LANES
        if geometry["form"] != EntryForm.BYTES:
            values, padding = sign_runs(values, padding, pair=geometry["form"] == EntryForm.SIGN_PAIRS)
            length = values.shape[-1]
            places = np.arange(blocks) * length % LANES
        else:
            padding = np.stack([padding] * 2, axis=-1)
        widths = np.full(blocks, length)
    length = values.shape[3]
    for block, row, output in np.ndindex(blocks, height, values.shape[2]):
        place, width = int(places[block]), int(widths[block])
        row_end = output == values.shape[2] - 1
        yield (((1 << width) - 1) << place, pack(values[block, row, output, :width], 8) << 8 * place,
               padding[block, row, output] & bool(geometry["pad_zero"]),
               row_end, row_end and row == height - 1, place + length >= LANES)


class PathBench(Bench):
    """Shows instructions, announces boxes and walks through them; compares what is placed, and where, and its values
    `LATENCY` cycles later.
    """

    def __init__(self, config, **options):
        self.config, self.path = config, GatheredPath(config)
        super().__init__(self.path, **options)

    async def _take(self, ctx, instruction: Instruction) -> None:
        ctx.set(Value.cast(self.path.word), int.from_bytes(encode(instruction), "little"))
        ctx.set(self.path.extent, extent_of(instruction))
        if instruction.opcode == Opcode.LOAD_GATHER:
            self.to_send["spans"].append(span_of(instruction, LANES))
            await self.until(ctx, lambda: ctx.get(self.path.spans.valid))
        ctx.set(self.path.setting, setting_of(instruction.opcode))
        await ctx.tick()
        ctx.set(self.path.setting, {})

    async def _set(self, ctx, geometry, gather) -> None:
        path = self.path
        assert ctx.get(path.drained)
        await self._take(ctx, geometry)
        # A LOAD_GATHER has entries of bytes, whatever they were: `LoadDispatch` sees to it.
        fields = {**geometry.fields, "form": EntryForm.BYTES if gather else geometry["form"]}
        ctx.set(Value.cast(path.geometry), int.from_bytes(encode(Instruction(Opcode.LOAD_SET, **fields)), "little"))
        if gather is not None:
            await self._take(ctx, gather)
            assert not ctx.get(path.settled)
            await ctx.tick()
        assert ctx.get(path.settled)

    def _announce(self, ctx, geometry, gather, acts) -> tuple[list, list]:
        """The pixels of each box (fields of ``enter``), and its runs."""
        left, width, pixels, runs = ctx.get(self.path.left), ctx.get(self.path.width), [], []
        for index, act in enumerate(acts):
            height = extent_of(act)
            self.to_send["boxes"].append({"blocks": act["blocks"], "rows": height, "base": act["buf_base"],
                                          "index": index, "post": act["post_compute"]})
            data = self.rng.integers(-128, 128, (act["blocks"], act["rows"], geometry["cols"], LANES)).astype(np.int8)
            runs.append(list(expected_runs(self.config, geometry, gather, act, data)))
            pixels.append([])
            for block, row, col in np.ndindex(act["blocks"], height, width):
                source, column, row_end = row - act["pad_top"], col - left, col == width - 1
                is_data = 0 <= source < act["rows"] and 0 <= column < geometry["cols"]
                pixels[-1].append({
                    "valid": 1, "is_data": int(is_data), "row_end": int(row_end),
                    "block_end": int(row_end and row == height - 1),
                    "beat": pack(data[block, source, column], 8) if is_data else random_bits(self.rng, 64)})
        return pixels, runs

    def _pixel(self, ctx, pixels: list, known: int) -> dict:
        """What enters in this cycle. A box's first pixel comes as the walk has it, some cycles after its box."""
        while pixels and not pixels[0]:
            pixels.pop(0)
        sent = self.sent_at["boxes"][known:]
        box = len(self.acts) - len(pixels)
        if (pixels and box < len(sent) and self.cycle >= sent[box] + PaddedWalk.LATENCY and ctx.get(self.path.room)
                and not self.pauses(self.idle)):
            return pixels[0].pop(0)
        return {"valid": 0, "beat": random_bits(self.rng, 64), "is_data": 0}

    async def boxes(self, ctx, geometry, gather, acts, *, broken_off: int | None = None) -> None:
        path, rng, config, known = self.path, self.rng, self.config, len(self.sent_at["boxes"])
        self.acts = acts
        await self._set(ctx, geometry, gather)
        pixels, runs = self._announce(ctx, geometry, gather, acts)
        # What sets out is placed a cycle later, kept beats are not.
        under_way: list = [None] * (GatheredPath.LATENCY - 1)
        kept, begun, cycle = None, -1, 0
        while any(pixels) or any(runs) or any(under_way):
            if cycle == broken_off:
                break
            late, kept = kept, None
            if config.local_store:
                kept = {"enable": 1 << int(rng.integers(config.banks)), "payload": random_bits(rng, config.beat_bits)}
                kept = kept if self.pauses(self.stall) else None
                ctx.set(path.kept, kept or {"enable": 0})
            ctx.set(path.enter, self._pixel(ctx, pixels, known))
            self._compare_value(ctx, under_way.pop(0))
            under_way.append(late)
            placed, posts = ctx.get(path.placed), 0
            if placed.lanes:
                assert not late and ctx.get(path.index) == begun and not ctx.get(path.idle)
                of_cycle = [runs[begun].pop(0) for _ in range(placed.lanes.bit_count())]
                assert placed.lanes == (1 << len(of_cycle)) - 1 and placed.run == (gather is not None)
                *_, row_end, block_end, next_entry = of_cycle[-1]
                assert placed.row_end == row_end
                if row_end:
                    assert placed.block_end == block_end and (not block_end or placed.next_entry == next_entry)
                under_way[-1] = of_cycle
                posts = not runs[begun] and acts[begun]["post_compute"]
            assert ctx.get(path.post) == posts
            if ctx.get(path.begin):
                assert begun < 0 or not runs[begun]
                begun += 1
                assert ctx.get(path.base) == acts[begun]["buf_base"]
            await ctx.tick()
            cycle += 1
            assert cycle < 5000, "nothing more happens"
        ctx.set(path.enter, {"valid": 0})
        if config.local_store:
            ctx.set(path.kept, {"enable": 0})

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
                for half in range(2) if self.config.binary_rows else ():
                    if wanted[0][0] >> half * self.config.sign_bytes & 1:
                        assert ctx.get(value.zero) >> 2 * number + half & 1 == zero[half]


@IDLE_AND_STALL
@pytest.mark.parametrize("name", CONFIGS)
def test_gathered_path(name, idle, stall, rng):
    """``stall``: how often the store engine's beats go in front."""
    config = CONFIGS[name]
    bench = PathBench(config, rng=rng, idle=idle, stall=stall)

    async def compare(ctx):
        for cycles in (3, 12):
            await bench.boxes(ctx, *random_boxes(config, rng), broken_off=cycles)
            await bench.reset(ctx)
        for _ in range(6):
            await bench.boxes(ctx, *random_boxes(config, rng))

    bench.run(compare)
