"""Average pools that do not count padding, as pools that do and a factor for each pixel.

The machine divides all windows by one number. What windows at the edge lack is a constant map, which a machine with
products multiplies with.
"""

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from gen.onnx.windows import WindowError, counts, resolve
from gen.quantize.rewriting import Rewriting

__all__ = ["CountedPadding"]


class CountedPadding(Rewriting):
    """Replaces average pools that leave padding out, over two axes of known sizes."""

    OPERATORS = frozenset(("AveragePool",))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        factors, pads = _factors(node, self._shapes.get(node.input[0], []))
        if factors is None:
            return
        counted, factor = self._name(f"{node.name}/counted"), self._index.constant(f"{node.name}/factors", factors)
        made = helper.make_node("AveragePool", node.input, [counted], name=node.name)
        made.attribute.extend([a for a in node.attribute if a.name not in (
            "pads", "auto_pad", "count_include_pad", "ceil_mode")])
        made.attribute.extend([helper.make_attribute("pads", pads), helper.make_attribute("count_include_pad", 1)])
        yield made
        yield helper.make_node("Mul", [counted, factor], node.output, name=counted)


def _factors(node: NodeProto, shape: list[int]) -> tuple[np.ndarray | None, list[int]]:
    """What each window's mean is too small by if padding is counted, float32 (H, W), and the pads; None if all count
    as many.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    attributes["auto_pad"] = attributes.get("auto_pad", b"NOTSET").decode()
    if len(shape) != 4 or not all(shape[2:]):
        return None, []
    try:
        windows = resolve(attributes, shape[2:])
    except WindowError:
        return None, []
    found = counts(attributes, shape[2:], windows)
    kernel = np.tile(attributes["kernel_shape"], 2)
    if found.min() == found.max() or (np.array(windows.pads) >= kernel).any():
        return None, []
    return (np.prod(attributes["kernel_shape"]) / found).astype(np.float32), list(windows.pads)
