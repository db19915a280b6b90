"""A family of devices is known in its folder alone: nothing else names one, or its cells."""

import ast
import re
from collections.abc import Iterator

from gen.families.registry import FAMILIES
from tests import ROOT
from tests.lint.imports import PACKAGES

#: Who may: families, passes for one of them, and boards, some of which are called as their family.
_MAY = re.compile(r"gen/families/|gen/netlist/ecp5_\w+\.py|boards/")
_BOARDS = {"gen/soc/targets.py": {"ecp5"}, "gen/cli/soc.py": {"ecp5"}}


def strings(tree: ast.Module) -> Iterator[str]:
    """All but docstrings."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    documented = [node.body[0].value for node in nodes if node.body and isinstance(node.body[0], ast.Expr)]
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            and node not in documented)


def named(text: str) -> set[str]:
    """Families, and their cells, among the words of a text; names of four letters may mean something else."""
    cells = {name for family in FAMILIES.values() for name in family.timing if len(name) > 4}
    return set(re.findall(r"\w+", text)) & (cells | FAMILIES.keys())


def broken() -> Iterator[str]:
    """Files that name a family, a line each."""
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*"))):
        name = str(path.relative_to(ROOT))
        if _MAY.match(name) or path.suffix not in (".py", ".jinja"):
            continue
        text = path.read_text()
        words = named(text)
        if words and path.suffix == ".py":
            words = set().union(*map(named, strings(ast.parse(text))))
        for word in sorted(words - _BOARDS.get(name, set())):
            yield f"{name}: names {word!r}, which a family in gen/families alone may know"
