"""The boards whose systems LiteX describes, and what of them is ours to choose."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from boards.board import Board
from boards.registry import get_board
from cores.errors import ArgumentError

__all__ = ["TARGETS", "Target", "TargetError", "get_target"]


class TargetError(ArgumentError):
    """A board for which there is no system; the message lists those there are."""

    code = "unknown-name"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A board of litex-boards. Its own description there has the clocks, the memory's pins and the PHY."""

    #: Name in `boards.registry`, whose machines it takes: device family, multipliers, address width.
    name: str
    #: Module of litex-boards with ``BaseSoC``, and what that class is told beside the clock.
    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Class of `litedram.modules`: the memory that is soldered on.
    memory: str
    #: Commands to the memory in a cycle of the system's clock, as LiteDRAM writes it.
    memory_rate: str
    #: Target for the clock of system and machine, LiteX's own for the board.
    clock_mhz: float

    @property
    def board(self) -> Board:
        return get_board(self.name)

    @property
    def title(self) -> str:
        """Name as sold."""
        return self.board.title


_TARGETS = (
    Target(
        name="ecp5", module="litex_boards.targets.radiona_ulx3s",
        options={"device": "LFE5U-85F", "sdram_rate": "1:1"}, memory="MT48LC16M16", memory_rate="1:1", clock_mhz=50,
    ),
    Target(
        name="ecpix-5", module="litex_boards.targets.lambdaconcept_ecpix5",
        options={"device": "85F"}, memory="MT41K256M16", memory_rate="1:2", clock_mhz=75,
    ),
)

TARGETS = {target.name: target for target in _TARGETS}


def get_target(name: str) -> Target:
    """Raises TargetError when there is no system for this board."""
    try:
        return TARGETS[name]
    except KeyError:
        raise TargetError(f"no LiteX system for {name!r}; there are: {', '.join(TARGETS)}") from None
