"""What a colour means, in every plot: where cycles go, and what is compared."""

from collections.abc import Sequence

__all__ = ["CAUSES", "COMPARED", "colour_of"]

#: Of where cycles go: those of a report's page (CAUSES in report.js).
CAUSES = {"useful": "#2f6fb7", "idle_pixels": "#6fa5de", "idle_lanes": "#a9cbee", "wait_weights": "#dd7f22",
          "wait_load": "#efc03f", "wait_store": "#a64fb5", "short_steps": "#8d5a3a", "setup": "#8a9099",
          "idle": "#c4cad1"}
#: Of what is compared, such as machines or units: a page's causes have none of these. A lighter one is none of
#: the others.
COMPARED = ("#5d6f83", "#b58a2b", "#6a4fa3", "#1f8fb3", "#5b3b1f", "#c9699b", "#2e6e4e", "#a9b5c2")


def colour_of(name: str, names: Sequence[str]) -> str:
    """Of ``name`` among all ``names`` that there can be: the same whichever of them a plot has. Raises ValueError."""
    return COMPARED[names.index(name) % len(COMPARED)]
