"""Files are read by `npudriver.files` alone: regular ones, which end and do not wait, with errors that name them."""

import ast
import re
from collections.abc import Iterator

from tests import ROOT
from tests.lint.imports import PACKAGES

#: Who reads otherwise, and why.
_OTHERWISE = {
    "npudriver/files.py": "the one place",
    "sim/rtl/build.py": "opens a folder, to be locked",
    "npudriver/backends/uio.py": "devices are opened to be mapped and waited for",
    "gen/netlist/ecp5_copies.py": "is copied to where a build is, and stands alone there",
    "gen/netlist/ecp5_multipliers.py": "is copied to where a build is, and stands alone there",
}
#: What any read has in it: few files are looked at more closely.
_PERHAPS = re.compile(r"open|np\.load|read_text|read_bytes|fromfile")
#: What NumPy may read: what is open, or in memory.
_OPEN = ("file", "content", "io.BytesIO")


def is_read(call: ast.Call) -> bool:
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


def broken() -> Iterator[str]:
    """Reads that are elsewhere, and names of `_OTHERWISE` that read nothing, a line each."""
    found = set()
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        text = path.read_text()
        nodes = ast.walk(ast.parse(text)) if _PERHAPS.search(text) else ()
        lines = [node.lineno for node in nodes if isinstance(node, ast.Call) and is_read(node)]
        name = str(path.relative_to(ROOT))
        if lines and name not in _OTHERWISE:
            yield f"{name}:{lines[0]}: reads a file by itself, and not by npudriver.files"
        found |= {name} if lines else set()
    for name in sorted(_OTHERWISE.keys() - found):
        yield f"tests/lint/reads.py: {name} reads no file any more"
