"""What the sequencer, its loops and the array are made of where optional units have words of their own: which machine
has what is said here.
"""

from ..config import NpuConfig, part_of
from ..timing.array_units import units_of
from .lane_sources import LaneSources
from .loop_words import LoopWords
from .pool_unit import PoolUnit
from .rows.row_unit import RowUnit
from .rows.row_words import RowWords
from .spread.own_sources import OwnSources
from .spread.phase_loops import PhaseLoops
from .spread.spread_loops import SpreadLoops
from .spread.spread_sources import SpreadSources
from .spread.spread_words import SpreadWords
from .stochastic.stream_words import StreamWords
from .unit_words import UnitWords
from .word_kind import WordKind

__all__ = ["loop_words_of", "pool_of", "sources_of", "word_kinds"]

#: Field of `NpuConfig` -> words that machines have in which it is not 0.
_KINDS: dict[str, type[WordKind]] = {
    "depthwise": SpreadWords,
    "unit_rows": UnitWords,
    "stochastic_rows": StreamWords,
    "rows": RowWords,
}


def word_kinds(config: NpuConfig) -> list[WordKind]:
    """Words that not all machines have."""
    kinds = [kind(config) for field, kind in _KINDS.items() if getattr(config, field)]
    lagging = any(unit.LAGS for unit in units_of(config))
    assert not lagging or any(kind.STAYS for kind in kinds), "the words of a unit that lags have to keep apart"
    return kinds


def loop_words_of(config: NpuConfig) -> LoopWords:
    """How the loops of a tile count its words."""
    return part_of(config, LoopWords, {"gathered_taps": SpreadLoops, "own_taps": PhaseLoops})(config)


def sources_of(config: NpuConfig) -> LaneSources:
    """What the multipliers choose from."""
    return part_of(config, LaneSources, {"gathered_taps": SpreadSources, "own_taps": OwnSources})(config)


def pool_of(config: NpuConfig) -> PoolUnit:
    """What takes the pixels of POOLs."""
    return part_of(config, PoolUnit, {"rows": RowUnit})(config)
