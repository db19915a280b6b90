"""The timing diagrams of docs/integration.md are what the machine does."""

import io
import json

import pytest

from tests.waves import DIAGRAMS, FOLDER, record, wave_json


@pytest.mark.full
def test_diagrams_are_what_the_machine_does():
    pytest.importorskip("vcdvcd")
    wavedrom = pytest.importorskip("wavedrom")
    found = record()
    for diagram in DIAGRAMS:
        text, drawn = (FOLDER / f"{diagram.name}.json").read_text(), io.StringIO()
        assert json.loads(text) == wave_json(diagram, found), f"{diagram.name}: run `python -m tests.waves`"
        wavedrom.render(text).write(drawn)
        assert (FOLDER / f"{diagram.name}.svg").read_text() == drawn.getvalue(), f"{diagram.name}.svg is not drawn anew"
