"""Of the compute engine."""

from functools import cache

from ..arch.isa import StepKind
from ..config import NpuConfig
from .array_units import ARRAY_UNITS, units_of
from .buffers import AccumulatorsTiming, InputBufferTiming
from .pools import pool_of

__all__ = [
    "ComputeEngineTiming", "EnginePairTiming", "MacArrayTiming", "MacRowTiming", "PRODUCT_BITS",
    "TileLoopsTiming", "TileSequencerTiming", "WeightLoaderTiming", "packed_products",
]

#: Of a product of int8 by int8.
PRODUCT_BITS = 16


def packed_products(config: NpuConfig) -> int:
    """How many products of two packed pixels can be summed before they must be separated; 0 when pixels are not packed.

    ``(x1 << s) + x0`` needs ``s + 9`` bits; ``s`` = 16 holds one product of int8 by int8, every further bit doubles it.
    """
    if config.pixel_lanes == 1 or config.multiplier_width < PRODUCT_BITS + 9:
        return 0
    return min(1 << config.multiplier_width - PRODUCT_BITS - 9, config.nnz_lanes)


class TileLoopsTiming:
    """Of `TileLoops`, cores/compute/tile_loops.py."""

    #: Cycles that it takes to look at an instruction before it can begin.
    PREPARE = 1


class TileSequencerTiming:
    """Of `TileSequencer`, cores/compute/tile_sequencer.py."""

    #: Cycles from the loops to ``address``.
    LATENCY = 1


class MacRowTiming:
    """Of `MacRow`, cores/compute/mac_array.py."""

    @staticmethod
    def latency(config: NpuConfig) -> int:
        """Cycles: select, multiply and one for each level of the adder tree."""
        return 2 + (config.nnz_lanes - 1).bit_length()


class MacArrayTiming:
    """Of `MacArray`, cores/compute/mac_array.py."""

    @staticmethod
    def align(config: NpuConfig) -> int:
        """Cycles from ``pixels`` to the rows: align, and with ``depthwise`` gather first."""
        return 1 + config.depthwise

    @classmethod
    def latency(cls, config: NpuConfig) -> int:
        return cls.align(config) + MacRowTiming.latency(config)


class WeightLoaderTiming:
    """Of `WeightLoader`, cores/compute/weight_loader.py."""

    #: Cycles from ``fill_valid`` until the first beat can be taken.
    LATENCY = 1

    @staticmethod
    def rows_taken(config: NpuConfig, kind: StepKind) -> int:
        """Cycles from the first issue of a step of a unit's rows until these are copied: they are after the buffer's
        registers.
        """
        return TileSequencerTiming.LATENCY + InputBufferTiming.LATENCY + ARRAY_UNITS[kind].rows_copied(config)

    @staticmethod
    def lead(config: NpuConfig, kind: StepKind = StepKind.DENSE, *, taken: int) -> int:
        """How many beats of a step, at most, may be missing in the cycle before it starts."""
        if kind in config.unit_rows:
            return min(WeightLoaderTiming.rows_taken(config, kind) + 1, config.step_beats(kind))
        # Indices must be there a cycle before weights; the last of them may come with the step's last beat.
        late = config.index_beats == config.step_beats(kind)
        return min(taken + 1 - late, config.step_beats(kind))


class ComputeEngineTiming:
    """Of `ComputeEngine`, cores/compute/compute_engine.py."""

    #: Cycles from the last work until ``idle``; state and index are as late.
    REPORT = 1

    @staticmethod
    def handover(config: NpuConfig, kind: StepKind = StepKind.DENSE) -> int:
        """Cycles from a step's first issue until its weights are taken over, and the next may be gathered.

        A window's step begins ``window_reads`` - 1 cycles later.
        """
        if kind in config.unit_rows:
            return WeightLoaderTiming.rows_taken(config, kind)
        return (TileSequencerTiming.LATENCY + InputBufferTiming.LATENCY + MacArrayTiming.align(config)
                + (config.window_reads - 1 if kind == StepKind.WINDOW else 0))

    @classmethod
    @cache
    def min_step(cls, config: NpuConfig) -> int:
        """Cycles from a step to the next at least. Kept, as every estimate of a tiling asks."""
        most = max(cls.handover(config, kind) for kind in StepKind if not kind.unit or getattr(config, kind.unit))
        return max(most + 1, AccumulatorsTiming.HAZARD)

    @staticmethod
    def sums_latency(config: NpuConfig) -> int:
        """Cycles from the input buffer's data to the sums of the slowest unit that does not lag; others wait for it."""
        return max([MacArrayTiming.latency(config),
                    *(unit.shortest_latency(config) for unit in units_of(config) if not unit.LAGS)])

    @classmethod
    def lag(cls, config: NpuConfig) -> int:
        """Cycles by which sums of units that lag come later than others; they wait for those where these are slower."""
        return max([0, *(unit.shortest_latency(config) - cls.sums_latency(config)
                         for unit in units_of(config) if unit.LAGS)])

    @classmethod
    def distance(cls, config: NpuConfig) -> int:
        """Cycles between the last issue of a COMPUTE and another kind's becoming the running instruction.

        So an earlier word is in the accumulators before a later one is read.
        """
        of_words = max(config.window_reads - 1, cls.lag(config)) + AccumulatorsTiming.HAZARD - 2
        return max(of_words, pool_of(config).distance(config))

    @staticmethod
    def pool_slots(config: NpuConfig) -> int:
        """Windows that may be begun and not taken. They can begin in successive cycles, so further ones are between the
        counters and the FIFO when the pool unit's ``ready`` says that there are so many.
        """
        pool = pool_of(config)
        return pool.FIFO_DEPTH + 1 - (
            TileSequencerTiming.LATENCY + InputBufferTiming.LATENCY + pool.LONGEST + pool.READY)


class EnginePairTiming:
    """Of `EnginePair`, cores/compute/engine_pair.py."""

    #: Cycles from an instruction's coming to the queue's head until an engine can take it: it is looked at.
    LATENCY = 1
