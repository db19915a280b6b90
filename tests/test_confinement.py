"""A sample of the mutated programs of tests/confinement.py, and what they do to a machine without limits."""

from dataclasses import replace

import pytest

from sim.rtl import RtlMachine
from tests.confinement import CONFIG, confined

pytestmark = pytest.mark.rtl


def test_mutated_programs_stay_inside():
    with RtlMachine(CONFIG) as machine:
        machine.reset()
        outcomes = list(confined(machine, range(120)))
    assert [outcome for outcome in outcomes if outcome.broken] == []
    assert {"DONE", "FETCH_LIMIT", "LOAD_LIMIT", "STORE_LIMIT"} <= {outcome.end for outcome in outcomes}


def test_the_same_leave_a_machine_without_limits():
    """The check of addresses is one: where the registers are another's, nothing else holds a program back."""
    with RtlMachine(replace(CONFIG, limits=0)) as machine:
        machine.reset()
        outcomes = list(confined(machine, range(0, 100, 4)))
    assert sum("leaves the windows" in outcome.broken for outcome in outcomes) > 5
