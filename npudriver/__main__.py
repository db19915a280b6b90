"""The driver's own commands, on a board: ``python3 -m npudriver doctor | dump | govern | info | run | serve``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Iterator, Sequence

import numpy as np

from .access import read_token
from .archive import output_member
from .arrays import read_arrays, write_arrays
from .battery import Battery, ModelledBattery, PowerSupply
from .bringup import BRINGUP, BringUp, Trial
from .connect import device_of_file, open_backend
from .device import Device
from .doctor import Bench, Finding, examine, not_opened
from .dump import Dump, take_dump
from .errors import DriverError, PackageError
from .files import named
from .governed import GovernedModel
from .governor import Governor
from .levels import LevelTable
from .machine import Machine
from .model import Deployment
from .registers import Registers
from .server import Limits, Server

__all__ = ["main"]

_SAMPLE = "sample.npz"
#: In the file of a sample, what the names of expected outputs begin with.
_EXPECTED = "expected/"


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text}")
    return int(text)


def _positive(text: str) -> int:
    if not _natural(text):
        raise argparse.ArgumentTypeError("must be at least 1, not 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text}")
    return value


def _file(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".npz":
        raise argparse.ArgumentTypeError(f"outputs are written as .npz, not as {path.name}")
    if not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path.parent}: no such folder, or not writable")
    return path


#: What a model is given as, and where its device is that was compiled for no board.
_MODEL, _DEVICE = "a folder that `gen deploy` has made, or a .npu file", "uio:"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npudriver", description="Programs on an NPU.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a deployed model")
    run.add_argument("model", type=Path, help=_MODEL)
    run.add_argument("--input", type=Path, metavar="X.npz", help="arrays named as the model's inputs, samples on the "
                     "first axis, and perhaps `label`; without it the enclosed sample runs, whose outputs are known")
    run.add_argument("-o", "--output", type=_file, metavar="Y.npz", help="write the outputs under the model's names")
    run.add_argument("--limit", type=_positive, metavar="N", help="take the first N samples")
    run.add_argument("--slots", type=_positive, default=2, help="1 loads no input while the device runs (default 2)")
    run.add_argument("--retries", type=_natural, default=0,
                     help="try a sample again so often that has failed (default 0)")
    run.add_argument("--timeout", type=_seconds, default=10.0, metavar="S", help="for one inference (default 10 s)")
    run.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    govern = commands.add_parser("govern", help="run samples, each at the level that a governor chooses by the charge")
    govern.add_argument("levels", type=Path, metavar="governor.json", help="what `gen govern` has written")
    govern.add_argument("--input", type=Path, required=True, metavar="X.npz", help="as of run")
    govern.add_argument("--limit", type=_positive, metavar="N", help="take the first N samples")
    govern.add_argument("--supply", type=Path, metavar="FOLDER", help="the battery, of /sys/class/power_supply "
                        "(default: one that is reckoned, full at first)")
    govern.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    info = commands.add_parser("info", help="say what the device is and what its registers hold")
    info.add_argument("model", type=Path, help=_MODEL)
    doctor = commands.add_parser("doctor", help="check a device step by step: registers, memory, program, interrupt, "
                                 "engines")
    doctor.add_argument("model", type=Path, help=f"{_MODEL}, or {BRINGUP} of such a folder")
    doctor.add_argument("--programs", type=Path, metavar=BRINGUP,
                        help="programs for the engines (default: those of the folder)")
    doctor.add_argument("--json", action="store_true", help="print one JSON array and nothing else")
    doctor.add_argument("--dump", type=Path, metavar="FILE", help="write what the registers held where the first "
                        "program failed, or at the end: `python -m gen explain FILE` puts it into words")
    dump = commands.add_parser("dump", help="write registers and counters of a device as they are, also of one that "
                               "hangs; `python -m gen explain` puts them into words")
    dump.add_argument("model", type=Path, help=f"{_MODEL}, or {BRINGUP} of such a folder")
    dump.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: standard output")
    serve = commands.add_parser("serve", help="let others use the device over the network")
    serve.add_argument("model", type=Path, nargs="?", default=Path(),
                       help=f"{_MODEL}; it says what machine the device is (default: the folder here)")
    serve.add_argument("--listen", default="127.0.0.1:1234", metavar="ADDRESS:PORT",
                       help="default 127.0.0.1:1234; one that others reach needs a token")
    serve.add_argument("--token-file", type=Path, metavar="FILE",
                       help="what clients must have, which others must not be able to read (default: the file that "
                       "NPUDRIVER_TOKEN_FILE names, else NPUDRIVER_TOKEN itself)")
    serve.add_argument("--idle", type=_seconds, default=Limits.idle, metavar="S",
                       help=f"end the connection of a client that asks nothing for so long (default {Limits.idle:g} s)")
    serve.add_argument("--memory", type=_positive, default=64, metavar="MIB",
                       help="what they have of its memory (default 64)")
    for sub in (run, govern, info, doctor, dump, serve):
        sub.add_argument("--device", metavar="URL", help="uio:[NAME], pynq:FILE.bit, tcp://HOST[:PORT] (default: that "
                         "of the model's board; for serve uio:)")
    return parser


def _samples(path: Path, deployment: Deployment, limit: int | None) -> dict[str, np.ndarray]:
    arrays = read_arrays(path)
    for name in deployment.inputs:
        if name not in arrays:
            raise PackageError(f"{path}: has no array {name}; it has {', '.join(arrays) or 'none'}", code="bad-input")
    counts = {name: len(arrays[name]) if arrays[name].ndim else 0 for name in deployment.inputs}
    if min(counts.values()) < 1 or len(set(counts.values())) > 1:
        raise PackageError(f"{path}: the inputs must have samples on their first axes, as many each: " + ", ".join(
            f"{name} has {count}" for name, count in counts.items()), code="bad-input")
    return {name: array[:limit] if array.ndim else array for name, array in arrays.items()}


def _each(arrays: dict[str, np.ndarray], names: Sequence[str]) -> Iterator[dict[str, np.ndarray]]:
    for number in range(len(arrays[names[0]])):
        yield {name: arrays[name][number] for name in names}


def _run(arguments: argparse.Namespace) -> int:
    deployment = Deployment.load(arguments.model)
    own = arguments.input is None
    if own and not arguments.model.is_dir():
        raise PackageError(f"{arguments.model}: has no samples; name some with --input", code="bad-input")
    arrays = _samples(arguments.model / _SAMPLE if own else arguments.input, deployment, arguments.limit)
    with Device(open_backend(arguments.device or device_of_file(deployment.device) or _DEVICE), deployment.machine,
                timeout=arguments.timeout) as device, deployment.load_into(device, slots=arguments.slots) as model:
        began = time.perf_counter()
        found = list(model.stream(_each(arrays, list(deployment.inputs)), retries=arguments.retries))
        seconds = time.perf_counter() - began
    if arguments.output:
        write_arrays(arguments.output, {output_member(name): array for name, array in _stacked(found).items()})
    facts = {"samples": len(found), "seconds": round(seconds, 6), "per_second": round(len(found) / seconds, 2)}
    if own:
        facts["differing"] = sum(
            _differing(found, name, arrays[_EXPECTED + name], arguments.model / _SAMPLE)
            for name in deployment.outputs if _EXPECTED + name in arrays)
    labels = None if "label" in deployment.inputs else arrays.get("label")
    if labels is not None and labels.dtype.kind in "iuf" and labels.shape == (len(found),) and (
            len(deployment.outputs) == 1):
        right = [bool(np.argmax(one[deployment.outputs[0]]) == label) for one, label in zip(found, labels)]
        facts["right"] = sum(right)
    print(json.dumps(facts) if arguments.json else ", ".join(f"{name} {value}" for name, value in facts.items()))
    return 1 if facts.get("differing") else 0


def _differing(found: Sequence[dict[str, np.ndarray]], name: str, wanted: np.ndarray, path: Path) -> int:
    """The values of an output that are not the enclosed ones. Raises PackageError for those of another shape."""
    shapes = {np.shape(one[name]) for one in found}
    if not wanted.ndim or len(wanted) < len(found) or shapes != {wanted.shape[1:]}:
        raise PackageError(f"{path}: what is expected of {name} has another shape; deploy the model again")
    return sum(int(np.count_nonzero(np.asarray(one[name]) != value)) for one, value in zip(found, wanted))


def _stacked(found: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Name -> all samples; ``name/N`` for each where they have different shapes."""
    stacked = {}
    for name in found[0] if found else ():
        arrays = [np.asarray(one[name]) for one in found]
        if len({array.shape for array in arrays}) == 1:
            stacked[name] = np.stack(arrays)
        else:
            stacked.update({f"{name}/{number}": array for number, array in enumerate(arrays)})
    return stacked


def _govern(arguments: argparse.Namespace) -> int:
    table = LevelTable.load(arguments.levels)
    battery: Battery = PowerSupply(arguments.supply) if arguments.supply else ModelledBattery(table.battery)
    deployments = [Deployment.load(arguments.levels.parent / name) for name in table.programs]
    first = deployments[0]
    arrays = _samples(arguments.input, first, arguments.limit)
    with ExitStack() as stack:
        device = stack.enter_context(Device(open_backend(
            arguments.device or device_of_file(first.device) or _DEVICE), first.machine))
        models = [stack.enter_context(deployment.load_into(device)) for deployment in deployments]
        governed = GovernedModel(Governor(table), models, battery)
        made = [governed.run(inputs) for inputs in _each(arrays, list(first.inputs))]
    counts = Counter(one.level.name for one in made)
    facts = {"samples": len(made), "late": sum(one.choice.late for one in made),
             "short": sum(one.choice.short for one in made), "charge_%": battery.charge() / 1e4,
             "levels": {level.name: counts[level.name] for level in table.levels}}
    if arguments.json:
        print(json.dumps(facts))
        return 0
    levels = ", ".join(f"{level.name} {counts[level.name]}" for level in table.levels)
    print(f"{len(made)} samples, {facts['late']} late, {facts['short']} short of charge, "
          f"{battery.charge() / 1e4:.2f} % left: {levels}")
    return 0


def _info(arguments: argparse.Namespace) -> int:
    deployment = Deployment.load(arguments.model)
    backend = open_backend(arguments.device or device_of_file(deployment.device) or _DEVICE)
    try:
        registers = Registers(backend, deployment.machine)  # which changes nothing
        for name in deployment.machine.registers:
            if not name.startswith("counter_"):
                print(f"{name:16} {registers.read(name):#010x}")
        for name, value in registers.counters().items():
            print(f"{name:24} {value:,}")
    finally:
        backend.close()
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    machine, device, programs = _examined(arguments.model, arguments.programs)
    findings = []
    bench = _Examination(arguments.device or device_of_file(device) or _DEVICE, machine, programs, arguments.dump)
    for finding in _findings(bench):
        findings.append(finding)
        if not arguments.json:
            print(finding, flush=True)
    if arguments.json:
        print(json.dumps([{**vars(finding), "ok": finding.ok} for finding in findings]))
    return 0 if all(finding.ok for finding in findings) else 1


def _is_bring_up(path: Path) -> bool:
    """Whether programs for the engines are given in place of a model. Raises PackageError for what is neither."""
    return path.is_file() and BringUp.is_one(path)


def _examined(path: Path, programs: Path | None) -> tuple[Machine, str, Sequence[Trial]]:
    """The machine that a device should be, where it is, and programs for its engines. Raises PackageError."""
    found: BringUp | None
    if _is_bring_up(path):
        found = BringUp.load(path)
        machine, device = found.machine, ""
    else:
        deployment = Deployment.load(path)
        machine, device = deployment.machine, deployment.device
        enclosed = path / BRINGUP
        found = BringUp.load(enclosed) if programs is None and enclosed.exists() else None
    if programs is not None:
        found = BringUp.load(programs)
    if found is not None and found.machine != machine:
        raise PackageError(f"{programs or path / BRINGUP}: is for another machine; deploy the model again")
    return machine, device, () if found is None else found.trials


@dataclass(frozen=True)
class _Examination:
    """What is examined: where, as which machine, by which programs; ``output``: where a dump of it goes."""

    device: str
    machine: Machine
    trials: Sequence[Trial]
    output: Path | None


def _findings(what: _Examination) -> Iterator[Finding]:
    """Findings as they are made."""
    try:
        backend = open_backend(what.device)
    except DriverError as error:
        finding = not_opened(error)
        if finding is None:
            raise
        yield finding
        return
    dumps: list[Dump] = []

    def witness() -> None:
        if what.output is not None and not dumps:
            dumps.append(take_dump(backend, what.machine))
            _write_dump(what.output, dumps[0])

    try:
        ok = True
        for finding in examine(Bench(backend, what.machine, witness=witness, trials=what.trials)):
            ok = finding.ok
            yield finding
        if ok and not what.trials:
            yield Finding("engines", f"not checked: there is no {BRINGUP} here; `gen deploy` encloses one")
        witness()
    finally:
        backend.close()


def _write_dump(path: Path, dump: Dump) -> None:
    with named(path):
        path.write_text(dump.to_json())


def _dump(arguments: argparse.Namespace) -> int:
    if _is_bring_up(arguments.model):
        machine, device = BringUp.load(arguments.model).machine, ""
    else:
        deployment = Deployment.load(arguments.model)
        machine, device = deployment.machine, deployment.device
    backend = open_backend(arguments.device or device_of_file(device) or _DEVICE)
    try:
        dump = take_dump(backend, machine)
    finally:
        backend.close()
    if arguments.output:
        _write_dump(arguments.output, dump)
    else:
        print(dump.to_json(), end="")
    return 1 if dump.trouble or not dump.samples else 0


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _serve(arguments: argparse.Namespace) -> int:
    host, _, port = arguments.listen.rpartition(":")
    if not port.isdecimal() or int(port) >= 1 << 16:
        raise PackageError(f"--listen {arguments.listen}: must be ADDRESS:PORT", code="bad-url")
    token, machine = read_token(arguments.token_file), Deployment.machine_of(arguments.model)
    signal.signal(signal.SIGTERM, _end)     # leave the device as it was
    backend = open_backend(arguments.device or _DEVICE)
    try:
        server = Server(backend, machine, host=host.strip("[]"), port=int(port), memory=arguments.memory << 20,
                        token=token, limits=Limits(idle=arguments.idle))
        where, number = server.address
        print(f"serving at tcp://{f'[{where}]' if ':' in where else where}:{number}"
              f"{'' if token is None else ', with a token'}", flush=True)
        try:
            server.serve()
        finally:
            server.close()
    finally:
        backend.close()
    return 0


def _printable(text: str) -> str:
    """One line, whatever names files and models bring into it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 (could not), 2 (bad arguments), 130 (interrupted)."""
    arguments = _parser().parse_args(argv)
    try:
        commands = {"doctor": _doctor, "dump": _dump, "govern": _govern, "run": _run, "info": _info, "serve": _serve}
        return commands[arguments.command](arguments)
    except KeyboardInterrupt:
        return 130
    except (DriverError, OSError) as error:
        code = error.code if isinstance(error, DriverError) else "unreadable-file" if error.filename else ""
        print(f"npudriver {arguments.command}: error: {_printable(str(error))}{f' [{code}]' if code else ''}",
              file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
