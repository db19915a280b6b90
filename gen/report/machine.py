"""The page of `gen build`: what a machine takes of a device, how fast its clock is, and what it is made of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boards.board import Board
from boards.clock import Clock
from cores.config import FEATURES, NpuConfig
from gen.hw.area import Area, exceeded
from gen.hw.route import RouteReport
from gen.hw.synth import Report
from gen.hw.timing import TimingReport
from gen.report.sheet import Bars, Column, Facts, Part, Section, Sheet, Table, repeat

__all__ = ["Built", "machine_sheet"]

#: Components that have a colour of their own, the largest first.
_COLOURED = 10
#: Groups of paths that are listed.
_PATHS = 24


@dataclass(frozen=True, kw_only=True)
class Built:
    """A machine for a board. ``area``: estimated; what was synthesised, timed and routed is None without ``--synth``
    and ``--route``. ``files``: their names.
    """

    board: Board
    config: NpuConfig
    clock: Clock
    area: Area
    files: Sequence[str]
    synthesis: Report | None = None
    timing: TimingReport | None = None
    route: RouteReport | None = None

    @property
    def totals(self) -> Mapping[str, float]:
        return self.area.totals if self.synthesis is None else self.synthesis.totals

    @property
    def components(self) -> Mapping[str, Mapping[str, float]]:
        return self.area.components if self.synthesis is None else self.synthesis.components

    @property
    def how(self) -> str:
        """How the area is known."""
        if self.synthesis is not None:
            return "as mapped by Yosys"
        return self.area.known if self.area.error == 0 else f"estimated, {self.area.known}"


def machine_sheet(built: Built, *, command: str = "") -> Sheet:
    board, config, clock = built.board, built.config, built.clock
    shares = {name: 100 * count / board.resources[name] for name, count in built.totals.items()}
    largest = max(shares, key=lambda name: shares[name])
    fits, too_much = _fit(built)
    giga = config.macs * clock.mhz / 1000
    cards = [(fits, f"it fits {board.part}, {built.how}"),
             (f"{shares[largest]:.0f} %", f"of the device's {largest}, which it takes most of"),
             (f"{clock.mhz:g} MHz", f"clock, {clock.basis}"), (f"{config.macs}", "multiply-accumulates a cycle, dense"),
             (f"{giga:.1f}", "GMAC a second at that clock, at most")]
    sections = [
        Section(title="Area", blocks=[_shares(built), Facts(rows=[
            (name, f"{count:,.10g} of {board.resources[name]:,}, {shares[name]:.1f} %")
            for name, count in built.totals.items()])], note=(
                f"Of the device's resources, by component; {built.how}. The line: all that there is. LUTs of any size "
                "and LUTs used as memory count one each.")),
        Section(title="Components", note="Select a heading to sort.", blocks=[_components(built)]),
        Section(title="Clock", note=_clock_words(clock), blocks=_timing(built)),
        Section(title="What it is made of", blocks=[_parts(config)]),
        Section(title="Board", blocks=[Facts(rows=_board(board, clock, config))]),
        Section(title="Files", blocks=[Facts(rows=[("written", ", ".join(built.files))])]),
        Section(title="All parameters", blocks=[Facts(rows=[
            (name, json.dumps(value)) for name, value in config.to_dict().items()])])]
    if too_much:
        verdict = f"It {'is' if fits == 'no' else 'may be'} larger than the device: {', '.join(too_much)}; {built.how}."
    else:
        verdict = (f"It fits the {board.title}: {shares[largest]:.0f} % of its {largest}, the resource that it takes "
                   f"most of; {built.how}.")
    findings = [verdict, f"The clock is {clock}. {_next(clock)}", *_largest(built)]
    return Sheet(name=f"{config.macs} MACs on {board.title}",
                 note=f"features: {', '.join(config.features) or 'none'}; {board.part}", cards=cards,
                 findings=findings, sections=[*sections, repeat(command, ("configuration", f"0x{config.digest:08x}"))])


def _fit(built: Built) -> tuple[str, list[str]]:
    """Whether it fits, in a word, and what it takes more of than there is."""
    too_much = exceeded(built.totals, built.board)
    sure = built.synthesis is not None or bool(built.area.too_much(built.board))
    return "yes" if not too_much else "no" if sure else "perhaps not", too_much


def _next(clock: Clock) -> str:
    return {"target": "build --synth estimates what the machine reaches.",
            "given": "build --synth estimates what the machine reaches.",
            "estimated": "Wires are reckoned; place and route tell."}.get(clock.basis, "")


def _clock_words(clock: Clock) -> str:
    how = {"target": "what the board's file aims at; nothing has measured it for this machine",
           "given": "as it was asked for; nothing has measured it for this machine",
           "estimated": "from the netlist that Yosys has mapped, by the delay model of docs/timing.md, before it is "
                        "placed and routed",
           "placed and routed": "by the device's own tool, the slowest path"}
    return f"{clock.mhz:g} MHz: {how[clock.basis]}."


def _largest(built: Built) -> list[str]:
    lut = next(iter(built.totals))
    if not built.totals[lut]:
        return []
    name, counts = max(built.components.items(), key=lambda item: item[1].get(lut, 0))
    return [f"{name} is its largest component: {100 * counts.get(lut, 0) / built.totals[lut]:.0f} % of its {lut}."]


def _by_size(built: Built) -> list[str]:
    """Components, the largest first, by their mean share of what the machine takes."""
    def size(name: str) -> float:
        counts = built.components[name]
        return sum(counts.get(resource, 0) / total for resource, total in built.totals.items() if total)

    return sorted((name for name in built.components if size(name) > 0), key=size, reverse=True)


def _shares(built: Built) -> Bars:
    names, resources = _by_size(built), built.board.resources

    def shares(components: Sequence[str]) -> list[float]:
        sums = {resource: sum(built.components[name].get(resource, 0) for name in components)
                for resource in built.totals}
        return [round(100 * count / resources[resource], 2) for resource, count in sums.items()]

    parts = [Part(name=name, values=shares([name])) for name in names[:_COLOURED]]
    if names[_COLOURED:]:
        parts.append(Part(name="others", role="rest", values=shares(names[_COLOURED:])))
    return Bars(label="Share of the device's resources by component; the table has the figures",
                names=list(built.totals), parts=parts, axis="% of the device", unit=" %", limit=100)


def _components(built: Built) -> Table:
    rows: list[list[str | float | None]] = [
        [name, *(built.components[name].get(resource, 0) for resource in built.totals)] for name in _by_size(built)]
    return Table(label="Components", rows=rows, columns=[Column(name="component", number=False),
                                                         *(Column(name=name) for name in built.totals)])


def _timing(built: Built) -> list[Bars | Table | Facts]:
    blocks: list[Bars | Table | Facts] = []
    timing, route = built.timing, built.route
    if route is not None:
        blocks.append(Facts(rows=[("placed and routed", f"{route.mhz:g} MHz: {route.critical}"),
                                  *((f"seed {seed}", f"{mhz:g} MHz") for seed, mhz in route.seeds.items())]))
    if timing is not None:
        words = (f"{timing.estimated_mhz:g} MHz: {timing.delay_ns:.2f} ns, {timing.levels} LUT levels at most, grade "
                 f"{timing.grade}")
        blocks.append(Facts(rows=[("estimated", words)]))
        blocks.append(Bars(label="Nanoseconds of the slowest path of each component", axis="ns", unit=" ns",
                           names=list(timing.components), limit=round(1000 / built.board.clock_mhz, 3), parts=[
                               Part(name="slowest path", role="main", values=[
                                   round(one["delay_ns"], 3) for one in timing.components.values()])]))
        blocks.append(Table(label="Longest paths", columns=[
            *(Column(name=name, number=False) for name in ("component", "from", "to")),
            *(Column(name=name) for name in ("levels", "ns", "paths"))], rows=[
                (path.component, path.start, f"{path.end} {path.port}", path.levels, round(path.delay_ns, 3),
                 path.paths)
                for path in timing.paths[:_PATHS]]))
    return blocks


def _parts(config: NpuConfig) -> Table:
    """The array, the buffers, and the optional units that are there and that are not."""
    fields: dict[str, Any] = config.to_dict()
    units = [(f"unit {name}", "there" if name in config.features else "not there",
              ", ".join(f"{field} {fields[field]}" for field in sets if fields.get(field)))
             for name, sets in FEATURES.items()]
    lanes = ", ".join(f"{name} {fields[name]}" for name in ("oc_lanes", "ic_lanes", "nnz_lanes", "pixel_lanes"))
    memories = ", ".join(f"{name} {value}" for name, value in fields.items() if name.endswith("_depth"))
    return Table(label="Parts of the machine", columns=[Column(name=name, number=False) for name in (
        "part", "what", "parameters")], rows=[("array", f"{config.macs} MACs", lanes), ("buffers", "there", memories),
                                          ("bus", f"{config.beat_bits} bits a beat",
                                           f"addresses of {config.address_width} bits"), *units])


def _board(board: Board, clock: Clock, config: NpuConfig) -> list[tuple[str, str]]:
    memory = board.memory.sustained
    port = config.beat_bytes * clock.mhz * 1e6 / board.port_cycles(config.beat_bits, write=False)
    return [("board", f"{board.title} ({board.part})"), ("target clock", f"{board.clock_mhz:g} MHz"),
            ("memory", f"{memory / 1e9:.2f} GB a second in long bursts"),
            ("the machine's port", f"{port / 1e9:.2f} GB a second of reads at {clock.mhz:g} MHz")]
