"""What models do on machines: run, timed, drawn, searched for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from boards.clock import Clock
from boards.registry import get_board
from gen.detection.judge import Judge
from gen.explore.evaluation import Evaluation
from gen.explore.ledger import Ledger
from gen.explore.machines import MachineProblem
from gen.explore.meter import MachineMeter
from gen.explore.methods import chosen_method
from gen.explore.models import read_model_file
from gen.explore.parameters import space_of
from gen.explore.plot import plot
from gen.explore.report import Found
from gen.explore.search import search
from gen.explore.workers import local_workers
from gen.files.figure import drawn, write_figure
from gen.files.write import write_file
from gen.onnx.machine import Machine as Imported
from gen.report.bars import bars
from gen.report.page import page_of
from gen.report.whole import whole_report
from gen.run.calibration import Calibration
from gen.run.inputs import Samples, read_samples
from gen.run.measure import measured
from gen.run.report import profile_of
from gen.run.runner import Run, run_model
from npugen.models import Model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Exploration", "Profile", "explore", "profile", "report", "run"]

Inputs = str | Path | Mapping[str, np.ndarray]


def run(model: Model, inputs: Inputs, *, target: Literal["reference", "functional", "rtl"] = "reference",
        limit: int | None = None, judge: Judge | None = None) -> Run:
    """Run samples, and compare every tensor with the reference.

    Args:
        model: compiled.
        inputs: arrays by the inputs' names, (N, ...), or a file of them or of an image, with ``label`` if there are
            any; or a folder of images.
        target: the golden model by itself, the functional simulator, or the Verilog in Verilator, which is compiled
            once for a machine.
        limit: the first so many samples.
        judge: of a detector, as `npugen.judge` makes it; arrays have the order of its annotations.

    Returns outputs by name, predictions, accuracy, or the precision of a detector, cycles, and how many values differ
    from the reference.
    Raises InputError, GraphError, MachineError, ToolError, OSError.
    """
    specs = model.application.inputs
    if isinstance(inputs, str | Path):
        samples = read_samples(Path(inputs), specs, limit=limit)
    else:
        samples = Samples({name: np.asarray(inputs[name])[:limit] for name in specs},
                          np.asarray(inputs["label"])[:limit] if "label" in inputs else None)
        samples = replace(samples, keys=tuple(range(len(samples))))
    return run_model(model.application, samples.judged_by(judge), target)


@dataclass(frozen=True, eq=False)
class Profile:
    """Where the cycles of an inference go; ``data`` is what ``profile --json`` prints of it."""

    data: Mapping[str, Any]
    title: Sequence[str]

    @property
    def cycles(self) -> int:
        """Of an inference, on the accelerator."""
        return int(self.data["total"]["cycles"])

    @property
    def layers(self) -> Sequence[Mapping[str, Any]]:
        """Of each layer `sim.profile.LayerTiming`: its name, mode, cycles, and what they went to."""
        return list(self.data["layers"])

    def figure(self) -> "Figure":
        """A bar for each layer."""
        return bars(dict(self.data), self.title)

    def plot(self, path: str | Path) -> None:
        """Write it as .png, .svg or .pdf. Raises ValueError for another suffix, OSError."""
        write_figure(Path(path), self.figure())

    def _repr_png_(self) -> bytes:
        return drawn(self.figure())

    def __str__(self) -> str:
        rows = [f"{layer['name']:<24.24} {layer['mode']:<12.12} {layer['cycles']:>12,} {layer['utilisation']:>6.1%}"
                for layer in self.layers]
        return "\n".join([*self.title, f"{'layer':<24} {'mode':<12} {'cycles':>12} {'used':>6}", *rows])


def profile(model: Model, *, target: Literal["cycles", "rtl"] = "cycles", memory: str | None = None,
            clock_mhz: float | None = None) -> Profile:
    """Measure an inference, layer by layer.

    Args:
        model: compiled.
        target: the time model, or the Verilog.
        memory: a board by whose memory it is slowed down; without, memory takes and gives a beat a cycle.
        clock_mhz: the machine's, in place of ``model.machine.clock``.

    Raises MachineError, ToolError, BoardError.
    """
    clock = _clock(model, clock_mhz)
    found = measured(model.application, target, clock.mhz, None if memory is None else get_board(memory))
    return Profile(profile_of(found, clock), [
        f"{model.application.name}, {'time model' if target == 'cycles' else 'Verilog'}",
        f"{model.machine}; {clock}, memory: {memory or 'ideal'}"])


def report(models: Model | Sequence[Model], path: str | Path, *, target: Literal["cycles", "rtl"] = "cycles",
           memory: str | None = None, clock_mhz: float | None = None, samples: str | Path | None = None) -> Path:
    """Write a page to look at (docs/report.md), of one model or of two beside each other.

    Args:
        models: compiled.
        path: of the page, .html.
        target: what measures, as for `profile`.
        memory: as for `profile`.
        clock_mhz: as for `profile`.
        samples: a file, for the noise of each layer; random ones without.

    Returns ``path``. Raises ValueError for more than two, and what `profile` does.
    """
    given = [models] if isinstance(models, Model) else list(models)
    if not 1 <= len(given) <= 2:
        raise ValueError(f"models must be one or two, not {len(given)}")
    pages = [whole_report(
        model.application, model.path, board=model.machine.board, clock=_clock(model, clock_mhz), target=target,
        memory=None if memory is None else get_board(memory), samples=None if samples is None else Path(samples),
        command="npugen.report") for model in given]
    write_file(Path(path), page_of(pages))
    return Path(path)


def _clock(model: Model, mhz: float | None) -> Clock:
    return model.machine.clock if mhz is None else Clock(mhz, "given")


@dataclass(frozen=True, eq=False)
class Exploration:
    """The points of a search, ``found``, and what they are of."""

    found: Found
    title: str

    @property
    def points(self) -> Sequence[Evaluation]:
        """All of them: parameters (``point``), ``figures`` by name, ``infeasible``: why it is no solution."""
        return self.found.evaluations

    @property
    def front(self) -> Sequence[Evaluation]:
        """Those that no other one beats."""
        return [self.found.evaluations[number] for number in self.found.front]

    def figure(self) -> "Figure":
        """The points in the plane of the first two objectives."""
        return plot(self.found, self.title)

    def plot(self, path: str | Path) -> None:
        """Write it as .png, .svg or .pdf. Raises ValueError for another suffix, OSError."""
        write_figure(Path(path), self.figure())

    def _repr_png_(self) -> bytes:
        return drawn(self.figure())


def explore(models: str | Path | Sequence[str | Path], board: str = "zu3eg", *,
            vary: Mapping[str, Sequence[int | float | str]], objectives: Sequence[str] = (),
            calibrate: str | Path | None = None, evaluations: int = 256, seed: int = 0, jobs: int = 1) -> Exploration:
    """Search machines for models: time by the time model against what they take of a board's device.

    Args:
        models: ONNX files, quantised, or float with ``calibrate``; the times of several are added.
        board: its name.
        vary: parameter -> its values, as for ``explore --vary``, such as ``{"macs": [64, 256]}``.
        objectives: such as ``("ms", "area")``; without, cycles and area.
        calibrate: samples to quantise on.
        evaluations: points at most; where the space has more, so many are drawn.
        seed: of those that are drawn.
        jobs: processes. More than one want a script whose main part is behind ``if __name__ == "__main__"``.

    Raises ExploreError, GraphError, OSError.
    """
    paths = [Path(models)] if isinstance(models, str | Path) else [Path(one) for one in models]
    calibration = None if calibrate is None else Calibration(Path(calibrate))
    meter = MachineMeter([read_model_file(path, calibration, {})[0] for path in paths])
    for model in meter.models:
        meter.model(model.digest).graphs(Imported.complete())
    problem = MachineProblem(space_of({name: list(values) for name, values in vary.items()}), get_board(board), meter,
                             tuple(objectives))
    _, method = chosen_method("auto", problem, evaluations, seed)
    with local_workers(meter, jobs) as workers:
        found = search(problem, method, workers, Ledger(meter.identity, Ledger.default_folder()))
    return Exploration(Found(problem.space, problem.objectives, found),
                       f"{', '.join(path.stem for path in paths)} on {board}")
