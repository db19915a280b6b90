"""Reports that were written as JSON."""

from pathlib import Path

import msgspec

from cores.errors import NpugenError
from gen.report.document import FORMAT, Report
from npudriver.files import read_file

__all__ = ["ReportError", "read_report"]


class ReportError(NpugenError, ValueError):
    """A file that is no report."""

    code = "damaged-report"


def read_report(path: Path) -> Report:
    """One that ``gen report --json`` has printed. Raises ReportError, OSError."""
    try:
        report = msgspec.json.decode(read_file(path), type=Report)
    except (msgspec.DecodeError, ValueError) as error:
        raise ReportError(f"{path}: no report ({error}); make it with `gen report MODEL --json`") from None
    if report.format != FORMAT:
        raise ReportError(f"{path}: a report of format {report.format}, not {FORMAT}; make it again")
    return report
