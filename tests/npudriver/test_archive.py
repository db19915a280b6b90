"""Members of zip files are bounded before they are read."""

import io
import struct
import zipfile

import pytest

from npudriver.archive import BAD_ARCHIVE, ArchiveError, described, open_member, read_member

CONTENT = b"abcdefgh" * 1000


def archive_of(method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("x", CONTENT)
    return buffer.getvalue()


def test_whole_or_not_at_all():
    with zipfile.ZipFile(io.BytesIO(archive_of())) as archive:
        assert read_member(archive, "x", len(CONTENT)) == CONTENT
        with pytest.raises(ArchiveError, match="member x has 8,000 bytes where 7,999 are the most there can be"):
            read_member(archive, "x", len(CONTENT) - 1)
        with pytest.raises(KeyError):
            read_member(archive, "y", 1)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods(method: int):
    with zipfile.ZipFile(io.BytesIO(archive_of(method))) as archive:
        with pytest.raises(ArchiveError, match="member x is encrypted or compressed in an unknown way"):
            open_member(archive, "x")


@pytest.mark.parametrize("offset", [16, 42])
def test_offsets_that_lead_nowhere(offset: int):
    """Of the directory, and of the member in it."""
    content = bytearray(archive_of())
    at = content.index(b"PK\x05\x06") if offset == 16 else content.index(b"PK\x01\x02")
    struct.pack_into("<I", content, at + offset, 1 << 30)
    with pytest.raises(BAD_ARCHIVE) as caught:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            read_member(archive, "x", 1 << 20)
    assert "argument" not in described(caught.value)


@pytest.mark.parametrize("said", [0, 5, len(CONTENT) - 1, len(CONTENT) + 1, 1 << 31])
def test_a_directory_that_lies(said: int):
    """No more is read than the directory says, and what is not that is not taken."""
    content = bytearray(archive_of())
    struct.pack_into("<I", content, content.index(b"PK\x01\x02") + 24, said)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.getinfo("x").file_size == said
        with pytest.raises((ArchiveError, zipfile.BadZipFile)):
            read_member(archive, "x", 1 << 20)
