"""The table in docs/coverage.md: what is recorded (`tests/coverage/recorded.json`)."""

from collections.abc import Mapping

from tests import ROOT
from tests.coverage.architectures import ARCHITECTURES
from tests.coverage.figures import Figures, Recorded

__all__ = ["PAGE", "page", "row", "table"]

PAGE = ROOT / "docs" / "coverage.md"

_BEGIN, _END = "<!-- coverage: python -m tests.coverage page -->\n", "<!-- end of coverage -->\n"
_HEAD = ("model", "from, size", "million multiplications on the accelerator", "nodes on the processor", "switches",
         "values that differ", "commit")


def row(name: str, figures: Figures) -> list[str]:
    """Cells of the table."""
    architecture = ARCHITECTURES.get(name)
    origin = "" if architecture is None else f"{architecture.origin}, {'x'.join(map(str, architecture.shape[1:]))}"
    if figures.refused:
        return [name, origin, f"refused: {figures.refused}".replace("|", "\\|"), "", "", "", figures.commit]
    return [name, origin, f"{figures.mmac:,.1f}", str(figures.host_nodes), str(figures.switches),
            f"{figures.different:,}", figures.commit]


def table(models: Mapping[str, Figures]) -> str:
    """In Markdown, by name."""
    lines = [_HEAD, ["---"] * len(_HEAD), *(row(name, models[name]) for name in sorted(models))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The page's text with the table as it must be. Raises ValueError for a page without its place."""
    recorded = Recorded.load()
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError(f"{PAGE} has no {_BEGIN.strip()} with {_END.strip()} after it")
    exported = ", ".join(f"{name} {version}" for name, version in recorded.versions.items())
    about = f"`{recorded.command}`;\nmodels exported with {exported}."
    return f"{before}{_BEGIN}\n{about}\n\n{table(recorded.models)}\n\n{_END}{after}"
