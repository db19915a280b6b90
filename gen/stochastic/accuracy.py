"""Right answers of backbones, trained, on circuits and lengths of streams."""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cores.arch.stochastic import MAX_LENGTH_LOG, MIN_LENGTH_LOG, Circuit
from gen.files.results import kept
from gen.files.sources import sources_digest
from sim.folders import cache_folder
from sim.stochastic.fast import LOOKED_UP
from sim.stochastic.streams import Streams

from .backbone import Backbone
from .images import Images
from .network import Layer, exact, float_scores, integers, quantised, scores, stochastic
from .training import trained

__all__ = ["FEW", "Examiner", "lengths_of"]

#: Images of a test on circuits whose sums are not looked up.
FEW = 200
#: Longest streams of circuits that go from bit to bit: minutes instead of hours.
_SERIAL_LONGEST = 256
#: Images by which activations' ranges are set: fewer of large layers, so that a layer's results are no more than this.
_CALIBRATED, _MOST_RESULTS = 1000, 1 << 26
#: What a result depends on beside its network.
_SOURCES = ("cores/arch", "gen/stochastic", "sim")
#: Whoever trains: PyTorch's random numbers are those of the process.
_training = threading.Lock()


def lengths_of(circuit: Circuit) -> tuple[int, ...]:
    """Streams' lengths that a circuit is tested on, the shortest first."""
    lengths = (1 << log for log in range(MIN_LENGTH_LOG, MAX_LENGTH_LOG + 1))
    return tuple(length for length in lengths if not circuit.serial or length <= _SERIAL_LONGEST)


@dataclass(frozen=True)
class _Right:
    right: float


@dataclass(eq=False)
class Examiner:
    """Tests networks on ``images``; trained ones, and results, are kept in ``folder``, if there is one. Of a copy in
    another process, which may be on another computer, that is its own `default_folder`.

    ``few``: images for circuits that go from bit to bit, ``many`` (None: all there are) for the others. Threads may
    share it.
    """

    images: Images
    folder: Path | None = None
    many: int | None = None
    few: int = FEW
    _networks: dict[str, Sequence[Layer]] = field(default_factory=dict)

    @staticmethod
    def default_folder() -> Path:
        return cache_folder() / "stochastic"

    def network(self, backbone: Backbone, remark: Callable[[str], None] = lambda step: None) -> Sequence[Layer]:
        """Raises BackboneError, DataError."""
        with _training:
            if backbone.word not in self._networks:
                network = trained(backbone, self.images, self.folder, remark)
                results = max(one.rows * one.cols * one.outputs for one in backbone.layers)
                count = min(_CALIBRATED, self.images.trained, max(1, _MOST_RESULTS // results))
                pixels, _ = self.images.for_backbone(backbone, slice(0, count))
                self._networks[backbone.word] = quantised(backbone, network, pixels, self.images.in_range)
            return self._networks[backbone.word]

    def tested(self, circuit: Circuit | None) -> int:
        """How many images a circuit, or int8, is tested on."""
        there = len(self.images.labels) - self.images.trained
        wanted = self.many if circuit is None or circuit in LOOKED_UP else self.few
        return there if wanted is None else min(wanted, there)

    def accuracy(self, backbone: Backbone, circuit: Circuit | None, length: int, count: int | None = None,
                 remark: Callable[[str], None] = lambda step: None) -> float:
        """Share of right answers, of `tested` images unless ``count`` is given; of no circuit those of exact int8.

        Raises BackboneError, DataError.
        """
        def answers(pixels: np.ndarray) -> np.ndarray:
            multiply = exact if circuit is None else stochastic(circuit, Streams(length))
            return scores(self.network(backbone, remark), integers(pixels), multiply)

        return self._right(backbone, None if circuit is None else (circuit.label, length),
                           count or self.tested(circuit), answers)

    def float_accuracy(self, backbone: Backbone, remark: Callable[[str], None] = lambda step: None) -> float:
        """Of the float network, as `accuracy`."""
        def answers(pixels: np.ndarray) -> np.ndarray:
            with _training:
                network = trained(backbone, self.images, self.folder, remark)
            return float_scores(backbone, network, pixels)

        return self._right(backbone, "float", self.tested(None), answers)

    def _right(self, backbone: Backbone, way: object, count: int, answers: Callable[[np.ndarray], np.ndarray]) -> float:
        """Of ``count`` images, by the scores that ``answers`` gives for their pixels, or as it was kept."""
        part = self.images.tested(count)
        key = repr((backbone.word, self.images.digest, self.images.recipe, self.images.in_range, part, way,
                    sources_digest(*_SOURCES)))

        def measure() -> _Right:
            pixels, labels = self.images.for_backbone(backbone, part)
            return _Right(float((answers(pixels).argmax(axis=1) == labels).mean()))

        return kept(self.folder, f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.kept",
                    lambda values: _Right(**values), measure).right

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_networks": {}}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        if self.folder is not None:
            self.folder = self.default_folder()
