"""Every port is explained where it is declared: a comment beside it in the signature."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import cores

FILES = sorted(Path(cores.__file__).parent.rglob("*.py"))


def _declarations(source: str) -> list[tuple[int, int, str]]:
    """First and last line and name of every port: an entry ``"name": In(...)`` or ``Out(...)`` of a dict."""
    nodes = list(ast.walk(ast.parse(source)))
    entries = [(key, value) for node in nodes if isinstance(node, ast.Dict)
               for key, value in zip(node.keys, node.values, strict=True)]
    entries += [(node.key, node.value) for node in nodes if isinstance(node, ast.DictComp)]
    return [(key.lineno, value.end_lineno or value.lineno, ast.unparse(key).strip("'"))
            for key, value in entries
            if key is not None and isinstance(value, ast.Call)
            and isinstance(value.func, ast.Name) and value.func.id in ("In", "Out")]


def unexplained(source: str) -> list[str]:
    """Ports without a comment on their lines or on a line of its own in front of them.

    Ports that share a line share its comment; the lines of a bus, of several ports each, that of the first.
    """
    ports = _declarations(source)
    a_line = Counter(first for first, _, _ in ports)
    comments = {}               # line -> whether nothing else is there
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = not token.line[:token.start[1]].strip()
    missing = []
    for first, last, name in ports:
        beside = any(line in comments for line in range(first, last + 1))
        while a_line[first] > 1 and a_line[first - 1] > 1:
            first -= 1
        if not beside and not comments.get(first - 1, False):
            missing.append(name)
    return missing


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_port_has_a_comment(path):
    assert unexplained(path.read_text()) == []


def test_ports_are_found():
    assert sum(len(_declarations(path.read_text())) for path in FILES) > 500


@pytest.mark.parametrize(("source", "expected"), [
    ('x = {"a": In(1),  # why\n "b": Out(1)}', ["b"]),
    ('x = {\n # why\n "a": In(1),\n "b": Out(1),\n}', ["b"]),
    ('x = {**({"a": In(1)} if c else {}),\n "b": Out(1)}  # why', ["a"]),
    ('x = {"a": In(1), # why\n "b": Out(\n 1),\n}', ["b"]),
    ('x = {\n # bus\n "a": In(1), "b": In(2),\n "c": Out(1), "d": Out(1),\n "e": In(1),\n}', ["e"]),
    ('x = {"a": In(1), "b": In(2),\n "c": Out(1), "d": Out(1),\n}', ["a", "b", "c", "d"]),
])
def test_a_port_without_one_is_found(source, expected):
    assert unexplained(source) == expected
