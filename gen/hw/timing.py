"""Timing of a design as Yosys maps it: LUT levels and estimated delay of its paths, before place and route.

The hierarchy is flattened before mapping, as vendor tools do. What a level and a nanosecond are: docs/timing.md.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gen.families.family import Family
from gen.families.registry import get_family
from gen.files.results import kept
from gen.netlist.graph import Arc, End, Netlist

from .flat import FlatDesign, flat_design
from .hardware import delay_model_digest
from .sta import cell_delay
from .yosys import SynthesisError, cache_key

__all__ = ["PathGroup", "TimingReport", "analyse", "measure_timing", "timing_of"]

#: Groups of paths that a report keeps, the worst first.
_GROUPS = 40


@dataclass(frozen=True)
class PathGroup:
    """Paths from one register to another, bits of both taken together.

    ``levels``: of the one with most LUTs. ``delay_ns``: of the slowest; ``through`` has the nets that it passes.
    """

    component: str
    start: str
    end: str
    port: str
    levels: int
    delay_ns: float
    paths: int
    through: tuple[str, ...]


@dataclass(frozen=True)
class TimingReport:
    """``levels``: LUTs on the path that has most. ``histogram``: number of LUTs -> endpoints with so many at most.

    ``components``: instance in the top module -> levels and nanoseconds of its worst path. ``cell_ns``: of Yosys's own
    timing, cells alone (`gen.hw.sta`); None where it has none.
    """

    family: str
    grade: str
    levels: int
    delay_ns: float
    histogram: dict[int, int]
    components: dict[str, dict[str, float]]
    paths: list[PathGroup]
    cell_ns: float | None = None

    @property
    def estimated_mhz(self) -> float:
        """Clock that the delay model gives for the slowest path."""
        return round(1000 / self.delay_ns, 1) if self.delay_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "estimated_mhz": self.estimated_mhz}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TimingReport":
        values = {name: value for name, value in values.items() if name != "estimated_mhz"}
        values["histogram"] = {int(levels): count for levels, count in values["histogram"].items()}
        values["paths"] = [PathGroup(**{**path, "through": tuple(path["through"])}) for path in values["paths"]]
        return cls(**values)


class _Paths:
    """Longest way to each net: by LUTs and, apart from that, by delay."""

    def __init__(self, netlist: Netlist, family: Family):
        self.netlist = netlist
        self.wire = {net: family.delays.wire(loads) for net, loads in netlist.loads.items()}
        self.luts: dict[int, int] = {}
        self.arrival: dict[int, float] = {}
        self.before: dict[int, int] = {}        # on the slowest path
        for net in self._in_order():
            self._settle(net)

    def _in_order(self) -> Iterator[int]:
        """Each net after those that it follows. Raises SynthesisError for a loop."""
        state: dict[int, int] = {}
        arcs = self.netlist.arcs
        for root in [*arcs, *(end.net for end in self.netlist.ends)]:
            stack = [root]
            while stack:
                net = stack[-1]
                if state.get(net) == 2:
                    stack.pop()
                    continue
                if state.get(net) == 1:
                    state[net] = 2
                    stack.pop()
                    yield net
                    continue
                state[net] = 1
                for arc in arcs.get(net, ()):
                    found = state.get(arc.source)
                    if found == 1:
                        name = self.netlist.names.get(arc.source, str(arc.source))
                        raise SynthesisError(f"combinational loop through {name}")
                    if found is None:
                        stack.append(arc.source)

    def _settle(self, net: int) -> None:
        luts, arrival = 0, self.netlist.starts.get(net, 0.0)
        for arc in self.netlist.arcs.get(net, ()):
            luts = max(luts, self.luts[arc.source] + arc.luts)
            at = self._reach(arc)
            if at > arrival:
                arrival = at
                self.before[net] = arc.source
        self.luts[net], self.arrival[net] = luts, arrival

    def _reach(self, arc: Arc) -> float:
        return self.arrival[arc.source] + (self.wire[arc.source] if arc.routed else 0.0) + arc.delay

    def delay(self, end: End) -> float:
        return self.arrival[end.net] + (self.wire[end.net] if end.routed else 0.0) + end.setup

    def through(self, net: int) -> list[int]:
        nets = [net]
        while (before := self.before.get(nets[-1])) is not None:
            nets.append(before)
        return nets[::-1]


def _register(name: str) -> str:
    """A register's name without its bit."""
    return re.sub(r"\[\d+\]$", "", name)


def _component(name: str) -> str:
    instance, dot, _ = name.partition(".")
    return instance if dot else "(top)"


def analyse(netlist: Netlist, family: str) -> TimingReport:
    """Raises SynthesisError for a combinational loop."""
    target = get_family(family)
    paths = _Paths(netlist, target)
    names = netlist.names

    def label(net: int) -> str:
        return names.get(net, f"net {net}")

    histogram: Counter[int] = Counter()
    groups: dict[tuple[str, str, str], list[Any]] = {}
    components: dict[str, dict[str, float]] = {}
    for end in netlist.ends:
        levels, delay = paths.luts[end.net], paths.delay(end)
        histogram[levels] += 1
        worst = components.setdefault(_component(end.name), {"levels": 0, "delay_ns": 0.0})
        worst["levels"] = max(worst["levels"], levels)
        worst["delay_ns"] = max(worst["delay_ns"], round(delay, 3))
        nets = paths.through(end.net)
        group = groups.setdefault((_register(label(nets[0])), _register(end.name), end.port), [0, 0.0, 0, nets])
        group[2] += 1
        group[0] = max(group[0], levels)
        if delay > group[1]:
            group[1], group[3] = delay, nets
    ranked = sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))
    return TimingReport(
        family=family, grade=target.delays.grade, levels=max(histogram, default=0),
        delay_ns=round(ranked[0][1][1], 3) if ranked else 0.0, histogram=dict(sorted(histogram.items())),
        components=dict(sorted(components.items())),
        paths=[PathGroup(_component(end), start, end, port, levels, round(delay, 3), count,
                         tuple(label(net) for net in nets if net in names))
               for (start, end, port), (levels, delay, count, nets) in ranked[:_GROUPS]])


def timing_of(design: FlatDesign, *, cache: Path | None = None,
              progress: Callable[[str], None] = lambda step: None) -> TimingReport:
    """Time the paths of a design.

    ``cache``: folder of earlier results, keyed by everything that decides them. ``progress`` is called with the name of
    each pass.

    Raises SynthesisError when Yosys fails or there is a combinational loop, ToolError when there is no Yosys.
    """
    family = design.family

    def make() -> TimingReport:
        module = design.module(progress)
        report = analyse(Netlist.of_module(module, family.timing, family.delays), family.name)
        return replace(report, cell_ns=cell_delay(design, module, progress))

    name = cache_key(design.key, delay_model_digest(family.name))
    return kept(cache, f"{name}.timing.kept", TimingReport.from_dict, make)


def measure_timing(verilog: str, top: str, family: str, *, cache: Path | None = None,
                   progress: Callable[[str], None] = lambda step: None) -> TimingReport:
    """As `timing_of`, of a design that nothing else is wanted of. Raises ValueError for an unknown family, too."""
    with flat_design(verilog, top, family) as design:
        return timing_of(design, cache=cache, progress=progress)
