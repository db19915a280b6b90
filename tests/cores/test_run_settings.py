"""Run settings against the bytes that the runs of a row take, for all kinds of rows."""

import pytest
from amaranth.hdl import Value

from cores.arch.instruction import Instruction, encode
from cores.arch.isa import EntryForm, Opcode
from cores.config import NpuConfig
from cores.load.gather.run_settings import RunSettings
from cores.load.gather.run_spans import SPAN_BITS
from tests.cores.instruction_samples import extent_of, setting_of, span_of
from tests.cores.simulation import Bench, random_bits

CONFIGS = {
    "8": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, gather=1),
    "one_pixel_binary": NpuConfig(oc_lanes=8, ic_lanes=8, nnz_lanes=1, pixel_lanes=1, gather=1, binary_rows=1),
    "32": NpuConfig(oc_lanes=32, ic_lanes=32, nnz_lanes=1, gather=1, binary_rows=1),
}


def plain_row(config, rng):
    """A LOAD_SET, and the settings after it."""
    form = EntryForm(rng.choice(list(EntryForm) if config.binary_rows else [EntryForm.BYTES]))
    fields = {"cols": int(rng.choice([1, 4095, rng.integers(1, 4096)])), "pad_left": int(rng.integers(16)),
              "pad_right": int(rng.integers(16)), "stride": 1, "form": form}
    width = fields["pad_left"] + fields["cols"] + fields["pad_right"]
    runs = {"outputs": width, "step": config.beat_bytes, "length": config.beat_bytes, "offset": 0, "skip": 0,
            "place": 0, "pairs": 0}
    if form != EntryForm.BYTES:
        # A pixel's signs are in its beat after those of the pixel before.
        count, pair = config.sign_bytes, int(form == EntryForm.SIGN_PAIRS)
        runs |= {"outputs": width - pair, "length": count * (1 + pair), "offset": 0 if pair else count, "skip": pair}
    return Instruction(Opcode.LOAD_SET, **fields), runs, {"left": fields["pad_left"], "width": width}


def gathered_row(config, rng, cols):
    """A LOAD_GATHER after a LOAD_SET of ``cols``, and the settings after it."""
    lanes = config.beat_bytes
    fields = {"outputs": int(rng.choice([1, 4095, rng.integers(1, 50)])), "length": int(rng.integers(1, 32)),
              "step": int(rng.integers(64)), "start": int(rng.integers(-32, 32)), "place": int(rng.integers(32)),
              "bytes": int(rng.choice([0, 65535, rng.integers(500)]))}
    length = min(fields["length"], lanes)
    left = max(0, -(fields["start"] // lanes))
    first = fields["start"] + left * lanes          # from the first beat, padding included
    beats = -(-(first + (fields["outputs"] - 1) * fields["step"] + length) // lanes)
    runs = {"outputs": fields["outputs"], "length": length, "step": fields["step"], "offset": first % lanes,
            "skip": first // lanes, "place": fields["place"] % lanes,
            "pairs": int(config.write_lanes > 1 and fields["step"] <= lanes)}
    return Instruction(Opcode.LOAD_GATHER, **fields), runs, {
        "left": left, "width": max(beats, left + cols), "data_beats": fields["bytes"] // lanes,
        "data_bytes": fields["bytes"] % lanes}


@pytest.mark.parametrize("name", CONFIGS)
def test_run_settings(name, rng):
    """Settings are good a cycle after LOAD_SET, two after LOAD_GATHER; other instructions change nothing."""
    config = CONFIGS[name]
    settings = RunSettings(config)
    bench = Bench(settings)

    async def take(ctx, instruction):
        ctx.set(Value.cast(settings.word), int.from_bytes(encode(instruction), "little"))
        ctx.set(settings.setting, setting_of(instruction.opcode))
        ctx.set(settings.extent, extent_of(instruction))
        if instruction.opcode == Opcode.LOAD_GATHER:
            ctx.set(settings.spans.valid, 1)
            ctx.set(settings.spans.payload, span_of(instruction, config.beat_bytes))
        _, _, taken = await ctx.tick().sample(settings.spans.ready)
        assert taken == (instruction.opcode == Opcode.LOAD_GATHER)
        ctx.set(settings.spans.valid, 0)
        ctx.set(settings.spans.payload, random_bits(rng, SPAN_BITS))
        ctx.set(settings.setting, {})
        ctx.set(Value.cast(settings.word), random_bits(rng, 128))

    async def compare(ctx):
        cols, gathering, runs, others = 1, 0, {}, {}
        for number in range(300):
            kind = rng.random()
            if number == 100:
                await take(ctx, gathered_row(config, rng, cols)[0])
                await bench.reset(ctx)
                assert ctx.get(settings.ready) and not ctx.get(settings.gathering)
            if not runs or number == 100 or kind < 0.4:
                instruction, runs, others = plain_row(config, rng)
                cols, gathering = instruction["cols"], 0
            elif kind < 0.8:
                instruction, runs, others = gathered_row(config, rng, cols)
                gathering = 1
            else:
                instruction = Instruction(Opcode.LOAD_WGT, offset=int(rng.integers(1 << 28)), beats=77)
            await take(ctx, instruction)
            if instruction.opcode == Opcode.LOAD_GATHER:
                assert not ctx.get(settings.ready)
                await ctx.tick()
            while True:
                assert ctx.get(settings.ready) and ctx.get(settings.gathering) == gathering
                found = ctx.get(settings.runs)
                assert {field: found[field] for field in runs} == runs, instruction
                assert {port: ctx.get(getattr(settings, port)) for port in others} == others, instruction
                if rng.random() < 0.5:
                    break
                await ctx.tick()

    bench.run(compare)
