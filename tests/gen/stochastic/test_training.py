"""Images, training that is kept, and right answers."""

from pathlib import Path

import numpy as np
import pytest

from cores.arch.stochastic import Circuit
from gen.files.sources import sources_digest
from gen.stochastic import training
from gen.stochastic.accuracy import Examiner
from gen.stochastic.backbone import Backbone
from gen.stochastic.errors import BackboneError, DataError
from gen.stochastic.images import MNIST_FILES, read_mnist
from tests.gen.stochastic.mnist_files import easy_images, write_mnist

ROOT = Path(__file__).resolve().parents[3]


def test_files_are_read(tmp_path: Path):
    images, labels = np.arange(3 * 784) % 256, np.array([7, 2, 1])
    write_mnist(tmp_path, images, labels)
    found = read_mnist(tmp_path, trained=1)
    np.testing.assert_array_equal(np.rint(found.pixels.ravel() * 255), images)
    assert found.labels.tolist() == [7, 2, 1] and found.classes == 8
    write_mnist(tmp_path, images[:-1], labels)
    with pytest.raises(DataError, match="do not belong together"):
        read_mnist(tmp_path)


def test_damaged_files(tmp_path: Path):
    write_mnist(tmp_path, np.zeros(3 * 784), np.zeros(3))
    with pytest.raises(DataError, match="3 images, where more than 8,000 are needed"):
        read_mnist(tmp_path)
    whole = (tmp_path / MNIST_FILES[0]).read_bytes()
    for content in (b"", whole[:-9], b"nothing of the kind", whole[:20] + bytes(9) + whole[29:]):
        (tmp_path / MNIST_FILES[0]).write_bytes(content)
        with pytest.raises(DataError, match=f"{MNIST_FILES[0]}.* damaged|do not belong together"):
            read_mnist(tmp_path)


def test_what_a_network_depends_on_is_there():
    """Where a file is named that is gone, its changes would not be seen."""
    assert all((ROOT / name).is_file() for name in training._SOURCES)
    assert len({sources_digest(name) for name in training._SOURCES}) == len(training._SOURCES)


def test_trained_once(tmp_path: Path, rng: np.random.Generator):
    """Long streams keep the answers; what is kept is not trained again."""
    torch = pytest.importorskip("torch", reason="training needs PyTorch")
    write_mnist(tmp_path, *easy_images(rng, 300))
    images, backbone = read_mnist(tmp_path, trained=260), Backbone("28x28-c3k5s4-10")
    before = torch.random.get_rng_state()
    examiner = Examiner(images, tmp_path / "kept", few=5)
    right = {circuit: examiner.accuracy(backbone, circuit, 256) for circuit in (None, Circuit.AND_LOOP)}
    assert right[None] > 0.9 and right[Circuit.AND_LOOP] > right[None] - 0.1
    assert (before == torch.random.get_rng_state()).all()
    assert (examiner.tested(None), examiner.tested(Circuit.UGEMM)) == (40, 5)
    first = examiner.network(backbone)
    (kept,) = (tmp_path / "kept").glob("*.network.kept")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gen.stochastic.training.fitted", lambda *_: pytest.fail("trained again"))
        again = Examiner(images, tmp_path / "kept").network(backbone)
        patched.setattr("gen.stochastic.accuracy.scores", lambda *_: pytest.fail("tested again"))
        assert Examiner(images, tmp_path / "kept").accuracy(backbone, None, 0) == right[None]
        # Of other sources it is another network.
        patched.setattr("gen.stochastic.training.sources_digest", lambda *_: "changed")
        with pytest.raises(pytest.fail.Exception, match="trained again"):
            Examiner(images, tmp_path / "kept").network(backbone)
    kept.write_bytes(b"damaged")
    anew = Examiner(images, tmp_path / "kept").network(backbone)
    for one, two, three in zip(first, again, anew, strict=True):
        np.testing.assert_array_equal(one.weights, two.weights)
        np.testing.assert_array_equal(one.weights, three.weights)


@pytest.mark.parametrize("word, message", [("783-10", "images are 28x28x1"), ("14x56-10", "images are 28x28x1"),
                                           ("784-9", "there are 10 classes")])
def test_backbones_for_other_images(word: str, message: str, tmp_path: Path, rng: np.random.Generator):
    write_mnist(tmp_path, *easy_images(rng, 20))
    with pytest.raises(BackboneError, match=message):
        read_mnist(tmp_path, trained=10).for_backbone(Backbone(word), slice(None))
