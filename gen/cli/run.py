"""``gen run``"""

import argparse
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from rich.table import Table

from boards.registry import get_board
from gen.cli.calibration import add_calibration_options, changes_of
from gen.cli.common import add_json_option, console, counter, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_batch_option, add_compiler_options
from gen.cli.detection import add_detection_options, chosen_judge, precision_dict
from gen.cli.errors import FAILED, CommandError, UsageError
from gen.cli.machine import add_machine_options, chosen_board, machine_given, open_given, require_single
from gen.cli.memory import IDEAL, add_memory_option, chosen_memory
from gen.files.write import require_writable, write_file
from gen.name import speaker
from npudriver.archive import output_member

if TYPE_CHECKING:
    from gen.run.application import Application
    from gen.run.inputs import Samples
    from gen.run.runner import Run
    from npudriver import Backend
    from sim.rtl.machine import Bus

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --input examples/digits/digits_test.npz --limit 5 --target rtl"""

#: Samples that the table lists one by one.
_LISTED = 20
#: Of a member of a zip file, in bytes.
_LONGEST_NAME = 65535
#: Outputs whose predictions are in it.
_JUDGED = 4

_TARGETS, BOARD = ("reference", "functional", "rtl"), "board"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx|PROGRAM")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE",
                        help=".npz with arrays named as the model's inputs (and `label`), .npy, an image, or a folder "
                             "of images")
    parser.add_argument("--target", type=_target, default="reference",
                        metavar="reference|functional|rtl|board[:URL]",
                        help="NumPy layers, instruction-level simulator, the Verilog, or a device by the driver: "
                             "board:uio:[NAME], board:pynq:FILE.bit, board:tcp://HOST[:PORT], board:litex:FOLDER of "
                             "`soc` by litex_server, or board:functional and board:rtl, which simulate one "
                             "(default reference)")
    parser.add_argument("--limit", type=positive, metavar="N", help="take the first N samples")
    parser.add_argument("-o", "--output", type=Path, metavar="Y.npz",
                        help="write the outputs under the model's names (without a slash that these begin with)")
    parser.add_argument("--stream-shift", type=stream_shifts, default=(0,), metavar="N[,N...]",
                        help="streams are shorter by so many powers of two than the program says, down to 8 bits: a "
                             "register, so nothing is compiled or loaded anew; of several, samples take one in turn")
    parser.add_argument("--waves", type=Path, metavar="FILE.vcd",
                        help="with --target rtl: write the waveforms of the machine's top module, and what shows them "
                             "in GTKWave and Surfer with states and instructions in words")
    parser.add_argument("--counters", type=Path, metavar="FILE.json",
                        help="with --target board: write the device's counters, which `report --run` draws beside the "
                             "simulation's")
    add_memory_option(parser)
    add_compiler_options(parser)
    add_batch_option(parser)
    add_calibration_options(parser)
    add_detection_options(parser, "--input")
    add_machine_options(parser, for_model=True)
    add_json_option(parser)


def _target(text: str) -> str:
    if text not in _TARGETS and text != BOARD and not text.startswith(f"{BOARD}:"):
        raise argparse.ArgumentTypeError(f"must be {', '.join(_TARGETS)}, or {BOARD}[:URL], not {text}")
    return text


def positive(text: str) -> int:
    if not text.isdecimal() or not (value := int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return value


def stream_shifts(text: str) -> tuple[int, ...]:
    from cores.arch.stochastic import LENGTH_BITS

    highest = (1 << LENGTH_BITS) - 1
    shifts = tuple(text.split(","))
    if not all(shift.isdecimal() and int(shift) <= highest for shift in shifts):
        raise argparse.ArgumentTypeError(f"must be whole numbers from 0 to {highest}, not {text}")
    return tuple(map(int, shifts))


def execute(application: "Application", samples: "Samples", target: str, bus: "Bus | None" = None,
            stream_shifts: Sequence[int] = (0,), waves: Path | None = None, counting: bool = False) -> "Run":
    """`gen.run.runner.run_model` with progress on stderr; ``bus``, ``waves``: of the target ``rtl``; ``counting``: of a
    device.
    """
    from gen.run.runner import run_model
    from gen.run.targets import open_device
    from sim.rtl.machine import RtlMachine

    with ExitStack() as stack:
        machine = device = None
        target, _, url = target.partition(":")
        if target == "rtl":
            with status("building the simulation (once, a minute or two)"):
                machine = stack.enter_context(RtlMachine(application.workloads[0].program.config, bus=bus, waves=waves,
                                                         top_only=True))
        if target == BOARD:
            with status("opening the device"):
                device = stack.enter_context(open_device(url, application.workloads[0].program.config, _system(url),
                                                         counting=counting))
        update = stack.enter_context(counter(target, len(samples)))
        return run_model(application, samples, target, machine=machine, device=device,  # type: ignore[arg-type]
                         progress=update, stream_shifts=stream_shifts)


def _system(url: str) -> "Backend | None":
    """A system of LiteX, which is brought up first."""
    if not url.startswith("litex:"):
        return None
    from gen.soc.remote import open_system

    return open_system(url)


def _bus(arguments: argparse.Namespace, application: "Application") -> "Bus | None":
    """What --memory asks for, at the clock that is known of the machine."""
    if (memory := chosen_memory(arguments)) is None:
        return None
    from gen.hw.clock import clock_of
    from gen.run.memory import bus_of

    program = application.workloads[0].program
    board = get_board(program.board or chosen_board(arguments).name)
    return bus_of(memory, program.config, clock_of(board, program.config).mhz)


def run(arguments: argparse.Namespace) -> int:
    if arguments.output and arguments.output.suffix != ".npz":
        raise UsageError(f"-o {arguments.output}: outputs are written as .npz")
    if arguments.target != "rtl" and chosen_memory(arguments) is not None:
        raise UsageError(f"--memory {arguments.memory}: only --target rtl has a memory; {IDEAL} is the default",
                         code="option-conflict")
    if arguments.waves:
        _require_waves(arguments)
    if arguments.output:
        refuse_to_replace(arguments.output, arguments.model, arguments.input, arguments.calibrate, arguments.config)
        require_writable(arguments.output)
    if arguments.counters:
        if arguments.target.partition(":")[0] != BOARD:
            raise UsageError("--counters goes with --target board: they are a device's", code="option-conflict")
        refuse_to_replace(arguments.counters, arguments.model, arguments.input, arguments.calibrate, arguments.config,
                          option="--counters")
        if arguments.output and os.path.realpath(arguments.output) == os.path.realpath(arguments.counters):
            raise UsageError(f"the outputs and --counters are both {arguments.output}", code="option-conflict")
        require_writable(arguments.counters)
    judge = chosen_judge(arguments)
    application = open_given(arguments, arguments.model, samples=arguments.input)
    if arguments.output:
        require_member_names(arguments.model, application.outputs)
    if arguments.counters:
        require_single(application, arguments.model)
    from gen.run.inputs import read_samples
    from gen.run.workload import is_program
    from npudriver import DeviceError

    samples = read_samples(arguments.input, application.inputs, limit=arguments.limit,
                           change_by=changes_of(arguments)[arguments.input]).judged_by(judge)
    if samples.remark:
        messages.print(samples.remark, soft_wrap=True)
    if arguments.target != "reference":
        with status(f"compiling {arguments.model.name}") as remark:
            application.programs(remark)
    if any(arguments.stream_shift) and not any(workload.program.streams for workload in application.workloads):
        raise UsageError("--stream-shift: no layer is computed by streams; compile the model with --stochastic")
    if any(arguments.stream_shift) and application.batch > 1:
        raise UsageError("--stream-shift does not go with a batch: its samples are computed at once",
                         code="option-conflict")
    try:
        result = execute(application, samples, arguments.target, _bus(arguments, application), arguments.stream_shift,
                         arguments.waves, counting=bool(arguments.counters))
    except DeviceError as error:
        if error.code != "other-device" or machine_given(arguments) or is_program(arguments.model):
            raise
        raise CommandError.of(error, f"{error}; nothing said what the machine is, so its units were chosen for the "
                                     "model: give --config of the one that is built") from None
    if arguments.waves:
        _write_save_files(arguments.waves, application)
    if arguments.output:
        write_outputs(arguments.output, result)
    if arguments.counters:
        _write_counters(arguments, application, result)
    if arguments.json:
        print_json(summary(result))
    else:
        show(result)
    if result.mismatches:
        tensors = list(dict.fromkeys(name for inference in result.inferences for name in inference.mismatches))
        messages.print(f"{speaker('run')}: error: {result.mismatches:,} values differ from the reference, "
                       f"first in tensor {tensors[0]}", soft_wrap=True)
        return FAILED
    return 0


def _write_counters(arguments: argparse.Namespace, application: "Application", result: "Run") -> None:
    from gen.report.make import model_digest
    from gen.run.counted import counted, write_counted

    config = application.workloads[0].program.config
    write_counted(arguments.counters, counted(result, arguments.target, config.digest, model_digest(arguments.model)))
    messages.print(f"{arguments.counters}: counters of {len(result.inferences):,} inferences; `{speaker('report')} "
                   f"{arguments.model} --run {arguments.counters}` draws them", soft_wrap=True)


def _require_waves(arguments: argparse.Namespace) -> None:
    """Raises UsageError, OSError."""
    if arguments.target != "rtl":
        raise UsageError("--waves goes with --target rtl: only the Verilog has signals", code="option-conflict")
    if arguments.waves.suffix != ".vcd":
        raise UsageError(f"--waves {arguments.waves}: waveforms are written as .vcd")
    require_writable(arguments.waves)


def _write_save_files(waves: Path, application: "Application") -> None:
    from gen.run.waves import save_files

    files = save_files(waves, [workload.program for workload in application.workloads])
    for path, text in files.items():
        write_file(path, text)
    saved = [str(path) for path in files if path.suffix == ".gtkw"]
    commands = [path.name for path in files if path.suffix == ".sucl"]
    messages.print(f"{waves}: open it with `gtkwave {saved[0]}`, or in its folder with `surfer -c {commands[0]} "
                   f"{waves.name}`" + (f"; the next parts of the model are in {', '.join(saved[1:])}" if saved[1:] else
                                       ""), soft_wrap=True)


def require_member_names(model: Path, names: Iterable[str], inputs: Iterable[str] = ()) -> None:
    """Raises CommandError for an output's name that would lead whoever unpacks an archive of it out of his folder, for
    one that no member of an archive can have, and for two that are one there (`output_member`). ``inputs`` keep
    their names there.
    """
    members: dict[str, str] = {}
    absolute = next((name for name in inputs if output_member(name) != name), None)
    if absolute is not None:
        raise CommandError(f"{model}: input {absolute} has the name of a path, which a file of samples does not have; "
                           "rename it", code="bad-output-name")
    for name in (*names, *inputs):
        if members.setdefault(output_member(name), name) != name:
            raise CommandError(f"{model}: outputs {members[output_member(name)]} and {name} would be one array of an "
                               ".npz file, which -o does not write; rename one", code="bad-output-name")
        if "\0" in name or len(f"{name}.npy".encode()) > _LONGEST_NAME:
            raise CommandError(f"{model}: output {name[:40]}{'...' * (len(name) > 40)} has a name that a member of an "
                               ".npz file cannot have, which -o does not write; rename it", code="bad-output-name")
        parts = PurePosixPath(output_member(name.replace("\\", "/")))
        if not parts.parts or ".." in parts.parts:
            raise CommandError(f"{model}: output {name} has the name of a path, which -o does not write; rename it",
                               code="bad-output-name")


def write_outputs(path: Path, result: "Run") -> None:
    import numpy as np

    buffer = io.BytesIO()
    # Not np.savez_compressed, whose own arguments are names like any other.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in result.outputs.items():
            with archive.open(f"{output_member(name)}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, value, allow_pickle=False)
    write_file(path, buffer.getvalue())


def summary(result: "Run") -> dict[str, Any]:
    return {
        "target": result.target, "samples": len(result.inferences),
        "outputs": {name: list(value.shape) for name, value in result.outputs.items()},
        "cycles": result.cycles, "seconds": round(result.seconds, 6),
        "host_seconds": round(result.host_seconds, 6), "mismatches": result.mismatches,
        "accuracy": result.accuracy, "accuracies": result.accuracies, "precision": precision_dict(result.precision),
    }


def show(result: "Run") -> None:
    timed = result.inferences[0].cycles is not None
    table = Table()
    cycles = ["cycles", "cycles/s"] if timed else []
    outputs = list(result.inferences[0].outputs)
    shown = outputs if len(outputs) == 1 else result.judged[:_JUDGED]
    predictions = [f"prediction\nby {name}" if len(outputs) > 1 else "prediction" for name in shown]
    for heading in ("sample", "label", *predictions, *cycles, "seconds", "mismatches"):
        table.add_column(heading, justify="right")
    for number, inference in enumerate(result.inferences[:_LISTED]):
        label = None if result.labels is None or result.labels[number] < 0 else int(result.labels[number])
        predicted = [inference.predictions.get(name) for name in shown]
        wrong = label is not None and label not in predicted and any(value is not None for value in predicted)
        row = ["-" if value is None else str(value) for value in (number, label, *predicted)]
        if inference.cycles is not None:
            row += [f"{inference.cycles:,}", f"{inference.cycles / max(inference.seconds, 1e-9):,.0f}"]
        row += [f"{inference.seconds:.3f}", f"{sum(inference.mismatches.values()):,}" if result.compared else "-"]
        table.add_row(*row, style="yellow" if wrong else "")
    console.print(table)
    if len(result.inferences) > _LISTED:
        console.print(f"and {len(result.inferences) - _LISTED:,} more")
    plural = "" if len(result.inferences) == 1 else "s"
    facts = [f"{len(result.inferences):,} sample{plural} on {result.target} in {result.seconds:.2f} s"]
    if result.host_seconds:
        facts.append(f"{result.host_seconds:.2f} s on the processor")
    if result.precision is not None:
        facts.append(str(result.precision))
    if result.accuracy is not None:
        facts.append(f"accuracy {100 * result.accuracy:.2f} %")
    elif result.accuracies:
        facts.append("accuracy " + ", ".join(f"{100 * share:.2f} % by {name}"
                                             for name, share in result.accuracies.items()))
    elif result.labelled:
        facts.append("accuracy not known, as no output is one vector of scores")
    if result.cycles is not None:
        facts.append(f"{result.cycles:,.0f} cycles an inference")
    if result.compared:
        compared = result.compared * len(result.inferences)
        facts.append(f"{result.mismatches:,} of {compared:,} values differ from the reference")
    console.print("; ".join(facts), soft_wrap=True)
