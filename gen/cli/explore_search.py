"""Runs a search for `gen explore`: workers, kept results, progress."""

import argparse
import ipaddress
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gen.cli.common import counter, messages
from gen.cli.errors import UsageError
from gen.cli.html import command_line, write_html
from gen.cli.plots import plot_files, write_plots
from gen.cli.run import positive
from gen.files.write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gen.explore.evaluation import Meter, Problem
    from gen.explore.methods import Method, Name
    from gen.explore.report import Found
    from gen.explore.search import Workers

__all__ = ["add_worker_options", "explore_files", "require_sensible_workers", "searched", "write_found",
           "write_page"]

#: Of the files of a search.
_NAME = "explore"

#: Options of TLS, as the fields of `gen.explore.cluster.Tls`, and what file each names.
_TLS = {"--tls-ca": "of the authority that has signed the cluster's certificates",
        "--tls-cert": "of our own certificate",
        "--tls-key": "of its key"}


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    work = parser.add_argument_group("workers")
    work.add_argument("--jobs", type=positive, metavar="N", help="processes (default: one for each processor core)")
    work.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster, in place of --jobs; with the three "
                      "files of TLS, tls://HOST:PORT")
    for option, what in _TLS.items():
        work.add_argument(option, type=Path, metavar="FILE.pem", help=what)
    work.add_argument("--no-cache", dest="cache", action="store_false",
                      help="measure anew what is known, and keep nothing")


def require_sensible_workers(arguments: argparse.Namespace) -> None:
    """Raises UsageError; says what somebody else could do."""
    if arguments.scheduler and arguments.jobs:
        raise UsageError("--jobs and --scheduler exclude each other: a cluster has the workers that it has",
                         code="option-conflict")
    given = [option for option, file in zip(_TLS, _tls_files(arguments), strict=True) if file]
    scheme, _, rest = (arguments.scheduler or "").rpartition("://")
    if given and (len(given) < len(_TLS) or scheme != "tls"):
        raise UsageError(f"{given[0]}: TLS wants --scheduler tls://HOST:PORT and all of {', '.join(_TLS)}",
                         code="option-conflict")
    if scheme in ("", "tcp") and rest and not _is_here(rest):
        messages.print(f"warning: whoever reaches {arguments.scheduler} runs code on the workers and here; use TLS or "
                       "a tunnel (docs/explore.md)", style="yellow", soft_wrap=True)


def _tls_files(arguments: argparse.Namespace) -> tuple[Path | None, Path | None, Path | None]:
    return arguments.tls_ca, arguments.tls_cert, arguments.tls_key


def _is_here(address: str) -> bool:
    """Whether a host and port are this computer's loopback; a name may be anybody's."""
    host = urlsplit(f"//{address}").hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def searched(arguments: argparse.Namespace, problem: "Problem", name: "Name", method: "Method") -> "Found":
    from gen.explore.ledger import Ledger
    from gen.explore.report import Found
    from gen.explore.search import search

    ledger = Ledger(problem.meter.identity, Ledger.default_folder() if arguments.cache else None)
    total = problem.space.size if name == "grid" else min(arguments.evaluations, problem.space.size)
    try:
        with counter(f"exploring {total:,} points", total) as progress, _workers(arguments, problem.meter) as workers:
            found = search(problem, method, workers, ledger, progress)
    except KeyboardInterrupt:
        if ledger.path is not None:
            messages.print(f"what was measured is kept in {ledger.path}; the same command goes on from there",
                           soft_wrap=True)
        raise
    return Found(problem.space, problem.objectives, found)


def _workers(arguments: argparse.Namespace, meter: "Meter") -> "AbstractContextManager[Workers]":
    from gen.explore.cluster import Tls, cluster
    from gen.explore.workers import local_workers

    if arguments.scheduler:
        authority, certificate, key = _tls_files(arguments)
        tls = Tls(authority, certificate, key) if authority and certificate and key else None
        return cluster(meter, arguments.scheduler, tls)
    return local_workers(meter, arguments.jobs or len(os.sched_getaffinity(0)))


def explore_files(arguments: argparse.Namespace) -> list[str]:
    """What ``-o`` writes."""
    return [f"{_NAME}.json", f"{_NAME}.csv", *plot_files(arguments, _NAME)]


def write_found(arguments: argparse.Namespace, found: "Found", result: dict[str, Any], figure: "Figure") -> None:
    """``result``: what ``--json`` prints. Raises OSError."""
    write_file(arguments.output / f"{_NAME}.json", json.dumps(result, indent=2) + "\n")
    write_file(arguments.output / f"{_NAME}.csv", found.csv())
    write_plots(arguments, arguments.output, _NAME, figure)
    messages.print(f"{arguments.output}: {', '.join(explore_files(arguments))}", soft_wrap=True)


def write_page(arguments: argparse.Namespace, found: "Found", facts: "Mapping[str, Any]") -> None:
    """What --html asks for, if it is there. Raises OSError."""
    if arguments.html:
        from gen.report.search import search_sheet

        name = ", ".join(path.stem for path in arguments.models)
        write_html(arguments.html, search_sheet(name, found, facts, command=command_line()))
