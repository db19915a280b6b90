"""All kinds of heads, and the files that describe one."""

from pathlib import Path

import msgspec

from gen.detection.errors import HeadError
from gen.detection.heads.decoded import DecodedHead
from gen.detection.heads.ssd import SsdHead
from gen.detection.heads.yolo import YoloHead
from gen.files.document import DocumentError, read_document

__all__ = ["AnyHead", "read_head"]

#: What the field ``kind`` chooses from.
AnyHead = SsdHead | YoloHead | DecodedHead

#: Of a training session.
_FIELD = "head"


def read_head(path: Path) -> AnyHead:
    """From a .json, .yaml or .yml file: of a head alone, or of a training session, which may name a file of its own.

    Raises HeadError that names the file, OSError.
    """
    try:
        found = read_document(path, "a head", extra="train")
        if isinstance(found, dict) and _FIELD in found:
            found = found[_FIELD]
            if isinstance(found, str):
                path = path.parent / found
                found = read_document(path, "a head", extra="train")
        head: AnyHead = msgspec.convert(found, AnyHead)
        return head
    except (DocumentError, msgspec.MsgspecError) as error:
        raise HeadError(f"{path}: {error}") from None
