"""``gen quantize``"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from gen.cli.calibration import add_calibration_options, changes_of, chosen_calibration, progress_of, say
from gen.cli.common import add_json_option, console, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_shape_option
from gen.cli.detection import add_detection_options, chosen_judge
from gen.cli.errors import CommandError
from gen.cli.machine import require_inputs
from gen.cli.prune import points
from gen.cli.run import positive
from gen.files.write import require_writable, write_file

if TYPE_CHECKING:
    from gen.quantize.report import Report
    from gen.run.calibration import Calibrated
    from gen.run.inputs import Samples

EXAMPLE = """example:
  %(prog)s examples/digits/digits_float.onnx --calibrate examples/digits/digits_test.npz --limit 100 -o build/q.onnx"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx", help="float ONNX model")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="Q.onnx", help="the quantised model")
    parser.add_argument("--limit", type=positive, metavar="N", help="calibrate with the first N samples")
    parser.add_argument("--test", type=Path, metavar="Y.npz|FOLDER",
                        help="samples for the report (default: a fifth of those of --calibrate, which is held out of "
                             "calibration then); an array `label`, or a folder for each class, gives accuracy")
    parser.add_argument("--max-loss", type=points, metavar="POINTS",
                        help="fail, and write nothing, if on the samples of the report accuracy, or with --annotations "
                             "mAP at an overlap of 0.5, falls by more points, "
                             "or without labels more answers in a hundred are others, or of outputs that are no "
                             "scores more of a hundredth of the energy is noise (1 is 20 dB), or a range clips more "
                             "than it gains")
    add_shape_option(parser)
    add_calibration_options(parser, required=True)
    add_detection_options(parser, "--test, or without it of --calibrate")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    refuse_to_replace(arguments.output, arguments.model, arguments.calibrate, arguments.test)
    require_writable(arguments.output)
    from gen.quantize.guard import excess, unasked, worse_than
    from gen.quantize.left import what_is_left
    from gen.quantize.options import QuantizeError
    from gen.quantize.report import measure
    from gen.run.calibration import quantize_file
    from gen.run.inputs import InputSpec, read_samples

    judge = chosen_judge(arguments)
    with status(f"quantising {arguments.model.name}") as remark:
        calibration = chosen_calibration(arguments, remark, limit=arguments.limit)
        assert calibration is not None      # the option is required
        calibration = replace(calibration, hold_out=arguments.test is None,
                              judge=judge if arguments.test is None else None)
        result = quantize_file(arguments.model, calibration, dict(arguments.shape))
    require_inputs(arguments, result.samples.inputs)
    say(result.remarks)
    samples, kind = (result.samples, "calibration") if result.held is None else (result.held, "held out")
    if arguments.test is not None:
        specs = {name: InputSpec((1, *array.shape[1:]), array.dtype) for name, array in samples.inputs.items()}
        samples, kind = read_samples(arguments.test, specs, change_by=changes_of(arguments)[arguments.test]), "test"
        samples = samples.judged_by(judge)
    with status(f"measuring {arguments.model.name}") as remark:
        try:
            report = measure(result.found, samples.inputs, samples.labels, expected=samples.expected,
                             progress=progress_of(remark))
        except QuantizeError as error:
            if error.code != "no-float-output":
                raise
            report = None
    if report is None:
        _write_judged_by_values(arguments, result, samples, kind)
        return
    worse = ""
    if calibration.options.method in ("entropy", "percentile"):
        # Those that do not look at errors.
        with status(f"comparing with all values as ranges, {arguments.model.name}") as remark:
            plain = replace(calibration, options=replace(calibration.options, method="minmax"),
                            progress=progress_of(remark))
            other = quantize_file(arguments.model, plain, dict(arguments.shape)).found
            worse = worse_than(report, measure(other, samples.inputs, samples.labels, expected=samples.expected,
                                               progress=progress_of(remark)), "minmax")
    say(filter(None, [worse]))
    options = calibration.options

    def left() -> str:
        if options.method != "auto":
            return ""
        with status(f"looking for what is lost, {arguments.model.name}") as remark:
            return what_is_left(result.found, samples.inputs, options.keep_float, progress_of(remark))

    if not arguments.json:
        show(report, kind)
        if result.found.chosen:
            console.print(result.found.chosen, soft_wrap=True)
    lost = excess(report, unasked(report) if arguments.max_loss is None else arguments.max_loss, left)
    if lost and options.int4:
        lost += "; fewer nodes with --int4 lose less"
    if lost and arguments.max_loss is None:
        if not report.clipped:      # the report warns of these by itself
            say([f"warning: {lost}"])
    elif lost:
        raise CommandError(f"{arguments.model}: {lost}; nothing is written", code="quantisation-loss",
                           limit=arguments.max_loss)
    write_file(arguments.output, result.content)
    if arguments.json:
        print_json({"model": str(arguments.output), "method": calibration.options.method, "chosen": result.found.chosen,
                    "calibrated_on": len(result.samples), "measured_on": kind, **report.to_dict()})
    else:
        held = "" if result.held is None else f"; {len(result.held):,} held out for the report"
        messages.print(f"{arguments.output}: quantised on {len(result.samples):,} samples{held}", soft_wrap=True)


def _write_judged_by_values(arguments: argparse.Namespace, result: "Calibrated", samples: "Samples", kind: str) -> None:
    """A model of whose outputs none is float, as of classes of pixels: judged by the values that stay the same."""
    from gen.quantize.report import agreements
    shares = agreements(result.found, samples.inputs)
    lost = 100 * (1 - min(shares.values()))
    told = "; ".join(f"{name} {share:.1%} of the values alike" for name, share in shares.items())
    if arguments.max_loss is not None and lost > arguments.max_loss:
        raise CommandError(f"{arguments.model}: {told}, a loss of more than {arguments.max_loss:g} points; nothing is "
                           "written", code="quantisation-loss", limit=arguments.max_loss)
    write_file(arguments.output, result.content)
    if arguments.json:
        print_json({"model": str(arguments.output), "calibrated_on": len(result.samples), "measured_on": kind,
                    "samples": len(samples), "alike": shares})
    else:
        messages.print(f"{arguments.output}: quantised on {len(result.samples):,} samples; on {len(samples):,} of "
                       f"{kind}: {told}", soft_wrap=True)


def show(report: "Report", kind: str) -> None:
    """``kind``: of the samples."""
    from gen.run.calibration import quality

    of = {"held out": "held out of calibration", "test": "of --test", "calibration": "that it was calibrated on"}
    table = Table(title=f"against the float model, {report.samples:,} samples {of[kind]}", title_justify="left")
    for heading in ("layer", "op", "tensor", "scale", "zero point", "SQNR, dB"):
        table.add_column(heading, justify="left" if heading in ("layer", "op", "tensor") else "right", overflow="fold")
    for row in report.layers:
        table.add_row(row.layer, row.op, row.tensor, f"{row.scale:.6g}", str(row.zero_point), _decibels(row.sqnr_db))
    console.print(table)
    facts = quality(report)
    facts.append(f"{100 * report.agreement:.2f} % of the answers are the same")
    if report.accuracy_float is not None and report.accuracy_quantized is not None:
        facts.append(f"accuracy {100 * report.accuracy_float:.2f} % float, "
                     f"{100 * report.accuracy_quantized:.2f} % quantised")
    if report.precision_float is not None:
        facts.append(f"float: {report.precision_float}; quantised: {report.precision_quantized}")
    console.print("; ".join(facts), soft_wrap=True)
    say(filter(None, (report.remark, *report.warnings)))


def _decibels(sqnr: float | None) -> str:
    return "exact" if sqnr is None else f"{sqnr:.1f}"
