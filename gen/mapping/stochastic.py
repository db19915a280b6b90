"""Layers on the stochastic unit: which the compiler's option says (`gen.passes.streams`)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cores.arch.isa import StepKind
from cores.config import NpuConfig
from gen.ir.errors import CompileError
from gen.ir.graph import Conv
from gen.mapping.base import Site
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.tiling.geometry import Geometry, Window
from gen.tiling.schedule import step_pace
from gen.tiling.weights import PackedWeights, Pass, Passes

__all__ = ["StochasticMapping"]


class _Cost(ConvCost):
    """A word of pixels stays while its streams are made."""

    may_be_narrow = False
    #: Cycles of a word.
    stays: int

    def _compute(self, window: Window) -> float:
        cycles = self.stays * self.geometry.step_cycles(window, self.config, narrow=False)
        return sum(steps * step_pace(cycles, beats, self.config) for steps, beats, _ in self.steps)


@dataclass(frozen=True, eq=False, kw_only=True)
class StochasticMapping(ConvMapping):
    """A convolution whose products are streams of bits."""

    @property
    def mode(self) -> str:
        return "stochastic"

    @property
    def demanded(self) -> bool:
        return True

    @classmethod
    def propose(cls, site: Site) -> "StochasticMapping | None":
        layer, config = site.layer, site.config
        if not isinstance(layer, Conv) or layer.stochastic is None:
            return None
        form = layer.stochastic
        if not config.stochastic_rows or (config.circuit, config.ic_lanes) != (form.circuit, form.fan_in):
            raise CompileError(f"layer {layer.name}: its streams are those of a unit {form.circuit.label} of "
                               f"{form.fan_in} inputs, which this machine does not have")
        fitted = site.fitted
        assert isinstance(fitted, Conv)
        geometry = Geometry.of(fitted, site.source, site.target, map_out=site.map_out)
        tiles = _passes(fitted, config)
        cost = _Cost(fitted, tiles, geometry, config,
                     input_blocks=geometry.input_blocks(site.source.shape[0], config))
        cost.stays = form.streams.made // config.stochastic_bits
        return cls.at(site, plan_conv(layer.name, cost), tiles=tiles)

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(_pack(self.layer, self.config), self.tiles)

    def fields(self, part: Pass) -> dict[str, int]:
        assert self.layer.stochastic is not None
        return dict(self.layer.stochastic.streams.fields)


def _passes(layer: Conv, config: NpuConfig) -> Passes:
    """For each output tile one, of a beat for each block, tap and output lane."""
    outputs, channels, height, width = layer.weights.shape
    blocks = -(-channels // config.ic_lanes)
    beats = blocks * height * width * config.oc_lanes
    return tuple((Pass(0, blocks, config.stochastic_groups, StepKind.STOCHASTIC, tile * beats),)
                 for tile in range(-(-outputs // config.oc_lanes)))


def _pack(layer: Conv, config: NpuConfig) -> np.ndarray:
    """A layer's weights for the unit: uint8 (beats, tn), for tile, block, tap, output lane."""
    outputs, channels, height, width = layer.weights.shape
    tm, tn, taps = config.oc_lanes, config.ic_lanes, height * width
    padded = np.zeros((-(-outputs // tm) * tm, -(-channels // tn) * tn, taps), np.int8)
    padded[:outputs, :channels] = layer.weights.reshape(outputs, channels, taps)
    lanes = padded.reshape(-1, tm, padded.shape[1] // tn, tn, taps).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(-1, tn)
