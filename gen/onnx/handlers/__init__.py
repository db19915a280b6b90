"""What each operator becomes: a handler for every (domain, operator), one small family of operators a file.

A handler gets the node with the graph so far (`gen.onnx.context.Context`) and the values of its inputs, and gives the
value of its output. Files may use each other's functions; none knows the importer.
"""

from gen.onnx.handlers import (
    activation,
    add,
    affine,
    concat,
    conv,
    conv_transpose,
    function,
    fused,
    layout,
    normalisation,
    pad,
    pool,
    product,
    qlinear,
    quantisation,
    reduce,
    resize,
    sign,
    softmax,
)
from gen.onnx.registry import Registry

__all__ = ["HANDLERS"]

HANDLERS = Registry()
for family in (
        quantisation, conv, conv_transpose, product, pool, reduce, resize, add, affine, activation, function, pad,
        concat, layout, normalisation, softmax, sign, qlinear, fused):
    HANDLERS.include(family.HANDLERS)
