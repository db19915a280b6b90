"""`gen explore` of a space of stochastic networks as it is called."""

import json
import re
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from boards.registry import get_board
from cores.arch.stochastic import Circuit
from gen.cli import main
from gen.cli.common import console
from gen.cli.machine import DEFAULT_BOARD
from gen.energy import unit_energy
from gen.energy.activity import Activity
from gen.explore.task import read_task
from gen.stochastic.images import read_mnist
from tests.gen.explore.clusters import dask_cluster
from tests.gen.explore.stream_toy import stream_task
from tests.gen.stochastic.mnist_files import easy_images, write_mnist


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """A space in a folder with images that are quickly learnt; units that need no synthesis."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    map_nothing(monkeypatch, tmp_path / "kept")
    monkeypatch.setenv("NPUGEN_MODELS", str(tmp_path))
    monkeypatch.setattr("gen.stochastic.image_sets.read_mnist", lambda folder: read_mnist(folder, trained=300))
    write_mnist(tmp_path, *easy_images(rng, 340))
    path = tmp_path / "space.json"
    task = stream_task(backbones=["784-12-10", "784-20-10"], circuits=["and-loop"], lengths=[8, 16, 64],
                       bounds=[20, 10, 0], deadline_ms=0.02)
    path.write_bytes(msgspec.json.encode(task))
    return path


def map_nothing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Results are kept in a new folder, and the unit's energy is there already: worker processes find it, too."""
    monkeypatch.setenv("NPUGEN_BUILD", str(folder))
    with monkeypatch.context() as instead:
        instead.setattr(unit_energy, "emit_component", lambda unit: "")
        instead.setattr(unit_energy, "synthesize", lambda *_, **__: SimpleNamespace(totals={"lut": 105}))
        instead.setattr(unit_energy, "_measured", lambda *_: Activity(registers=0, wires=1))
        unit_energy.measure_energy(Circuit.AND_LOOP, get_board(DEFAULT_BOARD).family, folder)


def test_files_and_table(space: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "_width", 160)
    folder = tmp_path / "new"
    assert main(["explore", str(space), "--jobs", "1", "-o", str(folder), "--plots", "png,svg"]) == 0
    captured = capsys.readouterr()
    assert "of 54 points looked at, 54 in all; cycles estimated, energies relative" in captured.out
    assert {path.name for path in folder.iterdir()} == {"explore.json", "explore.csv", "explore.png", "explore.svg"}
    title = re.search(r"(\d+) MACs on Ultra96-V2; clock: [\d., ]+ MHz, given by the levels", (
        folder / "explore.svg").read_text())
    assert title and int(title[1]) == read_task(space).macs
    values = json.loads((folder / "explore.json").read_text())
    (best,) = {values["points"][number]["figures"]["reward"] for number in values["front"]}
    assert best == max(point["figures"]["reward"] for point in values["points"])
    assert (values["energy"], values["cycles"], values["method"]) == ("relative", "estimated", "grid")


@pytest.mark.parametrize("method", ["random", "optuna", "controller"])
def test_known_results_change_nothing(method: str, space: Path, capsys: pytest.CaptureFixture):
    if method == "optuna":
        pytest.importorskip("optuna")
    found = []
    for more in ([], [], ["--no-cache"]):
        options = ["--jobs", "1", "--json", "--method", method, "--evaluations", "12", "--seed", "4"]
        assert main(["explore", str(space), *options, *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] == found[2] and len(found[0]["points"]) == 12


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_cluster_gives_the_same(processes: bool, space: Path, tmp_path: Path, capsys: pytest.CaptureFixture,
                                  monkeypatch: pytest.MonkeyPatch):
    """Two workers, which train a network each, at once, and do so anew."""
    found = []
    for number in range(2):
        map_nothing(monkeypatch, tmp_path / f"results{number}")
        with ExitStack() as stack:
            where = ["--jobs", "1"] if not number else [
                "--scheduler", stack.enter_context(dask_cluster(2, processes=processes))]
            assert main(["explore", str(space), "--json", *where]) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert len(list((tmp_path / f"results{number}" / "stochastic").glob("*.network.kept"))) == 2
    assert found[0] == found[1] and found[0]["front"]


@pytest.mark.parametrize("options, status, words", [
    (["--vary", "macs=64"], 2, "--vary is for models"), (["--space", "x.json"], 2, "--space is for models"),
    (["other.onnx"], 2, "leave the models out"), (["--objectives", "lut"], 2, "no objective 'lut'"),
    (["--jobs", "1", "--scheduler", "x"], 2, "exclude each other"), (["--images", "nowhere"], 2, "--images nowhere"),
    (["--method", "controller", "--objectives", "accuracy"], 2, "learns from a reward alone")])
def test_refusals(options: list[str], status: int, words: str, space: Path, capsys: pytest.CaptureFixture):
    assert main(["explore", str(space), *options]) == status
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and not captured.out


@pytest.mark.parametrize("change, words", [
    (b'"kind":"integer"', "integer"), (b'"kind":"stochastic","kind":"stochastic","speed":1', "unknown field `speed`"),
    (b'"kind":"stochastic","x', "space.json")])
def test_spaces_that_are_none(change: bytes, words: str, space: Path, capsys: pytest.CaptureFixture):
    space.write_bytes(space.read_bytes().replace(b'"kind":"stochastic"', change))
    assert main(["explore", str(space)]) == 1
    captured = capsys.readouterr()
    assert words in captured.err and "space.json" in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize("words, message", [(["783-10"], "783-10: the images are 28x28x1"),
                                            (["784-10", "3072-10"], "3072-10: the images are 28x28x1"),
                                            (["784-10", "784-10"], "784-10 stands there twice")])
def test_backbones_that_do_not_suit(words: list[str], message: str, space: Path, capsys: pytest.CaptureFixture):
    space.write_bytes(msgspec.json.encode(stream_task(backbones=words)))
    assert main(["explore", str(space)]) == 1
    captured = capsys.readouterr()
    assert f"{space}: " in captured.err and message in captured.err and captured.err.count("\n") == 1


def test_images_are_for_networks(capsys: pytest.CaptureFixture):
    assert main(["explore", "model.onnx", "--images", "."]) == 2
    assert "--images is for stochastic networks" in capsys.readouterr().err
