"""What a session teaches: a kind of samples, their loss, and the measure of what has been learnt."""

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from gen.train.network import Network
from gen.train.session import Data, TrainingStage

__all__ = ["Task"]


class Task(Protocol):
    """Raises TrainError in each of its methods for models or data that do not go with it."""

    #: What `accuracy` is, for people.
    measure: str

    def read(self, data: Data, folder: Path, *, name: str, shape: tuple[int, ...]) -> Any:
        """`TrainingData` for the model input ``name`` of ``shape`` (a sample's); paths begin at ``folder``."""

    def accuracy(self, network: Network, data: Any) -> float:
        """Share 0..1."""

    def batch(self, data: Any, chosen: Tensor) -> tuple[Tensor, Any]:
        """Inputs of the samples with these numbers, changed at random as the session says, and what is wanted."""

    def loss(self, stage: TrainingStage, network: Network, inputs: Tensor, wanted: Any, teacher: Network) -> Tensor:
        """Of a batch."""
