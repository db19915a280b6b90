"""The timing diagrams of docs/integration.md are what the machine does."""

import json

import pytest

from tests.waves import DIAGRAMS, FOLDER, record, wave_json


@pytest.mark.full
def test_diagrams_are_what_the_machine_does():
    pytest.importorskip("vcdvcd")
    found = record()
    for diagram in DIAGRAMS:
        drawn = json.loads((FOLDER / f"{diagram.name}.json").read_text())
        assert drawn == wave_json(diagram, found), f"{diagram.name}: run `python -m tests.waves`"
        assert (FOLDER / f"{diagram.name}.svg").is_file()
