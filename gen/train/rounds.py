"""The rounds of a session: what each prunes before it trains."""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import onnx

from cores.config import NpuConfig
from gen.prune.plan import Goal, Pruner
from gen.train.data import TrainingData
from gen.train.session import Prune, TrainingSession, TrainingStage

__all__ = ["Round", "pruned", "rounds_of"]


@dataclass(frozen=True, eq=False)
class Round:
    """``number``: from 1, within the stage ``place`` (from 1). ``prunes``: of this round alone."""

    place: int
    number: int
    stage: TrainingStage
    prunes: tuple[Prune, ...]

    @property
    def title(self) -> str:
        """For messages and names of files."""
        again = f"-round-{self.number}" if self.stage.repeat > 1 else ""
        return f"stage-{self.place}{again}"


def rounds_of(session: TrainingSession) -> Iterator[Round]:
    """All rounds in order. What a stage prunes in n rounds is left in equal parts of what was there before each: after
    round i a density d is d^(i/n), and of channels (1 - ratio)^(1/n) stay in each. A threshold is the same in all.
    """
    for place, stage in enumerate(session.stages, 1):
        for number in range(1, stage.repeat + 1):
            prunes = tuple(_part(prune, number, stage.repeat) for prune in stage.prunes)
            yield Round(place, number, stage, prunes)


def _part(prune: Prune, number: int, of: int) -> Prune:
    if prune.density is not None:
        return msgspec.structs.replace(prune, density=prune.density ** (number / of))
    if prune.ratio is not None:
        return msgspec.structs.replace(prune, ratio=1 - (1 - prune.ratio) ** (1 / of))
    return prune


def pruned(model: onnx.ModelProto, prunes: tuple[Prune, ...], data: TrainingData, *, whole: onnx.ModelProto,
           name: str) -> onnx.ModelProto:
    """The model, pruned in one way after the other; ``data`` are those to train with, ``whole`` the session's model, of
    whose channels floors are shares. Raises PruneError.
    """
    for prune in prunes:
        pruner = Pruner(model, NpuConfig.preset(prune.macs), name=name, timed=False, whole=whole)
        pruner.evaluate_by({model.graph.input[0].name: data.first(prune.samples)})
        share = prune.density if prune.ratio is None else prune.ratio
        model = pruner.prune(Goal(kind=prune.kind, share=share, threshold=prune.threshold, floor=prune.floor,
                                  layers=prune.layers)).model
    return model
