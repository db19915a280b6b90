"""What is known of an architecture, and how it is beside what was recorded."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Figures", "RECORDED", "Recorded"]

#: Results that later ones are held against, and that docs/coverage.md shows.
RECORDED = Path(__file__).with_name("recorded.json")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """``macs``: multiplications of the layers on the accelerator for a sample, those of dilations' zeros too.

    ``host_nodes``, ``host_products``: on the processor; the latter are convolutions and matrix products. ``switches``:
    between the two. ``different``: of the ``compared`` values those that the functional simulator has otherwise than
    the reference. ``reasons``: why nodes are on the processor -> how many. ``refused``: why there is none of this.
    ``commit``: of the sources, where it is recorded.
    """

    macs: int = 0
    host_nodes: int = 0
    host_products: int = 0
    switches: int = 0
    compared: int = 0
    different: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""
    commit: str = ""

    @property
    def mmac(self) -> float:
        return round(self.macs / 1e6, 1)

    @property
    def summary(self) -> str:
        """In a line."""
        if self.refused:
            return f"refused: {self.refused}"
        return (f"{self.mmac:,.1f} million multiplications on the accelerator, {self.host_nodes} nodes on the "
                f"processor ({self.host_products} convolutions and matrix products), {self.switches} switches")

    def worse_than(self, before: "Figures | None") -> str:
        """What is wrong, "" if nothing is."""
        if self.different:
            return f"{self.different:,} of {self.compared:,} values differ from the reference"
        if before is None or before.refused:
            return ""
        if self.refused:
            return f"refused: {self.refused}"
        if self.macs < before.macs:
            return f"{self.mmac:,.1f} million multiplications on the accelerator, {before.mmac:,.1f} recorded"
        return ""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """``models``: architecture -> its figures; ``versions``: of the packages that exported them."""

    command: str
    versions: Mapping[str, str]
    models: Mapping[str, Figures]

    @classmethod
    def load(cls) -> "Recorded":
        """What is in the tree. Raises OSError, ValueError."""
        found: dict[str, Any] = json.loads(RECORDED.read_text())
        return cls(**{**found, "models": {name: Figures(**figures) for name, figures in found["models"].items()}})

    def save(self) -> None:
        RECORDED.write_text(json.dumps(asdict(self), indent=1) + "\n")
