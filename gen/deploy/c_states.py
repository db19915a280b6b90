"""States of a model in C: outputs that it keeps, each as an input of the next inference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import numpy_helper

from cores.errors import ArgumentError
from gen.run.application import Application
from gen.run.workload import Workload

__all__ = ["StateError", "parse_states", "require_formats", "require_states"]


class StateError(ArgumentError):
    """An output that cannot be an input of the next inference; the message names both."""

    code = "unfit-state"


def parse_states(texts: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Of ``OUTPUT=INPUT`` each, with a model's names: input -> output. Raises StateError.

    Names may have equals signs; what fits the model is meant.
    """
    found: dict[str, str] = {}
    for text in texts:
        cuts = [(text[:at], text[at + 1:]) for at, letter in enumerate(text) if letter == "="]
        output, name = next((cut for cut in cuts if cut[0] in outputs and cut[1] in inputs), cuts[0] if cuts else
                            (text, ""))
        if not name:
            raise StateError(f"--state {text}: must be OUTPUT=INPUT")
        if name in found:
            raise StateError(f"--state {text}: {name} has the output {found[name]} already")
        found[name] = output
    require_states(found, inputs, outputs)
    return found


def require_states(states: Mapping[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """``states``: input -> output. Raises StateError for names that the model does not have."""
    for name, output in states.items():
        for kind, word, known in (("output", output, outputs), ("input", name, inputs)):
            if word not in known:
                raise StateError(f"--state {output}={name}: the model has no {kind} {word}, but {', '.join(known)}")
    if states and len(states) == len(inputs):
        raise StateError("--state: every input of the model would be kept from inference to inference; one at least "
                         "must come from outside")


@dataclass(frozen=True)
class _Format:
    """What an integer stands for."""

    scale: float
    zero_point: int

    def __str__(self) -> str:
        return f"scale {self.scale:g} and zero point {self.zero_point}"


def require_formats(application: Application, states: Mapping[str, str]) -> None:
    """Raises StateError for integers that stand for other numbers at the two ends, as far as a model says."""
    inputs, outputs = dict(_formats(application, ends="inputs")), dict(_formats(application, ends="outputs"))
    for name, output in states.items():
        given, taken = outputs.get(output), inputs.get(name)
        if given is not None and taken is not None and given != taken:
            raise StateError(f"--state {output}={name}: the output has {given}, the input {taken}; quantise both alike")


def _formats(application: Application, *, ends: str) -> Iterator[tuple[str, _Format]]:
    for segment in application.segments:
        if not isinstance(segment, Workload):
            yield from _of_nodes(onnx.load_model_from_string(segment.model), ends=ends)
            continue
        for name, (tensor, steps) in getattr(segment.graph, ends).items():
            if not any(step.kind in ("quantize", "dequantize") for step in steps):
                found = segment.graph.tensors[tensor]
                yield name, _Format(float(found.scale), found.zero_point + 128 * found.onnx_unsigned)


def _of_nodes(model: onnx.ModelProto, *, ends: str) -> Iterator[tuple[str, _Format]]:
    """Of a QuantizeLinear that makes a value, or a DequantizeLinear that takes it, with one scale."""
    numbers = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != ("DequantizeLinear" if ends == "inputs" else "QuantizeLinear"):
            continue
        found = [numbers.get(name) for name in node.input[1:]]
        if any(array is None or array.size != 1 for array in found):
            continue
        scale, *point = [array.item() for array in found if array is not None]
        yield (node.input if ends == "inputs" else node.output)[0], _Format(float(scale), int(*point))
