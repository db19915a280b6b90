"""Models: quantised, pruned, compiled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.deploy.package import write_package
from gen.detection.heads.registry import read_head
from gen.detection.judge import Judge
from gen.detection.precision import require_pycocotools
from gen.detection.read import read_annotations
from gen.files.write import write_file
from gen.onnx.written import content_of
from gen.options import CompileOptions
from gen.prune.plan import Goal, Pruned, Pruner, read_model
from gen.quantize.options import QuantizeOptions
from gen.quantize.report import Report, measure
from gen.run.application import Application, HostOptions, open_application
from gen.run.calibration import Calibration, quantize_file
from gen.run.inputs import arbitrary_samples, read_samples
from gen.run.measure import measured
from gen.run.report import Measured, profile_of
from npugen.machines import Machine

if TYPE_CHECKING:
    from gen.train.fit import Trained

__all__ = ["Model", "compile", "deploy", "judge", "prune", "quantize", "train"]


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is compiled for a machine: what `npugen.run`, `npugen.profile` and `npugen.report` take."""

    path: Path
    machine: Machine
    application: Application

    def save(self, path: str | Path) -> None:
        """Write the program, usually *.npu; ``run`` of the command line and the driver take it. Raises OSError."""
        self.application.save(Path(path))

    @property
    def processor_nodes(self) -> Mapping[str, str]:
        """The ONNX nodes that are left to the processor -> why."""
        cut = self.application.partition
        return {} if cut is None else {name: str(why) for name, why in cut.host.items()}

    @cached_property
    def timing(self) -> Sequence[Measured]:
        """Of each segment on the accelerator, by the time model on an ideal memory."""
        return measured(self.application, "cycles", self.machine.clock.mhz, None)

    @property
    def cycles(self) -> int:
        """Of an inference on the accelerator, by the time model."""
        return sum(one.cycles for one in self.timing)

    def __str__(self) -> str:
        total = profile_of(self.timing, self.machine.clock)["total"]
        segments = len(self.application.workloads)
        left = self.processor_nodes
        where = "wholly on the accelerator" if not left else (
            f"{segments} segment{'s' * (segments > 1)} on the accelerator, {len(left)} nodes on the processor")
        return (f"{self.application.name} on {self.machine}: {where}; {total['cycles']:,} cycles, "
                f"{100 * total['utilisation']:.0f} % of the multipliers, {total['fps']:,.0f} inferences a second at "
                f"{self.machine.clock}")


def compile(model: str | Path, machine: Machine, *, calibrate: str | Path | None = None,
            options: CompileOptions | None = None, host: bool = True) -> Model:
    """Compile an ONNX model for a machine.

    Args:
        model: an ONNX file, quantised, or float with ``calibrate``.
        machine: what it is compiled for.
        calibrate: samples to quantise on, as for `quantize`.
        options: what can be asked of the compiler. Without them all tensors are kept, so that `npugen.run` compares
            every one; a program for a board needs less memory with ``CompileOptions()``.
        host: whether a part of it may be left to the processor.

    Raises GraphError for what is no model, FloatModelError for a float one without samples, UnfitNodesError where
    nothing of it is for the accelerator.
    """
    path = Path(model)
    application = open_application(
        path, machine.config, options or CompileOptions(keep_all=True), board=machine.board.name,
        calibration=None if calibrate is None else Calibration(Path(calibrate)), host=HostOptions(allowed=host))
    application.programs()
    return Model(path, machine, application)


def judge(annotations: str | Path, head: str | Path) -> Judge:
    """What a detector is judged by (docs/detection.md).

    Args:
        annotations: COCO's JSON, or a folder of VOC's XML, of the pictures that it is run on.
        head: a file that says what its outputs are; a training session may be one.

    Raises AnnotationError, also where pycocotools is missing, HeadError, OSError.
    """
    require_pycocotools()
    found = read_head(Path(head))
    return Judge(found, read_annotations(Path(annotations)).of(found.classes))


def quantize(model: str | Path, output: str | Path, calibrate: str | Path, *, limit: int | None = None,
             judge: Judge | None = None, **options: Any) -> Report:
    """Quantise a float model on samples, a fifth of which are held out and judge the result.

    Args:
        model: a float ONNX file.
        output: the quantised one.
        calibrate: an .npz file with arrays named as the inputs, (N, ...), and ``label`` if there are any; or a folder
            of images.
        limit: the first so many samples.
        judge: of a detector, as `npugen.judge` makes it.
        options: of `gen.quantize.options.QuantizeOptions`, such as ``method="minmax"``.

    Returns the noise of each layer in dB, the share of answers that are the same, and the accuracies or precisions.
    Raises FloatModelError, GraphError, InputError, OSError.
    """
    calibration = Calibration(Path(calibrate), limit=limit, hold_out=True, options=QuantizeOptions(**options),
                              judge=judge)
    result = quantize_file(Path(model), calibration)
    judges = result.held or result.samples
    report = measure(result.found, judges.inputs, judges.labels, expected=judges.expected)
    write_file(Path(output), result.content)
    return report


def prune(model: str | Path, output: str | Path, machine: Machine, *, density: float | None = None,
          budget_cycles: int | None = None, max_loss: float | None = None, layers: Sequence[str] = (),
          calibrate: str | Path | None = None, judge: Judge | None = None) -> Pruned:
    """Make the weights of a model, float or quantised, sparse in a machine's blocks; one of the three goals is given.

    Args:
        model: an ONNX file.
        output: the pruned one.
        machine: whose blocks and steps count.
        density: the share of weights that stays in each block.
        budget_cycles: of an inference, at most; the layers that mind least lose most.
        max_loss: points of accuracy, at most; wants ``calibrate``.
        layers: patterns of the names of those that are pruned; all without.
        calibrate: samples to judge by.
        judge: of a detector, as `npugen.judge` makes it: its mAP at an overlap of 0.5 is its accuracy.

    Returns the cycles before and after, and the accuracy of labelled samples. Raises PruneError, GraphError, OSError.
    """
    goal = Goal(kind="block", share=density, cycles=budget_cycles, loss=max_loss, layers=tuple(layers))
    pruner = Pruner(read_model(Path(model)), machine.config, name=str(model))
    if calibrate is not None:
        pruner.take_samples(Path(calibrate), None, judge=judge)
    pruned = pruner.prune(goal)
    write_file(Path(output), content_of(pruned.model))
    return pruned


def train(session: str | Path | Mapping[str, Any], output: str | Path, *, folder: str | Path = ".",
          variants: str | Path | None = None) -> "Trained":
    """Train or fine-tune a model in PyTorch, which has to be installed: ``pip install 'npugen[train]'``.

    Args:
        session: a file (docs/pruning.md), or what is in one.
        output: the trained model, .onnx.
        folder: where paths of a session that is no file begin; of a file, in its folder.
        variants: a folder for the model of each round, and a plot of them.

    Returns the epochs with their loss and accuracy. Raises TrainError, PruneError, GraphError, OSError.
    """
    from gen.train.errors import TrainError
    from gen.train.session import read_session, session_of

    if isinstance(session, Mapping):
        chosen, where = session_of(session, Path(folder), "the session"), Path(folder)
    else:
        chosen, where = read_session(Path(session)), Path(session).parent
    try:
        from gen.train.fit import train as fit
    except ModuleNotFoundError as error:
        raise TrainError("training needs PyTorch: pip install 'npugen[train]'", code="missing-package") from error
    path = where / chosen.model
    trained = fit(chosen, read_model(path), where, name=str(path), keep=None if variants is None else Path(variants))
    write_file(Path(output), content_of(trained.model))
    return trained


def deploy(model: Model, folder: str | Path, samples: str | Path | None = None, *, limit: int | None = 8) -> Path:
    """Pack a model with the driver, samples and what the reference makes of them, to be run on a board.

    Args:
        model: compiled.
        folder: of the package; what an earlier package has left there is replaced.
        samples: a file; random ones without.
        limit: the first so many.

    Returns the folder, with README.txt that says how to run it. Raises InputError, OSError.
    """
    specs = model.application.inputs
    given = arbitrary_samples(specs, seed=0) if samples is None else read_samples(Path(samples), specs, limit=limit)
    write_package(Path(folder), model.application, given, model.machine.board, model.application.name)
    return Path(folder)
