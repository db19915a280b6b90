"""Models whose first output is a score for each class."""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from gen.onnx.scores import are_scores
from gen.train.data import Dataset, read_dataset
from gen.train.errors import TrainError
from gen.train.network import Network
from gen.train.session import Data, TrainingSession, TrainingStage

__all__ = ["Classes", "accuracy"]

#: Of the distilled part of the loss: how much outputs are evened out.
_TEMPERATURE = 4.0
_EVALUATED = 256


def accuracy(network: Network, data: Dataset) -> float:
    """Share of the samples that are right."""
    right = 0
    with torch.no_grad():
        for start in range(0, len(data), _EVALUATED):
            scores = network(torch.from_numpy(data.inputs[start:start + _EVALUATED]))
            if not are_scores(scores.shape[1:]):
                raise TrainError(f"the first output has the shape {tuple(scores.shape[1:])} for each sample, and only "
                                 "scores of classes, and detectors with a head in the session, can be trained here; "
                                 "train such a model where it was made, and quantise it then")
            found = scores.reshape(len(scores), -1).argmax(1).numpy()
            right += int((found == data.labels[start:start + _EVALUATED]).sum())
    return right / len(data)


class Classes:
    """A `Task`: cross entropy, and with ``distill`` the divergence from the teacher's chances."""

    measure = "right"

    def __init__(self, session: TrainingSession) -> None:
        self._session = session

    def read(self, data: Data, folder: Path, *, name: str, shape: tuple[int, ...]) -> Dataset:
        return read_dataset(data, self._session, folder, name=name, shape=shape)

    def accuracy(self, network: Network, data: Dataset) -> float:
        return accuracy(network, data)

    def batch(self, data: Dataset, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Images mirrored and moved at random, if the session says so."""
        inputs, labels = (torch.from_numpy(array)[chosen] for array in (data.inputs, data.labels))
        if self._session.mirror:
            mirrored = torch.rand(len(inputs)) < 0.5
            inputs = torch.where(mirrored[:, None, None, None], inputs.flip(-1), inputs)
        shift = self._session.shift
        if shift:
            height, width = inputs.shape[-2:]
            padded = functional.pad(inputs, [shift] * 4)
            places = torch.randint(0, 2 * shift + 1, (len(inputs), 2))
            inputs = torch.stack([image[:, y:y + height, x:x + width]
                                  for image, (y, x) in zip(padded, places.tolist(), strict=True)])
        return inputs, labels

    def loss(self, stage: TrainingStage, network: Network, inputs: Tensor, wanted: Tensor, teacher: Network) -> Tensor:
        scores = network(inputs, norms=stage.norms).flatten(1)
        if int(wanted.max()) >= scores.shape[1] or int(wanted.min()) < 0:
            raise TrainError(f"labels must be in 0..{scores.shape[1] - 1}, as the model has {scores.shape[1]} outputs")
        loss = functional.cross_entropy(scores, wanted)
        if stage.distill:
            with torch.no_grad():
                taught = functional.softmax(teacher(inputs).flatten(1) / _TEMPERATURE, 1)
            found = functional.log_softmax(scores / _TEMPERATURE, 1)
            distilled = functional.kl_div(found, taught, reduction="batchmean") * _TEMPERATURE ** 2
            loss = (1 - stage.distill) * loss + stage.distill * distilled
        return loss
