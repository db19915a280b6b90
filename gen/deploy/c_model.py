"""A whole model in C: programs for the accelerator, what the processor has, and calls that run them in order.

Every value that passes between segments, the feature maps at the ends of programs and the scratch of functions lie in
an arena that the caller gives; nothing is allocated but what the back end gives to the device. The library is that of
npudriver/c; npugen_model.h says how it is used.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

from boards.board import Board
from cores.errors import ArgumentError
from gen.bringup.programs import bring_up
from gen.c import CFunction, generate, render
from gen.c.arena import ALIGNMENT, place
from gen.c.text import c_type
from gen.c.value import Storage
from gen.deploy.c_bringup import c_bringup
from gen.deploy.c_ports import input_model, output_model
from gen.deploy.c_sources import board_files, library_files, template
from gen.deploy.c_states import StateError, require_formats, require_states
from gen.deploy.package import whole_folder
from gen.files.read import read_file
from gen.program.file import ProgramFile
from gen.program.program import Program, ProgramError
from gen.run.application import Application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from npudriver.program import Port

__all__ = ["CModel", "ModelPort", "ModelState", "c_model", "write_c_package"]

_EXAMPLE = Path(__file__).resolve().parents[2] / "npudriver" / "c" / "model"


@dataclass(frozen=True)
class ModelPort:
    """An input or output of the model in C: so many values of ``c_type``, of one sample.

    ``shape``: where it depends on the data (``sized``) the largest. ``scale``, ``zero_point``: of the accelerator's
    tensor, where the library quantises or dequantises.
    """

    name: str
    c_type: str
    dtype: str
    shape: tuple[int, ...]
    sized: bool = False
    scale: float | None = None
    zero_point: int | None = None

    @property
    def values(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class ModelState:
    """What is kept of the output ``output`` (the number of it) for the input ``port`` of the next inference.

    ``offset``: where, in bytes from the beginning of all states.
    """

    port: ModelPort
    output: int
    offset: int

    @property
    def size(self) -> int:
        """Bytes."""
        return self.port.values * np.dtype(self.port.dtype).itemsize


@dataclass(frozen=True)
class CModel:
    """``files``: name -> content. ``arena``: bytes for a sample on its way. ``inputs``: those that the caller gives."""

    files: dict[str, bytes]
    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    arena: int
    states: tuple[ModelState, ...] = ()


@dataclass(eq=False)
class _Value:
    """``text``: a pointer in C."""

    dtype: np.dtype
    shape: tuple[int, ...]
    text: str = ""
    storage: Storage | None = None
    sized: bool = False


@dataclass(eq=False)
class _Writer:
    """The calls of a model, in order, and what they need."""

    file: ProgramFile
    #: Outputs that are kept: they are the caller's only at the end, when nothing can fail any more.
    kept: frozenset[str] = frozenset()
    functions: list[CFunction] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    #: Statements before the first program starts, and after each has ended.
    before: list[str] = field(default_factory=list)
    after: list[list[str]] = field(default_factory=list)
    step: int = 0
    scales: dict[str, tuple[float, int]] = field(default_factory=dict)

    def storage(self, dtype: np.dtype, count: int) -> Storage:
        found = Storage(f"@{len(self.storages)}@", dtype, count, first=self.step, last=self.step)
        self.storages.append(found)
        return found

    def read(self, name: str) -> str:
        value = self.values[name]
        if value.storage is not None:
            value.storage.last = self.step
        return f"(const {c_type(value.dtype).name} *){value.text}"

    def made(self, name: str, dtype: np.dtype, shape: tuple[int, ...], *, sized: bool = False) -> str:
        """A place for a value that is made now."""
        if name in self.file.outputs and name not in self.kept:
            value = _Value(dtype, shape, f"outputs[{list(self.file.outputs).index(name)}]", sized=sized)
        else:
            storage = self.storage(dtype, max(1, int(np.prod(shape, dtype=np.int64))))
            value = _Value(dtype, shape, f"(arena + {storage.name})", storage, sized)
        self.values[name] = value
        return f"({c_type(dtype).name} *){value.text}"

    def call(self, function: CFunction, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        self.functions.append(function)
        scratch = "NULL"
        if function.arena_size:
            scratch = f"arena + {self.storage(np.dtype(np.uint8), function.arena_size).name}"
        return f"{function.name}({', '.join([*inputs, *outputs, scratch])});"

    def host(self, number: int, content: bytes) -> list[str]:
        function = generate(onnx.load_model_from_string(content), f"npugen_model_segment{number}")
        inputs = [self.read(port.name) for port in function.inputs]
        outputs = []
        for port in function.outputs:
            outputs.append(self.made(port.name, _BY_NAME[port.c_type], port.shape, sized=port.sized))
            if port.sized:
                if port.name not in self.file.outputs:
                    raise ProgramError(f"value {port.name} has a size that depends on the data, and passes between "
                                       "segments; leave out --language c", code="data-size")
                outputs.append(f"model->shapes[slot][{list(self.file.outputs).index(port.name)}]")
        return [self.call(function, inputs, outputs)]

    def enter(self, number: int, program: Program) -> list[str]:
        """A program's inputs into the device's memory."""
        lines = []
        for index, port in enumerate(program.input_ports):
            model, source = input_model(port), self.read(port.name)
            self._scale(port)
            if port.dtype == "float32":
                lines.append(f"CHECK(numbers({source}, {int(np.prod(port.shape))}u));")
            if model is not None:
                target = self.storage(np.dtype(np.int8), int(np.prod(port.map_shape)))
                text = f"(int8_t *)(arena + {target.name})"
                lines.append(self.call(generate(model, f"npugen_model_input{number}_{index}"), [source], [text]))
                source = f"(const int8_t *)(arena + {target.name})"
            lines.append(f"CHECK(npugen_input(model->device, &model->programs[{number}], slot, {index}u, {source}));")
            self.step += 1
        return lines

    def leave(self, number: int, program: Program) -> list[str]:
        """A program's outputs from the device's memory."""
        lines = []
        for index, port in enumerate(program.output_ports):
            model = output_model(port)
            self._scale(port)
            target = self.made(port.name, np.dtype(port.dtype), (1, *port.shape))
            get = f"npugen_output(model->device, &model->programs[{number}], slot, {index}u"
            if model is None:
                lines.append(f"CHECK({get}, {target}));")
            else:
                storage = self.storage(np.dtype(np.int8), int(np.prod(port.map_shape)))
                text = f"(arena + {storage.name})"
                lines.append(f"CHECK({get}, (int8_t *){text}));")
                function = generate(model, f"npugen_model_output{number}_{index}")
                lines.append(self.call(function, [f"(const int8_t *){text}"], [target]))
            self.step += 1
        return lines

    def _scale(self, port: Port) -> None:
        for step in port.steps:
            if step.kind in ("quantize", "dequantize"):
                self.scales.setdefault(port.name, (float(step.parameters["scale"]), int(step.parameters["zero_point"])))


#: A type of C -> NumPy's. (A bool is a byte.)
_BY_NAME = {c_type(dtype).name: dtype for dtype in map(np.dtype, (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"))}


def _walk(writer: _Writer, states: Sequence[ModelState]) -> None:
    file, number = writer.file, 0
    for index, segment in enumerate(file.segments):
        lines = writer.after[-1] if number else writer.before
        if isinstance(segment, bytes):
            lines += writer.host(index, segment)
            writer.step += 1
            continue
        lines += writer.enter(number, segment)
        writer.after.append(writer.leave(number, segment))
        number += 1
    for name in sorted(writer.kept):
        if writer.values[name].storage is None:     # an input of the model, perhaps a state that changes below
            _copied(writer, name)
    for index, name in enumerate(file.outputs):
        value = writer.values[name]
        if value.text != f"outputs[{index}]":       # an input of the model, or kept
            given = f"if (outputs[{index}]) " if name in writer.kept else ""
            writer.after[-1].append(f"{given}memcpy(outputs[{index}], {writer.read(name)}, {_bytes(value)}u);")
    for state in states:
        source = writer.read(file.outputs[state.output])
        writer.after[-1].append(f"memcpy(states + {state.offset}u, {source}, {state.size}u);")


def _bytes(value: _Value) -> int:
    return int(np.prod(value.shape, dtype=np.int64)) * value.dtype.itemsize


def _copied(writer: _Writer, name: str) -> None:
    source = writer.values[name]
    target = writer.made(name, source.dtype, source.shape)
    writer.after[-1].append(f"memcpy({target}, {source.text}, {_bytes(source)}u);")
    writer.step += 1


def c_model(file: ProgramFile, states: Mapping[str, str] = MappingProxyType({}), *, name: str = "model") -> CModel:
    """The files of a model in C, but for samples. ``states``: input -> the output that it is in the next inference;
    ``name``: its calls and files begin with npugen_NAME, so that several models go into one program.

    Raises ArgumentError for another name than a small word that the library does not have; GraphError for an
    operator that has no C, naming its node; ProgramError for what cannot be passed on; StateError.
    """
    library = library_files(file.programs[0].config)
    _require_name(name, library)
    require_states(states, list(file.inputs), file.outputs)
    writer = _Writer(file, frozenset(states.values()))
    kept: list[ModelState] = []
    size = 0
    for given, (dtype, shape) in file.inputs.items():
        value = _Value(np.dtype(dtype), (1, *shape))
        writer.values[given] = value
        if given not in states:
            value.text = f"inputs[{list(file.inputs).index(given) - len(kept)}]"
            continue
        value.text = f"(states + {size}u)"
        kept.append(ModelState(_port(writer, given), list(file.outputs).index(states[given]), size))
        size += -(-kept[-1].size // ALIGNMENT) * ALIGNMENT
    _walk(writer, kept)
    arena = max(ALIGNMENT, place(writer.storages))

    def placed(lines: Sequence[str]) -> list[str]:
        text = "\n".join(lines)
        for storage in writer.storages:
            text = text.replace(storage.name, f"{storage.offset}u")
        return text.splitlines()

    inputs = tuple(_port(writer, name) for name in file.inputs if name not in states)
    outputs = tuple(_port(writer, name) for name in file.outputs)
    for state in kept:
        _require_alike(outputs[state.output], state.port)
    kept = [replace(state, port=_port(writer, state.port.name)) for state in kept]      # the scale is known now
    facts = {"file": file, "programs": file.programs, "inputs": inputs, "outputs": outputs, "arena": arena,
             "states": kept, "state_bytes": size, "kept": {state.output for state in kept},
             "checks": any(port.dtype == "float32" for program in file.programs for port in program.input_ports),
             "before": placed(writer.before), "after": [placed(lines) for lines in writer.after],
             "functions": writer.functions,
             "alignment": ALIGNMENT, "rank": max([1, *(len(port.shape) for port in (
                 *inputs, *outputs, *(state.port for state in kept)))])}
    own = {one: template(f"{one}.jinja").render(**facts)
           for one in ("npugen_model.h", "npugen_model.c", "npugen_model_data.S")}
    own["npugen_model_functions.c"] = render(writer.functions)
    files = library | {_named(one, name): _named(text, name).encode() for one, text in own.items()}
    for number, program in enumerate(file.programs):
        files |= {_named(f"npugen_model_code{number}.bin", name): program.code,
                  _named(f"npugen_model_data{number}.bin", name): program.constants}
    return CModel(files, inputs, outputs, arena, tuple(kept))


def _named(text: str, name: str) -> str:
    """A source of a model, or the name of one, where ``model`` is what the model is called."""
    return text.replace("npugen_model", f"npugen_{name}").replace("NPUGEN_MODEL", f"NPUGEN_{name.upper()}")


def _require_name(name: str, library: Mapping[str, bytes]) -> None:
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ArgumentError(f"name must be small letters, digits and _, with a letter first, not {name!r}",
                            code="bad-option")
    if any(re.search(rf"npugen_{name}(?![a-z0-9])", text.decode(), re.IGNORECASE) for text in library.values()):
        raise ArgumentError(f"name {name!r} is that of a part of the library; choose another", code="bad-option")


def _require_alike(output: ModelPort, port: ModelPort) -> None:
    """Raises StateError where one is not what the other is."""
    words = [f"{end.dtype} {' x '.join(map(str, end.shape)) or 'alone'}" for end in (output, port)]
    if output.sized:
        raise StateError(f"--state {output.name}={port.name}: the size of the output depends on the data")
    if words[0] != words[1]:
        raise StateError(f"--state {output.name}={port.name}: the output is {words[0]}, the input {words[1]}")


def _port(writer: _Writer, name: str) -> ModelPort:
    value = writer.values[name]
    scale, zero_point = writer.scales.get(name, (None, None))
    return ModelPort(name, c_type(value.dtype).name, value.dtype.name, value.shape, value.sized, scale, zero_point)


def write_c_package(path: Path, application: Application, samples: Samples, board: Board, *,
                    states: Mapping[str, str] = MappingProxyType({}), name: str = "model",
                    progress: Callable[[str], None] = lambda text: None) -> CModel:
    """Write a folder, or an archive of one, with a model in C for a ``board``, an example that runs the first of some
    ``samples``, and the ladder of a new board.

    ``states``, ``name``: as `c_model` has them; states are zeros in the example, and ``samples`` go without them.
    ``progress`` hears how far it is. Raises what `c_model` raises, CompileError, OSError; nothing is written then.
    """
    progress("writing C")
    model = c_model(application.file, states, name=name)
    require_formats(application, states)
    files = model.files | board_files(board) | c_bringup(bring_up(application.file.programs[0].config))
    files["doctor.c"] = read_file(_EXAMPLE.parent / "doctor.c")
    files |= {one: _named(read_file(_EXAMPLE / one).decode(), name).encode() for one in ("main.c", "Makefile")}
    zeros = {name: np.zeros(application.inputs[name].shape, application.inputs[name].dtype) for name in states}
    first = replace(samples, inputs={name: array[:1] for name, array in (samples.inputs | zeros).items()}, labels=None)
    made = run_model(application, first, "reference", progress=lambda done, present: progress(present))
    values = [(f"input_{number}.bin", samples.inputs[port.name][0]) for number, port in enumerate(model.inputs)]
    values += [(f"expected_{number}.bin", made.inferences[0].outputs[port.name])
               for number, port in enumerate(model.outputs)]
    with whole_folder(path) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        for name, value in values:
            (folder / name).write_bytes(np.ascontiguousarray(value).tobytes())
    return model
