"""What goes on, on stderr: lines now and then off a terminal, and measurements that outlive an interrupt."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cores.config import NpuConfig
from gen.bench.comparisons import Case, Comparison
from gen.cli import bench_datapaths, main
from gen.cli.bench_datapaths import _Part
from gen.cli.common import counter, lines, status
from gen.cli.doctor import Check
from gen.cli.journal import Journal
from sim import folders


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch):
    """Lines come after hundredths of a second."""
    monkeypatch.setattr(type(lines), "FIRST", 0.01)
    monkeypatch.setattr(type(lines), "LONGEST", 0.04)
    lines.begin()


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_long_steps_say_that_they_go_on(hasty: None, capsys: pytest.CaptureFixture):
    said = ""

    def has(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return re.search(rf"^{text}, \d+ s$", said, re.MULTILINE) is not None

    with status("yosys, xcup") as remark:
        _until(lambda: has("yosys, xcup"))
        remark("2.17 ABC")
        _until(lambda: has("yosys, xcup: 2.17 ABC"))
    with counter("rtl", 1000) as update:
        update(3, 24_994)
        _until(lambda: has("rtl: 3 of 1,000, 24,994 cycles"))
    assert set(re.sub(r"\d+ s$", "", line) for line in said.splitlines()) <= {
        "yosys, xcup, ", "yosys, xcup: 2.17 ABC, ", "rtl, ", "rtl: 3 of 1,000, 24,994 cycles, "}


def test_pauses_grow_to_a_minute(monkeypatch: pytest.MonkeyPatch):
    """However many steps there are."""
    now, said = [1000.0], []
    monkeypatch.setattr(type(lines), "FIRST", 5.0)
    monkeypatch.setattr("gen.cli.common.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gen.cli.common.messages.print", lambda *_, **__: said.append(now[0] - 1000))
    lines.begin()
    while now[0] < 1400:
        with status("a short step"):
            time.sleep(0.001)  # the other thread looks at once
        now[0] += 1
    assert said == pytest.approx([5, 10, 20, 40, 80, 140, 200, 260, 320, 380], abs=2)


def test_quick_commands_say_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(type(lines), "FIRST", 5.0)
    lines.begin()
    with status("quick") as remark, counter("too", 2) as update:
        remark("really")
        update(1, 0)
    assert capsys.readouterr() == ("", "")


def test_json_is_all_there_is_on_stdout(monkeypatch: pytest.MonkeyPatch, hasty: None, capsys: pytest.CaptureFixture):
    def slow():
        time.sleep(0.5)
        yield Check("slow", True, "")

    monkeypatch.setattr("gen.cli.doctor.tool_checks", slow)
    assert main(["doctor", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["ok"]
    said = r"^looking: building with Verilator, starting Yosys; the first time a minute or two, \d+ s$"
    assert re.search(said, captured.err, re.MULTILINE)


class _Bench:
    """A part of `bench datapaths` with three layers that take no time; the one that ``stop`` names is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.measured: list[str] = []
        self.stop: str | None = "b"
        part = _Part("part", "a part", NpuConfig.preset(16), [Case(name, self._measure(name)) for name in "abc"])
        monkeypatch.setattr(bench_datapaths, "_parts", lambda arguments: (part,))
        monkeypatch.setattr("sim.rtl.machine.build_library", lambda *_, **__: pytest.fail("a simulation was built"))
        monkeypatch.setattr("sim.rtl.machine.RtlMachine.__init__", lambda *_: None)

    def _measure(self, name: str) -> Callable[..., Comparison]:
        def measure(machine: object) -> Comparison:
            if self.stop == name:
                raise KeyboardInterrupt
            self.measured.append(name)
            return Comparison(layer=f"layer {name}", before=200, cycles=100, ideal=90, busy=95, wrong=0, causes={})
        return measure


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Bench:
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path))
    monkeypatch.setenv("NPUGEN_MODELS", str(tmp_path / "none"))
    return _Bench(monkeypatch)


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_an_interrupted_bench_keeps_what_it_has_measured(
        bench: _Bench, json_option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["bench", "datapaths", *json_option]) == 130
    captured = capsys.readouterr()
    (journal,) = (tmp_path / "bench").iterdir()
    assert captured.err == (f"measured so far: 1, kept in {journal}; the same command goes on from there\n"
                            "gen bench: interrupted\n")
    assert ("layer a" in captured.out) == (not json_option)
    with journal.open("a") as file:
        file.write('\n{"key": "half a li')
    bench.stop = "c"
    assert main(["bench", "datapaths", *json_option]) == 130
    assert capsys.readouterr().err.startswith(f"going on from {journal}\nmeasured so far: 2, kept in {journal}; ")
    bench.stop = None
    assert main(["bench", "datapaths", *json_option]) == 0
    out = capsys.readouterr().out
    assert bench.measured == ["a", "b", "c"] and all(f"layer {name}" in out for name in "abc")
    assert list((tmp_path / "bench").iterdir()) == []
    assert main(["bench", "datapaths"]) == 0 and len(bench.measured) == 6  # measured anew


def test_a_journal_is_of_one_code(bench: _Bench, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(KeyboardInterrupt), Journal() as journal:
        journal.row("a", dict)
        raise KeyboardInterrupt
    monkeypatch.setattr("gen.cli.journal.sources_digest", lambda: "another")
    assert Journal().row("a", lambda: {"anew": 1}) == {"anew": 1}


def test_other_measurements_stay_in_a_journal(bench: _Bench):
    with pytest.raises(KeyboardInterrupt), Journal() as journal:
        journal.row("64 MACs", lambda: {"cycles": 64})
        raise KeyboardInterrupt
    with Journal() as journal:
        journal.row("256 MACs", lambda: {"cycles": 256})
    assert Journal().row("64 MACs", lambda: pytest.fail("measured again")) == {"cycles": 64}


def test_results_are_kept_outside_the_installed_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("NPUGEN_BUILD", raising=False)
    root = folders.checkout()
    assert root is not None and folders.cache_folder() == root / "build"
    monkeypatch.setattr(folders, "checkout", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folders.cache_folder() == tmp_path / "npugen"
    monkeypatch.setenv("NPUGEN_BUILD", "elsewhere")
    assert folders.cache_folder() == Path("elsewhere")
