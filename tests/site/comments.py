"""What comments of a source say of what stands beside or below them: the reference shows it."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Comments", "fields_table"]


class Comments:
    """Of one source file."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        self._lines: dict[int, tuple[str, bool]] = {}       # line -> comment, whether nothing else is on it
        for number, line in enumerate(self.text.splitlines(), 1):
            if match := re.search(r"(?:^|\s)#:? (.*)$", line):
                self._lines[number] = match[1], line.lstrip().startswith("#")

    def above(self, line: int) -> str:
        """The comment in the lines that end above ``line``."""
        text: list[str] = []
        while (line := line - 1) in self._lines and self._lines[line][1]:
            text.insert(0, self._lines[line][0])
        return " ".join(text)

    def of(self, line: int) -> str:
        """The comments above ``line`` and on it."""
        beside = self._lines.get(line, ("", False))[0]
        return " ".join(part for part in (self.above(line), beside) if part)


def _fields_of(cls: type) -> Iterator[tuple[str, str, str]]:
    """Name, type and comment of the fields that ``cls`` itself declares."""
    comments = Comments(Path(inspect.getfile(cls)))
    for node in ast.parse(comments.text).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield statement.target.id, ast.unparse(statement.annotation), comments.of(statement.lineno)


def fields_table(cls: type) -> str:
    """Markdown: the fields of a dataclass and its bases, with type, default and what the comment beside each says."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            for name, kind, text in _fields_of(base):
                default = defaults[name]
                shown = "" if default is dataclasses.MISSING else f"`{default!r}`"
                lines.append(f"| `{name}` | `{kind}` | {shown} | {text.replace('``', '`').replace('|', '&#124;')} |")
    return "\n".join(lines)
