"""Which channels of a float model's values stand or fall together, and what has a slice for each of them.

Every value has an array with an *atom* for each entry of its axis 1, channels or features. A convolution makes new
ones, what works on each channel by itself hands them on, an addition makes those of its operands the same. So a
residual chain has one set of atoms, a depthwise layer those of its input, a Concat those of its parts, and after a
Flatten each atom stands for a run of features. What is not understood here *pins* the atoms that it reads: they stay.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, helper

from gen.prune.layers import ModelView

__all__ = ["ChannelMap", "Consumer", "Slice"]

#: Operators that work on each channel by itself.
_PASSING = frozenset("""
    Abs AveragePool Cast Celu Clip Dropout Elu Erf Exp Floor Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool
    HardSigmoid HardSwish Identity LeakyRelu LpPool MaxPool Mish Neg Relu Round Selu Sigmoid Sign
    Softplus Softsign Sqrt Tanh ThresholdedRelu
""".split())
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")
_RECTIFYING = ("Relu", "Clip")


@dataclass(frozen=True, eq=False)
class Slice:
    """An axis of an initializer that has an entry for each of ``atoms``."""

    initializer: str
    axis: int
    atoms: np.ndarray


@dataclass(frozen=True, eq=False)
class Consumer:
    """A node that sums over atoms: ``axis`` of its weights goes over those of its input."""

    node: NodeProto
    weights: str
    axis: int
    atoms: np.ndarray


@dataclass(eq=False)
class ChannelMap:
    """The atoms of one model; see the module."""

    view: ModelView
    atoms: dict[str, np.ndarray] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    #: Scales of BatchNormalizations, and values after a Relu.
    gammas: list[Slice] = field(default_factory=list)
    rectified: list[str] = field(default_factory=list)
    #: Depthwise nodes, and Reshapes whose target has the number of features in it.
    depthwise: list[NodeProto] = field(default_factory=list)
    reshapes: list[NodeProto] = field(default_factory=list)
    #: Root atom -> why it stays.
    pinned: dict[int, str] = field(default_factory=dict)
    _parents: list[int] = field(default_factory=list)
    #: Atom -> the layer that made it, in the same way.
    _makers: list[int] = field(default_factory=list)
    #: First atom that a layer made -> its node.
    _nodes: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> "ChannelMap":
        """Of a float model, whose nodes have names."""
        found = cls(ModelView.of(model))
        for value in model.graph.input:
            if value.name not in found.view.constants:
                found._new(value.name, f"input {value.name}")
        for node in model.graph.node:
            found._visit(node)
        for output in model.graph.output:
            found._pin(output.name, f"output {output.name}")
        reads = Counter(name for node in model.graph.node for name in node.input)
        for part in found.slices:
            if reads[part.initializer] > 1:
                found._pin_atoms(part.atoms, f"initializer {part.initializer}, which several nodes read")
        found.pinned = {found.root(atom): reason for atom, reason in found.pinned.items()}
        return found

    def root(self, atom: int) -> int:
        """The atom that stands for all that are the same."""
        while self._parents[atom] != atom:
            atom = self._parents[atom]
        return atom

    def roots(self, atoms: np.ndarray) -> np.ndarray:
        return np.array([self.root(atom) for atom in atoms.tolist()], np.int64)

    def coupled(self) -> list[np.ndarray]:
        """Atoms that may go, by the layer, or the residual chain of layers, whose channels are coupled."""
        found: dict[int, list[int]] = {}
        for atom in range(len(self._parents)):
            if self._parents[atom] == atom:
                found.setdefault(self._maker(atom), []).append(atom)
        return [np.array(atoms) for atoms in found.values() if self.pinned.keys().isdisjoint(atoms)]

    def layers(self, coupled: np.ndarray) -> set[str]:
        """Nodes of the layer, or of the residual chain, whose channels these are; see `coupled`."""
        maker = self._maker(int(coupled[0]))
        return {node for first, node in self._nodes.items() if self._maker(first) == maker}

    def kept(self, atoms: np.ndarray, dropped: set[int]) -> np.ndarray:
        """Places in ``atoms`` of those that are not among the dropped roots."""
        return np.flatnonzero([self.root(atom) not in dropped for atom in atoms.tolist()])

    # -- making atoms ------------------------------------------------------------------------------------------

    def _maker(self, atom: int) -> int:
        maker = self._makers[atom]
        while self._makers[maker] != maker:
            maker = self._makers[maker]
        return maker

    def _new(self, name: str, pinned: str = "") -> None:
        """New atoms for a value, if its channels are known."""
        shape = self.view.shapes.get(name, ())
        if len(shape) < 2 or not shape[1]:
            return
        first = len(self._parents)
        self.atoms[name] = np.arange(first, first + shape[1])
        self._parents.extend(range(first, first + shape[1]))
        self._makers.extend([first] * shape[1])
        if pinned:
            self._pin(name, pinned)

    def _make(self, node: NodeProto) -> None:
        """New atoms for the result of a layer."""
        first = len(self._parents)
        self._new(node.output[0])
        if len(self._parents) > first:
            self._nodes[first] = node.name

    def _pin(self, name: str, reason: str) -> None:
        if name in self.atoms:
            self._pin_atoms(self.atoms[name], reason)

    def _pin_atoms(self, atoms: np.ndarray, reason: str) -> None:
        for atom in atoms.tolist():
            self.pinned.setdefault(atom, reason)

    def _unite(self, one: np.ndarray, other: np.ndarray) -> None:
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            low, high = sorted((self.root(a), self.root(b)))
            self._parents[high] = low
            low, high = sorted((self._maker(a), self._maker(b)))
            self._makers[high] = low

    # -- nodes -------------------------------------------------------------------------------------------------

    def _visit(self, node: NodeProto) -> None:
        visit = _VISITORS.get(node.op_type, ChannelMap._pass if node.op_type in _PASSING else None)
        if node.domain not in ("", "ai.onnx") or visit is None or not visit(self, node):
            reason = f"node {node.name} ({node.op_type})"
            for name in (*node.input, *node.output):    # outputs: what was made of them before they were given up
                self._pin(name, reason)
            for name in node.output:
                self._new(name, reason)
        elif node.op_type in _RECTIFYING:
            self.rectified.append(node.output[0])

    def _pass(self, node: NodeProto) -> bool:
        if node.input[0] not in self.atoms:
            return False
        self.atoms[node.output[0]] = self.atoms[node.input[0]]
        return True

    def _slice(self, name: str, axis: int, atoms: np.ndarray) -> bool:
        """Note what has an entry for each atom; an initializer of another size is not understood."""
        if name not in self.view.constants or self.view.shapes[name][axis] != len(atoms):
            return False
        self.slices.append(Slice(name, axis, atoms))
        return True

    def _conv(self, node: NodeProto) -> bool:
        source, weights, *bias = node.input
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        atoms = self.atoms.get(source)
        if atoms is None or weights not in self.view.constants:
            return False
        if group == 1:
            self._make(node)
            if not self._slice(weights, 1, atoms):
                return False
            self.consumers.append(Consumer(node, weights, 1, atoms))
        elif group == len(atoms) == self.view.shapes[weights][0]:
            self.atoms[node.output[0]] = atoms
            self.depthwise.append(node)
        else:
            return False
        made = self.atoms.get(node.output[0])
        return made is not None and all(self._slice(name, 0, made) for name in (weights, *bias) if name)

    def _product(self, node: NodeProto) -> bool:
        """Gemm, and MatMul of vectors."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        source, weights, *bias = node.input
        atoms = self.atoms.get(source)
        if (atoms is None or attributes.get("transA", 0) or weights not in self.view.constants
                or len(self.view.shapes[source]) != 2 or len(self.view.shapes[weights]) != 2):
            return False
        self._make(node)
        made, axis = self.atoms.get(node.output[0]), attributes.get("transB", 0)
        if made is None or not self._slice(weights, axis, atoms) or not self._slice(weights, 1 - axis, made):
            return False
        self.consumers.append(Consumer(node, weights, axis, atoms))
        return all(self._constant(name, made, 2) for name in bias if name)

    def _norm(self, node: NodeProto) -> bool:
        if not self._pass(node):
            return False
        atoms = self.atoms[node.input[0]]
        self.gammas.append(Slice(node.input[1], 0, atoms))
        return all(self._slice(name, 0, atoms) for name in node.input[1:5])

    def _constant(self, name: str, atoms: np.ndarray, rank: int) -> bool:
        """A constant that is broadcast to a value of these atoms."""
        shape = self.view.shapes.get(name, ())
        axis = 1 - (rank - len(shape))
        if name not in self.view.constants or len(shape) > rank:
            return False
        return axis < 0 or shape[axis] == 1 or self._slice(name, axis, atoms)

    def _elementwise(self, node: NodeProto) -> bool:
        values = [name for name in node.input if name in self.atoms]
        if not values:
            return False
        ranks = {len(self.view.shapes[name]) for name in values}
        atoms, rank = self.atoms[values[0]], max(ranks)
        if len(ranks) > 1 or any(len(self.atoms[name]) != len(atoms) for name in values):
            return False
        for name in node.input:
            if name in self.atoms:
                self._unite(atoms, self.atoms[name])
            elif not self._constant(name, atoms, rank):
                return False
        self.atoms[node.output[0]] = atoms
        return True

    def _concat(self, node: NodeProto) -> bool:
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if axis not in (1, 1 - len(self.view.shapes.get(node.input[0], ()))) or any(
                name not in self.atoms for name in node.input):
            return False
        self.atoms[node.output[0]] = np.concatenate([self.atoms[name] for name in node.input])
        return True

    def _flatten(self, node: NodeProto) -> bool:
        """Flatten, Reshape and Squeeze that leave samples, and channels or all features."""
        before, after = (self.view.shapes.get(name, ()) for name in (node.input[0], node.output[0]))
        if node.input[0] not in self.atoms or len(after) < 2 or 0 in before[1:]:
            return False
        places = int(np.prod(before[2:]))
        if after[1] != before[1] * places or any(size != 1 for size in after[2:]):
            return False
        if node.op_type == "Reshape":
            if node.input[1] not in self.view.constants:
                return False
            self.reshapes.append(node)
        self.atoms[node.output[0]] = np.repeat(self.atoms[node.input[0]], places)
        return True

    def _spatial(self, node: NodeProto) -> bool:
        """ReduceMean and the like, over axes after the channels."""
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), [])
        if len(node.input) > 1 and node.input[1] in self.view.constants:
            axes = self.view.array(node.input[1]).tolist()
        rank = len(self.view.shapes.get(node.input[0], ()))
        return bool(axes) and all(axis % max(rank, 1) > 1 for axis in axes) and self._pass(node)

    def _pad(self, node: NodeProto) -> bool:
        pads = next((list(a.ints) for a in node.attribute if a.name == "pads"), [])
        if len(node.input) > 1 and node.input[1] in self.view.constants:
            pads = self.view.array(node.input[1]).tolist()
        rank = len(self.view.shapes.get(node.input[0], ()))
        return len(pads) == 2 * rank and not any(pads[:2] + pads[rank:rank + 2]) and self._pass(node)

    def _resize(self, node: NodeProto) -> bool:
        """By factors; target sizes have the number of channels in them."""
        factors = node.input[2] if len(node.input) == 3 else ""
        return (factors in self.view.constants and self.view.array(factors)[:2].tolist() == [1, 1]
                and self._pass(node))


_VISITORS: dict[str, Callable[[ChannelMap, NodeProto], bool]] = {
    "Conv": ChannelMap._conv, "Gemm": ChannelMap._product, "MatMul": ChannelMap._product,
    "BatchNormalization": ChannelMap._norm, "Concat": ChannelMap._concat, "Pad": ChannelMap._pad,
    "Flatten": ChannelMap._flatten, "Reshape": ChannelMap._flatten, "Squeeze": ChannelMap._flatten,
    "ReduceMean": ChannelMap._spatial, "ReduceMax": ChannelMap._spatial, "ReduceSum": ChannelMap._spatial,
    "Resize": ChannelMap._resize, **dict.fromkeys(_ELEMENTWISE, ChannelMap._elementwise),
}
