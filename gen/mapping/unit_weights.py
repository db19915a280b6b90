"""Weights of units beside the array, whose steps have a beat for each of their output lanes."""

import numpy as np

from cores.arch.isa import StepKind
from cores.config import NpuConfig
from gen.ir.graph import Conv
from gen.tiling.weights import ReductionSlice, TileSlices

__all__ = ["pack_rows", "row_slices"]


def row_slices(layer: Conv, config: NpuConfig, kind: StepKind) -> TileSlices:
    """For each output tile one, of a beat for each block, tap and output lane."""
    outputs, channels, height, width = layer.weights.shape
    blocks = -(-channels // config.ic_lanes)
    beats = blocks * height * width * config.oc_lanes
    return tuple((ReductionSlice(0, blocks, config.unit_groups(kind), kind, tile * beats),)
                 for tile in range(-(-outputs // config.oc_lanes)))


def pack_rows(layer: Conv, config: NpuConfig) -> np.ndarray:
    """A layer's int8 weights, a byte each: uint8 (beats, tn), for tile, block, tap, output lane."""
    outputs, channels, height, width = layer.weights.shape
    tm, tn, taps = config.oc_lanes, config.ic_lanes, height * width
    padded = np.zeros((-(-outputs // tm) * tm, -(-channels // tn) * tn, taps), np.int8)
    padded[:outputs, :channels] = layer.weights.reshape(outputs, channels, taps)
    lanes = padded.reshape(-1, tm, padded.shape[1] // tn, tn, taps).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(-1, tn)
