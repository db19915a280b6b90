"""What is said of nodes that the processor has, of a model that is quantised here.

Reasons say where a QuantizeLinear and a DequantizeLinear would help a model that is quantised already. A user puts none
into a float model: the quantiser leaves a value float because of a node that reads or makes it, so the advice is about
that node.
"""

from dataclasses import replace

from cores.errors import Reason
from gen.partition.partition import Partition

__all__ = ["of_float_model"]

#: Code of a reason whose advice is a quantisation -> the advice instead, where the field names another node.
_ADVICE = {
    "made-by-processor": ("maker", "with that node on the accelerator this one is, too"),
    "around-processor": ("maker", "with that node on the accelerator this one is, too"),
    "not-quantised": ("reader", "it is float for that node; with that node on the accelerator this one is, too"),
}
#: Of a value that nothing else is said of.
_END = "the end of a float model stays float, so the processor computes it from quantised values"


def of_float_model(cut: Partition) -> Partition:
    """``cut`` with what helps there in its reasons."""
    return replace(cut, host={name: _said(reason) for name, reason in cut.host.items()})


def _said(reason: Reason) -> Reason:
    what, _, advice = reason.partition("; ")
    if reason.code not in _ADVICE or "QuantizeLinear" not in advice and "QuantizeLinear" not in what:
        return reason
    field, better = _ADVICE[reason.code]
    return Reason(f"{what}; {better if reason.fields.get(field) else _END}", code=reason.code, **reason.fields)
