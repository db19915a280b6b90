"""`gen battery` as it is called: tables, files, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from gen.cli import main
from gen.cli.common import console
from gen.energy.unit_energy import UnitEnergy
from gen.stochastic.cifar import CIFAR_FILES
from gen.stochastic.images import read_mnist
from tests.gen.stochastic.cifar_files import write_cifar
from tests.gen.stochastic.mnist_files import easy_images, write_mnist

SMALL = ["--backbone", "784-12-10"]


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> Path:
    """A folder of images that are quickly learnt; units that need no synthesis."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "kept"))
    monkeypatch.setattr("gen.stochastic.image_sets.read_mnist", lambda folder: read_mnist(folder, trained=300))
    monkeypatch.setattr("gen.energy.unit_energy.measure_energy", lambda circuit, *_: UnitEnergy(
        circuit.label, products=128, lut=100 + circuit, ff=0, dsp=0, registers=0, wires=1))
    folder = tmp_path / "images"
    folder.mkdir()
    write_mnist(folder, *easy_images(rng, 340))
    return folder


def test_table_and_files(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "_width", 160)
    folder = tmp_path / "new"
    assert main(["battery", *SMALL, "--images", str(images), "--lengths", "64,32,16", "--bounds", "0,0,0",
                 "--inferences", "30000", "-o", str(folder), "--plots", "png,svg"]) == 0
    captured = capsys.readouterr()
    assert "cycles estimated, energies relative" in captured.out and "784-12-10, and-loop" in captured.out
    assert " 30,000 " in captured.out and "3 cycles, one register write" in captured.out
    assert {path.name for path in folder.iterdir()} == {"battery.csv", "battery.png", "battery.svg"}
    assert "machine: zu3eg, 256 MACs, features none; clock: " in (folder / "battery.svg").read_text()


def test_json_and_the_circuits_beside_it(images: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.energy.rivals.lengths_of", lambda circuit: (8, 16))
    assert main(["battery", *SMALL, "--images", str(images), "--compare", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["energy"], values["cycles"]) == ("relative", "estimated")
    assert [strategy["strategy"] for strategy in values["strategies"]] == ["fixed", "levels", "lengths", "both"]
    assert len(values["rivals"]) == 6 and {rival["length"] for rival in values["rivals"]} <= {8, 16}
    by_name = {rival["circuit"]: rival for rival in values["rivals"]}
    mine, (fixed, *_, both) = by_name["and-loop"], values["strategies"]
    # The circuit by itself is the fixed strategy, where it has the same streams.
    if mine["length"] == fixed["levels"][0]["length"]:
        assert mine["gain"] == pytest.approx(both["gain"], rel=1e-4)


@pytest.mark.parametrize("options, status, message", [
    (["--circuit", "xor"], 2, "there are xnor-mux"), (["--lengths", "12"], 2, "must be of 8, 16"),
    (["--lengths", "16,8"], 2, "--lengths: one for each of the levels l6, l4, l3, not 2"),
    (["--bounds", "1,2"], 2, "--bounds: one for each"), (["--bounds", "101"], 2, "from 0 to 100"),
    (["--bounds", "nan"], 2, "from 0 to 100"), (["--deadline", "0"], 2, "above 0"), (["--deadline", "x"], 2, "number"),
    (["--inferences", "0"], 2, "from 1 to"), (["--backbone", "784"], 2, "--backbone '784' is no backbone"),
    (["--backbone", "783-10"], 2, "--backbone 783-10: the images are 28x28x1"),
    (["--levels", "none.json"], 1, "none.json: No such file"), (["--images", "none"], 2, "--images none: no such")])
def test_refusals(options: list[str], status: int, message: str, images: Path, capsys: pytest.CaptureFixture):
    where = [] if "--images" in options else ["--images", str(images)]
    assert main(["battery", *SMALL, *where, *options]) == status
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_without_images(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["battery", "--images", str(tmp_path)]) == 1
    assert "t10k-images-idx3-ubyte.gz" in capsys.readouterr().err


def test_photographs(images: Path, capsys: pytest.CaptureFixture, rng: np.random.Generator):
    """A backbone of 32x32x3 is one for CIFAR-10's archives, which are named where they are missing or damaged."""
    options = ["battery", "--backbone", "32x32x3-c4k5s4-10", "--images", str(images), "--lengths", "64,32,16",
               "--bounds", "0,0,0"]
    assert main(options) == 1
    assert " and ".join(CIFAR_FILES) in capsys.readouterr().err
    write_cifar(images, rng, learnt=4, tested=2)
    assert main([*options, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["backbone"] == options[2] and len(values["strategies"]) == 4
    (images / CIFAR_FILES[0]).write_bytes(b"damaged")
    assert main(options) == 1
    captured = capsys.readouterr()
    assert f"{images / CIFAR_FILES[0]}: damaged" in captured.err and captured.err.count("\n") == 1


def test_rows_of_units(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """A product of int8 is made in a cycle, one of streams bit by bit."""
    monkeypatch.setattr("gen.energy.unit_energy.measure_energy", lambda circuit, *_: UnitEnergy(
        "int8" if circuit is None else circuit.label, products=128, lut=256, ff=0, dsp=0, registers=0, wires=1))
    assert main(["bench", "stochastic-energy", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stochastic-energy"]
    assert len(rows) == 7 and {row["a_cycle"] for row in rows} == {256}
    assert [rows[0][f"{bits}_bits"] for bits in (32, 256)] == [2, 2]
    assert all([row[f"{bits}_bits"] for bits in (32, 256)] == [64, 512] for row in rows[1:])
