"""What pruning costs: energy of the weights that are left, and accuracy on samples."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from cores.config import NpuConfig
from gen.ir.graph import Conv, Graph
from gen.passes.prune import groups_of
from gen.prune.blocks import prune_blocks
from gen.prune.measure import AccuracyEvaluator
from gen.prune.plan import with_initializers

from .models import ModelFile

__all__ = ["Judgement", "kept_energy"]


def kept_energy(graph: Graph, pruned: Graph) -> list[float]:
    """Of each layer that pruning looked at: sum of the squares of its weights, after over before.

    What is missing from 1 is the power of the noise on its sums over that of the sums, for inputs without correlation;
    noises of layers add up.
    """
    def energy(layer: Conv) -> float:
        return float(np.square(layer.weights, dtype=np.float64).sum())

    return [energy(new) / max(energy(old), 1e-30)
            for old, new in zip(graph.of(Conv), pruned.of(Conv), strict=True) if old is not new]


@dataclass(eq=False)
class Judgement:
    """Samples to judge pruned models by: ``inputs`` (N, ...) by the names of the model, ``labels`` (N,) or None.

    Without labels a sample is right where the pruned model answers as the model does.
    """

    inputs: Mapping[str, np.ndarray]
    labels: np.ndarray | None
    _known: dict[tuple[Any, ...], float] = field(default_factory=dict)
    _evaluators: dict[str, AccuracyEvaluator] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Of the samples."""
        state = hashlib.sha256()
        for name, array in (*sorted(self.inputs.items()), ("", self.labels)):
            values = np.empty(0) if array is None else np.ascontiguousarray(array)
            state.update(f"{name}\0{values.dtype}\0{values.shape}\0".encode() + values.tobytes())
        return state.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "labels": self.labels, "_known": {}, "_evaluators": {}}

    def accuracy(self, model: ModelFile, config: NpuConfig, density: float) -> float:
        """Share of the samples that are right with the model pruned for a machine. Raises PruneError."""
        # Of a machine only what decides which weights are left.
        form = (model.digest, groups_of(density, config), config.ic_lanes, config.nnz_lanes, config.select_fanin)
        if form not in self._known:
            proto = with_initializers(onnx.load_from_string(model.content))
            if model.digest not in self._evaluators:
                self._evaluators[model.digest] = AccuracyEvaluator.of(proto, self.inputs, self.labels)
            changed = proto if density == 1 else prune_blocks(proto, density, config)
            self._known[form] = self._evaluators[model.digest].accuracy(changed)
        return self._known[form]
