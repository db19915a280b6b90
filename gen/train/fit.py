"""Training: the stages of a session, one after the other."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor
from torch.nn import functional

from cores.config import NpuConfig
from gen.onnx.scores import are_scores
from gen.prune.blocks import prune_blocks, prune_magnitudes
from gen.train.data import Dataset, read_dataset
from gen.train.errors import TrainError
from gen.train.network import Network
from gen.train.session import Prune, TrainingSession, TrainingStage

__all__ = ["Epoch", "Trained", "accuracy", "train"]

#: Of the distilled part of the loss: how much outputs are evened out.
_TEMPERATURE = 4.0
_EVALUATED = 256


@dataclass(frozen=True)
class Epoch:
    """``accuracy``: on the test data, None without any."""

    stage: int
    number: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class Trained:
    """``before``: accuracy on the test data before any training and pruning."""

    model: onnx.ModelProto
    before: float | None
    epochs: tuple[Epoch, ...]


def train(session: TrainingSession, model: onnx.ModelProto, folder: Path, *, name: str,
          teacher: onnx.ModelProto | None = None, progress: Callable[[str], None] = lambda text: None) -> Trained:
    """Train ``model``, which errors call ``name``, as the session says, whose paths begin at ``folder``.

    ``teacher``: what ``distill`` compares with, where that is not ``model`` as it is given: one that was pruned before.
    One thread, so that the same session gives the same model. Raises TrainError, OSError.
    """
    torch.set_num_threads(1)
    torch.manual_seed(session.seed)
    value = model.graph.input[0]
    if len(model.graph.input) != 1:
        raise TrainError(f"{name}: models of one input can be trained; this one has "
                         f"{', '.join(other.name for other in model.graph.input)}")
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])
    progress("reading the data")
    data = read_dataset(session.train, session, folder, name=value.name, shape=shape)
    test = session.test and read_dataset(session.test, session, folder, name=value.name, shape=shape)
    try:
        given = Network(model)
        taught_by = Network(teacher) if teacher else given
    except TrainError as error:
        raise TrainError.of(error, f"{name}: {error}") from None
    before = accuracy(given, test) if test else None
    epochs: list[Epoch] = []
    for number, stage in enumerate(session.stages, 1):
        if stage.prune:
            model = _pruned(model, stage.prune)
        network = Network(model)
        network.keep_zeros(stage.keep_zeros)
        run = _Run(session, stage, data, taught_by, network)
        for epoch in range(1, stage.epochs + 1):
            loss = run.epoch()
            found = accuracy(network, test) if test else None
            epochs.append(Epoch(number, epoch, loss, found))
            shown = "" if found is None else f", {found:.2%} right"
            progress(f"stage {number}, epoch {epoch} of {stage.epochs}: loss {loss:.4f}{shown}")
        model = network.exported()
    return Trained(model, before, tuple(epochs))


def _pruned(model: onnx.ModelProto, prune: Prune) -> onnx.ModelProto:
    if prune.kind == "magnitude":
        return prune_magnitudes(model, prune.density)
    return prune_blocks(model, prune.density, NpuConfig.preset(prune.macs))


def accuracy(network: Network, data: Dataset) -> float:
    """Share of the samples that are right."""
    right = 0
    with torch.no_grad():
        for start in range(0, len(data), _EVALUATED):
            scores = network(torch.from_numpy(data.inputs[start:start + _EVALUATED]))
            if not are_scores(scores.shape[1:]):
                raise TrainError(f"the first output has the shape {tuple(scores.shape[1:])} for each sample, and only "
                                 "scores of classes can be trained here; train such a model where it was made, and "
                                 "quantise it then")
            found = scores.reshape(len(scores), -1).argmax(1).numpy()
            right += int((found == data.labels[start:start + _EVALUATED]).sum())
    return right / len(data)


class _Run:
    """A stage of a session under way."""

    def __init__(self, session: TrainingSession, stage: TrainingStage, data: Dataset, teacher: Network,
                 network: Network) -> None:
        self._session, self._stage, self._network, self._teacher = session, stage, network, copy.deepcopy(teacher)
        self._inputs, self._labels = torch.from_numpy(data.inputs), torch.from_numpy(data.labels)
        self._steps = max(1, len(data) // stage.batch)
        parameters = list(network.parameters())
        if stage.optimizer == "adam":
            self._optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                parameters, stage.lr, weight_decay=stage.weight_decay)
        else:
            self._optimizer = torch.optim.SGD(
                parameters, stage.lr, momentum=0.9, nesterov=True, weight_decay=stage.weight_decay)
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, stage.epochs * self._steps)

    def epoch(self) -> float:
        """All samples once; the mean loss."""
        order, losses = torch.randperm(len(self._labels)), []
        for step in range(self._steps):
            chosen = order[step * self._stage.batch:(step + 1) * self._stage.batch]
            loss = self._loss(self._changed(self._inputs[chosen]), self._labels[chosen])
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._schedule.step()
            losses.append(loss.item())
        if not np.isfinite(losses).all():
            raise TrainError("the loss is no number any more; take a smaller lr")
        return float(np.mean(losses))

    def _loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        stage = self._stage
        scores = self._network(inputs, norms=stage.norms).flatten(1)
        if int(labels.max()) >= scores.shape[1] or int(labels.min()) < 0:
            raise TrainError(f"labels must be in 0..{scores.shape[1] - 1}, as the model has {scores.shape[1]} outputs")
        loss = functional.cross_entropy(scores, labels)
        if stage.distill:
            with torch.no_grad():
                wanted = functional.softmax(self._teacher(inputs).flatten(1) / _TEMPERATURE, 1)
            found = functional.log_softmax(scores / _TEMPERATURE, 1)
            distilled = functional.kl_div(found, wanted, reduction="batchmean") * _TEMPERATURE ** 2
            loss = (1 - stage.distill) * loss + stage.distill * distilled
        if stage.gamma_penalty:
            loss = loss + stage.gamma_penalty * torch.stack([gamma.abs().sum() for gamma in self._network.gammas]).sum()
        return loss

    def _changed(self, inputs: Tensor) -> Tensor:
        """Images mirrored and moved at random, if the session says so."""
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
        return inputs
