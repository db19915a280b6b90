"""A compiled program in the form that the driver runs."""

from itertools import groupby

import numpy as np

from gen.ir import reference
from gen.ir.graph import Graph
from gen.program.program import Program
from gen.run.workload import Workload
from npudriver.program import DeployedProgram, Port, Step
from sim.cycles import estimate

__all__ = ["deployed"]


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
