"""A function in C so far: what kernels emit into, and the values that they find."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gen.c.helper import Helper
from gen.c.text import c_type, literal
from gen.c.value import Dim, Size, Storage, Value, extent, size_text
from gen.onnx.model import Node, NodeError

__all__ = ["Argument", "At", "Context", "Pending"]

#: Numbers of one line of a table, and hexadecimal digits of its name: no two tables will have the same 64 bits.
_LINE, _NAME = 12, 16

@dataclass(frozen=True)
class At:
    """A tensor from an element on."""

    value: Value
    element: int


Argument = Value | At | Size | Sequence[Dim] | np.ndarray | np.generic | int | str


@dataclass(frozen=True, eq=False)
class Pending:
    """An operation element by element that has not been emitted: ``emit`` does that (`gen.c.each`).

    ``expression`` is that of elements x0, x1 and so on of the ``operands``, of which ``steps`` has the strides in
    ``shape``.
    """

    name: str
    expression: str
    operands: Sequence[Value]
    steps: Sequence[Sequence[Dim]]
    shape: tuple[Dim, ...]
    dtype: np.dtype
    parameters: Mapping[str, tuple[str, str]]
    needs: Sequence[Helper]
    emit: Callable[[], None]


@dataclass
class Context:
    """``name``: of the function; ``opset`` is that of ONNX's own operators."""

    name: str
    opset: int
    values: dict[str, Value] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    helpers: dict[str, Helper] = field(default_factory=dict)
    node: Node | None = None
    #: By the storage of the result.
    pending: dict[Storage, Pending] = field(default_factory=dict)
    #: How often a name of the model is an input or output; of a storage, as far as it has a name.
    uses: Mapping[str, int] = field(default_factory=dict)
    readers: dict[Storage, int] = field(default_factory=dict)
    _count: int = 0

    @property
    def step(self) -> int:
        return len(self.statements)

    # what the node has

    def input(self, index: int) -> Value:
        """Raises NodeError for an input that is left out."""
        value = self.optional(index)
        if value is None:
            raise NodeError(f"lacks its input {index}", code="invalid-model")
        return value

    def optional(self, index: int) -> Value | None:
        assert self.node is not None
        name = self.node.inputs[index] if index < len(self.node.inputs) else ""
        return self.values[name] if name else None

    def constant(self, index: int) -> np.ndarray | None:
        """An input that has to be constant; None if it is left out. Raises NodeError."""
        value = self.optional(index)
        if value is None:
            return None
        if value.array is None:
            assert self.node is not None
            raise NodeError(f"its input {self.node.inputs[index]} is computed by the model, which C code takes "
                            "constant only", code="not-in-c", operator=self.node.op)
        return value.array

    def known(self, value: Value) -> tuple[int, ...]:
        """A shape without open sizes. Raises NodeError."""
        if not value.known:
            raise self.refusal("on a tensor whose size depends on the data")
        return tuple(dim for dim in value.shape if isinstance(dim, int))

    def refusal(self, what: str) -> NodeError:
        """For a form of the node that C is not generated for."""
        assert self.node is not None
        return NodeError(f"no C code is generated for {self.node.op} {what}; leave it out of the model, or run this "
                         "model's processor part by onnxruntime", code="not-in-c", operator=self.node.op)

    def wants(self, output: int) -> bool:
        assert self.node is not None
        return output < len(self.node.outputs) and bool(self.node.outputs[output])

    def result(self, value: Value, index: int = 0) -> None:
        assert self.node is not None
        if self.wants(index):
            name = self.node.outputs[index]
            self.values[name] = value
            if value.storage is not None:
                self.readers[value.storage] = self.readers.get(value.storage, 0) + self.uses.get(name, 1)

    # what is emitted

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def new(self, dtype: np.dtype | type, shape: Sequence[Dim]) -> Value:
        """Room for a result, or for what is needed on the way to one."""
        found = np.dtype(dtype)
        storage = Storage(self.fresh("v"), found, extent(shape))
        self.storages.append(storage)
        return Value(found, tuple(shape), storage)

    def like(self, value: Value) -> Value:
        """Room for a result of the same type and shape, which may be in the operand's place: each element of that is
        read for the last time before it is written.
        """
        result = self.new(value.dtype, value.shape)
        if value.storage is not None and result.storage is not None:
            result.storage.over = (value.storage,)
        return result

    def alias(self, value: Value, shape: Sequence[Dim]) -> Value:
        """The same elements in another shape."""
        if value.array is not None and all(isinstance(dim, int) for dim in shape):
            return Value(value.dtype, tuple(shape), array=value.array.reshape([int(dim) for dim in shape if
                                                                              isinstance(dim, int)]))
        return Value(value.dtype, tuple(shape), self.stored(value).storage)

    def stored(self, value: Value) -> Value:
        """Raises ValueError for a constant: it is in no storage."""
        if value.storage is None:
            raise ValueError("a constant has no storage")
        return value

    def pointer(self, value: Value) -> str:
        if value.array is not None:
            return self.table(value.array)
        storage = value.storage
        assert storage is not None
        if (waiting := self.pending.pop(storage, None)) is not None:
            waiting.emit()
        storage.first = self.step if storage.first < 0 else storage.first
        storage.last = self.step
        return storage.name

    def table(self, array: np.ndarray) -> str:
        """The name of a constant array with these elements, which is that of its content: functions that have the same
        one share it.
        """
        numbers = [literal(number, array.dtype) for number in array.ravel()] or ["0"]
        return self._table(c_type(array.dtype).name, numbers)

    def _table(self, kind: str, numbers: Sequence[str]) -> str:
        lines = [", ".join(numbers[first:first + _LINE]) for first in range(0, len(numbers), _LINE)]
        body = lines[0] if len(lines) == 1 else "\n    " + ",\n    ".join(lines) + "\n"
        text = f"[{len(numbers)}] = {{{body}}};\n"
        name = f"k_{hashlib.sha256(f'{kind}{text}'.encode()).hexdigest()[:_NAME]}"
        return self.use(Helper(name, f"static const {kind} {name}{text}"))

    def sizes(self, dims: Sequence[Dim]) -> str:
        """The name of an array of size_t."""
        texts = [size_text(dim) for dim in dims] or ["0u"]
        if all(isinstance(dim, int) for dim in dims):
            return self._table("size_t", texts)
        name = self.fresh("w")
        self.statements.append(f"const size_t {name}[{len(texts)}] = {{{', '.join(texts)}}};")
        return name

    def use(self, helper: Helper) -> str:
        self.helpers.setdefault(helper.name, helper)
        return helper.name

    def call(self, helper: Helper, *arguments: Argument) -> None:
        self.statements.append(f"{self._call(helper, arguments)};")

    def size_of(self, helper: Helper, *arguments: Argument, maximum: int) -> Size:
        """What a helper returns: how many elements there are, at most ``maximum``."""
        name = self.fresh("n")
        self.statements.append(f"const size_t {name} = {self._call(helper, arguments)};")
        return Size(name, maximum)

    def _call(self, helper: Helper, arguments: Sequence[Argument]) -> str:
        texts = [self._argument(argument) for argument in arguments]
        # Arguments may have become statements before this one: it is in this step that the tensors are used.
        for argument in arguments:
            if isinstance(argument, (Value, At)):
                self._argument(argument)
        return f"{self.use(helper)}({', '.join(texts)})"

    def _argument(self, argument: Argument) -> str:
        if isinstance(argument, str):
            return argument
        if isinstance(argument, Value):
            return self.pointer(argument)
        if isinstance(argument, At):
            return self.pointer(argument.value) + (f" + {argument.element}u" if argument.element else "")
        if isinstance(argument, np.generic):
            return literal(argument, argument.dtype)
        if isinstance(argument, np.ndarray):
            return self.table(argument)
        if isinstance(argument, (int, Size)):
            return size_text(argument)
        return self.sizes(argument)
