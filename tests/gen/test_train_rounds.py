"""Sessions that prune, tune and measure in rounds: what each prunes, budgets, the folder, and going on."""

import csv
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cores.config import NpuConfig
from gen.cli import main
from gen.files.results import write_entry
from gen.prune.blocks import densities
from gen.prune.counts import Counts
from gen.prune.plan import read_model
from gen.prune.timing import QuantisedCounterpart
from tests.gen.float_models import FloatBuilder

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install '.[train]'")

from gen.train.errors import TrainError  # noqa: E402
from gen.train.fit import Trained, train  # noqa: E402
from gen.train.session import Budget, Data, Prune, TrainingSession, TrainingStage  # noqa: E402

CONFIG = NpuConfig.preset(64)       # blocks of 16 channels


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> onnx.ModelProto:
    """Two layers of 64 channels; its file and its data, which have something to learn, are in ``tmp_path``."""
    builder = FloatBuilder(rng, ["N", 2, 6, 6])
    value = builder.conv("x", 2, 64, kernel=1, name="first")
    value = builder.node("Relu", builder.norm(value, rng.uniform(0.5, 2, 64)))
    value = builder.conv(value, 64, 64, kernel=1, name="second")
    value = builder.node("Relu", builder.norm(value, rng.uniform(0.5, 2, 64)))
    value = builder.conv(value, 64, 32, name="third")
    value = builder.node("Flatten", builder.node("GlobalAveragePool", builder.node("Relu", value)))
    made = builder.model(builder.node("Gemm", value, builder.weights(4, 32), builder.weights(4), transB=1,
                                      name="classifier"))
    onnx.save(made, tmp_path / "m.onnx")
    label = np.arange(64) % 4
    brighter = 2 * np.stack([label & 1, label >> 1], 1)[:, :, None, None] - 1
    np.savez(tmp_path / "d.npz", x=(rng.normal(size=(64, 2, 6, 6)) + brighter).astype(np.float32), label=label)
    return read_model(tmp_path / "m.onnx")


def session_of(*stages: TrainingStage, **fields: Any) -> TrainingSession:
    return TrainingSession(model="m.onnx", train=Data(path="d.npz"), test=Data(path="d.npz"), stages=stages, macs=64,
                           **fields)


def channels(model: onnx.ModelProto) -> dict[str, int]:
    sizes = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer}
    return {node.name: sizes[node.input[1]] for node in model.graph.node if node.op_type == "Conv"}


def run(session: TrainingSession, model: onnx.ModelProto, folder: Path, keep: Path | None = None,
        progress: Callable[[str], None] = lambda text: None) -> Trained:
    return train(session, model, folder, name="m.onnx", keep=keep, plots=("png", "svg"), progress=progress)


@pytest.mark.parametrize(("kind", "measure"), [("gamma", {"ratio": 0.75}), ("apoz", {"ratio": 0.75}),
                                               ("gamma", {"threshold": 100.0})])
def test_channels_go_in_a_session(kind: Any, measure: dict[str, float], model: onnx.ModelProto, tmp_path: Path):
    """Of the layers that are chosen, and the network is trained on with those that are left."""
    prune = Prune(kind=kind, layers=("second",), macs=64, samples=16, **measure)
    found = run(session_of(TrainingStage(epochs=3, batch=16, lr=0.1, prune=prune)), model, tmp_path)
    assert channels(found.model) == {"first": 64, "second": 16, "third": 32}
    assert found.epochs[-1].loss < found.epochs[0].loss


def test_groups_of_layers_are_pruned_in_ways_of_their_own(model: onnx.ModelProto, tmp_path: Path):
    prunes = (Prune(kind="gamma", ratio=0.5, layers=("first",), macs=64),
              Prune(density=0.25, layers=("third",), macs=64), Prune(kind="magnitude", density=0.1, layers=("sec*",)))
    found = run(session_of(TrainingStage(epochs=1, batch=16, prune=prunes)), model, tmp_path)
    assert channels(found.model) == {"first": 32, "second": 64, "third": 32}
    left = densities(found.model)
    assert left["third"] == 0.25 and left["second"] == pytest.approx(0.1, abs=0.001) and left["classifier"] == 1


@pytest.mark.cli
def test_a_stage_is_repeated_a_part_further_each_time(model: onnx.ModelProto, tmp_path: Path):
    prunes = (Prune(kind="magnitude", density=0.25, layers=("third",)),
              Prune(kind="gamma", ratio=0.75, layers=("second",), floor=0.2, macs=64))
    found = run(session_of(TrainingStage(epochs=2, batch=16, prune=prunes, repeat=2)), model, tmp_path,
                tmp_path / "out")
    assert [(epoch.round, epoch.number) for epoch in found.epochs] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [variant.name for variant in found.variants] == ["start", "01-stage-1-round-1", "02-stage-1-round-2"]
    models = [read_model(tmp_path / f"out/{variant.name}.onnx") for variant in found.variants]
    assert [channels(one)["second"] for one in models] == [64, 32, 16]
    assert [densities(one)["third"] for one in models] == pytest.approx([1, 0.5, 0.25], abs=0.01)
    assert onnx.load(tmp_path / "out/02-stage-1-round-2.onnx") == found.model
    for one, variant in zip(models, found.variants, strict=True):
        assert Counts.of(one) == Counts(variant.parameters, variant.nonzero, variant.macs, variant.useful_macs)
        assert QuantisedCounterpart.of(one, CONFIG, name="m").times(CONFIG).total == variant.cycles
    with (tmp_path / "out/variants.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["nonzero"]) for row in rows] == [variant.nonzero for variant in found.variants]
    assert (tmp_path / "out/variants.png").read_bytes().startswith(b"\x89PNG")
    said = f"cycles of a machine of {CONFIG.macs} MACs, by the time model"
    assert said in (tmp_path / "out/variants.svg").read_text()


def test_a_floor_is_of_the_sessions_model(model: onnx.ModelProto, tmp_path: Path):
    """And not of what the rounds before have left."""
    prune = Prune(kind="gamma", ratio=0.9, floor=0.5, macs=64)
    found = run(session_of(TrainingStage(epochs=1, batch=16, prune=prune, repeat=3)), model, tmp_path)
    assert channels(found.model) == {"first": 32, "second": 32, "third": 32}


BLOCKS = TrainingStage(epochs=1, batch=16, prune=Prune(density=0.25, macs=64), repeat=3)


def test_a_budget_of_cycles_ends_pruning_and_not_tuning(model: onnx.ModelProto, tmp_path: Path):
    whole = run(session_of(BLOCKS, budget=Budget(cycles=1)), model, tmp_path)
    cycles = [variant.cycles for variant in whole.variants]
    assert cycles == sorted(cycles, reverse=True) and len(cycles) == 4
    assert whole.ended == "the result is not within the budget: prune further, or allow more"
    tune = TrainingStage(epochs=2, batch=16)
    found = run(session_of(BLOCKS, tune, budget=Budget(cycles=cycles[2])), model, tmp_path)
    assert [variant.name for variant in found.variants] == ["start", "01-stage-1-round-1", "02-stage-1-round-2",
                                                            "03-stage-2"]
    assert found.ended == "" and found.variants[-1].cycles == cycles[2]
    found = run(session_of(BLOCKS, budget=Budget(parameters=whole.variants[1].nonzero)), model, tmp_path)
    assert len(found.variants) == 2


def test_a_budget_of_loss_has_the_variant_before(model: onnx.ModelProto, tmp_path: Path):
    learn = TrainingStage(epochs=8, batch=16, lr=0.1)
    spoil = TrainingStage(epochs=1, batch=64, lr=1e-6, norms=False,
                          prune=Prune(kind="magnitude", density=0.001, layers=("classifier",)))
    model = run(session_of(learn), model, tmp_path).model
    hardly = TrainingStage(epochs=1, batch=16, lr=1e-6, norms=False)
    found = run(session_of(hardly, spoil, learn, budget=Budget(loss=1)), model, tmp_path)
    assert [variant.name for variant in found.variants] == ["start", "01-stage-1", "02-stage-2"]
    start, good, bad = (variant.accuracy for variant in found.variants)
    assert good == start > bad + 0.01
    assert found.name == "01-stage-1" and densities(found.model)["classifier"] == 1
    assert found.ended == "02-stage-2 loses more than the budget's points; the result is 01-stage-1"


class InterruptionError(Exception):
    """Somebody pulls the plug."""


@pytest.mark.slow
@pytest.mark.cli
@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_an_interrupted_session_goes_on_to_the_same_bytes(after: int, model: onnx.ModelProto, tmp_path: Path):
    """After each epoch, within a round and between two: random numbers, momentum and learning rate go on, too."""
    stage = TrainingStage(epochs=2, batch=16, lr=0.05, prune=Prune(kind="gamma", ratio=0.5, macs=64), repeat=2)
    session = session_of(stage, TrainingStage(epochs=2, batch=16, optimizer="adam", distill=0.5), shift=1, mirror=True,
                         budget=Budget(loss=100))
    expected = run(session, model, tmp_path, tmp_path / "whole")
    done = 0

    def stop(text: str) -> None:
        nonlocal done
        done += ", epoch " in text
        if done == after:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        run(session, model, tmp_path, tmp_path / "parts", stop)
    said: list[str] = []
    found = run(session, model, tmp_path, tmp_path / "parts", said.append)
    # The plug is pulled before the end of a round is kept: its last epoch is done again.
    assert f"going on after {after - (after % 2 == 0)} epochs" in said
    assert found.model.SerializeToString() == expected.model.SerializeToString()
    assert (found.epochs, found.variants) == (expected.epochs, expected.variants)
    for path in (tmp_path / "whole").iterdir():
        if path.name != "state":
            assert path.read_bytes() == (tmp_path / "parts" / path.name).read_bytes(), path.name
    # And once more, when all is done, trains nothing.
    again = run(session, model, tmp_path, tmp_path / "parts", said.append)
    assert again.model == found.model and not any(", epoch " in text for text in said[-2:])


@pytest.mark.cli
def test_a_folder_is_of_one_session(model: onnx.ModelProto, tmp_path: Path):
    stage = TrainingStage(epochs=1, batch=16)
    run(session_of(stage), model, tmp_path, tmp_path / "out")
    for changed in (session_of(stage, seed=2), session_of(TrainingStage(epochs=2, batch=16))):
        with pytest.raises(TrainError, match="state is of another session, model or data; give another folder"):
            run(changed, model, tmp_path, tmp_path / "out")
    state = tmp_path / "out/state"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with pytest.raises(TrainError, match="state: damaged, or none of this name; remove it, and the session begins"):
        run(session_of(stage), model, tmp_path, tmp_path / "out")
    pickled = pickle.dumps(Path("x"), protocol=2)
    saved = io.BytesIO()
    torch.save([1, 2], saved)
    for content in (b"", b"no archive", pickled, saved.getvalue()):
        write_entry(state, content)
        with pytest.raises(TrainError, match="state: holds no session; remove it"):
            run(session_of(stage), model, tmp_path, tmp_path / "out")


@pytest.mark.cli
def test_the_command(model: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture):
    session = {"model": "m.onnx", "train": {"path": "d.npz"}, "test": {"path": "d.npz"}, "macs": 64,
               "budget": {"cycles": 10}, "stages": [{"epochs": 1, "batch": 16, "prune": {"density": 0.5, "macs": 64}}]}
    (tmp_path / "s.json").write_text(json.dumps(session))
    argv = ["train", str(tmp_path / "s.json"), "-o", str(tmp_path / "y.onnx"), "--variants", str(tmp_path / "out")]
    assert main(argv) == 0
    said = capsys.readouterr()
    assert "01-stage-1" in said.out and "s.json: the result is not within the budget" in said.err
    assert main([*argv, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["variants"] == json.loads((tmp_path / "out/variants.json").read_text())
    assert report["variant"] == "01-stage-1"
    assert (tmp_path / "y.onnx").read_bytes() == (tmp_path / "out/01-stage-1.onnx").read_bytes()
