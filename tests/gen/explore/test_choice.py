"""The machine for a model: which units stay, which purpose wins, and what is said of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from boards.registry import get_board
from cores.config import TRIED_FEATURES
from gen.cli import main
from gen.explore.choice import Choice, choose
from gen.explore.errors import ExploreError
from gen.explore.evaluation import Evaluation
from gen.explore.machines import MachineProblem
from gen.explore.meter import MachineMeter
from gen.explore.models import ModelGraphs, read_model_file
from gen.explore.parameters import config_of, space_of
from gen.explore.space import Point
from gen.hw.area import area_of
from gen.onnx.machine import Machine
from gen.run.calibration import Calibration, SampledRanges, calibrated
from tests.gen.qdq import Builder

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits" / "digits_int8.onnx"
BOARD = get_board("zu3eg")
PROBLEM = MachineProblem(space_of({}), BOARD, MachineMeter([]), ("ms",))


def chosen(time: Callable[[str, set[str]], float | None]) -> tuple[Choice, list[Sequence[Point]]]:
    """By a made-up time of a purpose and its features in ms, None for nodes left to the processor; with the points that
    were measured, round by round."""
    rounds: list[Sequence[Point]] = []

    def measure(points: Sequence[Point]) -> list[Evaluation]:
        rounds.append(points)
        return [evaluation(point) for point in points]

    def evaluation(point: Point) -> Evaluation:
        names = set(str(point["features"]).replace("none", "").split("+")) - {""}
        area = area_of(config_of(BOARD, point), BOARD.family).totals
        ms = time(str(point["for"]), names)
        figures = {**area, "area": sum(area.values()) / 1e3}
        return Evaluation(point, figures, infeasible=("nodes are left",)) if ms is None else (
            Evaluation(point, {**figures, "ms": ms}))

    return choose(PROBLEM, {"macs": 64}, measure), rounds


def test_units_that_pay_stay():
    """Of eight units: one that saves a third, one without which nodes are left, and one of two that can stand in for
    each other. What each is worth is that of the machine as it is in the end."""
    def time(purpose: str, names: set[str]) -> float | None:
        if purpose == "dense" or "table" not in names:
            return None
        return 10.0 - (3 if "gather" in names else 0) - (2 if names & {"winograd", "product"} else 0)

    choice, _ = chosen(time)
    assert choice.others == ()
    assert choice.chosen.features in (("gather", "winograd", "table"), ("gather", "table", "product"))
    other = ({"winograd", "product"} & set(choice.chosen.features)).pop()
    assert choice.chosen.lost == {"gather": pytest.approx(0.6), "table": None, other: pytest.approx(0.4)}


def test_small_losses_do_not_add_up():
    """Units that save 0.6 % each: no more than one is left out."""
    choice, _ = chosen(lambda purpose, names: 100 - 0.6 * len(names) if purpose == "sparse" else None)
    assert len(choice.chosen.features) == len(TRIED_FEATURES) - 1


def test_nothing_pays_is_found_at_once():
    choice, rounds = chosen(lambda purpose, names: 1.0)
    assert choice.chosen.features == () and len(rounds) <= 3


@pytest.mark.parametrize(("dense", "wins"), [(0.8, "dense"), (1.04, "dense"), (1.06, "sparse")])
def test_purposes(dense: float, wins: str):
    """The faster one; and if they are about as fast the smaller, which dense lanes are."""
    choice, _ = chosen(lambda purpose, names: dense if purpose == "dense" else 1.0)
    assert choice.chosen.purpose == wins
    assert {one.purpose for one in choice.others} == {"dense", "sparse"} - {wins}


def test_no_machine():
    with pytest.raises(ExploreError, match="^nodes are left$"):
        chosen(lambda purpose, names: None)
    with pytest.raises(ExploreError, match="macs must be one of"):
        choose(PROBLEM, {"macs": 99}, lambda points: [PROBLEM.evaluation(point, []) for point in points])


@pytest.mark.cli
def test_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """--for MODEL of `build` and --features auto of `compile` say what they choose, in options that make the same."""
    monkeypatch.setenv("NPUGEN_BUILD", str(tmp_path))
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / "a.npu"), "--macs", "16", "--features", "auto",
                 "--no-check"]) == 0
    said = capsys.readouterr().err
    line = next(line for line in said.splitlines() if line.startswith("for digits_int8.onnx: "))
    options = line.split(": ")[1].split(" (")[0].split()
    assert options[:3] == ["--for", "sparse", "--features"] and "instead" not in said
    assert main(["compile", str(DIGITS), "-o", str(tmp_path / "b.npu"), "--macs", "16", "--no-check", *options]) == 0
    assert (tmp_path / "a.npu").read_bytes() == (tmp_path / "b.npu").read_bytes()


def test_samples_of_a_quantised_model_are_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture):
    """Choosing units takes far longer than to see that they are of no use."""
    def choose_for(*arguments: object, **options: object) -> None:
        raise AssertionError("units are chosen")

    monkeypatch.setattr("gen.explore.choice.choose_for", choose_for)
    samples = str(DIGITS.with_name("digits_test.npz"))
    assert main(["compile", str(DIGITS), "--calibrate", samples, "-o", str(tmp_path / "a.npu")]) == 1
    assert "the model is quantised already; leave out --calibrate" in capsys.readouterr().err


def test_a_model_that_samples_complete(rng: np.random.Generator, tmp_path: Path):
    """What the first layer reads, and the last makes, is quantised by samples: units are chosen for both."""
    b = Builder(rng)
    y = b.node("Conv", b.input(1, 3, 9, 9, number=np.float32), b.weights(8, 3, 3, 3))
    b.output(b.node("Sigmoid", b.node("Conv", b.requantize(y), b.weights(4, 8, 3, 3))), np.float32)
    np.savez(tmp_path / "x.npz", x=rng.random((20, 3, 9, 9)).astype(np.float32))
    calibration = Calibration(tmp_path / "x.npz")
    path = b.save(tmp_path)
    file, _ = read_model_file(path, calibration, {}, partly=True)
    (graph,) = ModelGraphs(file).graphs(Machine.complete())
    assert [layer.op for layer in graph.layers] == ["conv", "conv"]
    source = calibrated(path, calibration, {})
    assert isinstance(source, SampledRanges) and not source.found       # whoever compiles the model asks for them anew


@pytest.mark.parametrize(("options", "message"), [
    (["--features", "auto"], "--features auto wants a model: --for MODEL.onnx"),
    (["--for", "nothing"], "--for nothing: must be sparse, dense, tiny, or a model"),
    (["--for", str(DIGITS), "--features", "gather"], "--for MODEL chooses the features; leave out --features"),
    (["--for", str(DIGITS), "--config", "c.json"], "--config and --for exclude each other: the file says what the"),
    (["--for", "nothing.onnx"], "nothing.onnx: No such file or directory"),
])
def test_refusals(options: list[str], message: str, capsys: pytest.CaptureFixture):
    assert main(["build", *options]) != 0
    assert f"error: {message}" in capsys.readouterr().err
