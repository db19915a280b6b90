"""How imports are read, and what of them is refused."""

from pathlib import Path

import pytest

from tests.lint import imports
from tests.lint.imports import Import, all_imports, broken, circle, imports_of, modules, needs


@pytest.mark.slow
def test_a_wrong_edge_is_found(monkeypatch: pytest.MonkeyPatch):
    """One that is missing, one too many, and a table that goes both ways."""
    edges = {**imports.EDGES, "cores.errors": "gen.ir", "gen.passes": "cores.config"}
    monkeypatch.setattr(imports, "EDGES", edges)
    lines = list(broken())
    assert any("imports gen.ir" in line and "has not" in line for line in lines)
    assert "tests/lint/imports.py: cores.errors no longer imports gen.ir" in lines
    assert "tests/lint/imports.py: cores.errors imports gen.ir, which stands below it" in lines
    assert len(all_imports()) > 500


def test_circles_are_found():
    assert circle(needs({Import("a", "b"), Import("b", "c"), Import("b", "d")})) == []
    assert sorted(set(circle(needs({Import("a", "b"), Import("b", "c"), Import("c", "a")})))) == ["a", "b", "c"]


@pytest.mark.parametrize("text, expected", [
    ("import sim.cycles", ["sim.cycles"]),
    ("import numpy", []),
    ("from sim import cycles, errors", ["sim.cycles", "sim.errors"]),
    ("from sim.errors import MachineError", ["sim.errors"]),
    ("from .build import build_library", ["sim.rtl.build"]),
    ("from ..errors import MachineError", ["sim.errors"]),
    ("from .. import golden", ["sim.golden"]),
    ("def f():\n    from sim import cycles", ["sim.cycles"]),
    ("if TYPE_CHECKING:\n    from sim import cycles\nimport sim", ["sim.cycles", "sim"]),
])
def test_imports_are_read(text: str, expected: list[str], tmp_path: Path):
    (tmp_path / "module.py").write_text(text)
    found = list(imports_of("sim.rtl.module", tmp_path / "module.py", modules()))
    assert [item.imported for item in found] == expected
