"""Files are read by `npudriver.files` alone: regular ones, which end and do not wait, with errors that name them."""

import ast

import pytest

from tests.test_imports import PACKAGES, ROOT

#: Who reads otherwise, and why.
_OTHERWISE = {
    "npudriver/files.py": "the one place",
    "sim/rtl/build.py": "opens a folder, to be locked",
    "npudriver/backends/uio.py": "devices are opened to be mapped and waited for",
    "boards/ecp5_copies.py": "is copied to where a build is, and stands alone there",
    "boards/ecp5_multipliers.py": "is copied to where a build is, and stands alone there",
}
#: What NumPy may read: what is open, or in memory.
_OPEN = ("file", "content", "io.BytesIO")


def _reads(call: ast.Call) -> bool:
    """Whether a file is opened by its path to be read."""
    texts = [value.value for value in (*call.args, *(keyword.value for keyword in call.keywords))
             if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    writes = any(set(text) & set("wax+") and set(text) <= set("rwaxbt+") for text in texts)
    name = ast.unparse(call.func)
    if name == "np.load":
        return not ast.unparse(call.args[0]).startswith(_OPEN)
    if name == "open":
        return not writes and not any(keyword.arg == "closefd" for keyword in call.keywords)
    method = name.rpartition(".")[2]
    if name == "os.open":
        return not any(flag in ast.unparse(call) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
    if method == "open" and isinstance(call.func, ast.Attribute):   # members of archives have names, pictures are open
        return not writes and all(set(text) <= set("rbt") for text in texts) and (
            len(texts) == len(call.args) + len(call.keywords)) and bool(texts or _is_path(call.func.value))
    return isinstance(call.func, ast.Attribute) and method in ("read_text", "read_bytes", "fromfile")


def _is_path(value: ast.expr) -> bool:
    return any(word in ast.unparse(value) for word in ("path", "Path", "folder", "/"))


@pytest.mark.parametrize("text", [
    "path.read_text()", "(folder / 'x').read_bytes()", "open(path)", "open(path, 'rb')", "open(path, encoding='utf-8')",
    "path.open()", "path.open('rb')", "np.load(path)", "np.fromfile(path, np.int8)", "os.open(path, os.O_RDONLY)"])
def test_a_read_is_seen(text: str):
    assert _reads(ast.parse(text).body[0].value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [
    "open(path, 'w')", "path.open('ab', buffering=0)", "open(1, 'w', closefd=False)", "archive.open(name)",
    "np.load(io.BytesIO(content))", "np.load(content, allow_pickle=False)", "Image.open(file)", "self._machine.open()",
    "os.open(path, os.O_CREAT | os.O_RDWR)"])
def test_what_is_none(text: str):
    assert not _reads(ast.parse(text).body[0].value)  # type: ignore[attr-defined]


def test_all_reads_are_in_one_place():
    found = set()
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        lines = [node.lineno for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Call) and _reads(node)]
        name = str(path.relative_to(ROOT))
        assert not lines or name in _OTHERWISE, f"{name}:{lines[0]} reads a file by itself, and not by npudriver.files"
        found |= {name} if lines else set()
    assert found == _OTHERWISE.keys()
