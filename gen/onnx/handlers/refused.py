"""Operators that have no handler, and why: what is said of a node of one, and in the documents."""

from collections.abc import Mapping

__all__ = ["REFUSALS", "REFUSED"]

#: Operators of ONNX -> what is said behind their name, with the way out.
REFUSALS: Mapping[tuple[str, ...], str] = {
    ("Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Tanh", "Elu", "Selu", "Celu", "Gelu", "Mish", "Softplus",
     "Softsign", "Exp", "Log", "Erf", "Sqrt", "Reciprocal", "Pow", "Abs"):
        "has no layer on the machine, which has no table of a function; train with Relu, Clip or LeakyRelu in its "
        "place, or end the model in front of it",
    ("Max", "Min", "Sum", "Mean"):
        "has no layer on the machine; of two tensors it computes the sum (Add), with a constant Clip is both of "
        "Max and Min",
    ("InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization",
     "MeanVarianceNormalization", "LRN"):
        "has no layer on the machine, as its scale depends on the values; train with BatchNormalization in its place",
    ("LSTM", "GRU", "RNN", "Attention"):
        "has no layer on the machine, which multiplies activations by constants and keeps no state; end the model in "
        "front of it",
    ("If", "Loop", "Scan"):
        "has no layer on the machine, whose programs have no branches; export the model without control flow",
    ("ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "LogSoftmax", "Hardmax"):
        "has no layer on the machine, and the processor's part has Softmax alone; end the model in front of it",
    ("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"):
        "belongs to a model that is quantised while it runs; quantise it statically, by calibration samples",
    ("GridSample", "AffineGrid", "RoiAlign", "MaxRoiPool", "DeformConv", "MaxUnpool"):
        "has no layer on the machine, which reads pixels at fixed distances; end the model in front of it",
}

#: Operator -> the same.
REFUSED: Mapping[str, str] = {operator: reason for operators, reason in REFUSALS.items() for operator in operators}
