"""Worker processes: jobs of any length, processes that die, and contexts that end early."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gen.explore.errors import ExploreError
from gen.explore.workers import Here, local_workers
from sim.toolchain import child_process


class Slow:
    """Jobs say what they do: wait until a file is there, or let their process die."""

    identity = "slow"

    def measure(self, jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        for job in jobs:
            if "dies" in job:
                os._exit(3)
            if "begun" in job:
                Path(job["begun"]).write_text(str(os.getpid()))
            if "tool" in job:
                with child_process(["sleep", "600"], Path.cwd()) as process:
                    Path(job["tool"]).write_text(str(process.pid))
            while "until" in job and not Path(job["until"]).exists():
                time.sleep(0.01)
        return [{"number": job["number"]} for job in jobs]


@pytest.mark.slow
def test_results_come_as_they_are_done(tmp_path: Path):
    """The first group waits for the second one's result."""
    groups = [[{"number": 0, "until": str(tmp_path / "there")}], [{"number": 1}, {"number": 2}]]
    order = []
    with local_workers(Slow(), 2) as workers:
        for number, results in workers.run(groups):
            order.append((number, results))
            (tmp_path / "there").write_text("")
    assert order == [(1, [{"number": 1}, {"number": 2}]), (0, [{"number": 0}])]
    with local_workers(Slow(), 1) as workers:
        assert isinstance(workers, Here) and sorted(workers.run(groups)) == sorted(order)


@pytest.mark.slow
def test_what_is_under_way_is_given_up(tmp_path: Path):
    """A job without an end goes with the context."""
    begun, never = tmp_path / "begun", tmp_path / "never"
    groups = [[{"number": 0, "begun": str(begun), "until": str(never)}], [{"number": 1, "until": str(begun)}]]
    with pytest.raises(KeyboardInterrupt), local_workers(Slow(), 2) as workers:
        for number, _ in workers.run(groups):
            assert number == 1
            raise KeyboardInterrupt
    try:
        assert_ended(int(begun.read_text()))
    finally:
        never.write_text("")


def assert_ended(process: int) -> None:
    deadline = time.monotonic() + 30
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "it is still at it"
        time.sleep(0.01)


@pytest.mark.slow
def test_tools_end_with_their_worker(tmp_path: Path):
    tool = tmp_path / "tool"
    groups = [[{"number": 0, "tool": str(tool)}], [{"number": 1, "until": str(tool)}]]
    with pytest.raises(KeyboardInterrupt), local_workers(Slow(), 2) as workers:
        for _ in workers.run(groups):
            raise KeyboardInterrupt
    while not tool.read_text():     # it may not have been written yet
        time.sleep(0.01)
    process = int(tool.read_text())
    try:
        assert_ended(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


def test_a_process_that_dies():
    with pytest.raises(ExploreError, match="a worker process has died.*--jobs"), local_workers(Slow(), 2) as workers:
        list(workers.run([[{"number": 0, "dies": 1}], [{"number": 1}]]))
