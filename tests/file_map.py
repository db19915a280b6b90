"""docs/file-map.md: every module in its room, with the first line of its docstring.

    python -m tests.file_map

writes it anew; `tests/test_docs.py` compares.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from gen.cli import COMMANDS

__all__ = ["PAGE", "ROOT", "file_map"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "file-map.md"

_HEAD = """# File map

Every module of the project, room by room, with the first line of its docstring; templates and data beside them are left
out. Of the tests, those that others use: `test_X.py` is about `X.py`, `bench_X.py` its cocotb bench, and both say so
themselves. `python -m tests.file_map` writes this page.
"""

_FOLDERS = ("boards", "cores", "gen", "npudriver", "sim", "tests")
_MODULES = (".py", ".c", ".h", ".cpp", ".hpp")


def _summary(path: Path) -> str:
    """The first line of a module's docstring, else of its first public definition's; a command's help."""
    if path.parent == ROOT / "gen" / "cli" and path.stem in COMMANDS:
        return f"`gen {path.stem}`: {COMMANDS[path.stem]}."
    if path.suffix != ".py":
        return path.read_text().partition("\n")[0].strip("/* ")
    module = ast.parse(path.read_text())
    definitions = [node for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
                   and not node.name.startswith("_")]
    text = next((text for node in (module, *definitions) if (text := ast.get_docstring(node))), None)
    if text is None:
        raise ValueError(f"{path} has no docstring to say what it is")
    return text.partition("\n")[0].replace("``", "`").replace("|", "\\|")


def _modules(room: Path) -> list[Path]:
    """The modules in a room itself."""
    tests = room.relative_to(ROOT).parts[0] == "tests"
    return [path for path in sorted(room.iterdir()) if path.suffix in _MODULES
            and path.name != "__init__.py" and not (tests and path.name.startswith(("test_", "bench_")))]


def _lines() -> Iterator[str]:
    yield _HEAD
    folders = {path.parent for name in _FOLDERS for path in (ROOT / name).rglob("*.*") if path.suffix in _MODULES}
    for folder in sorted(folders):
        name, modules, package = folder.relative_to(ROOT).as_posix(), _modules(folder), folder / "__init__.py"
        says = _summary(package) if package.is_file() and package.stat().st_size else ""
        if not (modules or says):
            continue
        yield f"## {name}\n"
        if says:
            yield f"{says}\n"
        if modules:
            yield "| file | what |\n|---|---|"
            yield from (f"| [{path.name}](../{name}/{path.name}) | {_summary(path)} |" for path in modules)
            yield ""


def file_map() -> str:
    """The page's text. Raises ValueError for a module without a docstring."""
    return "\n".join(_lines()).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(file_map())
