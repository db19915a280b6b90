"""Runs the C library, or a model in C, on random data and calls (tests/fuzz/c), in whatever this machine can build.

    python -m tests.fuzz.c_library WAY COUNT SEED [TARGET]

TARGET is image (default: the library, on images), model (a model in C), states (the same, which keeps outputs), doctor
(the ladder of a new board, and dumps, of a device that does anything) or uio X

WAY is libfuzzer (clang: AddressSanitizer, UndefinedBehaviorSanitizer, cases led by coverage), sanitizers (the same two
of any compiler, cases from a generator), pages (no sanitizer: blocks end where memory does) or arm (the same on a
processor of 32 bits, by qemu). A case that fails is in the folder ``build/fuzz-c``, for libfuzzer as a file.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cores.config import NpuConfig
from gen.bringup.programs import bring_up
from gen.deploy.c_bringup import c_bringup
from gen.hw.export import driver_header
from tests.c_targets import DATA, FUNCTIONS, LIBRARY
from tests.fuzz.c_model import write_model

__all__ = ["TARGETS", "WAYS", "NotHereError", "run"]

_HERE = Path(__file__).parent / "c"
_LIBRARY = Path(__file__).parents[2] / "npudriver" / "c"
_STRICT = ["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-g", "-O1"]
_SANITIZERS = "address,undefined"
#: Longest case of libFuzzer, in bytes: as long as the generator's.
_LONGEST = 208

#: Target -> what it reaches, which it prints in the end.
TARGETS = {"image": r"(\d+) images loaded, (\d+) inputs written", "model": r"(\d+) samples begun, (\d+) ended",
           "states": r"(\d+) samples begun, (\d+) ended",
           "doctor": r"(\d+) ladders climbed, (\d+) checks failed", "uio": r"(\d+) devices opened, (\d+) refused"}
#: Target -> its sources in the library; a model brings its own.
_OWN = {"image": ("npugen.c",), "doctor": ("npugen.c", "npugen_doctor.c", "npugen_dump.c"), "uio": ("npugen_uio.c",)}
#: Way -> compilers of which the first that is here is taken, their options, and what runs the result.
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "libfuzzer": (("clang",), (f"-fsanitize=fuzzer,{_SANITIZERS}", "-fno-sanitize-recover=all"), ()),
    "sanitizers": (("gcc", "clang"), (f"-fsanitize={_SANITIZERS}", "-fno-sanitize-recover=all"), ()),
    "pages": ((os.environ.get("CC", "cc"), "gcc", "clang"), (), ()),
    "arm": (("arm-linux-gnueabihf-gcc",), ("-static",), ("qemu-arm",)),
}


class NotHereError(Exception):
    """What a way needs is not installed; the message says what."""


def _build(folder: Path, way: str, target: str) -> Path:
    """Raises NotHereError; CalledProcessError, with the compiler's messages, where the sources are at fault."""
    compilers, options, runner = WAYS[way]
    compiler = next((found for name in compilers if (found := shutil.which(name))), None)
    missing = [" or ".join(compilers)] * (compiler is None) + [name for name in runner if not shutil.which(name)]
    if compiler is None or missing:
        raise NotHereError(f"{way} needs {' and '.join(missing)}")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n" if way != "libfuzzer" else
                                    "int LLVMFuzzerTestOneInput(const char *data, unsigned long size);\n"
                                    "int LLVMFuzzerTestOneInput(const char *data, unsigned long size) "
                                    "{ return data && size > 99; }\n")
    if subprocess.run([compiler, *options, "-o", "empty", "empty.c"], cwd=folder, capture_output=True).returncode:
        raise NotHereError(f"{way}: {compiler} does not link {' '.join(options)}")
    sources = ["replay.c"] * (way != "libfuzzer")
    config = NpuConfig.preset(16)
    if target in ("model", "states"):
        write_model(folder, config, states=target == "states")
        sources, own = ["model.c", *sources], [folder / name for name in (FUNCTIONS, *LIBRARY, DATA)]
    else:
        (folder / "npugen_regs.h").write_text(driver_header(config))
        for name, content in (c_bringup(bring_up(config)) if target == "doctor" else {}).items():
            (folder / name).write_bytes(content)
        sources, own = [f"{target}.c", *sources], [_LIBRARY / name for name in _OWN[target]]
        own += [folder / "npugen_bringup_data.S"] * (target == "doctor")
    binary = folder / f"{way}-{target}"
    subprocess.run([compiler, *_STRICT, "-ffp-contract=off", *options, f"-I{folder}", f"-I{_LIBRARY}", "-o", binary,
                    *(_HERE / name for name in sources), *own, "-lm"], cwd=folder, check=True, capture_output=True,
                   text=True)
    return binary


def run(folder: Path, way: str, count: int, seed: int,
        target: str = "image") -> tuple[subprocess.CompletedProcess[str], tuple[int, int]]:
    """``count`` cases: how they ended, and how much of the two things of `TARGETS` was reached. Raises as `_build`."""
    binary = _build(folder, way, target)
    if way == "libfuzzer":
        arguments = [f"-runs={count}", f"-seed={seed % (1 << 32) or 1}", f"-max_len={_LONGEST}", "-len_control=0",
                     # What it reads as its memory is that of the process that started it, if that had more.
                     "-rss_limit_mb=0", "-malloc_limit_mb=2048", "-timeout=20", f"-artifact_prefix={folder}/"]
    else:
        arguments = [str(seed), str(count)]
    done = subprocess.run([*WAYS[way][2], binary, *arguments], cwd=folder, capture_output=True, text=True)
    found = re.findall(TARGETS[target], done.stdout)
    return done, (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)


if __name__ == "__main__":
    _way, _count, _seed, _target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (*sys.argv[4:5], "image")[0]
    _folder = Path("build") / "fuzz-c"
    _folder.mkdir(parents=True, exist_ok=True)
    try:
        _done, _reached = run(_folder.resolve(), _way, _count, _seed, _target)
    except NotHereError as error:
        sys.exit(f"c_library: {error}")
    _first, _second = re.sub(r"\(\\d\+\)", "{:,}", TARGETS[_target]).format(*_reached).split(", ", 1)
    print(_done.stderr[-3000:] if _done.returncode else f"{_count:,} cases, {_first}, {_second}")
    sys.exit(1 if _done.returncode else 0)
