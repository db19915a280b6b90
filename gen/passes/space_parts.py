"""Tensors get channels that nobody reads, so that their parts begin at a machine's blocks.

What lies within a block of two parts has to be put together by layers (`gen.passes.align_parts`), each of which writes
all of it. Where all that make and read a tensor take channels in any places, the parts lie apart instead: layers that
make them have weights of zero for the channels between, and so have those that read them. Layers that keep channels
apart, and sums, have the same places in what they read and make.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from cores.config import NpuConfig
from gen.ir.channel_places import spaced, spaced_operation, spaced_stage
from gen.ir.graph import Conv, Graph, Layer, Pool
from gen.ir.parts import origin, without_gaps
from gen.ir.queries import used_tensors
from gen.ir.tensor import Part, Tensor
from gen.passes.costs import Steps

__all__ = ["space_parts"]

#: Blocks of a tensor for one that it had, at most.
_MOST = 2
#: Cycles of the store engine for a pixel of a block: of what is moved, and of what is added to that.
_MOVED, _ADDED = 1, 3


def space_parts(graph: Graph, config: NpuConfig, steps: Steps) -> Graph:
    """The same graph with tensors whose parts begin at a machine's blocks, where that can be and takes less time than
    to put them together.
    """
    if not any(tensor.part and tensor.part.first % config.ic_lanes for tensor in graph.tensors.values()):
        return graph
    spacing = _Spacing(graph, config, steps)
    return spacing.graph() if spacing.places else graph


@dataclass(eq=False)
class _Spacing:
    """``places``: of each root that is spaced where its channels are. A *root* is a tensor that is part of no other."""

    old: Graph
    config: NpuConfig
    steps: Steps
    places: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = self._possible()
        gains: dict[str, float] = defaultdict(float)     # of roots with the same places
        for root in self.places:
            gains[self._groups[root]] += self._moves(root)
        for layer in self.old.layers:
            for root in {self._origins[name][0] for name in (layer.output, *layer.reads)} & self.places.keys():
                gains[self._groups[root]] -= self._slower(layer)
        self.places = {root: place for root, place in self.places.items() if gains[self._groups[root]] > 0}

    @property
    def _tn(self) -> int:
        return self.config.ic_lanes

    def _moves(self, root: str) -> float:
        """Cycles to put together the parts of a root as it is (`gen.passes.align_parts`)."""
        made = {layer.output for layer in self.old.layers}
        cycles, end, sharing = 0, 0, 0
        pixels = prod(self.old.tensors[root].shape[1:])
        for name, (whole, channels) in sorted(self._origins.items(), key=lambda item: item[1][1].start):
            if whole != root or self.old.tensors[name].part is None:
                continue
            blocks = -(-channels.stop // self._tn) - channels.start // self._tn
            if name in made:
                sharing = sharing + 1 if channels.start // self._tn < end else 0
                end = -(-channels.stop // self._tn)
                cycles += blocks * (sharing and _MOVED + _ADDED)
            elif channels.start % self._tn:
                cycles += blocks * _MOVED
        return float(cycles * pixels)

    def _slower(self, layer: Layer) -> float:
        """Cycles that a layer takes more with channels between those that it has."""
        spaced_layer = self._layer(layer, {})
        pixels = prod(self.old.tensors[layer.output].shape[1:])
        if isinstance(layer, Conv) and isinstance(spaced_layer, Conv) and not layer.depthwise:
            more = self.steps(spaced_layer) - self.steps(layer)
            return more * prod(layer.kernel) * pixels / self.config.pixel_lanes
        counts = [len(form.requantize.bias) for form in (spaced_layer, layer)]
        return float(pixels * (-(-counts[0] // self._tn) + counts[1] // -self._tn))

    @cached_property
    def _origins(self) -> Mapping[str, tuple[str, range]]:
        return {name: origin(self.old.tensors, name) for name in self.old.tensors}

    def _pairs(self, layer: Layer) -> Iterator[tuple[str, str]]:
        """Tensors that have the same channels in the same places."""
        if isinstance(layer, Pool) or isinstance(layer, Conv) and layer.depthwise:
            yield layer.input, layer.output
        for other in layer.others:
            yield other, layer.output

    @cached_property
    def _groups(self) -> Mapping[str, str]:
        """Root -> one that stands for all whose channels have the same places."""
        parent = {root: root for root, _ in self._origins.values()}

        def top(root: str) -> str:
            while parent[root] != root:
                root = parent[root]
            return root

        for layer in self.old.layers:
            for pair in self._pairs(layer):
                one, other = (top(self._origins[name][0]) for name in pair)
                parent[one] = other
        return {root: top(root) for root in parent}

    @cached_property
    def _starts(self) -> Mapping[str, set[int]]:
        """Of each root the channels that are to begin blocks."""
        starts: dict[str, set[int]] = {root: {0} for root, _ in self._origins.values()}
        for root, channels in self._origins.values():
            starts[root].add(channels.start)
        grown = True
        while grown:
            grown = False
            for layer in self.old.layers:
                for pair in self._pairs(layer):
                    (one, mine), (other, theirs) = (self._origins[name] for name in pair)
                    both = {start - mine.start for start in starts[one] if start in mine} | {
                        start - theirs.start for start in starts[other] if start in theirs}
                    for root, channels in ((one, mine), (other, theirs)):
                        wanted = {channels.start + start for start in both} - starts[root]
                        starts[root] |= wanted
                        grown |= bool(wanted)
        return starts

    def _possible(self) -> dict[str, np.ndarray]:
        """Of each root that can be spaced where its channels are."""
        places: dict[str, np.ndarray] = {}
        refused = set()
        for root, starts in self._starts.items():
            count, group = self.old.tensors[root].shape[0], self._groups[root]
            place, at = np.empty(count, np.int64), 0
            bounds = [*sorted(starts), count]
            for first, end in zip(bounds, bounds[1:], strict=False):
                at = -(-at // self._tn) * self._tn
                place[first:end] = at + np.arange(end - first)
                at += end - first
            places[root] = place
            if -(-at // self._tn) > _MOST * -(-count // self._tn):
                refused.add(group)
        moved = {name for name, (root, channels) in self._origins.items() if _apart(places[root][channels])}
        refused |= {self._groups[self._origins[name][0]] for name in self._fixed(moved)}
        return {root: place for root, place in places.items()
                if self._groups[root] not in refused and (place != np.arange(len(place))).any()}

    def _fixed(self, moved: Collection[str]) -> Iterator[str]:
        """Of the tensors that would be ``moved`` apart those that have to stay as they are."""
        outside = (tensor for tensor, _ in (*self.old.inputs.values(), *self.old.outputs.values()))
        yield from (name for name in outside if name in moved)
        yield from (name for name in moved if self.old.tensors[name].signs or self.old.tensors[name].value is not None)
        for layer in self.old.layers:
            if isinstance(layer, Pool) or isinstance(layer, Conv) and layer.is_exact and layer.groups == 1:
                continue
            yield from (name for name in (layer.output, *layer.reads) if name in moved)

    def _inside(self, name: str) -> np.ndarray | None:
        """Where a tensor's channels are in it; None if they are neighbours."""
        root, channels = self._origins[name]
        if root not in self.places:
            return None
        place = self.places[root][channels]
        return place - place[0] if _apart(place) else None

    def graph(self) -> Graph:
        """The graph with all that is spaced."""
        names: dict[str, str] = {}
        taken = set(self.old.tensors)
        for name in self.old.tensors:
            if self._inside(name) is not None:
                # Of another name: what is known of the model's tensor is not so of this.
                names[name] = f"{name}/spaced"
                while names[name] in taken:
                    names[name] += "'"
                taken.add(names[name])
        tensors = {}
        for name, tensor in self.old.tensors.items():
            made = self._tensor(name, tensor, names)
            tensors[made.name] = made
        layers = tuple(self._layer(layer, names) for layer in self.old.layers)
        graph = replace(self.old, tensors=tensors, layers=layers)
        return replace(graph, tensors=used_tensors(graph))

    def _tensor(self, name: str, tensor: Tensor, names: Mapping[str, str]) -> Tensor:
        inside, part = self._inside(name), tensor.part
        if part is not None:
            (root, channels), (_, of_whole) = self._origins[name], self._origins[part.whole]
            place = self.places.get(root)
            first = part.first if place is None else int(place[channels.start] - place[of_whole.start])
            part = Part(names.get(part.whole, part.whole), first)
        if inside is None:
            return replace(tensor, part=part)
        shape = int(inside[-1]) + 1, *tensor.shape[1:]
        meant = without_gaps(tensor, inside, axis=0)    # it may have had some
        ends = np.flatnonzero(np.diff(meant) > 1)
        gaps = tuple(range(int(meant[end]) + 1, int(meant[end + 1])) for end in ends)
        return replace(tensor, name=names[name], shape=shape, part=part, onnx_name="", gaps=gaps)

    def _layer(self, layer: Layer, names: Mapping[str, str]) -> Layer:
        source, target = self._inside(layer.input), self._inside(layer.output)
        if source is None and target is None:
            return layer
        layer = replace(layer, input=names.get(layer.input, layer.input))
        if isinstance(layer, Conv):
            weights = layer.weights if target is None else spaced(layer.weights, target, 0)
            if source is not None and not layer.depthwise:
                weights = spaced(weights, source, 1)
            layer = replace(layer, weights=weights, counted=layer.products)
        if target is None:
            return layer
        count = int(target[-1]) + 1
        return replace(layer, output=names.get(layer.output, layer.output),
                       requantize=spaced_stage(layer.requantize, target, count),
                       epilogue=tuple(spaced_operation(op, names, count) for op in layer.epilogue))


def _apart(place: np.ndarray) -> bool:
    return bool((np.diff(place) != 1).any())
