"""A folder for a board: the model in the driver's form, the driver itself, and an example in Python and in C."""

import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import numpy as np

from boards.board import Board
from gen.bringup.programs import bring_up
from gen.deploy.c_bringup import c_bringup
from gen.deploy.c_sources import c_sources
from gen.deploy.hardware import PYNQ_OVERLAY
from gen.deploy.notebook import notebook
from gen.files.write import require_writable, write_file
from gen.hw.logs import standing
from gen.ir import reference
from gen.run.application import Application
from gen.run.inputs import Samples
from gen.run.runner import run_model
from gen.run.workload import Workload
from npudriver import DeployedProgram, Deployment, HostFile
from npudriver.arrays import write_arrays
from npudriver.bringup import BRINGUP
from npudriver.files import named
from npudriver.host import NO_RUNTIME_32

__all__ = ["encoded_sample", "require_free", "runs_whole", "whole_folder", "write_package"]

#: In a package whose bitstream PYNQ can load.
NOTEBOOK = "run.ipynb"
_DRIVER = Path(__file__).resolve().parents[2] / "npudriver"
_RUN = '''#!/usr/bin/env python3
"""Runs the model of this folder on its NPU; `python3 run.py --help` lists the options."""

import sys
from pathlib import Path

folder = Path(__file__).resolve().parent
sys.path.insert(0, str(folder))

try:
    from npudriver.__main__ import main
except ModuleNotFoundError as missing:
    sys.exit(f"run.py: error: the package {missing.name} is missing: pip install {missing.name}")

sys.exit(main(["run", str(folder), *sys.argv[1:]]))
'''


def require_free(path: Path) -> None:
    """Raises OSError where no package can be written to: a folder must be new or empty, a .tar.gz writable."""
    if _is_archive(path):
        require_writable(path)
    elif path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(17, "must be a new or an empty folder, or a .tar.gz", str(path))
    else:
        require_writable(path / "model.json")


def runs_whole(board: Board, application: Application) -> bool:
    """Whether all of a model can run on a board: there may be no onnxruntime for its processor."""
    whole = all(isinstance(segment, Workload) for segment in application.segments)
    return whole or board.linux is None or board.linux.processor_bits == 64


def write_package(path: Path, application: Application, samples: Samples, board: Board, name: str, *,
                  hardware: Mapping[str, bytes] = MappingProxyType({}),
                  progress: Callable[[str], None] = lambda text: None) -> Deployment:
    """Write the folder, or the archive, whole or not at all; the same application gives the same files.

    ``samples`` go with it, and what the reference makes of them; so do files for the fabric, ``hardware`` (name ->
    content). ``progress`` hears how far it is. Raises OSError, CompileError.
    """
    with whole_folder(path) as folder:
        deployment = _write_folder(folder, application, samples, board, name, progress)
        _write_hardware(folder, hardware)
        if PYNQ_OVERLAY in hardware:
            (folder / NOTEBOOK).write_text(notebook(deployment))
        (folder / "README.txt").write_text(_readme(deployment, hardware, runs_whole(board, application)))
    return deployment


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """An empty folder to be written, which is at ``path`` afterwards, or an archive of it; nothing is if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with named(path), tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:200]}.") as temporary:
        folder = Path(temporary) / (path.name.removesuffix(".tar.gz") or "npu")
        folder.mkdir()
        yield folder
        if _is_archive(path):
            write_file(path, _archive(folder))
        else:
            if path.is_dir():
                path.rmdir()
            folder.rename(path)


def _is_archive(path: Path) -> bool:
    return path.name.endswith(".tar.gz")


def _write_folder(folder: Path, application: Application, samples: Samples, board: Board, name: str,
                  progress: Callable[[str], None]) -> Deployment:
    config = application.workloads[0].program.config
    made = application.file.deployment(name=name, board=board.name, device=board.driver_device)
    made.save(folder)
    programs_for_engines = bring_up(config)
    (folder / BRINGUP).write_bytes(programs_for_engines.content())
    _write_samples(folder / "sample.npz", application, samples, progress)
    (folder / "run.py").write_text(_RUN)
    shutil.copytree(_DRIVER, folder / "npudriver", ignore=shutil.ignore_patterns("__pycache__", "c"))
    programs = [segment for segment in made.segments if isinstance(segment, DeployedProgram)]
    only = application.segments[0]
    sample = None
    if isinstance(only, Workload) and len(made.segments) == 1:
        sample = encoded_sample(programs[0], only, samples)
    sources = c_sources(config, programs[0], board, sample)
    if sources:
        sources |= c_bringup(programs_for_engines)
    for file, content in sources.items():
        (folder / "c").mkdir(exist_ok=True)
        (folder / "c" / file).write_bytes(content)
    return made


def _write_hardware(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / "hardware").mkdir(exist_ok=True)
        (folder / "hardware" / name).write_bytes(content)


def _write_samples(path: Path, application: Application, samples: Samples, progress: Callable[[str], None]) -> None:
    def tell(done: int, present: str) -> None:
        progress(f"{done:,} of {len(samples):,} samples{', ' if present else ''}{present}")

    result = run_model(application, samples, "reference", progress=tell)
    arrays: dict[str, np.ndarray] = {**samples.inputs}
    expected = result.outputs
    if set(expected) == set(application.outputs):   # not where samples give different shapes
        arrays |= {f"expected/{name}": value for name, value in expected.items()}
    if samples.labels is not None and "label" not in arrays:
        arrays["label"] = samples.labels
    write_arrays(path, arrays)


def encoded_sample(program: DeployedProgram, workload: Workload, samples: Samples) -> Mapping[str, bytes]:
    """Files for the C example: the first sample as int8 (C, H, W) of each input, and of what is to come out."""
    first = {name: array[:1] for name, array in samples.inputs.items()}
    _, tensors = reference.run(workload.graph, first, keep=True)
    assert tensors is not None
    inputs = {f"input_{number}.bin": np.ascontiguousarray(tensors[port.tensor][0]).tobytes()
              for number, port in enumerate(program.inputs)}
    outputs = {f"expected_{number}.bin": np.ascontiguousarray(tensors[port.tensor][0]).tobytes()
               for number, port in enumerate(program.outputs)}
    return inputs | outputs


def _readme(deployment: Deployment, hardware: Mapping[str, bytes], whole: bool) -> str:
    """``whole``: whether all of it can run on its board."""
    host = any(isinstance(segment, HostFile) for segment in deployment.segments)
    as_root = "sudo " if deployment.device.startswith("uio:") else ""
    uses = {}
    if hardware:
        uses["sudo sh hardware/load.sh"] = "loads the bitstream, once after each start of the board"
    uses |= {
        f"{as_root}python3 run.py": "the enclosed sample, whose outputs are known",
        f"{as_root}python3 run.py --input X.npz -o Y.npz": "samples of your own",
        f"{as_root}python3 -m npudriver doctor .": "a new board: registers, memory, interrupt and engines, one by one",
        f"{as_root}python3 -m npudriver serve --listen 0.0.0.0:1234 --token-file TOKEN":
            "lets `python -m gen run --target board:tcp://THIS_BOARD` use the device, with NPUDRIVER_TOKEN_FILE=TOKEN",
    }
    if PYNQ_OVERLAY in hardware:
        uses["sudo python3 run.py --device pynq:hardware/npu.bit"] = "with PYNQ, which loads the bitstream by itself"
        uses[NOTEBOOK] = "the same in Jupyter, with PYNQ"
    width = max(map(len, uses))
    lines = [
        f"{deployment.name} for {deployment.board}, by npugen.", standing(deployment.board), "",
        *(f"{command:{width}}   {what}" for command, what in uses.items()), "",
        "Needs Python 3.8 or newer and NumPy" + (", and onnxruntime for the processor's part." if host else "."),
        f"The device is {deployment.device} unless --device says otherwise (npudriver/connect.py has the forms).",
        "c/ has the C library, an example for the first program, and checks of a new board (make doctor).",
        *([] if whole else [f"For the processor's part {NO_RUNTIME_32}."]),
    ]
    return "\n".join(lines) + "\n"


def _archive(folder: Path) -> bytes:
    """A .tar.gz with the folder's name as its root; times, owners and order are fixed."""
    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
        info.mode = 0o755 if info.isdir() or info.name.endswith("run.py") else 0o644
        return info

    plain_tar = io.BytesIO()
    with tarfile.open(fileobj=plain_tar, mode="w") as archive:
        archive.add(folder, folder.name, recursive=False, filter=plain)
        for path in sorted(folder.rglob("*")):
            archive.add(path, str(Path(folder.name) / path.relative_to(folder)), recursive=False, filter=plain)
    return gzip.compress(plain_tar.getvalue(), mtime=0)
