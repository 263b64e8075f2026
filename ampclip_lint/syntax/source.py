"""Reading Python source: bytes to text by PEP 263, or the reason why not. Knows nothing about syntax trees."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class SourceFile:
    """The text of one file. Lines end in ``\\n``, whatever they end in on disk; `newline` remembers that."""

    name: str
    """As shown to users: relative to the working directory where it can be, with forward slashes."""
    path: Path | None
    """None for standard input and for text that was never a file."""
    text: str
    newline: str = "\n"
    encoding: str = "utf-8"
    bom: bool = False

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their ends. Splits where Python does; `str.splitlines` would also split at form feeds."""
        return tuple(self.text.split("\n"))

    def line(self, row: int) -> str:
        """The line at `row`, which counts from 1; empty outside the text."""
        return self.lines[row - 1] if 1 <= row <= len(self.lines) else ""


@dataclass(frozen=True)
class FileProblem:
    """Why a file, or a part of the work on it, had to be left out. The run goes on."""

    filename: str
    reason: str
    internal: bool = False
    """True where the fault is ours (a crash), so that the run must not end as if it were clean."""


def read_bytes(name: str, path: Path) -> bytes | FileProblem:
    """The bytes of a file, or why they can't be had."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return FileProblem(name, "no such file (a broken link?)" if path.is_symlink() else "no such file")
    except PermissionError:
        return FileProblem(name, "permission denied")
    except IsADirectoryError:
        return FileProblem(name, "is a directory")
    except OSError as error:
        return FileProblem(name, (error.strerror or str(error) or type(error).__name__).lower())


def decode(name: str, path: Path | None, data: bytes) -> SourceFile | FileProblem:
    """The text of `data` as Python would read it: byte order mark, coding comment, else utf-8."""
    if data.startswith(_UTF16_BOMS):
        return FileProblem(name, "not valid utf-8 at byte 0 (it looks like utf-16)")
    null = data.find(b"\0")
    if null >= 0:
        return FileProblem(name, f"null byte at byte {null}: not a Python source file")
    bom = data.startswith(_UTF8_BOM)
    body = data[len(_UTF8_BOM) :] if bom else data
    declared = _declared_encoding(name, data)
    if isinstance(declared, FileProblem):
        return declared
    try:
        text = body.decode(declared)
    except UnicodeDecodeError as error:
        return FileProblem(name, f"not valid {declared} at byte {error.start + (len(data) - len(body))}")
    except (LookupError, ValueError) as error:
        return FileProblem(name, f"can't be decoded as {declared}: {error}")
    newline = "\r\n" if "\r\n" in text else "\r" if "\r" in text and "\n" not in text else "\n"
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return SourceFile(name, path, text, newline, declared, bom)


def _declared_encoding(name: str, data: bytes) -> str | FileProblem:
    end = -1
    for _ in range(2):  # PEP 263: the first two lines
        end = data.find(b"\n", end + 1)
        if end < 0:
            end = len(data)
            break
    if b"coding" not in data[:end]:
        return "utf-8"

    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        # detect_encoding also fails when the first lines are not utf-8 although they declare nothing else.
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as undecodable:
            if "invalid or missing" in str(error.msg):
                return FileProblem(name, f"not valid utf-8 at byte {undecodable.start}")
        return FileProblem(name, str(error.msg))
    return "utf-8" if encoding == "utf-8-sig" else encoding


def display_name(path: str | os.PathLike[str]) -> str:
    """A path as users see it: normalised, relative where it lies under the working directory, forward slashes."""
    text = os.path.normpath(os.fspath(path))
    if os.path.isabs(text):
        here = os.getcwd()
        try:
            if os.path.commonpath((here, text)) == here:
                text = os.path.relpath(text, here)
        except ValueError:  # another drive
            pass
    return text.replace(os.sep, "/")
