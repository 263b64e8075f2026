"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ampclip_lint import files
from ampclip_lint.files import write_atomic


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a.txt", b"one\r\n")
    finally:
        os.umask(mask)
    assert (tmp_path / "a.txt").read_bytes() == b"one\r\n"
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
    assert names(tmp_path) == ["a.txt"]


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    target = tmp_path / "real.sh"
    target.write_bytes(b"old")
    target.chmod(0o751)
    link = tmp_path / "link.sh"
    link.symlink_to("real.sh")
    write_atomic(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o751


@pytest.mark.parametrize("interruption", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, interruption: BaseException
) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise interruption

    monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(type(interruption)):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_a_device_is_written_to(tmp_path: Path) -> None:
    write_atomic("/dev/null", b"gone")
    assert not Path("/dev/null").is_file()
