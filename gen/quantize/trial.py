"""What ranges cost at the outputs: a quantised model whose scales are inputs, so that one session tries them all."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType

from gen.onnx.index import GraphIndex
from gen.onnx.runtime import OnnxruntimeError, RuntimeModel, float_outputs
from gen.onnx.scores import answers
from gen.quantize.groups import ChannelNoise, channel_axis
from gen.quantize.options import QuantizeError
from gen.quantize.plan import Plan
from gen.quantize.prepare import initializers
from gen.quantize.sessions import Samples, part_of, values_of

__all__ = ["Judges", "Trial", "decibels"]

#: A share of noise that is none.
_NOTHING = 1e-30
#: Bits of an activation.
_BITS = 8
#: Operators after whose results little is to be seen of what is in front of them.
_SQUASHING = ("Softmax", "LogSoftmax")


class Judges:
    """The float model on samples that ranges are not from, and what another one loses against it.

    ``names``: the values that are looked at: the float outputs, but of a Softmax its input, as a probability of 1 hides
    what its score has become. ``answers`` (N, places): of the first output.
    """

    def __init__(self, reference: onnx.ModelProto, samples: Samples) -> None:
        index = GraphIndex(reference)
        self.samples = samples
        outputs = float_outputs(reference)
        makers = [index.made(name, *_SQUASHING) for name in outputs]
        self.names = tuple(dict.fromkeys(name if maker is None else maker.input[0]
                                         for name, maker in zip(outputs, makers, strict=True)))
        self._first = outputs[:1]
        self._exact = [[values[name] for name in (*self.names, *self._first)]
                       for values in values_of(reference, list(dict.fromkeys((*self.names, *self._first))), samples)]
        self._groups = [_groups(column) for column in zip(*self._exact, strict=True)][:len(self.names)]
        self.answers = [answers(values[-1]) for values in self._exact] if self._first else []

    def __len__(self) -> int:
        return len(self._exact)

    @property
    def wanted(self) -> list[str]:
        """The values that `losses` takes, in their order."""
        return [*self.names, *self._first]

    def losses(self, found: Iterable[Sequence[np.ndarray]]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Of the ``wanted`` values of each sample: (N,) the noise as a share of the signal, the geometric mean of all
        outputs and their groups of channels, so that none hides what becomes of the others; and the answers.
        """
        losses, said = [], []
        for exact, values in zip(self._exact, found, strict=False):
            shares = [share for one, other, weights in zip(exact, values, self._groups, strict=False)
                      for share in _shares(one, other, weights)]
            losses.append(np.exp(np.mean(np.log(np.maximum(shares, _NOTHING)))) if any(shares) else 0.0)
            said.append(answers(values[-1]))
        return np.array(losses), said


def decibels(loss: float, unit: str = "") -> str:
    """A share of noise, for people; ``unit``: what is written after a number."""
    if 0 < loss < np.inf:
        return f"{-10 * np.log10(loss):.1f}{unit}"
    return "no noise" if loss == 0 else "nothing but noise"


def _groups(exact: Sequence[np.ndarray]) -> list[np.ndarray]:
    """For each group of channels of like size of an output, factors that make noise energy a share of the energy that a
    sample has in it; they are 0 for other channels.
    """
    energy = float(np.mean([np.vdot(values, values) for values in exact]))
    noises = ChannelNoise()
    for values in exact:
        noises.add(values, np.zeros_like(values))
    groups = [group for group in noises.groups() if group.rms]
    axis = channel_axis(exact[0].shape)
    if len(groups) < 2 or axis is None:
        return [np.array(1 / energy if energy else 1.0)]
    found = []
    others = exact[0].size // exact[0].shape[axis]
    for group in groups:
        places = np.concatenate([np.arange(first, last + 1) for first, last in group.channels])
        weights = np.zeros(exact[0].shape[axis])
        weights[places] = 1 / (group.rms ** 2 * len(places) * others)
        found.append(weights.reshape([-1 if place == axis else 1 for place in range(exact[0].ndim)]))
    return found


def _shares(exact: np.ndarray, found: np.ndarray, groups: Sequence[np.ndarray]) -> list[float]:
    if exact.shape != found.shape:
        return [1.0] * len(groups)
    noise = np.square(exact - found, dtype=np.float64)
    shares = [float((noise * weights).sum()) for weights in groups]
    return [share if np.isfinite(share) else np.inf for share in shares]


#: The inputs of a tensor: its step, and the least and largest number of steps.
_PARTS = ("step", "least", "most")


class Trial:
    """The quantised ``model`` of a plan with the scales of its activations to be given. ``wanted``: values of the float
    model; ``inputs``: names of the model's. Weights and biases are what they are there, or, with the ``reference``, may
    be its.

    Results may be other than onnxruntime's of the model by rounding of float32. Raises QuantizeError for what
    onnxruntime does not run.
    """

    def __init__(self, model: onnx.ModelProto, plan: Plan, wanted: Sequence[str], inputs: Sequence[str], *,
                 symmetric: bool = False, reference: onnx.ModelProto | None = None) -> None:
        self._symmetric = symmetric
        fed = _Fed(model, plan, {} if reference is None else initializers(reference))
        self._grids, self._rounded, self._exact, self._constants = fed.grids, fed.rounded, fed.exact, fed.names
        self._wanted = [fed.results.get(name, name) for name in wanted]
        self._made = list(dict.fromkeys(name for name in self._wanted if name not in inputs))
        self._mark = fed.mark
        known = [*inputs, *(f"{name}{fed.mark}{part}" for name in fed.grids for part in _PARTS), *fed.exact]
        part, constants = part_of(fed.model, self._made, known)
        for value in part.graph.input:
            if value.name not in inputs:
                shape = self._exact[value.name].shape if value.name in self._exact else []
                value.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))
        try:
            self._runtime = RuntimeModel(part, initializers=constants, threads=1, optimised="all")
        except OnnxruntimeError as error:
            raise QuantizeError.of(error, str(error)) from None

    def constant(self, name: str) -> str:
        """What a constant of the reference is called here, "" where there is none of it."""
        return self._constants.get(name, "")

    def run(self, samples: Samples, ranges: Mapping[str, tuple[float, float]] | None = None, *,
            bits: Mapping[str, int] | None = None, exact: Collection[str] = ()) -> Iterator[list[np.ndarray]]:
        """The wanted values of each sample, by other ``ranges`` than the model's; ``bits``: of tensors that have others
        than 8; ``exact``: constants that are those of the reference.
        """
        grids = self._grids if ranges is None else {
            name: _grid(ranges[name], self._symmetric) for name in self._grids}
        feed = {name: self._exact[name] if name in exact else self._rounded[name] for name in self._exact}
        for name, grid in grids.items():
            feed |= {f"{name}{self._mark}{part}": value for part, value in zip(
                _PARTS, _steps(*grid, (bits or {}).get(name, _BITS)), strict=True)}
        try:
            for number in range(len(next(iter(samples.values())))):
                one = {name: np.ascontiguousarray(array[number:number + 1]) for name, array in samples.items()}
                found = dict(zip(self._made, self._runtime.run({**one, **feed}, self._made), strict=True)) | one
                yield [np.asarray(found[name], np.float32) for name in self._wanted]
        except OnnxruntimeError as error:
            raise QuantizeError.of(error, str(error)) from None


def _grid(ends: tuple[float, float], symmetric: bool) -> tuple[float, int]:
    """The scale and zero point of a range, as onnxruntime's quantiser gives them."""
    low, high = (np.array(end, np.float32) for end in ends)
    point, scale = compute_scale_zp(low, high, *get_qmin_qmax_for_qType(TensorProto.INT8, symmetric=symmetric),
                                    symmetric)
    return float(scale), int(point)


def _steps(scale: float, point: int, bits: int) -> tuple[np.ndarray, ...]:
    """Values for the ``_PARTS``. Finer steps reach as far as what is rounded to the first and the last of 8 bits."""
    finer = 1 << (bits - _BITS)
    numbers = scale / finer, (-128 - point) * finer - finer // 2, (127 - point) * finer + (finer - 1) // 2
    return tuple(np.array(number, np.float32) for number in numbers)


def _mark(graph: onnx.GraphProto) -> str:
    """A part of names that no value of a graph has in its own."""
    names = {name for node in graph.node for name in (*node.input, *node.output)}
    names |= {value.name for value in (*graph.input, *graph.initializer)}
    mark = "/trial/"
    while any(mark in name for name in names):
        mark += "/"
    return mark


class _Fed:
    """A quantised model in float. ``model``: with the pairs of activations as steps of inputs, constants as numbers;
    ``results``: value of the float model -> what has become of it; ``grids``: scale and zero point of the tensors;
    ``rounded``, ``exact``: constants that are inputs, what their integers stand for and what the ``known`` are, of
    which ``names`` has what they are called. ``mark``: is in the names of what is made here, and in no other.
    """

    def __init__(self, model: onnx.ModelProto, plan: Plan, known: Mapping[str, TensorProto]) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.results: dict[str, str] = {}
        self.grids: dict[str, tuple[float, int]] = {}
        self.rounded: dict[str, np.ndarray] = {}
        self.exact: dict[str, np.ndarray] = {}
        self.names: dict[str, str] = {}
        graph, constants = self.model.graph, initializers(model)
        self.mark = mark = _mark(graph)
        roots = self._roots(plan, constants)
        nodes = []
        for node in graph.node:
            name = node.output[0]
            if node.op_type == "QuantizeLinear" and name in roots:
                nodes += [helper.make_node("Div", [node.input[0], f"{roots[name]}{mark}step"], [f"{name}{mark}steps"]),
                          helper.make_node("Round", [f"{name}{mark}steps"], [name])]
            elif node.op_type == "DequantizeLinear" and node.input[0] in roots:
                root = roots[node.input[0]]
                nodes += [helper.make_node("Clip", [node.input[0], f"{root}{mark}least", f"{root}{mark}most"],
                                           [f"{name}{mark}clipped"]),
                          helper.make_node("Mul", [f"{name}{mark}clipped", f"{root}{mark}step"], [name])]
            elif node.op_type == "DequantizeLinear" and node.input[0] in constants:
                of = next((one for one in (name, node.input[0].removesuffix("_quantized")) if one in known), "")
                numbers = _numbers(node, constants)
                if of:
                    self.rounded[name], self.exact[name] = numbers, numpy_helper.to_array(known[of])
                    self.names[of] = name
                else:
                    graph.initializer.append(numpy_helper.from_array(numbers, name))
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)

    def _roots(self, plan: Plan, constants: Mapping[str, TensorProto]) -> dict[str, str]:
        """Result of a QuantizeLinear -> the tensor of the plan whose scale it has."""
        graph, roots = self.model.graph, {}
        outputs = {value.name for value in graph.output}
        results = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
        for node in graph.node:
            if node.op_type != "QuantizeLinear":
                continue
            result = results.get(node.output[0], "")
            value = result if result in outputs else node.input[0]
            root = plan.like[value][0] if value in plan.like else value
            if root in plan.tensors:
                roots[node.output[0]], self.results[value] = root, result
                scale, point = (numpy_helper.to_array(constants[name]).item() for name in node.input[1:3])
                self.grids.setdefault(root, (scale, point))
        return roots


def _numbers(node: onnx.NodeProto, constants: Mapping[str, TensorProto]) -> np.ndarray:
    """What a constant stands for."""
    integers, scale = (numpy_helper.to_array(constants[name]) for name in node.input[:2])
    point = numpy_helper.to_array(constants[node.input[2]]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    column = [1] * integers.ndim
    if scale.size > 1:
        column[next((a.i for a in node.attribute if a.name == "axis"), 1)] = -1
    point = point.astype(np.float32).reshape(column if point.size > 1 else [1] * integers.ndim)
    scale = scale.reshape(column if scale.size > 1 else [1] * integers.ndim)
    return ((integers.astype(np.float32) - point) * scale).astype(np.float32)
