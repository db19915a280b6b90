"""``gen compile``"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.cli.calibration import Relay, add_calibration_options, chosen_calibration, say
from gen.cli.common import add_json_option, messages, print_json, refuse_to_replace, status
from gen.cli.errors import CommandError, UsageError
from gen.cli.html import add_html_option, command_line, require_html, write_html
from gen.cli.machine import (
    add_machine_options,
    chosen_board,
    chosen_by_model,
    chosen_config,
    chosen_for,
    compile_options,
    described,
    host_options,
    machine_facts,
    named_board,
    require_inputs,
    say_density,
    say_not_chosen,
)
from gen.cli.missing import missing_units, say_missing
from gen.cli.segments import facts_of, show_segments
from gen.cli.summary import helpful_units, say_accuracy, say_speed, say_work, speed_of, work_of
from gen.files.read import is_zip
from gen.files.write import require_writable

if TYPE_CHECKING:
    from gen.explore.faster import Faster
    from gen.run.application import Application
    from sim.stochastic.streams import Streams

#: Layers that a warning names.
_WARNINGS = 3

EXAMPLE = "example: %(prog)s examples/digits/digits_int8.onnx --macs 256 -o build/digits.npu"


def add_compiler_options(parser: argparse.ArgumentParser) -> None:
    """--shape, --density, --depthwise, --fusion, --gather, --winograd, --stochastic, --host, --reconstruct."""
    add_shape_option(parser)
    parser.add_argument("--density", type=density, metavar="D",
                        help="prune to this share of non-zero weights in every block, such as 0.25, "
                             "rounded to what the machine has (`prune` has more ways)")
    parser.add_argument("--depthwise", choices=("auto", "plain"), default="auto",
                        help="in a machine with the feature depthwise: plain computes depthwise layers as a machine "
                             "without it (default auto: the faster way for each layer)")
    parser.add_argument("--fusion", choices=("auto", "off"), default="auto",
                        help="in a machine with the feature fusion: off takes every layer's result through memory "
                             "(default auto: what a layer makes goes straight to a pointwise or depthwise layer that "
                             "follows, where that is faster)")
    parser.add_argument("--gather", choices=("auto", "plain"), default="auto",
                        help="in a machine with the feature gather: plain computes layers of few input channels as a "
                             "machine without it (default auto: the faster way for each layer)")
    parser.add_argument("--winograd", choices=("auto", "off", "exact", "narrow"), default="auto", dest="winograd_mode",
                        help="in a machine with the feature winograd: narrow lets dense 3x3 layers take the 8-bit form "
                             "where it is faster, which changes values. In an exact machine (--winograd-unit 2): auto "
                             "takes its form where it is faster, exact wherever it can, off nowhere (default auto)")
    parser.add_argument("--stochastic", type=streams, metavar="BITS|LAYER=BITS,...",
                        help="in a machine with the feature stochastic: layers whose sums are made of streams of so "
                             "many bits, which changes values: all that can be but the first, or those named; "
                             "256:64 makes the first 64 bits of 256")
    parser.add_argument("--host", choices=("auto", "off"), default="auto",
                        help="off refuses a model of which something would have to run on the processor (default "
                             "auto: what the accelerator does not take is left to onnxruntime)")
    parser.add_argument("--reconstruct", choices=("auto", "off"), default="auto",
                        help="off leaves a layer to the processor whose result that reads unquantised (default auto: "
                             "it is quantised where the model says how, or samples of --calibrate, and stays on the "
                             "accelerator)")


def add_batch_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=_batch, default=1, metavar="N",
                        help="samples that the program computes at once, each with inputs and outputs of its own: "
                             "fully connected layers read their weights once for all of them (default 1)")


def _batch(text: str) -> int:
    from gen.program.program import MAX_BATCH

    if not text.isdecimal() or not 1 <= int(text) <= MAX_BATCH:
        raise argparse.ArgumentTypeError(f"must be 1 to {MAX_BATCH}, not {text}")
    return int(text)


def add_shape_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shape", type=_shape, action="append", default=[], metavar="INPUT=1,3,224,224",
                        help="the shape of an input that the model leaves open, samples first; once for each of "
                             "them. Of an integer without axes its value, which is constant then: it may say which "
                             "branch the model takes")


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    listed = [size.strip() for size in sizes.split(",")]
    numbers = [size.isdecimal() and int(size) > 0 for size in listed]
    # What one number is, a size or a value, is known with the model.
    if not name or not (all(numbers) or len(listed) == 1 and listed[0].removeprefix("-").isdecimal()):
        raise argparse.ArgumentTypeError(f"must be an input's name and its sizes, such as {name or 'x'}=1,3,224,224, "
                                         f"not {text}")
    return name, tuple(map(int, listed))


def streams(text: str) -> "Streams | dict[str, Streams]":
    """``64``, ``256:64``, or such for each of some layers."""
    from sim.stochastic.streams import Streams

    def one(text: str) -> Streams:
        sizes = text.split(":")
        if len(sizes) > 2 or not all(size.strip().isdecimal() for size in sizes):
            raise argparse.ArgumentTypeError(f"must be bits of a stream, such as 64 or 256:64, not {text or 'nothing'}")
        try:
            return Streams(*map(int, sizes))
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from None

    if "=" not in text:
        return one(text)
    found: dict[str, Streams] = {}
    for part in text.split(","):
        name, equals, bits = map(str.strip, part.rpartition("="))
        if not name or not equals:
            raise argparse.ArgumentTypeError(f"must be layers and their streams, such as fc1=64, not {part}")
        if name in found:
            raise argparse.ArgumentTypeError(f"has layer {name} more than once")
        found[name] = one(bits)
    return found


def density(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx",
                        help="ONNX model, quantised, or float with --calibrate")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PROGRAM",
                        help="the program, usually *.npu")
    parser.add_argument("--winograd-calibrate", type=Path, metavar="X.npz",
                        help="with --winograd narrow: samples of the model's inputs, to choose each layer's shifts by")
    parser.add_argument("--no-check", dest="check", action="store_false",
                        help="leave out the comparison of a random sample with onnxruntime, layer by layer")
    add_compiler_options(parser)
    add_batch_option(parser)
    add_calibration_options(parser)
    parser.add_argument("--keep-all", action="store_true",
                        help="give every tensor a place of its own in memory, so that `run` can compare them all "
                             "(default: tensors that nobody reads any more make room for others)")
    add_html_option(parser, "graph, timeline, roofline, memory, noise, by the time model on ideal memory")
    add_machine_options(parser, for_model=True)
    add_json_option(parser)


def checked(application: "Application", model: Path, remark: Callable[[str], None]) -> dict[str, Any] | None:
    """Compare a random sample with onnxruntime and warn of every layer that is further off than rounding explains.

    ``remark`` shows how far it is. Returns what `--json` says of it; None where there was nothing to compare with.
    """
    from gen.check.compare import compare_layers, wrong_layers
    from gen.ir.errors import GraphError
    from gen.run.inputs import random_samples

    rows = []
    for name, workload in application.named_workloads:
        remark(name)
        imported = workload.imported
        try:
            rows += compare_layers(imported, random_samples(imported.graph, workload.input_shapes, seed=0).inputs)
        except GraphError as error:
            messages.print(f"{model}: warning: not compared with onnxruntime: {error}", soft_wrap=True)
            return None
    off = wrong_layers(rows)
    for row in off[:_WARNINGS]:
        messages.print(f"{model}: warning: layer {row.layer} is up to {row.largest} units from onnxruntime on a random "
                       f"sample, where rounding explains {row.allowed}; {row.beyond:,} of its {row.values:,} values "
                       "differ by more than that", soft_wrap=True)
    if len(off) > _WARNINGS:
        messages.print(f"{model}: warning: and {len(off) - _WARNINGS} more layers; --json lists all",
                       soft_wrap=True)
    return {"largest": max((row.largest for row in rows), default=0),
            "layers": [{"name": row.layer, "largest": row.largest, "allowed": row.allowed, "beyond": row.beyond,
                        "differing": row.differing} for row in off]}


def say_exact(arguments: argparse.Namespace, application: "Application") -> None:
    """Which layers are not computed by streams, and why, where all that can be were to."""
    from gen.passes.streams import exact_layers
    from sim.stochastic.streams import Streams

    if not isinstance(arguments.stochastic, Streams):
        return
    for workload in application.workloads:
        exact = exact_layers(workload.graph, workload.program.config)
        for name, reason in list(exact.items())[:_WARNINGS]:
            messages.print(f"layer {name} is exact: {reason}", soft_wrap=True)
        if len(exact) > _WARNINGS:
            messages.print(f"and {len(exact) - _WARNINGS} more layers", soft_wrap=True)


def _write_page(arguments: argparse.Namespace, application: "Application", helpful: "list[Faster]") -> None:
    from gen.hw.clock import clock_of
    from gen.report.whole import whole_report

    board, config = chosen_board(arguments), application.workloads[0].program.config
    with status(f"report of {arguments.model.name}") as remark:
        report = whole_report(
            dataclasses.replace(application, chosen=chosen_by_model(arguments)), arguments.model, board=board,
            clock=clock_of(board, config), command=command_line(), helpful=helpful or None, progress=remark)
    write_html(arguments.html, report)


def run(arguments: argparse.Namespace) -> None:
    refuse_to_replace(arguments.output, arguments.model, arguments.calibrate, arguments.winograd_calibrate,
                      arguments.config)
    if arguments.winograd_calibrate and arguments.winograd_mode != "narrow":
        raise UsageError("--winograd-calibrate goes with --winograd narrow: its samples choose the shifts",
                         code="option-conflict")
    require_writable(arguments.output)
    require_html(arguments, arguments.model, arguments.calibrate, arguments.winograd_calibrate, arguments.config)
    if is_zip(arguments.model):
        raise CommandError(f"{arguments.model}: a program or another zip file, where an ONNX model is needed",
                           code="not-a-model")
    from gen.run.application import open_application

    told = Relay()
    calibration = chosen_calibration(arguments, told)
    arguments = chosen_for(arguments, arguments.model, calibration=calibration)
    config, board = chosen_config(arguments), named_board(arguments)
    used = say_density(arguments.density, config)
    with status(f"compiling {arguments.model.name}") as remark:
        told.to = remark
        application = open_application(
            arguments.model, config, compile_options(arguments, keep_all=arguments.keep_all), calibration=calibration,
            winograd_samples=arguments.winograd_calibrate, board=board, host=host_options(arguments),
            progress=remark)
        require_inputs(arguments, application.inputs)
        missing = missing_units(application, config, chosen_board(arguments),
                                lambda features: chosen_config(arguments, features))
        programs = application.programs(remark)
    work = work_of(application)
    application.save(arguments.output)
    if not arguments.json:
        say_work(work)
    say_not_chosen(arguments)
    say_missing(application, missing, chosen_board(arguments).name)
    say(application.remarks)
    say(filter(None, (workload.multiplied_zeros for workload in application.workloads)))
    say_exact(arguments, application)
    check = None
    if arguments.check:
        with status("comparing with onnxruntime") as remark:
            check = checked(application, arguments.model, remark)
    speed = speed_of(application, chosen_board(arguments))
    choosable = arguments.features is None and arguments.config is None
    helpful = helpful_units(application, chosen_board(arguments), speed) if choosable else []
    if arguments.html:
        _write_page(arguments, application, helpful)
    layers = [layer for program in programs for layer in program.layers]
    facts = {
        "program": str(arguments.output), "machine": machine_facts(config, board, arguments), "layers": len(layers),
        "instructions": sum(len(program.instruction_layers) for program in programs),
        "code_bytes": sum(len(program.code) for program in programs),
        "constant_bytes": sum(len(program.constants) for program in programs),
        "data_bytes": sum(program.data_beats for program in programs) * config.beat_bytes,
        "macs": sum(layer.macs for layer in layers), "useful_macs": sum(layer.useful_macs for layer in layers),
        "work": work, "speed": speed,
        "faster": [{"share": one.share, **dataclasses.asdict(one)} for one in helpful],
        "check": check, "partition": facts_of(application.partition),
        "missing": missing,
        "density": None if used is None else {"asked": arguments.density, "used": used},
    }
    if application.partition is not None:
        show_segments(application.partition)
    if arguments.json:
        print_json(facts)
        return
    messages.print(f"{arguments.output}: {facts['layers']} layers, {facts['instructions']:,} instructions, "
                   f"{facts['constant_bytes']:,} bytes of weights and parameters, {facts['macs']:,} MACs",
                   soft_wrap=True)
    messages.print(described(config, board, arguments), soft_wrap=True)
    say_speed(speed, chosen_board(arguments).name, choosable=choosable, helpful=helpful)
    if check is not None and not any(layer["beyond"] for layer in check["layers"]):
        say_accuracy(check)
