"""Optional units of the machine, a module each, and their registration: here, in `UNITS` and among the bases of
`Settings`. One whose rules look at another's fields has that one's settings as its base.
"""

from dataclasses import dataclass

from cores.config.units import (
    binary,
    depthwise,
    fusion,
    gather,
    int4,
    limits,
    maximum,
    narrow,
    product,
    rows,
    stages,
    stochastic,
    table,
    turn,
    uncounted,
    winograd,
)
from cores.config.units.base import Unit

__all__ = ["UNITS", "Settings", "Unit"]

UNITS: tuple[Unit, ...] = tuple(
    module.UNIT for module in (
        depthwise, fusion, gather, binary, winograd, table, product, stochastic, rows, turn, stages, maximum, int4,
        limits, narrow, uncounted))


@dataclass(frozen=True, kw_only=True)
class Settings(
    uncounted.UncountedSettings,
    narrow.NarrowSettings,
    limits.LimitsSettings,
    int4.Int4Settings,
    maximum.MaximumSettings,
    stages.StagesSettings,
    rows.RowsSettings,
    turn.TurnSettings,
    stochastic.StochasticSettings,
    product.ProductSettings,
    table.TableSettings,
    fusion.FusionSettings,
    winograd.WinogradSettings,
    binary.BinarySettings,
    gather.GatherSettings,
    depthwise.DepthwiseSettings,
):
    """The fields of all units, the last to be checked first."""
