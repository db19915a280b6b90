"""Programs of several samples: each has the bytes that it would have alone, and weights are read once."""

import json
from pathlib import Path

import numpy as np
import pytest

from cores.arch.isa import Opcode
from cores.config import NpuConfig
from cores.device import driver_machine
from gen.cli import main
from gen.compiler import compile_graph
from gen.ir import reference
from gen.ir.epilogue.add import Add
from gen.ir.epilogue.base import StoreOp
from gen.ir.epilogue.leaky import Leaky
from gen.ir.graph import Conv, Graph, Layer
from gen.ir.tensor import Requantize, Tensor
from gen.ir.verify import verify
from gen.options import CompileOptions
from gen.passes.batch import batched, names_of, of_batch, of_sample, without_samples
from gen.program.file import load_program
from gen.program.program import MAX_BATCH, Program
from gen.run.application import open_application
from gen.run.inputs import random_samples, read_samples
from gen.run.runner import run_model
from gen.stochastic.backbone import Backbone
from gen.stochastic.model import onnx_model
from gen.stochastic.network import Layer as StreamLayer
from npudriver import Deployment, Device
from sim import functional
from sim.cycles import estimate
from sim.devices import FunctionalBackend
from sim.golden import quantize_multiplier
from sim.rtl.machine import RtlMachine
from sim.rtl.run import run_program
from tests.random_layers import random_graph
from tests.vgg16 import vgg16_graph

CONFIG = NpuConfig.preset(64)


def check(graph: Graph, config: NpuConfig, samples: int, seed: int, **options: object) -> int:
    """Every tensor of a program of so many samples is that of each by itself; returns how many were compared."""
    program, image, kept = prepared(graph, config, samples, seed, **options)
    functional.run(program.config, program.code, image, write_start=program.write_start)
    return compared(program, image, kept)


def prepared(graph: Graph, config: NpuConfig, samples: int, seed: int, **options: object
             ) -> tuple[Program, np.ndarray, dict[str, np.ndarray]]:
    """A program of so many samples, its data region before a run, and what the tensors of each sample should be."""
    program, single = compile_graph(graph, config, CompileOptions(batch=samples, **options))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    inputs = {name: rng.integers(-128, 128, (samples, *single.tensors[tensor].shape), np.int8)
              for name, (tensor, _) in single.inputs.items()}
    alone = [reference.run(single, {name: array[n:n + 1] for name, array in inputs.items()}, keep=True)[1]
             for n in range(samples)]
    kept = {name: np.concatenate([one[name] for one in alone if one is not None]) for name in alone[0] or {}}
    image = program.image()
    for tensor in program.inputs.values():
        program.pack_input(image, tensor, of_batch(tensor, kept))
    return program, image, kept


def compared(program: Program, image: np.ndarray, kept: dict[str, np.ndarray]) -> int:
    """Of a data region after a run: the number of tensors, all of which are equal."""
    found = [name for name in program.written if program.holds(name)]
    for name in found:
        np.testing.assert_array_equal(program.unpack_tensor(image, name), of_batch(name, kept), name)
    assert set(program.outputs.values()) <= set(found)
    return len(found)


@pytest.mark.parametrize("samples", [2, 3, 5])
def test_a_classifier_has_the_bytes_of_single_samples(samples: int, seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.vgg16._STAGES", ((16,), (64, 64)))
    monkeypatch.setattr("tests.vgg16._FULLY_CONNECTED", (512, 512, 100))
    graph = vgg16_graph(size=16, seed=seed)
    assert check(graph, CONFIG, samples, seed, density=0.25, keep_all=True) > 3 * samples
    program, _ = compile_graph(graph, CONFIG, CompileOptions(batch=samples, density=0.25))
    single, _ = compile_graph(graph, CONFIG, CompileOptions(density=0.25))
    names = [layer.name for layer in program.layers]
    assert {"fc6", "fc7", "fc8"} <= set(names) and of_sample("conv2_1", samples - 1) in names
    assert len(program.constants) < 1.01 * len(single.constants)

    def weights_of(made: Program) -> int:
        """Beats of fully connected layers' weights."""
        connected = {number for number, layer in enumerate(made.layers) if layer.name.startswith("fc")}
        return sum(one["beats"] for one, owner in zip(made.instructions, made.instruction_layers, strict=True)
                   if one.opcode == Opcode.LOAD_WGT and owner in connected)

    assert weights_of(program) == weights_of(single)
    cycles = {made.batch: estimate(CONFIG, made.code).cycles for made in (single, program)}
    assert cycles[samples] < 0.75 * samples * cycles[1]


def vectors(rng: np.random.Generator) -> Graph:
    """Fully connected layers with sums between them, which are computed for each sample, and two outputs. What bends
    the result of one is its own.
    """
    tensors = {"x": Tensor("x", (20, 3, 2), 1.0, 3)}
    layers: list[Layer] = []

    def connect(name: str, source: str, outputs: int, other: str = "", *, bends: bool = False) -> None:
        channels, *kernel = tensors[source].shape
        target = tensors[name] = Tensor(name, (outputs, 1, 1), 1.0, int(rng.integers(-5, 5)))
        multiplier, shift = quantize_multiplier(rng.uniform(0.001, 0.01, outputs))
        middle = Tensor(f"{name}/middle", target.shape, 1.0, 0)
        epilogue: tuple[StoreOp, ...] = ()
        if other:
            epilogue = Add(middle=middle, other=other, multiplier_a=9000, multiplier_b=7000, constant=5, shift=14,
                           zero_point=target.zero_point, low=-128, high=127),
        if bends:
            epilogue = Leaky(middle=middle, multiplier=9000, negative=2000, shift=13, zero_point=target.zero_point,
                             low=-128, high=127),
        layers.append(Conv(
            name, source, name, weights=rng.integers(-127, 128, (outputs, channels, *kernel)).astype(np.int16),
            requantize=Requantize(rng.integers(-999, 999, outputs), multiplier, shift, 0, -128, 127),
            epilogue=epilogue))

    connect("a", "x", 33)
    connect("b", "a", 33, other="a")
    connect("c", "b", 70, bends=True)
    connect("d", "c", 16)
    graph = Graph("vectors", tensors, tuple(layers), {"in": ("x", ())}, {"first": ("b", ()), "last": ("d", ())})
    verify(graph)
    return graph


@pytest.mark.slow
def test_layers_for_all_and_for_each(seed: int, monkeypatch: pytest.MonkeyPatch):
    graph = vectors(np.random.default_rng(seed))
    names = [layer.name for layer in batched(graph, 2, CONFIG).layers]
    assert names == ["a@0", "b@0", "c@0", "d@0", "a@1", "b@1", "c@1", "d@1"]     # too few weights
    monkeypatch.setattr("gen.passes.batch._MOVE", -10_000)
    names = [layer.name for layer in batched(graph, 2, CONFIG).layers]
    assert names == ["x@all/joined", "a", "a@0/sample", "a@1/sample", "b@0", "b@1", "b@all/joined", "c", "d",
                     "d@0/sample", "d@1/sample"]
    for samples in (2, 7, MAX_BATCH):
        for config in (CONFIG, NpuConfig.preset(16), NpuConfig.preset(64, "dense")):
            check(graph, config, samples, seed)


@pytest.mark.parametrize("number", range(9))
def test_random_graphs(number: int, seed: int, monkeypatch: pytest.MonkeyPatch):
    """With sums and pools, whichever layers take all samples together."""
    if number % 2:
        monkeypatch.setattr("gen.passes.batch._MOVE", -10_000)
    graph = random_graph(seed + number, layers=3, max_size=5)
    config = [CONFIG, NpuConfig.preset(16), NpuConfig.preset(64, "dense", depthwise=1)][number % 3]
    check(graph, config, 2 + number % 3, seed, keep_all=number % 2 == 0)


@pytest.mark.rtl
def test_on_the_verilog(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gen.passes.batch._MOVE", -10_000)
    config = NpuConfig.preset(16)
    program, image, kept = prepared(vectors(np.random.default_rng(seed)), config, 5, seed)
    with RtlMachine(config) as machine:
        result = run_program(machine, program.code, image, write_start=program.write_start)
    assert compared(program, result.image, kept) > 5
    assert estimate(config, program.code).cycles == pytest.approx(result.cycles, rel=0.005)


def test_names():
    assert names_of("x", 1) == ["x"] and names_of("x", 2) == ["x@0", "x@1"]
    assert without_samples({"a@b@0": 1}, 2) == {"a@b": 1} and without_samples({"a@0": 1}, 1) == {"a@0": 1}


@pytest.mark.slow
def test_a_program_of_a_batch(model: str, samples: str, capsys: pytest.CaptureFixture, tmp_path: Path):
    """From the command line: its samples are those of the model, and of the driver each its own input."""
    path = tmp_path / "batch.npu"
    assert main(["compile", model, "--macs", "16", "--batch", "3", "-o", str(path), "--json"]) == 0
    speed = json.loads(capsys.readouterr().out)["speed"]
    assert speed["batch"] == 3 and speed["cycles_per_sample"] * 3 == speed["cycles"]
    assert main(["profile", str(path), "--json"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert (total["cycles"], total["batch"]) == (speed["cycles"], 3)
    assert main(["profile", str(path)]) == 0 and "energy of the batch: as " in capsys.readouterr().out
    assert main(["run", str(path), "--input", samples, "--limit", "5", "--target", "functional", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["samples"], found["mismatches"]) == (5, 0)
    batch, alone = (open_application(Path(file), config, CompileOptions()) for file, config in (
        (path, None), (model, NpuConfig.preset(16))))
    drawn = read_samples(Path(samples), alone.inputs, limit=4)
    ran, expected = (run_model(one, drawn, "functional") for one in (batch, alone))
    assert len(ran.inferences) == 4 and not ran.mismatches and ran.compared
    for name, values in expected.outputs.items():
        np.testing.assert_array_equal(ran.outputs[name], values)

    program = load_program(path)
    assert program.batch == 3 and list(program.inputs) == names_of(list(program.inputs)[0][:-2], 3)
    for command in (["report", str(path), "-o", "x.html"], ["deploy", str(path), "-o", "there"],
                    ["govern", str(path), "--input", samples, "-o", "x.json"]):
        assert main(command) == 2
        assert "a program for a batch of 3 samples; compile the model without --batch" in capsys.readouterr().err
    assert main(["run", str(path), "--input", samples, "--target", "board:functional", "--counters",
                 str(tmp_path / "c.json")]) == 2
    assert "a program for a batch of 3 samples" in capsys.readouterr().err
    assert main(["run", str(path), "--batch", "2", "--input", samples]) == 2
    assert "a program is what it is; compile the model with --batch 2" in capsys.readouterr().err
    assert main(["compile", model, "--batch", "17", "-o", str(path)]) == 2
    assert "must be 1 to 16, not 17" in capsys.readouterr().err


def test_streams_of_a_batch(rng: np.random.Generator, capsys: pytest.CaptureFixture, tmp_path: Path):
    """Each sample has its layers of streams, all from the same place in the generators."""
    layers = [StreamLayer(one, rng.integers(-9, 9, (one.outputs, one.taps, one.input.channels), dtype=np.int8),
                          np.zeros(one.outputs, np.int64), 0.002) for one in Backbone("8x8-c4k3-p2-c20k3-10").layers]
    model, samples, path = tmp_path / "net.onnx", tmp_path / "x.npz", tmp_path / "batch.npu"
    model.write_bytes(onnx_model(layers, 1000.0))
    np.savez(samples, x=rng.random((3, 1, 8, 8), np.float32))
    assert main(["compile", str(model), "--macs", "16", "--features", "stochastic", "--stochastic", "16",
                 "--batch", "2", "--no-check", "-o", str(path)]) == 0
    assert load_program(path).streams
    run = ["run", str(path), "--input", str(samples), "--target", "functional"]
    capsys.readouterr()
    assert main([*run, "--json"]) == 0 and json.loads(capsys.readouterr().out)["mismatches"] == 0
    assert main([*run, "--stream-shift", "3"]) == 2
    assert "--stream-shift does not go with a batch" in capsys.readouterr().err


def test_the_driver_takes_an_input_for_each_sample(model: str, tmp_path: Path):
    config = NpuConfig.preset(16)
    application = open_application(Path(model), config, CompileOptions(batch=2))
    application.save(tmp_path / "two.npu")
    single = open_application(Path(model), config)
    whole = single.workloads[0]
    two = [random_samples(whole.graph, whole.input_shapes, seed=number).inputs for number in (3, 4)]
    drawn = {name: np.concatenate([one[name] for one in two]) for name in two[0]}
    expected = reference.run(whole.graph, drawn)[0]
    with Device(FunctionalBackend(config), driver_machine(config)) as device:
        loaded = Deployment.load(tmp_path / "two.npu").load_into(device)
        outputs = loaded.run({f"{name}@{n}": array[n] for name, array in drawn.items() for n in range(2)})
    for name, array in expected.items():
        for n in range(2):
            np.testing.assert_array_equal(outputs[f"{name}@{n}"], array[n])
