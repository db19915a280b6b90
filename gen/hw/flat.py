"""A design mapped without hierarchy, as vendors' tools do: what timing is measured on, and what is placed."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gen.families.registry import get_family
from gen.files.read import read_file

from .yosys import cache_key, mapped

__all__ = ["FlatDesign", "flat_design"]


class FlatDesign:
    """``verilog``'s netlist, mapped to ``family`` when it is first asked for, and once at most; see `flat_design`.

    ``key``: of results that are kept, whatever else they depend on.
    """

    _NETLIST = "netlist.json"

    def __init__(self, stack: ExitStack, verilog: str, top: str, family: str) -> None:
        self.verilog, self.top, self.family = verilog, top, get_family(family)
        self._script = "\n".join(["read_verilog design.v", *self.family.flat_netlist(top, self._NETLIST), ""])
        self._stack = stack
        self._folder: Path | None = None

    @property
    def key(self) -> str:
        return cache_key(self.verilog, self._script, "".join(self.family.scripts().values()))

    def netlist(self, progress: Callable[[str], None]) -> Path:
        """Yosys's JSON, in a folder that can be worked in. Raises as `gen.hw.yosys.mapped`."""
        if self._folder is None:
            folder = self._stack.enter_context(mapped(self.verilog, self._script, progress))
            self.family.rewrite(folder / self._NETLIST)
            self._folder = folder
        return self._folder / self._NETLIST

    def module(self, progress: Callable[[str], None]) -> dict[str, Any]:
        """The top module in it. Raises as `netlist`."""
        return json.loads(read_file(self.netlist(progress)))["modules"][self.top]


@contextmanager
def flat_design(verilog: str, top: str, family: str) -> Iterator[FlatDesign]:
    """A design whose netlist is there until the end of the block. Raises ValueError for a family that is not known."""
    with ExitStack() as stack:
        yield FlatDesign(stack, verilog, top, family)
