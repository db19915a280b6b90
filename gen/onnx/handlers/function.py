"""Functions of each value by itself, which only a table can be.

What is left to these handlers is to say what is missing: where a node is a function of one quantised tensor, the
importer has its table (`gen.onnx.functions`).
"""

from gen.onnx.context import Context
from gen.onnx.model import MICROSOFT, NodeError
from gen.onnx.registry import Inputs, Registry
from gen.onnx.values import Value

__all__ = ["HANDLERS"]

HANDLERS = Registry()


@HANDLERS.handles(
    "Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Tanh", "Elu", "Selu", "Celu", "Gelu", "Mish", "Softplus",
    "Softsign", "ThresholdedRelu", "Exp", "Log", "Erf", "Sqrt", "Reciprocal", "Pow", "Abs", conditions=(
        "with `--features table`, as a table of 256 values: of a quantised tensor or a part of one, in the layer in "
        "front of it if nothing else reads that, else as a copy. What follows up to a QuantizeLinear goes into the "
        "same table, if it "
        "computes each value from constants and from values of that tensor in its place: a SiLU as Sigmoid and Mul, "
        "x * Clip(x + 3, 0, 6) / 6, comparisons with what Where chooses by them. Constants are single numbers"))
@HANDLERS.handles("Gelu", "FastGelu", "QuickGelu", domains=[MICROSOFT], conditions="by a table, as the others")
def function(context: Context, inputs: Inputs) -> Value:
    real = context.activation(inputs[0])
    tables = context.units.machine.has("table")   # this node has no use for them, so it does not ask
    if tables:
        raise NodeError(f"its constants are not single numbers, so it is not the same function of all values of tensor "
                        f"{real.quantised.tensor}, which is what a table can be", code="unsupported-form")
    raise NodeError(f"{context.node.op} has no layer on the machine, which has no tables of functions",
                    code="needs-unit", unit="table")
