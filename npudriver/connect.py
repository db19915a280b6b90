"""Devices by URL.

    uio:[NAME][?buffer=udmabuf0]                        this board: a UIO device by name (npu) or path, a u-dma-buf
    pynq:FILE.bit[?ip=npu]                              this board, by PYNQ
    tcp://HOST[:1234][?token-file=FILE]                 a board that runs `python3 -m npudriver serve`
    tcp://HOST[:1234]?registers=A&memory=B&size=C       LiteX's server; bus=D where the device sees its memory at D
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Callable, Mapping
from urllib.parse import SplitResult, parse_qsl, urlsplit

from .access import read_token
from .backend import Backend
from .errors import TransportError
from .etherbone import EtherboneClient
from .windows import Windows

__all__ = ["SCHEMES", "device_of_file", "open_backend"]

_TOKEN_FILE = "token-file"


def _uio(url: SplitResult, options: dict[str, str]) -> Backend:
    from .backends.uio import UioBackend

    return UioBackend(url.path or "npu", **options)


def _pynq(url: SplitResult, options: dict[str, str]) -> Backend:
    from .backends.pynq import PynqBackend

    if not url.path:
        raise TransportError("pynq: must be followed by the file of the bitstream", code="bad-url")
    return PynqBackend(url.path, **options)


def _tcp(url: SplitResult, options: dict[str, str]) -> Backend:
    from .backends.remote import RemoteBackend

    if url.hostname is None:
        raise TransportError("tcp:// must be followed by a host", code="bad-url")
    if url.username is not None:
        raise TransportError("tcp: a URL is seen by others, so that no token goes into it: ?token-file=FILE, or the "
                             "environment", code="bad-url")
    windows = None
    file = options.pop(_TOKEN_FILE, None)
    if file is not None and options:
        raise TransportError(f"tcp: {_TOKEN_FILE} is of our own server, which is asked where things are",
                             code="bad-url")
    if options:
        values = {name: _number(name, value) for name, value in options.items()}
        missing = [name for name in ("registers", "memory", "size") if name not in values]
        if missing:
            raise TransportError(f"tcp: {missing[0]} is missing; either none of registers, memory and size, or all",
                                 code="bad-url")
        windows = Windows(**{"bus": values["memory"], **values})
    token = read_token(Path(file) if file else None) if windows is None else None
    return RemoteBackend(EtherboneClient(url.hostname, url.port or 1234), windows, token=token)


def _number(name: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise TransportError(f"{name} must be a number, not {value}", code="bad-url") from None


#: Scheme -> what opens it, and the options it takes.
SCHEMES: Mapping[str, tuple[Callable[[SplitResult, dict[str, str]], Backend], tuple[str, ...]]] = {
    "uio": (_uio, ("buffer", "interrupt", "sysfs", "dev")),
    "pynq": (_pynq, ("ip", "interrupt")),
    "tcp": (_tcp, ("registers", "memory", "size", "bus", _TOKEN_FILE)),
}


#: What a file may choose: a device of this computer, by name, or the server of a bridge on it.
_OF_FILES = re.compile(r"uio:[\w.-]*|tcp://localhost(:\d{1,5})?", re.ASCII)


def device_of_file(url: str) -> str:
    """The ``url`` that a model's file gives as its device, "" for none.

    Raises TransportError for one that leads elsewhere: whoever runs a file does not choose to send its inputs there.
    """
    if url and not _OF_FILES.fullmatch(url):
        raise TransportError(f"the model's file asks for the device {url!r}; if you want that, give it as --device",
                             code="bad-url")
    return url


def open_backend(url: str) -> Backend:
    """Raises TransportError for a device that is not there, or a URL that makes no sense."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise TransportError(f"{url}: {error}", code="bad-url") from None
    if parts.scheme not in SCHEMES:
        raise TransportError(f"{url}: a device is given as {', '.join(f'{name}:...' for name in SCHEMES)}",
                             code="bad-url")
    opener, known = SCHEMES[parts.scheme]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = [name for name in options if name not in known]
    if unknown:
        raise TransportError(f"{url}: there is no option {unknown[0]}; there are {', '.join(known)}", code="bad-url")
    return opener(parts, options)
