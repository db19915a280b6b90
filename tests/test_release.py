"""What a release checks before there is one."""

import zipfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.release import ReleaseError, check_wheel, notes_of

_ABOUT = "npugen-1.2.dist-info"
_GOOD = {"gen/x.py": "", f"{_ABOUT}/licenses/LICENSE": "", f"{_ABOUT}/licenses/NOTICE": "",
         f"{_ABOUT}/METADATA": "Name: npugen\nVersion: 1.2\n",
         f"{_ABOUT}/entry_points.txt": "[console_scripts]\nnpugen = npugen.__main__:run\n"}


def test_notes():
    changes = "# Changes\n\nWords.\n\n## 1.2\n\n* New.\n\n## 1.1\n\n* Old.\n"
    assert notes_of(changes, "1.2") == "* New.\n"
    with pytest.raises(ReleaseError, match=r"section 1\.2 first, where 1\.3 is to be released"):
        notes_of(changes, "1.3")
    with pytest.raises(ReleaseError, match="section 1.2 is empty"):
        notes_of("## 1.2\n\n## 1.1\n\n* Old.\n", "1.2")
    with pytest.raises(ReleaseError, match="no section first"):
        notes_of("", "1.2")


def test_the_changes_at_hand_are_of_the_version():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert notes_of((ROOT / "CHANGELOG.md").read_text(), project["version"])


@pytest.mark.parametrize(("change", "line"), [
    ({}, ""),
    ({"gen/x.py": None}, "lacks gen/x.py"),
    ({"gen/y.py": ""}, "has gen/y.py, which the commit has not"),
    ({f"{_ABOUT}/licenses/NOTICE": None}, "lacks NOTICE"),
    ({f"{_ABOUT}/METADATA": "Name: npugen\nVersion: 1.3\n"}, "not of version 1.2"),
    ({f"{_ABOUT}/entry_points.txt": ""}, "without the command npugen"),
])
def test_wheels(change: dict[str, str | None], line: str, tmp_path: Path):
    path = tmp_path / "npugen-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**_GOOD, **change}.items():
            if text is not None:
                archive.writestr(name, text)
    if line:
        with pytest.raises(ReleaseError, match=line):
            check_wheel(path, "1.2", {"gen/x.py"})
    else:
        check_wheel(path, "1.2", {"gen/x.py"})
