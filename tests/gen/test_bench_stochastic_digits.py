"""The digits example by stochastic circuits: rows, what is kept, and the answers of a circuit that hardly errs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.bench import stochastic_digits
from gen.bench.classifier import Classifier, digits_classifier
from gen.bench.stochastic_digits import measure_digits
from gen.bench.stochastic_network import plot
from gen.files.figure import drawn
from gen.files.results import write_entry
from tests.gen.stochastic.few_digits import ROOT, few_digits


@pytest.fixture
def few() -> Classifier:
    return few_digits()


def test_samples_are_split(few: Classifier):
    """What ranges are chosen by is not what is tested."""
    digits = digits_classifier(ROOT)
    assert (len(digits.calibration), len(digits.images), len(digits.labels)) == (239, 360, 360)
    assert few.digest != digits.digest == digits_classifier(ROOT).digest
    changed = few.labels.copy()
    changed[0] += 1
    assert few.digest != replace(few, labels=changed).digest


@pytest.mark.slow
def test_rows(tmp_path: Path, few: Classifier, monkeypatch: pytest.MonkeyPatch):
    """All circuits; those that are looked up on all images. The second time nothing is computed anew."""
    lengths = {circuit: (8,) if circuit.serial else (8, 256) for circuit in Circuit}
    monkeypatch.setattr(stochastic_digits, "lengths_of", lengths.__getitem__)
    rows = list(measure_digits(few, tmp_path, few=2))
    looked_up = (Circuit.XNOR_MUX, Circuit.AND_LOOP)
    assert [(row.circuit, row.length, row.images) for row in rows] == [
        ("int8", None, 12), ("int8", None, 2),
        *((circuit.label, length, 12 if circuit in looked_up else 2) for circuit in Circuit
          for length in lengths[circuit])]
    right = {(row.circuit, row.length): row.right for row in rows if row.images == 12}
    assert right["int8", None] > 0.9
    assert right["and-loop", 256] >= right["int8", None] - 1 / 12
    assert right["xnor-mux", 8] < 0.5
    assert drawn(plot(rows)).startswith(b"\x89PNG")

    for path in tmp_path.iterdir():
        write_entry(path, json.dumps({"right": 0.125}))
    assert [row.right for row in measure_digits(few, tmp_path, few=2)] == [0.125] * len(rows)
    others = replace(few, images=np.flip(few.images, axis=-1).copy())
    monkeypatch.setattr(stochastic_digits, "lengths_of", lambda circuit: (8,) if circuit in looked_up else ())
    assert {row.right for row in measure_digits(others, tmp_path, few=2) if row.length} != {0.125}
