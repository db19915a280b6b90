"""``gen explain``"""

import argparse
from pathlib import Path

from rich.table import Table

from gen.cli.common import add_json_option, console, print_json
from gen.cli.errors import UsageError
from gen.files.read import read_file

EXAMPLE = "example: %(prog)s dump.json --program build/digits.npu"

#: Bytes of a dump, far beyond what is written.
_MAX_DUMP = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dump", type=Path, metavar="DUMP", help="of `python3 -m npudriver dump` or `doctor --dump`")
    parser.add_argument("--program", type=Path, metavar="FILE",
                        help="the .npu file, or the folder of `deploy`, that was running, for instructions in words")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> None:
    from gen.bringup.explain import explain
    from npudriver import DeployedProgram, Deployment, PackageError
    from npudriver.dump import Dump

    try:
        dump = Dump.from_json(read_file(arguments.dump, _MAX_DUMP), str(arguments.dump))
        segments = [] if arguments.program is None else Deployment.load(arguments.program).segments
    except PackageError as error:
        raise UsageError(str(error), code=error.code) from None
    programs = [segment for segment in segments if isinstance(segment, DeployedProgram)]
    found = explain(dump, programs)
    if arguments.json:
        print_json({"state": found.state, "says": list(found.says), "shares": [vars(share) for share in found.shares],
                    "counters": dict(dump.samples[-1].counters) if dump.samples else {}})
        return
    for line in found.says:
        console.print(line, soft_wrap=True)
    if found.shares:
        table = Table("engine", "state", title="shares of all cycles", title_justify="left", box=None)
        table.add_column("cycles", justify="right")
        table.add_column("share", justify="right")
        for share in found.shares:
            if share.cycles:
                table.add_row(share.engine, share.state, f"{share.cycles:,}", f"{share.share:.1%}")
        console.print(table)
