"""What a store engine is made of where optional units make a difference: which machine has what is said here."""

from typing import Any

from ..config import NpuConfig, part_of
from ..timing.store import StoreStageTiming, stages_of
from .chain import chain_name
from .local_runs import LocalRuns
from .maximum.window_order import WindowOrder
from .narrow.part_beats import PartBeats
from .narrow.part_turns import PartTurns
from .narrow.part_words import PartWords
from .pixel_order import PixelOrder
from .pixel_words import PixelWords
from .product_stage import ProductStage
from .result_beats import ResultBeats
from .run_targets import RunTargets
from .second_stage import SecondStage
from .sign_beats import SignBeats
from .stages.own_turns import OwnTurns
from .tile_words import TileWords
from .turns import Turns

__all__ = ["beats_of", "joining_of", "order_of", "second_stage_of", "targets_of", "turns_of", "words_of"]


def words_of(config: NpuConfig) -> PixelWords:
    """Which words make a pixel's sum."""
    return part_of(config, PixelWords, {"winograd": TileWords, "store_lanes": PartWords})(config)


def order_of(config: NpuConfig) -> PixelOrder:
    """Where the next pixel is."""
    return part_of(config, PixelOrder, {"maximum": WindowOrder})(config)


def joining_of(config: NpuConfig) -> dict[str, type[StoreStageTiming]]:
    """The stages that make one value of several, by the flags of `Chain` for their operations."""
    return {chain_name(stage.OPCODE): stage for stage in stages_of(config) if stage.VALUES > 1}


def second_stage_of(config: NpuConfig, chain: Any) -> SecondStage:
    """What a ``chain``'s second stage can be."""
    return part_of(config, SecondStage, {"product": ProductStage})(chain)


def turns_of(config: NpuConfig) -> Turns:
    """When pixels with a second stage set out."""
    return part_of(config, Turns, {"store_multipliers": OwnTurns, "store_lanes": PartTurns})(config)


def beats_of(config: NpuConfig) -> ResultBeats:
    """What beats of results are."""
    return part_of(config, ResultBeats, {"binary_rows": SignBeats, "store_lanes": PartBeats})(config)


def targets_of(config: NpuConfig) -> RunTargets:
    """Where rows go."""
    return part_of(config, RunTargets, {"local_store": LocalRuns})(config)
