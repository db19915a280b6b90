"""Operators that have no handler, and why: what is said of a node of one, and in the documents.

Such nodes are the processor's, where a model may be cut (`gen.partition`).
"""

from collections.abc import Mapping

from gen.onnx.fused.recurrent import FUNCTIONS, MOST_STEPS

__all__ = ["REFUSALS", "REFUSED"]

#: Operators of ONNX -> what is said after their name, with the way out if there is one.
REFUSALS: Mapping[tuple[str, ...], str] = {
    ("Max", "Min"):
        "has no layer on the machine between quantised values; with a constant Clip is both, and of two tensors "
        "`quantize` makes layers of it in a float model",
    ("Sum", "Mean"):
        "has no layer on the machine between quantised values; `quantize` makes sums of two tensors (Add) of it in a "
        "float model",
    ("Einsum",):
        "has no layer on the machine between quantised values; `quantize` makes a MatMul of that of two tensors in a "
        "float model",
    ("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN", "LpPool",
     "GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
        "has no layer on the machine between quantised values; `quantize` makes layers of it in a float model, where "
        "one with weights follows",
    ("LSTM", "GRU", "RNN"):
        "has no layer on the machine between quantised values; `quantize` takes it apart in a float model, step by "
        f"step (up to {MOST_STEPS} steps, of a number that is known; without `clip`, `input_forget`, `P` and lengths "
        f"of single sequences; its functions are {', '.join(FUNCTIONS)})",
    ("If", "Loop", "Scan"):
        "has no layer on the machine, whose programs have no branches; what is in it is the processor's, too. Where an "
        "integer input without axes decides which branch is taken, --shape INPUT=NUMBER makes it a constant",
    ("ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "LogSoftmax", "Hardmax"):
        "has no layer on the machine, nor a step at the end of its work, where Softmax is the only one",
    ("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"):
        "belongs to a model that is quantised while it runs; with --calibrate it is quantised on samples, as the float "
        "model that it stands for",
    ("GridSample", "AffineGrid", "RoiAlign", "MaxRoiPool", "DeformConv", "MaxUnpool"):
        "has no layer on the machine, which reads pixels at fixed distances",
}

#: Operator -> the same.
REFUSED: Mapping[str, str] = {operator: reason for operators, reason in REFUSALS.items() for operator in operators}
