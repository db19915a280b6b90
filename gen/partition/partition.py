"""A model cut into segments for accelerator and processor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path

import onnx

from cores.errors import Reason
from gen.ir.errors import GraphError
from gen.onnx.importer import Imported, import_model
from gen.onnx.machine import Machine, Units
from gen.onnx.model import PRODUCTS, Model
from gen.onnx.passes import value_types
from gen.onnx.read import of_proto
from gen.partition.extract import Extractor
from gen.partition.moved import in_the_way
from gen.partition.operands import float_operands, quantise_operands
from gen.partition.probe import Probed, probe
from gen.partition.reconstruct import Ranges, reconstruct
from gen.partition.schedule import Place, Segment, bases, schedule, tasks

__all__ = ["SegmentModel", "Partition", "called", "partition"]


#: Walks after which what is refused stays so and nothing more is quantised: each may find what the one before it made
#: possible, and the time of all of them is to be linear in the nodes.
_PASSES = 16


@dataclass(frozen=True, eq=False)
class SegmentModel:
    """``nodes``: names, without those that only move or convert values. ``path`` names the model in errors;
    ``machine``: what it was cut for; ``known``: its graph, where cutting has found that.
    """

    place: Place
    model: onnx.ModelProto
    nodes: frozenset[str]
    path: str
    machine: Machine
    known: Imported | None = None

    @cached_property
    def imported(self) -> Imported:
        """One that the accelerator has. Raises GraphError."""
        if self.known is not None:
            return self.known
        try:
            model = of_proto(self.path, _copy(self.model))
        except GraphError as error:
            raise GraphError.of(error, f"{self.path}: {error}", file=self.path) from None
        return import_model(model, self.machine)


@dataclass(frozen=True, eq=False)
class Partition:
    """Parts in the order in which they run; together they make what ``model`` makes.

    ``host``: the nodes that the processor has, and why. ``quantised``: values that the model leaves unquantised, and
    that were quantised so that what makes them runs on the accelerator, ``operands`` those of what reads them;
    ``before``: how it would be without, None where that is the same, or where the accelerator would have nothing, or
    where nobody asked. ``missed``: features that the
    machine lacks and some node has use for: without one of them no other feature makes a difference.
    """

    model: Model
    segments: Sequence[SegmentModel]
    host: dict[str, Reason]
    quantised: Sequence[str]
    operands: Sequence[str] = ()
    before: "Partition | None" = None
    missed: frozenset[str] = frozenset()

    @property
    def whole(self) -> Imported | None:
        """The graph of ``model``, where the accelerator takes all of it as it is."""
        return self.segments[0].known

    @property
    def subgraphs(self) -> int:
        """Parts on the accelerator."""
        return sum(segment.place == "accelerator" for segment in self.segments)

    @property
    def host_segments(self) -> int:
        """Parts on the processor."""
        return sum(segment.place == "host" for segment in self.segments)

    @property
    def switches(self) -> int:
        """Between accelerator and processor."""
        return sum(a.place != b.place for a, b in pairwise(self.segments))

    @property
    def host_products(self) -> int:
        """Convolutions and matrix products on the processor."""
        return sum(node.name in self.host and node.op in PRODUCTS for node in self.model.nodes)


def called(number: int, count: int, *, host: bool = False) -> str:
    """What people are told of segment ``number``, from 0, of so many, while something is done with it."""
    whose = ", the processor's" if host else ""
    return f"segment {number + 1} of {count}{whose}" if count > 1 else ""


def partition(model: Model, *, machine: Machine | None = None, rebuild: bool = True, ranges: Ranges | None = None,
              leave: Mapping[str, Reason] | None = None, compare: bool = True,
              progress: Callable[[str], None] = lambda text: None) -> Partition:
    """Cut a ``model``, which stays as it is, for a ``machine`` (None: one without optional units).

    The nodes ``leave`` are left to the processor in any case, for the reasons given. With ``rebuild`` quantisation is
    added where the lack of it would leave layers to the processor (`gen.partition.reconstruct`), with the ``ranges`` of
    values for which the model knows no scale. ``compare``: whether the result says how it would be ``before``.
    ``progress`` hears what is done.

    Raises GraphError for a model of which the accelerator could have nothing; the message is why the first node was
    refused.
    """
    machine = machine or Machine()
    wanted = leave or {}
    try:
        cut = _cut(model, wanted, rebuild=rebuild, ranges=ranges, machine=machine, progress=progress)
    except GraphError as error:
        if not wanted:
            _require_same(model, machine, error)
        raise GraphError.of(error, f"{model.path}: {error}", file=model.path) from None
    if not (cut.quantised or cut.operands) or not compare:
        return cut
    try:
        before = _cut(model, wanted, rebuild=False, machine=machine,
                      progress=lambda text: progress(f"without more quantisation, {text}"))
        return replace(cut, before=before)
    except GraphError:
        return cut


def _require_same(model: Model, machine: Machine, error: GraphError) -> None:
    """Raises what is refused of a model as its author has it, unless ``error`` says that, and perhaps what would help.
    """
    try:
        import_model(model, machine)
    except GraphError as own:
        if (own.code, own.fields.get("node")) != (error.code, error.fields.get("node")):
            raise


def _cut(model: Model, wanted: Mapping[str, Reason], *, rebuild: bool, machine: Machine,
         progress: Callable[[str], None], ranges: Ranges | None = None) -> Partition:
    types, optional = value_types(model.proto), Units(machine)
    # Nodes that are left to the processor whatever the walk finds. What the walk refuses is no part of it: a node that
    # is refused after another one may be taken once that is left to the processor, too.
    decided = dict(wanted)
    quantised: dict[str, str] = {}      # value -> its name in front of its quantisation
    operands: list[str] = []
    for passes in count():
        progress(f"dividing {len(model.nodes):,} nodes, walk {passes + 1}")
        probed = probe(model, decided, types, optional)
        host, types = dict(probed.host), dict(probed.types)
        if probed.whole is not None and not quantised and not operands:
            everything = frozenset(node.name for node in model.nodes)
            only = SegmentModel("accelerator", model.proto, everything, model.path, machine, probed.whole)
            return Partition(model, [only], {}, [], missed=frozenset(optional.missed))
        if passes >= _PASSES:
            rebuild = False
            decided |= host
        found_operands = float_operands(model, host) if rebuild else {}
        more_operands = {name: nodes for name, nodes in found_operands.items() if name not in operands}
        if ranges is not None and more_operands:
            completed = _copy(model.proto)
            quantise_operands(completed, more_operands, ranges)
            operands += more_operands
            model = of_proto(model.path, completed)
            types, decided = value_types(model.proto), dict(wanted)
            continue
        if probed.unquantised:
            # What is refused after a quantisation that was added would be once more after another.
            once = [name for name in probed.unquantised if name not in quantised.values() and (
                name not in types or types[name].tensor_type.elem_type == onnx.TensorProto.FLOAT)]
            proto = _copy(model.proto) if rebuild else None
            if proto is not None and (added := reconstruct(proto, once, ranges)):
                quantised |= added
                model = of_proto(model.path, proto)
                types, decided = value_types(model.proto), dict(wanted)
            else:
                more = _unquantised(model, probed)
                if more.keys() <= decided.keys():
                    raise GraphError(f"value {next(iter(probed.unquantised))} cannot be handed from the "
                                     "accelerator to the processor; put QuantizeLinear and DequantizeLinear after it",
                                     code="not-quantised")
                decided |= more
            continue
        if moved := _moved(model, probed):
            decided |= moved
            continue
        ordered, left = tasks(model.nodes, probed)
        found = schedule(ordered)
        left |= {name: Reason("is not worth a segment of the accelerator: it has no convolution or matrix product",
                              code="not-worth-it")
                 for segment in found if segment.place == "accelerator" and not _is_worth_it(segment)
                 for name in segment.nodes}
        if not left:
            break
        decided |= left
    if ranges is None:
        host |= {node: Reason(f"{host[node]}; samples for --calibrate do that, too", code=host[node].code,
                              **host[node].fields) for nodes in found_operands.values() for node in nodes}
    if all(segment.place == "host" for segment in found):
        raise _first(model, host)
    types |= value_types(model.proto, probed.constants)     # with the shapes that the walk has found
    return Partition(model, _segments(model, probed, types, found, machine), host, list(quantised), operands,
                     missed=frozenset(optional.missed))


def _copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _unquantised(model: Model, probed: Probed) -> dict[str, Reason]:
    """The nodes that make values which the accelerator cannot hand over."""
    found = {}
    for node in model.nodes:
        for name in node.outputs:
            if name in probed.unquantised:
                reader = probed.unquantised[name]
                what = f"node {reader}, which the processor has, reads it" if reader else "an output of the model"
                # The parts of a Concat that comes as far as this are quantised.
                advice = ("its inputs are quantised each by itself, as they should be; put QuantizeLinear and "
                          "DequantizeLinear after it only where their ranges are alike" if node.op == "Concat" else
                          "put QuantizeLinear and DequantizeLinear after it")
                found[node.name] = Reason(f"its result is not quantised, and {what}; {advice}", code="not-quantised",
                                          reader=reader)
    return found


def _moved(model: Model, probed: Probed) -> dict[str, Reason]:
    """What is in the way of products that are refused for the order of what they read."""
    return {name: why for node, reason in probed.host.items() if reason.code == "rearranged"
            for name, why in in_the_way(model, node).items() if name not in probed.host}


def _is_worth_it(segment: Segment) -> bool:
    return any(node.op in PRODUCTS for task in segment.tasks for node in task.nodes)


def _first(model: Model, host: Mapping[str, Reason]) -> GraphError:
    for node in model.nodes:
        if (reason := host.get(node.name)) is not None:
            return GraphError(f"{node}: {reason}", code=reason.code,
                              **{**reason.fields, "node": node.name, "operator": node.op})
    return GraphError("the accelerator has nothing to do: no node makes a layer", code="no-layers")


def _segments(model: Model, probed: Probed, types: dict[str, onnx.TypeProto], found: Sequence[Segment],
              machine: Machine) -> list[SegmentModel]:
    """The models of the segments; one more of the processor if nothing else makes some outputs."""
    made_in = {name: number for number, segment in enumerate(found) for task in segment.tasks for name in task.makes}
    base = bases(model.nodes, probed)
    segments = list(found)
    homes: dict[str, int] = {}      # output of the model -> segment
    inputs = {model_input.name for model_input in model.inputs}
    for name in model.outputs:
        if name in inputs:
            continue    # whoever runs the segments has it
        makers = {made_in.get(value) for value in base[name]}
        number = makers.pop() if len(makers) == 1 and name not in probed.loose else None
        if number is None:
            if segments[-1].place != "host":
                segments.append(Segment("host", ()))
            number = len(segments) - 1
        homes[name] = number
    read = [(name, number) for number, segment in enumerate(segments) for task in segment.tasks
            for name in sorted(task.reads)]
    read += [(value, number) for name, number in homes.items() for value in sorted(base[name])]
    outputs: list[list[str]] = [[] for _ in segments]
    handed: list[dict[str, None]] = [{} for _ in segments]     # values that others read
    for name, number in read:
        if made_in.get(name, number) != number:
            handed[made_in[name]][name] = None
    for name, number in homes.items():
        outputs[number].append(name)
    extract = Extractor(model, probed, types)
    path, several = Path(model.path), sum(segment.place == "accelerator" for segment in segments) > 1
    return [SegmentModel(segment.place, extract(segment.nodes, outputs[number], list(handed[number])), segment.nodes,
                    str(path.with_name(f"{path.stem}.{number}{path.suffix}") if several else path), machine)
            for number, segment in enumerate(segments)]
