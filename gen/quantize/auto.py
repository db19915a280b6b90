"""The method of each tensor, and whether channels are equalised and biases corrected, by what it costs at the outputs.

Some of the samples are set apart: ranges come from the others, and these judge. At first whole models are compared: the
ranges of each method, with channels as they are and equalised, with biases as they are and corrected. From the best one
tensors go to other methods, one by one, those first whose own noise the methods differ in most, and stay there if the
outputs gain more than chance. At last the result has to do as well as each single method on further samples; if it does
not, the best of these is taken. All of it is bounded by the work of a model, not by time, so it is repeatable.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
import onnx

from gen.onnx.runtime import float_outputs
from gen.quantize.calibrate import distributions
from gen.quantize.draft import Draft, Ranges, draft_of
from gen.quantize.equalize import can_equalize
from gen.quantize.fit import fit_ranges
from gen.quantize.options import SINGLE_METHODS, Method, QuantizeOptions
from gen.quantize.prepare import initializers
from gen.quantize.ranges import WORSE, Distribution, energy_of, noise_of
from gen.quantize.sessions import Progress, Samples
from gen.quantize.trial import Judges, Trial, decibels

__all__ = ["Chosen", "choose"]

#: Of the samples one in so many is set apart; so many of them at most choose, and so many others at most check.
_APART, _CHOOSE, _CHECK = 4, 32, 64
#: Samples that ranges come from while methods are compared.
_CALIBRATE = 64
#: Multiplications that comparing may take, about, and what a value of an activation and a node count: of small layers a
#: run takes as long as it has nodes.
_WORK, _VALUE, _NODE = 6e11, 8, 5e5
#: Runs of a model for each sample that chooses, so that there are some for single tensors; and samples that can.
_RUNS, _LEAST = 40, 4
#: Gains that are none, as shares of the noise: of many samples, and of fewer than `_LEAST`.
_GAIN, _GAIN_OF_FEW = 0.02, 0.1
#: Standard errors of a gain that are chance: of one tensor among many, and of a whole model.
_SURE, _DOUBT = 2.0, 1.0
#: Ranges whose ends differ by less, as a share of the range, are the same.
_SAME = 0.02
#: Of the noise that `gen.quantize.ranges.WORSE` allows a range: other samples have more to clip.
_OWN = 0.6 * WORSE
#: What is kept where nothing else gains.
_FIRST: Method = "mse"
#: A loss that is none.
_NOTHING = 1e-30
#: Standard deviations of a difference in right answers that are chance, and a share that is none.
_CHANCE, _POINT = 2.0, 0.01


@dataclass(frozen=True, eq=False)
class Chosen:
    """``draft``: with the options that are best on the whole; ``methods``: tensor -> the method of its range, where it
    is another; ``line``: for people.
    """

    draft: Draft
    methods: Mapping[str, Method]
    line: str


@dataclass(frozen=True, eq=False)
class _Way:
    """A draft, and the ranges of its tensors by each method. ``untouched``: the draft before its masks were bounded by
    those.
    """

    untouched: Draft
    draft: Draft
    found: Mapping[str, Distribution]
    ranges: Mapping[Method, Ranges]

    def own(self, name: str, method: Method) -> float:
        """The noise of a tensor's range by a method, as a share of its energy."""
        of = self.found[name]
        return noise_of(of, *self.ranges[method][name]) / (energy_of(of) or 1.0)

    def guarded(self, name: str, method: Method) -> Method:
        """That method, or minmax where it clips more than it gains."""
        return "minmax" if self.own(name, method) > _OWN * self.own(name, "minmax") else method


@dataclass(frozen=True, eq=False)
class _State:
    """A model that is judged: a way with a method for each tensor."""

    way: _Way
    trial: Trial
    methods: Mapping[str, Method]
    losses: np.ndarray

    @property
    def options(self) -> QuantizeOptions:
        return self.way.draft.options

    @property
    def ranges(self) -> Ranges:
        return {name: self.way.ranges[method][name] for name, method in self.methods.items()}


def choose(reference: onnx.ModelProto, samples: Samples, options: QuantizeOptions, labels: np.ndarray | None = None,
           progress: Progress = lambda done, total, what: None) -> Chosen | None:
    """For a model as `gen.quantize.prepare` makes it; ``labels`` (N,) of the samples, below 0 for none. None where
    nothing can be judged: of a single sample, or without a float output. Raises QuantizeError.
    """
    if len(next(iter(samples.values()))) < 2 or not float_outputs(reference):
        return None
    return _Search(reference, samples, options, labels, progress).run()


class _Search:
    def __init__(self, reference: onnx.ModelProto, samples: Samples, options: QuantizeOptions,
                 labels: np.ndarray | None, progress: Progress) -> None:
        self._reference, self._options, self._progress = reference, options, progress
        count = len(next(iter(samples.values())))
        self._single = replace(options, method=_FIRST, equalize=False, bias_correction=False)
        #: Runs of the model that may be made, and those that are left.
        self._runs = self._left = int(_WORK / _work(draft_of(reference, samples, self._single)))
        most = int(np.clip(self._runs // _RUNS, 1, _CHOOSE))
        order = np.random.default_rng(1).permutation(count)
        apart, others = np.split(order, [max(1, count // _APART)])
        # The same ones check if there are few.
        halves = len(apart) >= 2 * _LEAST
        chooses = min(most, (len(apart) + 1) // 2 if halves else len(apart))
        checks = apart[chooses:][:min(_CHECK, 2 * most)] if halves else apart[:chooses]
        sources = np.sort(others[:int(np.clip(self._runs // 8, _LEAST, _CALIBRATE))])
        self._sources, chosen, checking = ({name: array[places] for name, array in samples.items()}
                                           for places in (sources, apart[:chooses], checks))
        self._choosing, self._checking = (Judges(reference, part) for part in (chosen, checking))
        self._labels = None if labels is None else labels[checks]

    def run(self) -> Chosen:
        states: list[_State] = []
        singles: list[_State] = []
        for equalised in self._equalising():
            options = replace(self._single, equalize=equalised)
            plain = self._singles(self._way(draft_of(self._reference, self._sources, options)))
            singles = singles or plain
            best = _best(plain)
            states += [] if self._options.bias_correction else [best]
            states.append(self._corrected(best))
        return self._checked(self._by_tensor(_best(states)), singles)

    def _equalising(self) -> tuple[bool, ...]:
        """With channels as they are, and equalised, if that is possible and not settled."""
        possible = can_equalize(self._reference, self._options)
        return (self._options.equalize,) if self._options.equalize or not possible else (False, True)

    # -- whole models ----------------------------------------------------------------------------------------------

    def _way(self, draft: Draft) -> _Way:
        untouched, draft = draft, draft.copied()
        found = distributions(draft.reference, draft.plan.tensors, self._sources, self._progress)
        bounded, fit = draft.bounds(found), partial(fit_ranges, draft.reference, draft.plan)
        return _Way(untouched, draft, found,
                    {method: fit(draft.by(method=method).ranges(found, bounded)) for method in SINGLE_METHODS})

    def _singles(self, way: _Way) -> list[_State]:
        """The model by each method."""
        trial, states = self._trial(way.draft, way.ranges[_FIRST]), list[_State]()
        for method in sorted(SINGLE_METHODS, key=lambda method: method != _FIRST):
            methods = {name: way.guarded(name, method) for name in way.found}
            states.append(self._judged(way, trial, methods))
        return states

    def _corrected(self, state: _State) -> _State:
        """The model with biases corrected."""
        way = replace(state.way, untouched=state.way.untouched.corrected(), draft=state.way.draft.corrected())
        return self._judged(way, self._trial(way.draft, state.ranges), state.methods)

    def _trial(self, draft: Draft, ranges: Ranges) -> Trial:
        return Trial(draft.made(ranges, self._sources, self._progress), draft.plan, self._choosing.wanted,
                     list(self._sources), symmetric=self._options.symmetric)

    def _judged(self, way: _Way, trial: Trial, methods: Mapping[str, Method]) -> _State:
        ranges = {name: way.ranges[method][name] for name, method in methods.items()}
        self._progress(self._runs - self._left, self._runs, "comparing methods")
        self._left -= len(self._choosing)
        return _State(way, trial, methods, self._choosing.losses(trial.run(self._choosing.samples, ranges))[0])

    # -- single tensors --------------------------------------------------------------------------------------------

    def _by_tensor(self, state: _State) -> _State:
        """``state`` with other methods for tensors that the outputs gain by."""
        if len(self._choosing) < _LEAST:
            return state
        way = state.way
        wanted = [(abs(way.own(name, method) - way.own(name, state.methods[name])), name)
                  for name in way.found for method in self._others(state, name)]
        for name in dict.fromkeys(name for _, name in sorted(wanted, reverse=True)):
            for method in self._others(state, name):
                if self._left < len(self._choosing):
                    return state
                other = self._judged(way, state.trial, {**state.methods, name: method})
                if _gains(state.losses, other.losses):
                    state = other
        return state

    def _others(self, state: _State, name: str) -> list[Method]:
        """Methods whose range is another than that which a tensor has, and than that of each other."""
        taken, found = [state.way.ranges[state.methods[name]][name]], list[Method]()
        for method in SINGLE_METHODS:
            ends = state.way.ranges[method][name]
            width = ends[1] - ends[0]
            if state.way.guarded(name, method) == method and width and all(
                    max(abs(a - b) for a, b in zip(ends, one, strict=True)) > _SAME * width for one in taken):
                taken.append(ends)
                found.append(method)
        return found

    # -- the check -------------------------------------------------------------------------------------------------

    def _checked(self, best: _State, singles: list[_State]) -> Chosen:
        """``best``, if it is as good as each single method on the samples that check; else the best of these."""
        mine, said = self._checking.losses(best.trial.run(self._checking.samples, best.ranges))
        rows = []
        for state in singles:
            losses, answers = self._checking.losses(state.trial.run(self._checking.samples, state.ranges))
            rows.append((state, losses, self._lead(answers, said)))
        line = self._said(best, mine, singles, [losses for _, losses, _ in rows])
        better = [(-lead, float(losses.mean()), number) for number, (_, losses, lead) in enumerate(rows)
                  if lead or _gains(mine, losses, _DOUBT)]
        if better:
            best = rows[min(better)[2]][0]
            line += f"; on further samples this is worse than one method alone, so all is by {_main(best)}"
        main = _main(best)
        draft = best.way.untouched.by(method=main)
        return Chosen(draft, {name: method for name, method in best.methods.items() if method != main}, line)

    def _lead(self, theirs: list[np.ndarray], mine: list[np.ndarray]) -> int:
        """By how many right answers others lead, 0 if by chance alone."""
        if self._labels is None or not theirs or any(len(one) != 1 for one in theirs):
            return 0
        right = np.array([[one[0] == label, other[0] == label] for one, other, label in zip(
            theirs, mine, self._labels, strict=True) if label >= 0], int).reshape(-1, 2)
        apart = right[:, 0] - right[:, 1]
        lead = int(apart.sum())
        return lead if lead > max(_POINT * len(apart), _CHANCE * np.sqrt(np.abs(apart).sum())) else 0

    def _said(self, best: _State, mine: np.ndarray, singles: list[_State], losses: list[np.ndarray]) -> str:
        main = _main(best)
        others = Counter(method for method in best.methods.values() if method != main)
        parts = [f"ranges by {main}"]
        if others:
            kinds = ", ".join(f"{count} {method}" for method, count in sorted(others.items()))
            parts = [f"{parts[0]}, {others.total()} of {len(best.methods)} by others ({kinds})"]
        parts += ["channels equalised"] * best.options.equalize + ["biases corrected"] * best.options.bias_correction
        alone = ", ".join(f"{asked} {decibels(of.mean())}" for asked, of in zip(
            sorted(SINGLE_METHODS, key=lambda method: method != _FIRST), losses, strict=True))
        return (f"auto: {'; '.join(parts)}: {decibels(mine.mean(), ' dB')} on {len(self._checking):,} samples apart; "
                f"by one method alone: {alone}")


def _best(states: Sequence[_State]) -> _State:
    """The first one, or what gains against it and others that do."""
    best = states[0]
    for state in states[1:]:
        best = state if _gains(best.losses, state.losses, _DOUBT) else best
    return best


def _main(state: _State) -> Method:
    """The method that most ranges are by."""
    counts = Counter(state.methods.values())
    return max(counts, key=lambda method: (counts[method], method == _FIRST, method))


def _gains(losses: np.ndarray, others: np.ndarray, errors: float = _SURE) -> bool:
    """Whether ``others`` are less on the same samples, by more than chance, which is so many standard ``errors``."""
    if not np.isfinite(losses).all():
        return bool(np.isfinite(others).all())
    gain = (losses - others).mean()
    if len(losses) < _LEAST:
        return bool(gain > _GAIN_OF_FEW * losses.mean())
    # Few samples have most of the noise; as ratios all of them say something.
    ratios = np.log(np.maximum(losses, _NOTHING)) - np.log(np.maximum(others, _NOTHING))
    chance = ratios.std(ddof=1) / np.sqrt(len(ratios))
    return bool(gain > _GAIN * losses.mean() and ratios.mean() > errors * chance)


def _work(draft: Draft) -> float:
    """Multiplications of a run, about, and what else is as long."""
    graph, constants = draft.reference.graph, initializers(draft.reference)
    shapes = {value.name: [max(1, dim.dim_value) for dim in value.type.tensor_type.shape.dim[1:]]
              for value in (*graph.input, *graph.value_info, *graph.output)}
    macs = 0.0
    for layer in draft.plan.layers:
        dims = constants[layer.weights].dims
        macs += prod(dims) * prod(shapes.get(layer.output, [])) / dims[layer.axis]
    values = sum(prod(shapes.get(name, [])) for name in draft.plan.tensors)
    return macs + _VALUE * values + _NODE * len(graph.node)
