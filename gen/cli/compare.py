"""``gen compare``"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.calibration import add_calibration_options, changes_of, chosen_calibration, progress_of, say
from gen.cli.common import add_json_option, console, messages, print_json, status
from gen.cli.compile import add_shape_option
from gen.cli.detection import add_detection_options, chosen_judge, precision_dict
from gen.cli.errors import FAILED
from gen.cli.html import add_html_option, command_line, require_html, write_html
from gen.cli.run import positive
from gen.name import speaker

if TYPE_CHECKING:
    from gen.check.compare import Comparison
    from gen.check.detections import Precisions
    from gen.check.segments import SegmentsComparison
    from gen.detection.judge import Judge
    from gen.onnx.importer import Imported
    from gen.onnx.model import Model
    from gen.partition.partition import Partition
    from gen.run.calibration import Calibrated, SampledRanges
    from gen.run.inputs import InputSpec, Samples

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --input examples/digits/digits_test.npz --limit 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = ("Compare every layer with onnxruntime. Each gets the inputs that the reference gave it, "
                          "and may differ by what rounding explains: one LSB of its int8 result, and what the "
                          "roundings in front of it are worth there that the model does not have. A layer that "
                          "differs by more is wrong, and the exit status 1. What the processor runs of a model is "
                          "onnxruntime's anyway: there it is the layers of the accelerator's segments, and what comes "
                          "out in the end.")
    parser.add_argument("model", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="samples, as for `run`")
    add_shape_option(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    add_html_option(parser, "differences and noise of layers and outputs")
    add_json_option(parser)
    add_calibration_options(parser)
    add_detection_options(parser, "--input")


def run(arguments: argparse.Namespace) -> int:
    from gen.onnx.machine import Machine
    from gen.onnx.read import open_model
    from gen.partition.partition import partition
    from gen.partition.settle import settle

    require_html(arguments, arguments.model, arguments.input, arguments.calibrate)
    judge = chosen_judge(arguments)
    source = _calibrated(arguments)
    with status(f"reading {arguments.model.name}") as remark:
        model = open_model(arguments.model, None if source is None else source.content, dict(arguments.shape))
        cut = settle(lambda leave: partition(
            model, machine=Machine.complete(), ranges=source if callable(source) else None, leave=leave, compare=False,
            progress=remark))
    comparison = _of_segments(arguments, cut, model) if cut.whole is None else _of_layers(arguments, cut.whole)
    found = None if judge is None else _precisions(arguments, cut, model, source, judge)
    return _finish(arguments, comparison, found)


def _calibrated(arguments: argparse.Namespace) -> "Calibrated | SampledRanges | None":
    """What --calibrate makes of the model."""
    with status(f"reading {arguments.model.name}") as remark:
        calibration = chosen_calibration(arguments, remark)
        if calibration is None:
            return None
        from gen.run.calibration import calibrated

        source = calibrated(arguments.model, calibration, dict(arguments.shape))
    say(source.remarks)
    return source


def _samples(arguments: argparse.Namespace, specs: "Mapping[str, InputSpec]") -> "Samples":
    from gen.run.inputs import read_samples

    samples = read_samples(arguments.input, specs, limit=arguments.limit,
                           change_by=changes_of(arguments)[arguments.input])
    if samples.remark:
        messages.print(samples.remark, soft_wrap=True)
    return samples


def _of_layers(arguments: argparse.Namespace, imported: "Imported") -> "Comparison":
    """Of a model that runs on the accelerator as a whole."""
    from gen.check.compare import compare_model, print_comparison
    from gen.run.inputs import input_specs

    samples = _samples(arguments, input_specs(imported.graph, {i.name: i.shape for i in imported.model.inputs}))
    with status(f"{len(samples)} samples on onnxruntime") as remark:
        comparison = compare_model(imported, samples.inputs, progress=progress_of(remark))
    if not arguments.json:
        print_comparison(comparison, console)
    return comparison


def _of_segments(arguments: argparse.Namespace, cut: "Partition", model: "Model") -> "SegmentsComparison":
    """Of one of which the processor runs a part."""
    from gen.check.segments import compare_segments, print_segments
    from gen.run.inputs import model_specs

    samples = _samples(arguments, model_specs(cut.model.inputs))
    with status(f"{len(samples)} samples on onnxruntime") as remark:
        comparison = compare_segments(cut, samples.inputs, model, progress=progress_of(remark))
    if not arguments.json:
        print_segments(comparison, console)
    return comparison


def _precisions(arguments: argparse.Namespace, cut: "Partition", model: "Model",
                source: "Calibrated | SampledRanges | None", judge: "Judge") -> "Precisions":
    """Of a detector, on the same samples."""
    from gen.check.detections import precisions
    from gen.run.calibration import Calibrated
    from gen.run.inputs import model_specs, read_samples

    samples = read_samples(arguments.input, model_specs(model.inputs), limit=arguments.limit,
                           change_by=changes_of(arguments)[arguments.input]).judged_by(judge)
    assert samples.expected is not None
    floating = source.found.reference if isinstance(source, Calibrated) else None
    with status(f"{len(samples)} samples") as remark:
        found = precisions(cut, model.proto, samples.inputs, samples.expected, floating=floating,
                           progress=progress_of(remark))
    if not arguments.json:
        for name, one in (("float", found.float), ("quantised", found.quantized), ("machine", found.machine)):
            if one is not None:
                console.print(f"{name}: {one}", soft_wrap=True)
    return found


def _finish(arguments: argparse.Namespace, comparison: "Comparison | SegmentsComparison",
            found: "Precisions | None") -> int:
    """What scripts read, the page, and the verdict."""
    if arguments.html:
        from gen.report.comparison import comparison_sheet

        write_html(arguments.html, comparison_sheet(arguments.model.stem, comparison, found, command=command_line()))
    if arguments.json:
        shown = {} if found is None else {"precision": {
            name: precision_dict(getattr(found, name)) for name in ("float", "quantized", "machine")}}
        print_json({**comparison.to_dict(), **shown})
    if wrong := comparison.wrong:
        worst, *others = wrong
        more = f", and {len(others)} more layers" if others else ""
        messages.print(f"{speaker('compare')}: error: layer {worst.layer} ({worst.op}) is computed wrongly: "
                       f"{worst.beyond:,} of {worst.values:,} values of {worst.tensor} differ by more than rounding "
                       f"explains, by up to {worst.largest} units where {worst.allowed} are allowed{more}",
                       soft_wrap=True)
        return FAILED
    return 0
