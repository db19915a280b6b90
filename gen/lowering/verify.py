"""What has to hold of mapped and placed graphs: the rules that the compiler's later stages rely on."""

from itertools import combinations

from gen.ir.graph import unscaled
from gen.lowering.placed import PlacedGraph, in_memory
from gen.lowering.steps import MappedGraph
from gen.memory.placement import ALIGNMENT
from gen.tiling.schedule import Plan

__all__ = ["StageError", "verify_mapped", "verify_placed"]


class StageError(AssertionError):
    """A mistake of the compiler: a stage has made what breaks the rules of the next."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise StageError(message)


def verify_mapped(mapped: MappedGraph) -> None:
    """Layers are those of the graph, in order; what they read is there; their tiles cover their output once.

    Raises StageError.
    """
    known = {layer.output: layer.name for layer in mapped.graph.layers}
    written = {tensor for tensor, _ in mapped.graph.inputs.values()}
    for step in mapped.steps:
        for layer, plan in zip(step.layers, step.plans, strict=True):
            name, output = layer.layer.name, layer.layer.output
            _require(known.get(output) == name, f"layer {name} is not in the graph")
            for tensor in (layer.input, layer.other):
                _require(tensor is None or tensor in written, f"layer {name} reads {tensor} before it is written")
            _require(output not in written, f"layer {name} writes {output} again")
            _require(layer.target == unscaled(layer.layer, mapped.graph.tensors[output]),
                     f"layer {name} has another output than the graph")
            _require(_covers(plan), f"the tiles of layer {name} do not cover its output once")
            written.add(output)
    for name, (tensor, _) in mapped.graph.outputs.items():
        _require(tensor in written, f"output {name}: no step writes {tensor}")


def _covers(plan: Plan) -> bool:
    """Whether windows are inside the output, apart from each other, and all of it together."""
    height, width = plan.geometry.output_size
    inside = all(0 <= w.y <= w.y + w.rows <= height and 0 <= w.x <= w.x + w.cols <= width for w in plan.windows)
    rows = {(w.y, w.rows) for w in plan.windows}
    cols = {(w.x, w.cols) for w in plan.windows}
    grid = len(plan.windows) == len(rows) * len(cols) == len({(w.y, w.x) for w in plan.windows})
    return inside and grid and sum(n for _, n in rows) == height and sum(n for _, n in cols) == width


def verify_placed(placed: PlacedGraph) -> None:
    """Constants and feature maps lie apart and inside; maps that are needed at the same time do not share a place.

    Raises StageError.
    """
    tn = placed.mapped.config.ic_lanes
    _require(len(placed.constants) <= placed.write_start, "constants reach into the feature maps")
    needed = in_memory(placed.mapped, keep_all=False)
    _require(needed.keys() == placed.tensors.keys(), "a tensor in memory has no place, or one without need has")
    for name, place in placed.tensors.items():
        _require(placed.write_start <= place.offset and place.offset + place.beats(tn) <= placed.end,
                 f"tensor {name} lies outside the region of feature maps")
        _require(place.offset * tn % ALIGNMENT == 0, f"tensor {name} does not begin at a multiple of {ALIGNMENT} bytes")
    for one, other in combinations(placed.tensors, 2):
        if needed[one][1].meets(needed[other][1]):
            _require(not placed.tensors[one].overlaps(placed.tensors[other], tn),
                     f"tensors {one} and {other} are needed at the same time and share a place")
