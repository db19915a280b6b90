"""What can be asked of the quantiser, and how it refuses."""

from dataclasses import dataclass
from typing import Literal, get_args

from cores.errors import NpugenError
from sim.stochastic.streams import Streams

__all__ = ["METHODS", "SINGLE_METHODS", "Method", "QuantizeError", "QuantizeOptions"]

Method = Literal["auto", "minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = get_args(Method)
#: Those that say by themselves what a range is.
SINGLE_METHODS = tuple(method for method in METHODS if method != "auto")


class QuantizeError(NpugenError, ValueError):
    """A model that cannot be quantised, or not on these samples: one line that names the node and what to do."""


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """How a model is quantised: activations to int8 with a scale each, weights to int8, biases to int32.

    Raises ValueError for a method that there is not, a percentile out of range, streams of a length that there is not,
    or without ``symmetric``.
    """

    #: What the range of an activation is (`gen.quantize.ranges`); auto: of each the method that costs outputs least,
    #: with biases corrected and channels equalised where they gain (`gen.quantize.auto`).
    method: Method = "auto"
    #: Of the method of that name: share of the values within the range, in percent.
    percentile: float = 99.99
    #: A scale for each output channel of the weights, or one for the tensor.
    per_channel: bool = True
    #: Activations with zero point 0 and equal ranges on both sides.
    symmetric: bool = False
    #: Whether the mean error of each layer's output goes into its bias (`gen.quantize.bias`).
    bias_correction: bool = False
    #: Bits of the streams that layers will be computed by, for which ranges of the method mse and biases are made then
    #: (`gen.quantize.streams`); None: exact.
    streams: int | None = None
    #: Whether channels are made equally large first (`gen.quantize.equalize`).
    equalize: bool = False
    #: Names of nodes that stay float.
    keep_float: frozenset[str] = frozenset()
    #: Names of nodes whose weights get four bits, or "all", or "linear" (`gen.quantize.int4`).
    int4: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if not 50 < self.percentile <= 100:
            raise ValueError(f"percentile must be above 50 and at most 100, not {self.percentile!r}")
        if self.streams is not None:
            Streams(self.streams)
            if not self.symmetric:
                raise ValueError("streams must be symmetric: they stand for numbers around 0")
