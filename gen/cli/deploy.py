"""``gen deploy``"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gen.cli.calibration import add_calibration_options, changes_of
from gen.cli.common import add_json_option, console, messages, print_json, refuse_to_replace, status
from gen.cli.compile import add_compiler_options
from gen.cli.errors import UsageError
from gen.cli.machine import add_machine_options, chosen_board, machine_given, machine_words, open_given, require_single
from gen.cli.run import positive, require_member_names

if TYPE_CHECKING:
    from boards.board import Board

EXAMPLE = """example:
  %(prog)s examples/digits/digits_int8.onnx --board zu3eg -o build/digits --input examples/digits/digits_test.npz"""

#: Samples that are enclosed where no limit is given: they are to show that all is well, not how accurate the model is.
_SAMPLES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL.onnx|PROGRAM")
    parser.add_argument("--variant", metavar="NAME",
                        help="which model, where a folder is given that `train --variants` filled; float ones need "
                             "--calibrate")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER|FILE.tar.gz",
                        help="a new or empty folder, or an archive of one")
    parser.add_argument("--input", type=Path, metavar="FILE",
                        help="samples to enclose, as for `run` (default: a random one)")
    parser.add_argument("--language", choices=("python", "c"), default="python",
                        help="the driver in Python with a copy of it, and onnxruntime for what the processor has "
                             "(default), or all of it in C99 without dependencies, for systems small and large")
    parser.add_argument("--state", action="append", default=[], metavar="OUTPUT=INPUT",
                        help="with --language c: the model keeps an output as this input of the next inference; all "
                             "are zeros at first, and after npugen_model_reset (repeatable)")
    parser.add_argument("--name", default="model", metavar="NAME",
                        help="with --language c: calls and files of the model begin with npugen_NAME, so that several "
                             "models go into one program (default %(default)s)")
    parser.add_argument("--hardware", type=Path, metavar="DIR",
                        help="enclose what the board's tool has made in this folder of `build`: bitstream, device tree "
                             "overlay, and the script that loads both; a model is compiled for its machine where no "
                             "option says what that is")
    parser.add_argument("--limit", type=positive, default=_SAMPLES, metavar="N",
                        help=f"enclose the first N samples (default {_SAMPLES})")
    add_compiler_options(parser)
    add_calibration_options(parser)
    add_machine_options(parser, for_model=True)
    add_json_option(parser)


def chosen_model(model: Path, variant: str | None) -> Path:
    """Of a folder that `train --variants` filled the model of that name. Raises UsageError."""
    if variant is None:
        return model
    names = sorted(path.stem for path in model.glob("*.onnx")) if model.is_dir() else []
    if not names:
        raise UsageError(f"--variant goes with a folder that `train --variants` filled, not with {model}",
                         code="option-conflict")
    if variant not in names:
        raise UsageError(f"{model}: --variant must be one of {', '.join(names)}, not {variant}", code="option-conflict")
    return model / f"{variant}.onnx"


def run(arguments: argparse.Namespace) -> None:
    arguments.model = chosen_model(arguments.model, arguments.variant)
    refuse_to_replace(arguments.output, arguments.model, arguments.input, arguments.calibrate, arguments.config)
    from gen.deploy.c_model import write_c_package
    from gen.deploy.c_states import parse_states
    from gen.deploy.hardware import CONFIG_FILE, hardware_files, require_build
    from gen.deploy.package import require_free, runs_whole, write_package
    from gen.run.inputs import arbitrary_samples, random_samples, read_samples
    from gen.run.workload import Workload, is_program
    from npudriver import HostFile
    from npudriver.host import NO_RUNTIME_32

    if arguments.language == "python" and arguments.state:
        raise UsageError("--state goes with --language c; in Python an output is given as the next inference's input",
                         code="option-conflict")
    if arguments.language == "python" and arguments.name != "model":
        raise UsageError("--name goes with --language c", code="option-conflict")
    try:
        require_free(arguments.output)
    except FileExistsError as error:
        raise UsageError(f"-o {error.filename}: {error.strerror}") from None
    if arguments.hardware is not None and not machine_given(arguments) and not is_program(arguments.model):
        require_build(arguments.hardware)
        arguments.config = arguments.hardware / CONFIG_FILE
    application = open_given(arguments, arguments.model, samples=arguments.input)
    require_single(application, arguments.model)
    require_member_names(arguments.model, application.outputs, application.inputs)
    states = parse_states(arguments.state, list(application.inputs), application.outputs)
    only, *others = application.segments
    if arguments.input is not None:
        samples = read_samples(arguments.input, {name: spec for name, spec in application.inputs.items()
                                                 if name not in states}, limit=arguments.limit,
                               change_by=changes_of(arguments)[arguments.input])
        if samples.remark:
            messages.print(samples.remark, soft_wrap=True)
    elif isinstance(only, Workload) and not others:
        samples = random_samples(only.graph, only.input_shapes, seed=0)
    else:
        samples = arbitrary_samples(application.inputs, seed=0)
    board = chosen_board(arguments)
    if arguments.language == "c" and arguments.hardware is not None:
        raise UsageError("--hardware goes with --language python, whose package has the scripts that load it")
    if arguments.language == "python" and not runs_whole(board, application):
        messages.print(f"{arguments.model}: a part of this model runs on the processor, that of {board.name} has 32 "
                       f"bits, and {NO_RUNTIME_32}; or take --language c, a board of 64 bits (see `boards`), or "
                       "a model that compiles with --host off", soft_wrap=True)
    with status(f"compiling {arguments.model.name}") as remark:
        program, *_ = application.programs(remark)
    if arguments.language == "c":
        with status(f"writing {arguments.output.name}") as remark:
            model = write_c_package(arguments.output, application, samples, board, states=states, name=arguments.name,
                                    progress=remark)
        facts = {"package": str(arguments.output), "language": "c", "board": board.name, "arena": model.arena,
                 "inputs": [port.name for port in model.inputs], "outputs": [port.name for port in model.outputs],
                 "states": [state.port.name for state in model.states], "files": sorted(model.files)}
        if arguments.json:
            print_json(facts)
            return
        console.print(f"{arguments.output}: {arguments.model.stem} in C for "
                      f"{machine_words(program.config, board.name)}; {model.arena:,} bytes a sample on its way; "
                      f"npugen_{arguments.name}.h says how to call it, `make` makes an example", soft_wrap=True)
        return
    hardware = {} if arguments.hardware is None else hardware_files(arguments.hardware, board, program.config)
    with status(f"writing {arguments.output.name}") as remark:
        deployment = write_package(arguments.output, application, samples, board, arguments.model.stem,
                                   hardware=hardware, progress=remark)
    facts = {
        "package": str(arguments.output), "board": board.name, "device": deployment.device, "samples": len(samples),
        "hardware": sorted(hardware),
        "segments": ["host" if isinstance(segment, HostFile) else "accelerator" for segment in deployment.segments],
    }
    if arguments.json:
        print_json(facts)
        return
    console.print(f"{arguments.output}: {arguments.model.stem} for {machine_words(program.config, board.name)}; "
                  f"{_next(board, enclosed=bool(hardware))}", soft_wrap=True)


def _next(board: "Board", *, enclosed: bool) -> str:
    if board.linux is None:
        return f"on the computer that reaches it, as {board.driver_device} or by --device, type: python3 run.py"
    return f"copy it to the board and type: {'sudo sh hardware/load.sh && ' * enclosed}sudo python3 run.py"
