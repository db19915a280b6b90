"""What can be asked of the quantiser, and how it refuses."""

from dataclasses import dataclass
from typing import Literal, get_args

from cores.errors import NpugenError

__all__ = ["METHODS", "Method", "QuantizeError", "QuantizeOptions"]

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = get_args(Method)


class QuantizeError(NpugenError, ValueError):
    """A model that cannot be quantised, or not on these samples: one line that names the node and what to do."""


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """How a model is quantised: activations to int8 with a scale each, weights to int8, biases to int32.

    Raises ValueError for a method that there is not, or a percentile out of range.
    """

    #: What the range of an activation is (`gen.quantize.ranges`).
    method: Method = "mse"
    #: Of the method of that name: share of the values within the range, in percent.
    percentile: float = 99.99
    #: A scale for each output channel of the weights, or one for the tensor.
    per_channel: bool = True
    #: Activations with zero point 0 and equal ranges on both sides.
    symmetric: bool = False
    #: Whether the mean error of each layer's output goes into its bias (`gen.quantize.bias`).
    bias_correction: bool = False
    #: Whether channels are made equally large first (`gen.quantize.equalize`).
    equalize: bool = False
    #: Names of nodes that stay float.
    keep_float: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if not 50 < self.percentile <= 100:
            raise ValueError(f"percentile must be above 50 and at most 100, not {self.percentile!r}")
