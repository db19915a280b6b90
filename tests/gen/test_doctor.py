"""`gen doctor` finds what is missing and says how to get it."""

import importlib.metadata
import json
import subprocess

import pytest
from packaging.requirements import Requirement

from gen.cli import doctor, main
from sim.toolchain import ToolError, verilator_environment


@pytest.mark.slow
def test_this_machine_is_fit(capsys: pytest.CaptureFixture):
    status = main(["doctor", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert status == 0 and result["ok"], [check for check in result["checks"] if not check["ok"]]
    names = " ".join(check["name"] for check in result["checks"])
    for expected in ("python", "amaranth", "verilator", "yosys", "g++", "make", "perl"):
        assert expected in names


@pytest.mark.parametrize(("requirement", "ok"), [
    ("packaging>=1,<1000", True),
    ("packaging>=1000", False),
    ("no-such-distribution>=1", False),
])
@pytest.mark.parametrize("needed", [True, False])
def test_packages_against_their_bounds(requirement: str, ok: bool, needed: bool):
    check = doctor.package_check(Requirement(requirement), needed=needed)
    assert (check.ok, check.needed) == (ok, needed)
    assert check.mend == f"pip install '{requirement}'" or "," in requirement


def test_not_installed(monkeypatch: pytest.MonkeyPatch):
    def metadata(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", metadata)
    (check,) = doctor.python_checks()
    assert not check.ok and "make setup" in check.mend


@pytest.mark.parametrize("version", ["0.0.1", None])
@pytest.mark.parametrize(("name", "status"), [("pytest", 0), ("ruff", 0), ("msgspec", 1)])
def test_what_only_development_needs_does_not_decide(name: str, status: int, version: str | None,
                                                     monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Absent, or of a version out of bounds: as in the environment of a wheel, where other packages brought some."""
    known = importlib.metadata.version

    def found(wanted: str) -> str:
        if wanted != name:
            return known(wanted)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(wanted)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setattr(doctor, "tool_checks", lambda: iter(()))
    assert main(["doctor"]) == status
    out = capsys.readouterr().out
    assert (("Everything is there that the commands need" in out, "For development alone" in out)
            == ((True, True) if not status else (False, False))) and name in out
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["ok"] is (not status)


@pytest.mark.cli
def test_missing_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert [check.name for check in doctor.command_checks() if not check.ok] == ["g++", "make", "perl"]
    with pytest.raises(ToolError):
        verilator_environment()
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "g++: sudo apt-get install g++" in out and "Everything is there" not in out


def test_verilator_that_cannot_build(monkeypatch: pytest.MonkeyPatch):
    def broken(environment):
        raise subprocess.CalledProcessError(2, "verilator", output="one\n%Error: no header\nmake: *** [x] Error 1\n")

    monkeypatch.setattr(doctor, "build_tiny", broken)
    check = next(doctor.tool_checks())
    assert (check.name, check.ok, check.found) == ("verilator", False, "cannot build: %Error: no header")


def test_bounds_have_both_ends():
    for text in importlib.metadata.requires("npugen") or ():
        requirement = Requirement(text)
        assert {specifier.operator for specifier in requirement.specifier} == {">=", "<"}, text


def test_what_some_commands_need(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Such as LiteX for `soc`: named with what it is for and what brings it, not as a developer's."""
    known = importlib.metadata.version

    def found(wanted: str) -> str:
        if wanted in ("litex", "optuna", "ruff"):
            raise importlib.metadata.PackageNotFoundError(wanted)
        return known(wanted)

    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setattr(doctor, "tool_checks", lambda: iter(()))
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (soc,), (development,) = ([line for line in lines if line.startswith(f"{what}: ")]
                              for what in ("soc", "For development alone"))
    assert "pip install 'npugen[litex]' brings litex (not installed)" in soc
    assert "make setup brings ruff (not installed)" in development
    assert [line for line in lines if "optuna" in line and "npugen[explore]" in line] and "optuna" not in development
