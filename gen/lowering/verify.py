"""What has to hold of mapped and placed graphs: the rules that the compiler's later stages rely on."""

from itertools import combinations

from cores.config import NpuConfig
from gen.ir.graph import unscaled
from gen.ir.parts import Present, origin
from gen.lowering.mapped import MappedLayer, data_of
from gen.lowering.placed import PlacedGraph, in_memory
from gen.lowering.steps import MappedGraph
from gen.memory.placement import ALIGNMENT, Kept, Strips, WindowRows
from gen.tiling.geometry import SpatialTile

__all__ = ["StageError", "rows_of", "verify_mapped", "verify_placed"]


class StageError(AssertionError):
    """A mistake of the compiler: a stage has made what breaks the rules of the next."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise StageError(message)


def verify_mapped(mapped: MappedGraph) -> None:
    """Check that the steps have the graph's layers, each after what it reads, and that tiles cover every output once.

    A tensor must begin at a block of the whole that it is part of: no block has channels of two layers. Raises
    StageError.
    """
    tn, tensors = mapped.config.ic_lanes, mapped.graph.tensors
    known = {layer.output: layer.name for layer in mapped.graph.layers}
    written = Present(tensors)
    for name in mapped.graph.given:
        written.add(name)
    for name in tensors:
        whole, channels = origin(tensors, name)
        _require(channels.start % tn == 0, f"tensor {name} does not begin at a block of {whole}")
    for step in mapped.steps:
        for layer in step.layers:
            name, output = layer.layer.name, layer.layer.output
            _require(known.get(output) == name, f"layer {name} is not in the graph")
            for tensor in (*layer.operands, *layer.others):
                _require(written.all_of(tensor), f"layer {name} reads {tensor} before it is written")
            _require(not written.any_of(output), f"layer {name} writes {output} again")
            _require(layer.target == unscaled(layer.layer, tensors[output]),
                     f"layer {name} has another output than the graph")
            _require(layer.covers_output(), f"the tiles of layer {name} do not cover its output once")
            written.add(output)
    for name, (tensor, _) in mapped.graph.outputs.items():
        _require(written.all_of(tensor), f"output {name}: no step writes {tensor}")
    for name, strips in mapped.kept.items():
        _verify_kept(mapped, name, strips)


def _verify_kept(mapped: MappedGraph, name: str, form: Kept) -> None:
    """A tensor that stays in the input buffer lies there as it is stored, and as all that reads it wants it."""
    graph, config = mapped.graph, mapped.config
    channels, height, width = graph.tensors[name].shape
    blocks = -(-channels // config.ic_lanes)
    if isinstance(form, Strips):
        _verify_strips(form, name, blocks, height * width, config)
    else:
        _verify_rows(form, name, blocks, height, width, config)
    outside = {tensor for tensor, _ in (*graph.inputs.values(), *graph.outputs.values())}
    _require(bool(config.local_store) and name not in outside | mapped.packed | mapped.shared,
             f"tensor {name} cannot stay in the input buffer")
    for layer in (layer for step in mapped.steps for layer in step.layers):
        _require(name not in (*layer.others, *layer.layer.operands[1:]),
                 f"layer {layer.layer.name} reads {name} as side data, which is in memory")
        if layer.layer.output == name:
            _require(layer.layer.repeats == layer.layer.windows == (1, 1) and all(
                _in_one(form, layer, spatial) and (spatial.rows == 1 or spatial.cols == width)
                for spatial in layer.spatial_tiles),
                f"the tiles of layer {layer.layer.name} are no parts of the {form.parts} of {name}")
        if layer.input == name:
            _require(_reads_strips(layer, form) if isinstance(form, Strips) else _reads_rows(layer, form),
                     f"layer {layer.layer.name} does not read {name} by its {form.parts}")


def _verify_strips(strips: Strips, name: str, blocks: int, pixels: int, config: NpuConfig) -> None:
    ends = (*strips.starts[1:], strips.pixels)
    _require((strips.blocks, strips.pixels, strips.banks) == (blocks, pixels, config.banks) and strips.starts[0] == 0
             and all(start < end for start, end in zip(strips.starts, ends, strict=True)),
             f"the strips of {name} in the input buffer are not those of its {blocks} blocks of {pixels} pixels")


def _verify_rows(form: WindowRows, name: str, blocks: int, height: int, width: int, config: NpuConfig) -> None:
    rows = [row for first, count, _ in form.runs for row in range(first, first + count)]
    _require((form.blocks, form.height, form.width, form.banks) == (blocks, height, width, config.banks)
             and set(rows) == set(range(height)) and form.left + width <= form.row_pitch * form.banks
             and all(count > 0 <= place and place + count <= form.depth for _, count, place in form.runs),
             f"the rows of {name} in the input buffer are not those of its {blocks} blocks of {height}x{width} pixels")


def rows_of(layer: MappedLayer, spatial: SpatialTile) -> range | None:
    """The rows of the output that a spatial tile is; None if it is no whole rows, or cannot be stored row by row."""
    width, geometry = layer.target.shape[2], layer.plan.geometry
    if (spatial.x, spatial.cols) == (0, width):
        return range(spatial.y, spatial.y + spatial.rows)
    count, rest = divmod(spatial.cols, width)
    if geometry.output_size[0] > 1 or not count or rest or spatial.x % width:
        return None
    # Of one long row each row begins with a word.
    columns = max(geometry.word_columns(layer.config, spread=spread) for spread in (False, layer.plan.spread))
    return range(spatial.x // width, spatial.x // width + count) if count == 1 or width % columns == 0 else None


def _in_one(form: Kept, layer: MappedLayer, spatial: SpatialTile) -> bool:
    """Whether a tile's pixels are in one strip, and begin where an entry does; or its rows, all of them, wherever the
    first one is.
    """
    width = layer.target.shape[2]
    if isinstance(form, WindowRows):
        rows = rows_of(layer, spatial)
        return rows is not None and all(rows.stop <= first + count for first, count, _ in form.runs_of(rows.start))
    pixel = spatial.y * width + spatial.x
    number = form.number(pixel)
    end = (*form.starts[number + 1:number + 2], form.pixels)[0]
    return pixel + spatial.rows * spatial.cols <= end and (pixel - form.starts[number]) % form.banks == 0


def _reads_strips(layer: MappedLayer, strips: Strips) -> bool:
    """Whether each spatial tile of a layer is a strip as it lies in the buffer, or part of the only one."""
    lengths, geometry = dict(zip(strips.starts, strips.pitches, strict=True)), layer.plan.geometry

    def pitch(pixel: int) -> int | None:
        alone = len(strips.starts) == 1 and pixel % strips.banks == 0
        return strips.pitches[0] if alone else lengths.get(pixel)

    return layer.takes_kept and geometry.load_stride == 1 and all(
        pitch(data_of(geometry, spatial)[0]) == spatial.entries and spatial.load_beats == spatial.data_cols
        for spatial in layer.plan.spatial_tiles)


def _reads_rows(layer: MappedLayer, form: WindowRows) -> bool:
    """Whether each spatial tile of a layer reads whole rows as they lie in the buffer."""
    return layer.plan.geometry.load_stride == 1 and all(
        (spatial.row_pitch, spatial.buffer_rows, spatial.pad_left) == (form.row_pitch, form.depth, form.left)
        for spatial in layer.plan.spatial_tiles)


def verify_placed(placed: PlacedGraph) -> None:
    """Constants and feature maps lie apart and inside; maps that are needed at the same time do not share a place, in
    memory or in the input buffer.

    Raises StageError.
    """
    _verify_buffer(placed)
    tn = placed.mapped.config.ic_lanes
    _require(len(placed.constants) <= placed.write_start, "constants reach into the feature maps")
    _require(all(place.offset + place.beats(tn) <= len(placed.constants) for place in placed.given.values()),
             "a tensor that is a constant lies outside of these")
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


def _verify_buffer(placed: PlacedGraph) -> None:
    buffer, depth = placed.buffer, placed.mapped.config.input_depth
    _require(buffer.places.keys() == placed.mapped.kept.keys(), "a tensor in the input buffer has no place")
    for name, place in buffer.places.items():
        _require(0 <= place.offset <= depth - buffer.kept[name][0].entries,
                 f"tensor {name} lies outside the input buffer")
    for one, other in combinations(buffer.places, 2):
        first, second = sorted((one, other), key=lambda name: buffer.places[name].offset)
        _require(not buffer.kept[one][1].meets(buffer.kept[other][1])
                 or buffer.places[first].offset + buffer.kept[first][0].entries <= buffer.places[second].offset,
                 f"tensors {one} and {other} are in the input buffer at the same time and share a place")
