"""The page of a report: one file, which needs no network."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gen.report.document import Report
from gen.report.sheet import Sheet
from npudriver.files import read_text

__all__ = ["page_of"]

_FOLDER = Path(__file__).parent
#: In the order in which they run, as one.
_SCRIPTS = ("common", "report", "beside", "sheet", "start")


def page_of(reports: Sequence[Report | Sheet]) -> str:
    """HTML of one report or sheet, or of several beside each other."""
    # "</script" and "<!--" would end a script, or change how it is read, in names of layers too.
    data = json.dumps([asdict(report) for report in reports], allow_nan=False).replace("<", "\\u003c")
    library = _read("vendor/echarts.min.js").replace("</script", "<\\/script")
    notice = "\n".join(_read(f"vendor/{name}").strip() for name in ("NOTICE-echarts", "LICENSE-d3"))
    contents = {"style": _read("page.css"), "notice": notice, "library": library, "data": data,
                "script": "\n".join(_read(f"{name}.js") for name in _SCRIPTS)}
    # All at once: what is put in may have such marks, too.
    return re.sub(r"/\*(" + "|".join(contents) + r")\*/", lambda mark: contents[mark[1]], _read("page.html"))


def _read(name: str) -> str:
    return read_text(_FOLDER / name)
