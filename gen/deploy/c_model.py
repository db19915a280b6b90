"""A whole model in C: programs for the accelerator, what the processor has, and calls that run them in order.

Every value that passes between segments, the feature maps at the ends of programs and the scratch of functions lie in
an arena that the caller gives; nothing is allocated but what the back end gives to the device. The library is that of
npudriver/c; npugen_model.h says how it is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from gen.c import CFunction, generate, render
from gen.c.arena import ALIGNMENT, place
from gen.c.text import c_type
from gen.c.value import Storage
from gen.deploy.c_ports import input_model, output_model
from gen.deploy.c_sources import library_files, template
from gen.deploy.package import whole_folder
from gen.files.read import read_file
from gen.program.file import ProgramFile
from gen.program.program import Program, ProgramError
from gen.run.application import Application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from npudriver.program import Port

__all__ = ["CModel", "ModelPort", "c_model", "write_c_package"]

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
class CModel:
    """``files``: name -> content. ``arena``: bytes for a sample on its way."""

    files: dict[str, bytes]
    inputs: tuple[ModelPort, ...]
    outputs: tuple[ModelPort, ...]
    arena: int


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
    functions: list[CFunction] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    values: dict[str, _Value] = field(default_factory=dict)
    #: Statements before the first program starts, and after it has ended.
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
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
        if name in self.file.outputs:
            value = _Value(dtype, shape, f"outputs[{list(self.file.outputs).index(name)}]", sized=sized)
        else:
            storage = self.storage(dtype, max(1, int(np.prod(shape, dtype=np.int64))))
            value = _Value(dtype, shape, f"(arena + {storage.name})", storage)
        self.values[name] = value
        return f"({c_type(dtype).name} *){value.text}"

    def call(self, function: CFunction, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        self.functions.append(function)
        scratch = "NULL"
        if function.arena_size:
            scratch = f"arena + {self.storage(np.dtype(np.uint8), function.arena_size).name}"
        return f"{function.name}({', '.join([*inputs, *outputs, scratch])});"

    def host(self, number: int, content: bytes) -> list[str]:
        function = generate(onnx.load_model_from_string(content), f"npugen_segment{number}")
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
                lines.append(self.call(generate(model, f"npugen_input{number}_{index}"), [source], [text]))
                source = f"(const int8_t *)(arena + {target.name})"
            lines.append(f"CHECK(npugen_input(model->device, &model->programs[{number}], slot, {index}u, {source}));")
            self.step += 1
        return lines

    def leave(self, number: int, program: Program) -> list[str]:
        """A program's outputs from the device's memory."""
        lines = []
        for index, port in enumerate(program.output_ports):
            if port.signs:
                raise ProgramError(f"output {port.name} is a map of packed bits, which C does not unpack; leave out "
                                   "--language c", code="packed-output")
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
                function = generate(model, f"npugen_output{number}_{index}")
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


def _walk(writer: _Writer) -> None:
    file, number = writer.file, 0
    for index, segment in enumerate(file.segments):
        lines = writer.after if number else writer.before
        if isinstance(segment, bytes):
            lines += writer.host(index, segment)
            writer.step += 1
            continue
        lines += writer.enter(number, segment)
        if number:
            writer.after += [f"CHECK(npugen_start(model->device, &model->programs[{number}], slot));",
                             "CHECK(npugen_wait(model->device, timeout_us));"]
        writer.after += writer.leave(number, segment)
        number += 1
    for index, name in enumerate(file.outputs):
        value = writer.values[name]
        if value.text != f"outputs[{index}]":       # an input of the model
            size = int(np.prod(value.shape, dtype=np.int64)) * value.dtype.itemsize
            writer.after.append(f"memcpy(outputs[{index}], {value.text}, {size}u);")


def c_model(file: ProgramFile) -> CModel:
    """The files of a model in C, but for samples. Raises GraphError for an operator that has no C, naming its node;
    ProgramError for what cannot be passed on.
    """
    writer = _Writer(file)
    for index, (name, (dtype, shape)) in enumerate(file.inputs.items()):
        writer.values[name] = _Value(np.dtype(dtype), (1, *shape), f"inputs[{index}]")
    _walk(writer)
    arena = max(ALIGNMENT, place(writer.storages))

    def placed(lines: Sequence[str]) -> list[str]:
        text = "\n".join(lines)
        for storage in writer.storages:
            text = text.replace(storage.name, f"{storage.offset}u")
        return text.splitlines()

    inputs, outputs = (tuple(_port(writer, name) for name in names) for names in (file.inputs, file.outputs))
    facts = {"file": file, "programs": file.programs, "inputs": inputs, "outputs": outputs, "arena": arena,
             "checks": any(port.dtype == "float32" for program in file.programs for port in program.input_ports),
             "before": placed(writer.before), "after": placed(writer.after), "functions": writer.functions,
             "alignment": ALIGNMENT, "rank": max([1, *(len(port.shape) for port in (*inputs, *outputs))])}
    files = library_files(file.programs[0].config)
    files |= {name: template(f"{name}.jinja").render(**facts).encode()
              for name in ("npugen_model.h", "npugen_model.c", "npugen_model_data.S")}
    files["npugen_functions.c"] = render(writer.functions).encode()
    for number, program in enumerate(file.programs):
        files |= {f"program{number}_code.bin": program.code, f"program{number}_data.bin": program.constants}
    return CModel(files, inputs, outputs, arena)


def _port(writer: _Writer, name: str) -> ModelPort:
    value = writer.values[name]
    scale, zero_point = writer.scales.get(name, (None, None))
    return ModelPort(name, c_type(value.dtype).name, value.dtype.name, value.shape, value.sized, scale, zero_point)


def write_c_package(path: Path, application: Application, samples: Samples, *,
                    progress: Callable[[str], None] = lambda text: None) -> CModel:
    """Write a folder, or an archive of one, with a model in C and an example that runs the first of some ``samples``.

    ``progress`` hears how far it is. Raises what `c_model` raises, CompileError, OSError; nothing is written then.
    """
    progress("writing C")
    model = c_model(application.file)
    files = model.files | {name: read_file(_EXAMPLE / name) for name in ("main.c", "Makefile")}
    first = replace(samples, inputs={name: array[:1] for name, array in samples.inputs.items()}, labels=None)
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
