"""Operators that stand for several others: what each is made of, a family a file.

The pass `gen.onnx.passes.spread_fused` puts those in their place; what a form does not support says why.
"""

from gen.onnx.fused import attention, sums
from gen.onnx.fused.spread import Fused, LaterError, Spreads, UnsupportedError

__all__ = ["SPREADS", "Fused", "LaterError", "UnsupportedError"]

#: (domain, operator) -> what makes its nodes.
SPREADS: Spreads = {**attention.SPREADS, **sums.SPREADS}
