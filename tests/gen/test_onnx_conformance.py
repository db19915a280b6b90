"""The conformance cases that ship with onnx.

QLinearConv and QLinearMatMul as they are; cases of float operators with their values quantised around the node. Each is
near the case's own output and within a step of onnxruntime, or is refused, and which ones are refused is stated here.
"""

import functools
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

from gen.check.compare import compare
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.onnx.importer import load

#: Operator -> word of the message -> cases (without "test_") that are refused.
REFUSED = {
    "Add": {"dimensions": {"add_bcast"}},
    "AveragePool": {
        "windows at the edge": {
            "averagepool_2d_ceil", "averagepool_2d_pads", "averagepool_2d_precomputed_pads",
            "averagepool_2d_precomputed_same_upper", "averagepool_2d_same_lower", "averagepool_2d_same_upper"},
        "spatial axes": {"averagepool_3d_default"},
        "dilation": {
            "averagepool_2d_dilations", "averagepool_3d_dilations_small",
            *(f"averagepool_3d_dilations_large_count_include_pad_is_{pad}_ceil_mode_is_{ceil}"
              for pad in (0, 1) for ceil in (True, False))},
    },
    # Vectors without a sample axis.
    "Clip": {"dimensions": {"clip_example", "clip_inbounds", "clip_outbounds", "clip_splitbounds",
                            "clip_min_greater_than_max", "clip_default_inbounds"}},
    "Conv": {},
    "Gemm": {"transA": {"gemm_transposeA", "gemm_all_attributes"}, "its bias has shape": {"gemm_default_matrix_bias"}},
    "GlobalAveragePool": {},
    "GlobalMaxPool": {},
    "LeakyRelu": {"dimensions": {"leakyrelu_example"}},
    "MatMul": {"must be a matrix": {"matmul_3d", "matmul_4d", "matmul_bcast", "matmul_4d_1d"},
               "dimensions": {"matmul_1d_3d", "matmul_1d_1d"}},
    "MaxPool": {
        "second output": {"maxpool_with_argmax_2d_precomputed_pads"},
        "column-major": {"maxpool_with_argmax_2d_precomputed_strides"},
        "spatial axes": {"maxpool_3d_default"},
        "dilation": {"maxpool_2d_dilations", "maxpool_3d_dilations", "maxpool_3d_dilations_use_ref_impl",
                     "maxpool_3d_dilations_use_ref_impl_large"},
    },
    "ReduceMean": {"name its axes": {"reduce_mean_default_axes_keepdims_example",
                                     "reduce_mean_default_axes_keepdims_random"}},
    "Relu": {},
    "Resize": {
        "mode cubic": {
            "resize_downsample_scales_cubic", "resize_downsample_scales_cubic_A_n0p5_exclude_outside",
            "resize_downsample_scales_cubic_align_corners", "resize_downsample_scales_cubic_antialias",
            "resize_downsample_sizes_cubic", "resize_downsample_sizes_cubic_antialias", "resize_upsample_scales_cubic",
            "resize_upsample_scales_cubic_A_n0p5_exclude_outside", "resize_upsample_scales_cubic_align_corners",
            "resize_upsample_scales_cubic_asymmetric", "resize_upsample_sizes_cubic"},
        "mode linear": {
            "resize_downsample_scales_linear", "resize_downsample_scales_linear_align_corners",
            "resize_downsample_scales_linear_antialias", "resize_downsample_scales_linear_half_pixel_symmetric",
            "resize_downsample_sizes_linear_antialias", "resize_downsample_sizes_linear_pytorch_half_pixel",
            "resize_tf_crop_and_resize", "resize_tf_crop_and_resize_axes_2_3", "resize_tf_crop_and_resize_axes_3_2",
            "resize_tf_crop_and_resize_extrapolation_value", "resize_upsample_scales_linear",
            "resize_upsample_scales_linear_align_corners", "resize_upsample_scales_linear_half_pixel_symmetric"},
        "only whole factors": {
            "resize_downsample_scales_nearest", "resize_downsample_sizes_nearest", "resize_upsample_sizes_nearest",
            "resize_upsample_sizes_nearest_axes_2_3", "resize_upsample_sizes_nearest_axes_3_2"},
        "other neighbours": {
            "resize_upsample_sizes_nearest_ceil_half_pixel", "resize_upsample_sizes_nearest_floor_align_corners",
            "resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric"},
        "aspect ratio": {
            "resize_downsample_sizes_nearest_not_larger", "resize_downsample_sizes_nearest_not_smaller",
            "resize_upsample_sizes_nearest_not_larger", "resize_upsample_sizes_nearest_not_smaller"},
    },
}


@functools.cache
def cases() -> dict[str, list[TestCase]]:
    """Cases of one node, by operator."""
    found: dict[str, list[TestCase]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.model is not None and len(case.model.graph.node) == 1:
                found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


def _quantised(name: str, scale: np.float32, point: np.ndarray) -> tuple[list[onnx.TensorProto], list[str]]:
    tensors = [numpy_helper.from_array(np.asarray(scale, np.float32), f"{name}_scale"),
               numpy_helper.from_array(point, f"{name}_point")]
    return tensors, [t.name for t in tensors]


def _scale(values: np.ndarray) -> np.float32:
    return np.float32(max(float(np.abs(values).max(initial=0)), 1e-3) / 120)


def wrapped(case: TestCase) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray, float]:
    """A float case as a quantised model: (model, int8 inputs, the case's output, scale of the model's output).

    Activations are the first input and, for Add, the second; the first axis is that of the samples.
    """
    assert case.model is not None and case.data_sets is not None
    (node,), (arrays, expected) = case.model.graph.node, case.data_sets[0]
    activations = 2 if node.op_type == "Add" else 1
    nodes, initializers, inputs, feeds, names = [], [], [], {}, []
    for position, (name, array) in enumerate(zip((n for n in node.input if n), arrays, strict=True)):
        array = np.asarray(array)
        if array.dtype != np.float32 or (node.op_type in ("Clip", "Resize") and position):
            initializers.append(numpy_helper.from_array(array, name))
            names.append(name)
            continue
        scale = _scale(array)
        steps = np.clip(np.rint(array / scale), -127, 127)
        zero = np.int8(5) if position < activations else np.int8(0)
        if position >= activations and array.ndim < 2:      # bias
            steps, scale, zero = np.rint(array / np.float32(1e-4)).astype(np.int32), np.float32(1e-4), np.int32(0)
        quantised = np.clip(steps + zero, np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max).astype(zero.dtype)
        tensors, parameters = _quantised(name, scale, np.asarray(zero))
        initializers += tensors
        if position < activations:
            inputs.append(helper.make_tensor_value_info(f"{name}_q", onnx.TensorProto.INT8, ["N", *array.shape[1:]]))
            feeds[f"{name}_q"] = quantised
        else:
            initializers.append(numpy_helper.from_array(quantised, f"{name}_q"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *parameters], [f"{name}_real"]))
        names.append(f"{name}_real")
    filled = iter(names)
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inner.ClearField("input")
    inner.input.extend(next(filled) if n else "" for n in node.input)
    target = np.asarray(expected[0])
    scale = _scale(target)
    tensors, parameters = _quantised("output", scale, np.asarray(np.int8(-3)))
    nodes += [inner, helper.make_node("QuantizeLinear", [inner.output[0], *parameters], ["output_q"])]
    output = helper.make_tensor_value_info("output_q", onnx.TensorProto.INT8, [None] * target.ndim)
    graph = helper.make_graph(nodes, case.name, inputs, [output], [*initializers, *tensors])
    opset = helper.make_opsetid("", max(13, case.model.opset_import[0].version))
    return helper.make_model(graph, opset_imports=[opset], ir_version=10), feeds, target, float(scale)


@pytest.mark.parametrize("operator", REFUSED)
def test_float_operators(operator: str, tmp_path: Path) -> None:
    refused, passed = {}, 0
    for case in cases()[operator]:
        assert case.model is not None
        if case.model.graph.input[0].type.tensor_type.elem_type != onnx.TensorProto.FLOAT:
            continue
        model, feeds, target, scale = wrapped(case)
        path = tmp_path / f"{case.name}.onnx"
        onnx.save(model, path)
        try:
            comparison = compare(path, feeds)
        except GraphError as error:
            refused[case.name.removeprefix("test_")] = str(error)
            continue
        assert comparison.largest <= 1, case.name
        outputs, _ = reference.run(load(path), feeds)
        ours = (outputs["output_q"].astype(np.float64) + 3) * scale
        assert ours.shape == target.shape, case.name
        assert np.abs(ours - target).max() <= 0.06 * max(np.abs(target).max(), 1e-3), case.name
        passed += 1
    expected = {name: word for word, names in REFUSED[operator].items() for name in names}
    assert set(refused) == set(expected), refused
    assert all(word in refused[name] for name, word in expected.items()), refused
    assert passed


@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul"])
def test_quantised_operators(operator: str, tmp_path: Path) -> None:
    """As they are, but for the weights and parameters, which become constants."""
    passed = 0
    for case in cases()[operator]:
        assert case.model is not None and case.data_sets is not None
        if "3D" in case.name:       # a product of two stacks of matrices, no weights
            continue
        arrays, expected = case.data_sets[0]
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        first, *others = case.model.graph.input
        del model.graph.input[1:]
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), i.name)
                                       for i, a in zip(others, arrays[1:], strict=True))
        path = tmp_path / f"{case.name}.onnx"
        onnx.save(model, path)
        outputs, _ = reference.run(load(path), {first.name: np.asarray(arrays[0])})
        ((_, ours),) = outputs.items()
        assert ours.dtype == expected[0].dtype and ours.shape == expected[0].shape, case.name
        assert np.abs(ours.astype(np.int16) - expected[0]).max() <= 1, case.name
        passed += 1
    assert passed == {"QLinearConv": 1, "QLinearMatMul": 4}[operator]
