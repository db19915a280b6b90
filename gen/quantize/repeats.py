"""Operands that have one number for each row, or for each column, of a map, as maps whose columns or rows are alike.

The machine multiplies and adds tensors of one shape, and repeats rows and columns as it stores them: gates of pooled
rows and columns, as coordinate attention has them, and what is subtracted from each row.
"""

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from gen.quantize.rewriting import Rewriting

__all__ = ["RepeatedOperands"]

#: Columns that one layer makes of one.
_MOST_COLUMNS = 32


class RepeatedOperands(Rewriting):
    """Repeats such operands by Resize nodes in front of the operator."""

    OPERATORS = frozenset(("Mul", "Add", "Sub"))

    def layers(self, node: NodeProto) -> Iterator[NodeProto]:
        factors = self._factors(node)
        for place, (down, across) in enumerate(factors):
            for rows, columns in self._steps(down, across):
                scales = self._constant(node.name, np.array([1, 1, rows, columns], np.float32))
                result = self._name(f"{node.name}/repeated{place}")
                yield helper.make_node("Resize", [node.input[place], "", scales], [result], name=result,
                                       mode="nearest", coordinate_transformation_mode="asymmetric",
                                       nearest_mode="floor")
                node.input[place] = result
        if factors:
            yield node

    def _factors(self, node: NodeProto) -> list[tuple[int, int]]:
        """How often the rows and columns of each operand have to be repeated; [] where the machine needs that of none,
        or where it would not help.
        """
        shapes = [self._shapes.get(name, []) for name in node.input]
        if any(name in self._constants for name in node.input) or any(
                len(shape) != 4 or not all(shape[1:]) for shape in shapes) or shapes[0][0] != shapes[1][0]:
            return []
        _, channels, *size = np.max(shapes, axis=0).tolist()
        factors = []
        for shape in shapes:
            of_vector = shape[2:] == [1, 1] and max(size) > 1
            if shape[1] != channels:
                return []
            factors.append((1, 1) if of_vector else (size[0] // shape[2], size[1] // shape[3]))
        found = [shape for shape, each in zip(shapes, factors, strict=True) if each != (1, 1)]
        helps = found and all(self._steps(*each) for each in factors if each != (1, 1))
        return factors if helps and all(1 in shape[2:] for shape in found) else []

    @staticmethod
    def _steps(down: int, across: int) -> list[tuple[int, int]]:
        """(rows, columns) of one Resize after the other; [] where they are too many."""
        if (down, across) == (1, 1):
            return []
        if across <= _MOST_COLUMNS:
            return [(down, across)]
        first = next((n for n in range(_MOST_COLUMNS, 1, -1) if across % n == 0 and across // n <= _MOST_COLUMNS), 0)
        return [(down, first), (1, across // first)] if first else []
