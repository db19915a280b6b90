"""BiRealNet-18 with seeded weights: binary layers between int8 shortcuts, against the same network in int8."""

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from cores.arch.isa import EntryForm, Opcode
from gen.bench.comparisons import Case, Comparison, Goal, compare
from gen.bench.layers import Measurement, measure_graph
from gen.ir.epilogue.add import Add
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.program.program import Program
from sim.golden import quantize_multiplier, quantize_residual
from sim.rtl.machine import RtlMachine

__all__ = ["LAYERS", "BinaryLayer", "binary_layers", "bireal_graph", "bireal_network", "layer_graph",
           "takes_pairs"]


@dataclass(frozen=True, kw_only=True)
class BinaryLayer:
    """A 3x3 layer of the network: signs of an int8 tensor, an int8 shortcut added; ``count`` of them."""

    channels: int
    outputs: int
    size: int
    stride: int
    count: int

    @property
    def name(self) -> str:
        return f"3x3 {self.channels}->{self.outputs} {self.size}x{self.size} / {self.stride}"

    @property
    def goal(self) -> Goal | None:
        """Entries hold 8 * tn channels: with fewer, bits of them stay unused, in pairs of taps too."""
        return Goal("times", 7.5) if self.channels >= 128 else None


LAYERS: tuple[BinaryLayer, ...] = (
    BinaryLayer(channels=64, outputs=64, size=56, stride=1, count=4),
    BinaryLayer(channels=64, outputs=128, size=56, stride=2, count=1),
    BinaryLayer(channels=128, outputs=128, size=28, stride=1, count=3),
    BinaryLayer(channels=128, outputs=256, size=28, stride=2, count=1),
    BinaryLayer(channels=256, outputs=256, size=14, stride=1, count=3),
    BinaryLayer(channels=256, outputs=512, size=14, stride=2, count=1),
    BinaryLayer(channels=512, outputs=512, size=7, stride=1, count=3),
)

#: Steps of int8 that most results spread over.
_SPREAD = 40.0


@dataclass(eq=False)
class _Builder:
    """Layers with seeded weights whose results use int8's range; 3x3 layers in int8 unless ``binary``."""

    rng: np.random.Generator
    binary: bool
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: list[Conv | Pool] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, int, int], *, signs: bool = False) -> Tensor:
        self.tensors[name] = Tensor(name, shape, 1.0, 0, signs=signs)
        return self.tensors[name]

    def _stage(self, scale: float, bias: np.ndarray, low: int = -128) -> Requantize:
        multiplier, shift = quantize_multiplier(np.full(len(bias), scale))
        return Requantize(bias.astype(np.int64), multiplier, shift, 0, low, 127)

    def conv(self, name: str, source: Tensor, outputs: int, kernel: int, stride: int, *, low: int = -128) -> Tensor:
        """An int8 layer."""
        pad, channels = kernel // 2, source.shape[0]
        height, width = (output_size(n, kernel, stride, pad, pad) for n in source.shape[1:])
        target = self.tensor(name, (outputs, height, width))
        weights = self.rng.integers(-127, 128, (outputs, channels, kernel, kernel)).astype(np.int16)
        spread = 74.0 * 50 * np.sqrt(weights[0].size)
        self.layers.append(Conv(name, source.name, name, weights=weights, stride=(stride, stride), pads=(pad,) * 4,
                                requantize=self._stage(
                                    _SPREAD / spread, self.rng.normal(0, spread / 4, outputs), low)))
        return target

    def pool(self, name: str, source: Tensor, maximum: bool, kernel: int, stride: int, pad: int) -> Tensor:
        height, width = (output_size(n, kernel, stride, pad, pad) for n in source.shape[1:])
        target = self.tensor(name, (source.shape[0], height, width))
        scale = 1.0 if maximum else 1 / kernel ** 2
        self.layers.append(Pool(name, source.name, name, maximum=maximum, kernel=(kernel, kernel),
                                stride=(stride, stride), pads=(pad,) * 4, pad_value=-128 if maximum else 0,
                                requantize=self._stage(scale, np.zeros(source.shape[0]))))
        return target

    def block(self, name: str, source: Tensor, outputs: int, stride: int, shortcut: Tensor) -> Tensor:
        """A 3x3 layer with its shortcut."""
        channels = source.shape[0]
        height, width = (output_size(n, 3, stride, 1, 1) for n in source.shape[1:])
        target = self.tensor(name, (outputs, height, width))
        if self.binary:
            signs = self.tensor(f"{name}/sign", source.shape, signs=True)
            two = np.full(channels, 1 << 16), np.full(channels, 15)
            self.layers.append(Pool(signs.name, source.name, signs.name, maximum=False, pad_value=0,
                                    requantize=Requantize(np.zeros(channels, np.int64), *two, 1, -1, 1)))
            source, spread = signs, np.sqrt(9.0 * channels)
            weights = self.rng.choice(np.array([-1, 1], np.int16), (outputs, channels, 3, 3))
        else:
            weights = self.rng.integers(-127, 128, (outputs, channels, 3, 3)).astype(np.int16)
            spread = 74.0 * 50 * np.sqrt(9.0 * channels)
        bias = self.rng.normal(0, spread / 4, outputs)
        multiplier_a, multiplier_b, shift = quantize_residual(0.7, 0.7)
        added = Add(middle=Tensor(f"{name}/middle", target.shape, 1.0, 0), other=shortcut.name,
                    multiplier_a=multiplier_a, multiplier_b=multiplier_b, constant=0, shift=shift, zero_point=0,
                    low=-128, high=127)
        self.layers.append(Conv(name, source.name, name, weights=weights, stride=(stride, stride), pads=(1,) * 4,
                                requantize=self._stage(_SPREAD / spread, bias), epilogue=(added,)))
        return target

    def graph(self, name: str, inputs: list[str], output: Tensor) -> Graph:
        graph = Graph(name, self.tensors, tuple(self.layers), {n: (n, ()) for n in inputs},
                      {"output": (output.name, ())})
        verify(graph)
        return graph


def bireal_graph(*, binary: bool = True, size: int = 224, seed: int = 0) -> Graph:
    """The network for images of ``size``; all of it in int8 unless ``binary``."""
    b = _Builder(np.random.default_rng(seed), binary)
    x = b.conv("conv1", b.tensor("image", (3, size, size)), 64, 7, 2)
    x = b.pool("pool", x, True, 3, 2, 1)
    for stage, channels in enumerate((64, 128, 256, 512), start=1):
        for number in range(4):
            name = f"layer{stage}.{number // 2}.conv{number % 2 + 1}"
            stride, shortcut = 1, x
            if stage > 1 and number == 0:
                stride = 2
                shortcut = b.conv(f"{name}/shortcut", b.pool(f"{name}/average", x, False, 2, 2, 0), channels, 1, 1)
            x = b.block(name, x, channels, stride, shortcut)
    x = b.conv("fc", b.pool("average", x, False, x.shape[1], 1, 0), 1000, 1, 1)
    return b.graph(f"BiRealNet-18 {size}", ["image"], x)


def layer_graph(layer: BinaryLayer, *, binary: bool = True, seed: int = 0) -> Graph:
    """One layer by itself, from the int8 tensor whose signs it takes to the int8 sum."""
    b = _Builder(np.random.default_rng(seed), binary)
    source = b.tensor("input", (layer.channels, layer.size, layer.size))
    if (layer.channels, layer.stride) == (layer.outputs, 1):
        return b.graph(layer.name, ["input"], b.block("output", source, layer.outputs, 1, source))
    size = output_size(layer.size, 3, layer.stride, 1, 1)
    shortcut = b.tensor("shortcut", (layer.outputs, size, size))
    return b.graph(layer.name, ["input", "shortcut"], b.block("output", source, layer.outputs, layer.stride, shortcut))


def _ideal(measured: Measurement) -> float:
    """Cycles with all lanes of the array and of the unit at useful work."""
    config = measured.program.config
    return sum(layer.macs / (config.binary_macs if layer.mode == "binary" else config.macs)
               for layer in measured.program.layers)


def binary_layers() -> list[Case]:
    """The network's 3x3 layers, each alone: int8 weights of the same shape, and binary from int8 to int8."""
    return [Case(layer.name, partial(_binary_layer, layer)) for layer in LAYERS]


def takes_pairs(program: Program) -> bool:
    """Whether a layer of the program has entries of two pixels."""
    return any(one.opcode == Opcode.LOAD_SET and one["form"] == EntryForm.SIGN_PAIRS for one in program.instructions)


def _binary_layer(layer: BinaryLayer, machine: RtlMachine) -> Comparison:
    dense = measure_graph(layer_graph(layer, binary=False), machine)
    binary = measure_graph(layer_graph(layer), machine)
    bits = machine.config.binary_bits
    if takes_pairs(binary.program):
        remark = "nine taps take twelve halves of entries"
    else:
        remark = "" if layer.channels >= bits else f"{layer.channels} of the {bits} bits of an entry are used"
    return compare(layer.name, dense, binary, _ideal(binary), goal=layer.goal, remark=remark)


def bireal_network() -> Case:
    """The whole network on an image of 224 x 224, first and last layers in int8."""
    return Case("BiRealNet-18, 224x224", _bireal_network)


def _bireal_network(machine: RtlMachine) -> Comparison:
    dense = measure_graph(bireal_graph(binary=False), machine)
    binary = measure_graph(bireal_graph(), machine)
    return compare(bireal_network().layer, dense, binary, _ideal(binary),
                   remark="first and last layer, shortcuts and pools are int8 in both")
