"""An operand of a product of two activations in the order of the weight ring, by gathered loads.

Each byte of the ring's order is in the input buffer where a load of runs of the stored feature map puts it; copies by
the pool unit bring the entries to memory. docs/decisions/0007-products-of-activations.md has the reasons.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cores.arch.isa import Opcode, Queue, WordForm, largest_field
from cores.config import NpuConfig
from gen.ir.graph import Graph, Layer, MatMul, Turn
from gen.ir.layers.matmul import WeightOrder
from gen.ir.tensor import Requantize, Tensor
from gen.lowering.emitter import Emitter
from gen.lowering.mapped import PlacedLayer, TensorSlice
from gen.lowering.tiles import Tiles
from gen.mapping.base import LayerContext
from gen.mapping.base import Mapping as LayerMapping
from gen.memory.placement import Placement
from gen.tiling.geometry import Geometry, SpatialTile, split
from gen.tiling.schedule import BEAT_WEIGHT, LATENCY, Plan

__all__ = ["TurnMapping", "turn_matrices", "turn_problem", "weight_order"]

_MAX_ROWS = largest_field(Opcode.LOAD_ACT, "rows")
_MAX_PAD_ROWS = largest_field(Opcode.LOAD_ACT, "pad_bottom")

#: A multiplier and a shift of one.
_UNIT, _UNIT_SHIFT = 1 << 16, 16


def weight_order(config: NpuConfig) -> WeightOrder:
    """That in which a machine's multiplier array takes weights; of a corner turn, without indices."""
    window = config.groups_dense if config.turn else config.select_fanin
    return WeightOrder(config.ic_lanes, config.oc_lanes, config.nnz_lanes, window)


def turn_problem(layer: MatMul, config: NpuConfig) -> str | None:
    """Why a machine cannot turn a product's matrix, if it cannot."""
    if config.turn:
        return None
    if layer.parts > 1:
        return "is a product of two activations in parts of their pixels; build with --features turn"
    if not config.gather:
        return "is a product of two activations, which takes gathered loads; build with --features gather or turn"
    if config.weight_bits != 8:
        return f"is a product of two activations, which takes weights of 8 bits, not {config.weight_bits}"
    order = weight_order(config)
    rows = order.rows(layer.outputs)
    most = rows if layer.by_channels else rows - layer.rows // order.outputs_of_beat
    if order.steps > _MAX_PAD_ROWS or not layer.by_channels and most > _MAX_PAD_ROWS:
        return "is a product of two activations with more lanes than rows of its matrix can be padded for"
    if layer.by_channels and _entries(order, rows // order.reduction_lanes, config) > config.input_depth:
        return f"multiplies with {layer.outputs} channels, more than input_depth={config.input_depth} has room for"
    return None


def _entries(order: WeightOrder, block_rows: int, config: NpuConfig) -> int:
    """Entries of a bank that a block of the matrix takes, by channels."""
    return order.steps * block_rows * -(-order.reduction_lanes // config.banks)


def turn_matrices(graph: Graph, config: NpuConfig) -> Graph:
    """The same graph with the matrices of its products turned, of those that the machine can turn in memory."""
    if config.turn:
        return graph
    order, layers, tensors = weight_order(config), list[Layer](), dict(graph.tensors)
    for layer in graph.layers:
        if isinstance(layer, MatMul) and layer.turned is None and turn_problem(layer, config) is None:
            matrix = tensors[layer.matrix]
            name = f"{layer.name}/turned"
            while name in tensors:
                name += "'"
            layer, turn = layer.turn(order, name)
            channels = turn.channels(matrix)
            tensors[name] = Tensor(name, (channels, *turn.size(matrix)), matrix.scale, matrix.zero_point)
            layers.append(replace(turn, requantize=Requantize(
                np.zeros(channels, np.int64), np.full(channels, _UNIT), np.full(channels, _UNIT_SHIFT), 0, -128, 127)))
        layers.append(layer)
    return replace(graph, layers=layers, tensors=tensors) if len(layers) > len(graph.layers) else graph


@dataclass(frozen=True)
class _TurnGeometry(Geometry):
    """The POOL that copies a part of a block: its channel blocks are the steps, ``row_entries`` of the input buffer
    lie between its rows, ``step_entries`` between the steps.
    """

    row_entries: int = 1
    step_entries: int = 1

    def compute_fields(self, spatial: SpatialTile, config: NpuConfig, *, spread: bool = False,
                       rows: range | None = None) -> Mapping[str, int]:
        return {
            "kernel_h": 1, "kernel_w": 1, "stride": 1, "rows": spatial.rows, "cols": spatial.cols,
            "buf_row_pitch": self.row_entries, "buf_row_step": self.row_entries,
            "buf_block_pitch": self.step_entries, "words": WordForm.PIXELS,
        }


@dataclass(frozen=True)
class _Runs:
    """A load of runs: of ``rows`` rows of a beat, ``pitch`` beats apart, from pixel ``pixel`` of block ``block`` on.

    ``below``: rows of zeros after them; ``valid`` bytes of a beat are data, zeros follow. The runs of ``length`` bytes,
    the first at byte ``start``, go to ``place`` of entry ``entry`` and following; with several ``blocks`` those of the
    pixels after it come beside them.
    """

    block: int
    pixel: int
    rows: int
    pitch: int
    below: int
    valid: int
    start: int
    length: int
    step: int
    outputs: int
    place: int
    entry: int
    blocks: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class TurnMapping(LayerMapping):
    """Loads of runs, a POOL and a STORE for each part of a block of the matrix."""

    modes = {"gathered": "a tensor turned into weights by loads of single rows"}

    takes = Turn

    layer: Turn

    @property
    def mode(self) -> str:
        return "gathered"

    @classmethod
    def propose(cls, context: LayerContext[Turn]) -> "TurnMapping | None":
        layer, config = context.layer, context.config
        if not config.gather or layer.order != weight_order(config):
            return None
        order, (height, width) = layer.order, layer.size(context.source)
        rows = order.rows(layer.outputs)
        if layer.by_channels:
            pitch = -(-width // config.banks)
            part, entries, geometry = rows // width, rows // width * pitch, (pitch, rows // width * pitch)
        else:
            unit = rows // -(-layer.outputs // order.output_lanes)
            room = min(config.input_depth // (2 * order.steps), _MAX_ROWS)
            part = max(unit, room // unit * unit)
            pitch, entries, geometry = 1, part, (order.steps, 1)
        shape = Geometry((1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (height, width))
        parts = split(rows // width, -(-(rows // width) // part), 1 if layer.by_channels else unit)
        tiles = tuple(
            SpatialTile(block * (rows // width) + first, count, 0, width, 0, count, 0, width, 0, 0, 0, 0, pitch, count)
            for block in range(order.blocks(layer.reduced)) for first, count in parts)
        beats = order.blocks(layer.reduced) * order.steps * rows
        # Each row of a load is a burst of its own.
        cycles = 2.0 * LATENCY + beats * (1 + LATENCY / config.outstanding_reads)
        plan = Plan(_TurnGeometry(shape.kernel, shape.stride, shape.pads, shape.input_size, shape.output_size,
                                  row_entries=geometry[0], step_entries=geometry[1]),
                    tiles, order.steps, False, False, cycles, cycles * BEAT_WEIGHT)
        assert entries * order.steps <= config.input_depth
        return cls.at(context, plan)

    def emit(self, tiles: Tiles, placed: PlacedLayer) -> None:
        geometry, steps = self.plan.geometry, range(self.layer.order.steps)
        for spatial in self.plan.spatial_tiles:
            tile = tiles.begin(placed, geometry, spatial, steps)
            chunk = tiles.chunks.load(placed, geometry, spatial, steps)
            tile.pool(geometry, spatial, chunk, maximum=False, first=True, last=True)
            chunk.place.last_reader = tiles.last_compute

    # -- loads ---------------------------------------------------------------------------------------------------

    def _part(self, spatial: SpatialTile) -> tuple[int, int]:
        """The block of the matrix that a tile is of, and the first of the tile's rows in it."""
        rows = self.layer.order.rows(self.layer.outputs) // spatial.cols
        return divmod(spatial.y, rows)

    def loaded_slice(self, geometry: Geometry, spatial: SpatialTile, blocks: range) -> TensorSlice:
        runs = [load for load in self._loads(spatial) if load.rows]
        block = min(load.block for load in runs), max(load.block for load in runs) + 1
        return TensorSlice(self.input, block, (
            min(load.pixel for load in runs),
            max(load.pixel + (load.rows - 1) * load.pitch + load.blocks for load in runs)))

    def load(self, emitter: Emitter, place: Placement, geometry: Geometry, spatial: SpatialTile, blocks: range,
             base: int, after: dict[Queue, int]) -> int:
        index, pixels = -1, self.source.shape[1] * self.source.shape[2]
        for load in self._loads(spatial):
            pitch = self.layer.order.steps if not self.layer.by_channels else self._step_entries
            emitter.set_load(
                {"cols": 1, "row_pitch": load.pitch if load.rows > 1 else 0,
                 "block_pitch": 1 if load.blocks > 1 else 0, "pad_left": 0, "pad_right": 0, "pad_value": 0,
                 "stride": 1, "buf_row_pitch": pitch, "buf_block_pitch": 0},
                Opcode.LOAD_GATHER,
                {"outputs": load.outputs, "length": load.length, "step": load.step, "start": load.start,
                 "place": load.place, "bytes": load.valid})
            index = emitter.emit(
                Opcode.LOAD_ACT, after=dict(after), buf_base=base + load.entry, blocks=load.blocks, rows=load.rows,
                offset=place.offset + (load.block * pixels + load.pixel if load.rows else 0), pad_top=0,
                pad_bottom=load.below)
        return index

    @property
    def _step_entries(self) -> int:
        """Entries from a step to the next."""
        geometry = self.plan.geometry
        assert isinstance(geometry, _TurnGeometry)
        return geometry.step_entries

    def _loads(self, spatial: SpatialTile) -> Iterator[_Runs]:
        yield from (self._by_channels if self.layer.by_channels else self._by_pixels)(*self._part(spatial), spatial)

    def _by_pixels(self, block: int, first: int, spatial: SpatialTile) -> Iterator[_Runs]:
        """Rows of the matrix are pixels. A row of a load is one of them, its runs the steps' channels of a window.

        Entries: a step's follow each other in bank 0, so that a run that no step takes goes to each bank between.
        """
        order, banks, pixels = self.layer.order, self.config.banks, self.source.shape[1] * self.source.shape[2]
        together = order.run % banks == 0
        valid = min(order.beat, self.layer.reduced - block * order.beat)
        for lane in range(order.outputs_of_beat):
            start = first * order.outputs_of_beat + lane
            rows = max(0, min(spatial.rows, -(-(pixels - start) // order.outputs_of_beat)))
            for window in range(order.windows):
                for step in (0,) if together else range(order.steps):
                    yield _Runs(
                        block, start, rows, order.outputs_of_beat, spatial.rows - rows, valid,
                        window * order.window + step * order.run, order.run,
                        order.run // banks if together else 1, (order.steps - 1) * banks + 1 if together else 1,
                        lane * order.reduction_lanes + window * order.run, step)

    def _by_channels(self, block: int, first: int, spatial: SpatialTile) -> Iterator[_Runs]:
        """Rows of the matrix are channels. A row of a load is a pixel, one for each step; its runs are bytes, each for
        another beat of the step. Pixels whose bytes follow each other in a beat are blocks of the load.
        """
        order, (channels, height, width) = self.layer.order, self.source.shape
        rest = height * width - block * order.beat
        pitch = -(-order.reduction_lanes // self.config.banks)
        for number in range(first, first + spatial.rows):
            valid = channels - number * order.beat
            for lane in range(order.outputs_of_beat):
                for window in range(order.windows):
                    left = max(0, min(rest - window * order.window, order.window))
                    rows, more = divmod(left, order.run) if valid > 0 else (0, 0)
                    place = lane * order.reduction_lanes + window * order.run
                    load = _Runs(
                        number, block * order.beat + window * order.window, rows, order.run, order.steps - rows,
                        max(0, min(order.beat, valid)), lane, 1, order.outputs_of_beat, order.reduction_lanes, place,
                        number * pitch, order.run)
                    yield load
                    if more:
                        yield replace(load, pixel=load.pixel + rows * order.run, rows=1, below=0, blocks=more,
                                      entry=load.entry + rows * self._step_entries)
