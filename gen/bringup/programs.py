"""Small programs for the engines of a machine, each by itself, with what the golden model makes of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from cores.arch.instruction import Instruction, decode
from cores.arch.isa import INSTRUCTION_BYTES, Opcode, StepKind
from cores.config import NpuConfig
from cores.device import driver_machine
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.leaky import Leaky
from gen.ir.epilogue.multiply import Multiply
from gen.ir.epilogue.table import Table
from gen.ir.errors import CompileError
from gen.ir.graph import Conv, Graph, Pool, output_size
from gen.ir.tensor import Requantize, Tensor
from gen.mapping.winograd.narrow import SAFE_SHIFTS
from gen.options import CompileOptions
from gen.passes.prune import prune_weights
from npudriver import layout
from npudriver.bringup import BringUp, Trial
from sim.golden import quantize_multiplier, quantize_product, quantize_residual
from sim.stochastic.streams import Streams

__all__ = ["PLANS", "Plan", "bring_up"]

#: Rows and columns of the feature maps: pairs of pixels, and of tiles, are not all whole.
_SIZE = 9
#: Of the pattern that is only copied: as many beats as find stuck address lines.
_LOOP = 32
#: Steps of int8 that most results spread over.
_SPREAD = 40.0
_LAYER = "layer"


@dataclass(eq=False)
class _Builder:
    """Layers with seeded weights, one after the other. All tensors have zero point 0 and scale 1."""

    config: NpuConfig
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(31))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: list[Conv | Pool] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, int, int], *, signs: bool = False) -> Tensor:
        self.tensors[name] = Tensor(name, shape, 1.0, 0, signs=signs)
        return self.tensors[name]

    def input(self, channels: int, size: int = _SIZE, name: str = "input") -> Tensor:
        self.inputs.append(name)
        return self.tensor(name, (channels, size, size))

    def _stage(self, channels: int, scale: float, bias: float = 0.0, low: int = -128) -> Requantize:
        biases = self.rng.integers(-int(bias), int(bias) + 1, channels)
        return Requantize(biases.astype(np.int64), *quantize_multiplier(np.full(channels, scale)), 0, low, 127)

    def conv(self, source: Tensor, outputs: int, kernel: int, *, depthwise: bool = False, binary: bool = False,
             groups: int = 0, largest: int = 127, name: str = "output") -> Tensor:
        """A convolution with padding, of all weights up to the ``largest``, or of -1 and 1; with so few ``groups`` of a
        block's weights, if any, that they carry indices.
        """
        channels, pad = source.shape[0], kernel // 2
        shape = (outputs, 1 if depthwise else channels, kernel, kernel)
        weights = (self.rng.choice([-1, 1], shape) if binary
                   else self.rng.integers(-largest, largest + 1, shape)).astype(np.int16)
        if groups:
            weights = prune_weights(weights, groups, self.config)
        spread = (1.0 if binary else 74.0 * 74.0 * largest / 127) * np.sqrt(np.count_nonzero(weights[0]))
        self.layers.append(Conv(
            name=_LAYER if name == "output" else name, input=source.name, output=name, weights=weights,
            depthwise=depthwise, pads=(pad,) * 4, requantize=self._stage(outputs, _SPREAD / spread, spread)))
        return self.tensor(name, (outputs, *source.shape[1:]))

    def pool(self, source: Tensor, maximum: bool, kernel: int = 1, stride: int = 1, *,
             epilogue: tuple[StoreOp, ...] = ()) -> Tensor:
        """Windows without padding; single pixels are a copy, with an ``epilogue``."""
        size = output_size(source.shape[1], kernel, stride, 0, 0)
        self.layers.append(Pool(
            name=_LAYER, input=source.name, output="output", maximum=maximum, kernel=(kernel, kernel),
            stride=(stride, stride), epilogue=epilogue,
            requantize=self._stage(source.shape[0], 1.0 if maximum else 1 / kernel ** 2)))
        return self.tensor("output", (source.shape[0], size, size))

    def signs(self, source: Tensor) -> Tensor:
        """-1 and 1, by the sign of each value."""
        channels = source.shape[0]
        stage = Requantize(np.zeros(channels, np.int64), np.full(channels, 1 << 16), np.full(channels, 15), 1, -1, 1)
        self.layers.append(Pool(name="signs", input=source.name, output="signs", maximum=False, pad_value=0,
                                requantize=stage))
        return self.tensor("signs", source.shape, signs=True)

    def graph(self, name: str) -> Graph:
        return Graph(name=name, tensors=self.tensors, layers=self.layers,
                     inputs={name: (name, ()) for name in self.inputs}, outputs={"output": ("output", ())})


def _loop(b: _Builder) -> None:
    b.pool(b.input(b.config.ic_lanes, _LOOP), True)


def _maximum(b: _Builder) -> None:
    b.pool(b.input(2 * b.config.ic_lanes), True, 3, 2)


def _sum(b: _Builder) -> None:
    b.pool(b.input(2 * b.config.ic_lanes), False, 3, 2)


def _dense(b: _Builder) -> None:
    b.conv(b.input(2 * b.config.ic_lanes), b.config.oc_lanes, 3)


def _sparse(b: _Builder) -> None:
    b.conv(b.input(2 * b.config.ic_lanes), b.config.oc_lanes, 3, groups=1)


def _int4(b: _Builder) -> None:
    b.conv(b.input(2 * b.config.ic_lanes), b.config.oc_lanes, 3, largest=7)


def _depthwise(b: _Builder) -> None:
    source = b.input(b.config.oc_lanes)
    b.conv(source, source.shape[0], 3, depthwise=True)


def _gather(b: _Builder) -> None:
    """Of so few channels that gathering is the faster way on every preset."""
    b.conv(b.input(2), b.config.oc_lanes, 5)


def _fusion(b: _Builder) -> None:
    source = b.input(b.config.oc_lanes)
    b.conv(b.conv(source, source.shape[0], 3, depthwise=True, name="middle"), b.config.oc_lanes, 1)


def _maxima(b: _Builder) -> None:
    b.pool(b.conv(b.input(2 * b.config.ic_lanes), b.config.oc_lanes, 3, name="middle"), True, 2, 2)


def _binary(b: _Builder) -> None:
    b.conv(b.signs(b.input(8 * b.config.ic_lanes)), b.config.oc_lanes, 3, binary=True)


def _wide(b: _Builder) -> None:
    """Winograd and streams: padding must be the zero point, as it is."""
    b.conv(b.input(2 * b.config.ic_lanes), b.config.oc_lanes, 3)


def _second(make: Callable[[_Builder, Tensor], StoreOp]) -> Callable[[_Builder], None]:
    def build(b: _Builder) -> None:
        source = b.input(2 * b.config.ic_lanes)
        b.pool(source, True, epilogue=(make(b, Tensor("middle", source.shape, 1.0, 0)),))
    return build


def _add(b: _Builder, middle: Tensor) -> StoreOp:
    multiplier_a, multiplier_b, shift = quantize_residual(0.7, 0.4)
    return Add(middle=middle, other=b.input(middle.shape[0], name="other").name, multiplier_a=multiplier_a,
               multiplier_b=multiplier_b, constant=0, shift=shift, zero_point=3, low=-128, high=127)


def _multiply(b: _Builder, middle: Tensor) -> StoreOp:
    multiplier, shift = quantize_product(0.02)
    return Multiply(middle=middle, other=b.input(middle.shape[0], name="other").name, multiplier=multiplier,
                    constant=0, shift=shift, zero_point=-3, low=-128, high=127)


def _leaky(b: _Builder, middle: Tensor) -> StoreOp:
    return Leaky(middle=middle, multiplier=1 << 15, negative=1 << 12, shift=15, zero_point=0, low=-128, high=127)


def _table(b: _Builder, middle: Tensor) -> StoreOp:
    return Table(middle=middle, values=b.rng.permutation(np.arange(-128, 128)).astype(np.int8))


def _always(config: NpuConfig) -> bool:
    return True


def _operation(opcode: Opcode, field: str = "", value: int = 1) -> Callable[[Instruction], bool]:
    """Whether an instruction is of an operation, and with a field of that value if one is named."""
    return lambda one: one.opcode is opcode and (not field or one[field] == value)


def _steps(kind: StepKind) -> Callable[[Instruction], bool]:
    return _operation(Opcode.COMPUTE, "kind", kind)


@dataclass(frozen=True)
class Plan:
    """A program of the engine ``name``: what it does, its graph, an instruction that shows that it does that, which
    machines have it, and how it is compiled.
    """

    name: str
    text: str
    build: Callable[[_Builder], None]
    uses: Callable[[Instruction], bool]
    has: Callable[[NpuConfig], object] = _always
    options: Callable[[NpuConfig], CompileOptions] = lambda config: CompileOptions()


def _tiles(config: NpuConfig) -> CompileOptions:
    """The form that the machine has."""
    if config.winograd == 1:
        return CompileOptions(winograd_shifts={_LAYER: SAFE_SHIFTS})
    return CompileOptions(winograd="exact")


_POOL, _COMPUTE = _operation(Opcode.POOL), _operation(Opcode.COMPUTE)

#: From what needs least of the machine to what needs most; another engine is one entry.
PLANS: Sequence[Plan] = (
    Plan("loop", "copies a pattern through memory: load, pool and store, no COMPUTE", _loop, _POOL),
    Plan("maximum", "the pool unit's maximum of 3x3 windows", _maximum, _POOL),
    Plan("sum", "the pool unit's mean of 3x3 windows", _sum, _POOL),
    Plan("add", "the store's sum of two tensors", _second(_add), _operation(Opcode.STORE_ADD)),
    Plan("leaky", "the store's factor of negative values", _second(_leaky), _operation(Opcode.STORE_LEAKY)),
    Plan("table", "the store's table", _second(_table), _operation(Opcode.STORE_TABLE), lambda config: config.table),
    Plan("product", "the store's product of two tensors", _second(_multiply), _operation(Opcode.STORE_MULTIPLY),
         lambda config: config.product),
    Plan("dense", "the multipliers, with dense weights", _dense, _steps(StepKind.DENSE)),
    Plan("sparse", "the multipliers, with weights that carry indices", _sparse, _steps(StepKind.INDEXED),
         lambda config: config.groups_dense > 1),
    Plan("int4", "the multipliers, with weights of four bits", _int4, _steps(StepKind.INT4),
         lambda config: config.int4),
    Plan("depthwise", "the multipliers, channel by channel", _depthwise, _COMPUTE),
    Plan("gather", "loads that gather bytes", _gather, _operation(Opcode.LOAD_GATHER), lambda config: config.gather),
    Plan("fusion", "stores into the input buffer", _fusion, _operation(Opcode.STORE_SET, "local"),
         lambda config: config.local_store),
    Plan("maxima", "the store's maxima of 2x2 sums", _maxima, _operation(Opcode.STORE_MAXIMUM),
         lambda config: config.maximum),
    Plan("binary", "the binary unit", _binary, _steps(StepKind.BINARY), lambda config: config.binary_rows),
    Plan("winograd", "the Winograd unit", _wide, _operation(Opcode.LOAD_WINOGRAD), lambda config: config.winograd,
         _tiles),
    Plan("streams", "the stochastic unit", _wide, _steps(StepKind.STOCHASTIC), lambda config: config.stochastic_rows,
         lambda config: CompileOptions(stochastic={_LAYER: Streams(64)})),
)


def bring_up(config: NpuConfig) -> BringUp:
    """The programs of a machine, but for those that it has no room for, or has a faster way for without the engine."""
    trials = []
    for plan in PLANS:
        if plan.has(config):
            with suppress(CompileError):
                trial = _trial(plan, config)
                if any(plan.uses(one) for one in _decoded(trial)):
                    trials.append(trial)
    return BringUp(driver_machine(config), trials)


def _decoded(trial: Trial) -> Iterator[Instruction]:
    for start in range(0, len(trial.code), INSTRUCTION_BYTES):
        yield decode(trial.code[start:start + INSTRUCTION_BYTES])


def _trial(plan: Plan, config: NpuConfig) -> Trial:
    builder = _Builder(config)
    plan.build(builder)
    # What is to be found lies where nothing else did.
    options = replace(plan.options(config), keep_all=True)
    program, graph = compile_graph(builder.graph(plan.name), config, options)
    inputs = _inputs(builder)
    _, values = reference.run(graph, inputs, keep=True)
    assert values is not None
    image = program.image()
    for name, value in inputs.items():
        program.pack_input(image, name, value[0])
    place, beat = program.tensors["output"], config.beat_bytes
    expected = layout.pack(values["output"][0], beat, interleaved=place.interleaved)
    end = max(program.tensors[name].offset + program.tensors[name].beats(beat) for name in inputs)
    channels, rows, cols = place.shape
    return Trial(
        name=plan.name, text=plan.text, code=program.code, data=image[:end * beat].tobytes(),
        data_beats=program.data_beats, write_start=program.write_start, output=place.offset,
        shape=(-(-channels // beat), rows, cols), expected=expected.tobytes(),
        source=program.tensors["input"].offset if plan.build is _loop else -1)


def _inputs(builder: _Builder) -> Mapping[str, np.ndarray]:
    """(1, C, H, W) int8 of each."""
    return {name: builder.rng.integers(-128, 128, (1, *builder.tensors[name].shape)).astype(np.int8)
            for name in builder.inputs}
