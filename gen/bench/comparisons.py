"""Optional datapaths against the machine without them: the same layer, mapped both ways, measured on the RTL."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from gen.bench.layers import DEPTHWISE, FEW_CHANNELS, PAIRS, LayerBenchmark, Measurement, bus_bound, measure_layer
from gen.options import CompileOptions
from sim.rtl.machine import RtlMachine

__all__ = ["Case", "Comparison", "Goal", "compare", "depthwise", "few_channels", "fusion"]


class Goal(NamedTuple):
    """The least ``value`` that a property ``of`` a `Comparison` should have."""

    of: Literal["times", "used", "array"]
    value: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A layer in two mappings, in cycles from start to done.

    ``before``: cycles of the mapping to compare with, ``ideal``: those that the unit needs with all its lanes at useful
    work in every cycle. ``busy``: cycles in which the array worked. ``wrong``: output values, of both, that differ from
    the reference. ``causes``: where the cycles beyond the ideal went.
    """

    layer: str
    before: int
    cycles: int
    ideal: float
    busy: int
    wrong: int
    causes: dict[str, int]
    goal: Goal | None = None
    remark: str = ""

    @property
    def times(self) -> float:
        return self.before / self.cycles

    @property
    def used(self) -> float:
        """Share of the unit's lanes at useful work, from start to done."""
        return self.ideal / self.cycles

    @property
    def array(self) -> float:
        """The same while the array works."""
        return self.ideal / self.busy

    @property
    def reached(self) -> bool | None:
        """Whether the goal is; None without one. Goals are given with two digits."""
        return None if self.goal is None else round(getattr(self, self.goal.of), 3) >= self.goal.value


class Case(NamedTuple):
    """A comparison to be made: its `Comparison.layer`, and what makes it."""

    layer: str
    measure: Callable[[RtlMachine], Comparison]


def compare(layer: str, before: Measurement, after: Measurement, ideal: float, *, goal: Goal | None = None,
            remark: str = "") -> Comparison:
    counters = after.rtl.counters
    causes = {name.removeprefix("compute_wait_"): counters[name] for name in counters
              if name.startswith("compute_wait_") and counters[name]}
    rest = after.rtl.cycles - counters["compute_busy"] - sum(causes.values())
    return Comparison(
        layer=layer, before=before.rtl.cycles, cycles=after.rtl.cycles, ideal=ideal, busy=counters["compute_busy"],
        wrong=before.mismatches + after.mismatches, goal=goal, remark=remark,
        causes={"idle lanes": counters["compute_busy"] - round(ideal), **causes, "start, end": rest})


def depthwise() -> list[Case]:
    """Depthwise layers: one non-zero on the diagonal against taps and pixels across the lanes."""
    return [Case(layer.name, partial(_depthwise, layer)) for layer in DEPTHWISE]


def _depthwise(layer: LayerBenchmark, machine: RtlMachine) -> Comparison:
    window = measure_layer(layer, machine=machine)
    remark = f"the bus alone needs {bus_bound(layer, machine.config):,} cycles"
    plain = measure_layer(layer, machine=machine, options=CompileOptions(depthwise="plain"))
    return compare(
        layer.name, plain, window, window.ideal,
        goal=None if layer.goal is None else Goal("array", layer.goal),
        remark=f"{remark}; {layer.peer}" if layer.peer else remark)


def fusion() -> list[Case]:
    """Depthwise layers and the pointwise ones after them: by memory against through the input buffer."""
    return [Case(pair[1].name, partial(_fusion, pair)) for pair in PAIRS]


def _fusion(pair: tuple[LayerBenchmark, LayerBenchmark], machine: RtlMachine) -> Comparison:
    apart = measure_layer(*pair, machine=machine, options=CompileOptions(fusion="off"))
    fused = measure_layer(*pair, machine=machine)
    remark = "" if any(layer.mode == "fused" for layer in fused.program.layers) else "not fused: nothing to gain"
    return compare(pair[1].name, apart, fused, fused.ideal, remark=remark)


def few_channels() -> list[Case]:
    """First layers: tap by tap against gathered rows."""
    return [Case(layer.name, partial(_few_channels, layer)) for layer in FEW_CHANNELS]


def _few_channels(layer: LayerBenchmark, machine: RtlMachine) -> Comparison:
    plain = measure_layer(layer, machine=machine, options=CompileOptions(gather="plain"))
    gathered = measure_layer(layer, machine=machine)
    return compare(layer.name, plain, gathered, gathered.ideal,
                   goal=None if layer.goal is None else Goal("used", layer.goal))
