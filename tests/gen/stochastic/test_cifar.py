"""CIFAR-10's photographs: their order, what is kept, what a backbone is given, and what networks make of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.stochastic.accuracy import Examiner
from gen.stochastic.backbone import Backbone
from gen.stochastic.cifar import CIFAR_FILES, read_cifar
from gen.stochastic.errors import BackboneError, DataError
from gen.stochastic.image_sets import files_for, images_for
from gen.stochastic.images import MNIST_FILES
from gen.stochastic.recipe import PHOTOGRAPHS
from tests.gen.photograph_files import jpeg, write_archive
from tests.gen.stochastic.cifar_files import write_cifar
from tests.gen.stochastic.mnist_files import easy_images, write_mnist


def test_one_of_each_class_in_turn(tmp_path: Path, rng: np.random.Generator):
    write_cifar(tmp_path, rng, learnt=3, tested=2, classes=4)
    images = read_cifar(tmp_path, None)
    assert (images.pixels.shape, images.pixels.dtype) == ((20, 32, 32, 3), np.float32)
    assert (images.trained, images.classes, images.recipe) == (12, 4, PHOTOGRAPHS)
    assert images.labels.tolist() == [0, 1, 2, 3] * 5
    assert 0 <= images.pixels.min() and 0.3 < images.pixels.max() <= 1
    # The class's colour: its photographs are alike, those of others are not.
    colours = images.pixels.mean(axis=(1, 2))
    nearest = np.abs(colours[:, None] - colours[None, :4]).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest, images.labels)


def test_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    write_cifar(tmp_path, rng, learnt=2, tested=1)
    first = read_cifar(tmp_path, tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr("gen.stochastic.cifar.read_photographs", lambda *_, **__: pytest.fail("decoded again"))
        again = read_cifar(tmp_path, tmp_path / "kept")
        assert (again.digest, again.trained) == (first.digest, first.trained)
        # Of other files they are others.
        write_cifar(tmp_path, np.random.default_rng(1), learnt=2, tested=1)
        with pytest.raises(pytest.fail.Exception, match="decoded again"):
            read_cifar(tmp_path, tmp_path / "kept")
    assert read_cifar(tmp_path, None).digest != first.digest
    write_cifar(tmp_path, rng, learnt=1, tested=1)
    read_cifar(tmp_path, tmp_path / "kept")
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(b"damaged")
    assert read_cifar(tmp_path, tmp_path / "kept").trained == 10 and kept.exists()


def test_files_that_are_wrong(tmp_path: Path, rng: np.random.Generator):
    with pytest.raises(FileNotFoundError):
        read_cifar(tmp_path, None)
    write_cifar(tmp_path, rng, learnt=2, tested=1, classes=2)
    write_archive(tmp_path / CIFAR_FILES[1], {"class0/0.jpg": jpeg(np.zeros((16, 16, 3)))})
    with pytest.raises(DataError, match="are not of one size"):
        read_cifar(tmp_path, None)
    (tmp_path / CIFAR_FILES[1]).write_bytes(b"damaged")
    with pytest.raises(DataError, match=f"{CIFAR_FILES[1]}: damaged"):
        read_cifar(tmp_path, None)


def test_images_are_chosen_by_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator):
    write_cifar(tmp_path, rng, learnt=2, tested=1)
    photographs, digits = Backbone("32x32x3-c4k3s4-10"), Backbone("28x28-c4k3s4-10")
    assert (files_for(photographs), files_for(digits)) == (CIFAR_FILES, MNIST_FILES)
    assert images_for(photographs, tmp_path, None).name == "cifar-10"
    assert images_for(Backbone("3072-10"), tmp_path, None).name == "cifar-10"
    write_mnist(tmp_path, *easy_images(rng, 30))
    with pytest.raises(DataError, match="more than 8,000"):
        images_for(digits, tmp_path, None)
    for word, message in (("32x32-10", r"32x32-10: the images are 28x28x1 \(MNIST\) or 32x32x3 \(CIFAR-10\)"),
                          ("64x48-10", "64x48-10: the images are 32x32x3"), ("3072-9", "there are 10 classes")):
        with pytest.raises(BackboneError, match=message):
            images_for(Backbone(word), tmp_path, None)


def test_answers_are_kept_by_what_decides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                               rng: np.random.Generator):
    write_cifar(tmp_path, rng, learnt=2, tested=1)
    images, backbone = read_cifar(tmp_path, None), Backbone("32x32x3-c4k3s4-10")
    network = [(rng.normal(size=(layer.outputs, layer.taps, layer.input.channels)), np.zeros(layer.outputs))
               for layer in backbone.layers]
    monkeypatch.setattr("gen.stochastic.accuracy.trained", lambda *_: network)
    asked = []

    def scores(layers, x, multiply):
        asked.append(x)
        return np.zeros((len(x), 10))

    monkeypatch.setattr("gen.stochastic.accuracy.scores", scores)
    for one, measured in ((images, 1), (images, 1), (replace(images, in_range=0.5), 2),
                          (replace(images, recipe=replace(images.recipe, epochs=1)), 3)):
        Examiner(one, tmp_path / "kept").accuracy(backbone, None, 0)
        assert len(asked) == measured


def test_photographs_are_mirrored_and_moved(rng: np.random.Generator):
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    from gen.stochastic.fitting import _moved

    image = torch.from_numpy(rng.random((1, 3, 6, 5)).astype(np.float32) + 1)
    padded = torch.nn.functional.pad(torch.cat([image, image.flip(3)]), (2, 2, 2, 2))
    places = {padded[side, :, top:top + 6, left:left + 5].contiguous().numpy().tobytes(): (side, top, left)
              for side in range(2) for top in range(5) for left in range(5)}
    found = _moved(image.expand(1000, 3, 6, 5), 2)
    assert {places[one.contiguous().numpy().tobytes()] for one in found} == set(places.values())


def test_a_network_learns_photographs(tmp_path: Path, rng: np.random.Generator):
    """Those that are easily told apart; the same every time; long streams keep the answers."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    write_cifar(tmp_path, rng, learnt=20, tested=5)
    images = read_cifar(tmp_path, None)
    images = replace(images, recipe=replace(images.recipe, epochs=8, batch=10, rate=5e-3))
    backbone, steps = Backbone("32x32x3-c8k3s4-c8k3s2-10"), []
    examiner = Examiner(images)
    first = examiner.network(backbone, steps.append)
    assert len(steps) == 8 and steps[0].startswith(f"{backbone.word}: epoch 1 of 8: loss ")
    right = [examiner.float_accuracy(backbone), examiner.accuracy(backbone, None, 0),
             examiner.accuracy(backbone, Circuit.AND_LOOP, 256)]
    assert right[0] > 0.8 and min(right[1:]) > right[0] - 0.3
    for one, two in zip(first, Examiner(images).network(backbone), strict=True):
        np.testing.assert_array_equal(one.weights, two.weights)


@pytest.mark.full
def test_the_alexnet_in_small_learns_cifar(models: Path):
    """An eighth of the channels, two epochs: all of its layers do learn, and int8 keeps the answers."""
    pytest.importorskip("torch", reason="training needs PyTorch")
    images = read_cifar(models, None)
    images = replace(images, recipe=replace(images.recipe, epochs=2))
    backbone = Backbone("32x32x3-c32k5-c16k3s2-c16k7s2-c16k5s2-c32k3-64-128-10")
    examiner = Examiner(images)
    exact = examiner.float_accuracy(backbone)
    assert exact > 0.3 and examiner.accuracy(backbone, None, 0) > exact - 0.05
