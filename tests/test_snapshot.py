"""The comparison of two states: what it covers, and what it holds to be a failure."""

from collections.abc import Collection
from typing import Any

import pytest

from cores.config import COMPUTING_FEATURES, FEATURES
from cores.config.presets import features_of
from tests.random_cases import MACHINES
from tests.snapshot import BOARD, differences


@pytest.mark.parametrize(("machines", "features"), [(BOARD, COMPUTING_FEATURES), (MACHINES, FEATURES)])
def test_the_machines_have_every_feature(machines: dict[str, Any], features: Collection[str]) -> None:
    assert {name for config in machines.values() for name in features_of(config)} == set(features)


@pytest.mark.parametrize(("before", "after", "failure"), [
    ({"cycles": 100_000}, None, True),
    ({"cycles": 100_000}, {"error": "no room"}, True),
    ({"error": "no room"}, {"cycles": 100_000}, False),
    ({"outputs": "ab"}, {"outputs": "ac"}, True),
    ({"outputs": "ab"}, {}, True),
    ({"cycles": 100_000}, {"cycles": 100_101}, True),
    ({"cycles": 100_000}, {"cycles": 100_100}, False),
    ({"cycles": 1_000}, {"cycles": 1_021}, True),
    ({"cycles": 1_000}, {"cycles": 1_020}, False),
    ({"cycles": 1_000}, {"cycles": 900}, False),
    ({"lut": 1_000}, {"lut": 1_010}, False),
    ({"lut": 1_000}, {"lut": 1_011}, True),
    ({"dsp": 10}, {"dsp": 11}, True),
    ({"levels": 4}, {"levels": 5}, True),
    ({"levels": 5}, {"levels": 4}, False),
    ({"host nodes": 4}, {"host nodes": 5}, True),
    ({"verilog": "ab"}, {"verilog": "ac"}, False),
])
def test_what_is_a_failure(before: dict[str, Any], after: dict[str, Any] | None, failure: bool) -> None:
    found = list(differences({"case": before}, {} if after is None else {"case": after}))
    assert len(found) == 1 and found[0].failure is failure


def test_seconds_are_no_difference() -> None:
    assert not list(differences({"case": {"seconds": 1.0}}, {"case": {"seconds": 2.0}}))


def test_a_value_that_is_not_the_references() -> None:
    assert [one.failure for one in differences({}, {"case": {"wrong": 1}})] == [True]
