"""Integer machines: cycles as `gen profile` has them, what does not fit, what pruning costs."""

import json
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.config import NpuConfig
from gen.cli import main
from gen.compiler import generate, prepare
from gen.explore.accuracy import Judgement, kept_energy
from gen.explore.errors import ExploreError, SpaceError
from gen.explore.evaluation import Evaluation
from gen.explore.machines import MachineProblem
from gen.explore.meter import MachineMeter
from gen.explore.models import ModelFile, read_model_file
from gen.explore.parameters import config_of, space_of
from gen.ir.errors import GraphError
from gen.onnx.importer import load_model
from gen.onnx.machine import Machine
from gen.onnx.read import parse
from gen.options import CompileOptions
from gen.passes.prune import prune
from gen.run.inputs import model_specs, read_samples
from sim import cycles
from tests.gen.qdq import Builder

BOARD = get_board("zu3eg")


@pytest.fixture(scope="module")
def model() -> ModelFile:
    digits = Path(__file__).resolve().parents[3] / "examples" / "digits" / "digits_int8.onnx"
    return read_model_file(digits, None, {})[0]


def evaluated(problem: MachineProblem, number: int = 0) -> Evaluation:
    point = problem.space.point(number)
    return problem.evaluation(point, [problem.meter.measure([job.content])[0] for job in problem.jobs(point)])


@pytest.mark.slow
def test_cycles_are_those_of_a_program(model: ModelFile, rng: np.random.Generator):
    """Of a random machine and density: the program that `compile` writes takes as long on the time model."""
    for _ in range(3):
        axes = {"macs": int(rng.choice([64, 256])), "input_depth": int(rng.choice([512, 1024])),
                "features": str(rng.choice(["none", "depthwise", "fusion+gather+table"])),
                "density": float(rng.choice([1.0, 0.5]))}
        print(axes)
        problem = MachineProblem(space_of(axes), BOARD, MachineMeter([model]))
        found, config = evaluated(problem), config_of(BOARD, problem.space.point(0))
        options = CompileOptions(density=float(axes["density"]))
        graph = load_model(model.name, model.content, machine=Machine.of(config)).graph
        program = generate(prepare(graph, config, options), config, options)
        assert found.figures["cycles"] == cycles.estimate(config, program.code).cycles
        assert found.figures["model_useful_macs"] == sum(layer.useful_macs for layer in program.layers)


@pytest.mark.parametrize("memory", ["ideal", "zu3eg", "zynq7020"])
def test_cycles_are_those_of_a_profile(memory: str, model: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "p.npu"
    machine = ["--macs", "64", "--features", "depthwise"]
    assert main(["compile", model.name, "-o", str(path), "--no-check", *machine]) == 0
    assert main(["profile", str(path), "--memory", memory, "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    axes = {"macs": 64, "features": "depthwise", "memory": memory}
    found = evaluated(MachineProblem(space_of(axes), BOARD, MachineMeter([model])))
    assert found.figures["cycles"] == profile["total"]["cycles"]
    assert found.figures["ms"] == pytest.approx(1000 / profile["total"]["fps"], rel=1e-12)
    assert (found.facts["clock_mhz"], found.facts["clock_basis"]) == (profile["clock_mhz"], profile["clock"])


@pytest.mark.slow
def test_jobs_of_one_program_are_one_group(model: ModelFile):
    space = space_of({"memory": ["ideal", "zu3eg", "kv260"], "macs": 128})
    problem = MachineProblem(space, BOARD, MachineMeter([model]))
    jobs = [job for number in range(3) for job in problem.jobs(space.point(number))]
    assert len({job.group for job in jobs}) == 1
    together = problem.meter.measure([job.content for job in jobs])
    assert together == [MachineMeter([model]).measure([job.content])[0] for job in jobs]
    assert len({result["cycles"] for result in together}) == 3


def test_a_clock_is_in_the_cycles_only_with_a_memory(model: ModelFile):
    for memory, contents in (("ideal", 1), ("zu3eg", 2)):
        space = space_of({"memory": memory, "clock": [100, 200]})
        problem = MachineProblem(space, BOARD, MachineMeter([model]))
        found = {json.dumps(job.content) for number in range(2) for job in problem.jobs(space.point(number))}
        assert len(found) == contents
    assert [objective.name for objective in problem.objectives] == ["ms", "area"]


def test_what_does_not_fit_is_said_and_not_measured(model: ModelFile):
    problem = MachineProblem(space_of({"macs": 512, "oc_lanes": 128}), get_board("zynq7020"), MachineMeter([model]))
    assert not problem.jobs(problem.space.point(0))
    found = evaluated(problem)
    assert not found.feasible and found.infeasible[0].startswith("does not fit: ") and found.excess > 1
    assert found.figures["lut"] > problem.board.resources["lut"] and "cycles" not in found.figures


def test_what_cannot_be_built(model: ModelFile):
    problem = MachineProblem(space_of({"macs": 16, "nnz_lanes": 16}), BOARD, MachineMeter([model]))
    assert not problem.jobs(problem.space.point(0))
    assert "nnz_lanes must be a power of two up to ic_lanes=8" in evaluated(problem).infeasible[0]


def needing_a_table(rng: np.random.Generator) -> ModelFile:
    builder = Builder(rng, number=np.int8)
    value = builder.requantize(builder.node("Conv", builder.requantize(builder.input("N", 3, 6, 6, number=np.float32)),
                                            builder.weights(16, 3, 3, 3), kernel_shape=[3, 3]))
    value = builder.requantize(builder.node("Conv", builder.requantize(builder.node("Sigmoid", value)),
                                            builder.weights(8, 16, 1, 1), kernel_shape=[1, 1]))
    builder.output(value, np.float32)
    return ModelFile("tables.onnx", builder.build().SerializeToString())


def test_machines_that_leave_more_to_the_processor(rng: np.random.Generator):
    """Their cycles are not those of the same work."""
    problem = MachineProblem(space_of({"macs": 64, "features": ["none", "table"]}), BOARD,
                             MachineMeter([needing_a_table(rng)]))
    without, with_table = evaluated(problem, 0), evaluated(problem, 1)
    assert with_table.feasible and not without.feasible
    assert "would be left to the processor; a machine with" in without.infeasible[0]


def test_several_models_are_added(model: ModelFile, rng: np.random.Generator):
    space, other = space_of({"macs": 64, "features": "table"}), needing_a_table(rng)
    both, one, two = (evaluated(MachineProblem(space, BOARD, MachineMeter(models)))
                      for models in ([model, other], [model], [other]))
    assert both.figures["model_macs"] == one.figures["model_macs"] + two.figures["model_macs"]
    point, problem = space.point(0), MachineProblem(space, BOARD, MachineMeter([model, other]))
    results = [problem.meter.measure([job.content])[0] for job in problem.jobs(point)]
    found = problem.evaluation(point, results)
    assert found.figures["cycles"] == one.figures["cycles"] + two.figures["cycles"]


def test_energy_that_is_kept(model: ModelFile):
    graph, config = load_model(model.name, model.content).graph, NpuConfig.preset(64)
    assert kept_energy(graph, graph) == []
    shares = [kept_energy(graph, prune(graph, config, density)) for density in (0.75, 0.5, 0.125)]
    assert all(1 > a > b > c > 0 for a, b, c in zip(*shares, strict=True)) and shares[0]


@pytest.mark.slow
def test_accuracy_by_samples(model: ModelFile, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """As `prune` measures it."""
    samples = read_samples(digits / "digits_test.npz", model_specs(parse("m", model.content).inputs), limit=100)
    judgement = Judgement(samples.inputs, samples.labels)
    problem = MachineProblem(space_of({"macs": 64, "density": [1, 0.125]}), BOARD, MachineMeter([model], judgement))
    assert [objective.name for objective in problem.objectives] == ["cycles", "area", "accuracy"]
    dense, sparse = evaluated(problem, 0), evaluated(problem, 1)
    assert dense.figures["accuracy"] > sparse.figures["accuracy"]
    assert main(["prune", model.name, "--density", "0.125", "--macs", "64", "-o", str(tmp_path / "p.onnx"),
                 "--calibrate", str(digits / "digits_test.npz"), "--limit", "100", "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)["accuracy"]
    assert [dense.figures["accuracy"], sparse.figures["accuracy"]] == [expected["before"], expected["after"]]


@pytest.mark.parametrize("axes, words", [
    ({"speed": 1}, "no parameter 'speed'; there are macs, for, oc_lanes"),
    ({"macs": 100}, "macs: must be one of 4, 8, 16, 32"),
    ({"macs": [64, 64]}, "macs: 64 stands there twice"),
    ({"features": "warp"}, "features: must be of depthwise, .* not 'warp'"),
    ({"density": [0]}, "density: must be above 0 and at most 1, not 0"),
    ({"density": "x"}, "density: must be a number"),
    ({"memory": "tape"}, "memory: must be one of ideal, "), ({"clock": 1e9}, "clock: must be board, or above 0"),
    ({"input_depth": 1.5}, "input_depth: must be an integer, not 1.5"),
    ({"macs": {}}, "macs: must be a value or a list"),
    ({"macs": True}, "macs: must be an integer"), ({"macs": []}, "macs: no values"),
    ({"clock": float("nan")}, "clock: must be board"), ({"features": ["none", "none"]}, "none stands there twice"),
])
def test_no_spaces(axes: dict[str, object], words: str):
    with pytest.raises(SpaceError, match=words):
        space_of(axes)


def test_features_in_any_spelling():
    space = space_of({"features": ["gather,fusion", ["depthwise", "table"], "none"]})
    assert space.axes["features"] == ["fusion+gather", "depthwise+table", "none"]


def test_machines_are_those_of_the_options(capsys: pytest.CaptureFixture):
    axes = {"macs": 128, "features": "fusion+gather", "acc_depth": 128}
    assert config_of(BOARD, space_of(axes).point(0)) == BOARD.config(
        128, **BOARD.config(128).feature_fields(["fusion", "gather"]), acc_depth=128)
    wide = {"macs": 1024, "for": "dense", "ic_lanes": 32, "select_fanin": 2, "features": "gather"}
    assert config_of(BOARD, space_of(wide).point(0)).macs == 1024
    assert config_of(BOARD, space_of({"for": "tiny"}).point(0)) == BOARD.config(16, "tiny")


def test_objectives_that_there_are_none_of(model: ModelFile):
    for name, words in (("speed", "no objective 'speed'; there are cycles, ms"), ("accuracy", "needs samples")):
        with pytest.raises(ExploreError, match=words):
            MachineProblem(space_of({"macs": 64}), BOARD, MachineMeter([model]), [name])


def test_a_model_that_is_none_for_the_accelerator(rng: np.random.Generator):
    meter = MachineMeter([ModelFile("no.onnx", b"nothing")])
    with pytest.raises(GraphError, match="no.onnx"):
        meter.model(meter.models[0].digest).graphs(Machine.complete())
