"""Parts of tensors that begin or end within a machine's block of channels become tensors of their own."""

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np

from cores.errors import Reason
from gen.ir.epilogue.add import Add
from gen.ir.errors import LayerError, UnfitError
from gen.ir.graph import Conv, Graph, Layer
from gen.ir.parts import wholes
from gen.ir.queries import used_tensors
from gen.ir.tensor import Part, Requantize, Tensor
from sim.golden import quantize_multiplier, quantize_residual

__all__ = ["align_parts"]

#: Of a layer that only moves channels.
_MAX_WEIGHTS = 1 << 28


def align_parts(graph: Graph, tn: int) -> Graph:
    """The same graph with parts that begin at multiples of ``tn`` channels, and share no block if they are written.

    Written parts that share one are put together by 1x1 convolutions, each of which adds what those before it have. A
    part that is only read is picked out by one. Raises UnfitError for more channels than such a layer can have, with
    the tensors that would be put together so, and the parts that would be picked out.
    """
    if not any(tensor.part for tensor in graph.tensors.values()):
        return graph
    return _pick(_join(graph, tn), tn)


@dataclass(frozen=True, eq=False)
class _Edit:
    """A graph that is being changed: layers, by number, get others in front or after, or are left out."""

    graph: Graph
    tensors: dict[str, Tensor]
    names: set[str]
    before: dict[int, list[Layer]] = field(default_factory=lambda: defaultdict(list))
    behind: dict[int, list[Layer]] = field(default_factory=lambda: defaultdict(list))
    dropped: set[int] = field(default_factory=set)
    #: Tensors that no layers can move channels for -> why.
    unfit: dict[str, Reason] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> "_Edit":
        return cls(graph, dict(graph.tensors), {*graph.tensors, *(layer.name for layer in graph.layers)})

    def name(self, wanted: str) -> str:
        """A name that no tensor or layer has: this one, or like it."""
        while wanted in self.names:
            wanted += "'"
        self.names.add(wanted)
        return wanted

    def add(self, like: str, name: str, channels: int, part: Part | None = None) -> str:
        """A new tensor, ``like`` another but for its channels; its name."""
        tensor, name = self.tensors[like], self.name(name)
        shape = channels, *tensor.shape[1:]
        self.tensors[name] = replace(tensor, name=name, shape=shape, onnx_name="", part=part)
        return name

    def span(self, whole: str, low: int, high: int, name: str, like: str = "") -> str:
        """Channels ``low`` to ``high`` of a tensor, with the pixels of another that it is ``like``, if of any."""
        tensor, like = self.tensors[whole], like or whole
        if (high - low, *self.tensors[like].shape[1:]) == tensor.shape:
            return whole
        return self.add(like, name, high - low, Part(whole, low))

    def finish(self) -> Graph:
        """The graph as it is now; the one that it was if no layer has come. Raises UnfitError."""
        if self.unfit:
            raise UnfitError(self.unfit)
        if not (any(self.before.values()) or any(self.behind.values())):
            return self.graph
        layers: list[Layer] = []
        for number, layer in enumerate(self.graph.layers):
            layers += [*self.before[number], *([] if number in self.dropped else [layer]), *self.behind[number]]
        layers += self.before[len(self.graph.layers)]
        graph = replace(self.graph, layers=layers, tensors=self.tensors)
        return replace(graph, tensors=used_tensors(graph))


# -- written parts ---------------------------------------------------------------------------------------------------


def _join(graph: Graph, tn: int) -> Graph:
    """Parts that share a block, of those that are written, are written elsewhere and moved."""
    edit = _Edit.of(graph)
    made: dict[str, int] = {}       # The last layer that writes channels of a tensor.
    for number, layer in enumerate(graph.layers):
        made.update(dict.fromkeys((layer.output, *wholes(graph.tensors, layer.output)), number))
    parts: dict[str, list[tuple[Part, str]]] = defaultdict(list)
    for name in made:
        if part := graph.tensors[name].part:
            parts[part.whole].append((part, name))
    # A whole may be a part itself: what it is made of comes first.
    for whole in sorted(parts, key=lambda name: -len(list(wholes(graph.tensors, name)))):
        for group in _groups(graph, sorted(parts[whole], key=lambda item: item[0].first), tn):
            if len(group) > 1 or group[0][0].first % tn:
                try:
                    _put_together(edit, group, max(made[name] for _, name in group), tn)
                except LayerError as error:
                    edit.unfit.setdefault(whole, error.reason)
    return edit.finish()


def _groups(graph: Graph, parts: list[tuple[Part, str]], tn: int) -> list[list[tuple[Part, str]]]:
    """Parts in order, those together that share a block with their neighbours."""
    groups: list[list[tuple[Part, str]]] = []
    end = 0     # blocks so far
    for part, name in parts:
        if part.first // tn >= end:
            groups.append([])
        groups[-1].append((part, name))
        end = -(-(part.first + graph.tensors[name].shape[0]) // tn)
    return groups


def _put_together(edit: _Edit, group: list[tuple[Part, str]], number: int, tn: int) -> None:
    """A chain of layers after layer ``number``: each writes all channels of the group, and has its part's values."""
    whole, (last, end) = group[0][0].whole, group[-1]
    low, high = group[0][0].first // tn * tn, last.first + edit.tensors[end].shape[0]
    target = edit.span(whole, low, high, f"{whole}/{low}")
    others = None
    for part, name in group:
        output = target if name == end else edit.add(target, f"{name}/beside", high - low)
        edit.tensors[name] = replace(edit.tensors[name], part=None)
        copy = _copy_of(edit, name)
        source, stage = name, None
        if copy is not None:
            source, stage = edit.graph.layers[copy].input, edit.graph.layers[copy].requantize
            edit.dropped.add(copy)
        edit.behind[number].append(_mover(edit, source, output, part.first - low, stage, others))
        others = output


def _copy_of(edit: _Edit, name: str) -> int | None:
    """The layer that a mover can do the work of: one that copies to a tensor that nothing else reads."""
    graph, tensor = edit.graph, edit.tensors[name]
    read = {name for layer in graph.layers for name in layer.reads} | {name for name, _ in graph.outputs.values()}
    if name in read or any(other.part and other.part.whole == name for other in graph.tensors.values()):
        return None
    number = next(number for number, layer in enumerate(graph.layers) if layer.output == name)
    layer = graph.layers[number]
    stage = layer.requantize
    if not layer.copies or layer.epilogue:
        return None
    # Channels beside its own have sums of zero, which must stay the tensor's zero.
    fits = stage.zero_point == tensor.zero_point and stage.low <= stage.zero_point <= stage.high
    return number if fits else None


# -- parts that are read ---------------------------------------------------------------------------------------------


def _pick(graph: Graph, tn: int) -> Graph:
    """Parts that begin within a block, of those that are only read, are picked out in front of their first reader."""
    edit, tensors = _Edit.of(graph), graph.tensors
    made = {name for layer in graph.layers for name in (layer.output, *wholes(tensors, layer.output))}
    readers = [layer.reads for layer in graph.layers]
    readers.append(tuple(tensor for tensor, _ in graph.outputs.values()))
    for number, names in enumerate(readers):
        for name in names:
            tensor = edit.tensors[name]
            if name in made or tensor.part is None:
                continue
            whole, first = tensor.part.whole, tensor.part.first
            # What is in between may be picked itself.
            while whole not in made and (part := tensors[whole].part):
                whole, first = part.whole, first + part.first
            edit.tensors[name] = replace(tensor, part=Part(whole, first))
            if first % tn:
                low = first // tn * tn
                source = edit.span(whole, low, first + tensor.shape[0], f"{name}/blocks", name)
                edit.tensors[name] = replace(tensor, part=None)
                try:
                    edit.before[number].append(_mover(edit, source, name, low - first))
                except LayerError as error:
                    edit.unfit[name] = error.reason
    return edit.finish()


# -- layers ----------------------------------------------------------------------------------------------------------


def _mover(edit: _Edit, source: str, output: str, start: int, stage: Requantize | None = None,
           others: str | None = None) -> Conv:
    """A 1x1 convolution: channel ``c`` of ``source`` becomes channel ``start + c`` of ``output``, if there is one.

    The rest of ``output`` is zero, or what ``others`` has there. ``stage``: what happens to the values on the way.
    Raises LayerError for too many of them.
    """
    target = edit.tensors[output]
    count, channels, point = target.shape[0], edit.tensors[source].shape[0], target.zero_point
    if count * channels > _MAX_WEIGHTS:
        raise LayerError(f"{output}/moved", f"tensor {source} has {channels:,} channels, too many to be moved to "
                         f"{count:,} within the machine's blocks; join and split at multiples of its ic_lanes",
                         code="too-large", limit=_MAX_WEIGHTS)
    weights = np.eye(count, channels, -start, np.int16)[:, :, None, None]
    multiplier, shift = quantize_multiplier(np.ones(count))
    bias = np.where(weights.any(axis=(1, 2, 3)), -point, 0).astype(np.int64)
    own = Requantize(bias, multiplier, shift, point, -128, 127)
    if stage is not None:
        own = replace(stage, bias=bias, multiplier=multiplier, shift=shift)
        for mine, theirs in ((bias, stage.bias), (multiplier, stage.multiplier), (shift, stage.shift)):
            mine[start:start + channels] = theirs
    epilogue: tuple[Add, ...] = ()
    if others is not None:
        one, _, exponent = quantize_residual(1.0, 1.0)
        middle = replace(target, name=f"{output}/middle", onnx_name="", part=None)
        epilogue = Add(middle=middle, other=others, multiplier_a=one, multiplier_b=one, constant=-2 * point * one,
                       shift=exponent, zero_point=point, low=-128, high=127),
    return Conv(edit.name(f"{output}/moved"), source, output, weights=weights, requantize=own, epilogue=epilogue)
