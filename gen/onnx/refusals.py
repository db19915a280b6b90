"""Why a value is not what an operator needs."""

from gen.onnx.model import NodeError
from gen.onnx.values import Condition, Host, Padded, Quantised, QuantisedPadded, RawInput, Unquantised, Value

__all__ = ["obstacle", "rearranged_in_front_of", "refusal"]


def obstacle(value: Value | None) -> NodeError:
    """What keeps ``value`` from being a dequantised tensor, said of it."""
    match value:
        case Unquantised():
            return NodeError(f"is the unquantised result of node {value.name}; put QuantizeLinear and DequantizeLinear "
                             "after that", code="not-quantised", maker=value.name)
        case Padded() | QuantisedPadded():
            return NodeError("is padded twice; pad it once, by the sum of both", code="unsupported-form")
        case Condition():
            return NodeError("is a comparison, which only a Where can follow", code="not-a-sign")
        case RawInput() if value.maker:
            return NodeError(f"is the float result of node {value.maker}, which runs on the processor; with "
                             "QuantizeLinear and DequantizeLinear after that, this node can run on the accelerator",
                             code="made-by-processor", maker=value.maker)
        case RawInput() if value.others_quantised:
            return NodeError(f"is the float input {value.name}; put QuantizeLinear and DequantizeLinear after that, as "
                             "they are elsewhere in the model", code="float-input", input=value.name)
        case RawInput():
            return NodeError(f"is the float input {value.name}; this compiler takes quantised models (QDQ or QLinear): "
                             "give --calibrate with samples, or have `quantize` write a quantised one "
                             "(docs/quantization.md)", code="float-model", input=value.name)
        case Host():
            return NodeError("comes from an operator that runs on the processor; only operators that rearrange values "
                             "may follow, up to the outputs", code="after-processor")
        case Quantised():
            return NodeError("is an integer tensor; put a DequantizeLinear after it", code="not-dequantised")
    return NodeError("is a constant, or missing; an activation belongs there", code="not-an-activation")


def rearranged_in_front_of(node: str, tensor: str, moved_by: str) -> NodeError:
    """An error at ``moved_by``, which rearranged a tensor that ``node`` takes only as it is; at that, if it is ""."""
    which = f"its result is a rearrangement of tensor {tensor}, which node {node} cannot take" if moved_by else (
        f"its input is a rearrangement of tensor {tensor}")
    return NodeError(f"{which}; the machine moves only whole pixels, so rearrange only in front of a Gemm, or at "
                     "inputs and outputs of the model", at=moved_by or node, code="rearranged")


def refusal(value: Value | None, what: str) -> NodeError:
    """An error that says why ``value``, ``what`` of a node, is no dequantised tensor."""
    why = obstacle(value)
    return NodeError.of(why, f"{what} {why}")
