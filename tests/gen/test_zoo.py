"""The zoo's networks: their layers are those of the papers, and what goes through them stays of one size."""

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from gen.detection.heads.yolo import YoloHead, YoloMap
from gen.zoo.builder import pictures
from gen.zoo.errors import ZooError
from gen.zoo.network import make
from gen.zoo.registry import NETWORKS, get_network
from gen.zoo.yolo import TINY_ANCHORS
from tests.conftest import ROOT

TABLE = ROOT.parent / "shared" / "networks.csv"
#: The name under which the table has a network.
LISTED = {
    "vgg16": "VGG16", "resnet18": "ResNet-18", "mobilenetv1": "MobileNetV1-224", "mobilenetv2": "MobileNetV2-224",
    "birealnet18": "BiRealNet-18", "birealnet18-dense": "BiRealNet-18",
    "reactnet18": "BiRealNet-18", "lenet5": "LeNet-5(28x28,pad2)",
    "lenet5-caffe": "LeNet-5(caffe 20/50/500)", "ssd-mobilenetv1": "SSD-MobileNetV1-300-VOC",
    "ssd-mobilenetv1-3x3": "SSD-MobileNetV1-300-VOC(3x3 heads)", "yolov3": "YOLOv3-416(80cls)",
    "yolov3-tiny": "YOLOv3-tiny-416(80cls)",
}
LONG = {"vgg16", "alexnet", "yolov3", "mobilenetv1", "birealnet18", "birealnet18-dense", "reactnet18",
        "ssd-mobilenetv1-3x3", "vit-tiny", "mobilevit-xxs", "yolo11n", "yolov3-boxes", "resnet50", "resnext50",
        "regnety-400mf", "mobilenetv3", "ghostnet"}
#: Parameters and millions of multiplications of networks that the table does not have: as published, but for what is
#: not published of KWT-1 (its multiplications, here by its sizes) and of a ViT-Tiny of mean tokens and fixed positions.
#: YOLO11n has 6.5 billion operations for 640x640. EfficientNet-Lite0's multiplications are by its sizes, too; 407
#: million are published. A float: parameters that are published as rounded.
PUBLISHED: dict[str, tuple[float, float]] = {
    "kwt-1": (607_308, (98 * 40 * 64 + 12 * 99 * (12 * 64 * 64 + 2 * 99 * 64)) / 1e6),
    "vit-tiny": (5_717_416 - 198 * 192, 1260), "deit-tiny": (5_717_416, 1260), "convnext-atto": (3_695_520, 550),
    "mobilevit-xxs": (1_272_024, 420), "yolo11n": (2_624_080, 6500 / 2 / 4),
    "resnet50": (25_557_032, 4090), "resnext50": (25_028_904, 4230), "regnety-400mf": (4_344_144, 402),
    "shufflenetv2": (2_278_604, 146), "ghostnet": (5.2e6, 141), "mobilenetv3": (5_483_032, 219),
    "efficientnet-lite0": (4_652_008, 385),
}
#: Of the smallest sizes at which all of a network's layers still have something to do.
SMALL = {"alexnet": (95, 95), "yolo11n": (256, 256), "ssd-mobilenetv1": (96, 128), "ssd-mobilenetv1-3x3": (64, 64),
         "ssd-mobilenetv2": (96, 96), "regnety-400mf": (128, 128), "mobilenetv3": (128, 128), "ghostnet": (128, 128)}


def each_network(names: list[str]) -> list:
    return [pytest.param(name, marks=pytest.mark.full if name in LONG else ()) for name in names]


@dataclass(frozen=True)
class Row:
    """A convolution or fully connected layer, as a row of the table has it."""

    height: int
    width: int
    inputs: int
    outputs: int
    kernel: int
    stride: int
    groups: int
    macs: int
    weights: int


@cache
def table() -> dict[str, dict[str, Row]]:
    if not TABLE.is_file():
        pytest.skip(f"no {TABLE}, which states the layers of each network")
    networks: dict[str, dict[str, Row]] = defaultdict(dict)
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            numbers = (int(row[key]) for key in ("H", "W", "Cin", "Cout", "k", "s", "groups", "macs", "params"))
            networks[row["net"]][row["layer"].partition("(")[0]] = Row(*numbers)
    return networks


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """By ONNX's own inference, so not by what the builder saw."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    return {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info, *graph.output)}


def rows_of(model: onnx.ModelProto) -> dict[str, Row]:
    shapes = shapes_of(model)
    constants = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    rows = {}
    for node in model.graph.node:
        if node.op_type not in ("Conv", "Gemm"):
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        outputs, inputs, *kernel = constants[node.input[1]]
        groups, result = attributes.get("group", 1), shapes[node.output[0]]
        source = shapes[node.input[0]][2:] if node.op_type == "Conv" else (1, 1)
        weights = prod(constants[node.input[1]])
        rows[node.name] = Row(*source, inputs * groups, outputs, (kernel or [1])[0], attributes.get("strides", [1])[0],
                              groups, weights * prod(result[2:]), weights)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", each_network(list(LISTED)))
def test_layers_are_those_of_the_table(name: str):
    made = make(NETWORKS[name])
    expected = table()[LISTED[name]]
    assert rows_of(made.model) == expected
    assert made.weights == sum(row.weights for row in expected.values())
    assert made.macs == sum(row.macs for row in expected.values())


def parameters_of(model: onnx.ModelProto) -> int:
    """Numbers that are learnt: neither statistics of batch norms, nor scalars, nor positions of boxes or pixels."""
    constants = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer
                 if tensor.data_type == onnx.TensorProto.FLOAT and prod(tensor.dims) > 1}
    learnt = 0
    for node in model.graph.node:
        names = node.input[:3] if node.op_type == "BatchNormalization" else node.input
        if node.op_type != "Resize" and node.name not in ("decode.low", "decode.high", "decode.pixels"):
            learnt += sum(constants.get(name, 0) for name in names)
    return learnt


def multiplications_of(model: onnx.ModelProto) -> int:
    shapes = shapes_of(model) | {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    layers = sum(prod(shapes[node.output[0]]) * prod(shapes[node.input[1]][1:]) for node in model.graph.node
                 if node.op_type in ("Conv", "Gemm") and node.name != "decode.mean")
    return layers + sum(prod(shapes[node.output[0]]) * shapes[node.input[0]][-1] for node in model.graph.node
                        if node.op_type == "MatMul")


@pytest.mark.slow
@pytest.mark.parametrize("name", each_network(list(PUBLISHED)))
def test_sizes_are_those_published(name: str):
    made = make(NETWORKS[name])
    parameters, millions = PUBLISHED[name]
    fixed = 196 * 192 if name == "vit-tiny" else 0
    within = 0.01 if isinstance(parameters, float) else 0
    assert parameters_of(made.model) == pytest.approx(parameters + fixed, rel=within, abs=0)
    assert made.macs == multiplications_of(made.model) == pytest.approx(1e6 * millions, rel=0.035)


def test_alexnet_for_cifar():
    rows = rows_of(make(NETWORKS["alexnet-cifar"]).model)
    convolutions = [(row.kernel, row.stride, row.outputs) for name, row in rows.items() if name.startswith("conv")]
    assert convolutions == [(5, 1, 256), (3, 2, 32), (7, 2, 16), (5, 2, 16), (3, 1, 256)]
    assert [row.outputs for name, row in rows.items() if name.startswith("fc")] == [512, 1024, 10]


def run_all(model: onnx.ModelProto, image: np.ndarray) -> dict[str, np.ndarray]:
    """Every value of a model."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for node in model.graph.node
                              for name in node.output if name not in known)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": image}), strict=True))


def image_of(model: onnx.ModelProto, rng: np.random.Generator) -> np.ndarray:
    _, *shape = (dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    return pictures(rng, 1, tuple(shape))


def small(name: str, **options) -> onnx.ModelProto:
    network = NETWORKS[name]
    size = SMALL.get(name, tuple(min(side, max(network.least, 2 * network.step)) for side in network.size))
    return make(network, size=size, **options).model


@pytest.mark.slow
@pytest.mark.parametrize("name", each_network(list(NETWORKS)))
def test_values_keep_their_size(name: str, rng: np.random.Generator):
    """On pictures the weights were not chosen by: no layer's results vanish, explode or are the same for all."""
    model = small(name)
    onnx.checker.check_model(model, full_check=True)
    pictures = [run_all(model, image_of(model, rng)) for _ in range(6)]
    biased = ("Conv", "Gemm")
    layers = [node for node in model.graph.node if node.op_type in ("BatchNormalization", "LayerNormalization")
              or node.op_type in biased and len(node.input) == 3]
    # Averages of whole maps are much alike in pictures of noise.
    layers = [node for node in layers if ".se." not in node.name]
    assert len(layers) >= 4
    for node in layers:
        # Of all pictures: the last layers have a dozen values of each.
        values = np.stack([results[node.output[0]] for results in pictures])
        assert np.isfinite(values).all()
        # A map of few pixels, or of pixels that maxima made alike, has few values of each channel: they are further
        # from the measured mean.
        few = prod(values.shape[3:]) <= 16 or name == "yolo11n"
        assert 0.5 < values.std() < (6 if few else 2), node.name
        assert np.corrcoef(values[0].ravel(), values[1].ravel())[0, 1] < 0.9, node.name


@pytest.mark.slow
def test_seeds():
    """The same seed gives the same bytes, another one other weights in the same nodes."""
    model = small("mobilenetv2", seed=5)
    assert model.SerializeToString() == small("mobilenetv2", seed=5).SerializeToString()
    other = small("mobilenetv2", seed=6)
    assert list(model.graph.node) == list(other.graph.node)
    assert all(a.raw_data != b.raw_data for a, b in zip(model.graph.initializer, other.graph.initializer, strict=True)
               if len(a.dims))


@pytest.mark.slow
def test_binary_layers():
    """What docs/binary.md asks for: a Sign in front, weights of one size in each channel, a shortcut around each."""
    model = small("birealnet18")
    makers = {node.output[0]: node for node in model.graph.node}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type == "Conv" and makers.get(node.input[0])
              and makers[node.input[0]].op_type == "Sign"]
    assert len(layers) == 16
    for node in layers:
        sizes = np.abs(constants[node.input[1]])
        assert (sizes == sizes[:, :1, :1, :1]).all() and (sizes > 0).all()
        norm = next(other for other in model.graph.node if other.input[0] == node.output[0])
        add = next(other for other in model.graph.node if norm.output[0] in other.input)
        assert (norm.op_type, add.op_type) == ("BatchNormalization", "Add")


def caffe_priors(maps: list[tuple[int, int]]) -> list[tuple[float, ...]]:
    """Boxes of the published SSD-MobileNetV1 for VOC, from its sides in pixels of 300."""
    smallest, largest = (60, 105, 150, 195, 240, 285), (0, 150, 195, 240, 285, 300)
    boxes = []
    for (height, width), side, larger in zip(maps, smallest, largest, strict=True):
        shapes = [(side, side)] + ([((side * larger) ** 0.5,) * 2] if larger else [])
        for aspect in (2, 1 / 2, 3, 1 / 3) if larger else (2, 1 / 2):
            shapes.append((side * aspect ** 0.5, side / aspect ** 0.5))
        boxes += [((x + 0.5) / width, (y + 0.5) / height, w / 300, h / 300)
                  for y in range(height) for x in range(width) for w, h in shapes]
    return boxes


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Of boxes (x1, y1, x2, y2): their intersection over their union."""
    sides = np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None)
    return float(sides.prod() / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - sides.prod()))


@pytest.mark.slow
def test_boxes_and_their_choice(rng: np.random.Generator):
    """Decoded as the published detector does; of each class the best ones that do not overlap."""
    model = small("ssd-mobilenetv1")
    values = run_all(model, image_of(model, rng))
    priors = np.array(caffe_priors([(6, 8), (3, 4), (2, 2), (1, 1), (1, 1), (1, 1)]))
    offsets = values["loc"][0].astype(float)
    assert offsets.shape == priors.shape
    centre = priors[:, :2] + 0.1 * offsets[:, :2] * priors[:, 2:]
    sizes = priors[:, 2:] * np.exp(0.2 * offsets[:, 2:])
    boxes = np.concatenate([centre - sizes / 2, centre + sizes / 2], axis=1)
    np.testing.assert_allclose(values["boxes"][0], boxes, atol=1e-5)

    logits = values["conf"][0].astype(float)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(values["scores"][0], chances[:, 1:].T, atol=1e-6)
    chosen = []
    for number, scores in enumerate(values["scores"][0]):
        taken: list[int] = []
        for box in np.argsort(-scores, kind="stable"):
            if scores[box] > 0.1 and all(overlap(boxes[box], boxes[other]) <= 0.45 for other in taken):
                taken.append(box)
        chosen += [(0, number, box) for box in taken[:100]]
    assert len(chosen) > 20
    assert {tuple(row) for row in values["selected"].tolist()} == set(chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads", "anchors"), [
    ("yolov3-tiny-boxes", ("det13", "det26"), TINY_ANCHORS),
    pytest.param("yolov3-boxes", ("h13.det", "h26.det", "h52.det"), (
        ((116, 90), (156, 198), (373, 326)), ((30, 61), (62, 45), (59, 119)), ((10, 13), (16, 30), (33, 23))),
        marks=pytest.mark.full)])
def test_boxes_of_yolov3(name: str, heads: tuple[str, ...], anchors: tuple, rng: np.random.Generator):
    """Decoded in the model as after it."""
    model = make(NETWORKS[name], size=(64, 96), classes=2).model
    values = run_all(model, image_of(model, rng))
    head = YoloHead(classes=("a", "b"), maps=tuple(
        YoloMap(output=output, anchors=tuple((width / 416, height / 416) for width, height in some))
        for output, some in zip(heads, anchors, strict=True)))
    boxes, scores = head.candidates({name: value[0] for name, value in values.items()})

    def in_order(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        rows = np.concatenate([boxes, scores], axis=1)
        return rows[np.lexsort(np.round(rows, 3).T)]

    np.testing.assert_allclose(in_order(values["boxes"][0], values["scores"][0].T), in_order(boxes, scores), rtol=1e-3,
                               atol=1e-5)
    assert len(values["selected"])


@pytest.mark.slow
def test_maps_of_ssd_on_mobilenetv2():
    """The finer map is the middle of a block, six times as wide as its 96 channels."""
    model = make(NETWORKS["ssd-mobilenetv2"]).model
    rows = rows_of(model)
    assert [(rows[f"loc{n}"].inputs, rows[f"loc{n}"].height) for n in range(6)] == [
        (576, 19), (1280, 10), (512, 5), (256, 3), (256, 2), (128, 1)]
    assert {rows[name].kernel for name in rows if name.startswith(("loc", "conf"))} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("name", each_network(["vit-tiny", "kwt-1"]))
def test_attention_chooses(name: str, rng: np.random.Generator):
    """In the last block, too: a row of chances counts for few of its tokens, and tokens of a picture are not alike.
    Of most pictures, at least.
    """
    model = make(NETWORKS[name], size=(96, 48)).model
    pictures = [run_all(model, image_of(model, rng)) for _ in range(5)]
    for block in ("b0", "b11"):
        chances, tokens = ([values[f"{block}.{part}"] for values in pictures] for part in ("attn.chances", "norm2"))
        counted = np.median([(1 / np.square(one).sum(axis=-1)).mean() / one.shape[-1] for one in chances])
        assert 2 / chances[0].shape[-1] < counted < 0.4
        assert np.median([one.var(axis=1).mean() / one.var() for one in tokens]) > 0.2


@pytest.mark.slow
def test_boxes_of_yolo11(rng: np.random.Generator):
    """A side is as far from its pixel as the mean of 16 distances by their chances."""
    model = make(NETWORKS["yolo11n"], size=(64, 64), classes=3).model
    values = run_all(model, image_of(model, rng))
    sides = values["sides"][0].astype(float).reshape(4, 16, -1)
    chances = np.exp(sides) / np.exp(sides).sum(axis=1, keepdims=True)
    left, top, right, bottom = (chances * np.arange(16)[:, None]).sum(axis=1)
    pixels = [(x + 0.5, y + 0.5, stride) for stride in (8, 16, 32) for y in range(64 // stride)
              for x in range(64 // stride)]
    x, y, stride = np.array(pixels).T
    boxes = np.stack([x - left, y - top, x + right, y + bottom], axis=1) * stride[:, None]
    np.testing.assert_allclose(values["boxes"][0], boxes, rtol=1e-4, atol=1e-3)
    assert values["scores"].shape == (1, 3, len(pixels)) and len(values["selected"])


@pytest.mark.parametrize(("name", "options", "words"), [
    ("vgg16", {"size": (224, 100)}, "--size 224x100: vgg16 takes sides of 32 to 448 in steps of 32"),
    ("lenet5", {"size": (16, 16)}, "--size 16x16: lenet5 takes sides of 20 to 448 in steps of 4"),
    ("mobilenetv1", {"size": (2048, 64)}, "--size 2048x64: mobilenetv1 takes sides of 32 to 1024"),
    ("lenet5", {"classes": 1}, "--classes 1: must be 2 to 10,000"),
])
def test_what_it_does_not_make(name: str, options: dict, words: str):
    with pytest.raises(ZooError, match=f"^{words}$"):
        make(NETWORKS[name], **options)


def test_unknown_networks():
    with pytest.raises(ZooError, match=r".resnet34. in the zoo \(is resnet50 meant\?\); it has vgg16, .*yolo11n"):
        get_network("resnet34")


@pytest.mark.parametrize("name", ["yolov3-tiny", "ssd-mobilenetv1", "lenet5"])
def test_other_classes_and_sizes(name: str):
    model = small(name, classes=7)
    outputs = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.output}
    assert outputs == {
        "yolov3-tiny": {"det13": [1, 36, 2, 2], "det26": [1, 36, 4, 4]},
        "ssd-mobilenetv1": {"boxes": [1, 258, 4], "scores": [1, 6, 258], "selected": [0, 3]},
        "lenet5": {"f5": [1, 7]}}[name]
