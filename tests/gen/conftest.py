"""What tests of the command line share."""

import functools

import pytest

from cores.emit import emit_verilog
from gen.cli.common import lines

#: Commands that build the same machine have its Verilog from the first: it is the same bytes each time, which
#: tests/cores/test_emit.py holds, and takes seconds.
#: In a table, as a function that a fixture names is a cost of all its tests (tests/costs.py).
_ONCE = {"cores.emit.emit_verilog": functools.cache(emit_verilog)}


@pytest.fixture(autouse=True)
def _no_lines_on_the_way(monkeypatch: pytest.MonkeyPatch):
    """What a command says on stderr must not depend on how fast this machine is."""
    monkeypatch.setattr(type(lines), "FIRST", 3600.0)


@pytest.fixture(autouse=True)
def _emitted_once(monkeypatch: pytest.MonkeyPatch):
    for name, once in _ONCE.items():
        monkeypatch.setattr(name, once)
