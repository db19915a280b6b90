"""Rows of what the units cost: each unit is mapped once, and its cycles follow from the products that it makes."""

from types import SimpleNamespace

import pytest

from cores.arch.stochastic import Circuit
from gen.bench import stochastic_area
from gen.bench.stochastic_area import LENGTHS, measure_area


def test_cycles_of_products(tmp_path, monkeypatch):
    monkeypatch.setattr(stochastic_area, "emit_component", lambda unit: type(unit).__name__)
    monkeypatch.setattr(stochastic_area, "synthesize",
                        lambda verilog, *_, **__: SimpleNamespace(totals={"lut": verilog}))
    monkeypatch.setattr(stochastic_area, "measure_timing", lambda *_, **__: SimpleNamespace(levels=5))
    rows = {row.unit: row for row in measure_area("xcup", tmp_path)}
    assert list(rows) == ["int8, 128 MACs", "binary", *(circuit.label for circuit in Circuit)]
    assert rows["binary"].resources == {"lut": "BinaryUnit"} and rows["binary"].levels == 5
    assert rows["int8, 128 MACs"].cycles == dict.fromkeys(LENGTHS, 1 / 128)
    # 16 products of each of 4 rows and 2 pixels, a bit of them in a cycle.
    assert rows["and-loop"].cycles == pytest.approx({length: length / 128 for length in LENGTHS})
