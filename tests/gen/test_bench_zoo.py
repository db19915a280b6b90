"""Networks on boards' memories: which machines are reckoned with, and what bounds a network."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from boards.registry import BOARDS
from cores.config import NpuConfig
from gen.bench import zoo
from gen.bench.waits import Waits, bound_of, waits_of
from gen.bench.zoo import NETWORKS, ZooNetwork, fitted, measure, plot
from gen.cli import main
from gen.cli.common import console
from gen.files.figure import drawn
from gen.run.workload import open_workload
from gen.zoo.registry import get_network


def test_boards_that_hold_the_machine():
    """Boards that do not differ are one; those that are too small are named."""
    found, small = fitted(NpuConfig.preset(256), BOARDS.values())
    assert [one.board.name for one in found] == ["cyclonev", "kv260", "zcu102", "zu3eg", "zynq7020"]
    assert {board.name for board in small} == {"de1-soc", "ecp5", "ecpix-5"}
    for one in found:
        assert (one.config.multiplier_width, one.config.address_width) == (
            one.board.multiplier_width, one.board.address_width)
        assert one.clock.mhz == one.board.clock_mhz and one.dram is not None


@pytest.mark.parametrize("ideal, cycles, waits, bound", [
    (100, 101, 5, "compute"), (100, 101, 20, "port"), (100, 130, 40, "memory"), (100, 111, 0, "compute"),
    (100, 112, 0, "memory"),
])
def test_what_bounds_a_network(ideal: int, cycles: int, waits: int, bound: str):
    assert bound_of(Waits(cycles=ideal, waits=0, in_layers=0), Waits(cycles=cycles, waits=waits, in_layers=0)) == bound


@pytest.mark.slow
def test_rows(monkeypatch: pytest.MonkeyPatch):
    """LeNet on a fast memory and on a slow one: the same program, and nothing faster than on the ideal one."""
    quick = BOARDS["zu3eg"]
    where, _ = fitted(NpuConfig.preset(16), [quick, replace(quick, name="slow", memory=BOARDS["ecp5"].memory)])
    said: list[str] = []
    fast, slow = measure(where, [ZooNetwork("lenet5")], said.append)
    assert (fast.network, slow.network) == ("zu3eg: LeNet-5", "slow: LeNet-5")
    assert fast.ideal == slow.ideal and fast.ideal <= fast.cycles < slow.cycles
    assert slow.bound == "memory" and slow.lost == pytest.approx(100 * (slow.cycles - slow.ideal) / slow.cycles)
    assert fast.seconds == pytest.approx(fast.cycles / 333e6)
    assert (fast.clock_mhz, fast.clock) == (333, "target")
    assert 0 < fast.waiting_layers <= 100 and fast.waits < slow.waits < 100
    assert said[0] == "making LeNet-5" and drawn(plot([fast, slow])).startswith(b"\x89PNG")


def test_waits_of_the_layers(digits: Path):
    program = open_workload(digits / "digits_int8.onnx", BOARDS["ecp5"].config(16)).program
    (one,), _ = fitted(program.config, [BOARDS["ecp5"]])
    ideal, real = waits_of(program, None), waits_of(program, one.dram)
    assert real.cycles > ideal.cycles and real.waits > ideal.waits and real.in_layers > ideal.in_layers
    assert (ideal + real).cycles == ideal.cycles + real.cycles


def test_all_networks_are_of_the_zoo():
    assert len({network.title for network in NETWORKS}) == len(NETWORKS)
    assert all(get_network(network.name).size >= (224, 224) for network in NETWORKS)
    assert all(get_network(name) for name in zoo.RECENT)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Table and plot; milliseconds for people."""
    monkeypatch.setattr(zoo, "NETWORKS", [ZooNetwork("lenet5")])
    monkeypatch.setattr("gen.cli.journal.cache_folder", lambda: tmp_path / "cache")
    for side, size in (("_width", 160), ("_height", 25)):   # in less columns words are cut
        monkeypatch.setattr(console, side, size)
    assert main(["bench", "zoo", "--macs", "16", "--board", "ecp5", "-o", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "ecp5: LeNet-5" in said.out and " ms " in said.out and " 85 " in said.out and " target" in said.out
    assert (tmp_path / "zoo.png").is_file()
    assert main(["bench", "zoo", "--macs", "512", "--board", "ecp5"]) == 1      # nothing was measured
    assert "the machine does not fit ecp5" in capsys.readouterr().err


def test_an_interrupted_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """With the network that it was at."""
    monkeypatch.setattr(zoo, "NETWORKS", [ZooNetwork("lenet5"), ZooNetwork("lenet5", 0.5)])
    monkeypatch.setattr("gen.cli.journal.cache_folder", lambda: tmp_path)
    measured: list[float | None] = []

    def interrupted(where, networks, progress):
        measured.append(networks[0].density)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return measure(where, networks, progress)

    monkeypatch.setattr(zoo, "measure", interrupted)
    arguments = ["bench", "zoo", "--macs", "16", "--board", "zu3eg", "--json"]
    assert main(arguments) == 130
    capsys.readouterr()
    assert main(arguments) == 0
    assert measured == [None, 0.5, 0.5]
    assert [row["network"] for row in json.loads(capsys.readouterr().out)["zoo"]] == [
        "zu3eg: LeNet-5", "zu3eg: LeNet-5, 50 % of the weights"]


def test_recent_networks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Cycles by the time model beside what the processor has, and values of the functional simulator."""
    monkeypatch.setattr(zoo, "RECENT", ("lenet5",))
    assert main(["bench", "recent", "--macs", "16", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["recent"]
    assert (row["network"], row["MMACs"], row["accelerated_%"], row["processor_nodes"]) == ("LeNet-5", 0.41652, 100, 0)
    assert row["values"] > 5_000 and (row["wrong"], row["segments"]) == (0, 1)
    assert row["fps"] == pytest.approx(333e6 / row["cycles"])
    assert row["used_%"] == pytest.approx(100 * 416_520 / 16 / row["cycles"])
