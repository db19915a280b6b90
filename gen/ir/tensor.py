"""What layers read and make, and the parameters by which sums become values of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Part", "Requantize", "Tensor", "broadcasts", "repeated_by"]


@dataclass(frozen=True)
class Part:
    """As many channels of tensor ``whole`` as there are, from ``first`` on."""

    whole: str
    first: int


@dataclass(frozen=True)
class Tensor:
    """An int8 feature map.

    ``onnx_name`` is the quantised ONNX tensor it stands for, ``onnx_unsigned`` whether that is uint8. ``signs``: every
    value is -1 or +1, as `gen.ir.verify` proves of the layer that writes it; the ONNX tensor is then float. With
    ``part`` its values are those of channels of another tensor: what is written to one of both can be read from the
    other. What they stand for, scale and zero point, is each one's own. With ``value``, int8 of ``shape``, it is a
    constant: no layer writes it, and programs have it as data that nothing overwrites. ``value_off``: how far that is
    from the model's numbers at most, in steps. ``gaps``: channels whose values mean nothing: no layer has
    weights for them, and none may make them.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    onnx_name: str = ""
    onnx_unsigned: bool = False
    signs: bool = False
    part: Part | None = None
    value: np.ndarray | None = field(default=None, compare=False, repr=False)
    value_off: float = 0.0
    gaps: tuple[range, ...] = ()


@dataclass(frozen=True, eq=False)
class Requantize:
    """First stage of a store, per channel; see `sim.golden.requantize`. ``bias`` has the input's zero point in it.

    Clip bounds are those of int8, in front of an operation that is `wide` of FIRST_BITS. ``bias_off``: how far biases
    are from the model's at most, in units of the sums, where that is said to explain a difference.
    """

    bias: np.ndarray        # (C,) int64
    multiplier: np.ndarray  # (C,) int64
    shift: np.ndarray       # (C,) int64
    zero_point: int
    low: int
    high: int
    bias_off: float = 0.0

    @property
    def scale(self) -> np.ndarray:
        """What each channel is multiplied by, float64 (C,)."""
        return np.asarray(self.multiplier / np.exp2(self.shift))

    @property
    def only_clips(self) -> bool:
        """Whether values of a single one of the input stay what they are, but for the bounds."""
        return (bool((self.multiplier == np.int64(1) << self.shift).all())
                and bool((self.bias == -self.zero_point).all()))

    @property
    def is_uniform(self) -> bool:
        """Whether it does the same with all channels."""
        return not any(np.ptp(numbers) for numbers in (self.bias, self.multiplier, self.shift))

    def clipped(self, low: int, high: int) -> tuple[int, int]:
        """Clip bounds ``low`` and ``high`` with those of this stage after them."""
        low, high = np.clip([low, high], self.low, self.high).tolist()
        return low, high


def broadcasts(other: Sequence[int], result: Sequence[int]) -> bool:
    """Whether what is added to a result, or multiplied with it, is one number for all pixels of a channel, by their
    shapes: channels, or blocks of them, rows, columns.
    """
    return tuple(other[1:]) != tuple(result[1:])


def repeated_by(middle: Tensor, target: Tensor) -> tuple[int, int]:
    """How often each row and each column of a result inside a layer is in the layer's output."""
    return target.shape[1] // middle.shape[1], target.shape[2] // middle.shape[2]
