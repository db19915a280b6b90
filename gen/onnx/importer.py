"""ONNX model -> `gen.ir.graph.Graph`.

The importer walks the nodes in order and keeps for every ONNX value what it means (`gen.onnx.values`): a handler
(`gen.onnx.handlers`) makes the value of a node's output from those of its inputs. Arithmetic becomes a pending layer;
the QuantizeLinear after it gives the layer its output scale and puts it into the graph (`gen.onnx.quantise`).
Constants that scale or shift a result, BatchNormalization among them, go into the pending layer on the way
(`gen.onnx.handlers.affine`). `gen.onnx.quant_scales` says which scale its integers have, also where the model adds it
without quantising it. The passes of `gen.onnx.passes` run before the walk, those of `gen.passes` on the graph after
it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

import numpy as np

from gen.ir.errors import GraphError
from gen.ir.graph import MAX_VALUES, Graph
from gen.ir.host import HostStep
from gen.ir.verify import verify
from gen.onnx.builder import GraphBuilder
from gen.onnx.context import Context
from gen.onnx.edges import TAKE_PADDING, stored
from gen.onnx.exact_sums import exact_sums
from gen.onnx.fold import Folder
from gen.onnx.functions import Functions
from gen.onnx.handlers import HANDLERS
from gen.onnx.handlers.refused import REFUSED
from gen.onnx.machine import Machine, Units
from gen.onnx.model import MICROSOFT, Model, ModelInput, Node, NodeError
from gen.onnx.passes.merge_blocks import MERGED
from gen.onnx.read import Shapes, open_model
from gen.onnx.refusals import obstacle
from gen.onnx.registry import Handler
from gen.onnx.tokens import last, scores, tokens
from gen.onnx.values import (
    Constant,
    Host,
    Padded,
    Pending,
    Quantised,
    QuantisedConstant,
    QuantisedPadded,
    Real,
    Value,
)
from gen.passes import run_passes

__all__ = ["Imported", "Importer", "import_model", "load", "load_model"]

#: Values of the results of all nodes together, for time.
_MAX_NODE_VALUES = 64 * MAX_VALUES


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph beside what only the comparison with ONNX needs.

    ``orders``: tensor -> int array of its ONNX shape (one sample), each element's flat index in the (C, H, W) tensor.
    ``coarser``: node -> channels whose weights have a coarser scale than in the model, in which their constant fits the
    accumulator. ``left``: nodes that are the processor's, though the machine could have them.
    """

    model: Model
    graph: Graph
    orders: dict[str, np.ndarray]
    coarser: Mapping[str, int] = field(default_factory=dict)
    left: Sequence[str] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines for the user: what is computed in another way, or at another place, than the model suggests."""
        return (*self._merged_said, *self._coarser_said, *(
            f"{self.model.path}: node {name}, the last one, has one row: the processor computes it beside the next "
            "sample, which takes less time than the row unit" for name in self.left))

    @property
    def _merged_said(self) -> tuple[str, ...]:
        names = [name for entry in self.model.proto.metadata_props if entry.key == MERGED
                 for name in entry.value.split("\n")]
        if not names:
            return ()
        more = f" (and {len(names) - 1} more nodes)" if len(names) > 1 else ""
        line = (f"{self.model.path}: node {names[0]}{more}: weights with scales of blocks get eight bits and a scale "
                "for each channel, up to half a step from the model's; those with a scale a channel keep their bits")
        return (line,)

    @property
    def _coarser_said(self) -> tuple[str, ...]:
        if not self.coarser:
            return ()
        first, count = next(iter(self.coarser.items()))
        more = f" (and {len(self.coarser) - 1} more nodes)" if len(self.coarser) > 1 else ""
        line = (f"{self.model.path}: node {first}{more}: {count} channel{'s' * (count > 1)} with weights so small that "
                "no constant fits beside them in their scale, which is taken larger; give them one that fits, as "
                "`quantize` does")
        return (line,)


class Importer:
    """State of one walk."""

    def __init__(self, model: Model, *, units: Units | None = None) -> None:
        """``units``: of the machine that the graph is for; None: it has none."""
        self._model, self._units = model, units or Units(Machine())
        self._functions = Functions(model, self._units)
        self._graph = GraphBuilder()
        self._graph.tokens, self._graph.scores, self._graph.last = tokens(model), scores(model), last(model)
        self._folder = Folder(model)
        self._values: dict[str, Value] = {}
        self._node_values = 0

    def run(self) -> Imported:
        """Raises GraphError: one line that names the file, the node and what to do."""
        try:
            self._visit_all()
            return self._imported({name: self._output(name) for name in self._model.outputs})
        except GraphError as error:
            raise GraphError.of(error, f"{self._model.path}: {error}", file=self._model.path) from None

    def _imported(self, outputs: Mapping[str, tuple[str, tuple[HostStep, ...]]]) -> Imported:
        """After all nodes were visited; ``outputs``: as of `_output`. Raises GraphError."""
        model = self._model
        inputs = {model_input.name: self._graph.input(model_input) for model_input in model.inputs}
        graph = Graph(Path(model.path).stem, self._graph.tensors, self._graph.layers, inputs, dict(outputs))
        verify(graph)
        graph = run_passes(graph)
        if not graph.layers:
            raise GraphError("no output needs a layer of the machine; the processor does all of it",
                             code="no-layers")
        return Imported(model, graph, self._graph.orders, self._graph.coarser, tuple(self._graph.left))

    def _visit_all(self) -> None:
        """Leaves the values of the model's outputs."""
        model, values = self._model, self._values
        values.update((name, Constant(array)) for name, array in model.constants.items())
        quantised = any(node.op.startswith(("QuantizeLinear", "QLinear", "QGemm")) for node in model.nodes)
        for model_input in model.inputs:
            values[model_input.name] = self._input(model_input, others_quantised=quantised)
        # An arrangement takes eight bytes for each element: a value goes after the last node that reads it.
        uses = Counter(chain(model.outputs, *(node.inputs for node in model.nodes)))
        for node in model.nodes:
            try:
                outputs = self._visit(node)
                self._bound(outputs)
            except NodeError as error:
                blamed = next((other for other in model.nodes if other.name == error.at), node)
                raise GraphError.of(error, f"{blamed}: {error}", node=blamed.name, operator=blamed.op) from None
            values.update((n, v) for n, v in zip(node.outputs, outputs, strict=False) if n)
            uses.subtract(node.inputs)
            for name in {*node.inputs, *node.outputs}:
                if not uses[name]:
                    values.pop(name, None)

    def _input(self, model_input: ModelInput, *, others_quantised: bool) -> Value:
        return self._graph.add_input(model_input, others_quantised=others_quantised)

    def _visit(self, node: Node) -> list[Value]:
        """The values of a node's outputs. Raises NodeError for a node that is refused."""
        return self._apply(node, [self._operand(name, node) if name else None for name in node.inputs])

    def _apply(self, node: Node, inputs: list[Value | None]) -> list[Value]:
        arrays = _constants(node, {n: v for n, v in zip(node.inputs, inputs, strict=True) if n})
        if arrays is not None:
            return [Constant(a) for a in self._folder(node, arrays)]
        try:
            result = self._handled(node, inputs)
        except NodeError as refused:
            return [self._functions.instead(node, inputs, refused)]
        self._functions.note(node, inputs, result[0])
        self._functions.moved(node, result)
        return result

    def _handled(self, node: Node, inputs: list[Value | None]) -> list[Value]:
        """What the handler of a node makes of it."""
        handler = self._handler(node)
        try:
            result = handler(Context(node, self._graph, self._folder, self._model.opset, self._functions,
                                     self._units), inputs)
        except (NodeError, GraphError):
            raise
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
            raise NodeError("its attributes and the shapes of its inputs contradict each other; "
                            "export the model again", code="contradiction") from None
        return result if isinstance(result, list) else [result]

    def _handler(self, node: Node) -> Handler:
        """Raises NodeError for an operator that has none."""
        handler = HANDLERS.get((node.domain, node.op))
        if handler is None:
            raise NodeError(_unknown(node), code="unsupported-operator")
        return handler

    def _bound(self, outputs: list[Value]) -> None:
        self._node_values += sum(v.order.size for v in outputs if not isinstance(v, Constant | QuantisedConstant))
        if self._node_values > _MAX_NODE_VALUES:
            raise NodeError(f"the results of the nodes up to here have more than {_MAX_NODE_VALUES:,} values together; "
                            "take smaller images, or fewer nodes", code="model-too-large", limit=_MAX_NODE_VALUES)

    def _operand(self, name: str, node: Node) -> Value:
        value = self._values.get(name)
        if value is None:
            raise NodeError(f"its input {name} {self._missing(name)}", code="no-value")
        if isinstance(value, Padded | QuantisedPadded) and node.op not in TAKE_PADDING:
            value = self._values[name] = stored(self._graph, value)
        return value

    def _missing(self, name: str) -> str:
        """Why there is no value of that name."""
        maker = next((node for node in self._model.nodes if name in node.outputs), None)
        return f"is a further output of {maker}, of which only the first is supported" if maker else "is made nowhere"

    def _output(self, name: str) -> tuple[str, tuple[HostStep, ...]]:
        """Tensor of a model output, and the host steps after it."""
        return self._handed(name, self._values.get(name))

    def _handed(self, name: str, value: Value | None) -> tuple[str, tuple[HostStep, ...]]:
        """Tensor of a value that leaves the machine, and the host steps after it. Raises GraphError."""
        if isinstance(value, Padded | QuantisedPadded):
            try:
                value = stored(self._graph, value)
            except NodeError as error:
                raise GraphError.of(error, f"output {name}: {error}", output=name) from None
        if isinstance(value, Pending | Real | Quantised) and value.order.shape[0] != 1:
            raise GraphError(f"output {name} has shape {value.order.shape} of one sample; the first axis must stay "
                             "that of the samples", code="samples-axis")
        match value:
            case Pending() if (sums := exact_sums(self._graph, value)) is not None:
                return sums.tensor, sums.steps
            case Host():
                return value.tensor, value.steps
            case Real():
                host = self._graph.host(value)
                return host.tensor, host.steps
            case Quantised():
                placed = self._graph.tensor(value, 1.0, 0)
                steps = self._graph.layout(placed)
                if placed.unsigned != self._graph.tensors[placed.tensor].onnx_unsigned:
                    steps = (*steps, HostStep("retype", {"unsigned": placed.unsigned}))
                return placed.tensor, steps
            case None:
                why = NodeError(self._missing(name), code="no-value")
            case Constant() | QuantisedConstant():
                why = NodeError("does not depend on an input", code="constant-output")
            case _:
                why = obstacle(value)
        raise GraphError.of(why, f"output {name} {why}", output=name)


def _unknown(node: Node) -> str:
    """What to say of an operator without a handler."""
    if node.domain not in ("", MICROSOFT):
        return (f"operator {node.op} of the domain {node.domain} is a custom one, of which nothing is known here; "
                "replace it by operators of ONNX, or give the model a function of that name")
    if not node.domain and node.op in REFUSED:
        return f"{node.op} {REFUSED[node.op]}"
    if not node.domain:
        return f"{node.op} has no layer on the machine; docs/models.md lists all that have one"
    # ONNX's own are known to be ones; others may be misspelt.
    near = get_close_matches(node.op, [op for domain, op in HANDLERS if domain == node.domain], n=1)
    return (f"{node.op} has no layer on the machine in the domain {node.domain}"
            f"{f', but {near[0]} has' if near else ''}; docs/models.md lists all that have one")


def _constants(node: Node, inputs: Mapping[str, Value | None]) -> dict[str, np.ndarray] | None:
    """The inputs of a node that is evaluated here and now; None for one that is not.

    Dequantised constants keep their integers, so that weights stay what they are, up to a QuantizeLinear.
    """
    if node.op == "DequantizeLinear":
        return None
    arrays = {}
    for name, value in inputs.items():
        if isinstance(value, Constant):
            arrays[name] = value.array
        elif isinstance(value, QuantisedConstant) and node.op == "QuantizeLinear":
            arrays[name] = value.real.astype(np.float32)
        else:
            return None
    return arrays


def load_model(path: str | Path, content: bytes | None = None, *, shapes: Shapes | None = None,
               machine: Machine | None = None) -> Imported:
    """`import_model` of what `gen.onnx.read.open_model` opens; ``shapes`` of inputs stand for what a file leaves open
    (`gen.onnx.passes.bind_shapes`). Raises as `load`.
    """
    return import_model(open_model(path, content, shapes), machine)


def import_model(model: Model, machine: Machine | None = None) -> Imported:
    """The graph of a quantised ONNX model, with what is needed to compare it with ONNX.

    ``machine``: the one that the graph is for; None: one without optional units. Raises GraphError for a model that the
    machine cannot have as a whole (`gen.partition.partition`), for the first node that is refused.
    """
    return Importer(model, units=Units(machine or Machine())).run()


def load(path: str | Path) -> Graph:
    """Import a quantised (QDQ or QLinear) ONNX model.

    Raises GraphError for a file that is not ONNX, a float model, an operator or a form of one that the machine cannot
    run; the message is one line that names the file, the node and what to do.
    """
    return load_model(path).graph
