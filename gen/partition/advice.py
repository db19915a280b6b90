"""What is said of nodes that the processor has, of a model that is quantised here.

Of a model that others have quantised the reasons say where a QuantizeLinear and a DequantizeLinear would help. Nobody
puts those into a float model: the quantiser leaves a value float for what reads or makes it, which is what to mend.
"""

from dataclasses import replace

from cores.errors import Reason
from gen.partition.partition import Partition

__all__ = ["of_float_model"]

#: Code of a reason whose advice is a quantisation -> the advice instead, where the field names another node.
_ADVICE = {
    "made-by-processor": ("maker", "what brings that node over brings this one"),
    "around-processor": ("maker", "what brings that node over brings this one"),
    "not-quantised": ("reader", "it is float for that node, and what brings it over brings this one"),
}
#: Of a value that nothing else is said of.
_END = "the quantiser leaves the end of a model float, which the processor makes of what is quantised"


def of_float_model(cut: Partition) -> Partition:
    """``cut`` with what helps there in its reasons."""
    return replace(cut, host={name: _said(reason) for name, reason in cut.host.items()})


def _said(reason: Reason) -> Reason:
    what, _, advice = reason.partition("; ")
    if reason.code not in _ADVICE or "QuantizeLinear" not in advice and "QuantizeLinear" not in what:
        return reason
    field, better = _ADVICE[reason.code]
    return Reason(f"{what}; {better if reason.fields.get(field) else _END}", code=reason.code, **reason.fields)
