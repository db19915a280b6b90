"""How far the integer layers are from onnxruntime.

Each layer by itself: the model is cut at every tensor of the graph, and onnxruntime (all optimisations off) computes
each layer's ONNX nodes from the very inputs that the reference gave it. The whole network: onnxruntime's own run,
compared at the tensors that become the outputs, before dequantising and Softmax.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from gen.check.bounds import Bounds, thinned
from gen.ir import reference
from gen.ir.errors import GraphError
from gen.ir.graph import Graph
from gen.ir.parts import ByChannel, wholes
from gen.ir.tensor import Tensor
from gen.onnx.importer import Imported, load_model
from gen.onnx.light import without_initializers
from gen.onnx.runtime import RuntimeModel
from gen.onnx.scores import answers
from gen.quantize.groups import decibels
from gen.quantize.sessions import Progress
from sim.golden import run_stages

__all__ = ["Compared", "Comparison", "LayerDifference", "agreement_of", "compare", "compare_layers", "compare_model",
           "print_comparison", "print_layers", "sqnr", "wrong_layers"]

_CUT = "/cut"


@dataclass(frozen=True)
class LayerDifference:
    """A layer on the inputs that onnxruntime had; ``largest`` in int8 steps.

    A layer whose epilogue has an operation on a tensor of the model has two: one up to that tensor, and one whose
    ``op`` is the operation's name (`gen.ir.epilogue`), such as "add", "mul" or "table".
    A tensor that is made of parts has one of its own name, with the ``op`` "concat".

    ``allowed``: the largest difference that rounding explains of any value (`gen.check.bounds`); ``beyond``: values
    that differ by more than rounding explains of them, which is an error of the compiler. ``sqnr_db``: energy of
    onnxruntime's values, less the zero point, over that of the differences; None where nothing differs.
    """

    layer: str
    op: str
    tensor: str
    values: int
    differing: int
    largest: int
    allowed: int
    beyond: int
    sqnr_db: float | None


@dataclass(frozen=True)
class OutputDifference:
    """The whole network at the tensor of an output.

    ``distribution``: difference (ours minus onnxruntime's) -> values. ``sqnr_db``: energy of onnxruntime's values over
    that of the differences, None where nothing differs. ``agreement``: share of the answers
    (`gen.onnx.scores.answers`) that are the same. ``host_differing``: values of the output itself that differ when the
    host's steps start from onnxruntime's tensor; of an output in reals, for which there is none, all that differ.
    """

    output: str
    tensor: str
    distribution: dict[int, int]
    sqnr_db: float | None
    agreement: float
    host_differing: int


@dataclass(frozen=True)
class Compared:
    """Layers by themselves on so many samples."""

    samples: int
    layers: list[LayerDifference]

    @property
    def largest(self) -> int:
        """Largest difference of any layer by itself."""
        return max((row.largest for row in self.layers), default=0)

    @property
    def wrong(self) -> list[LayerDifference]:
        """Layers that differ by more than rounding explains, the worst first."""
        return wrong_layers(self.layers)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Comparison(Compared):
    outputs: list[OutputDifference]


def wrong_layers(rows: Iterable[LayerDifference]) -> list[LayerDifference]:
    """Those that differ by more than rounding explains, the worst first."""
    return sorted((row for row in rows if row.beyond), key=lambda row: row.allowed - row.largest)


def _to_onnx(tensor: Tensor, order: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One sample (C, H, W) int8 as the ONNX tensor's value."""
    value = x.reshape(-1)[order]
    if tensor.signs:
        return value.astype(np.float32)
    return value.view(np.uint8) ^ 128 if tensor.onnx_unsigned else value


def _from_onnx(tensor: Tensor, order: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The other way round; zero where the ONNX tensor has nothing."""
    if tensor.signs:        # of zero, too
        value = np.where(value < 0, -1, 1).astype(np.int8)
    raw = (value ^ 128).view(np.int8) if tensor.onnx_unsigned else value
    x = np.zeros(math.prod(tensor.shape), np.int8)
    x[order.ravel()] = raw.ravel()
    return x.reshape(tensor.shape)


def _value_info(name: str, tensor: Tensor, order: np.ndarray) -> onnx.ValueInfoProto:
    number = TensorProto.UINT8 if tensor.onnx_unsigned else TensorProto.FLOAT if tensor.signs else TensorProto.INT8
    return helper.make_tensor_value_info(name, number, order.shape)


def _cut(imported: Imported, read: Mapping[str, Tensor], written: Mapping[str, Tensor]) -> RuntimeModel:
    """The model with every tensor that a layer reads as an input of its own; keys are ONNX names."""
    proto = imported.model.proto
    needed, nodes = set(written), []
    for node in reversed(proto.graph.node):
        if needed.isdisjoint(node.output):
            continue
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.ClearField("input")
        copied.input.extend(name + _CUT if name in read else name for name in node.input)
        needed.update(name for name in node.input if name not in read)
        nodes.append(copied)
    inputs = [_value_info(n + _CUT, t, imported.orders[t.name]) for n, t in read.items()]
    # A float input that several nodes quantise alike is one tensor, which has the name of the first one's output.
    inputs += [value for value in proto.graph.input if value.name in needed]
    outputs = [_value_info(n, t, imported.orders[t.name]) for n, t in written.items()]
    initializers = [i for i in proto.graph.initializer if i.name in needed]
    graph = helper.make_graph(nodes[::-1], "cut", inputs, outputs)
    cut = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version,
                            functions=proto.functions)
    return RuntimeModel(cut, initializers=initializers)


def _reference_stages(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of the reference run and every middle result, (N, C, H, W) int8."""
    _, kept = reference.run(graph, inputs, keep=True)
    assert kept is not None
    for layer in graph.layers:
        if any(op.source is not None for op in layer.epilogue):
            results = run_stages(layer, kept[layer.input], [kept[name] for name in layer.reads[1:]],
                                 zero_point=graph.tensors[layer.input].zero_point)
            for op, before in zip(layer.epilogue, results, strict=False):
                if op.source is not None:
                    kept[op.source.name] = thinned(before, op.source, graph.tensors[layer.output])
    return kept


def _with_gaps(graph: Graph, joined: Iterable[str], ours: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of ``joined`` that ``ours`` lacks, as nobody reads some of their parts: these are zero."""
    arrays = ByChannel(graph.tensors)
    for name, values in ours.items():
        if name in graph.tensors and graph.tensors[name].part:
            arrays[name] = values
    return {name: arrays[name] for name in joined if name not in ours}


def compare_layers(imported: Imported, inputs: Mapping[str, np.ndarray], *,
                   progress: Progress = lambda done, total, what: None) -> list[LayerDifference]:
    """Every layer by itself, on samples ``inputs`` (model input -> (N, ...)). Raises GraphError as `compare_model`."""
    return _compare_layers(imported, inputs, _reference_stages(imported.graph, inputs), progress)


def _compare_layers(imported: Imported, inputs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray],
                    progress: Progress) -> list[LayerDifference]:
    graph = imported.graph
    joined = dict.fromkeys(whole for layer in graph.layers for whole in wholes(graph.tensors, layer.output)
                           if graph.tensors[whole].onnx_name)
    results = _results(graph) + [(name, "concat", graph.tensors[name]) for name in joined if name in ours]
    ours = {**_with_gaps(graph, joined, ours), **ours}
    sources = {t.onnx_name: t for t in (*graph.tensors.values(), *(t for *_, t in results))
               if t.onnx_name and t.name in ours}
    if not results:     # all of it are tensors that the model does not have
        return []
    bounds = Bounds(graph, ours)
    written = {tensor.onnx_name: _Difference(tensor, bounds[tensor.name]) for *_, tensor in results}
    runtime = _cut(imported, sources, {name: found.tensor for name, found in written.items()})
    samples = len(next(iter(ours.values())))
    for sample in range(samples):
        progress(sample, samples, "layers")
        feed = {n + _CUT: _to_onnx(t, imported.orders[t.name], ours[t.name][sample])
                for n, t in sources.items() if n + _CUT in runtime.inputs}
        feed |= {n: np.ascontiguousarray(x[sample:sample + 1]) for n, x in inputs.items()}
        for found, value in zip(written.values(), runtime.run(feed, list(written)), strict=True):
            found.add(imported.orders[found.tensor.name], ours[found.tensor.name], sample, value)
    return [written[tensor.onnx_name].row(name, op) for name, op, tensor in results]


def _results(graph: Graph) -> list[tuple[str, str, Tensor]]:
    """Layer, operator and tensor of each layer's rows: of what stands for a tensor of the model."""
    results: list[tuple[str, str, Tensor]] = []
    for layer in graph.layers:
        op: str = layer.op
        for after in layer.epilogue:
            if after.source is not None and after.source.onnx_name:
                results.append((layer.name, op, after.source))
                op = after.name     # what it is applied to is an input of its own
        if graph.tensors[layer.output].onnx_name:
            results.append((layer.name, op, graph.tensors[layer.output]))
    return results


class _Difference:
    """Of one tensor, sample by sample; ``allowed``: of each value (N, C, H, W), or as broadcasts to that."""

    def __init__(self, tensor: Tensor, allowed: np.ndarray) -> None:
        self.tensor, self._allowed = tensor, allowed
        self._values = self._differing = self._largest = self._beyond = 0
        self._energy = self._noise = 0

    def add(self, order: np.ndarray, ours: np.ndarray, sample: int, value: np.ndarray) -> None:
        """``value``: what onnxruntime makes of a sample; ``ours``: of all of them."""
        mine, theirs, allowed = (x.reshape(-1)[order].astype(np.int16) for x in (
            ours[sample], _from_onnx(self.tensor, order, value), np.broadcast_to(self._allowed, ours.shape)[sample]))
        found = np.abs(mine - theirs)
        exact = theirs.astype(np.int64) - self.tensor.zero_point
        self._energy += int(np.vdot(exact, exact))
        self._noise += int(np.square(found, dtype=np.int64).sum())
        self._values += found.size
        self._differing += int(np.count_nonzero(found))
        self._largest = max(self._largest, int(found.max(initial=0)))
        self._beyond += int(np.count_nonzero(found > allowed))

    def row(self, layer: str, op: str) -> LayerDifference:
        return LayerDifference(layer, op, self.tensor.name, self._values, self._differing, self._largest,
                               int(self._allowed.max()), self._beyond, decibels(self._energy, self._noise))


def _compare_outputs(imported: Imported, inputs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray],
                     progress: Progress) -> list[OutputDifference]:
    graph = imported.graph
    whole = without_initializers(imported.model.proto)
    present = {o.name for o in whole.graph.output}
    ends = {name: graph.tensors[tensor] for name, (tensor, _) in graph.outputs.items()}
    joined = {name: tensor for name, tensor in ends.items() if not tensor.onnx_name}
    ends = {name: tensor for name, tensor in ends.items() if tensor.onnx_name}
    whole.graph.output.extend(_value_info(t.onnx_name, t, imported.orders[t.name])
                              for t in {t.onnx_name: t for t in ends.values()}.values() if t.onnx_name not in present)
    runtime = RuntimeModel(whole, initializers=imported.model.proto.graph.initializer)
    rows = []
    for output, tensor in ends.items():
        theirs, differing = [], 0
        for sample in range(len(ours[tensor.name])):
            progress(sample, len(ours[tensor.name]), f"output {output}")
            feed = {n: np.ascontiguousarray(x[sample:sample + 1]) for n, x in inputs.items()}
            value, result = runtime.run(feed, [tensor.onnx_name, output])
            theirs.append(_from_onnx(tensor, imported.orders[tensor.name], value))
            differing += int((reference.host_output(graph, output, theirs[-1][None]) != result).sum())
        order = imported.orders[tensor.name][0]
        other, mine = (np.reshape(x, (len(theirs), -1))[:, order].astype(np.int16) for x in (theirs, ours[tensor.name]))
        counted = Counter((mine - other).ravel().tolist())
        agreement = float((answers(mine) == answers(other)).mean())
        point = tensor.zero_point
        rows.append(OutputDifference(output, tensor.name, dict(sorted(counted.items())),
                                     sqnr(mine - point, other - point), agreement, differing))
    return [*rows, *(_compare_reals(graph, name, tensor, runtime, inputs, ours) for name, tensor in joined.items())]


def _compare_reals(graph: Graph, output: str, tensor: Tensor, runtime: RuntimeModel,
                   inputs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray]) -> OutputDifference:
    """An output that is no quantised tensor of the model: sums of a binary layer, a padded tensor, or a maximum of
    channels, which has integers; in its LSBs.
    """
    mine = reference.host_output(graph, output, ours[tensor.name])
    theirs = np.concatenate([
        runtime.run({n: np.ascontiguousarray(x[sample:sample + 1]) for n, x in inputs.items()}, [output])[0]
        for sample in range(len(mine))])
    scale: Any = next((s.parameters["scale"] for s in graph.outputs[output][1] if s.kind in ("join", "dequantize")), 1)
    steps = np.rint(np.subtract(mine, theirs, dtype=np.float64) / np.max(scale)).astype(np.int64)
    return OutputDifference(output, tensor.name, dict(sorted(Counter(steps.ravel().tolist()).items())),
                            sqnr(mine, theirs), float((answers(mine) == answers(theirs)).mean()),
                            int((mine != theirs).sum()))


def sqnr(ours: np.ndarray, theirs: np.ndarray) -> float | None:
    """Energy of ``theirs`` over that of the differences from it, in dB; None without differences. Infinities and NaN
    have no part in it.
    """
    finite = np.isfinite(ours) & np.isfinite(theirs)
    exact = theirs[finite].astype(np.float64)
    apart = ours[finite].astype(np.float64) - exact
    return decibels(float(np.vdot(exact, exact)), float(np.vdot(apart, apart)))


def compare_model(imported: Imported, inputs: Mapping[str, np.ndarray], *,
                  progress: Progress = lambda done, total, what: None) -> Comparison:
    """Compare an imported model on ``inputs`` (model input -> (N, ...)).

    ``progress`` hears of the samples of each part. Raises GraphError when inputs do not fit or onnxruntime does not
    take the model.
    """
    ours = _reference_stages(imported.graph, inputs)
    samples = len(next(iter(inputs.values())))
    if not samples:
        raise GraphError("there are no samples to compare on", code="bad-samples")
    return Comparison(samples, _compare_layers(imported, inputs, ours, progress),
                      _compare_outputs(imported, inputs, ours, progress))


def compare(path: str | Path, inputs: Mapping[str, np.ndarray]) -> Comparison:
    """`compare_model` of an ONNX file; raises GraphError as `gen.onnx.importer.load` does, too."""
    return compare_model(load_model(path), inputs)


def print_layers(samples: int, layers: Sequence[LayerDifference], console: Console) -> None:
    """A table of layers by themselves."""
    table = Table(title=f"against onnxruntime, {samples} samples", title_justify="left")
    numbers = ("values", "differing", "largest", "allowed")
    for heading in ("layer", "op", "tensor", *numbers):
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for row in layers:
        table.add_row(row.layer, row.op, row.tensor, f"{row.values:,}", f"{row.differing:,}", str(row.largest),
                      str(row.allowed), style="red" if row.beyond else "")
    console.print(table)


def agreement_of(sqnr_db: float | None, agreement: float) -> str:
    """How near an output is to onnxruntime's, for people."""
    near = "" if sqnr_db is None else f"{sqnr_db:.1f} dB, "
    return f"{near}{100 * agreement:.1f} % of the answers are the same"


def print_comparison(comparison: Comparison, console: Console) -> None:
    print_layers(comparison.samples, comparison.layers, console)
    console.print("The whole network, in which differences of layers add up:")
    for output in comparison.outputs:
        total = sum(output.distribution.values())
        near = sum(count for difference, count in output.distribution.items() if abs(difference) <= 1)
        largest = max(map(abs, output.distribution), default=0)
        console.print(f"{output.output}: {output.distribution.get(0, 0):,} of {total:,} values of {output.tensor} are "
                      f"equal, {total - near:,} differ by more than one LSB, by {largest} at most; "
                      f"{agreement_of(output.sqnr_db, output.agreement)}; "
                      f"{output.host_differing:,} values differ in the host's part", soft_wrap=True)
