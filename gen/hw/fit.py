"""Which machines fit a board, by their reckoned area."""

from dataclasses import dataclass

from boards.board import Board
from cores.config import COMPUTING_FEATURES, FEATURES, PRESET_MACS, ConfigError, NpuConfig

from .area import Area, area_of, exceeded

__all__ = ["Largest", "largest_of"]


@dataclass(frozen=True)
class Largest:
    """The preset of most MACs that fits a board, with the features that fit beside it, those first in `FEATURES`.

    A feature that another one brings is not named.
    """

    config: NpuConfig
    features: tuple[str, ...]
    area: Area


def _fits(board: Board, config: NpuConfig) -> bool:
    return not exceeded(area_of(config, board.family).on(board), board)


def _with(board: Board, macs: int, features: tuple[str, ...]) -> NpuConfig | None:
    plain = board.config(macs)
    try:
        return board.config(macs, **plain.feature_fields(features))
    except ConfigError:
        return None


def largest_of(board: Board) -> Largest | None:
    """None when not even the smallest preset fits."""
    macs = next((macs for macs in reversed(PRESET_MACS) if _fits(board, board.config(macs))), None)
    if macs is None:
        return None
    features: tuple[str, ...] = ()
    for name in COMPUTING_FEATURES:
        config = _with(board, macs, (*features, name))
        if config is not None and _fits(board, config):
            features = (*features, name)
    config = board.config(macs, **board.config(macs).feature_fields(features))
    named = tuple(name for name in features
                  if not any(set(FEATURES[name]) < set(FEATURES[other]) for other in features))
    return Largest(config, named, area_of(config, board.family))
