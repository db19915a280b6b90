"""What tests of the command line share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.cli.common import lines
from tests.emitted import emitted

#: Commands that build the same machine have its Verilog from the first.
#: In a table, as a function that a fixture names is a cost of all its tests (tests/costs.py).
_ONCE = {"cores.emit.emit_verilog": emitted}


@pytest.fixture
def model(digits: Path) -> str:
    """The bundled example's model; files of tests that need another have their own."""
    return str(digits / "digits_int8.onnx")


@pytest.fixture
def samples(digits: Path) -> str:
    """Its test images."""
    return str(digits / "digits_test.npz")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands must not depend on where they are called."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _no_lines_on_the_way(monkeypatch: pytest.MonkeyPatch):
    """What a command says on stderr must not depend on how fast this machine is."""
    monkeypatch.setattr(type(lines), "FIRST", 3600.0)


@pytest.fixture(autouse=True, scope="module")
def _emitted_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, once in _ONCE.items():
            patch.setattr(name, once)
        yield
