"""Operators that stand for several others: what each is made of, a family a file.

The pass `gen.onnx.passes.spread_fused` puts those in their place; what a form does not support says why. What would
have no layers unless each of those is quantised is taken apart by the quantiser alone: a processor computes it whole.
"""

from gen.onnx.fused import attention, nbits, qonnx, recurrent, rotary, sums
from gen.onnx.fused.spread import Fused, LaterError, Spreads, UnsupportedError

__all__ = ["QUANTISED_SPREADS", "SPREADS", "Fused", "LaterError", "UnsupportedError"]

#: (domain, operator) -> what makes its nodes.
SPREADS: Spreads = {**attention.SPREADS, **nbits.SPREADS, **qonnx.SPREADS, **rotary.SPREADS, **sums.SPREADS}
#: The same for a float model that is to be quantised.
QUANTISED_SPREADS: Spreads = {**SPREADS, **nbits.FLOAT_SPREADS, **recurrent.SPREADS}
