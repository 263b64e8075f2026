"""Which files a run reads, and how bytes become text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ampclip_lint.syntax.discover import DEFAULT_EXCLUDES, Discovery, Excludes, discover
from ampclip_lint.syntax.source import FileProblem, SourceFile, decode, display_name, read_bytes


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str = "") -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(name: str, target: str) -> None:
    try:
        os.symlink(target, name)
    except (OSError, NotImplementedError):
        pytest.skip("no symbolic links here")


def names(*paths: str, respect_gitignore: bool = True) -> list[str]:
    return [found.name for found in found_in(*paths, respect_gitignore=respect_gitignore).files]


def found_in(*paths: str, respect_gitignore: bool = True, stdin_filename: str | None = None) -> Discovery:
    return discover(paths or (".",), respect_gitignore=respect_gitignore, stdin_filename=stdin_filename)


def test_python_files_only_in_a_stable_order() -> None:
    for name in ("b.py", "a.py", "c.pyi", "d.txt", "e.pyc", "sub/z.py", "sub/deep/y.py", "another/x.py"):
        write(name)
    assert names() == ["a.py", "b.py", "another/x.py", "sub/z.py", "sub/deep/y.py"]


def test_names_are_relative_and_clean_and_each_file_comes_once() -> None:
    write("pkg/a.py")
    assert names("./pkg/../pkg/a.py", "pkg", str(Path("pkg/a.py").resolve())) == ["pkg/a.py"]
    assert display_name("./x//y.py") == "x/y.py"


def test_a_named_file_is_taken_whatever_it_is() -> None:
    write("build/gen.py")
    write("script")
    write("ignored.py")
    write(".gitignore", "ignored.py\n")
    assert names("build/gen.py", "script", "ignored.py") == ["build/gen.py", "script", "ignored.py"]


def test_default_excludes_hold_below_a_folder_and_not_for_the_folder_named() -> None:
    for name in DEFAULT_EXCLUDES:
        write(f"{name}/x.py")
    write("src/build/y.py")
    write("builder.py")
    assert names() == ["builder.py"]
    assert names("build", "src/build") == ["build/x.py", "src/build/y.py"]


def test_excludes_are_gitignore_patterns() -> None:
    for name in ("a_test.py", "src/a_test.py", "vendor/x.py", "src/vendor/y.py", "src/keep.py"):
        write(name)
    excludes = Excludes(Path.cwd(), ("*_test.py", "/vendor/"))
    found = discover(["."], excludes=lambda _folder: excludes)
    assert [file.name for file in found.files] == ["src/keep.py", "src/vendor/y.py"]


def test_gitignore_files_nest_and_the_deepest_word_counts() -> None:
    write(".gitignore", "*.py\n!keep.py\n/out/\n# comment\n")
    write("a.py")
    write("keep.py")
    write("out/keep.py")
    write("sub/.gitignore", "!a.py\nkeep.py\n")
    write("sub/a.py")
    write("sub/keep.py")
    write("sub/out/keep.py")
    assert names() == ["keep.py", "sub/a.py"]
    assert len(names(respect_gitignore=False)) == 6


def test_gitignore_of_the_repository_above_holds() -> None:
    write(".git/info/exclude", "secret.py\n")
    write(".gitignore", "generated.py\n")
    write("pkg/generated.py")
    write("pkg/secret.py")
    write("pkg/a.py")
    assert names("pkg") == ["pkg/a.py"]


def test_gitignore_above_is_not_read_outside_a_repository() -> None:
    write(".gitignore", "a.py\n")
    write("pkg/a.py")
    assert names("pkg") == ["pkg/a.py"]


def test_an_ignored_folder_that_is_named_is_read() -> None:
    (Path(".git")).mkdir()
    write(".gitignore", "scratch/\n")
    write("scratch/a.py")
    write("scratch/sub/b.py")
    assert names() == []
    assert names("scratch") == ["scratch/a.py", "scratch/sub/b.py"]
    assert names("scratch/sub") == ["scratch/sub/b.py"]


def test_a_line_that_is_no_pattern_is_passed_over() -> None:
    write(".gitignore", "!\nignored.py\n///\n")
    write("ignored.py")
    write("a.py")
    assert names() == ["a.py"]


def test_links_to_folders_are_not_followed_so_loops_end() -> None:
    write("pkg/a.py")
    link("pkg/loop", "..")
    link("pkg/self.py", ".")
    assert names() == ["pkg/a.py"]
    link("alias", "pkg")
    assert names("alias") == ["alias/a.py"]


def test_two_links_to_one_file_are_one_file() -> None:
    write("a.py")
    link("b.py", "a.py")
    assert names() == ["a.py"]


def test_missing_arguments_are_told_apart_from_broken_links() -> None:
    link("dangling.py", "nowhere.py")
    found = found_in("nowhere.py", "dangling.py")
    assert found.missing == ("nowhere.py",)
    (file,) = found.files
    assert file.path is not None
    assert read_bytes(file.name, file.path) == FileProblem("dangling.py", "no such file (a broken link?)")


def test_a_link_to_itself_is_a_problem_and_not_a_crash() -> None:
    link("loop.py", "loop.py")
    (file,) = found_in().files
    assert file.path is not None
    assert isinstance(read_bytes(file.name, file.path), FileProblem)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_cannot_be_read_is_a_problem() -> None:
    write("closed/a.py")
    os.chmod("closed", 0)
    try:
        (problem,) = found_in().problems
    finally:
        os.chmod("closed", 0o755)
    assert (problem.filename, problem.reason) == ("closed", "folder can't be read: permission denied")


def test_standard_input_has_the_name_it_is_given_and_stands_for_that_file() -> None:
    write("pkg/a.py")
    found = found_in("-", "pkg", stdin_filename="./pkg/a.py")
    assert [(file.name, file.path) for file in found.files] == [("pkg/a.py", None)]
    assert [file.name for file in found_in("-", "-").files] == ["<stdin>"]


# --- text


def text_of(data: bytes) -> SourceFile:
    found = decode("a.py", None, data)
    assert isinstance(found, SourceFile)
    return found


def problem_of(data: bytes) -> str:
    found = decode("a.py", None, data)
    assert isinstance(found, FileProblem)
    return found.reason


@pytest.mark.parametrize(
    ("data", "text", "newline"),
    [
        (b"a\nb\n", "a\nb\n", "\n"),
        (b"a\r\nb\r\n", "a\nb\n", "\r\n"),
        (b"a\rb\r", "a\nb\n", "\r"),
        (b"a\r\nb\nc\r", "a\nb\nc\n", "\r\n"),
        (b"", "", "\n"),
    ],
)
def test_lines_end_in_one_way(data: bytes, text: str, newline: str) -> None:
    found = text_of(data)
    assert (found.text, found.newline) == (text, newline)


def test_form_feeds_and_odd_separators_end_no_line() -> None:
    found = text_of("a\x0cb\u2028c\x1cd\ne".encode())
    assert found.lines == ("a\x0cb\u2028c\x1cd", "e")
    assert (found.line(2), found.line(0), found.line(9)) == ("e", "", "")


def test_encodings() -> None:
    assert text_of("é".encode()).encoding == "utf-8"
    bom = text_of(b"\xef\xbb\xbfx = 1\n")
    assert (bom.text, bom.bom) == ("x = 1\n", True)
    latin = text_of(b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    assert (latin.text[-3], latin.encoding) == ("é", "iso-8859-1")
    assert text_of(b"\xef\xbb\xbf# coding: utf-8\n\xc3\xa9").text == "# coding: utf-8\né"
    # A coding comment counts in the first two lines only.
    assert problem_of(b"\n\n# coding: latin-1\n\xe9") == "not valid utf-8 at byte 20"


def test_what_is_not_text_says_where() -> None:
    assert problem_of(b"ok\n\xff") == "not valid utf-8 at byte 3"
    assert problem_of(b"\xef\xbb\xbfok\xff") == "not valid utf-8 at byte 5"
    assert problem_of(b"# coding: utf-8\n\xff") == "not valid utf-8 at byte 16"
    assert problem_of(b"# coding: ascii\n\n\xff") == "not valid ascii at byte 17"
    assert problem_of(b"# coding: rot13\n\xff").startswith("can't be decoded as rot13")
    assert problem_of(b"# coding: no-such\n") == "unknown encoding: no-such"
    assert problem_of(b"\xef\xbb\xbf# coding: latin-1\n").startswith("encoding problem")
    assert problem_of(b"a\0b") == "null byte at byte 1: not a Python source file"
    assert "utf-16" in problem_of("x = 1".encode("utf-16"))
