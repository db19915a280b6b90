"""A design mapped without hierarchy, as vendors' tools do: what timing is measured on, and what is placed."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .families import FAMILIES, flat_netlist, packing
from .yosys import mapped

__all__ = ["FlatDesign", "flat_design"]


class FlatDesign:
    """``verilog``'s netlist, mapped to ``family`` when it is first asked for, and once at most; see `flat_design`.

    ``script``: what Yosys is told, and what comes behind: results that are kept depend on both beside the Verilog.
    """

    _NETLIST = "netlist.json"

    def __init__(self, stack: ExitStack, verilog: str, top: str, family: str) -> None:
        self.verilog, self.top, self.family = verilog, top, family
        commands = ["read_verilog design.v", *flat_netlist(top, family, self._NETLIST), *packing(family)]
        self.script = "\n".join([*commands, ""])
        self._stack = stack
        self._folder: Path | None = None

    def netlist(self, progress: Callable[[str], None]) -> Path:
        """Yosys's JSON, in a folder that can be worked in. Raises as `gen.hw.yosys.mapped`."""
        if self._folder is None:
            self._folder = self._stack.enter_context(mapped(self.verilog, self.script, progress))
            pack = FAMILIES[self.family].pack
            if pack is not None:
                pack.pack_file(self._folder / self._NETLIST, self._folder / self._NETLIST)
        return self._folder / self._NETLIST

    def module(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """The top module in it. Raises as `netlist`."""
        return json.loads(self.netlist(progress).read_text())["modules"][self.top]


@contextmanager
def flat_design(verilog: str, top: str, family: str) -> Iterator[FlatDesign]:
    """A design whose netlist is there until the end of the block. Raises ValueError for a family that is not known."""
    with ExitStack() as stack:
        yield FlatDesign(stack, verilog, top, family)
