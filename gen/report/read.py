"""Reports that were written as JSON."""

from pathlib import Path

import msgspec

from cores.errors import NpugenError
from gen.name import called
from gen.report.check import require_fitting
from gen.report.document import FORMAT, Report
from npudriver.files import read_file

__all__ = ["ReportError", "read_reports"]


class ReportError(NpugenError, ValueError):
    """A file that is no report."""

    code = "damaged-report"


def read_reports(path: Path) -> list[Report]:
    """What ``gen report --json`` has printed: a report, or those beside each other. Raises ReportError, OSError."""
    try:
        found = msgspec.json.decode(read_file(path), type=Report | list[Report])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReportError(f"{path}: no report ({error}); make it with `{called()} report MODEL --json`") from None
    reports = found if isinstance(found, list) else [found]
    if not reports:
        raise ReportError(f"{path}: no report in it; make it with `{called()} report MODEL --json`")
    for report in reports:
        if report.format != FORMAT:
            raise ReportError(f"{path}: a report of format {report.format}, not {FORMAT}; make it again")
        try:
            require_fitting(report)
        except ValueError as error:
            raise ReportError(f"{path}: a damaged report ({error}); make it again") from None
    return reports
