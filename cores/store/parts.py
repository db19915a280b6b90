"""What a store engine is made of where optional units make a difference: which machine has what is said here."""

from typing import Any

from ..config import NpuConfig, part_of
from .local_runs import LocalRuns
from .pixel_words import PixelWords
from .product_stage import ProductStage
from .result_beats import ResultBeats
from .run_targets import RunTargets
from .second_stage import SecondStage
from .sign_beats import SignBeats
from .stages.own_turns import OwnTurns
from .tile_words import TileWords
from .turns import Turns

__all__ = ["beats_of", "second_stage_of", "targets_of", "turns_of", "words_of"]


def words_of(config: NpuConfig) -> PixelWords:
    """Which words make a pixel's sum."""
    return part_of(config, PixelWords, {"winograd": TileWords})(config)


def second_stage_of(config: NpuConfig, chain: Any) -> SecondStage:
    """What a ``chain``'s second stage can be."""
    return part_of(config, SecondStage, {"product": ProductStage})(chain)


def turns_of(config: NpuConfig) -> Turns:
    """When pixels with a second stage set out."""
    return part_of(config, Turns, {"store_multipliers": OwnTurns})(config)


def beats_of(config: NpuConfig) -> ResultBeats:
    """What beats of results are."""
    return part_of(config, ResultBeats, {"binary_rows": SignBeats})(config)


def targets_of(config: NpuConfig) -> RunTargets:
    """Where rows go."""
    return part_of(config, RunTargets, {"local_store": LocalRuns})(config)
