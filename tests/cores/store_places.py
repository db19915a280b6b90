"""STOREs at random, and where in its accumulator bank each of their pixels is."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from sim.storage import Accumulators

__all__ = ["random_maxima", "random_order", "row_words", "store_places"]


def random_order(config: NpuConfig, rng: np.random.Generator) -> tuple[Instruction, Instruction]:
    """STORE_SET and STORE of a few pixels, in words of any form that the machine knows."""
    fields = {"rows": rng.integers(1, 6), "cols": rng.integers(1, 12), "row_pitch": rng.integers(1 << 20)}
    shared = (WordForm.SPREAD, WordForm.ALTERNATE)      # by groups: a bank holds one block
    words = WordForm(rng.choice([WordForm.PIXELS, *(shared if config.banks > config.pixel_lanes else ())]))
    if config.winograd and rng.random() < 0.6:
        words = WordForm.TILES
        tiles = -(-fields["rows"] // 2) * -(-fields["cols"] // 2)
        fields["position_words"] = -(-tiles // config.pixel_lanes) + rng.integers(3)
    fields["words"] = words
    single = words in shared
    return (Instruction(Opcode.STORE_SET, **{name: int(value) for name, value in fields.items()}),
            Instruction(Opcode.STORE, blocks=1 if single else int(rng.integers(1, config.oc_groups + 1)),
                        repeats=int(rng.choice([0, 0, 1, 2, 31]))))


def random_maxima(config: NpuConfig, rng: np.random.Generator) -> tuple[Instruction, Instruction]:
    """The same of maxima of 2x2."""
    rows, cols = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    words = WordForm(rng.choice([WordForm.PIXELS, *[WordForm.SPREAD] * (config.banks > config.pixel_lanes),
                                 *[WordForm.TILES] * bool(config.winograd)]))
    tiles = {"position_words": -(-rows * cols // config.pixel_lanes) + 2} if words == WordForm.TILES else {}
    blocks = 1 if words == WordForm.SPREAD else int(rng.integers(1, config.oc_groups + 1))
    return (Instruction(Opcode.STORE_SET, rows=rows, cols=4 * cols, words=words, **tiles),
            Instruction(Opcode.STORE, blocks=blocks, repeats=1))


def row_words(config: NpuConfig, geometry: Instruction) -> int:
    """Of maxima, words from a row to the next."""
    words = geometry["words"]
    return 0 if words == WordForm.TILES else -(
        -geometry["cols"] // (2 * config.word_columns(spread=words == WordForm.SPREAD)))


def store_places(config: NpuConfig, geometry: Instruction, store: Instruction, *,
                 maximum: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Word, and place in it (``pixel * oc_groups + group``), of every pixel in order; of a Winograd tile's position 0.
    """
    px, groups, turns = config.pixel_lanes, config.oc_groups, 1 + store["repeats"]
    rows, cols = geometry["rows"] * (turns if maximum else 1), -(-geometry["cols"] // turns)
    if geometry["words"] == WordForm.TILES:
        row, col = np.divmod(np.arange(rows * cols), cols)
        tile = row // 2 * -(-cols // 2) + col // 2
        places = (tile * groups)[:, None] + np.arange(groups)
    else:
        accumulators = Accumulators(config)
        if geometry["words"] == WordForm.SPREAD:
            places = accumulators.spread_places(rows, cols)
        elif geometry["words"] == WordForm.ALTERNATE:
            places = accumulators.alternate_places(rows, cols)
        else:
            places = accumulators.places(rows, cols)
    columns = np.arange(geometry["cols"]) // (1 + store["repeats"])
    order = places[:, :store["blocks"]].T.reshape(-1, rows, cols)
    order = (order.reshape(-1, rows // turns, turns, cols).swapaxes(2, 3) if maximum else order[..., columns]).ravel()
    return order // (px * groups), order % (px * groups)
