"""A model pruned as asked, and what that did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from cores.config import NpuConfig
from gen.detection.judge import Expected, Judge
from gen.detection.precision import Precision
from gen.ir.errors import CompileError, GraphError
from gen.onnx.read import Shapes, read
from gen.prune.blocks import densities, prune_below, prune_blocks, prune_magnitudes
from gen.prune.channels import ChannelMap
from gen.prune.counts import Counts
from gen.prune.errors import PruneError
from gen.prune.layers import chosen_layers, find_layers
from gen.prune.measure import AccuracyEvaluator
from gen.prune.scores import apoz_scores, gamma_scores, removals
from gen.prune.search import Sensitivity, descent, first_that, last_that, sensitivities
from gen.prune.shrink import shrink
from gen.prune.timing import QuantisedCounterpart, Times, random_inputs, specs_of
from gen.quantize.options import QuantizeError
from gen.quantize.prepare import quantised_node
from gen.run.inputs import read_samples
from gen.run.preprocessing import Preprocessing

__all__ = ["Goal", "Pruned", "Pruner", "layer_rows", "read_model", "with_initializers"]

#: Random samples where none are given: enough to tell layers apart.
_RANDOM_SAMPLES = 16

Kind = Literal["block", "magnitude", "gamma", "apoz"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What to prune, and how far: one of ``share``, ``threshold``, ``cycles`` and ``loss``.

    ``share``: the density of blocks, or the share of channels that go; ``threshold``: weights of a smaller magnitude
    go, or runs of channels of a smaller mean score; ``cycles`` of an inference at most; ``loss``: points of accuracy at
    most. ``rounds``: steps in which a share of channels goes, each with scores of its own.
    ``floor``: the share of the channels of each layer, or residual chain, that stays at least. ``layers``: patterns of
    the names of those that are pruned, see `chosen_layers`; of a residual chain all layers or none.
    """

    kind: Kind
    share: float | None = None
    cycles: int | None = None
    loss: float | None = None
    rounds: int = 1
    floor: float = 0.0
    threshold: float | None = None
    layers: tuple[str, ...] = ()

    @property
    def of_channels(self) -> bool:
        return self.kind in ("gamma", "apoz")


@dataclass(frozen=True, eq=False)
class Pruned:
    """The result. ``before``, ``after``: cycles of the accelerator, None where it could have nothing of the model, for
    ``reason``; ``on_host``: nodes that are left to the processor.

    ``noise``: of the outputs, see `AccuracyEvaluator`; ``accuracy``: before and after, on samples that were given: by
    their labels if ``labelled``, else shares of the samples with the same answer as before. ``remark``: on the labels.
    ``gone``: share of the channels that can go, None where blocks or weights do. ``counts``: before and after, as is
    ``precision``, of a detector, whose accuracy is its mAP at an overlap of 0.5.
    """

    model: onnx.ModelProto
    before: Times | None
    after: Times | None
    noise: float
    accuracy: tuple[float, float] | None
    sensitivities: Mapping[str, Sensitivity] = field(default_factory=dict)
    reason: str = ""
    on_host: int = 0
    counts: tuple[Counts, Counts] | None = None
    labelled: bool = False
    remark: str = ""
    gone: float | None = None
    precision: tuple[Precision, Precision] | None = None


def read_model(path: Path, shapes: Shapes | None = None) -> onnx.ModelProto:
    """A model from a file, checked, each node with a name, constants as initializers; ``shapes`` as for `read`.

    Raises GraphError.
    """
    return with_initializers(read(path, shapes).proto)


def with_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that has been read, its constants as initializers that are no inputs; it is changed in place."""
    constant = [node for node in model.graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"]
    for node in constant:
        model.graph.initializer.append(node.attribute[0].t)
        model.graph.initializer[-1].name = node.output[0]
        model.graph.node.remove(node)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model


class Pruner:
    """Prunes one model for one machine; ``name`` is its file's. Without ``timed`` there are no cycles. ``whole``: the
    model as it was before any pruning, of whose channels floors are shares; None: as it is given.

    Methods raise PruneError, GraphError, CompileError.
    """

    def __init__(self, model: onnx.ModelProto, config: NpuConfig, *, name: str,
                 timed: bool = True, whole: onnx.ModelProto | None = None,
                 progress: Callable[[str], None] = lambda text: None) -> None:
        self._model, self._config, self._name, self._progress = model, config, name, progress
        self._counterpart: QuantisedCounterpart | None = None
        self._before: Times | None = None
        self._whole = whole or model
        self._reason = "cycles were not asked for"
        if timed:
            self._measure()
        self._inputs: Mapping[str, np.ndarray] = random_inputs(model, _RANDOM_SAMPLES)
        self._labels: np.ndarray | None = None
        self._expected: Expected | None = None
        self._given = False

    def _measure(self) -> None:
        """The cycles before, or why there are none."""
        try:
            counterpart = self._counterpart_of(self._model)
            self._before, self._counterpart, self._reason = counterpart.times(self._config), counterpart, ""
        except (CompileError, GraphError, QuantizeError) as error:
            self._reason = str(error)

    def take_samples(self, samples: Path, limit: int | None, change_by: Preprocessing | None = None,
                     judge: Judge | None = None) -> None:
        """Evaluate by the samples of a file, and by its labels if it has any, or a detector by ``judge``, instead of
        random ones; images become what ``change_by`` makes of them.
        """
        found = read_samples(samples, specs_of(self._model), limit=limit, change_by=change_by).judged_by(judge)
        self.evaluate_by(found.inputs, found.labels, found.expected)

    def evaluate_by(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray | None = None,
                    expected: Expected | None = None) -> None:
        """As `take_samples`, of samples at hand."""
        self._inputs, self._labels, self._expected, self._given = inputs, labels, expected, True

    def prune(self, goal: Goal) -> Pruned:
        """Raises PruneError, which names the file, where the goal cannot be reached."""
        try:
            return self._prune(goal)
        except PruneError as error:
            raise PruneError.of(error, f"{self._name}: {error}") from None

    def _prune(self, goal: Goal) -> Pruned:
        evaluator = AccuracyEvaluator.of(self._model, self._inputs, self._labels, self._expected)
        found: dict[str, Sensitivity] = {}
        if goal.of_channels:
            model = self._prune_channels(goal, evaluator)
        elif goal.threshold is not None:
            model = prune_below(self._model, goal.threshold, self._chosen(goal))
        elif goal.share is not None:
            chosen = self._chosen(goal)
            model = (prune_magnitudes(self._model, goal.share, chosen) if goal.kind == "magnitude" else
                     prune_blocks(self._model, dict.fromkeys(chosen, goal.share), self._config))
        else:
            found = sensitivities(self._model, self._required(), self._config, evaluator, self._chosen(goal),
                                  self._progress)
            model = self._prune_by(goal, found, evaluator)
        self._progress("the result")
        precision = evaluator.precisions(model)
        accuracy = None
        if self._given:
            accuracy = ((evaluator.original_accuracy, evaluator.accuracy(model)) if precision is None else
                        (precision[0].map_50, precision[1].map_50))
        after = self._counterpart_of(model).times(self._config) if self._counterpart else None
        on_host = self._counterpart.on_host if self._counterpart else 0
        return Pruned(model, self._before, after, evaluator.noise(model), accuracy, found, self._reason, on_host,
                      (Counts.of(self._model), Counts.of(model)), evaluator.labels is not None, evaluator.remark,
                      self._gone(model, goal) if goal.of_channels else None, precision)

    def _chosen(self, goal: Goal) -> set[str]:
        """Nodes of the layers to prune."""
        return chosen_layers((layer.node for layer in find_layers(self._model)), goal.layers)

    def _gone(self, model: onnx.ModelProto, goal: Goal) -> float:
        before, after = (self._prunable(ChannelMap.of(one), goal) for one in (self._model, model))
        return 1 - after / before if before else 0.0

    def _prunable(self, channels: ChannelMap, goal: Goal) -> int:
        """Channels that may go, of the layers that are chosen."""
        chosen = self._chosen(goal)
        return sum(len(coupled) for coupled in channels.coupled() if channels.layers(coupled) <= chosen)

    def _counterpart_of(self, model: onnx.ModelProto) -> QuantisedCounterpart:
        return QuantisedCounterpart.of(model, self._config, name=self._name)

    def _required(self) -> QuantisedCounterpart:
        if self._counterpart is None:
            raise PruneError(f"{self._reason.removeprefix(f'{self._name}: ')}; without cycles there is only --density, "
                             "or --ratio")
        return self._counterpart

    def _prune_by(self, goal: Goal, found: Mapping[str, Sensitivity], evaluator: AccuracyEvaluator) -> onnx.ModelProto:
        """The first state of `descent` with few enough cycles, or the last that is good enough."""
        states, counterpart = descent(found), self._required()

        def model(state: Mapping[str, float]) -> onnx.ModelProto:
            return prune_blocks(self._model, state, self._config)

        if goal.cycles is not None:
            budget = goal.cycles
            state = first_that(states, lambda state: counterpart.times(self._config, state).total <= budget)
            if state is None:
                raise self._too_few(budget, counterpart.times(self._config, states[-1]).total)
            return model(state)
        least = evaluator.original_accuracy - (goal.loss or 0) / 100
        return model(last_that(states, lambda state: evaluator.accuracy(model(state)) >= least))

    def _too_few(self, budget: int, reached: int) -> PruneError:
        return PruneError(f"pruning cannot reach {budget:,} cycles: with all removed that can be, the model takes "
                          f"{reached:,} on this machine; allow more, or take a larger machine",
                          code="cycle-budget", limit=budget)

    def _prune_channels(self, goal: Goal, evaluator: AccuracyEvaluator) -> onnx.ModelProto:
        if quantised_node(self._model) is not None:
            raise PruneError("channels are removed from float models only; prune the model that this one was made "
                             "from, and quantise it again", code="quantised-already")
        model = self._model
        if goal.share is not None:
            for _ in range(goal.rounds):
                channels, states = self._states(model, goal)
                wanted = self._prunable(channels, goal) * (1 - (1 - goal.share) ** (1 / goal.rounds))
                model = self._shrunk(model, channels, min(states, key=lambda state: abs(len(state) - wanted)), goal)
            return model
        channels, states = self._states(model, goal)
        if goal.threshold is not None:
            return self._shrunk(model, channels, states[-1], goal)
        if goal.cycles is not None:
            budget = goal.cycles

            def cycles(state: frozenset[int]) -> int:
                self._progress(f"without {len(state)} channels")
                return self._counterpart_of(self._shrunk(model, channels, state, goal)).times(self._config).total

            self._required()
            state = first_that(states, lambda state: cycles(state) <= budget)
            if state is None:
                raise self._too_few(budget, cycles(states[-1]))
            return self._shrunk(model, channels, state, goal)
        least = evaluator.original_accuracy - (goal.loss or 0) / 100
        return self._shrunk(model, channels, last_that(
            states, lambda state: evaluator.accuracy(self._shrunk(model, channels, state, goal)) >= least), goal)

    def _states(self, model: onnx.ModelProto, goal: Goal) -> tuple[ChannelMap, list[frozenset[int]]]:
        channels = ChannelMap.of(model)
        scores = gamma_scores(channels) if goal.kind == "gamma" else apoz_scores(model, channels, self._inputs)
        return channels, removals(channels, scores, self._config.ic_lanes, least=self._floors(goal),
                                  nodes=self._chosen(goal), below=inf if goal.threshold is None else goal.threshold)

    def _floors(self, goal: Goal) -> list[int]:
        """Channels that stay at least, of each layer or chain of the whole model: all rounds together keep them."""
        if not goal.floor:
            return []
        return [ceil(goal.floor * len(coupled)) for coupled in ChannelMap.of(self._whole).coupled()]

    def _shrunk(self, model: onnx.ModelProto, channels: ChannelMap, dropped: frozenset[int],
                goal: Goal) -> onnx.ModelProto:
        return shrink(model, channels, dropped, self._inputs, by_gamma=goal.kind == "gamma")


def layer_rows(before: onnx.ModelProto, pruned: Pruned) -> list[dict[str, Any]]:
    """What became of each layer, ready for JSON."""
    old, new = densities(before), densities(pruned.model)
    outputs = [_outputs(model) for model in (before, pruned.model)]
    rows = []
    for layer in find_layers(before):
        node = layer.node
        found = pruned.sensitivities.get(node)
        rows.append({
            "name": node, "op": layer.op, "left": layer.left,
            "density": {"before": old[node], "after": new[node]},
            "channels": {"before": outputs[0][node], "after": outputs[1][node]},
            "sensitivity": {f"{density:g}": noise for density, noise in found.noise.items() if density < 1}
            if found else None,
            "cycles": _cycles(pruned, node),
        })
    return rows


def _cycles(pruned: Pruned, node: str) -> dict[str, int] | None:
    if pruned.before is None or pruned.after is None or node not in pruned.before.nodes:
        return None
    return {"before": pruned.before.nodes[node], "after": pruned.after.nodes.get(node, 0)}


def _outputs(model: onnx.ModelProto) -> dict[str, int]:
    """Output channels of each layer."""
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    return {layer.node: shapes[layer.initializer][1 if layer.transposed else 0] for layer in find_layers(model)}
