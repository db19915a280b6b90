"""What is timed and compared with published figures: single layers with seeded weights."""

from dataclasses import dataclass, replace

import numpy as np

from cores.config import NpuConfig
from gen.compiler import compile_graph
from gen.ir.graph import Conv, Graph, output_size
from gen.ir.parts import without_gaps
from gen.ir.reference import run as run_reference
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.options import CompileOptions
from gen.passes.prune import prune_weights
from gen.program.program import Program
from sim.golden import quantize_multiplier
from sim.rtl.machine import RtlMachine
from sim.rtl.run import RtlResult, run_program

__all__ = ["DEPTHWISE", "FEW_CHANNELS", "LAYERS", "PAIRS", "LayerBenchmark", "Measurement", "bus_bound", "conv_graph",
           "measure_graph", "measure_layer"]


@dataclass(frozen=True, kw_only=True)
class LayerBenchmark:
    """A convolution padded by half its kernel or by ``pads`` (top, left, bottom, right); ``goal`` is for 256 MACs.

    ``size`` and ``kernel`` are square or (rows, columns). ``density`` is the share of weights kept.
    """

    name: str
    channels: int
    outputs: int
    size: int | tuple[int, int]
    kernel: int | tuple[int, int]
    pads: tuple[int, int, int, int] | None = None
    density: float = 1.0
    stride: int = 1
    depthwise: bool = False
    goal: float | None = None
    peer: str = ""

    @property
    def input_size(self) -> tuple[int, int]:
        return _pair(self.size)

    @property
    def kernel_size(self) -> tuple[int, int]:
        return _pair(self.kernel)

    @property
    def padding(self) -> tuple[int, int, int, int]:
        rows, cols = (extent // 2 for extent in self.kernel_size)
        return (rows, cols, rows, cols) if self.pads is None else self.pads

    @property
    def output_size(self) -> tuple[int, int]:
        top, left, bottom, right = self.padding
        return (output_size(self.input_size[0], self.kernel_size[0], self.stride, top, bottom),
                output_size(self.input_size[1], self.kernel_size[1], self.stride, left, right))


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


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

#: Goals are of what the multipliers could make from start to done. The last one is the keyword model's.
FEW_CHANNELS: tuple[LayerBenchmark, ...] = (
    LayerBenchmark(name="3x3 3->32 224x224 / 2", channels=3, outputs=32, size=224, kernel=3, stride=2, goal=0.8),
    LayerBenchmark(name="7x7 3->64 224x224 / 2", channels=3, outputs=64, size=224, kernel=7, stride=2, goal=0.8),
    LayerBenchmark(name="3x3 1->32 96x96 / 1", channels=1, outputs=32, size=96, kernel=3),
    LayerBenchmark(name="10x4 1->64 49x10 / 2", channels=1, outputs=64, size=(49, 10), kernel=(10, 4), stride=2,
                   pads=(4, 1, 5, 1)),
)

#: Depthwise layers, each with the pointwise one after it.
PAIRS: tuple[tuple[LayerBenchmark, LayerBenchmark], ...] = tuple(
    (LayerBenchmark(name="depthwise", channels=channels, outputs=channels, size=size, kernel=3, stride=stride,
                    depthwise=True),
     LayerBenchmark(name=f"3x3 and 1x1, {channels}->{outputs} {size}x{size} / {stride}", channels=channels,
                    outputs=outputs, size=-(-size // stride), kernel=1))
    for channels, outputs, size, stride in (
        (256, 256, 14, 1), (512, 512, 14, 1), (32, 64, 112, 1), (64, 128, 112, 2)))


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


def conv_graph(*layers: LayerBenchmark, config: NpuConfig, seed: int = 0) -> Graph:
    """A graph of just these convolutions, one after the other, with seeded weights all over int8."""
    rng = np.random.default_rng(seed)
    source = Tensor("input", (layers[0].channels, *layers[0].input_size), 1.0, 3)
    tensors, convolutions = {source.name: source}, []
    for number, layer in enumerate(layers, start=1):
        last = number == len(layers)
        target = Tensor("output" if last else f"middle{number}", (layer.outputs, *layer.output_size), 1.0, -5)
        tensors[target.name] = target
        inputs = 1 if layer.depthwise else layer.channels
        weights = rng.integers(1, 128, (layer.outputs, inputs, *layer.kernel_size)).astype(np.int16)
        weights *= rng.choice(np.array([-1, 1], np.int16), weights.shape)
        groups = max(1, round(layer.density * config.groups_dense))
        if not layer.depthwise:
            weights = prune_weights(weights, groups, config)
        # Random sums spread like the root of their length; this brings most of them into int8's range.
        spread = 74.0 * 74.0 * np.sqrt(np.count_nonzero(weights[0]))
        multiplier, shift = quantize_multiplier(np.full(layer.outputs, 40.0 / spread))
        convolutions.append(Conv(
            name=layer.name, input=source.name, output=target.name, weights=weights, depthwise=layer.depthwise,
            stride=(layer.stride, layer.stride), pads=layer.padding,
            requantize=Requantize(bias=rng.integers(-9999, 9999, layer.outputs), multiplier=multiplier, shift=shift,
                                  zero_point=target.zero_point, low=-128, high=127)))
        source = target
    graph = Graph(name=layers[-1].name, tensors=tensors, layers=convolutions, inputs={"input": ("input", ())},
                  outputs={"output": ("output", ())})
    verify(graph)
    return graph


def bus_bound(layer: LayerBenchmark, config: NpuConfig) -> int:
    """Cycles that the bus needs at least: every input beat read once, every output beat written once, side by side."""
    blocks = [-(-channels // config.ic_lanes) for channels in (layer.channels, layer.outputs)]
    return max(count * rows * cols
               for count, (rows, cols) in zip(blocks, (layer.input_size, layer.output_size), strict=True))


def measure_graph(graph: Graph, machine: RtlMachine, *, seed: int = 0,
                  options: CompileOptions | None = None) -> Measurement:
    """Run a graph on the RTL with random inputs: from the write to START until DONE.

    Every value in memory is compared with the reference.
    """
    program, graph = compile_graph(graph, machine.config, replace(options or CompileOptions(), keep_all=True))
    rng = np.random.default_rng(seed + 1)
    inputs = {name: rng.integers(-128, 128, (1, *graph.tensors[tensor].shape)).astype(np.int8)
              for name, (tensor, _) in graph.inputs.items()}
    _, expected = run_reference(graph, inputs, keep=True)
    assert expected is not None
    image = program.image()
    for name, values in inputs.items():
        program.pack_input(image, name, values[0])
    result = run_program(machine, program.code, image, write_start=program.write_start)
    wrong = 0
    for layer in graph.layers:
        if layer.output in program.tensors:
            other = program.unpack_tensor(result.image, layer.output) != expected[layer.output][0]
            wrong += int(np.count_nonzero(without_gaps(graph.tensors[layer.output], other)))
    return Measurement(program, result, wrong)


def measure_layer(*layers: LayerBenchmark, machine: RtlMachine, seed: int = 0,
                  options: CompileOptions | None = None) -> Measurement:
    """Run layers, one after the other, by themselves; see `measure_graph`."""
    return measure_graph(conv_graph(*layers, config=machine.config, seed=seed), machine, seed=seed, options=options)
