"""Training: the stages of a session, one after the other."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor

from gen.train.classes import Classes
from gen.train.data import TrainingData
from gen.train.detector import Detector
from gen.train.errors import TrainError
from gen.train.network import Network
from gen.train.rounds import Round, pruned, rounds_of
from gen.train.session import TrainingSession, TrainingStage
from gen.train.session_folder import SessionFolder, identity_of
from gen.train.task import Task
from gen.train.variants import Variant, measured, over_loss, within

__all__ = ["Epoch", "Trained", "train"]


@dataclass(frozen=True)
class Epoch:
    """``number``: within the round. ``accuracy``: on the test data, None without any."""

    stage: int
    round: int
    number: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class Trained:
    """``before``: accuracy on the test data before any training and pruning. ``variants``: the model as it was, and at
    the end of each round, if they were measured; ``model`` is the one called ``name``. ``ended``: why before the last
    round, or that a budget was not met; "" otherwise. ``measure``: what accuracy is, for people.
    """

    model: onnx.ModelProto
    before: float | None
    epochs: tuple[Epoch, ...]
    variants: tuple[Variant, ...] = ()
    name: str = ""
    ended: str = ""
    measure: str = "right"


def train(session: TrainingSession, model: onnx.ModelProto, folder: Path, *, name: str,
          teacher: onnx.ModelProto | None = None, keep: Path | None = None, plots: Sequence[str] = ("png",),
          progress: Callable[[str], None] = lambda text: None) -> Trained:
    """Train ``model``, which errors call ``name``, as the session says, whose paths begin at ``folder``.

    ``teacher``: what ``distill`` compares with, where that is not ``model`` as it is given: one that was pruned before.
    ``keep``: a folder for all variants, from which an interrupted session goes on; they are measured for that, and for
    a budget; ``plots``: the kinds of files of their plot. One thread, so that the same session gives the same model,
    interrupted or not. Raises TrainError, PruneError, OSError.
    """
    torch.set_num_threads(1)
    torch.manual_seed(session.seed)
    value = model.graph.input[0]
    if len(model.graph.input) != 1:
        raise TrainError(f"{name}: models of one input can be trained; this one has "
                         f"{', '.join(other.name for other in model.graph.input)}")
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:])
    progress("reading the data")
    task: Task = Classes(session) if session.head is None else Detector(session)
    data = task.read(session.train, folder, name=value.name, shape=shape)
    test = task.read(session.test, folder, name=value.name, shape=shape) if session.test else None
    kept = SessionFolder(keep, identity_of(session, [model, teacher or model], [data, test]), plots)
    try:
        given = Network(model)
        taught_by = Network(teacher) if teacher else given
    except TrainError as error:
        raise TrainError.of(error, f"{name}: {error}") from None
    return _Training(session, task, data, test, taught_by, kept, name=name, measures=keep is not None or bool(
        session.budget), progress=progress).run(model, task.accuracy(given, test) if test else None)


class _Training:
    """A session under way, round by round."""

    def __init__(self, session: TrainingSession, task: Task, data: TrainingData, test: TrainingData | None,
                 teacher: Network, kept: SessionFolder, *, name: str, measures: bool,
                 progress: Callable[[str], None]) -> None:
        self._task = task
        self._session, self._data, self._test, self._teacher = session, data, test, teacher
        self._kept, self._name, self._measures, self._progress = kept, name, measures, progress
        self._whole = onnx.ModelProto()
        self._epochs: list[Epoch] = []
        self._variants: list[Variant] = []

    def run(self, model: onnx.ModelProto, before: float | None) -> Trained:
        begun, last, state, self._whole = 0, model, self._kept.state, model
        if state is not None:
            begun, model, last = state["round"], _unpacked(state["model"]), _unpacked(state["last"])
            self._epochs = [Epoch(**epoch) for epoch in state["epochs"]]
            self._variants = [Variant(**variant) for variant in state["variants"]]
            torch.set_rng_state(state["random"])
            self._progress(f"going on after {len(self._epochs)} epochs")
        else:
            self._measure(model, "start", before, None)
        rounds = list(rounds_of(self._session))
        for place in range(begun, len(rounds)):
            one = rounds[place]
            if self._loses_too_much():
                break
            if one.prunes and self._is_small_enough():
                continue
            under_way = state is not None and place == begun and "network" in state
            if under_way:
                model = self._round(model, last, one, place, state)
            else:
                last, model = model, self._round(model, model, one, place, None)
            latest = self._epochs[-1]
            self._measure(model, f"{len(self._variants):02d}-{one.title}", latest.accuracy, latest.loss)
            self._keep(place + 1, model, last)
        return self._result(last if self._loses_too_much() else model, before)

    def _result(self, model: onnx.ModelProto, before: float | None) -> Trained:
        budget, ended = self._session.budget, ""
        names = [variant.name for variant in self._variants]
        name = names[-1] if names else ""
        if self._loses_too_much():
            name = names[-2]
            ended = f"{names[-1]} loses more than the budget's points; the result is {name}"
        elif budget is not None and (budget.cycles or budget.parameters) and not self._is_small_enough():
            ended = "the result is not within the budget: prune further, or allow more"
        return Trained(model, before, tuple(self._epochs), tuple(self._variants), name, ended, self._task.measure)

    def _is_small_enough(self) -> bool:
        return self._session.budget is not None and within(self._session.budget, self._variants[-1])

    def _loses_too_much(self) -> bool:
        return self._session.budget is not None and over_loss(
            self._session.budget, self._variants[-1], self._variants[0])

    def _round(self, model: onnx.ModelProto, last: onnx.ModelProto, one: Round, place: int,
               state: Mapping[str, Any] | None) -> onnx.ModelProto:
        """The model after a round, ``last`` being that before it. The round may have begun before this process did:
        then ``state`` is what was kept, and ``model`` is pruned already.
        """
        begun = 0
        if state is None:
            model = pruned(model, one.prunes, self._data, whole=self._whole, name=self._name)
        network = Network(model, binary=one.stage.binary, estimator=one.stage.estimator,
                          scales=one.stage.scales, streams=one.stage.streams)
        network.keep_zeros(one.stage.keep_zeros)
        run = _Run(self._task, one.stage, self._data, self._teacher, network)
        if state is not None:
            begun = state["epoch"]
            run.go_on(state)
        for epoch in range(begun + 1, one.stage.epochs + 1):
            loss = run.epoch()
            found = self._task.accuracy(network, self._test) if self._test else None
            self._epochs.append(Epoch(one.place, one.number, epoch, loss, found))
            if epoch < one.stage.epochs:
                self._keep(place, model, last, epoch=epoch, **run.state())
            shown = "" if found is None else f", {found:.2%} {self._task.measure}"
            title = one.title.replace("-", " ")
            self._progress(f"{title}, epoch {epoch} of {one.stage.epochs}: loss {loss:.4f}{shown}")
        return network.exported()

    def _measure(self, model: onnx.ModelProto, name: str, right: float | None, loss: float | None) -> None:
        if self._measures:
            self._variants.append(measured(model, name, macs=self._session.macs, accuracy=right, loss=loss))
            self._kept.write(name, model, self._variants, [
                Path(self._name).name,
                f"cycles of a machine of {self._session.macs} MACs, by the time model: of no board, at no clock"])

    def _keep(self, place: int, model: onnx.ModelProto, last: onnx.ModelProto, **state: Any) -> None:
        """What round ``place`` (from 0) goes on from; ``model``: at its beginning, pruned if it is under way."""
        self._kept.keep({
            "round": place, "model": _packed(model), "last": _packed(last), "random": torch.get_rng_state(),
            "epochs": [asdict(epoch) for epoch in self._epochs],
            "variants": [asdict(variant) for variant in self._variants], **state})


def _packed(model: onnx.ModelProto) -> Tensor:
    return torch.frombuffer(bytearray(model.SerializeToString()), dtype=torch.uint8)


def _unpacked(content: Tensor) -> onnx.ModelProto:
    return onnx.load_from_string(content.numpy().tobytes())


class _Run:
    """A stage of a session under way."""

    def __init__(self, task: Task, stage: TrainingStage, data: TrainingData, teacher: Network,
                 network: Network) -> None:
        self._task, self._stage, self._network, self._teacher = task, stage, network, copy.deepcopy(teacher)
        self._data = data
        self._steps = max(1, len(data) // stage.batch)
        steps = {id(scale) for scale in network.scales}
        parameters: list[dict[str, Any]] = [{"params": [one for one in network.parameters() if id(one) not in steps]}]
        if steps:
            parameters.append({"params": network.scales, "weight_decay": 0.0})
        if stage.optimizer == "adam":
            self._optimizer: torch.optim.Optimizer = torch.optim.AdamW(
                parameters, stage.lr, weight_decay=stage.weight_decay)
        else:
            self._optimizer = torch.optim.SGD(
                parameters, stage.lr, momentum=0.9, nesterov=True, weight_decay=stage.weight_decay)
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, stage.epochs * self._steps)

    def state(self) -> dict[str, Any]:
        """What `go_on` takes, beside the state of the random numbers."""
        return {"network": self._network.state_dict(), "optimizer": self._optimizer.state_dict(),
                "schedule": self._schedule.state_dict()}

    def go_on(self, state: Mapping[str, Any]) -> None:
        """From where another process was after an epoch."""
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])

    def epoch(self) -> float:
        """All samples once; the mean loss."""
        order, losses = torch.randperm(len(self._data)), []
        for step in range(self._steps):
            chosen = order[step * self._stage.batch:(step + 1) * self._stage.batch]
            loss = self._loss(chosen)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._schedule.step()
            losses.append(loss.item())
        if not np.isfinite(losses).all():
            raise TrainError("the loss is no number any more; take a smaller lr")
        return float(np.mean(losses))

    def _loss(self, chosen: Tensor) -> Tensor:
        stage = self._stage
        inputs, wanted = self._task.batch(self._data, chosen)
        loss = self._task.loss(stage, self._network, inputs, wanted, self._teacher)
        if stage.gamma_penalty:
            loss = loss + stage.gamma_penalty * torch.stack([gamma.abs().sum() for gamma in self._network.gammas]).sum()
        return loss
