"""A compiled program in the form that the driver runs."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from cores.device import driver_machine
from gen.ir import reference
from gen.ir.graph import Graph
from gen.program.program import Program
from gen.run.application import Application
from gen.run.host import HostSegment
from gen.run.workload import Workload
from npudriver import Deployment
from npudriver.layout import pack
from npudriver.program import DeployedProgram, Port, Step
from sim.cycles import estimate

__all__ = ["deployed", "deployment", "packed_inputs"]


def deployment(application: Application, folder: Path, *, name: str, board: str = "", device: str = "") -> Deployment:
    """An application as the driver runs it; models of the processor's segments are written to ``folder``.

    ``board``, ``device``: what it is for, and where the driver looks for it. Raises CompileError, OSError.
    """
    segments: list[DeployedProgram | Path] = []
    for number, segment in enumerate(application.segments):
        if isinstance(segment, HostSegment):
            segments.append(folder / f"segment{number}.onnx")
            (folder / f"segment{number}.onnx").write_bytes(segment.model)
        else:
            segments.append(deployed(segment))
    return Deployment(
        name=name, board=board, device=device, machine=driver_machine(application.workloads[0].program.config),
        inputs={name: (spec.dtype.name, list(spec.shape[1:])) for name, spec in application.inputs.items()},
        outputs=list(application.outputs), segments=segments)


def deployed(workload: Workload) -> DeployedProgram:
    """The program of a workload, with the processor's work at its ends as steps. Raises CompileError."""
    program, graph = workload.program, workload.graph
    runs = [(layer, len(list(run))) for layer, run in groupby(program.instruction_layers)]
    return DeployedProgram(
        name=program.name, digest=program.config.digest, data_beats=program.data_beats,
        write_start=program.write_start, cycles=estimate(program.config, program.code).cycles,
        inputs=[_input(program, graph, name, workload.input_shapes[name][1:]) for name in graph.inputs],
        outputs=[_output(program, graph, name) for name in graph.outputs],
        layers=[layer.name for layer in program.layers], instruction_layers=runs,
        code=program.code, constants=program.constants)


def packed_inputs(program: Program, tensors: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
    """Of int8 (C, H, W) ``tensors`` the program's inputs, as `ResidentProgram.submit_packed` takes them."""
    places = {program.tensors[name]: tensors[name] for name in program.inputs.values()}
    return {place.offset: pack(values, program.config.beat_bytes, interleaved=place.interleaved)
            for place, values in places.items()}


def _input(program: Program, graph: Graph, name: str, shape: tuple[int, ...]) -> Port:
    tensor, host_steps = graph.inputs[name]
    steps = [Step(step.kind, step.parameters) for step in host_steps]
    unsigned = graph.tensors[tensor].onnx_unsigned
    if unsigned:
        steps.append(Step("retype", {"unsigned": False}))
    floats = any(step.kind == "quantize" for step in host_steps)
    return _port(program, name, "float32" if floats else "uint8" if unsigned else "int8", shape, tensor, steps)


def _output(program: Program, graph: Graph, name: str) -> Port:
    tensor, host_steps = graph.outputs[name]
    steps = [Step("retype", {"unsigned": True})] if graph.tensors[tensor].onnx_unsigned else []
    steps += [Step(step.kind, step.parameters) for step in host_steps]
    example = reference.host_output(graph, name, np.zeros((1, *graph.tensors[tensor].shape), np.int8))
    return _port(program, name, example.dtype.name, example.shape[1:], tensor, steps)


def _port(program: Program, name: str, dtype: str, shape: tuple[int, ...], tensor: str, steps: list[Step]) -> Port:
    place = program.tensors[tensor]
    return Port(name=name, dtype=dtype, shape=list(shape), tensor=tensor, map_shape=list(place.shape),
                offset=place.offset, interleaved=place.interleaved, signs=place.signs, steps=steps)
