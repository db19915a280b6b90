"""What is left out of `make test` and `make check`, and how what a test costs is seen."""

import subprocess
from itertools import combinations, product
from types import SimpleNamespace

import pytest

from sim.rtl import RtlMachine
from tests.costs import CASES, Guard, costs_of, for_check
from tests.selection import pairwise

_AXES = ([("a", 1), ("b", 2), ("c", 3)], [(4,), (5,), (6,), (7,)], [(True,), (False,)])


def test_each_two_choices_meet():
    cases = pairwise(*_AXES)
    assert [case.values for case in cases] == [tuple(sum(parts, ())) for parts in product(*_AXES)]
    quick = [case.values for case in cases if not case.marks]
    assert 12 <= len(quick) < len(cases)
    for one, other in combinations(({0, 1}, {2}, {3}), 2):
        used = sorted(one | other)
        wanted = {tuple(case.values[place] for place in used) for case in cases}
        assert {tuple(values[place] for place in used) for values in quick} == wanted


class _Runner:
    def run(self) -> None:
        subprocess.run(["true"])


def _calls_a_helper() -> None:
    _Runner().run()


def _makes_a_machine() -> None:
    [RtlMachine for _ in ()]


def test_costs_are_seen():
    """In a class, in what a function calls, in what is nested in it; in no other."""
    assert costs_of(_Runner) == costs_of(_calls_a_helper) == {"cli"}
    assert costs_of(_makes_a_machine) == {"rtl"}
    assert costs_of(test_each_two_choices_meet) == frozenset()


class _Item(SimpleNamespace):
    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers


def test_what_a_check_has():
    """The first and the last of many cases; none that is expensive."""
    items = [_Item(nodeid=f"t.py::test[{number}]", markers=["slow"] if number == 9 else []) for number in range(10)]
    one = _Item(nodeid="t.py::other", markers=[])
    chosen = for_check([*items, one])  # type: ignore[list-item]
    assert len(chosen) == CASES + 1 and chosen[0] is items[0] and chosen[-2:] == [items[8], one]


@pytest.mark.parametrize("markers, fails", [([], True), (["cli"], False)])
def test_the_guard(markers: list[str], fails: bool):
    guard, item = Guard(), _Item(nodeid="t.py::test", markers=markers)
    for step in (guard.pytest_runtest_setup, guard.pytest_runtest_teardown):
        hook = step(item)  # type: ignore[arg-type]
        next(hook)
        if step == guard.pytest_runtest_setup:
            with pytest.raises(StopIteration):
                hook.send(None)
            guard._heard("subprocess.Popen", ("verilator", ["verilator", "--cc"], None, None))
    if fails:
        with pytest.raises(pytest.fail.Exception, match="it starts `verilator --cc`: mark it"):
            hook.send(None)
    else:
        with pytest.raises(StopIteration):
            hook.send(None)
