"""How the words of a tile lie, as its loops count them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from amaranth.hdl import Module, Shape, Value

from ..config import NpuConfig

__all__ = ["LoopRegisters", "LoopWords", "Count"]


class Count(NamedTuple):
    """Of a loop's passes: how many; there is a single one; there are two."""

    number: Value
    single: Value
    two: Value


class LoopRegisters(NamedTuple):
    """Registers of `TileLoops`: ``own``, what was prepared of the running instruction; the loops; whether this is the
    first ky; whether this pixel is a step's last; of each bank the tap's part of its entry; whether the present cycle
    of a row has a word.
    """

    own: Any
    cols: Any
    groups: Any
    kxs: Any
    phases: Any
    rows: Any
    first_ky: Value
    last_pixel: Value
    taps: list[Value]
    emits: Value


class LoopWords:
    """A cycle of a row is a word of ``pixel_lanes`` pixels. Other words derive from this."""

    def __init__(self, config: NpuConfig):
        self.config = config

    def members(self, columns: Shape) -> Mapping[str, Any]:
        """What is prepared of an instruction, by name, with shapes; ``columns``: of a row's columns."""
        return {}

    def row(self, m: Module, loops: Any, prepared: Any, row_of: Callable[[int], Count]) -> Count:
        """A row's cycles in the COMPUTE to begin; ``row_of`` words of so many pixels each."""
        return row_of(self.config.pixel_lanes)

    def begin(self, m: Module, loops: Any, own: Any) -> None:
        """What follows at once from what was prepared of the running instruction."""

    def next_taps(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        """Where the next kx is not the neighbour of this one."""

    def pixels_taken(self, m: Module, loops: Any, taken: Value) -> None:
        """Where a cycle takes other pixels of a read than ``pixel_lanes``."""

    def rows(self, of: Any, plain: Count, at: LoopRegisters | None) -> Count:
        """A step's rows: of the instruction to begin, or ``at`` the running one's; ``of``: what was prepared of it."""
        return plain

    def emit(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        """Where groups of output lanes have different words."""

    def next_word(self, m: Module, loops: Any, at: LoopRegisters) -> None:
        """With the next cycle of a row, or the next row."""

    def start(self, m: Module, prepared: Any, at: LoopRegisters) -> None:
        """With the next instruction."""
