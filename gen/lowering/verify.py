"""What has to hold of mapped and placed graphs: the rules that the compiler's later stages rely on."""

from itertools import combinations

from gen.ir.graph import unscaled
from gen.ir.parts import Present, origin
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

    Tensors begin at a block of what they are part of, so no block has channels of two layers. Raises StageError.
    """
    tn, tensors = mapped.config.ic_lanes, mapped.graph.tensors
    known = {layer.output: layer.name for layer in mapped.graph.layers}
    written = Present(tensors)
    for name, _ in mapped.graph.inputs.values():
        written.add(name)
    for name in tensors:
        whole, channels = origin(tensors, name)
        _require(channels.start % tn == 0, f"tensor {name} does not begin at a block of {whole}")
    for step in mapped.steps:
        for layer, plan in zip(step.layers, step.plans, strict=True):
            name, output = layer.layer.name, layer.layer.output
            _require(known.get(output) == name, f"layer {name} is not in the graph")
            for tensor in (layer.input, *layer.others):
                _require(written.all_of(tensor), f"layer {name} reads {tensor} before it is written")
            _require(not written.any_of(output), f"layer {name} writes {output} again")
            _require(layer.target == unscaled(layer.layer, tensors[output]),
                     f"layer {name} has another output than the graph")
            _require(_covers(plan), f"the tiles of layer {name} do not cover its output once")
            written.add(output)
    for name, (tensor, _) in mapped.graph.outputs.items():
        _require(written.all_of(tensor), f"output {name}: no step writes {tensor}")


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
        if place.whole is None:
            _require(place.offset * tn % ALIGNMENT == 0,
                     f"tensor {name} does not begin at a multiple of {ALIGNMENT} bytes")
            continue
        whole, channels = origin(placed.mapped.graph.tensors, name)
        beats = (place.offset - placed.tensors[whole].offset) * tn
        _require(place.whole == whole and beats == channels.start * place.shape[1] * place.shape[2]
                 and place.lies_in(placed.tensors[whole], tn), f"tensor {name} is not where it belongs in {whole}")
    alone = [name for name, place in placed.tensors.items() if place.whole is None]
    for one, other in combinations(alone, 2):
        if needed[one][1].meets(needed[other][1]):
            _require(not placed.tensors[one].overlaps(placed.tensors[other], tn),
                     f"tensors {one} and {other} are needed at the same time and share a place")
