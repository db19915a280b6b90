"""Widths of the requantisation that the hardware, the golden model and the compiler share.

The rule itself is stated in `sim/golden.py`; docs/numerics.md says why it is what it is.
"""

__all__ = ["MAX_SHIFT", "MIN_SHIFT", "MULTIPLIER_BITS", "PARAMETER_BYTES", "POOL_WIDTH"]

#: Bits of an unsigned requantisation multiplier: with its sign it fills the 18-bit port of a DSP slice.
MULTIPLIER_BITS = 17
#: Right shifts that the hardware can make.
MIN_SHIFT = 12
MAX_SHIFT = 43
#: Bytes of one channel's parameters in memory: int32 bias, then uint32 with the multiplier in bits 0..16 and the shift
#: in bits 24..29.
PARAMETER_BYTES = 8
#: Bits of a window sum in the pool unit: windows of up to 4,096 pixels.
POOL_WIDTH = 20
