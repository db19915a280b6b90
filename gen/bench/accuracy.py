"""What sparsity, eight bits and training through them make of networks that are trained here, on CIFAR-10's images.

Every row of a network has had as much training: all of them begin at the dense network, are pruned or not, and tuned
for the same epochs. Trained models, and where a training was interrupted, are kept.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx

from cores.config import NpuConfig
from gen.bench.accuracy_networks import TrainedNetwork
from gen.files.photographs import read_photographs
from gen.prune.counts import Counts
from gen.prune.layers import ModelView, find_layers
from gen.prune.timing import cycles_of
from gen.quantize.options import Method, QuantizeOptions
from gen.quantize.quantize import quantize
from gen.quantize.sessions import values_of
from gen.train.session import Data, Prune, TrainingSession, TrainingStage

__all__ = ["AccuracyRow", "Cifar", "measure"]

#: Of the machine that blocks and cycles are of.
_MACS = 64
#: Images of a class to learn from, and to test on beside those of the other archive.
_LEARNT, _TESTED = 800, 200
#: Images to train through rounding, and to quantise on.
_THROUGH, _CALIBRATED = 2_000, 200
_TRAIN, _TEST = "cifar10_train_jpg_1500_a_class.zip", "cifar10_test_jpg_0000-0099.zip"
_MEAN, _DEVIATION = np.float32(0.47), np.float32(0.25)
#: The least density of a block of 16 channels on that machine, in percent.
_BLOCKS = 75
_DENSE = TrainingStage(epochs=6, batch=64, lr=0.05, weight_decay=5e-4)
_TUNED = TrainingStage(epochs=2, batch=64, lr=0.02, weight_decay=5e-4)
#: Through rounding, with scales that are learnt; batch norms are in the weights by then.
_QUANTISED = TrainingStage(epochs=1, batch=64, lr=0.002, scales=True)
#: Signs of activations first, then of weights, too.
_SIGNS = TrainingStage(epochs=4, batch=64, lr=0.005, optimizer="adam", estimator="polynomial")
_BINARY = msgspec.structs.replace(_SIGNS, binary=("l*.0", "l*.1"), epochs=6)


@dataclass(frozen=True, kw_only=True)
class AccuracyRow:
    """``zeros``: share of the weights of convolutions and matrix products that are 0. Shares of right answers, in
    onnxruntime: of the float model, quantised by the methods auto and entropy, and trained through auto's rounding.
    """

    network: str
    sparsity: int
    zeros: float
    parameters: int
    cycles: int | None
    float_right: float
    auto_right: float
    entropy_right: float
    trained_right: float | None


@dataclass(frozen=True, eq=False)
class Cifar:
    """``path``: of what is learnt, as a session reads it; ``calibration`` (n, 3, 32, 32) of that. ``test``, ``labels``:
    of other images.
    """

    path: Path
    calibration: np.ndarray
    test: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, folder: Path, kept: Path) -> "Cifar":
        """Of the archives in ``folder``; a file of arrays is written to ``kept``. Raises PhotographsError, OSError."""
        images, labels = _scaled(folder / _TRAIN, _LEARNT + _TESTED)
        order = np.random.default_rng(0).permutation(len(labels))
        # Classes lie one after the other.
        learnt = np.tile(np.arange(_LEARNT + _TESTED) < _LEARNT, len(labels) // (_LEARNT + _TESTED))[order]
        images, labels = images[order], labels[order]
        kept.mkdir(parents=True, exist_ok=True)
        path = kept / "learnt.npz"
        np.savez(path, image=images[learnt], label=labels[learnt])
        others = _scaled(folder / _TEST, None)
        return cls(path, images[learnt][:_CALIBRATED], np.concatenate([images[~learnt], others[0]]),
                   np.concatenate([labels[~learnt], others[1]]))


def _scaled(path: Path, a_class: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(N, 3, H, W) float32, around 0, and labels."""
    images, labels = read_photographs(path, a_class=a_class)
    return (images.transpose(0, 3, 1, 2).astype(np.float32) / 255 - _MEAN) / _DEVIATION, labels


def measure(network: TrainedNetwork, images: Cifar,
            remark: Callable[[str], None] = lambda step: None) -> Iterator[AccuracyRow]:
    """A row for each sparsity; trained models are kept beside the images. Raises TrainError, OSError."""
    made = _Maker(network.title, images, remark)
    dense = made.trained("dense", network.made(), (_SIGNS, _BINARY) if network.binary else (_DENSE,))
    for sparsity in network.sparsities:
        tuned = dense
        if len(network.sparsities) > 1:
            tuned = made.trained(f"{sparsity} %", dense, (msgspec.structs.replace(_TUNED, prune=_pruned(sparsity)),))
        yield made.row(network, sparsity, tuned)


def _pruned(sparsity: int) -> tuple[Prune, ...] | None:
    """Blocks as far as they go; further, single weights of what is left in them."""
    blocks = Prune(density=1 - min(sparsity, _BLOCKS) / 100, macs=_MACS)
    further = Prune(kind="magnitude", density=1 - sparsity / 100, macs=_MACS)
    return None if not sparsity else (blocks,) if sparsity <= _BLOCKS else (blocks, further)


@dataclass(frozen=True, eq=False)
class _Maker:
    title: str
    images: Cifar
    remark: Callable[[str], None]

    def trained(self, what: str, model: onnx.ModelProto, stages: tuple[TrainingStage, ...]) -> onnx.ModelProto:
        """The model after these stages, or as it was kept."""
        from gen.train.fit import train  # which needs PyTorch

        data = Data(path=self.images.path.name, count=_THROUGH if stages == (_QUANTISED,) else None)
        session = TrainingSession(model="", train=data, mirror=True, shift=2, seed=1, stages=stages, macs=_MACS)
        key = hashlib.sha256(msgspec.json.encode(session) + model.SerializeToString(deterministic=True)).hexdigest()
        title, folder = f"{self.title}, {what}", self.images.path.parent
        return train(session, model, folder, name=title, keep=folder / key[:20],
                     progress=lambda step: self.remark(f"{title}: {step}")).model

    def row(self, network: TrainedNetwork, sparsity: int, model: onnx.ModelProto) -> AccuracyRow:
        auto, config = self._quantised(model, "auto"), NpuConfig.preset(_MACS)
        if network.binary:
            config = NpuConfig.preset(_MACS, **config.feature_fields(["binary"]))
        through = None if network.binary else self.trained(f"{sparsity} %, quantised", auto, (_QUANTISED,))
        return AccuracyRow(
            network=network.title, sparsity=sparsity, zeros=_zeros(model), parameters=Counts.of(model).nonzero,
            cycles=cycles_of(auto, config, name=network.title),
            float_right=self._right(model), auto_right=self._right(auto),
            entropy_right=self._right(self._quantised(model, "entropy")),
            trained_right=None if through is None else self._right(through))

    def _quantised(self, model: onnx.ModelProto, method: Method) -> onnx.ModelProto:
        self.remark(f"{self.title}: quantising by {method}")
        return quantize(model, {"image": self.images.calibration}, QuantizeOptions(method=method)).model

    def _right(self, model: onnx.ModelProto) -> float:
        (output,) = (value.name for value in model.graph.output)
        scores = np.concatenate([values[output] for values in values_of(model, [output], {"image": self.images.test})])
        return float((scores.reshape(len(scores), -1).argmax(1) == self.images.labels).mean())


def _zeros(model: onnx.ModelProto) -> float:
    """Share of the weights of all layers."""
    view = ModelView.of(model)
    arrays = [view.array(layer.initializer) for layer in find_layers(model)]
    return 1 - sum(np.count_nonzero(array) for array in arrays) / sum(array.size for array in arrays)
