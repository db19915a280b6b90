"""A system of LiteX on a board, from its host: through litex_server, with what ``system.json`` says of it."""

import json
from pathlib import Path

from cores.errors import NpugenError
from gen.soc.host import SystemClient, windows_of
from npudriver import Backend
from npudriver.backends.remote import RemoteBackend
from npudriver.etherbone import EtherboneClient
from npudriver.files import read_file, reason

__all__ = ["SCHEME", "SystemUrlError", "open_system"]

#: Of a device's URL: ``litex:FOLDER`` or ``litex:FOLDER@HOST:PORT``.
SCHEME = "litex:"
_SERVER = "localhost:1234"
_DESCRIPTION = "system.json"
#: Bytes of one, far beyond what is written.
_MAX_DESCRIPTION = 1 << 24


class SystemUrlError(NpugenError):
    """A URL that names no system."""

    code = "system-url"


def open_system(url: str) -> Backend:
    """The system whose files are in a folder, its memory awake.

    Raises SystemUrlError, HostError when the memory does not hold what is written, TransportError.
    """
    folder, at, server = url.removeprefix(SCHEME).partition("@")
    host, _, port = (server if at else _SERVER).rpartition(":")
    if not folder or not host or not port.isdecimal():
        raise SystemUrlError(f"{url}: must be {SCHEME}FOLDER or {SCHEME}FOLDER@HOST:PORT")
    path = Path(folder) / _DESCRIPTION
    try:
        description = json.loads(read_file(path, _MAX_DESCRIPTION))
        windows = windows_of(description)
        client = SystemClient(EtherboneClient(host, int(port)), description)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise SystemUrlError(f"{path}: is not what `gen soc` writes, or damaged ({reason(error)})") from None
    try:
        client.wake_memory()
        return RemoteBackend(client, windows)
    except BaseException as error:
        client.close()
        if isinstance(error, (KeyError, TypeError)):
            raise SystemUrlError(f"{path}: damaged ({error!r})") from None
        raise
