"""Long runs of the tests go on where an earlier one of the same sources ended: ``--resume``, as in `make test-full`.

Tests are kept line by line in build/tests, with their outcome and the seconds that they took, a file for each state of
the sources and each seed: those that passed are not run again. A run of all tests that comes to its end without a
failure closes its file: the next begins anew. A run of some of them (paths, ``-k``, no ``--full``) leaves it open.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.folders import cache_folder

__all__ = ["Resume", "earlier_seed", "sources_state"]

_ROOT = Path(__file__).resolve().parents[1]
#: What decides whether a test passes.
_SOURCES = ("boards", "cores", "docs", "examples", "gen", "npudriver", "npugen", "sim", "tests", "Makefile",
            "README.md", "pyproject.toml")
#: End of the name of a file of a run that has ended, and of one that has not.
_WHOLE, _BEGUN = ".whole.jsonl", ".begun.jsonl"


def sources_state() -> str:
    """Changes with all that is tested, and with the tests; 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for place in _SOURCES:
        for path in sorted(path for path in [_ROOT / place, *(_ROOT / place).rglob("*")] if path.is_file()):
            if "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def earlier_seed() -> int | None:
    """Seed of the latest run of these sources that has not ended; None if there is none."""
    files = (cache_folder() / "tests").glob(f"{sources_state()}-*{_BEGUN}")
    begun = sorted(files, key=lambda path: path.stat().st_mtime)
    return int(begun[-1].name.removesuffix(_BEGUN).partition("-")[2]) if begun else None


class Resume:
    """The plugin: of a run in one process, and of the controller and the workers of one in several."""

    def __init__(self, config: pytest.Config, seed: int) -> None:
        self._worker = hasattr(config, "workerinput")
        self._path = cache_folder() / "tests" / f"{sources_state()}-{seed}{_BEGUN}"
        #: Of the tests under way.
        self._seconds: dict[str, float] = {}
        self._outcomes: dict[str, str] = {}
        self._earlier = frozenset(config.workerinput["passed"] if self._worker else self._kept())
        self._all = not _is_part(config)

    def _kept(self) -> Iterator[str]:
        if not self._path.is_file():
            return
        text = self._path.read_bytes()
        whole = text[:text.rfind(b"\n") + 1]
        if whole != text:       # the last line was cut: the next one would go on with it
            os.truncate(self._path, len(whole))
        for one in map(json.loads, whole.splitlines()):
            if one["outcome"] == "passed":
                yield one["test"]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node) -> None:
        node.workerinput["passed"] = sorted(self._earlier)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if item.nodeid in self._earlier]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item.nodeid not in self._earlier]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._worker:
            return
        crashed = report.when not in ("setup", "call", "teardown")      # its worker
        if report.when == "setup" or crashed:
            self._seconds[report.nodeid], self._outcomes[report.nodeid] = 0.0, report.outcome
        self._seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self._outcomes[report.nodeid] = report.outcome
        if report.when == "teardown" or crashed:
            self._keep(report.nodeid)

    def _keep(self, test: str) -> None:
        outcome, seconds = self._outcomes.pop(test), self._seconds.pop(test)
        if outcome == "skipped":
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            print(json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 3)}), file=file)

    def pytest_terminal_summary(self, terminalreporter) -> None:
        if self._earlier:
            terminalreporter.write_line(f"{len(self._earlier):,} more tests passed in earlier runs of these sources: "
                                        f"{self._path.name}, until all have passed")

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if not self._worker and self._all and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) \
                and self._path.is_file():
            self._path.replace(self._path.with_name(self._path.name.removesuffix(_BEGUN) + _WHOLE))


def _is_part(config: pytest.Config) -> bool:
    """Whether a run is told to leave tests out."""
    options = config.option
    return bool(config.args_source == pytest.Config.ArgsSource.ARGS or options.keyword or options.markexpr
                or options.deselect or options.ignore or options.ignore_glob or not getattr(options, "full", True))
