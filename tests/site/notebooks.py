"""Notebooks of docs/notebooks as pages: their text, and code without what it prints."""

import json
from pathlib import Path

from tests import ROOT

__all__ = ["FOLDER", "notebook_page", "notebook_pages"]

FOLDER = ROOT / "docs" / "notebooks"


def notebook_page(path: Path) -> str:
    """Markdown."""
    cells = json.loads(path.read_text())["cells"]
    parts = ["".join(cell["source"]) if cell["cell_type"] == "markdown"
             else f"```python\n{''.join(cell['source'])}\n```" for cell in cells]
    heading, rest = parts[0].split("\n", 1)
    where = f"*A notebook: `jupyter lab docs/notebooks/{path.name}` runs it, with `pip install 'npugen[notebooks]'`.*"
    return "\n\n".join([heading, where, rest.strip(), *parts[1:]]) + "\n"


def notebook_pages() -> dict[str, str]:
    """Place in the site -> document of the repository."""
    return {f"notebooks/{path.stem}.md": f"docs/notebooks/{path.name}" for path in sorted(FOLDER.glob("*.ipynb"))}
