"""The tables of operators in docs/models.md: what the handlers claim, and what has none.

    python -m tests.operator_table

writes them anew; `tests/gen/test_onnx_handlers.py` compares.
"""

from collections.abc import Iterator
from itertools import groupby

from gen.onnx.handlers import HANDLERS
from gen.onnx.handlers.refused import REFUSALS
from tests import ROOT

__all__ = ["PAGE", "page"]

PAGE = ROOT / "docs" / "models.md"

_BEGIN, _END = "<!-- operators: python -m tests.operator_table -->\n", "<!-- end of operators -->\n"


def _table() -> Iterator[str]:
    yield "| operator | where | how |\n|---|---|---|"
    for (domains, place, conditions), claims in groupby(
            HANDLERS.claims, key=lambda claim: (claim.domains, claim.place, claim.conditions)):
        names = ", ".join(operator for claim in claims for operator in claim.operators)
        of = ", ".join(f"`{domain}`" for domain in domains if domain)
        also = f" ({'also ' if '' in domains else ''}of {of})" if of else ""
        yield f"| {names}{also} | {place} | {conditions} |"
    yield ("\nOf these, as of all operators that are in neither table, nodes are left to the processor\n"
           "([segments](partition.md)), or refused:\n\n| operator | why |\n|---|---|")
    for operators, reason in REFUSALS.items():
        yield f"| {', '.join(operators)} | {reason} |"


def page() -> str:
    """The page's text with the tables as they must be. Raises ValueError for a page without their place."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise ValueError(f"{PAGE} has no {_BEGIN.strip()} with {_END.strip()} after it")
    return before + _BEGIN + "\n" + "\n".join(_table()) + "\n\n" + _END + after


if __name__ == "__main__":
    PAGE.write_text(page())
