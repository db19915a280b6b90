"""``gen soc``"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cores.config import PRESET_MACS
from gen.cli.common import OUTPUT, add_json_option, console, counter, messages, print_json, status
from gen.cli.errors import FAILED, UsageError
from gen.cli.machine import add_machine_options, chosen_config, described, megahertz, require_single
from gen.cli.run import positive
from gen.files.write import require_writable, write_file
from gen.soc.targets import TARGETS, Target, get_target

if TYPE_CHECKING:
    from cores.config import NpuConfig
    from gen.hw.route import RouteReport
    from gen.soc.inference import Outcome
    from gen.soc.processor import Processor
    from gen.soc.samples import Sample

EXAMPLE = ("example: %(prog)s --board ecp5 --simulate examples/digits/digits_int8.onnx --input "
           "examples/digits/digits_test.npz --limit 12")

_DEFAULT = "ecp5"
#: The smallest preset: what any of the boards holds.
_DEFAULT_MACS = min(PRESET_MACS)
_BAUD = 115_200
#: Of a simulated processor: cycles between two looks at it, and looks without another sample done.
_PAUSE, _PATIENCE = 10_000, 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "The machine in a system of LiteX, which has to be installed: pip install npugen[litex]"
    parser.add_argument("-o", "--output", type=Path, metavar="DIR",
                        help="where the system's files go (default build/soc-BOARD-MACS)")
    parser.add_argument("--clock", type=megahertz, metavar="MHZ",
                        help="of system and machine, in place of the board's own")
    parser.add_argument("--baud", type=positive, default=_BAUD, metavar="N",
                        help=f"bits a second of the serial line to the host (default {_BAUD})")
    parser.add_argument("--bitstream", action="store_true",
                        help="synthesise, place, route and pack (many minutes): soc.bit, and the clock that it reaches")
    parser.add_argument("--cpu", metavar="NAME",
                        help="a processor in the system, vexriscv: it runs a whole model in C, without a host")
    parser.add_argument("--image", type=Path, metavar="MODEL",
                        help="with --cpu: the model in C for it goes to the system's files, compiled, in firmware/")
    parser.add_argument("--simulate", type=Path, metavar="MODEL",
                        help="in place of writing files: run a model or program on the system in Verilator, with "
                             "LiteDRAM's controller and a model of the memory, over UARTBone; with --cpu by the "
                             "processor, from memory")
    parser.add_argument("--doctor", action="store_true",
                        help="with --cpu, in place of writing files: the ladder of checks of a new board, by the "
                             "processor of the simulated system")
    parser.add_argument("--input", type=Path, metavar="FILE", help="samples for --simulate, as for `run`")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N samples")
    parser.add_argument("--serve", type=_port, metavar="PORT",
                        help="in place of the board's files: the simulated serial line on a TCP port of this machine "
                             "(0: any), for litex_server --uart --uart-port=socket://localhost:PORT")
    add_machine_options(parser, boards=TARGETS, board=_DEFAULT, macs=_DEFAULT_MACS)
    add_json_option(parser)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"must be a port in 0..65535, not {text}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    target = get_target(_DEFAULT if arguments.board is None else arguments.board)
    _require_sense(arguments)
    arguments.board = target.name
    config = chosen_config(arguments)
    clock = arguments.clock or target.clock_mhz
    if arguments.cpu is not None:
        from gen.soc.processor import get_processor

        processor = get_processor(arguments.cpu)
        if arguments.doctor:
            return _doctor(target, config, processor, clock, arguments)
        if arguments.simulate is not None:
            return _simulate_processor(target, config, processor, clock, arguments)
        return _write(target, config, clock, arguments, processor)
    if arguments.serve is not None:
        return _serve(target, config, clock, arguments)
    if arguments.simulate is not None:
        return _simulate(target, config, clock, arguments)
    return _write(target, config, clock, arguments)


def _require_sense(arguments: argparse.Namespace) -> None:
    if (arguments.simulate is None) != (arguments.input is None):
        raise UsageError("--simulate MODEL and --input FILE go together", code="option-conflict")
    given = {"bitstream": arguments.bitstream, "simulate": arguments.simulate is not None,
             "serve": arguments.serve is not None, "doctor": arguments.doctor}
    ways = [name for name, there in given.items() if there]
    if len(ways) > 1:
        raise UsageError(f"--{ways[0]} and --{ways[1]} exclude each other", code="option-conflict")
    if arguments.cpu is None and (arguments.image is not None or arguments.doctor):
        raise UsageError(f"{'--doctor' if arguments.doctor else '--image'} goes with --cpu NAME, for which it is "
                         "compiled", code="option-conflict")
    if arguments.cpu is not None and arguments.serve is not None:
        raise UsageError("--cpu and --serve exclude each other", code="option-conflict")
    for name in {"simulate", "doctor"}.intersection(ways):
        if arguments.image is not None:
            raise UsageError(f"--image and --{name} exclude each other", code="option-conflict")
        if arguments.output is not None:
            raise UsageError(f"-o goes with the system's files, which --{name} does not write", code="option-conflict")


def _write(target: Target, config: "NpuConfig", clock: float, arguments: argparse.Namespace,
           processor: "Processor | None" = None) -> int:
    from gen.soc.project import board_files

    cpu = "" if processor is None else f"-{processor.name}"
    folder = arguments.output or OUTPUT / f"soc-{target.name}-{config.macs}{cpu}"
    files: dict[str, str | bytes] = {}
    with status(f"{config.macs} MACs in a LiteX system for {target.title}"):
        files |= board_files(target, config, clock_mhz=clock, baud=arguments.baud, processor=processor)
    if processor is not None and arguments.image is not None:
        files |= _image(arguments.image, config, processor, json.loads(files["system.json"]))
    for name in files:
        require_writable(folder / name)
    for name, content in files.items():
        write_file(folder / name, content)
    messages.print(f"{folder}: {', '.join(files)}", soft_wrap=True)
    messages.print(described(config, target.name), soft_wrap=True)
    result: dict[str, Any] = {"board": target.name, "macs": config.macs, "clock_mhz": clock,
                              "files": [str(folder / name) for name in files]}
    if arguments.bitstream:
        report = _bitstream(target, folder, clock)
        result["route"] = report.to_dict()
        if not arguments.json:
            _show_clock(report, clock)
        if report.mhz < clock:
            messages.print(f"warning: {clock:g} MHz is asked for, {report.mhz:g} MHz is reached; take a lower --clock",
                           style="yellow", soft_wrap=True)
    if arguments.json:
        print_json(result)
    return 0


def _bitstream(target: Target, folder: Path, clock: float) -> "RouteReport":
    from gen.soc.bitstream import make_bitstream

    with status(f"{folder / 'soc.bit'} (many minutes)") as remark:
        return make_bitstream(target, folder, clock_mhz=clock, progress=remark)


def _show_clock(report: "RouteReport", clock: float) -> None:
    console.print(f"{report.mhz:g} MHz, placed and routed (target {clock:g}): {report.critical}", soft_wrap=True)
    used = ", ".join(f"{count:,} {name}" for name, count in sorted(report.used.items()))
    console.print(f"used: {used}", soft_wrap=True)


def _image(model: Path, config: "NpuConfig", processor: "Processor", description: dict[str, Any]
           ) -> dict[str, bytes]:
    """A model in C for the processor of a system and the ladder of a new board: sources, and what is loaded."""
    from gen.deploy.c_model import c_model
    from gen.run.application import open_application
    from gen.soc.firmware import compile_image, firmware_files

    with status(f"{model.name} for {processor.name}") as remark:
        application = open_application(model, config, progress=remark)
        require_single(application, model)
        made = c_model(application.file)
        files = firmware_files(made, config, description, processor)
        files |= {name: compile_image(files, name) for name in ("firmware.bin", "doctor.bin")}
    return {f"firmware/{name}": content for name, content in files.items()}


def _doctor(target: Target, config: "NpuConfig", processor: "Processor", clock: float, arguments: argparse.Namespace
            ) -> int:
    from gen.soc.doctor import examine
    from gen.soc.firmware import compile_image, image_files
    from gen.soc.image import Waiting
    from gen.soc.inference import awake_client
    from gen.soc.simulator import simulate

    with status(f"compiling the system of {target.title} (once, minutes)"):
        line, description = simulate(target, config, clock_mhz=clock, processor=processor)
    with status(f"compiling the checks for {processor.name}"):
        image = compile_image(image_files(config, description, processor), "doctor.bin")
    with line, status(f"{target.title}, simulated"):
        findings, well = examine(awake_client(line, description), description, image,
                                 Waiting(lambda: line.run(_PAUSE), _PATIENCE))
    if arguments.json:
        print_json({"board": target.name, "macs": config.macs, "cpu": processor.name, "ok": well,
                    "findings": findings})
    else:
        for finding in findings:
            console.print(finding, soft_wrap=True)
    return 0 if well else FAILED


def _simulate_processor(target: Target, config: "NpuConfig", processor: "Processor", clock: float,
                        arguments: argparse.Namespace) -> int:
    from gen.deploy.c_model import c_model
    from gen.run.application import open_application
    from gen.run.inputs import read_samples
    from gen.run.runner import run_model
    from gen.soc.firmware import compile_firmware, firmware_files
    from gen.soc.image import Waiting
    from gen.soc.inference import awake_client
    from gen.soc.samples import run_samples, wrong_values
    from gen.soc.simulator import simulate

    with status(f"reading {arguments.simulate.name}") as remark:
        application = open_application(arguments.simulate, config, progress=remark)
        require_single(application, arguments.simulate)
        samples = read_samples(arguments.input, application.inputs, limit=arguments.limit)
        model = c_model(application.file)
    with status(f"compiling the system of {target.title} (once, minutes)"):
        line, description = simulate(target, config, clock_mhz=clock, processor=processor)
    with status(f"compiling {arguments.simulate.name} for {processor.name}"):
        firmware = compile_firmware(model, firmware_files(model, config, description, processor))
    count = len(samples)
    with line, counter(f"{target.title}, simulated", count) as tell:
        found, load_cycles = run_samples(
            awake_client(line, description), description, firmware,
            [{name: array[number] for name, array in samples.inputs.items()} for number in range(count)],
            Waiting(lambda: line.run(_PAUSE), _PATIENCE, lambda done: tell(done, 0)))
    expected = run_model(application, samples, "reference").inferences
    wrong = sum(wrong_values(one.outputs, other.outputs) for one, other in zip(found, expected, strict=True))
    values = sum(array.size for one in expected for array in one.outputs.values())
    result: dict[str, Any] = {
        "board": target.name, "macs": config.macs, "cpu": processor.name, "clock_mhz": clock, "samples": count,
        "values": values, "differing": wrong, "image_bytes": len(firmware.image), "load_cycles": load_cycles,
        "cycles": _mean(found, "cycles"), "accelerator": _mean(found, "accelerator"),
        "processor": _mean(found, "processor")}
    if arguments.json:
        print_json(result)
    else:
        console.print(f"{wrong:,} of {values:,} values of the outputs differ from Python's", soft_wrap=True)
        console.print(f"{result['cycles']:,} cycles an inference: {result['accelerator']:,} of the accelerator, "
                      f"{result['processor']:,} of {processor.name} beside it; {clock * 1e6 / result['cycles']:,.1f} a "
                      f"second at {clock:g} MHz, target", soft_wrap=True)
        console.print(f"an image of {len(firmware.image):,} bytes in memory, loaded in {load_cycles:,} cycles",
                      soft_wrap=True)
        console.print(described(config, target.name), soft_wrap=True)
    return FAILED if wrong else 0


def _mean(samples: "list[Sample]", name: str) -> int:
    return round(sum(getattr(sample, name) for sample in samples) / len(samples))


def _serve(target: Target, config: "NpuConfig", clock: float, arguments: argparse.Namespace) -> int:
    from gen.soc.serve import serve
    from gen.soc.simulator import simulate

    path = (arguments.output or OUTPUT / f"soc-{target.name}-{config.macs}-simulated") / "system.json"
    require_writable(path)
    with status(f"compiling the system of {target.title} (once, minutes)"):
        line, description = simulate(target, config, clock_mhz=clock)
    write_file(path, json.dumps(description, indent=2) + "\n")
    serve(line, arguments.serve, ready=lambda port: messages.print(
        f"{target.title}, as in {path}: litex_server --uart --uart-port=socket://localhost:{port}; Ctrl-C ends it",
        soft_wrap=True))
    return 0


def _simulate(target: Target, config: "NpuConfig", clock: float, arguments: argparse.Namespace) -> int:
    from gen.options import CompileOptions
    from gen.run.inputs import read_samples
    from gen.run.workload import open_workload
    from gen.soc.inference import connect, infer_all
    from gen.soc.simulator import simulate

    workload = open_workload(arguments.simulate, config, CompileOptions(), board=target.name)
    samples = read_samples(arguments.input, workload.inputs, limit=arguments.limit)
    with status(f"compiling the system of {target.title} (once, minutes)"):
        line, description = simulate(target, config, clock_mhz=clock)
    with line, counter(f"{target.title}, simulated", len(samples)) as tell:
        outcome = infer_all(connect(line, description), workload, samples, clock_mhz=clock, progress=tell)
    if arguments.json:
        print_json({"board": target.name, "macs": config.macs, "clock_mhz": clock, **outcome.to_dict()})
    else:
        _show(outcome, target, config, clock)
    return FAILED if outcome.wrong_bytes else 0


def _show(outcome: "Outcome", target: Target, config: "NpuConfig", clock: float) -> None:
    count = len(outcome.cycles)
    mean = sum(outcome.cycles) / count
    if outcome.right is not None:
        console.print(f"{outcome.right} of {count} right")
    console.print(f"{outcome.wrong_bytes:,} of {outcome.compared * count:,} bytes of memory differ from the "
                  "instruction-level simulator's", soft_wrap=True)
    console.print(f"{mean:,.0f} cycles an inference on LiteDRAM with {target.memory} ({min(outcome.cycles):,} to "
                  f"{max(outcome.cycles):,}), {outcome.ideal_cycles:,} on the ideal bus: "
                  f"{clock * 1e6 / mean:,.0f} a second at {clock:g} MHz, target", soft_wrap=True)
    console.print(described(config, target.name), soft_wrap=True)
