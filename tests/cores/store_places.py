"""STOREs at random, and where in its accumulator bank each of their pixels is."""

import numpy as np

from cores.arch.instruction import Instruction
from cores.arch.isa import Opcode, WordForm
from cores.config import NpuConfig
from sim.storage import Accumulators

__all__ = ["random_order", "store_places"]


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


def store_places(config: NpuConfig, geometry: Instruction, store: Instruction) -> tuple[np.ndarray, np.ndarray]:
    """Word, and place in it (``pixel * oc_groups + group``), of every pixel in order; of a Winograd tile's position 0.
    """
    rows, px, groups = geometry["rows"], config.pixel_lanes, config.oc_groups
    cols = -(-geometry["cols"] // (1 + store["repeats"]))
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
    order = places[:, :store["blocks"]].T.reshape(-1, rows, cols)[..., columns].ravel()
    return order // (px * groups), order % (px * groups)
