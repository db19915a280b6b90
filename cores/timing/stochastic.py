"""Of the stochastic unit."""

from typing import NamedTuple

from ..arch.isa import StepKind
from ..arch.stochastic import Circuit
from ..config import NpuConfig
from .array_unit import ArrayUnitTiming
from .lib import tree_stages

__all__ = [
    "LaneTiming", "StochasticLaneTiming", "StochasticUnitTiming", "StochasticWordsTiming", "StreamSourceTiming",
]

#: Cycles by which uGEMM's weights are compared later than its activations: place, comparison.
_BEHIND = 2


class LaneTiming(NamedTuple):
    """Cycles after the streams' bits in which their other marks are due; 0 where a circuit does not look at them."""

    held: int       # ``first_held``
    select: int     # ``select``
    counted: int    # ``first`` and ``valid``


class StreamSourceTiming:
    """Of `StreamSource`, cores/compute/stochastic/stream_source.py."""

    #: Cycles from ``start`` to the first thresholds: count, numbers.
    LATENCY = 2


class StochasticLaneTiming:
    """Of `StochasticLane`, cores/compute/stochastic/stochastic_lane.py."""

    @staticmethod
    def timing(circuit: Circuit, *, inputs: int, bits: int) -> LaneTiming:
        """When the marks of stream bits are due."""
        fours = tree_stages(inputs // 4)
        match circuit:
            case Circuit.XNOR_MUX:
                return LaneTiming(0, 0, 1 + tree_stages(bits))
            case Circuit.AND_SEP_OR:
                return LaneTiming(0, 1, 2 + tree_stages(bits))
            case Circuit.AND_SEP_COUNTER:
                return LaneTiming(1 + fours, 2 + fours, 3 + fours)
            case Circuit.UGEMM:
                return LaneTiming(2 + fours, 0, 3 + fours)
            case Circuit.AND_ACC:
                return LaneTiming(2, 0, 3 + fours)
            case _:
                return LaneTiming(0, 0, 1 + tree_stages(inputs * bits // 2))


class StochasticUnitTiming:
    """Of `StochasticUnit`, cores/compute/stochastic/stochastic_unit.py."""

    @classmethod
    def latency(cls, circuit: Circuit, *, inputs: int, bits: int, made: int) -> int:
        """Cycles from ``start`` to ``valid`` of a word of ``made`` bits."""
        return made // bits - 1 + cls.drain(circuit, inputs=inputs, bits=bits)

    @classmethod
    def drain(cls, circuit: Circuit, *, inputs: int, bits: int) -> int:
        """The same of a word of a single cycle: of a longer one, from its last cycle on."""
        return cls._before_lanes(circuit) + StochasticLaneTiming.timing(circuit, inputs=inputs, bits=bits).counted + 3

    @staticmethod
    def weights_taken(circuit: Circuit) -> int:
        """Cycles after ``load`` in which the weights are taken over."""
        return _BEHIND if circuit == Circuit.UGEMM else 0

    @staticmethod
    def _before_lanes(circuit: Circuit) -> int:
        """Cycles from ``start`` to the first stream bits at the lanes, less one."""
        return StreamSourceTiming.LATENCY + StochasticUnitTiming.weights_taken(circuit)


class StochasticWordsTiming(ArrayUnitTiming):
    """Of `StochasticWords`, cores/compute/stochastic/stochastic_words.py."""

    HARDWARE = "cores.compute.stochastic.stochastic_words:StochasticWords"
    KIND = StepKind.STOCHASTIC
    LAGS = True

    @classmethod
    def rows_copied(cls, config: NpuConfig) -> int:
        return StochasticUnitTiming.weights_taken(config.circuit)

    @classmethod
    def shortest_latency(cls, config: NpuConfig) -> int:
        return StochasticUnitTiming.drain(config.circuit, inputs=config.ic_lanes, bits=config.stochastic_bits) - 1
