"""Tools that other programs are."""

from pathlib import Path

from sim.toolchain import child_process


def test_temporary_files_of_a_tool_are_in_its_folder(tmp_path: Path):
    """So they go with it, when the tool is ended before it removes them."""
    with child_process(["mktemp"], tmp_path) as process:
        said, _ = process.communicate()
    assert Path(said.strip()).parent == tmp_path
