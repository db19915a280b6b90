"""Hostile and slow clients of the server: they reach nothing that is not lent, and keep nobody out.

``python -m tests.fuzz.remote`` says how a case is repeated; `tests.fuzz.remote.Fuzzer` says what is asked of one.
"""

import os
from typing import Any

import pytest

from tests.fuzz.remote import KINDS, run

FULL, CASES = 2400, 150


def fuzz(first: int, count: int) -> None:
    seed = int(os.environ["NPUGEN_SEED"])
    results: list[dict[str, Any]] = []
    run(seed, first, count, results.append)
    wrong = [result for result in results if result["wrong"]]
    assert not wrong, f"repeat with: python -m tests.fuzz.remote {seed} NUMBER 1\n" + "\n".join(map(str, wrong))
    assert len(results) == count and {result["kind"] for result in results} == set(KINDS)
    # What is all refused at the door would show nothing, nor what is all let in.
    jobs = [result["starts"] for result in results if result["kind"] == "job"]
    assert sum(starts > 0 for starts in jobs) >= len(jobs) // 10 and jobs.count(0) >= len(jobs) // 10


@pytest.mark.slow
def test_messages():
    fuzz(0, CASES)


@pytest.mark.full
def test_many_messages():
    fuzz(CASES, FULL)
