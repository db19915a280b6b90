"""Operations whose results are as large as the data make them."""

import numpy as np

from gen.c.context import Context
from gen.c.helper import instance
from gen.c.registry import operator
from gen.c.text import c_type, literal
from gen.c.value import Value, extent, most, product
from gen.onnx.model import Node

__all__: list[str] = []

_IOU = instance("overlap", """
/* Intersection over union of two boxes: corners, in any order, or centre and size. Most are apart on an axis. */
static float $name(const float *a, const float *b, int centred)
{
    float areas[2] = {1.0f, 1.0f}, common = 1.0f;
    for (size_t axis = 0u; axis < 2u; ++axis) {
        const float *const both[2] = {a + axis, b + axis};
        float low[2], high[2];
        for (size_t n = 0u; n < 2u; ++n) {
            const float first = both[n][0], second = both[n][2];
            low[n] = centred ? first - second / 2.0f : first < second ? first : second;
            high[n] = centred ? first + second / 2.0f : first < second ? second : first;
        }
        const float shared = (high[0] < high[1] ? high[0] : high[1]) - (low[0] < low[1] ? low[1] : low[0]);
        if (!(shared > 0.0f))
            return 0.0f;
        common *= shared;
        for (size_t n = 0u; n < 2u; ++n)
            areas[n] *= high[n] - low[n];
    }
    if (areas[0] <= 0.0f || areas[1] <= 0.0f)
        return 0.0f;
    return common / (areas[0] + areas[1] - common);
}
""")
_SUPPRESS = """
/* Of each class the boxes with the highest scores that overlap none of those before: rows of sample, class, box. */
static size_t $name(size_t samples, size_t classes, size_t boxes, int centred, int64_t most, float overlap, int limited,
                    float least, const float *box, const float *score, int32_t *order, int64_t *y)
{
    size_t rows = 0u;
    for (size_t n = 0u; n < samples; ++n)
        for (size_t k = 0u; k < classes; ++k) {
            const float *const own = score + (n * classes + k) * boxes, *const places = box + n * boxes * 4u;
            int64_t *const first = y + rows * 3u;
            size_t count = 0u, found = 0u;
            for (size_t i = 0u; i < boxes; ++i)
                if (!limited || own[i] > least)
                    order[count++] = (int32_t)i;
            /* A heap, the best on top; of equal ones that of the lower number. */
            for (size_t start = count / 2u; start-- > 0u;)
                op_sift(own, order, start, count);
            for (; count > 0u && (int64_t)found < most; --count) {
                const size_t best = (size_t)order[0];
                int kept = 1;
                order[0] = order[count - 1u];
                op_sift(own, order, 0u, count - 1u);
                for (size_t j = 0u; j < found && kept; ++j) {
                    const float *const other = places + (size_t)first[j * 3u + 2u] * 4u;
                    kept = !(op_overlap(places + best * 4u, other, centred) > overlap);
                }
                if (kept) {
                    first[found * 3u] = (int64_t)n;
                    first[found * 3u + 1u] = (int64_t)k;
                    first[found * 3u + 2u] = (int64_t)best;
                    ++found;
                }
            }
            rows += found;
        }
    return rows;
}
"""
_SIFT = instance("sift", """
/* Whether what is at `at` has better ones below: it goes down until none is. */
static void $name(const float *score, int32_t *order, size_t at, size_t count)
{
    for (size_t child = 2u * at + 1u; child < count; child = 2u * at + 1u) {
        const size_t right = child + 1u;
        const int32_t moved = order[at];
        if (right < count && (score[order[right]] > score[order[child]]
                              || (!(score[order[right]] < score[order[child]]) && order[right] < order[child])))
            child = right;
        if (score[order[child]] < score[moved] || (!(score[order[child]] > score[moved]) && order[child] > moved))
            return;
        order[at] = order[child];
        order[child] = moved;
        at = child;
    }
}
""")


@operator("NonMaxSuppression")
def suppress(node: Node, c: Context) -> None:
    boxes, scores = c.input(0), c.input(1)
    samples, classes, count = c.known(scores)
    limits = [c.constant(index) for index in (2, 3, 4)]
    wanted = 0 if limits[0] is None else int(limits[0].item())
    rows = samples * classes * min(max(wanted, 0), count)
    overlap, least = (0.0 if array is None else array.item() for array in limits[1:])
    order, result = c.new(np.int32, (count,)), c.new(np.int64, (max(rows, 1), 3))
    single = np.dtype(np.float32)
    numbers = [literal(np.float32(number), single) for number in (overlap, least)]
    found = c.size_of(
        instance("suppress", _SUPPRESS, (_IOU, _SIFT)), samples, classes, count,
        str(int(node.attributes.get("center_point_box", 0))), str(min(max(wanted, 0), count)),
        numbers[0], str(int(limits[2] is not None)), numbers[1], boxes, scores, order, result, maximum=rows)
    c.result(Value(result.dtype, (found, 3), result.storage))


_NONZERO = """
/* The coordinates of what is not zero: all of the first axis, then all of the second, and so on. */
static size_t $name(size_t count, size_t rank, const size_t *sizes, const $T *x, int64_t *y)
{
    size_t found = 0u, row = 0u;
    for (size_t i = 0u; i < count; ++i)
        found += x[i] != $zero ? 1u : 0u;
    for (size_t i = 0u; i < count; ++i)
        if (x[i] != $zero) {
            size_t rest = i;
            for (size_t axis = rank; axis-- > 0u; rest /= sizes[axis])
                y[axis * found + row] = (int64_t)(rest % sizes[axis]);
            ++row;
        }
    return found;
}
"""
_CHOSEN = """
/* The slices for which there is a condition that is true. */
static size_t $name(size_t outer, size_t size, size_t inner, size_t conditions, const uint8_t *condition, const $T *x,
                    $T *y)
{
    size_t found = 0u;
    for (size_t i = 0u; i < conditions && i < size; ++i)
        found += condition[i] ? 1u : 0u;
    for (size_t o = 0u; o < outer; ++o, x += size * inner)
        for (size_t i = 0u; i < conditions && i < size; ++i)
            if (condition[i]) {
                memcpy(y, x + i * inner, inner * sizeof *y);
                y += inner;
            }
    return found;
}
"""


@operator("NonZero")
def nonzero(node: Node, c: Context) -> None:
    value = c.input(0)
    kind = c_type(value.dtype)
    zero = {"float": "0.0f", "double": "0.0"}.get(kind.name, "0")
    shape = value.shape or (1,)
    result = c.new(np.int64, (len(shape), extent(shape)))
    found = c.size_of(instance(f"nonzero_{kind.suffix}", _NONZERO, T=kind.name, zero=zero), product(shape), len(shape),
                      list(shape), value, result, maximum=extent(shape))
    c.result(Value(result.dtype, (len(shape), found), result.storage))


@operator("Compress")
def compress(node: Node, c: Context) -> None:
    value, condition = c.input(0), c.input(1)
    axis = node.attributes.get("axis")
    if axis is None:
        value, axis = c.alias(value, (product(value.shape),)), 0
    axis %= value.rank
    kind = c_type(value.dtype)
    maximum = min(most(value.shape[axis]), most(condition.shape[0]))
    shape = [maximum if at == axis else dim for at, dim in enumerate(value.shape)]
    result = c.new(value.dtype, shape)
    found = c.size_of(instance(f"compress_{kind.suffix}", _CHOSEN, T=kind.name), product(value.shape[:axis]),
                      value.shape[axis], product(value.shape[axis + 1:]), condition.shape[0], condition, value, result,
                      maximum=maximum)
    c.result(Value(result.dtype, tuple(found if at == axis else dim for at, dim in enumerate(shape)), result.storage))


_ONE_HOT = """
static void $name(size_t outer, size_t depth, size_t inner, const $I *index, const $T *values, $T *y)
{
    for (size_t o = 0u; o < outer; ++o, index += inner)
        for (size_t d = 0u; d < depth; ++d)
            for (size_t i = 0u; i < inner; ++i) {
                const int64_t place = (int64_t)index[i] < 0 ? (int64_t)index[i] + (int64_t)depth : (int64_t)index[i];
                *y++ = values[place == (int64_t)d ? 1 : 0];
            }
}
"""


@operator("OneHot")
def one_hot(node: Node, c: Context) -> None:
    index, depth, values = c.input(0), c.constant(1), c.input(2)
    assert depth is not None
    axis = int(node.attributes.get("axis", -1)) % (index.rank + 1)
    kind, indices = c_type(values.dtype), c_type(index.dtype)
    result = c.new(values.dtype, (*index.shape[:axis], int(depth.item()), *index.shape[axis:]))
    c.call(instance(f"one_hot_{indices.suffix}_{kind.suffix}", _ONE_HOT, T=kind.name, I=indices.name),
           product(index.shape[:axis]), int(depth.item()), product(index.shape[axis:]), index, values, result)
    c.result(result)
