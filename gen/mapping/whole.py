"""Layers one after the other that hand on whole tensors in the input buffer (docs/datapath.md, Whole tensors).

Small maps take a layer less time than it takes the first of them to be stored, loaded and padded. Where such a tensor
stays in the buffer, the next layer begins when its first output tile has been stored there, and loads weights alone.
A depthwise layer in windows finds rows with padding around them (`WindowRows`), a pointwise layer one long row
(`Strips`), or rows if that is how it hands on its own result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise

from cores.arch.isa import Queue
from cores.config import NpuConfig
from gen.lowering.buffer_allocation import BufferAllocation, Chunk
from gen.lowering.mapped import MappedLayer, PlacedLayer
from gen.lowering.placed import in_buffer
from gen.lowering.steps import MappedGraph, Step
from gen.lowering.tiles import Tiles
from gen.mapping.gather import GatherMapping
from gen.mapping.plain import ConvMapping, PlainMapping
from gen.mapping.pool import PoolMapping
from gen.mapping.trial import Trial
from gen.mapping.whole_plans import HandingLayer, laid, last_of
from gen.mapping.windows import WindowMapping
from gen.memory.placement import Kept, RowsPlacement, WindowRows
from gen.memory.region import Lifetime

__all__ = ["WholeLayer", "keep_whole"]

#: Layers hand on tensors whole if they take this share of their cycles at most: what is around them can change by the
#: rest.
_GAIN = 0.98

#: Ways that are tried out.
_CANDIDATES = 4
#: Tiles are tried that take this part of an accumulator bank.
_SHARES = (1, 2, 4)


@dataclass(frozen=True, eq=False)
class WholeLayer(Step):
    """A layer that finds its input in the input buffer, or leaves its result there, or both."""

    mapping: HandingLayer
    #: The form of its input, if that is there.
    source: Kept | None
    #: The form of its result, if that stays there, and the layer that reads it.
    target: Kept | None
    reader: HandingLayer | None
    #: The reader and the layer that reads its result, if that stays there, too: its padding is loaded in advance.
    beyond: tuple[HandingLayer, HandingLayer] | None = None
    #: How many steps before it the place of its result is free.
    lead: int = 0

    @property
    def layers(self) -> tuple[MappedLayer, ...]:
        return (self.mapping,)

    @property
    def kept(self) -> Mapping[str, Kept]:
        return {} if self.target is None else {self.mapping.layer.output: self.target}

    @property
    def ahead(self) -> Mapping[str, int]:
        return dict.fromkeys(self.kept, self.lead)

    @property
    def follows_loads(self) -> bool:
        return True

    @cached_property
    def plan(self) -> tuple[object, ...]:
        """What its cycles depend on beside its mapping."""
        return self.source, self.target, self.lead, self.beyond is None

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        rooms, output = tiles.chunks.rooms, self.mapping.layer.output
        if self.target is not None and output not in rooms:
            assert self.reader is not None
            _take(tiles, placed[0], output, self.reader)
        if self.source is None:
            # Its own loads wait for stores, as a rule.
            _prepare(tiles, placed[0], self.beyond)
            self.mapping.emit(tiles, placed[0])
        else:
            self._compute(tiles, placed[0], rooms.pop(self.mapping.input))
            _prepare(tiles, placed[0], self.beyond)

    def _compute(self, tiles: Tiles, placed: PlacedLayer, room: BufferAllocation) -> None:
        mapping, plan, config = self.mapping, self.mapping.plan, tiles.config
        if isinstance(mapping, PoolMapping):
            return _pool(tiles, placed, mapping, room)
        # After all loads so far, so that what it stores comes after them, too (`Step.follows_loads`).
        loaded = tiles.emitter.count(Queue.LOAD) - 1
        windows = isinstance(mapping, WindowMapping)
        sets = list(zip(mapping.output_blocks(1 if windows else config.oc_groups), mapping.tiles, strict=True))
        for spatial in plan.spatial_tiles:
            at = BufferAllocation(room.base + spatial.x // config.banks, room.size)
            chunk = Chunk(range(1 if windows else mapping.input_blocks), at, loaded)
            for number, (blocks, slices) in enumerate(sets):
                tile = tiles.begin(placed, plan.geometry, spatial, blocks,
                                   spread=plan.spread and number == len(sets) - 1)
                # The first one follows what is stored, as it comes.
                parts = chunk.blocks[::config.oc_groups if number == 0 else len(chunk.blocks)]
                for low, high in pairwise((*parts, chunk.blocks.stop)):
                    for reduction in slices if windows else tiles.weights.cut(plan.geometry, slices, range(low, high)):
                        tile.compute(reduction, chunk, row=spatial.y * plan.geometry.stride[0])
                tile.end()
        room.last_reader = tiles.last_compute


def _pool(tiles: Tiles, placed: PlacedLayer, mapping: PoolMapping, room: BufferAllocation) -> None:
    """The values of a map as one long row, in pieces."""
    plan, banks, loaded = mapping.plan, tiles.config.banks, tiles.emitter.count(Queue.LOAD) - 1
    (spatial,) = plan.spatial_tiles
    for blocks in mapping.output_blocks(1):
        tile = tiles.begin(placed, plan.geometry, spatial, blocks)
        for number, piece in enumerate(plan.pieces, start=1):
            form = plan.geometry.piece(0, 0, *piece)
            box = replace(form.spatial_tile(0, 1, 0, 1, tiles.config), row_pitch=spatial.row_pitch)
            at = room.base + blocks.start * spatial.entries + piece[1][0] // banks
            tile.pool(form, box, Chunk(blocks, BufferAllocation(at, spatial.entries), loaded),
                      maximum=mapping.layer.maximum, first=number == 1, last=number == len(plan.pieces))
    room.last_reader = tiles.last_compute


@dataclass(frozen=True, eq=False)
class WholeAfter(Step):
    """Layers that are a step together, and leave the last one's result in the input buffer; as of `WholeLayer`."""

    step: Step
    target: Kept
    reader: HandingLayer
    beyond: tuple[HandingLayer, HandingLayer] | None
    lead: int

    @property
    def layers(self) -> Sequence[MappedLayer]:
        return self.step.layers

    @property
    def kept(self) -> Mapping[str, Kept]:
        return {**self.step.kept, self.layers[-1].layer.output: self.target}

    @property
    def ahead(self) -> Mapping[str, int]:
        return {self.layers[-1].layer.output: self.lead}

    @cached_property
    def plan(self) -> tuple[object, ...]:
        """What its cycles depend on beside its mappings."""
        return getattr(self.step, "plan", None), self.lead, self.beyond is None

    def emit(self, tiles: Tiles, placed: Sequence[PlacedLayer]) -> None:
        _take(tiles, placed[-1], self.layers[-1].layer.output, self.reader)
        _prepare(tiles, placed[-1], self.beyond)
        self.step.emit(tiles, placed)


def _prepare(tiles: Tiles, placed: PlacedLayer, beyond: tuple[HandingLayer, HandingLayer] | None) -> None:
    """Take the room of a tensor that the next step writes, if it does, the result of the first of ``beyond``."""
    if beyond is not None:
        layer, reader = beyond
        _take(tiles, placed, layer.layer.output, reader)


def _take(tiles: Tiles, placed: PlacedLayer, name: str, reader: HandingLayer) -> None:
    """Take the room of a tensor, and load what lies around its rows."""
    at = tiles.tensors[name]
    assert at.space == "buffer"
    form = at.rows if isinstance(at, RowsPlacement) else at.strips
    room, freed = tiles.chunks.ring.take_at(at.offset, form.entries)
    tiles.chunks.rooms[name] = room
    if not isinstance(at, RowsPlacement):
        return
    first, last = reader.plan.spatial_tiles[0], reader.plan.spatial_tiles[-1]
    top, end = first.pad_top, first.pad_top + at.rows.height
    columns = range(at.rows.left + at.rows.width + first.pad_right)
    around = PlacedLayer(placed.number, reader, 0, 0)
    right = columns[at.rows.left + at.rows.width:]
    for rows, part in ((range(top, end), columns[:at.rows.left]), (range(top, end), right), (range(top), columns),
                       (range(end, end + last.pad_bottom), columns)):
        if rows and part:
            tiles.chunks.pad(around, at, rows, part, freed)


# -- which, and how --------------------------------------------------------------------------------------------------


def keep_whole(trial: Trial, mapped: MappedGraph) -> MappedGraph:
    """``mapped`` with tensors that stay in the input buffer as a whole where that is faster, by the time model;
    ``trial``: of each layer by itself.
    """
    apart = trial.mapped
    layers = [step.layers[0] for step in apart.steps]
    stays = [_stays(apart, layers, number) for number in range(len(layers) - 1)]
    steps, number = list(mapped.steps), 0
    while number < len(steps):
        # Steps from this one on between and in which all tensors may stay.
        first = end = sum(len(step.layers) for step in steps[:number])
        last = number
        while last < len(steps) and all(stays[end - (last > number):end + len(steps[last].layers) - 1]):
            end, last = end + len(steps[last].layers), last + 1
        joined = None
        if end - first > 1:
            in_front = number > 0 and first > 0 and stays[first - 1]
            joined = _best_part(trial, layers[first:end], steps, range(number, last), in_front=in_front)
        if joined is None:
            number = max(last, number + 1)
            continue
        places, found = joined
        steps[places.start:places.stop] = found
        number = places.start + len(found)
    return replace(mapped, steps=steps)


def _best_part(trial: Trial, layers: Sequence[MappedLayer], steps: Sequence[Step], places: range, *,
               in_front: bool) -> tuple[range, list[Step]] | None:
    """Of the ``steps`` at ``places``, which have these ``layers``, those that had better hand on their tensors whole,
    and what they become; ``in_front``: what the step before them writes may stay, too.
    """
    config = trial.mapped.config
    before, behind = _around(steps, places)
    bounds = list(accumulate((len(step.layers) for step in steps[places.start:places.stop]), initial=0))
    now = _ends(trial, before, steps[places.start:places.stop], behind)
    ways = dict[tuple[int, int], tuple[float, int]]()
    for share in _SHARES:
        words = config.acc_depth // share
        whole = whole_steps(config, layers, words, early=False)
        if whole is not None and _fits(trial.mapped, [*before, *whole, *behind]):
            ends = _ends(trial, before, whole, behind)
            if now is None or ends is None:
                continue
            gains = [now[n] - ends[bound] for n, bound in enumerate(bounds)]
            for low, high in combinations(range(len(bounds)), 2):
                if bounds[high] - bounds[low] > 1:
                    ways[low, high] = max(ways.get((low, high), (-math.inf, 0)), (gains[high] - gains[low], words))
    best, found = 0.0, None
    for (low, high), (_, words) in sorted(ways.items(), key=lambda way: way[1], reverse=True)[:_CANDIDATES]:
        part = layers[bounds[low]:bounds[high]]
        for after in (None, *([steps[places.start + low - 1]] if low or in_front else [])):
            start, stop = places.start + low - (after is not None), places.start + high
            these = [*(after.layers[-1:] if after else ()), *part]
            forms = (whole_steps(config, these, words, early=early, after=after) for early in (True, False))
            joined = next((form for form in forms if form and _fits(
                trial.mapped, [*steps[:start], *form, *steps[stop:]])), None)
            if joined is None:
                continue
            before, behind = _around(steps, range(start, stop))
            least = max(best, (1 - _GAIN) * trial.cycles(steps[start + (after is not None):stop]))
            apart = trial.cycles([*before, *steps[start:stop], *behind])
            together = trial.cycles([*before, *joined, *behind], apart - least)
            if together < apart - least:
                best, found = apart - together, (range(start, stop), joined)
    return found


def _ends(trial: Trial, before: Sequence[Step], steps: Sequence[Step], behind: Sequence[Step]) -> list[int] | None:
    """When what is ``before`` is done, and when each of the ``steps`` is, as `Trial.ends`."""
    ends = trial.ends([*before, *steps, *behind])
    return None if ends is None else [0, *ends][len(before):]


def _around(steps: Sequence[Step], places: range) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps before and after those at ``places``; of those before as many as find their input in the input buffer,
    and one that loads it.
    """
    first = max(0, places.start - 1)
    while first and steps[first].layers[0].input in steps[first - 1].kept:
        first -= 1
    return steps[first:places.start], steps[places.stop:places.stop + 1]


def _fits(mapped: MappedGraph, steps: Sequence[Step]) -> bool:
    """Whether there is room for all that stays in the input buffer beside what is loaded meanwhile."""
    whole = replace(mapped, steps=steps)
    buffer, kept = in_buffer(whole), whole.kept
    return all(buffer.room(Lifetime(number, number)) >= max(
        (0, *(_needs(layer, mapped.config) for layer in step.layers if layer.input not in kept)))
        for number, step in enumerate(steps))


def _needs(layer: MappedLayer, config: NpuConfig) -> int:
    """Entries of a layer's input that must be there at the same time; all of the buffer if that is not known."""
    if not isinstance(layer, ConvMapping):
        return config.input_depth
    plan = layer.plan
    return max(tile.entries for tile in plan.spatial_tiles) * (layer.input_blocks if plan.held else plan.chunk)


def _stays(mapped: MappedGraph, layers: Sequence[MappedLayer], number: int) -> bool:
    """Whether the layer after ``number`` alone reads its result, and both can do without memory for it."""
    one, other = layers[number:number + 2]
    name, layer = one.layer.output, other.layer
    if not (isinstance(one, PlainMapping | GatherMapping | WindowMapping | PoolMapping)
            and isinstance(other, ConvMapping | PoolMapping)):
        return False
    if layer.input != name or layer.operands != (name,) or name in (*layer.others, *mapped.packed):
        return False
    if one.layer.repeats != (1, 1) or one.layer.windows != (1, 1) or name in mapped.shared:
        return False
    if mapped.readers[name] != 1 or layer.repeats != (1, 1) or layer.windows != (1, 1):
        return False
    # Three of them are there at the same time.
    found = laid(mapped.config, other, None, mapped.config.acc_depth, kept=True)
    return found is not None and found[1] is not None and found[1].entries <= mapped.config.input_depth // 3


def whole_steps(config: NpuConfig, layers: Sequence[MappedLayer], words: int, *,
                early: bool = True, after: Step | None = None) -> list[Step] | None:
    """Layers one after the other, each of which finds the result of the one before in the input buffer; None where that
    cannot be. ``words``: those of an accumulator bank that a tile takes at most; ``early``: the places of the first two
    tensors are free before the first step, so that its loads do not wait behind those of padding; ``after``: the step
    that the first layer is the last one of.
    """
    made = list[tuple[HandingLayer, Kept | None]]()      # from the last on, and the form of the input
    form: Kept | None = None
    for number in reversed(range(len(layers))):
        found = (laid(config, layers[number], form, words, kept=number > 0) if number or after is None
                 else last_of(config, layers[0], form))
        if found is None:
            return None
        made.append(found)
        form = found[1]
    made.reverse()
    steps = list[Step]()
    for number, (mapping, source) in enumerate(made):
        target, reader = (made[number + 1][1], made[number + 1][0]) if number + 1 < len(made) else (None, None)
        beyond = None
        if number + 2 < len(made) and isinstance(made[number + 2][1], WindowRows):
            beyond = made[number + 1][0], made[number + 2][0]
        lead = min(number, 1) + (early and number < 2)
        if after is None or number:
            steps.append(WholeLayer(mapping, source, target, reader, beyond, lead))
        else:
            assert target is not None and reader is not None
            steps.append(WholeAfter(after, target, reader, beyond, lead))
    return steps
