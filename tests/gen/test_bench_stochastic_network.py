"""The rows of networks of stochastic dot products, and what is wrong with their images."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.bench import classifier, stochastic_digits, stochastic_network
from gen.bench.stochastic_network import measure_accuracy, plot
from gen.cli import main
from gen.files.figure import drawn
from gen.onnx.importer import load_model
from gen.stochastic import image_sets
from gen.stochastic.accuracy import Examiner
from gen.stochastic.backbone import Backbone
from gen.stochastic.images import MNIST_FILES, read_mnist
from tests.gen.stochastic.cifar_files import write_cifar
from tests.gen.stochastic.few_digits import few_digits
from tests.gen.stochastic.mnist_files import easy_images, write_mnist


def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    """Trained on a few images that are easily told apart; long streams keep the answers."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    write_mnist(tmp_path, *easy_images(rng, 450))
    monkeypatch.setattr(stochastic_network, "lengths_of", lambda circuit: (8,) if circuit.serial else (8, 256))
    examiner = Examiner(read_mnist(tmp_path, trained=400), few=5)
    rows = list(measure_accuracy(examiner, [Backbone("784-16-10")]))
    assert [(row.circuit, row.length, row.images) for row in rows] == [
        ("float", None, 50), ("int8", None, 50), ("int8", None, 5),
        *((circuit.label, length, 50 if circuit in (Circuit.XNOR_MUX, Circuit.AND_LOOP) else 5) for circuit in Circuit
          for length in ((8,) if circuit.serial else (8, 256)))]
    right = {(row.circuit, row.length): row.right for row in rows}
    assert right["int8", None] > 0.9
    assert right["and-loop", 256] > right["int8", None] - 0.1
    assert drawn(plot(rows)).startswith(b"\x89PNG")


def test_networks_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator,
                              capsys: pytest.CaptureFixture):
    """An MLP, a LeNet and an AlexNet as models, with the images that they were not trained on; the last by one circuit.
    """
    pytest.importorskip("torch", reason="training needs PyTorch")
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path / "kept"))
    monkeypatch.setattr(image_sets, "read_mnist", lambda folder: read_mnist(folder, trained=300))
    monkeypatch.setattr(stochastic_network, "lengths_of", lambda circuit: (8,) if circuit.serial else (8, 1024))
    monkeypatch.setattr(stochastic_network, "BACKBONES", ("784-12-10",))
    monkeypatch.setattr(stochastic_network, "ALEXNET", "32x32x3-c4k5s4-c8k3s4-10")
    monkeypatch.setattr(stochastic_network, "LENET", "28x28-c4k5-p2-c6k5-p2-12-10")
    few = few_digits()
    monkeypatch.setattr(classifier, "digits_classifier", lambda root: few)
    monkeypatch.setattr(stochastic_digits, "lengths_of", lambda circuit: (8,))
    write_mnist(tmp_path, *easy_images(rng, 310))
    write_cifar(tmp_path, rng, learnt=4, tested=2)
    assert main(["bench", "stochastic-network", "--models", str(tmp_path), "-o", str(tmp_path / "new"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["stochastic-network"]
    assert [(row["circuit"], row["length"], row["images"]) for row in rows if row["backbone"].startswith("32")] == [
        ("float", None, 20), ("int8", None, 20), ("and-loop", 8, 20)]
    assert {row["circuit"] for row in rows if row["backbone"] == "digits"} == {"int8"} | {
        circuit.label for circuit in Circuit}
    for name, shape in (("mlp", (784,)), ("lenet", (1, 28, 28)), ("alexnet", (3, 32, 32))):
        with np.load(tmp_path / "new" / f"{name}_test.npz") as samples:
            assert samples["x"].shape[1:] == shape and len(samples["label"]) == len(samples["x"])
        assert load_model(tmp_path / "new" / f"{name}.onnx").graph.layers
    assert (tmp_path / "new" / "stochastic.png").is_file()


def test_damaged_images_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture):
    """The file is to blame, not the options: status 1."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    for name in MNIST_FILES:
        (tmp_path / name).write_bytes(gzip.compress(bytes(1000))[:-4])
    assert main(["bench", "stochastic-network", "--models", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and f"{tmp_path / MNIST_FILES[0]}: damaged" in printed
