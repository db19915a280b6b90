"""What tests of the command line share."""

import pytest

from gen.cli.common import lines


@pytest.fixture(autouse=True)
def _no_lines_on_the_way(monkeypatch: pytest.MonkeyPatch):
    """What a command says on stderr must not depend on how fast this machine is."""
    monkeypatch.setattr(type(lines), "FIRST", 3600.0)
