"""A small repository for tests of the audit: loops of every verdict, and names and texts that mean harm."""

from __future__ import annotations

import textwrap
from pathlib import Path

HEADER = "import torch\nfrom torch.nn.utils import clip_grad_norm_\n\n\n"

WRONG = """
def train(model, loader, opt, scaler, loss_fn):
    for x, y in loader:
        opt.zero_grad()
        scaler.scale(loss_fn(model(x), y)).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
"""

RIGHT = """
def train(model, loader, use_amp, accumulate):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp, init_scale=2.0**10)
    for i, x in enumerate(loader):
        scaler.scale(model(x)).backward()
        if (i + 1) % accumulate == 0:
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), max_norm=0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
"""

UNDECIDED = """
def apply(opt, scaler):
    scaler.step(opt)
    scaler.update()
"""

POSSIBLE = """
def train(model, loader, opt, scaler, parts):
    for x in loader:
        opt.zero_grad()
        for part in parts:
            scaler.scale(model(x, part)).backward()
        scaler.step(opt)
        scaler.update()
"""

SILENCED = """
def train(model, loader, opt, scaler):
    for x in loader:
        opt.zero_grad()
        scaler.scale(model(x)).backward()
        clip_grad_norm_(model.parameters(), 1.0)  # ampclip: ignore[AMP101] known
        scaler.step(opt)
        scaler.update()
"""

MANY = """
def train(model, loader, first, second, scaler, loss_fn):
    for x in loader:
        first.zero_grad()
        second.zero_grad()
        scaler.scale(loss_fn(model(x))).backward()
        scaler.unscale_(first)
        scaler.step(first)
        scaler.update()
        scaler.step(second)
        scaler.update()
"""

HOSTILE = """
def train(model, loader, opt, scaler):
    for x in loader:
        opt.zero_grad()
        loss = model("</script><script>window.pwned = 1</script>", '<img src=x onerror="window.pwned=1">', "\u202e]]>")
        scaler.scale(loss).backward()
        clip_grad_norm_(model.parameters(), model("&lt;b&gt; ' \\" \u0007 --> <!--"))
        scaler.step(opt)
        scaler.update()
"""


def program(text: str) -> str:
    """A whole file."""
    return HEADER + textwrap.dedent(text).strip("\n") + "\n"


def repository(folder: Path) -> None:
    """Write it."""
    files = {
        "train.py": WRONG,
        "right/train.py": RIGHT,
        "engine/apply.py": UNDECIDED,
        "engine/possible.py": POSSIBLE,
        "engine/silenced.py": SILENCED,
        "many/two.py": MANY,
        "hostile/<img src=x onerror=alert(1)>.py": HOSTILE,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program(text), encoding="utf-8")
    (folder / "engine" / "broken.py").write_text("scaler.unscale_(opt\n", encoding="utf-8")
    (folder / "engine" / "latin.py").write_bytes(b"# scaler.unscale_(\xe9)\n")
