"""Runs mutated files through the commands in this process, whose memory and time are limited.

    python -m tests.fuzz.worker KIND SEED FIRST COUNT [MODEL.onnx ...]

KIND is one of KINDS. A case is its seed and its number, whatever runs beside it; its files
are kept if it fails. Prints a JSON line for each case: its number, the command, and what is wrong with it.
"""

import contextlib
import importlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What a case imports first, in sources that nobody has used yet, is no file that a command writes. Of a process of its
# own only: pytest, which imports this, keeps what it compiles.
sys.dont_write_bytecode |= __name__ == "__main__"

import numpy as np  # noqa: E402

import npudriver.__main__ as driver  # noqa: E402
from boards.registry import BOARDS  # noqa: E402
from cores.config import ConfigError, NpuConfig  # noqa: E402
from gen.cli import main  # noqa: E402
from gen.explore.ledger import Ledger  # noqa: E402
from gen.families.registry import get_family  # noqa: E402
from gen.hw.export import DESCRIPTIONS  # noqa: E402
from npudriver.bringup import BRINGUP  # noqa: E402
from sim.devices import FunctionalBackend  # noqa: E402
from tests.fuzz import documents, mutate, names, packages, places  # noqa: E402
from tests.fuzz.bases import SMALL, Bases  # noqa: E402

#: Limits of a case: seconds of this processor, as others may be at work beside it, and times as many by the clock.
SECONDS = 60
_PATIENCE = 10
BYTES = 4 << 30

#: Never what a user should see.
_NEVER_SAID = ("Traceback", "internal error", "Warning", "out of memory", "Invalid argument", "/npugen-", "[Errno")


#: Devices of which nothing is kept.
_WRITTEN_IN_VAIN = ("/dev/null", "/dev/full")


class _TooLong(BaseException):
    """Not an Exception: no command catches it."""


def _time_up(number: int, frame: FrameType | None) -> None:
    raise _TooLong


class Watch:
    """Notes what is written or removed outside ``folder``, and what is started, from Python's audit events."""

    _PATHS = {"os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1, "os.chmod": 1,
              "os.link": 2, "os.symlink": 2}
    _STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.kept = os.path.realpath(Ledger.default_folder())   # what a choice of units has measured
        self.seen: list[str] = []
        self.watching, self.programs = False, False     # programs: other programs may be started
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: tuple) -> None:
        if not self.watching:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._path(event, path)
        elif event in self._PATHS:
            for path in arguments[:self._PATHS[event]]:
                self._path(event, path)
        elif event in self._STARTS and not self.programs:
            self.seen.append(f"{event} {arguments}"[:300])

    def _path(self, event: str, path: Any) -> None:
        if isinstance(path, int):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real not in _WRITTEN_IN_VAIN and not (real + os.sep).startswith((self.folder + os.sep, self.kept + os.sep)):
            self.seen.append(f"{event} {real}")


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.stat().st_size <= BYTES and "proc" not in os.path.realpath(path).split(os.sep)}


class Fuzzer:
    """Makes and runs cases in ``folder``, which is the working directory."""

    def __init__(self, folder: Path, bases: Bases) -> None:
        self.folder, self.bases = folder, bases
        self.watch = Watch(folder)
        self.main, self.speaker = main, "gen "
        self.must_be_refused = False
        self.place = ""     # where a command may write what it likes
        self.results: Callable[[], Iterator[str]] = lambda: iter(())    # what is wrong with them where it succeeds
        self._packages: list[dict[str, bytes]] = []
        self._outputs: dict[bytes, Sequence[np.ndarray]] = {}

    # -- cases -------------------------------------------------------------------------------------------------------

    def model(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        base = self._base(rng)
        Path("m.onnx").write_bytes(mutate.mutate_model(rng, base.model))
        Path("x.npz").write_bytes(base.samples[0].content)
        machine = [[], ["--macs", "16"], ["--macs", "64", "--features", "all"]][int(rng.integers(3))]
        commands: list[tuple[list[str], set[str]]] = [
            (["compile", "m.onnx", "-o", "out.npu", *machine], {"out.npu"}),
            (["run", "m.onnx", "--input", "x.npz", "-o", "out.npz", "--json"], {"out.npz"}),
            (["run", "m.onnx", "--input", "x.npz", "--target", "functional", "--limit", "1", *machine], set()),
            (["profile", "m.onnx", "-o", "out", *machine], {"out/profile.json", "out/profile.png"}),
        ]
        return commands[int(rng.integers(4))]

    def program(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        base = self._base(rng)
        content = base.programs[int(rng.integers(len(base.programs)))]
        Path("p.npu").write_bytes(mutate.mutate_program(rng, content))
        Path("x.npz").write_bytes(base.samples[0].content)
        commands: list[tuple[list[str], set[str]]] = [
            (["run", "p.npu", "--input", "x.npz", "--limit", "1"], set()),
            (["run", "p.npu", "--input", "x.npz", "--target", "functional", "--limit", "1", "-o", "out.npz"],
             {"out.npz"}),
            (["profile", "p.npu", "-o", "out"], {"out/profile.json", "out/profile.png"}),
            (["profile", "p.npu", "--json"], set()),
            (["disasm", "p.npu"], set()),
        ]
        return commands[int(rng.integers(5))]

    def config(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        content = self.bases.configs[int(rng.integers(len(self.bases.configs)))]
        Path("c.json").write_bytes(mutate.mutate_config(rng, content))
        Path("m.onnx").write_bytes(self._base(rng).model)
        if rng.integers(20) == 0 and self._is_small(Path("c.json")):
            self.watch.programs = True      # Yosys writes the Verilog
            return ["build", "--config", "c.json", "-o", "out"], {
                f"out/{name}" for name in ("npu.v", "config.json", "register_map.md", "npugen_regs.h", BRINGUP,
                                           *DESCRIPTIONS, "manifest.json", *get_family(BOARDS["zu3eg"].family).project)}
        return ["compile", "m.onnx", "--config", "c.json", "-o", "out.npu"], {"out.npu"}

    def input(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        base = self._base(rng)
        sample = base.samples[int(rng.integers(len(base.samples)))]
        change = mutate.mutate_npz if sample.name.endswith(".npz") else mutate.mutate_bytes
        Path("m.onnx").write_bytes(base.model)
        Path(sample.name).write_bytes(change(rng, sample.content))
        return ["run", "m.onnx", "--features", "none", "--input", sample.name, "-o", "out.npz"], {"out.npz"}

    def package(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        """On the driver's own commands; the package lies outside of where they may write."""
        self.main, self.speaker = driver.main, "npudriver "
        place = self.folder.parent / "package"
        if not self._packages:
            models = [base.model for base in self.bases.bases[:3]]
            self._packages = packages.base_packages(self.folder.parent, models)
        shutil.rmtree(place, ignore_errors=True)
        chosen = self._packages[int(rng.integers(len(self._packages)))]
        self.must_be_refused = packages.damage(rng, chosen, place)
        Path("x.npz").write_bytes(chosen["sample.npz"])
        commands: list[tuple[list[str], set[str]]] = [
            (["run", "../package"], set()),
            (["run", "../package", "--json", "--slots", "1"], set()),
            (["run", "../package", "--input", "x.npz", "-o", "out.npz"], {"out.npz"}),
            (["info", "../package"], set()),
        ]
        return commands[int(rng.choice([0, 1, 2, 2, 3]))]

    def archive(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        """The driver's commands on a ``.npu`` file."""
        self.main, self.speaker = driver.main, "npudriver "
        base = self._base(rng)
        content = base.programs[int(rng.integers(len(base.programs)))]
        Path("p.npu").write_bytes(mutate.mutate_program(rng, content))
        Path("x.npz").write_bytes(base.samples[0].content)
        commands: list[tuple[list[str], set[str]]] = [
            (["info", "p.npu"], set()),
            (["run", "p.npu", "--input", "x.npz"], set()),
            (["run", "p.npu", "--input", "x.npz", "-o", "out.npz"], {"out.npz"}),
        ]
        return commands[int(rng.integers(3))]

    def document(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        chosen = documents.DOCUMENTS[int(rng.integers(len(documents.DOCUMENTS)))]
        ending, content = documents.mutate_document(rng, chosen.value)
        Path(f"s.{ending}").write_bytes(content)
        base = self.bases.bases[2]
        Path("m.onnx").write_bytes(base.model)
        Path("x.npz").write_bytes(base.samples[0].content)
        return [word.replace("FILE", f"s.{ending}") for word in chosen.argv], set(chosen.outputs)

    def special(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        base = self.bases.bases[3]
        right = {".onnx": base.model, ".npz": base.samples[0].content, ".npu": base.programs[0], "": base.programs[0],
                 ".png": next(sample.content for sample in base.samples if sample.name == "gray.png")}
        argv, self.place = places.place(rng, right)
        return argv, set()

    def name(self, rng: np.random.Generator) -> tuple[list[str], set[str]]:
        """Of inputs, outputs, values and nodes; what a run writes is what it was with the old ones."""
        base = self.bases.bases[int(rng.integers(3))]
        model, inputs = names.renamed(rng, base.model)
        ending, sample = names.sample_of(rng, base.samples[0].content, inputs or {"x": "x"})
        Path("m.onnx").write_bytes(model)
        Path(f"x.{ending}").write_bytes(sample)
        machine, given = ["--macs", "16"], ["--input", f"x.{ending}"]
        commands: list[tuple[list[str], set[str]]] = [
            (["run", "m.onnx", *given, "-o", "out.npz", *machine], {"out.npz"}),
            (["run", "p.npu", *given, "--target", "functional", "-o", "out.npz"], {"out.npz"}),
            (["run", "package", *given, "-o", "out.npz"], {"out.npz"}),
            (["compare", "m.onnx", *given], set()),
            (["profile", "m.onnx", "-o", "out", *machine], {"out/profile.json", "out/profile.png"}),
            (["disasm", "p.npu"], set()),
        ]
        argv, outputs = commands[int(rng.choice([0, 0, 1, 1, 2, 2, 3, 4, 5]))]
        if inputs is not None and "out.npz" in outputs:
            self.results = lambda: self._differs(base)
        if "p.npu" in argv:
            return self._after(["compile", "m.onnx", "-o", "p.npu", *machine], argv, outputs)
        if "package" in argv:
            made = self._after(["deploy", "m.onnx", "-o", "package", "--limit", "1", *given, *machine], argv, outputs)
            if made[0] is argv:
                self.main, self.speaker = driver.main, "npudriver "
            return made
        return argv, outputs

    def _after(self, first: list[str], argv: list[str], outputs: set[str]) -> tuple[list[str], set[str]]:
        """The command ``argv`` after the ``first`` one, which is what is judged where it fails."""
        with _streams(io.StringIO(), io.StringIO()):
            return (first, set()) if self.main(first) else (argv, outputs)

    def _differs(self, base: Any) -> Iterator[str]:
        """What the results in out.npz are not as those of the model with its own names."""
        if base.model not in self._outputs:
            with tempfile.TemporaryDirectory(dir=self.folder.parent) as place:
                model, sample, out = (Path(place) / name for name in ("m.onnx", "x.npz", "out.npz"))
                model.write_bytes(base.model)
                sample.write_bytes(base.samples[0].content)
                with _streams(io.StringIO(), io.StringIO()):
                    assert main(["run", str(model), "--features", "none", "--input", str(sample), "-o", str(out)]) == 0
                self._outputs[base.model] = names.arrays_of(out.read_bytes())
        found = names.arrays_of(Path("out.npz").read_bytes())
        if len(found) != len(self._outputs[base.model]) or not all(
                map(np.array_equal, found, self._outputs[base.model])):
            yield "the results are not those of the model with its own names"

    @staticmethod
    def _is_small(path: Path) -> bool:
        """Whether a configuration is refused, or Yosys writes its Verilog in seconds."""
        try:
            return NpuConfig.load(path).macs <= 64
        except ConfigError:
            return True

    def _base(self, rng: np.random.Generator) -> Any:
        return self.bases.bases[int(rng.integers(len(self.bases.bases)))]

    # -- running -----------------------------------------------------------------------------------------------------

    def case(self, kind: str, seed: int, number: int) -> dict[str, Any]:
        """Run a case; returns its ``command``, exit ``status``, what it ``said`` and what is ``wrong``."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.watch.programs = self.must_be_refused = False
        self.main, self.speaker = main, "gen "
        self.place, self.results = "", lambda: iter(())
        argv, outputs = getattr(self, kind)(np.random.default_rng([seed, KINDS.index(kind), number]))
        (self.folder / "victim").write_text("mine")
        before = _content(self.folder)
        out, err = io.StringIO(), io.StringIO()
        self.watch.seen.clear()
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.alarm(_PATIENCE * SECONDS)
            # Yosys, in WebAssembly, reserves addresses that it does not use.
            limit = resource.RLIM_INFINITY if self.watch.programs else BYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            with _streams(out, err), _watched(self.watch):
                status = self.main(argv)
            wrong = list(self._wrong(status, out.getvalue(), err.getvalue(), before, outputs))
            wrong += [] if status else self.results()
        except _TooLong:
            status, wrong = None, [f"takes more than {SECONDS} s"]
        except BaseException as error:      # whatever a command lets through
            status, wrong = None, [f"raises {type(error).__name__}: {str(error)[:200]}"]
        finally:
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
        return {"command": argv, "status": status, "said": err.getvalue()[-300:], "wrong": wrong}

    def _wrong(self, status: int, out: str, err: str, before: dict[str, bytes], outputs: set[str]) -> Iterator[str]:
        said = err.splitlines()
        if status not in (0, 1, 2):
            yield f"exit status {status}"
        differs = "differing " in out or '"differing"' in out     # which the driver prints as a result
        if self.must_be_refused and status == 0:
            yield "a damaged file is taken"
        if status and not differs and not (said and said[-1].startswith(self.speaker) and sum(
                line.startswith(self.speaker) for line in said) == 1):
            yield f"exit status {status} and not one line: {err[:500]!r}"
        if status == 0 and any(line.startswith(self.speaker) for line in said):
            yield f"exit status 0 and an error: {err[:500]!r}"
        if any(not character.isprintable() for character in (out + err).replace("\n", "")):
            yield "control characters are printed"
        yield from (f"{word} in what is printed: {err[-700:]!r}" for word in _NEVER_SAID if word in out + err)
        yield from self.watch.seen
        after = _content(self.folder)
        new = {name for name, content in after.items() if before.get(name) != content and not self._is_placed(name)}
        differ = "gen run: error: " in err and "differ from the reference" in err
        if new != (outputs if status == 0 or differ else set()) or before.keys() - after.keys():
            gone = sorted(before.keys() - after.keys())
            yield f"exit status {status}, but files changed: {sorted(new)}, gone: {gone}"

    def _is_placed(self, name: str) -> bool:
        """Whether a file is what the command was told to write, at the end of a link perhaps."""
        if not self.place:
            return False
        ends = (os.path.normpath(self.place), os.path.relpath(os.path.realpath(self.place), self.folder))
        return any((name + os.sep).startswith(end + os.sep) for end in ends)


KINDS = ("model", "program", "config", "input", "package", "document", "special", "name", "archive")


@contextlib.contextmanager
def _streams(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    """Commands print here; rich asks for the present streams whenever it prints."""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        # What warns may be wrong without a word where warnings are off, as they are for users.
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        # Hardware that a refused build has left behind; a later case may be what lets go of it.
        warnings.filterwarnings("ignore", message=".*created but never used")
        yield


@contextlib.contextmanager
def _watched(watch: Watch) -> Iterator[None]:
    watch.watching = True
    try:
        yield
    finally:
        watch.watching = False


def run(kind: str, seed: int, first: int, count: int, models: list[Path],
        report: Callable[[dict[str, Any]], None]) -> None:
    """Cases ``first``... in a folder of their own; those that fail leave their files beside it."""
    with tempfile.TemporaryDirectory(prefix="npugen-fuzz-") as name:
        root = Path(name)
        bases = Bases.make(root, models)
        os.environ["MPLCONFIGDIR"] = name
        importlib.import_module("matplotlib.font_manager")      # looks for fonts, once
        folder = root / "case"
        folder.mkdir()
        os.chdir(folder)
        tempfile.tempdir = str(folder)
        for limit in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(limit, _time_up)
        driver.open_backend = lambda *given, **options: FunctionalBackend(SMALL)    # wherever a package says
        documents.replace_slow_parts()
        fuzzer = Fuzzer(folder, bases)
        for number in range(first, first + count):
            report({"begins": number})
            result = fuzzer.case(kind, seed, number)
            report({"number": number, **result})
            if result["wrong"] and (kept := os.environ.get("NPUGEN_FUZZ_KEEP")):
                shutil.copytree(folder, Path(kept) / f"{kind}-{seed}-{number}", dirs_exist_ok=True)
        os.chdir("/")


if __name__ == "__main__":
    _kind, _seed, _first, _count, *_models = sys.argv[1:]
    _results = os.fdopen(os.dup(1), "w")    # commands have the other
    run(_kind, int(_seed), int(_first), int(_count), [Path(model).resolve() for model in _models],
        lambda result: print(json.dumps(result), file=_results, flush=True))
