"""Models of one node or a few, for the operators of generated C: shapes, types and attributes at random."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.gen.c.compiled import reference

Rng = np.random.Generator
Array = np.ndarray
#: A model and its inputs.
Made = tuple[onnx.ModelProto, dict[str, Array]]


def one(op: str, arrays: Sequence[Array | None], *, given: int = 1, opset: int = 17, outputs: int = 1, domain: str = "",
        **attributes: Any) -> Made:
    """A node: the first ``given`` arrays are inputs of the model, the others constants."""
    named = {f"x{n}": array for n, array in enumerate(arrays) if array is not None}
    node = helper.make_node(op, ["" if array is None else f"x{n}" for n, array in enumerate(arrays)],
                            [f"y{n}" for n in range(outputs)], name="node", domain=domain, **attributes)
    return several([node], named, [f"x{n}" for n in range(given)], [f"y{n}" for n in range(outputs)], opset=opset)


def several(nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, Array], given: Sequence[str], outputs: Sequence[str],
            *, opset: int = 17) -> Made:
    for number, node in enumerate(nodes):
        node.name = node.name or f"node{number}"
    graph = helper.make_graph(
        list(nodes), "case",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape)
         for name in given],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items() if name not in given])
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    model = onnx.shape_inference.infer_shapes(model)
    inputs = {name: arrays[name] for name in given}
    if any(not value.type.tensor_type.elem_type for value in model.graph.output):   # onnx does not know these operators
        for value, array in zip(model.graph.output, reference(model, inputs), strict=True):
            value.CopyFrom(helper.make_tensor_value_info(
                value.name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    return model, inputs


def floats(rng: Rng, *shape: int) -> Array:
    return rng.normal(0, 2, shape).astype(np.float32)


def integers(rng: Rng, dtype: type, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def shape_of(rng: Rng, rank: int | None = None) -> tuple[int, ...]:
    return tuple(rng.integers(1, 6, int(rng.integers(1, 5)) if rank is None else rank).tolist())


def part_of(rng: Rng, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that is broadcast to that one."""
    kept = tuple(size if rng.random() < 0.6 else 1 for size in shape)
    return kept[int(rng.integers(0, len(kept))):]


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


_FUNCTIONS = ("Acosh Asinh Atan Cos Sin Tanh Exp Sqrt Erf Ceil Floor Round Reciprocal Sigmoid Softplus Softsign "
              "HardSwish Mish LeakyRelu Elu Celu Selu HardSigmoid ThresholdedRelu Relu Abs Neg Sign").split()


def functions(rng: Rng) -> Iterator[tuple[str, Made]]:
    for op in _FUNCTIONS:
        x = floats(rng, *shape_of(rng))
        x = {"Sqrt": np.abs(x), "Acosh": 1 + np.abs(x)}.get(op, x)
        yield op, one(op, [x], opset=18)
    yield "Log", one("Log", [np.abs(floats(rng, 7)) + np.float32(0.1)])
    yield "Gelu", one("Gelu", [floats(rng, 3, 9)], opset=20)
    yield "Gelu_tanh", one("Gelu", [floats(rng, 3, 9)], opset=20, approximate="tanh")
    yield "QuickGelu", one("QuickGelu", [floats(rng, 3, 9)], domain="com.microsoft")
    yield "FastGelu", one("FastGelu", [floats(rng, 3, 9), floats(rng, 9)], domain="com.microsoft")
    yield "Clip", one("Clip", [floats(rng, 40), np.float32(-1), np.float32(2)])
    yield "Clip6", one("Clip", [floats(rng, 40)], opset=10, min=0.0, max=6.0)
    yield "Clip8", one("Clip", [integers(rng, np.int8, 40), np.int8(-7), None])
    yield "Round_halves", one("Round", [np.arange(-4, 4, 0.5, np.float32)])


def pairs(rng: Rng) -> Iterator[tuple[str, Made]]:
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Min", "Max", "Equal", "Less", "GreaterOrEqual"):
        for number in range(3):
            shape = shape_of(rng, 4)
            x, y = floats(rng, *shape), floats(rng, *part_of(rng, shape))
            x = np.abs(x) if op == "Pow" else x
            swapped = op not in ("PRelu", "Pow") and rng.random() < 0.5
            yield f"{op}{number}", one(op, [y, x] if swapped else [x, y], given=2)
    for dtype in (np.int32, np.int64):
        for op in ("Add", "Sub", "Mul", "Div", "Mod"):
            x, y = integers(rng, dtype, 5, 7), integers(rng, dtype, 7)
            y = np.where(y == 0, 3, y).astype(dtype)
            yield f"{op}_{dtype.__name__}", one(op, [x, y >> (8 * y.itemsize - 7) | 1], given=2)
    yield "Where", one("Where", [rng.random((4, 1, 3)) < 0.5, floats(rng, 2, 3), floats(rng, 4, 2, 1)], given=3)
    yield "And", one("And", [rng.random((4, 3)) < 0.5, rng.random(3) < 0.5], given=2)
    yield "Not", one("Not", [rng.random((4, 3)) < 0.5])
    yield "Sum", one("Sum", [floats(rng, 4, 3), floats(rng, 3), floats(rng, 4, 1)], given=3)
    yield "Square", one("Pow", [floats(rng, 4, 3), np.float32(2)])


def casts(rng: Rng) -> Iterator[tuple[str, Made]]:
    for source in (np.float32, np.int8, np.uint8, np.int32, np.int64):
        for target in (np.float32, np.int8, np.int32, np.int64, np.bool_):
            x = floats(rng, 20) if source is np.float32 else integers(rng, source, 20)
            yield f"{source.__name__}_{target.__name__}", one("Cast", [x], to=int(helper.np_dtype_to_tensor_dtype(
                np.dtype(target))))


def movement(rng: Rng) -> Iterator[tuple[str, Made]]:
    for number in range(6):
        shape = shape_of(rng, 4)
        x = floats(rng, *shape) if number % 2 else integers(rng, np.int8, *shape)
        yield f"Transpose{number}", one("Transpose", [x], perm=rng.permutation(4).tolist())
        starts, ends = rng.integers(-6, 6, 4), rng.integers(-6, 7, 4)
        steps = rng.choice([-2, -1, 1, 2], 4)
        kept = [len(range(*slice(int(a), int(b), int(s)).indices(n))) for a, b, s, n in
                zip(starts, ends, steps, shape, strict=True)]
        starts, ends = (np.where(np.array(kept) > 0, one_, other) for one_, other in
                        ((starts, np.where(steps > 0, 0, 99)), (ends, np.where(steps > 0, 99, -99))))
        yield f"Slice{number}", one("Slice", [x, starts, ends, i64(0, 1, 2, 3), steps])
        yield f"Pad{number}", one("Pad", [x, rng.integers(0, 3, 8), x.dtype.type(3)])
    x = floats(rng, 2, 5, 4, 3)
    yield "Pad_cut", one("Pad", [x, i64(0, -1, 2, 0, 0, -2, -1, 1)])
    for mode in ("reflect", "edge"):
        yield f"Pad_{mode}", one("Pad", [x, i64(0, 2, 1, 0, 0, 1, 3, 2)], mode=mode)
    yield "Split", one("Split", [x, i64(2, 2, 1)], outputs=3, axis=1)
    yield "Split_even", one("Split", [x], outputs=2, axis=2)
    yield "Concat", one("Concat", [x, floats(rng, 2, 1, 4, 3), floats(rng, 2, 2, 4, 3)], given=2, axis=1)
    yield "Expand", one("Expand", [floats(rng, 5, 1, 3), i64(2, 1, 4, 3)])
    yield "Tile", one("Tile", [floats(rng, 2, 3), i64(3, 2)])
    yield "Gather", one("Gather", [x, np.array([[0, -1], [2, 4]])], axis=1)
    yield "Gather_one", one("Gather", [x, np.array(-2)], axis=1)
    yield "Gather_computed", one("Gather", [x, integers(rng, np.int32, 6) % 5], given=2, axis=1)
    yield "GatherElements", one("GatherElements", [x, rng.integers(-4, 4, (2, 5, 2, 3))], given=2, axis=2)
    yield "GatherND", one("GatherND", [x, rng.integers(0, 2, (3, 2, 2))], given=2)
    yield "ScatterND", one("ScatterND", [x, i64(1, 3, 0, 1).reshape(2, 2), floats(rng, 2, 4, 3)], given=1)
    yield "ScatterElements", one("ScatterElements", [x, np.arange(24).reshape(2, 1, 4, 3) % 5,
                                                     floats(rng, 2, 1, 4, 3)], axis=1)
    for mode in ("DCR", "CRD"):
        yield f"DepthToSpace_{mode}", one("DepthToSpace", [floats(rng, 2, 12, 2, 3)], blocksize=2, mode=mode)
    yield "SpaceToDepth", one("SpaceToDepth", [floats(rng, 1, 3, 4, 6)], blocksize=2)
    yield "Trilu", one("Trilu", [floats(rng, 2, 4, 5), np.array(1)])
    yield "Flatten", one("Flatten", [x], axis=2)
    yield "Reshape", one("Reshape", [x, i64(0, -1, 6)])
    yield "Squeeze", one("Squeeze", [floats(rng, 1, 3, 1), i64(0)])
    yield "Unsqueeze", one("Unsqueeze", [floats(rng, 3, 2), i64(0, -1)])


def reductions(rng: Rng) -> Iterator[tuple[str, Made]]:
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
               "ReduceSumSquare", "ReduceLogSumExp"):
        for number in range(2):
            axes = sorted(rng.permutation(4)[:2].tolist())
            x = floats(rng, *shape_of(rng, 4))
            yield f"{op}{number}", (
                one(op, [x, i64(*axes)], opset=18, keepdims=number) if op != "ReduceSum"
                else one(op, [x, i64(*axes)], keepdims=number))
    yield "ReduceMax_int8", one("ReduceMax", [integers(rng, np.int8, 3, 8)], axes=[1])
    yield "ReduceSum_all", one("ReduceSum", [integers(rng, np.int32, 3, 8) >> 8])
    for op in ("ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, -1):
            yield f"{op}{axis % 9}", one(op, [floats(rng, 3, 5, 4)], axis=axis)
    yield "Softmax_flat", one("Softmax", [floats(rng, 3, 5, 4)], axis=1, opset=11)
    yield "CumSum", one("CumSum", [floats(rng, 3, 5), np.array(1)], reverse=1, exclusive=1)
    yield "TopK", one("TopK", [floats(rng, 3, 9), i64(4)], outputs=2)
    yield "TopK_ties", one("TopK", [rng.integers(0, 4, (3, 20)).astype(np.float32), i64(9)], outputs=2, axis=-1,
                           largest=0)
    x = floats(rng, 2, 6, 4, 5)
    yield "LayerNormalization", one("LayerNormalization", [x, floats(rng, 5), floats(rng, 5)], outputs=3)
    yield "LayerNormalization_two", one("LayerNormalization", [x, floats(rng, 4, 5)], axis=2)
    yield "SkipLayerNormalization", one("SkipLayerNormalization", [
        floats(rng, 2, 6, 40), floats(rng, 2, 6, 40), floats(rng, 40), floats(rng, 40)], given=2,
        domain="com.microsoft")
    yield "RMSNormalization", one("RMSNormalization", [x, floats(rng, 5)], opset=23)
    yield "InstanceNormalization", one("InstanceNormalization", [x, floats(rng, 6), floats(rng, 6)])
    yield "GroupNormalization", one("GroupNormalization", [x, floats(rng, 6), floats(rng, 6)], opset=21, num_groups=3)
    yield "BatchNormalization", one("BatchNormalization", [
        x, floats(rng, 6), floats(rng, 6), floats(rng, 6), np.abs(floats(rng, 6))])
    yield "LpNormalization", one("LpNormalization", [x], axis=1)
    yield "LRN", one("LRN", [x], size=3)


def products(rng: Rng) -> Iterator[tuple[str, Made]]:
    for number, (a, b) in enumerate((((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 2)),
                                     ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((4,), (4,)))):
        yield f"MatMul{number}", one("MatMul", [floats(rng, *a), floats(rng, *b)], given=2)
    yield "Gemm", one("Gemm", [floats(rng, 3, 7), floats(rng, 7, 5), floats(rng, 5)], alpha=0.5, beta=2.0)
    yield "Gemm_turned", one("Gemm", [floats(rng, 7, 3), floats(rng, 5, 7), floats(rng, 3, 1)], transA=1, transB=1)
    for number, (text, a, b) in enumerate((("bhik,bhjk->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
                                           ("bik,kj->bij", (2, 4, 5), (5, 3)), ("ij,ij->j", (4, 3), (4, 3)))):
        yield f"Einsum{number}", one("Einsum", [floats(rng, *a), floats(rng, *b)], given=2, equation=text)
    yield "Einsum_diagonal", one("Einsum", [floats(rng, 4, 4)], equation="ii->i")
    yield "MatMulInteger", one("MatMulInteger", [integers(rng, np.uint8, 3, 9), integers(rng, np.int8, 9, 4),
                                                 np.uint8(120), integers(rng, np.int8, 4) // 8])
    yield "FusedMatMul", one("FusedMatMul", [floats(rng, 2, 4, 3), floats(rng, 2, 4, 5)], given=2, transA=1, alpha=0.25,
                             domain="com.microsoft")


def _scale(rng: Rng, *shape: int) -> Array:
    return rng.uniform(0.01, 0.1, shape).astype(np.float32)


def quantisation(rng: Rng) -> Iterator[tuple[str, Made]]:
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        opset = 21
        x, zero = floats(rng, 4, 50), integers(rng, dtype)
        x[0, :20] = np.arange(-10, 10) * np.float32(0.5) * np.float32(0.0625)
        x[1, 0:4] = [np.inf, -np.inf, 1e30, -1e30]
        yield f"Quantize_{dtype.__name__}", one("QuantizeLinear", [x, np.float32(0.0625), zero], opset=opset)
        yield f"Quantize_axis_{dtype.__name__}", one(
            "QuantizeLinear", [x, _scale(rng, 4), integers(rng, dtype, 4)], axis=0, opset=opset)
        yield f"Dequantize_{dtype.__name__}", one(
            "DequantizeLinear", [integers(rng, dtype, 3, 4, 2), _scale(rng, 4), integers(rng, dtype, 4)], axis=1,
            opset=opset)
    yield "Quantize_blocks", one("QuantizeLinear", [floats(rng, 2, 6), _scale(rng, 2, 3)], axis=1, block_size=2,
                                 opset=21)
    yield "Dequantize_int32", one("DequantizeLinear", [integers(rng, np.int32, 30), np.float32(1e-3)])
    yield "DynamicQuantizeLinear", one("DynamicQuantizeLinear", [floats(rng, 40)], outputs=3)
    for number in range(3):
        wide = number == 2
        w = integers(rng, np.int8, 6, 9)
        scales, zeros = (_scale(rng, 6), np.zeros(6, np.int8)) if wide else (_scale(rng, 1)[0], np.int8(-3 * number))
        yield f"QLinearMatMul{number}", one("QLinearMatMul", [
            integers(rng, np.uint8, 4, 9), np.float32(0.05), np.uint8(7), w.T, scales, zeros, np.float32(0.9),
            np.uint8(100)])
        yield f"QLinearConv{number}", one("QLinearConv", [
            integers(rng, np.uint8, 1, 3, 7, 6), np.float32(0.05), np.uint8(7), integers(rng, np.int8, 6, 3, 3, 3),
            scales, zeros, np.float32(0.9), np.uint8(100), integers(rng, np.int32, 6) >> 16], pads=[1, 1, 0, 1],
            strides=[2, 1])
    yield "QGemm", one("QGemm", [
        integers(rng, np.uint8, 4, 9), np.float32(0.05), np.uint8(7), w, _scale(rng, 6), np.zeros(6, np.int8),
        integers(rng, np.int32, 6) >> 16, np.float32(0.9), np.uint8(100)], transB=1, domain="com.microsoft")
    for dtype in (np.int8, np.uint8):
        yield from _quantised_functions(rng, dtype)
    yield "ConvInteger", one("ConvInteger", [
        integers(rng, np.uint8, 1, 3, 7, 6), integers(rng, np.uint8, 6, 3, 3, 3), np.uint8(7), np.uint8(9)])


def _quantised_functions(rng: Rng, dtype: type) -> Iterator[tuple[str, Made]]:
    def scale() -> Array:
        return _scale(rng, 1)[0]

    def zero() -> Array:
        return integers(rng, dtype)

    x, y, image = (integers(rng, dtype, *shape) for shape in ((8, 50), (50,), (1, 4, 7, 6)))
    # By halves, so that much is to be rounded to the even one.
    for number, scales in enumerate(((0.05, 0.025, 0.1), (scale(), scale(), 0.12))):
        a, b, c = map(np.float32, scales)
        for op in ("QLinearAdd", "QLinearMul"):
            yield f"{op}{number}_{dtype.__name__}", one(op, [x, a, zero(), y, b, zero(), c, zero()], given=1,
                                                        domain="com.microsoft")
    for op, words in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1})):
        yield f"{op}_{dtype.__name__}", one(op, [x, scale(), zero(), scale(), zero()], domain="com.microsoft", **words)
    yield f"QLinearAveragePool_{dtype.__name__}", one(
        "QLinearAveragePool", [image, scale(), zero(), scale(), zero()], domain="com.microsoft", kernel_shape=[3, 2],
        pads=[1, 0, 1, 0])
    yield f"QLinearGlobalAveragePool_{dtype.__name__}", one(
        "QLinearGlobalAveragePool", [image, scale(), zero(), scale(), zero()], domain="com.microsoft")
    soft = helper.make_node("QLinearSoftmax", ["x", "sx", "zx", "sy", "zy"], ["y"], axis=1, opset=17,
                            domain="com.microsoft")
    yield f"QLinearSoftmax_{dtype.__name__}", several(
        [soft], {"x": x, "sx": scale(), "zx": zero(), "sy": np.float32(1 / 256), "zy": zero()}, ["x"], ["y"])
    arrays = {"sc": scale(), "zc": zero(), "a": image, "sa": scale(), "za": zero(), "b": image[:, :2], "sb": scale(),
              "zb": zero()}
    node = helper.make_node("QLinearConcat", ["sc", "zc", "a", "sa", "za", "b", "sb", "zb"], ["y"], axis=1,
                            domain="com.microsoft")
    yield f"QLinearConcat_{dtype.__name__}", several([node], arrays, ["a", "b"], ["y"])


def windows(rng: Rng) -> Iterator[tuple[str, Made]]:
    for number in range(6):
        group = int(rng.choice([1, 1, 2, 4]))
        kernel, strides, dilations = (rng.integers(1, 4, 2).tolist() for _ in range(3))
        x = floats(rng, 2, 4, 9, 8)
        pads = rng.integers(0, 2, 4).tolist()
        yield f"Conv{number}", one("Conv", [x, floats(rng, 8, 4 // group, *kernel), floats(rng, 8)], group=group,
                                   strides=strides, dilations=dilations, pads=pads)
        yield f"ConvTranspose{number}", one("ConvTranspose", [x, floats(rng, 4, 3, *kernel)], group=group,
                                            strides=strides, dilations=dilations,
                                            pads=pads if min(kernel) > 1 else None)
        low = [min(one_, k - 1) for one_, k in zip(pads, [*kernel, *kernel], strict=True)]
        for op in ("MaxPool", "AveragePool"):
            more = {} if op == "MaxPool" else {"count_include_pad": number % 2}
            yield f"{op}{number}", one(op, [x], kernel_shape=kernel, strides=strides, pads=low, ceil_mode=number // 3,
                                       **more)
    yield "Conv_same", one("Conv", [x, floats(rng, 2, 4, 3, 3)], auto_pad="SAME_UPPER", strides=[2, 2])
    yield "Conv_1d", one("Conv", [floats(rng, 1, 3, 12), floats(rng, 2, 3, 5)], pads=[2, 2])
    yield "Conv_3d", one("Conv", [floats(rng, 1, 2, 4, 5, 6), floats(rng, 3, 2, 2, 3, 2)])
    yield "MaxPool_int8", one("MaxPool", [integers(rng, np.int8, 1, 3, 6, 6)], kernel_shape=[2, 3])
    yield "GlobalAveragePool", one("GlobalAveragePool", [x])
    yield "GlobalMaxPool", one("GlobalMaxPool", [x])


def resizing(rng: Rng) -> Iterator[tuple[str, Made]]:
    x = floats(rng, 1, 2, 5, 7)
    for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"):
        for mode in ("nearest", "linear", "cubic"):
            for number, scales in enumerate(((1, 1, 2, 3), (1, 1, 0.6, 0.8))):
                yield f"{mode}_{how}_{number}", one(
                    "Resize", [x, None, np.array(scales, np.float32)], mode=mode, opset=19,
                    coordinate_transformation_mode=how)
    for kept in ("floor", "ceil", "round_prefer_ceil"):
        yield f"nearest_{kept}", one("Resize", [x, None, None, i64(1, 2, 8, 4)], nearest_mode=kept,
                                     coordinate_transformation_mode="asymmetric")
    yield "Resize_old", one("Resize", [x, np.array([1, 1, 2, 2], np.float32)], opset=10)
    yield "Upsample", one("Upsample", [x, np.array([1, 1, 2, 2], np.float32)], opset=9, mode="linear")


def recurrent(rng: Rng) -> Iterator[tuple[str, Made]]:
    for op, gates, bases in (("RNN", 1, 2), ("GRU", 3, 2), ("LSTM", 4, 3)):
        for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            arrays: list[Array | None] = [floats(rng, 5, 2, 3), floats(rng, ways, 4 * gates, 3) / 4,
                                          floats(rng, ways, 4 * gates, 4) / 4, floats(rng, ways, 8 * gates) / 4, None,
                                          floats(rng, ways, 2, 4)]
            yield f"{op}_{direction}", one(op, arrays, outputs=bases, hidden_size=4, direction=direction)
    yield "GRU_linear", one("GRU", [floats(rng, 5, 2, 3), floats(rng, 1, 12, 3) / 4, floats(rng, 1, 12, 4) / 4,
                                    floats(rng, 1, 24) / 4], outputs=2, hidden_size=4, linear_before_reset=1)
    yield "LSTM_peephole", one("LSTM", [floats(rng, 5, 2, 3), floats(rng, 1, 16, 3), floats(rng, 1, 16, 4), None, None,
                                        None, None, floats(rng, 1, 12)], outputs=3, hidden_size=4)


def _boxes(rng: Rng, count: int) -> Array:
    """Of some the higher corner comes first, on one axis or both."""
    corner, size = rng.random((1, count, 2)), rng.random((1, count, 2)) * 2 / 3
    turned = rng.random((1, count, 2)) < 0.5
    return np.concatenate([corner + size * turned, corner + size * ~turned], axis=2).astype(np.float32)


def dynamic(rng: Rng) -> Iterator[tuple[str, Made]]:
    for number, (classes, wanted, least, centred) in enumerate(((1, 8, 0.3, 0), (3, 4, 0.5, 1), (2, 99, 0.0, 0),
                                                                (2, 3, 2.0, 0))):
        limits = [np.array([wanted]), np.array([0.4], np.float32), np.array([least], np.float32)]
        scores = np.round(rng.random((1, classes, 24)), 1).astype(np.float32)   # some are equal
        yield f"NonMaxSuppression{number}", one("NonMaxSuppression", [_boxes(rng, 24), scores, *limits], given=2,
                                                center_point_box=centred)
    yield "NonZero", one("NonZero", [np.where(rng.random((3, 4, 2)) < 0.4, floats(rng, 3, 4, 2), np.float32(0))])
    yield "Compress", one("Compress", [floats(rng, 3, 6), rng.random(6) < 0.5], given=2, axis=1)
    arrays = {"boxes": _boxes(rng, 20), "scores": rng.random((1, 3, 20)).astype(np.float32), "most": i64(5),
              "overlap": np.array([0.4], np.float32), "least": np.array([0.2], np.float32), "two": np.array(2),
              "one": i64(1), "zero": i64(0), "minus": i64(-1), "shape": i64(-1, 4)}
    make = helper.make_node
    yield "detections", several([
        make("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["rows"]),
        make("Gather", ["rows", "two"], ["box"], axis=1),
        make("Slice", ["rows", "one", "two_", "one"], ["label"]),
        make("Squeeze", ["boxes", "zero"], ["flat"]),
        make("Gather", ["flat", "box"], ["chosen"], axis=0),
        make("GatherND", ["scores", "rows"], ["score"]),
        make("Unsqueeze", ["score", "one"], ["column"]),
        make("Cast", ["label"], ["labels"], to=1),
        make("Concat", ["chosen", "column", "labels"], ["all"], axis=1),
        make("Mul", ["all", "factor"], ["scaled"]),
        make("Transpose", ["scaled"], ["turned"]),
        make("Reshape", ["chosen", "shape"], ["again"]),
        make("ReduceSum", ["scaled", "one"], ["sums"], keepdims=0),
        make("TopK", ["column", "three"], ["best", "places"], axis=0)],
        {**arrays, "two_": i64(2), "factor": np.float32([1, 2, 3, 4, 5, 6]), "three": i64(2)},
        ["boxes", "scores"], ["rows", "scaled", "turned", "again", "sums", "best", "places"])
    yield "OneHot", one("OneHot", [rng.integers(-4, 4, (2, 3)), np.array(4), np.float32([-1, 3])], axis=1)


FAMILIES: tuple[Callable[[Rng], Iterator[tuple[str, Made]]], ...] = (
    functions, pairs, casts, movement, reductions, products, quantisation, windows, resizing, recurrent, dynamic)
