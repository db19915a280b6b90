"""Energy of layers in multiplications: by hand, and shares."""

from typing import Any

import pytest

from gen.cli.profile import _rounded
from gen.run.energy_ratio import HIGH, LOW, UNCOUNTED, energy_of, energy_shares


def layer(mode: str = "dense", **changed: int) -> dict[str, Any]:
    return {"mode": mode, "slots": 6400, "useful": 90, "idle_pixels": 6, "idle_lanes": 4, "dram_bytes": 50, **changed}


def test_by_hand():
    """In pJ: 0.3 a multiplication, 14 times that in an FPGA at most; 10 and 20 for 8 bytes of a buffer, 1.3 and 2.6 nJ
    for 8 of memory."""
    low = (6400 * 14 * 0.3 + 100 * 32 * 10 / 8 + 50 * 1300 / 8) / (14 * 0.3)
    high = (6400 * 0.3 + 100 * 32 * 20 / 8 + 50 * 2600 / 8) / 0.3
    assert energy_of(layer(), 32, LOW) == pytest.approx(low)
    assert energy_of(layer(), 32, HIGH) == pytest.approx(high)


@pytest.mark.parametrize("mode", UNCOUNTED)
def test_other_products_are_left_out(mode: str):
    for scale in (LOW, HIGH):
        assert energy_of(layer(mode), 32, scale) == energy_of(layer(slots=0), 32, scale)


def test_shares():
    layers = [layer(), layer(dram_bytes=100_000), layer(slots=0, useful=0, idle_pixels=0, idle_lanes=0, dram_bytes=0)]
    shares, totals = energy_shares(layers, 32)
    assert totals == [sum(energy_of(one, 32, scale) for one in layers) for scale in (LOW, HIGH)]
    assert shares[2] == [0, 0] and all(low <= high for low, high in shares)
    ends = [[energy_of(one, 32, scale) / total for one in layers] for scale, total in zip((LOW, HIGH), totals,
                                                                                         strict=True)]
    assert shares == [sorted(pair) for pair in zip(*ends, strict=True)] and sum(ends[0]) == pytest.approx(1)


def test_nothing_takes_nothing():
    shares, totals = energy_shares([layer(slots=0, useful=0, idle_pixels=0, idle_lanes=0, dram_bytes=0)], 32)
    assert (shares, totals) == ([[0, 0]], [0, 0])


@pytest.mark.parametrize("value, text", [
    (0, "0"), (0.0123, "0.012"), (38.7, "39"), (1083, "1,100"), (1_234_567, "1,200,000"), (99.9, "100")])
def test_two_digits(value: float, text: str):
    assert _rounded(value) == text
