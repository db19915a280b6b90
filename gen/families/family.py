"""What the project has to know of a family of devices."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from boards.board import Board
from gen.netlist.delays import Delays
from gen.netlist.graph import CellTiming

if TYPE_CHECKING:
    import jinja2

__all__ = ["HIDE_ELEMENTS", "REFERENCE_FABRIC", "BlockRam", "Cells", "Family", "FuseSoc", "Nextpnr", "SystemBuild",
           "Synthesis"]

#: The fabric of LUTs with six inputs to whose machines `gen.hw.area` fits what logic takes; others are scaled from it.
REFERENCE_FABRIC = "xilinx"

#: A wire named ``x[0]``, an array's element, has the name that Yosys gives bit 0 of a wire ``x`` when it takes back
#: what ABC9 made of it: an assertion fails if both are there. Such names are replaced; what they stand for is the same.
HIDE_ELEMENTS = "rename -hide w:*[[]*"


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """How Yosys maps a design to the family's cells."""

    #: The command, with all options but the top module's name.
    command: str
    #: Commands before, where the mapping is for timing.
    for_timing: tuple[str, ...] = ()
    #: Commands in the place of ``command``'s label ``map_luts``, where the mapping is for timing.
    luts_for_timing: tuple[str, ...] = ()
    #: Commands in the midst of ``command``, before its label ``coarse``: products are multipliers then, and all else is
    #: still as written.
    after_products: tuple[str, ...] = ()
    #: Yosys's models of the cells that have delays, as `read_verilog` is given them; None where none have.
    library: str | None = None


@dataclass(frozen=True)
class Cells:
    """Cells that are timed alike. ``names``: ``LUT6 RAM32M:4``, with what each takes of ``resource``, 1 where nothing
    is said; no ``resource`` where they take none that is counted.
    """

    timing: CellTiming
    names: str
    resource: str = ""

    def __iter__(self) -> Iterator[tuple[str, float]]:
        for one in self.names.split():
            name, _, count = one.partition(":")
            yield name, float(count or 1)


@dataclass(frozen=True, kw_only=True)
class BlockRam:
    """How many block RAMs Yosys makes of a memory."""

    #: What reports call them.
    name: str
    #: Depth and width of each form of one, and what part of one it takes.
    forms: tuple[tuple[int, int, float], ...]
    #: Whether a memory whose lanes are written apart becomes one memory for each.
    lanes_apart: bool = False
    #: Whether memories are stacked where that takes fewer; else the shallowest form that is as deep as the memory is
    #: taken.
    stacked: bool = True


@dataclass(frozen=True, kw_only=True)
class Nextpnr:
    """Place and route with nextpnr; a board has the options that name its device."""

    #: Command, such as ``nextpnr-ecp5``.
    tool: str
    #: Of every run.
    options: tuple[str, ...] = ()
    #: Of a machine by itself, without pins.
    alone: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FuseSoc:
    """The tool of a FuseSoC core's target ``synth``, and its options: ``{part}`` is the board's device."""

    tool: str
    options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SystemBuild:
    """How a system of LiteX becomes a bitstream: a makefile, whose variable ``packer`` is the tool that ends it.

    ``wheel``: the package of PyPI that has the tool too, as its command ``script``.
    """

    makefile: str
    packer: str
    tool: str
    wheel: str
    script: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of devices. Raises ValueError for cells that take what is not counted, or that are named twice."""

    #: What a board's ``family`` says, and reports.
    name: str
    #: Name as sold.
    title: str
    #: ``__name__`` of the module that describes it: templates lie beside that.
    package: str
    synthesis: Synthesis
    cells: tuple[Cells, ...]
    delays: Delays
    block_ram: BlockRam
    #: Families of one fabric have the same LUTs and flip-flops: machines that were synthesised for one tell of all.
    fabric: str
    #: Machines that `gen.hw.area_table` synthesises for it: ``BOARD:MACS[:FEATURES]``.
    measured: tuple[str, ...] = ()
    #: Bits of a beat of the ports for reads (`cores.bus.read_ports`) that it synthesises, too.
    measured_ports: tuple[int, ...] = ()
    #: Resource -> how much a machine takes of it, against one of `REFERENCE_FABRIC`, or for each multiplier or block
    #: RAM that is counted; 1 where nothing is said. Only for as long as no machine was synthesised.
    unmeasured: Mapping[str, float] = field(default_factory=dict)
    #: What a netlist goes through between Yosys and place and route: name of the script in a project -> module with
    #: ``rewrite(source, destination)`` that needs Python alone.
    passes: Mapping[str, ModuleType] = field(default_factory=dict)
    nextpnr: Nextpnr | None = None
    #: Files of the board's project -> their templates.
    project: Mapping[str, str]
    #: What its templates know of a board beside `gen.hw.export.vendor_project`'s values.
    project_values: Callable[[Board], Mapping[str, Any]] = lambda board: {}
    fusesoc: FuseSoc
    system: SystemBuild | None = None

    def __post_init__(self) -> None:
        unknown = {cells.resource for cells in self.cells if cells.resource} | set(self.unmeasured)
        if unknown := unknown - set(self.resources):
            raise ValueError(f"family {self.name}: {', '.join(sorted(unknown))} must be one of "
                             f"{', '.join(self.resources)}")
        names = [name for cells in self.cells for name, _ in cells]
        if len(set(names)) != len(names):
            raise ValueError(f"family {self.name}: cell {max(names, key=names.count)} is named twice")

    @property
    def resources(self) -> tuple[str, str, str, str]:
        """What is counted: LUTs, flip-flops, multipliers, block RAMs, by the names that reports have for them."""
        return ("lut", "ff", "dsp", self.block_ram.name)

    @cached_property
    def counts(self) -> dict[str, tuple[str, float]]:
        """Cell -> resource that it takes, and how much of it."""
        return {name: (cells.resource, count) for cells in self.cells if cells.resource for name, count in cells}

    @cached_property
    def timing(self) -> dict[str, CellTiming]:
        """Cell -> how it is timed."""
        return {name: cells.timing for cells in self.cells for name, _ in cells}

    def mapping(self, top: str, *options: str) -> list[str]:
        """Yosys commands from modules that have been read to this family's cells; ``options`` are ``command``'s."""
        command = " ".join([self.synthesis.command, *options, f"-top {top}"])
        if not self.synthesis.after_products:
            return [command]
        return [f"{command} -run begin:coarse", *self.synthesis.after_products, f"{command} -run coarse:"]

    def flat_netlist(self, top: str, output: str) -> list[str]:
        """Yosys commands from a design that has been read to a netlist ``output`` without hierarchy."""
        mapping, luts = self.mapping(top), self.synthesis.luts_for_timing
        if luts:
            first, *others = mapping
            mapping = [f"{first} -run begin:map_luts", *luts, f"{first} -run check:", *others]
        return [*self.synthesis.for_timing, f"hierarchy -check -top {top}", "flatten", HIDE_ELEMENTS,
                *mapping, f"write_json {output}"]

    def rewrite(self, netlist: Path) -> None:
        """Take a JSON netlist that Yosys wrote through all of ``passes``."""
        for module in self.passes.values():
            module.rewrite(netlist, netlist)

    def scripts(self) -> dict[str, str]:
        """File name -> content of ``passes``, in order."""
        return {name: inspect.getsource(module) for name, module in self.passes.items()}

    def route_command(self, board: Board) -> tuple[str, ...]:
        """nextpnr and its options for the board's device; empty where there is no nextpnr for it."""
        if self.nextpnr is None or not board.nextpnr:
            return ()
        return (self.nextpnr.tool, *board.nextpnr, *self.nextpnr.options)

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """A file of a project, of a template that lies beside the family, or among those that several have."""
        return self._templates.get_template(template).render(values)

    @cached_property
    def _templates(self) -> "jinja2.Environment":
        import jinja2

        loaders = [jinja2.PackageLoader(self.package, ""), jinja2.PackageLoader("gen.families")]
        # Undefined names are errors: a template must not quietly leave something out.
        return jinja2.Environment(loader=jinja2.ChoiceLoader(loaders), undefined=jinja2.StrictUndefined,
                                  keep_trailing_newline=True)
