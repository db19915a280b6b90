"""Who may use a device over a connection: the token that a server wants, and how a client shows that it has it.

The token itself never goes over the connection: the server gives random words, and the client answers with their
HMAC-SHA-256 under the token. That keeps out who does not have it, not who reads or changes what others send: for that
there are tunnels.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Sequence

from .errors import TransportError
from .files import open_file

__all__ = ["CHALLENGE_WORDS", "TOKEN", "TOKEN_FILE", "answer", "challenge", "is_answer", "read_token"]

#: Environment variables of client and server: the token, or the file that has it.
TOKEN, TOKEN_FILE = "NPUDRIVER_TOKEN", "NPUDRIVER_TOKEN_FILE"
#: Bytes of a token at least, as whoever hears a challenge and its answer can try tokens without asking anybody.
_SHORTEST = 16
CHALLENGE_WORDS = 8


def read_token(file: Path | None = None) -> bytes | None:
    """Of the ``file``, else of the one that NPUDRIVER_TOKEN_FILE names, else NPUDRIVER_TOKEN; None where none is there.

    White space around it does not count. Raises TransportError for a file that others can read or write, and for a
    short token.
    """
    named = os.environ.get(TOKEN_FILE)
    if file is None and named:
        file = Path(named)
    if file is None:
        where, token = TOKEN, os.environ.get(TOKEN, "").encode("utf-8", "surrogateescape").strip()
        if not token:
            return None
    else:
        where = str(file)
        try:
            with open_file(file) as opened:
                mode = os.fstat(opened.fileno()).st_mode
                if mode & stat.S_IROTH:
                    raise TransportError(f"{file}: everybody here can read this token: chmod o-r {file}",
                                         code="bad-token")
                if mode & (stat.S_IWOTH | stat.S_IWGRP):
                    raise TransportError(f"{file}: others here can write this token: chmod go-w {file}",
                                         code="bad-token")
                token = opened.read(1 << 16).strip()
        except OSError as error:
            raise TransportError(f"{file}: the token cannot be read ({error.strerror})", code="bad-token") from None
    if len(token) < _SHORTEST:
        raise TransportError(f"{where}: a token has {_SHORTEST} bytes at least, such as `openssl rand -hex 16` makes",
                             code="bad-token")
    return token


def challenge() -> list[int]:
    """Words that no other connection has been given."""
    return [secrets.randbits(32) for _ in range(CHALLENGE_WORDS)]


def answer(token: bytes, words: Sequence[int]) -> list[int]:
    """What a client that has the token says to a challenge."""
    message = b"npudriver" + b"".join(word.to_bytes(4, "big") for word in words)
    digest = hmac.new(token, message, hashlib.sha256).digest()
    return [int.from_bytes(digest[at:at + 4], "big") for at in range(0, len(digest), 4)]


def is_answer(token: bytes, words: Sequence[int], given: Sequence[int]) -> bool:
    """Whether ``given`` is the answer to a challenge, found out in the same time whatever it is."""
    wanted, found = (b"".join(word.to_bytes(4, "big") for word in some) for some in (answer(token, words), given))
    return hmac.compare_digest(wanted, found)
