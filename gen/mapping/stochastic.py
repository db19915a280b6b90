"""Layers on the stochastic unit: which the compiler's option says (`gen.passes.streams`)."""

from dataclasses import dataclass
from functools import cached_property

from cores.arch.isa import StepKind
from gen.ir.errors import CompileError
from gen.ir.graph import Conv
from gen.mapping.base import LayerContext
from gen.mapping.plain import ConvCost, ConvMapping, plan_conv
from gen.mapping.unit_weights import pack_rows, row_slices
from gen.tiling.geometry import Geometry, SpatialTile
from gen.tiling.schedule import step_pace
from gen.tiling.weights import PackedWeights, ReductionSlice

__all__ = ["StochasticMapping"]


class _Cost(ConvCost):
    """A word of pixels stays while its streams are made."""

    may_spread = False
    #: Cycles of a word.
    stays: int

    def _compute(self, spatial: SpatialTile) -> float:
        cycles = self.stays * self.geometry.step_cycles(spatial, self.config, spread=False)
        return sum(steps * step_pace(cycles, beats, self.config) for steps, beats, _ in self.steps)


@dataclass(frozen=True, eq=False, kw_only=True)
class StochasticMapping(ConvMapping):
    """A convolution whose products are streams of bits."""

    modes = {"stochastic": "products of streams of random bits"}
    multiplies = False

    @property
    def mode(self) -> str:
        return "stochastic"

    @property
    def demanded(self) -> bool:
        return True

    @classmethod
    def propose(cls, context: LayerContext[Conv]) -> "StochasticMapping | None":
        layer, config, form = context.layer, context.config, context.layer.stochastic
        if form is None:
            return None
        if not config.stochastic_rows or (config.circuit, config.ic_lanes) != (form.circuit, form.fan_in):
            raise CompileError(f"layer {layer.name}: its streams are those of a unit {form.circuit.label} of "
                               f"{form.fan_in} inputs, which this machine does not have", code="needs-unit")
        fitted = context.fitted
        geometry = Geometry.of(fitted, context.source, context.target, packed_out=context.packed_out)
        tiles = row_slices(fitted, config, StepKind.STOCHASTIC)
        cost = _Cost(fitted, tiles, geometry, config,
                     input_blocks=geometry.input_blocks(context.source.shape[0], config))
        cost.stays = form.streams.made // config.stochastic_bits
        return cls.at(context, plan_conv(layer.name, cost), tiles=tiles)

    @cached_property
    def weights(self) -> PackedWeights:
        return PackedWeights(pack_rows(self.layer, self.config), self.tiles)

    def fields(self, reduction: ReductionSlice) -> dict[str, int]:
        assert self.layer.stochastic is not None
        return dict(self.layer.stochastic.streams.fields)
