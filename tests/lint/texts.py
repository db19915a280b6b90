"""Form of documents and modules that ruff does not see."""

import ast
from collections.abc import Iterator

from tests import ROOT
from tests.lint.imports import PACKAGES

#: As ruff has it for Python.
_COLUMNS = 120


def broken() -> Iterator[str]:
    """Long lines of documents, tables excepted; modules that do not say what they are."""
    for document in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, line in enumerate(document.read_text().splitlines(), 1):
            if len(line) > _COLUMNS and not line.startswith("|"):
                yield f"{document.relative_to(ROOT)}:{number}: longer than {_COLUMNS} columns"
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        if not says_what_it_is(path.read_text()) and path.parent.name != "cli":
            yield f"{path.relative_to(ROOT)}: no docstring, nor has the first of what it defines one"


def says_what_it_is(text: str) -> bool:
    """Whether a module has a docstring, or something that it defines."""
    module = ast.parse(text)
    defined = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return any(ast.get_docstring(node) for node in (module, *defined))
