"""Walks: the order in which an operation goes through its operands.

A walk is an array of size_t in C: the number of axes, their sizes, and for each operand the steps from element to
element along them, in elements; a step back is one that wraps around. There is at least one axis, and the last one is
the innermost. Axes along which all operands go on as they would along one are one.
"""

from collections.abc import Sequence

from gen.c.helper import Helper, instance
from gen.c.value import Dim, product, strides_of

__all__ = ["ROWS", "broadcast", "contiguous", "walk"]

_ROWS = instance("rows", """
/* Rows of a walk: of all axes but the innermost. */
static size_t $name(const size_t *walk)
{
    size_t rows = 1u;
    for (size_t axis = 1u; axis < walk[0]; ++axis)
        rows *= walk[axis];
    return rows;
}
""")
_OFFSET = instance("offset", """
/* Where a row of a walk begins in an operand. */
static size_t $name(const size_t *walk, size_t operand, size_t row)
{
    const size_t *const steps = walk + 1u + walk[0] * (operand + 1u);
    size_t offset = 0u;
    for (size_t axis = walk[0] - 1u; axis-- > 0u;) {
        offset += row % walk[1u + axis] * steps[axis];
        row /= walk[1u + axis];
    }
    return offset;
}
""")
_STEP = instance("step", """
/* From element to element of a row. */
static size_t $name(const size_t *walk, size_t operand)
{
    return walk[walk[0] * (operand + 2u)];
}
""")
#: What every helper needs that goes along a walk.
ROWS: tuple[Helper, ...] = (_ROWS, _OFFSET, _STEP)


def broadcast(shape: Sequence[Dim], to: Sequence[Dim]) -> list[Dim]:
    """The strides of a tensor along the axes of the shape that it is broadcast to; 0 where it has one element."""
    own = [*[1] * (len(to) - len(shape)), *shape]
    steps = [*[0] * (len(to) - len(shape)), *strides_of(shape)]
    return [0 if size == 1 and size != other else step for size, other, step in zip(own, to, steps, strict=True)]


def contiguous(shape: Sequence[Dim], steps: Sequence[Dim]) -> bool:
    """Whether elements lie after each other, without steps over any."""
    return all(size == 1 or step == own for size, step, own in zip(shape, steps, strides_of(shape), strict=True))


def walk(shape: Sequence[Dim], *operands: Sequence[Dim]) -> list[Dim]:
    """Over elements of a shape, of operands with these strides."""
    axes: list[tuple[Dim, list[Dim]]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        steps = [operand[axis] for operand in operands]
        if axes:
            outer, before = axes[-1]
            if all(_times(step, size) == last for step, last in zip(steps, before, strict=True)):
                axes[-1] = product([outer, size]), steps
                continue
        axes.append((size, steps))
    axes = axes or [(1, [0] * len(operands))]
    return [len(axes), *[size for size, _ in axes], *[steps[n] for n in range(len(operands)) for _, steps in axes]]


def _times(step: Dim, size: Dim) -> Dim:
    if isinstance(step, int) and isinstance(size, int):
        return step * size
    return product([step, size]) if step != 0 else 0
