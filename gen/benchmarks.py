"""What is timed and compared with published figures: single layers with seeded weights, and known networks."""

from dataclasses import dataclass

import numpy as np

from cores.config import NpuConfig
from gen.compiler import DepthwiseMode, GatherMode, WinogradMode, compile_graph
from gen.ir import Conv, Graph, Requantize, Tensor, output_size, verify
from gen.pack import prune_weights
from gen.program import Program
from gen.reference import run as run_reference
from sim.golden import quantize_multiplier
from sim.rtl.machine import RtlMachine
from sim.rtl.run import RtlResult, run_program

__all__ = ["DEPTHWISE", "LAYERS", "NETWORKS", "LayerBenchmark", "Measurement", "NetworkBenchmark", "bus_bound",
           "conv_graph", "measure_layer"]


@dataclass(frozen=True, kw_only=True)
class LayerBenchmark:
    """A convolution padded to keep its size (over ``stride``); ``goal`` is for 256 MACs.

    ``density`` is the share of weights kept.
    """

    name: str
    channels: int
    outputs: int
    size: int
    kernel: int
    density: float = 1.0
    stride: int = 1
    depthwise: bool = False
    goal: float | None = None
    peer: str = ""


@dataclass(frozen=True, kw_only=True)
class NetworkBenchmark:
    """A trained model (``file``.onnx, ``file``.golden.npz); ``goal`` is cycles of an inference with 256 MACs."""

    file: str
    title: str
    goal: int | None = None
    peer: str = ""


LAYERS: tuple[LayerBenchmark, ...] = (
    LayerBenchmark(name="3x3 64->64 28x28", channels=64, outputs=64, size=28, kernel=3, goal=0.92,
                   peer="NNgen 89.4 % of 252, 97.0 % of 72"),
    LayerBenchmark(name="3x3 64->64 28x28, a quarter", channels=64, outputs=64, size=28, kernel=3, density=0.25,
                   goal=0.85),
    LayerBenchmark(name="1x1 256->256 14x14", channels=256, outputs=256, size=14, kernel=1, goal=0.90,
                   peer="NNgen 89.8 % of 256"),
    LayerBenchmark(name="1x1 512->512 14x14, a quarter", channels=512, outputs=512, size=14, kernel=1, density=0.25),
    LayerBenchmark(name="3x3 512->512 7x7", channels=512, outputs=512, size=7, kernel=3),
)

#: Goals are of the array's own cycles: a standing layer is bound by the bus, which `bus_bound` counts.
DEPTHWISE: tuple[LayerBenchmark, ...] = tuple(
    LayerBenchmark(
        name=f"{kernel}x{kernel} {channels}, {size}x{size} / {stride}", channels=channels, outputs=channels,
        size=size, kernel=kernel, stride=stride, depthwise=True,
        goal=None if kernel != 3 else 0.6 if stride == 1 else 0.45,
        peer="NNgen 407,794 cycles with 72 multipliers" if (kernel, channels, size, stride) == (3, 256, 14, 1) else "")
    for kernel, channels, size, stride in (
        (3, 32, 112, 1), (3, 256, 14, 1), (3, 512, 14, 1), (3, 1024, 14, 1), (5, 256, 14, 1),
        (3, 64, 112, 2), (3, 256, 28, 2), (3, 512, 28, 2)))

NETWORKS: tuple[NetworkBenchmark, ...] = (
    NetworkBenchmark(file="mlperf_resnet8_int8", title="ResNet-8", goal=100_000,
                     peer="NNgen 194,706 cycles with 288 multipliers"),
    NetworkBenchmark(file="mlperf_vww_mnv1_025_int8", title="MobileNetV1 0.25, 96x96"),
    NetworkBenchmark(file="mlperf_kws_dscnn_int8", title="DS-CNN"),
    NetworkBenchmark(file="tinymaix_mnist_resnet_int8", title="MNIST ResNet"),
    NetworkBenchmark(file="tinymaix_mnist_valid_int8", title="MNIST"),
    NetworkBenchmark(file="coral_mnv2_10_224_uint8", title="MobileNetV2, 224x224"),
)


@dataclass(frozen=True, eq=False)
class Measurement:
    """One run on the RTL. ``mismatches``: output values that differ from the reference."""

    program: Program
    rtl: RtlResult
    mismatches: int

    @property
    def ideal(self) -> float:
        """Cycles with every multiplier at useful work in each."""
        return sum(layer.useful_macs for layer in self.program.layers) / self.program.config.macs

    @property
    def utilisation(self) -> float:
        return self.ideal / self.rtl.cycles


def conv_graph(layer: LayerBenchmark, config: NpuConfig, *, seed: int = 0) -> Graph:
    """A graph of just this convolution, with seeded weights all over int8."""
    rng = np.random.default_rng(seed)
    pad = layer.kernel // 2
    size = output_size(layer.size, layer.kernel, layer.stride, pad, pad)
    source = Tensor("input", (layer.channels, layer.size, layer.size), 1.0, 3)
    target = Tensor("output", (layer.outputs, size, size), 1.0, -5)
    inputs = 1 if layer.depthwise else layer.channels
    weights = rng.integers(1, 128, (layer.outputs, inputs, layer.kernel, layer.kernel)).astype(np.int16)
    weights *= rng.choice(np.array([-1, 1], np.int16), weights.shape)
    groups = max(1, round(layer.density * config.groups_dense))
    if not layer.depthwise:
        weights = prune_weights(weights, groups, config)
    # Random sums spread like the root of their length; this brings most of them into int8's range.
    spread = 74.0 * 74.0 * np.sqrt(np.count_nonzero(weights[0]))
    multiplier, shift = quantize_multiplier(np.full(layer.outputs, 40.0 / spread))
    conv = Conv(
        name=layer.name, input=source.name, output=target.name, weights=weights,
        depthwise=layer.depthwise, stride=(layer.stride, layer.stride),
        pads=(pad, pad, pad, pad), requantize=Requantize(
            bias=rng.integers(-9999, 9999, layer.outputs), multiplier=multiplier, shift=shift,
            zero_point=target.zero_point, low=-128, high=127))
    graph = Graph(name=layer.name, tensors={t.name: t for t in (source, target)}, layers=[conv],
                  inputs={"input": (source.name, ())}, outputs={"output": (target.name, ())})
    verify(graph)
    return graph


def bus_bound(layer: LayerBenchmark, config: NpuConfig) -> int:
    """Cycles that the bus needs at least: every input beat read once, every output beat written once, side by side."""
    output = output_size(layer.size, layer.kernel, layer.stride, layer.kernel // 2, layer.kernel // 2)
    blocks = [-(-channels // config.ic_lanes) for channels in (layer.channels, layer.outputs)]
    return max(blocks[0] * layer.size ** 2, blocks[1] * output ** 2)


def measure_layer(layer: LayerBenchmark, machine: RtlMachine, *, depthwise_mode: DepthwiseMode = "auto",
                  gather_mode: GatherMode = "auto", winograd_mode: WinogradMode = "auto", seed: int = 0) -> Measurement:
    """Run a layer on the RTL: from the write to START until DONE, transfers of weights and activations included."""
    graph = conv_graph(layer, machine.config, seed=seed)
    program, graph = compile_graph(graph, machine.config, depthwise_mode=depthwise_mode, gather_mode=gather_mode,
                                   winograd_mode=winograd_mode)
    shape = graph.tensors["input"].shape
    inputs = np.random.default_rng(seed + 1).integers(-128, 128, (1, *shape)).astype(np.int8)
    expected, _ = run_reference(graph, {"input": inputs})
    image = program.image()
    program.pack_input(image, "input", inputs[0])
    result = run_program(machine.config, program.code, image, write_start=program.write_start, machine=machine)
    got = program.unpack_tensor(result.image, "output")
    return Measurement(program, result, int(np.count_nonzero(got != expected["output"][0])))
