"""COMPUTEs and POOLs at random, and the loops that they are: what docs/architecture.md says of every cycle."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.instruction_layout import kind_flags
from cores.arch.isa import Opcode, StepKind, WordForm
from cores.config import NpuConfig
from sim.storage import entry_places

__all__ = ["LoopCycle", "flags_of_steps", "is_window", "loop_cycles", "random_geometry", "random_tile"]


@dataclass(frozen=True, kw_only=True)
class LoopCycle:
    """A cycle's work. ``entries``: which entry of which bank it reads; others may be read too.

    ``first_bank``: of the word's first pixel, unless it is a read of a window. ``lower`` and ``upper``: the
    accumulator words of either group of output lanes, None where it has none.
    """

    entries: dict[int, int]
    first_bank: int | None
    at_start: bool
    last: bool
    first_step: bool
    last_step: bool
    last_tap: bool
    group: int
    next_group: int
    lower: int | None
    upper: int | None


def random_geometry(config: NpuConfig, rng: np.random.Generator) -> Instruction:
    """A COMPUTE_SET of few rows and columns; with ``depthwise`` often of words that groups share."""
    fields = {
        "kernel_h": rng.integers(1, 4), "kernel_w": rng.integers(1, 4), "stride": rng.integers(1, 4),
        "rows": rng.integers(1, 4), "cols": rng.integers(1, 10), "buf_row_pitch": rng.integers(0, 20),
        "buf_row_step": rng.integers(0, 30), "buf_block_pitch": rng.integers(0, 60)}
    shared = [WordForm.SPREAD] * 2 * config.depthwise + [WordForm.ALTERNATE] * (config.gathered_taps > 0)
    form = WordForm(rng.choice([WordForm.PIXELS, *shared]))
    if form != WordForm.PIXELS:
        words = -(-fields["cols"] // (config.banks if form == WordForm.SPREAD else config.pixel_lanes))
        fields |= {"words": form, "shift": form == WordForm.ALTERNATE and rng.integers(2),
                   "reads": words + rng.integers(0, config.window_reads)}
        if form == WordForm.ALTERNATE or rng.random() < 0.7:
            fields["stride"] = rng.integers(1, 4) if config.own_taps else 1     # windows are of neighbours, in a phase
    return Instruction(Opcode.COMPUTE_SET, **{name: int(value) for name, value in fields.items()})


def _random_kind(config: NpuConfig, rng: np.random.Generator, geometry: Instruction) -> StepKind:
    """Of steps that may have the ``geometry``."""
    kinds = [StepKind.DENSE, StepKind.INDEXED]
    match geometry["words"]:
        case WordForm.ALTERNATE:
            kinds = [StepKind.WINDOW]
        case WordForm.SPREAD:
            kinds += [StepKind.WINDOW] * 4 if config.own_taps or geometry["stride"] == 1 else []
        case _:
            kinds += [StepKind.BINARY] * 2 if config.binary_rows else []
            kinds += [StepKind.STOCHASTIC] * 2 if config.stochastic_rows else []
    return StepKind(rng.choice(kinds))


def random_tile(config: NpuConfig, rng: np.random.Generator, geometry: Instruction, **fields: int) -> Instruction:
    """A COMPUTE or, now and then, a POOL with the ``geometry``; ``fields`` of it that are not random."""
    pool = rng.random() < 0.3
    chosen = {"buf_base": rng.integers(0, 40), "blocks": rng.integers(1, 4)}
    if not pool:
        kind = _random_kind(config, rng, geometry)
        chosen |= {"kind": kind, "groups": rng.integers(1, 4), "first": rng.integers(2), "bank": rng.integers(2)}
        if config.winograd:
            chosen["acc_base"] = rng.integers(0, 20)
        match kind:
            case StepKind.WINDOW:
                chosen |= {"blocks": 1, "groups": 1}
            case StepKind.BINARY:
                chosen["groups"] = config.binary_groups
            case StepKind.STOCHASTIC:
                length = int(rng.integers(4))
                chosen |= {"length": length, "made": rng.integers(length + 1), "groups": config.stochastic_groups}
    else:
        chosen["maximum"] = rng.integers(2)
    opcode = Opcode.POOL if pool else Opcode.COMPUTE
    return Instruction(opcode, **{name: int(value) for name, value in (chosen | fields).items()})


def loop_cycles(config: NpuConfig, geometry: Instruction, tile: Instruction) -> Iterator[LoopCycle]:
    """The cycles of a COMPUTE or POOL, in order."""
    nest = _window if tile.opcode == Opcode.POOL else _reads if is_window(tile) else _words
    return nest(config, geometry, tile)


def is_window(tile: Instruction) -> bool:
    """Whether it is a depthwise COMPUTE."""
    return tile.opcode == Opcode.COMPUTE and tile["kind"] == StepKind.WINDOW


def flags_of_steps(config: NpuConfig, tile: Instruction):
    """`kind_flags` of a COMPUTE's steps; none of a POOL's."""
    layout = kind_flags(StepKind, config)
    traits = StepKind(tile["kind"]).traits if tile.opcode == Opcode.COMPUTE else ()
    return layout.const({trait: 1 for trait in traits if trait in layout.members})


def _line(geometry: Instruction, tile: Instruction, block: int, ky: int, row: int) -> int:
    """The entry of a row's first column."""
    return (tile["buf_base"] + block * geometry["buf_block_pitch"] + ky * geometry["buf_row_pitch"]
            + row * geometry["buf_row_step"])


def _pixels(config: NpuConfig, geometry: Instruction, column: int, count: int, kx: int,
            line: int) -> tuple[dict[int, int], int]:
    """Entries of ``count`` output columns' inputs at tap ``kx``, and the bank of the first."""
    stride = geometry["stride"]
    banks, entries = entry_places(config.banks, stride, column * stride + kx, count, stride)
    return dict(zip(banks.tolist(), (line + entries).tolist(), strict=True)), int(banks[0])


def _window(config, geometry, tile) -> Iterator[LoopCycle]:
    """POOL: for block, row, column: for ky, kx."""
    taps = list(product(range(geometry["kernel_h"]), range(geometry["kernel_w"])))
    pixels = list(product(range(tile["blocks"]), range(geometry["rows"]), range(geometry["cols"])))
    for block, row, col in pixels:
        for ky, kx in taps:
            entries, bank = _pixels(config, geometry, col, 1, kx, _line(geometry, tile, block, ky, row))
            last_tap = (ky, kx) == taps[-1]
            yield LoopCycle(
                entries=entries, first_bank=bank, at_start=(ky, kx) == taps[0], last_tap=last_tap, group=0,
                next_group=0, last=last_tap and (block, row, col) == pixels[-1], lower=None, upper=None,
                first_step=(block, ky, kx) == (0, 0, 0), last_step=last_tap and block == pixels[-1][0])


def _steps(geometry: Instruction, tile: Instruction) -> Iterator[tuple[tuple[int, int, int, int], dict]]:
    """COMPUTE: (block, ky, kx, group) of every step, and what all of its cycles have in common."""
    taps = list(product(range(geometry["kernel_h"]), range(geometry["kernel_w"]), range(tile["groups"])))
    for block, tap in product(range(tile["blocks"]), taps):
        last_tap = tap == taps[-1]
        yield (block, *tap), {"group": tap[2], "last_tap": last_tap, "first_step": (block, *tap) == (0, 0, 0, 0),
                              "last_step": last_tap and block == tile["blocks"] - 1}


def _following(tile: Instruction, group: int, at_start: bool) -> int:
    """The group of the first step that has not begun."""
    return group if at_start else (group + 1) % tile["groups"]


def _words(config, geometry, tile) -> Iterator[LoopCycle]:
    """COMPUTE: for block, ky, kx, group: for row, word."""
    taken = config.banks if geometry["words"] == WordForm.SPREAD else config.pixel_lanes
    base = tile["acc_base"] if config.winograd else 0
    columns = range(0, geometry["cols"], taken)
    words = list(product(range(geometry["rows"]), columns))
    for (block, ky, kx, group), common in _steps(geometry, tile):
        for number, (row, col) in enumerate(words):
            count = min(taken, geometry["cols"] - col)
            entries, bank = _pixels(config, geometry, col, count, kx, _line(geometry, tile, block, ky, row))
            at_start = number == 0
            yield LoopCycle(
                entries=entries, first_bank=bank, at_start=at_start, **common, lower=base + number,
                upper=base + number, next_group=_following(tile, group, at_start),
                last=common["last_step"] and number == len(words) - 1)


def _reads(config, geometry, tile) -> Iterator[LoopCycle]:
    """A depthwise COMPUTE: for ky, kx: for row, read. The words of a row begin with its first reads.

    kx counts parts of the taps, and of each part the phases, which lie ``stride`` entries apart.
    """
    base, stride = tile["acc_base"] if config.winograd else 0, geometry["stride"]
    words = -(-geometry["cols"] // (config.pixel_lanes if geometry["words"] == WordForm.ALTERNATE else config.banks))
    for (block, ky, part, group), common in _steps(geometry, tile):
        shifted = geometry["shift"] and ky == 0       # the upper group works for the row above
        reads = list(product(range(geometry["rows"] + shifted), range(geometry["reads"])))
        for row, read in reads:
            taps = part // stride * (config.window_taps // config.banks)
            entry = _line(geometry, tile, block, ky, row) + (taps + read) * stride + part % stride
            word = base + row * words + read
            at_start = (row, read) == (0, 0)
            yield LoopCycle(
                entries=dict.fromkeys(range(config.banks), entry), first_bank=None, at_start=at_start, **common,
                lower=word if read < words and row < geometry["rows"] else None,
                upper=word - shifted * words if read < words and row >= shifted else None,
                next_group=_following(tile, group, at_start),
                last=common["last_step"] and (row, read) == reads[-1])
