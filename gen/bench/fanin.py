"""What it costs that a multiplier selects its channel, by how many it selects from, and what the choice is worth."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from boards.board import Board
from cores.compute.mac_array import MacRow
from cores.config import NpuConfig
from cores.emit import emit_component
from gen.hw.synth import synthesize
from gen.passes.prune import groups_of, prune_weights
from gen.prune.layers import find_layers

__all__ = ["DENSITY", "FAN_INS", "Row", "energy_kept", "measure"]

FAN_INS = (32, 16, 8, 4)
#: Of the weights that are kept.
DENSITY = 0.25


@dataclass(frozen=True, kw_only=True)
class Row:
    """For each MAC of a row of the array: LUTs in all, those of its multiplexers, and multipliers.

    ``multiplexers``: what the row takes beyond one that selects nothing, of as many multipliers. ``energy``: percent of
    the sum of squares of the weights, None without a model.
    """

    fan_in: int
    row_lut: float
    lut: float
    multiplexers: float
    dsp: float
    energy: float | None


def measure(board: Board, config: NpuConfig, model: Path | None, cache: Path,
            progress: Callable[[str], None] = lambda remark: None) -> Iterator[Row]:
    """A row for each fan-in that lanes like ``config``'s can have, and one of 1, whose weights have no choice.

    ``model``: a trained one in floats, if any. Raises ConfigError where blocks of ``nnz_lanes`` channels cannot be.
    """
    macs = config.nnz_lanes * config.pixel_lanes
    proto = None if model is None else onnx.load(model)

    def mapped(machine: NpuConfig) -> dict[str, float]:
        progress(f"a row of {machine.nnz_lanes} multipliers that select from {machine.select_fanin}")
        return synthesize(emit_component(MacRow(machine), name="row"), "row", board.family, cache=cache).totals

    def row(machine: NpuConfig, totals: dict[str, float], energy: float | None) -> Row:
        return Row(fan_in=machine.select_fanin, row_lut=totals["lut"], lut=totals["lut"] / macs,
                   multiplexers=(totals["lut"] - least["lut"]) / macs, dsp=totals["dsp"] / macs, energy=energy)

    dense = replace(config, oc_lanes=config.nnz_lanes, ic_lanes=config.nnz_lanes, select_fanin=1)
    least = mapped(dense)
    for fan_in in FAN_INS:
        if config.groups_dense <= fan_in <= config.ic_lanes:
            machine = replace(config, select_fanin=fan_in)
            yield row(machine, mapped(machine),
                      None if proto is None else 100 * energy_kept(proto, machine, DENSITY))
    yield row(dense, least, None)


def energy_kept(model: onnx.ModelProto, config: NpuConfig, density: float) -> float:
    """Share of the squared magnitudes of all prunable weights that pruning by blocks keeps."""
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    before = after = 0.0
    for layer in find_layers(model):
        if layer.left:
            continue
        weights = layer.weights(arrays[layer.initializer])
        kept = prune_weights(weights, groups_of(density, config), config)
        before += float(np.sum(np.square(weights, dtype=np.float64)))
        after += float(np.sum(np.square(kept, dtype=np.float64)))
    return after / before
