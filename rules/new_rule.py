"""Start a rule: module, fixtures and registration. `python rules/new_rule.py AMP107 clip-before-backward`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MODULE = '''"""{code}: TODO say in one line what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ampclip_lint.amp.faults import FaultKind
from ampclip_lint.amp.ops import Clip
from ampclip_lint.diagnostics import Severity
from ampclip_lint.lint.rule import Violation, rule, violation

if TYPE_CHECKING:
    from ampclip_lint.amp.analysis import FunctionAnalysis


@rule("{code}", severity=Severity.ERROR, since="{since}")
def {function}(fn: FunctionAnalysis) -> Iterator[Violation]:
    """
    ## What it does
    Flags TODO.

    ## Why is this bad?
    TODO: the formula, and numbers for g = (3, 4), M = 1, S = 8.

    ## Example
    ```python
    scaler.scale(loss).backward()  # TODO, then on the wrong line: expect {code}
    ```

    ## Use instead
    ```python
    scaler.scale(loss).backward()
    ```

    ## When it is harmless
    TODO.

    ## References
    - TODO
    """
    for site in fn.sites(Clip):
        for fault in site.faults(FaultKind.CLIP_SCALED):
            yield violation(site, fault, f"TODO about `{{fault.subject}}` and `{{fault.scaler}}`", effect="TODO")
            break
'''

FIXTURE = '''"""Programs for {code}: TODO say in one line what is wrong."""

from torch.nn.utils import clip_grad_norm_


def ok_{function}(net, loader, opt, scaler, crit):
    for xb, yb in loader:
        opt.zero_grad()
        scaler.scale(crit(net(xb), yb)).backward()
        scaler.unscale_(opt)
        clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
'''


def scaffold(root: Path, code: str, name: str) -> list[Path]:
    """Write the files of a new rule below `root` and register it. Nothing is overwritten."""
    if not re.fullmatch(r"[A-Z]+[0-9]{3}", code):
        raise SystemExit(f"`{code}` is not a rule code, such as AMP107")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise SystemExit(f"`{name}` is not a rule name, such as clip-before-backward")
    function = name.replace("-", "_")
    package = root / "rules" / "ampclip_rules"
    module, registry = package / f"{function}.py", package / "__init__.py"
    fixture = root / "fixtures" / f"{function}.py"
    for path in (module, fixture):
        if path.exists():
            raise SystemExit(f"{path.relative_to(root).as_posix()} is there already")
    registered = _register(registry.read_text(encoding="utf-8"), code, function)

    values = {"code": code, "function": function, "since": _version(root)}
    module.write_text(MODULE.format(**values), encoding="utf-8", newline="\n")
    fixture.write_text(FIXTURE.format(**values), encoding="utf-8", newline="\n")
    registry.write_text(registered, encoding="utf-8", newline="\n")
    return [module, fixture, registry]


def _register(text: str, code: str, function: str) -> str:
    imports = re.findall(r"^from ampclip_rules\.\w+ import \w+\n", text, re.MULTILINE)
    entries = re.findall(r"^    \w+,  # ([A-Z]+[0-9]{3})\n", text, re.MULTILINE)
    if code in entries:
        raise SystemExit(f"{code} is in RULES already")
    new_import = f"from ampclip_rules.{function} import {function}\n"
    for old, new in (
        ("".join(imports), "".join(sorted([*imports, new_import]))),
        (_tuple(text), _inserted(_tuple(text), f"    {function},  # {code}\n", code)),
    ):
        text = text.replace(old, new)
    return text


def _tuple(text: str) -> str:
    found = re.search(r"^RULES = \(\n((?:    .*\n)*)\)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit("RULES in rules/ampclip_rules/__init__.py has an unknown form")
    return found[1]


def _inserted(body: str, line: str, code: str) -> str:
    lines = body.splitlines(keepends=True)
    later = (index for index, old in enumerate(lines) if old.rpartition("# ")[2].strip() > code)
    lines.insert(next(later, len(lines)), line)
    return "".join(lines)


def _version(root: Path) -> str:
    text = (root / "ampclip_lint" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "(\d+\.\d+)', text)
    return found[1] if found else "0.1"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python rules/new_rule.py CODE some-name")
    for written in scaffold(ROOT, sys.argv[1], sys.argv[2]):
        print(written.relative_to(ROOT).as_posix())
    print("now write the fixtures first, then the rule, then run `python docs/build_rules.py`")
