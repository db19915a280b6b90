"""Weight loader: steps of all kinds from a ring that fills as it likes, taken over as the engines do; rate, reset."""

import random
from dataclasses import dataclass

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge

from cores.arch.instruction_layout import kind_flags
from cores.arch.isa import StepKind
from cores.compute.weight_loader import WeightLoader
from cores.config import NpuConfig
from tests.bench import bench_parameters
from tests.cores.bus_models import start
from tests.cores.pins import value_of
from tests.cores.store_values import pack

CONFIG = NpuConfig.from_dict(bench_parameters()["config"])
TAKEN = bench_parameters()["taken"]
LANES, DN = CONFIG.oc_lanes * CONFIG.nnz_lanes, CONFIG.nnz_lanes
KINDS = [kind for kind in StepKind if not kind.unit or getattr(CONFIG, kind.unit)]
FLAGS = kind_flags(StepKind, CONFIG)


def beats_of(word: int, count: int) -> list[int]:
    return [word >> beat * CONFIG.beat_bits & (1 << CONFIG.beat_bits) - 1 for beat in range(count)]


@dataclass
class Step:
    kind: StepKind
    group: int
    beats: list[int]
    #: What the ports must show: weights and indices, or the weights of rows.
    values: tuple[int, ...]

    @classmethod
    def random(cls, rng: np.random.Generator) -> "Step":
        kind, group = StepKind(rng.choice(KINDS)), int(rng.integers(CONFIG.groups_dense))
        if kind in CONFIG.unit_rows:
            word = int.from_bytes(rng.bytes(CONFIG.unit_rows[kind] * CONFIG.beat_bytes), "little")
            return cls(kind, group, beats_of(word, CONFIG.unit_rows[kind]), (word,))
        weights = rng.integers(-8, 8, LANES) if kind.is_int4 else rng.integers(0, 1 << CONFIG.weight_bits, LANES)
        lanes = np.arange(LANES)
        bases = np.array([CONFIG.window_base(int(lane)) for lane in lanes % DN])
        if kind.has_indices:
            indices = rng.integers(0, CONFIG.select_fanin, LANES)
        elif kind == StepKind.WINDOW:
            indices = lanes // DN % CONFIG.ic_lanes
        else:
            indices = lanes % DN * CONFIG.groups_dense + group - bases
        values = pack(weights % (1 << CONFIG.weight_bits), CONFIG.weight_bits), pack(indices, CONFIG.index_bits)
        ahead = CONFIG.index_beats if kind.has_indices else 0
        beats = beats_of(values[1], ahead)
        beats += beats_of(pack(weights % 16, 4) if kind.is_int4 else values[0], CONFIG.step_beats(kind) - ahead)
        return cls(kind, group, beats, values)

    @property
    def taken(self) -> int:
        """Cycles from its start until its weights are copied."""
        if self.kind in CONFIG.unit_rows:
            return WeightLoader.rows_taken(CONFIG, self.kind)
        return TAKEN

    @property
    def flags(self) -> int:
        return FLAGS.const({trait: 1 for trait in self.kind.traits if trait in FLAGS.members}).as_bits()

    def due(self, copied: int) -> list[tuple[str, int]]:
        """The ports that show it, and in which cycle, when it is copied in cycle ``copied``."""
        if self.kind in CONFIG.unit_rows:
            return [(f"{self.kind.name.lower()}_rows", copied)]
        return [("weights", copied), ("indices", copied - 1)]


async def run(dut, steps: list[Step], *, idle: float, stall: float, cycles: int | None = None) -> list[int]:
    """``idle``: of the ring's source. ``stall``: of the engine, before it starts a step. Returns when steps started.

    Breaks off after ``cycles``.
    """
    feed = [(number, place, beat) for number, step in enumerate(steps) for place, beat in enumerate(step.beats)]
    taken, level = 0, 0
    starts: list[int] = []
    released_at = -1                    # of the latest start; none is under way after it
    checks: dict[int, list[tuple[str, int]]] = {}
    cycle = 0
    while (len(starts) < len(steps) or cycle <= released_at + 2) and (cycles is None or cycle < cycles):
        if level < min(CONFIG.weight_depth, len(feed) - taken) and random.random() >= idle:
            level = min(len(feed) - taken, level + (1 if idle else len(feed)), CONFIG.weight_depth)
        number, place, beat = feed[taken] if taken < len(feed) else (len(steps), 0, random.getrandbits(8))
        dut.level.value, dut.beats__valid.value = level, int(level > 0)
        dut.beats__payload.value = beat if level else random.getrandbits(CONFIG.beat_bits)
        # The first step that has not started is described, until its first beat is taken.
        described = steps[len(starts)] if len(starts) < len(steps) else None
        if place and number == len(starts):
            described = None
        dut.fill_valid.value = int(described is not None) or (random.getrandbits(1) if place else 0)
        dut.fill_kinds.value = random.getrandbits(FLAGS.size) if described is None else described.flags
        dut.fill_group.value = random.getrandbits(6) if described is None else described.group
        dut.release.value = int(cycle == released_at - 1)
        await FallingEdge(dut.clk)
        for port, value in checks.pop(cycle, []):
            found = value_of(dut[port])
            assert found == value, f"{port} of step {len(starts) - 1}: {found:x}, not {value:x}"
        if value_of(dut.ready) and cycle > released_at and random.random() >= stall:
            step = steps[len(starts)]
            released_at = cycle + step.taken
            for (port, when), value in zip(step.due(released_at), step.values, strict=True):
                checks.setdefault(when, []).append((port, value))
            starts.append(cycle)
        if level and value_of(dut.beats__ready):
            taken, level = taken + 1, level - 1
            assert place or number <= len(starts), "a beat of a step that is not described"
        await RisingEdge(dut.clk)
        cycle += 1
        assert cycle < 500_000
    dut.beats__valid.value = dut.fill_valid.value = dut.release.value = 0
    return starts


async def begin(dut) -> np.random.Generator:
    await start(dut, beats__valid=0, level=0, fill_valid=0, release=0)
    return np.random.default_rng(random.getrandbits(32))


@cocotb.test(timeout_time=2, timeout_unit="ms")
@cocotb.parametrize(idle=[0.0, 0.6], stall=[0.0, 0.8])
async def random_steps(dut, idle, stall):
    rng = await begin(dut)
    await run(dut, [Step.random(rng) for _ in range(120)], idle=idle, stall=stall)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def rate(dut):
    """From a full ring: a step for as many cycles as it has beats, or for as many as it takes the engine to take one
    over.
    """
    rng = await begin(dut)
    for kind in KINDS:
        steps = []
        while len(steps) < 12:
            step = Step.random(rng)
            if step.kind == kind:
                steps.append(step)
        starts = await run(dut, steps, idle=0.0, stall=0.0)
        distances, least = np.diff(starts), max(len(steps[0].beats), steps[0].taken + 1)
        assert (distances[1:] == least).all(), (kind, distances)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def reset_in_mid_stream(dut):
    for cycles in (1, 2, 4, 7, 15, 30):
        rng = await begin(dut)
        await run(dut, [Step.random(rng) for _ in range(20)], idle=0.2, stall=0.2, cycles=cycles)
        rng = await begin(dut)
        assert not value_of(dut.ready)
        await run(dut, [Step.random(rng) for _ in range(5)], idle=0.0, stall=0.0)
