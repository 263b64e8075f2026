"""Odd input by chance: programs, real code and notebooks, mutated in their trees, tokens, lines and bytes.

Knows nothing of the linter; tests and benchmarks/fuzz.py hold it against what is drawn here.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

from programs import generate

SEED_WORDS = re.compile(r"GradScaler|unscale_|\bscaler\b|get_scale|\.backward\(")
_LONGEST = 40
"""Lines of a sample: small inputs let many be tried."""


@dataclass(frozen=True)
class Odd:
    """One input: what the file is called, what is in it, and files beside it (a configuration, a baseline)."""

    kind: str
    name: str
    data: bytes
    beside: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Pool:
    """Samples of real code: some that speak of scaling, some that do not."""

    scaling: list[str]
    other: list[str]

    def some(self, rng: Random) -> str:
        """A sample, most likely one that matters."""
        return rng.choice(self.scaling if rng.random() < 0.8 or not self.other else self.other)


def pool(folders: Iterable[Path], most: int = 4_000) -> Pool:
    """Samples from all Python files below the folders."""
    found = Pool([], [])
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if len(found.scaling) + len(found.other) >= most:
                break
            try:
                text = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if len(text) > 400_000:
                continue
            for sample in _samples(text) if SEED_WORDS.search(text) else islice(_samples(text), 1):
                (found.scaling if SEED_WORDS.search(sample) else found.other).append(sample)
    return found


def _samples(text: str) -> Iterator[str]:
    """Definitions of a file, with what is nested in them; those that speak of scaling, and the first one."""
    lines = text.split("\n")
    kept = 0
    for row, line in enumerate(lines):
        if not re.match(r"\s*(?:async\s+)?(?:def|class)\s", line):
            continue
        indent = len(line) - len(line.lstrip())
        end = row + 1
        while end < len(lines) and (
            not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent or lines[end].strip() == "):"
        ):
            end += 1
        sample = textwrap.dedent("\n".join(lines[row : min(end, row + _LONGEST)])) + "\n"
        speaks = SEED_WORDS.search(sample) is not None
        if speaks or not kept:
            kept += not speaks
            yield sample


# --- trees


def _parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


_WRAPPINGS = (
    "if {flag}:\n    pass\nelse:\n    pass", "for {name} in range({number}):\n    pass", "while {flag}:\n    pass",
    "try:\n    pass\nexcept Exception as {name}:\n    pass\nelse:\n    pass\nfinally:\n    pass",
    "with {name} as {flag}, {flag}():\n    pass", "def {name}({flag}=None, *args, **kwargs):\n    pass",
    "class {name}({flag}):\n    pass", "match {flag}:\n    case {number}:\n        pass\n    case _:\n        pass",
    "async def {name}():\n    async with {flag}:\n        pass",
    "for {name} in {flag}:\n    break\nelse:\n    pass", "while True:\n    continue",
)  # fmt: skip
_EXPRESSIONS = (
    "scaler", "optimizer", "loss", "None", "True", "0", "-1", "()", "[]", "{{}}", "...",
    "'{name}'", "b''", "1j", "1e999",
    "lambda {name}: {flag}", "[{name} for {name} in {flag} if {name}]", "{{**{name}}}", "{{{name}: {flag}}}",
    "({name} := {flag})", "{name} if {flag} else {number}", "not {flag}", "{flag} and {name} or {number}",
    "{name}[{number}:{flag}, ...]", "f'{{{name}!r:>{{{number}}}}}'", "{name}.{flag}", "{name}(*{flag}, **{flag})",
    "scaler.scale({name})", "scaler.scale({name}).backward()", "scaler.unscale_({name})", "scaler.step({name})",
    "scaler.update()", "scaler.get_scale()", "torch.cuda.amp.GradScaler(enabled={flag})", "optimizer.zero_grad()",
    "torch.nn.utils.clip_grad_norm_({name}.parameters(), {number})", "{name} % {number} == 0", "{number} < {name} <= 3",
    "getattr({name}, '{flag}', {number})", "globals()['{name}']", "exec('{name} = {flag}')", "super().{flag}()",
    "torch.optim.SGD({name}.parameters(), {number})", "{name}.grad", "{name}.grad.data.div_({flag})", "(yield {name})",
    "await {name}", "isinstance({name}, {flag})", "len({name})", "zip({name}, {flag})", "{name} is not None",
    "[opt.zero_grad() for opt in {name}]", "{name} @ {flag} ** -{number}", "{name} << {number} << {number}",
)  # fmt: skip
_NAMES = (
    "scaler", "optimizer", "loss", "model", "self", "use_amp", "i", "step", "x", "fit", "Trainer", "args", "torch",
    "self.scaler", "self.optimizer", "optimizers[0]", "accum", "batch", "scaler2", "__class__", "é",
)  # fmt: skip
_NUMBERS = ("0", "1", "2", "-1", "4", "1000000007", "2**64", "0.5", "1e308", "10**40")


def _filled(template: str, rng: Random) -> str:
    plain = [name for name in _NAMES if name.isidentifier()]
    return template.format(
        name=rng.choice(plain), flag=rng.choice(plain if rng.random() < 0.8 else _NAMES), number=rng.choice(_NUMBERS)
    )


def _expression(rng: Random, others: Sequence[ast.AST]) -> ast.expr:
    if others and rng.random() < 0.4:
        return deepcopy(rng.choice(others))  # type: ignore[return-value]
    tree = _parsed(_filled(rng.choice(_EXPRESSIONS), rng))
    statement = tree.body[0] if tree and tree.body else None
    return statement.value if isinstance(statement, ast.Expr) else ast.Name("scaler", ast.Load())


def mutate_tree(text: str, other: str, rng: Random) -> str:
    """Statements moved, doubled, dropped, wrapped and exchanged with those of another text, expressions replaced."""
    tree, foreign = _parsed(text), _parsed(other)
    if tree is None or foreign is None:
        return mutate_lines(text, rng)
    statements = [node for node in ast.walk(foreign) if isinstance(node, ast.stmt)]
    expressions = [
        node
        for node in ast.walk(foreign)
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    ]
    for _ in range(rng.randint(1, 5)):
        suites = [
            suite
            for node in ast.walk(tree)
            for name in ("body", "orelse", "finalbody")
            if isinstance(suite := getattr(node, name, None), list) and suite and isinstance(suite[0], ast.stmt)
        ]
        suite = rng.choice(suites)
        index = rng.randrange(len(suite))
        match rng.randrange(7):
            case 0 if len(suite) > 1:
                del suite[index]
            case 1:
                suite.insert(rng.randrange(len(suite) + 1), deepcopy(suite[index]))
            case 2 if statements:
                suite.insert(index, deepcopy(rng.choice(statements)))
            case 3:
                wrapping = _parsed(_filled(rng.choice(_WRAPPINGS), rng))
                if wrapping is not None and wrapping.body:
                    inside = [
                        getattr(node, name)
                        for node in ast.walk(wrapping)
                        for name in ("body", "orelse", "finalbody")
                        if isinstance(getattr(node, name, None), list)
                        and getattr(node, name)
                        and isinstance(getattr(node, name)[0], (ast.Pass, ast.Break, ast.Continue))
                    ]
                    if inside:
                        rng.choice(inside)[:] = [suite[index]]
                    suite[index] = wrapping.body[0]
            case 4:
                chosen = rng.choice(suites)
                chosen.insert(rng.randrange(len(chosen) + 1), deepcopy(suite[index]))
            case _:
                holders = [
                    (node, name, value)
                    for node in ast.walk(suite[index])
                    for name, value in ast.iter_fields(node)
                    if (
                        isinstance(value, ast.expr)
                        or (isinstance(value, list) and value and isinstance(value[0], ast.expr))
                    )
                    and name
                    not in ("target", "targets", "decorator_list", "optional_vars", "format_spec", "elts", "kwd_attrs")
                    and not isinstance(node, (ast.MatchValue, ast.MatchClass, ast.MatchMapping, ast.JoinedStr))
                ]
                if holders:
                    node, name, value = rng.choice(holders)
                    fresh = _expression(rng, expressions)
                    if isinstance(value, list):
                        value[rng.randrange(len(value))] = fresh
                    else:
                        setattr(node, name, fresh)
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return text  # a tree that is none


# --- tokens, lines, bytes


_TOKENS = (
    "(", ")", "[", "]", "{", "}", ":", ",", ".", "=", ":=", "*", "**", "@", ";", "\\\n", "\n",
    "\t", "\f", "\r", "#", "'", '"',
    '"""', "'''", "f'", "rb'", "t'", "lambda", "yield", "await", "async", "def", "class", "if", "else", "elif", "for",
    "while", "try", "except", "except*", "finally", "with", "match", "case", "type", "return",
    "del", "global", "nonlocal",
    "import", "from", "as", "is", "not", "in", "and", "or", "None", "scaler", "optimizer",
    "print x", "exec '1'", "0777",
    "`x`", "<>", "1_0", "0x", "1e", "\u2028", "\x0b", "\xa0", "\ufeff", "\u202e", "ﬁ", "𝔁", "$", "?", "!", "->", "...",
)  # fmt: skip


def mutate_tokens(text: str, other: str, rng: Random) -> str:
    """Tokens dropped, doubled, exchanged, put in."""
    pieces = re.findall(r"\w+|\s+|[^\w\s]", text) or [text]
    foreign = re.findall(r"\w+|\s+|[^\w\s]", other)
    for _ in range(rng.randint(1, 4)):
        at, to = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        match rng.randrange(5):
            case 0:
                pieces[at] = ""
            case 1:
                pieces.insert(to, pieces[at])
            case 2:
                pieces[at], pieces[to] = pieces[to], pieces[at]
            case 3:
                pieces.insert(at, rng.choice(_TOKENS))
            case _:
                pieces[at] = rng.choice(foreign) if foreign else ""
    return "".join(pieces)


def mutate_lines(text: str, rng: Random) -> str:
    """Lines dropped, doubled, exchanged, joined, indented."""
    lines = text.split("\n")
    for _ in range(rng.randint(1, 4)):
        at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                lines[at] = ""
            case 1:
                lines.insert(to, lines[at])
            case 2:
                lines[at], lines[to] = lines[to], lines[at]
            case 3:
                lines[at] = rng.choice(("    ", "\t", " ", "\f")) + lines[at]
            case 4:
                lines[at] = lines[at].removeprefix("    ")
            case _:
                lines[at] += rng.choice((" \\", ";", " #", ":", "; pass", "\r", "  # noqa: AMP101"))
    return "\n".join(lines)


def mutate_bytes(data: bytes, rng: Random) -> bytes:
    """Bytes flipped, put in, taken out; a piece repeated; the end cut off."""
    found = bytearray(data or b"\n")
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found))
        match rng.randrange(5):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
            case 2 if len(found) > 8:
                del found[at : at + rng.randint(1, 8)]
            case 3:
                found[at:at] = found[at : at + rng.randint(1, 40)] * rng.randint(1, 30)
            case _ if rng.random() < 0.2 and at:
                del found[at:]
    return bytes(found)


def spliced(first: str, second: str, rng: Random) -> str:
    """The beginning of one text and the end of another."""
    ours, theirs = first.split("\n"), second.split("\n")
    return "\n".join(ours[: rng.randrange(len(ours) + 1)] + theirs[rng.randrange(len(theirs) + 1) :])


# --- what is around the code


_ENCODINGS = (
    "utf-8",
    "utf-8-sig",
    "latin-1",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "cp1252",
    "utf-7",
    "shift_jis",
    "koi8-r",
    "cp037",
)
_DECLARED = (*_ENCODINGS, "nonsense", "rot13", "hex", "unicode_escape", "idna", "punycode", "undefined", "UTF_8", "")


def encoded(text: str, rng: Random) -> bytes:
    """The text in some encoding, whatever it declares, with some ends of lines."""
    if rng.random() < 0.6:
        text = f"# -*- coding: {rng.choice(_DECLARED)} -*-\n{text}"
    if rng.random() < 0.4:
        text = text.replace("loss", "größe", 1) + "# ünïcödé 😀\n"
    text = text.replace("\n", rng.choice(("\n", "\r\n", "\r", "\n\f", "\n\r")), rng.choice((-1, 1, 3)))
    return text.encode(rng.choice(_ENCODINGS), "replace")


_COMMENTS = (
    "# noqa: AMP101", "# noqa", "# noqa:AMP101,AMP201 E501", "# ampclip: ignore[AMP101]",
    "# ampclip: ignore[]", "# ampclip: ignore",
    "# ampclip: ignore-file[AMP101, AMP201] why", "# AMPCLIP:IGNORE[amp101]",
    "# ampclip: ignore[AMP999]", "# ampclip: off",
    "# ampclip: ignore[AMP101", "# ampclip: ignore[AMP901]",
    "# ampclip: ignore[AMP101] # noqa: AMP202 # ampclip: ignore[é]",
)  # fmt: skip


def commented(text: str, rng: Random) -> str:
    """The text with suppression comments behind some of its lines."""
    return "\n".join(f"{line}  {rng.choice(_COMMENTS)}" if rng.random() < 0.3 else line for line in text.split("\n"))


_CELL_LINES = (
    "%matplotlib inline",
    "!ls",
    "%%time",
    "%%bash",
    "x = !ls",
    "?x",
    "x??",
    "%time x = 1",
    "pip install x",
    "ls",
    "%%",
)
_ODD_JSON: tuple[object, ...] = (
    None,
    [],
    {},
    0,
    -1,
    1e308,
    "",
    "x",
    ["x", 1],
    {"a": None},
    True,
    "\ud800",
    "\0",
    [[]],
    10**30,
)


def notebook(text: str, rng: Random) -> bytes:
    """A notebook whose cells are pieces of the text, with something in its JSON that should not be there."""
    lines = text.split("\n")
    cells: list[object] = []
    while lines:
        many = rng.randint(1, 12)
        piece, lines = lines[:many], lines[many:]
        if rng.random() < 0.3:
            piece.insert(0, rng.choice(_CELL_LINES))
        source = "\n".join(piece)
        cells.append(
            {
                "cell_type": rng.choice(("code", "code", "code", "markdown", "raw")),
                "metadata": {},
                "source": source if rng.random() < 0.5 else [f"{line}\n" for line in piece],
                "outputs": [],
                "execution_count": None,
            }
        )
    whole: dict[str, object] = {
        "cells": cells,
        "metadata": {"kernelspec": {"language": "python", "name": "python3"}},
        "nbformat": rng.choice((4, 4, 4, 4, 3, 2, 1, 5, "4", None)),
        "nbformat_minor": rng.choice((5, 2, 0, None)),
    }
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        holders: list[tuple[dict[str, object], str]] = []
        pending: list[object] = [whole]
        while pending:
            item = pending.pop()
            if isinstance(item, dict):
                holders += [(item, key) for key in item]
                pending += item.values()
            elif isinstance(item, list):
                pending += item
        holder, key = rng.choice(holders)
        if rng.random() < 0.3:
            del holder[key]
        else:
            holder[key] = rng.choice(_ODD_JSON)
    data = json.dumps(whole).encode()
    return mutate_bytes(data, rng) if rng.random() < 0.2 else data


_CONFIG = """\
select = ["AMP1", "AMP2"]
extend-select = ["ALL"]
ignore = ["AMP202"]
exclude = ["*.tmp", "[!a", "**/x/**"]
fail-on = "warning"
baseline = "baseline.json"

[per-file-ignores]
"*.py" = ["AMP101"]

[models]
"acme.amp" = '''
import torch
class Scaler(torch.cuda.amp.GradScaler):
    def __call__(self, loss, optimizer):
        self.scale(loss).backward()
        self.step(optimizer)
'''
"""
_BASELINE = json.dumps(
    {"version": 1, "findings": [{"path": "odd.py", "function": "fit", "code": "AMP101", "line": "x", "count": 2}]},
    indent=1,
)


def configured(text: str, rng: Random) -> dict[str, bytes]:
    """A configuration and a baseline, each of them mutated or not."""
    config = _CONFIG
    if rng.random() < 0.5:
        config = mutate_lines(config, rng)
    elif rng.random() < 0.5:
        config = mutate_tokens(config, text, rng)
    if rng.random() < 0.4:
        config = config.replace("class Scaler", rng.choice((mutate_lines(text, rng), "class Scaler")), 1)
    data = config.encode("utf-8", "replace")
    baseline = _BASELINE.encode()
    return {
        "ampclip-lint.toml": mutate_bytes(data, rng) if rng.random() < 0.2 else data,
        "baseline.json": mutate_bytes(baseline, rng) if rng.random() < 0.5 else baseline,
    }


def _program(rng: Random) -> str:
    return generate(rng).source


def _code(pool: Pool, rng: Random) -> str:
    """Some text to mutate: real code, seldom a program drawn by chance, which takes more time to judge."""
    return pool.some(rng) if pool.scaling and rng.random() < 0.9 else _program(rng)


def _odd(
    make: Callable[[Pool, Random], str | bytes], name: str = "odd.py"
) -> Callable[[Pool, Random], tuple[str, bytes]]:
    def draw(pool: Pool, rng: Random) -> tuple[str, bytes]:
        made = make(pool, rng)
        return name, made if isinstance(made, bytes) else made.encode("utf-8", "surrogatepass")

    return draw


KINDS: dict[str, tuple[int, Callable[[Pool, Random], tuple[str, bytes]]]] = {
    "program": (1, _odd(lambda _pool, rng: _program(rng))),
    "trees": (14, _odd(lambda pool, rng: mutate_tree(_code(pool, rng), _code(pool, rng), rng))),
    "tokens": (18, _odd(lambda pool, rng: mutate_tokens(_code(pool, rng), _code(pool, rng), rng))),
    "lines": (18, _odd(lambda pool, rng: mutate_lines(_code(pool, rng), rng))),
    "bytes": (22, _odd(lambda pool, rng: mutate_bytes(_code(pool, rng).encode(), rng))),
    "splices": (6, _odd(lambda pool, rng: spliced(_code(pool, rng), _code(pool, rng), rng))),
    "notebooks": (8, _odd(lambda pool, rng: notebook(_code(pool, rng), rng), "odd.ipynb")),
    "encodings": (8, _odd(lambda pool, rng: encoded(_code(pool, rng), rng))),
    "comments": (6, _odd(lambda pool, rng: commented(_code(pool, rng), rng))),
    "configurations": (4, _odd(_code)),
}
"""What is drawn: how often, and how."""


def draw(pool: Pool, rng: Random) -> Odd:
    """One input."""
    kind = rng.choices(list(KINDS), [often for often, _ in KINDS.values()])[0]
    name, data = KINDS[kind][1](pool, rng)
    beside = configured(data.decode("utf-8", "replace"), rng) if kind == "configurations" else {}
    return Odd(kind, name, data, beside)
