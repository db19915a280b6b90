"""What is taken for the read of a file."""

import ast

import pytest

from tests.lint.reads import is_read


@pytest.mark.parametrize("text", [
    "path.read_text()", "(folder / 'x').read_bytes()", "open(path)", "open(path, 'rb')", "open(path, encoding='utf-8')",
    "path.open()", "path.open('rb')", "np.load(path)", "np.fromfile(path, np.int8)", "os.open(path, os.O_RDONLY)"])
def test_a_read_is_seen(text: str):
    assert is_read(ast.parse(text).body[0].value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [
    "open(path, 'w')", "path.open('ab', buffering=0)", "open(1, 'w', closefd=False)", "archive.open(name)",
    "np.load(io.BytesIO(content))", "np.load(content, allow_pickle=False)", "Image.open(file)", "self._machine.open()",
    "os.open(path, os.O_CREAT | os.O_RDWR)"])
def test_what_is_none(text: str):
    assert not is_read(ast.parse(text).body[0].value)  # type: ignore[attr-defined]
