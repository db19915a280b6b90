"""Networks of the zoo, quantised and compiled: every tensor that the program leaves is the golden one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from cores.config import NpuConfig
from gen.bench.zoo import RECENT
from gen.ir.graph import Graph
from gen.onnx.importer import load_model
from gen.onnx.runtime import RuntimeModel
from gen.options import CompileOptions
from gen.quantize.options import QuantizeOptions
from gen.quantize.quantize import quantize
from gen.run.application import Application, open_application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from gen.zoo.builder import Builder, Tensor, pictures
from gen.zoo.convnext import convnext_block
from gen.zoo.mobilevit import transformer
from gen.zoo.network import Network, make
from gen.zoo.registry import NETWORKS
from gen.zoo.transformer import post_norm, pre_norm, with_token
from gen.zoo.yolo11 import c2psa
from tests.compiled import compile_kept
from tests.gen.test_compiler import run_and_compare


def quantised(name: str, size: tuple[int, int], rng: np.random.Generator) -> Graph:
    network = NETWORKS[name]
    found = quantize(make(network, size=size, classes=10).model, {"image": pictures(rng, 2, (network.channels, *size))},
                     QuantizeOptions(method="mse"))
    return load_model(name, found.model.SerializeToString()).graph


@pytest.mark.slow
def test_binary_network(seed: int, rng: np.random.Generator):
    """BiRealNet-18 from float, with its batch norms: 16 binary layers, each adds its shortcut and reads its signs."""
    graph = quantised("birealnet18", (32, 32), rng)
    program, _ = compile_kept(graph, NpuConfig.preset(16, binary_rows=1, gather=1))
    assert [layer.mode for layer in program.layers].count("binary") == 16
    # The rest: the first layer and its maximum, three shortcuts of an average and a 1x1, and the scores. Averages of
    # one pixel are none.
    assert len(program.layers) == 16 + 9
    run_and_compare(program, graph, seed, ("load",))


@pytest.mark.slow
def test_binary_network_with_shifts(seed: int, rng: np.random.Generator):
    """ReActNet-18: no layer for a shift or a Sign, and one for each PRelu."""
    graph = quantised("reactnet18", (32, 32), rng)
    program, _ = compile_kept(graph, NpuConfig.preset(16, binary_rows=1, gather=1))
    assert [layer.mode for layer in program.layers].count("binary") == 16
    assert len(program.layers) == 16 + 9 + 16
    run_and_compare(program, graph, seed, ("load",))


@pytest.mark.full
@pytest.mark.parametrize("name", ["alexnet-cifar", "lenet5", "lenet5-caffe", "mobilenetv1", "mobilenetv2", "resnet18",
                                  "yolov3-tiny"])
def test_networks(name: str, seed: int, rng: np.random.Generator):
    network = NETWORKS[name]
    graph = quantised(name, (max(network.least, 64),) * 2 if network.size[0] > 200 else network.size, rng)
    program, _ = compile_kept(graph, NpuConfig.preset(64, depthwise=1))
    run_and_compare(program, graph, seed, ("load",))


def _map(b: Builder, image: Tensor, channels: int) -> Tensor:
    return b.biased_conv(image, channels, 4, stride=4, pad=0, name="stem")


def _tokens(b: Builder, image: Tensor, channels: int) -> Tensor:
    x = _map(b, image, channels)
    x = b.transpose(b.reshape(x, channels, x.sample[0, 0].size, name="joined"), 0, 2, 1, name="tokens")
    return with_token(b, x)


#: One block each, after its network's first layer.
BLOCKS: dict[str, Callable[[Builder, Tensor], Tensor]] = {
    "deit": lambda b, image: pre_norm(b, _tokens(b, image, 48), heads=3, hidden=96, activation=b.gelu, name="b0"),
    "kwt": lambda b, image: post_norm(b, _tokens(b, image, 64), heads=1, hidden=96, activation=b.gelu, name="b0"),
    "convnext": lambda b, image: convnext_block(b, _map(b, image, 40), name="b0"),
    "mobilevit": lambda b, image: transformer(b, _map(b, image, 48), 80, 1, name="b0"),
    "yolo11": lambda b, image: c2psa(b, _map(b, image, 128), name="b0"),
}


#: Nodes of them that the processor has, at most: a learnt token in front, activation functions at the end.
LEFT = {"deit": 1, "kwt": 1, "yolo11": 2, "mobilevit": 2}
UNITS = NpuConfig.preset(64, depthwise=1, gather=1, table=1, rows=64, turn=1)


def opened(name: str, model: onnx.ModelProto, image: np.ndarray) -> Application:
    """The model compiled for `UNITS`; all of its tensors are the golden ones on the functional simulator."""
    application = open_application(Path(f"{name}.onnx"), UNITS, CompileOptions(keep_all=True),
                                   content=model.SerializeToString())
    run = run_model(application, Samples({"image": image}, None), "functional")
    assert (run.mismatches, run.compared > 10_000) == (0, True)
    return application


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, rng: np.random.Generator):
    """Of the networks after 2019: next to nothing of attention and norms is left to the processor."""
    network = Network(name=name, title=name, layers=lambda b, image, classes: b.output(BLOCKS[name](b, image)))
    images = pictures(rng, 2, (3, 32, 40))
    made = quantize(make(network, size=(32, 40)).model, {"image": images}, QuantizeOptions(method="mse"))
    cut = opened(name, made.model, images[:1]).partition
    assert (0 if cut is None else len(cut.host)) <= LEFT.get(name, 0)


@pytest.mark.full
@pytest.mark.parametrize("name", RECENT)
def test_recent_networks(name: str, rng: np.random.Generator):
    """Whole ones, of small pictures: no quantised tensor is all the same or beyond its range, every value is golden."""
    network = NETWORKS[name]
    size = (max(64, 2 * network.step),) * 2
    images = pictures(rng, 3, (network.channels, *size))
    model = quantize(make(network, size=size).model, {"image": images[:2]}, QuantizeOptions(method="mse")).model
    shown = onnx.ModelProto.FromString(model.SerializeToString())
    names = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    values = RuntimeModel(shown, optimised="all").run({"image": images[2:]})[-len(names):]
    for tensor, codes in zip(names, values, strict=True):
        assert len(np.unique(codes)) > min(8, codes.size // 2), tensor
        assert (codes == np.iinfo(codes.dtype).max).mean() < 0.2, tensor
    opened(name, model, images[2:])
