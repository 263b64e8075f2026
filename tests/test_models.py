"""Wrappers whose source is not part of the program: the models that come with the linter, and those of users."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ampclip_lint.amp.models import MODELS, names_of
from console import found, run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judged(text: str) -> list[tuple[int, str]]:
    """What is reported of one file, after a check that this is what its `# expect:` comments say."""
    Path("train.py").write_text(text)
    expected = [
        (row, code)
        for row, line in enumerate(text.splitlines(), 1)
        for code in re.findall(r"AMP\d+", line.partition("# expect:")[2])
    ]
    reported = [(row, code) for _, row, code in found("train.py")]
    assert reported == expected
    return reported


TIMM = """\
from timm.utils import {name}
from torch.nn.utils import clip_grad_norm_


def fit(net, loader, opt, crit):
    loss_scaler = {name}()
    for xb, yb in loader:
        opt.zero_grad()
        {body}
"""


def timm(*body: str, name: str = "NativeScaler") -> list[tuple[int, str]]:
    return judged(TIMM.format(name=name, body="\n        ".join(body)))


def test_timm_clips_for_itself() -> None:
    assert not timm("loss_scaler(crit(net(xb), yb), opt, clip_grad=1.0, parameters=net.parameters())")


def test_timm_and_a_clip_behind_the_step() -> None:
    assert timm(
        "loss_scaler(crit(net(xb), yb), opt)",
        "clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP103",
    )


def test_timm_and_another_step() -> None:
    assert timm("loss_scaler(crit(net(xb), yb), opt)", "opt.step()  # expect: AMP305")


def test_timm_by_its_own_module_and_by_attribute() -> None:
    text = TIMM.format(
        name="NativeScaler",
        body="loss_scaler(crit(net(xb), yb), opt)\n        clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP103",
    )
    assert judged(text.replace("from timm.utils import", "from timm.utils.cuda import"))
    assert judged(
        text.replace("from timm.utils import NativeScaler", "import timm.utils").replace(
            "= NativeScaler()", "= timm.utils.NativeScaler()"
        )
    )


def test_a_finding_stands_at_the_call_and_says_what_the_wrapper_does() -> None:
    timm("loss_scaler(crit(net(xb), yb), opt)", "opt.step()  # expect: AMP305")
    report = run("check", "train.py").stdout
    assert "loss_scaler(crit(net(xb), yb), opt)" in report
    assert "timm/" not in report


METER = """\
import torch
from timm.utils import AverageMeter


def measured(parameters, norm_type=2):
    total = 0
    for p in parameters:
        total += p.grad.data.norm(norm_type).item() ** norm_type
    return total ** (1.0 / norm_type)


def fit(net, loader, opt, scaler, crit, clip):
    meter = AverageMeter()
    for xb, yb in loader:
        opt.zero_grad()
        scaler.scale(crit(net(xb), yb)).backward()
        {unscale}
        norm = measured(net.parameters())
        scaler.step(opt)
        scaler.update()
        meter.update(norm)
"""


def test_a_meter_from_elsewhere_keeps_what_it_is_given() -> None:
    assert judged(METER.format(unscale="pass").replace("update(norm)", "update(norm)  # expect: AMP501"))
    assert not judged(METER.format(unscale="scaler.unscale_(opt)"))


ACCELERATE = """\
import torch
from accelerate import Accelerator


def fit(net, loader, crit, args):
    accelerator = Accelerator(mixed_precision={precision}, gradient_accumulation_steps=4)
    opt = torch.optim.AdamW(net.parameters(), 0.1)
    net, opt, loader = accelerator.prepare(net, opt, loader)
    for xb, yb in loader:
        with accelerator.accumulate(net):
            loss = crit(net(xb), yb)
            accelerator.backward(loss)
            {body}
            opt.step()
            opt.zero_grad()
"""


def accelerate(*body: str, precision: str = '"fp16"') -> list[tuple[int, str]]:
    return judged(ACCELERATE.format(precision=precision, body="\n            ".join(body)))


def test_accelerate_s_own_clip() -> None:
    assert not accelerate(
        "if accelerator.sync_gradients:",
        "    accelerator.clip_grad_norm_(net.parameters(), 1.0)",
    )


def test_accelerate_and_the_clip_of_torch() -> None:
    body = ("if accelerator.sync_gradients:", "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)")
    flagged = (body[0], f"{body[1]}  # expect: AMP101")
    assert accelerate(*flagged)
    # One of the choices of the flag is fp16: `--mixed_precision fp16` trains wrongly.
    assert accelerate(*flagged, precision="args.mixed_precision if args.amp else 'fp16'")
    assert not accelerate(*body, precision='"bf16"')
    assert not accelerate(*body, precision="None")


def test_accelerate_s_own_clip_in_every_micro_batch() -> None:
    assert accelerate("accelerator.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP201")


def test_accelerate_with_optimizers_that_come_as_arguments() -> None:
    text = ACCELERATE.format(precision='"fp16"', body="{body}").replace(
        "    opt = torch.optim.AdamW(net.parameters(), 0.1)\n", ""
    )
    text = text.replace("crit, args)", "crit, opt)")
    own = "if accelerator.sync_gradients:\n                accelerator.clip_grad_norm_(net.parameters(), 1.0)"
    assert not judged(text.replace("{body}", own))
    of_torch = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)"
    assert judged(
        text.replace("{body}", f"if accelerator.sync_gradients:\n                {of_torch}  # expect: AMP101")
    )


SCHEDULES = {
    "a function": (
        "from transformers import get_linear_schedule_with_warmup",
        "get_linear_schedule_with_warmup(opt, 9)",
    ),
    "a class": ("from accelerate.utils import DummyScheduler", "DummyScheduler(opt, total_num_steps=9)"),
    "torch's": ("", "torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1.0)"),
    "a class here": ("class Sched:\n    def __init__(self, opt):\n        self.opt = opt", "Sched(opt)"),
    "a class with a step": (
        "class Sched:\n    def __init__(self, opt):\n        self.opt = opt\n    def step(self):\n"
        "        for group in self.opt.param_groups:\n            group['lr'] *= 0.9",
        "Sched(opt)",
    ),
    "an argument": ("", "args"),
}


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("opt", ["an optimizer of torch", "an argument", "a stand-in of DeepSpeed"])
def test_accelerate_and_a_schedule(kind: str, opt: str) -> None:
    """`prepare` wraps it like everything else, but its step touches neither scaler nor gradients."""
    head, made = SCHEDULES[kind]
    text = ACCELERATE.format(precision='"fp16"', body="{body}").replace("crit, args", "crit, args, opt, dummy")
    text = text.replace("import torch\n", f"import torch\n{head}\n\n", 1)
    make = "    opt = torch.optim.AdamW(net.parameters(), 0.1)\n"
    if opt == "an argument":
        text = text.replace(make, "")
    elif opt == "a stand-in of DeepSpeed":
        text = text.replace("def fit", "class Dummy:\n    def __init__(self, params, lr):\n        pass\n\n\ndef fit")
        text = text.replace(make, make.replace("torch.optim.AdamW", "(Dummy if dummy else torch.optim.AdamW)"))
    text = text.replace("    net, opt, loader = accelerator.prepare(net, opt, loader)", f"    sched = {made}\n\n")
    text = text.replace(
        "\n\n\n    for", "\n    net, opt, loader, sched = accelerator.prepare(net, opt, loader, sched)\n    for"
    )
    text = text.replace("opt.step()", "opt.step()\n            sched.step()")
    own = "if accelerator.sync_gradients:\n                accelerator.clip_grad_norm_(net.parameters(), 1.0)"
    assert not judged(text.replace("{body}", own))
    assert (
        judged(text.replace("{body}", "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP101"))
        or opt == "a stand-in of DeepSpeed"
    )


@pytest.mark.parametrize("clear", ["opt.zero_grad()", "net.zero_grad()"])
def test_accelerate_and_an_optimizer_that_is_only_stepped(clear: str) -> None:
    text = ACCELERATE.format(
        precision='"fp16"', body="torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP101"
    )
    text = text.replace("    opt = torch.optim.AdamW(net.parameters(), 0.1)\n", "").replace("args)", "opt)")
    assert judged(text.replace("opt.zero_grad()", clear))


FABRIC = """\
import torch
from {module} import Fabric


def fit(net, loader, crit):
    fabric = Fabric(accelerator="cuda", precision="{precision}")
    opt = torch.optim.AdamW(net.parameters(), 0.1)
    net, opt = fabric.setup(net, opt)
    for xb, yb in loader:
        opt.zero_grad()
        fabric.backward(crit(net(xb), yb))
        {body}
        opt.step()
"""


@pytest.mark.parametrize("module", ["lightning", "lightning.fabric", "lightning_fabric"])
def test_fabric(module: str) -> None:
    own = "fabric.clip_gradients(net, opt, max_norm=1.0)"
    of_torch = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)"
    assert not judged(FABRIC.format(module=module, precision="16-mixed", body=own))
    assert judged(FABRIC.format(module=module, precision="16-mixed", body=f"{of_torch}  # expect: AMP101"))
    assert not judged(FABRIC.format(module=module, precision="bf16-mixed", body=of_torch))


MMENGINE = """\
import torch
from mmengine.optim import AmpOptimWrapper


def fit(net, loader, crit):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    wrapper = AmpOptimWrapper(optimizer=opt, clip_grad={clip_grad})
    for xb, yb in loader:
        {body}
"""


def test_mmengine() -> None:
    assert not judged(MMENGINE.format(clip_grad="dict(max_norm=1.0)", body="wrapper.update_params(crit(net(xb), yb))"))
    steps = [
        "wrapper.zero_grad()",
        "wrapper.backward(crit(net(xb), yb))",
        "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP101",
        "wrapper.step()",
    ]
    assert judged(MMENGINE.format(clip_grad="None", body="\n        ".join(steps)))


FAIRSEQ = """\
import torch
from fairseq.optim.amp_optimizer import AMPOptimizer


def fit(net, loader, crit, cfg):
    inner = torch.optim.SGD(net.parameters(), 0.1)
    opt = AMPOptimizer(cfg, list(net.parameters()), inner)
    for xb, yb in loader:
        opt.zero_grad()
        opt.backward(crit(net(xb), yb))
        {body}
        opt.step()
"""


def test_fairseq() -> None:
    assert not judged(FAIRSEQ.format(body="opt.clip_grad_norm(1.0)"))
    clip = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # expect: AMP101"
    assert judged(FAIRSEQ.format(body=clip))


def test_source_in_the_program_comes_before_the_model() -> None:
    Path("timm").mkdir()
    Path("timm/__init__.py").write_text("")
    Path("timm/utils.py").write_text(
        "class NativeScaler:\n    def __call__(self, loss, optimizer):\n        return loss\n"
    )
    assert not timm("loss_scaler(crit(net(xb), yb), opt)", "clip_grad_norm_(net.parameters(), 1.0)", "opt.step()")


@pytest.mark.parametrize("statements", [10, 2000])
def test_a_very_large_class_is_what_its_model_says(statements: int) -> None:
    Path("accelerate").mkdir()
    Path("accelerate/__init__.py").write_text("from accelerate.accelerator import Accelerator\n")
    body = "".join(f"        self.a{number} = {number}\n" for number in range(statements))
    text = f"class Accelerator:\n    def __init__(self, **options):\n{body}\n    def prepare(self, *all):\n"
    text += "        return all\n\n    def backward(self, loss):\n        loss.backward()\n"
    Path("accelerate/accelerator.py").write_text(text)
    body = "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)"
    assert bool(accelerate(f"{body}  # expect: AMP101" if statements > 1000 else body)) == (statements > 1000)


def test_every_model_is_python_and_what_it_passes_on_is_there() -> None:
    for name, text in MODELS.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and names_of([text]) <= {alias.name for alias in node.names}:
                assert node.module is not None and names_of([text]) <= names_of([MODELS[node.module]]), name


# --- models of users

MODEL = """
import torch


class Scaled:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self._scaler.scale(loss).backward()

    def step(self, optimizer):
        self._scaler.step(optimizer)
        self._scaler.update()


def shorten(parameters, bound):
    torch.nn.utils.clip_grad_norm_(parameters, bound)
"""
USER = """\
from acme.amp import Scaled, shorten


def fit(net, loader, opt, crit):
    scaled = Scaled()
    for xb, yb in loader:
        opt.zero_grad()
        scaled.backward(crit(net(xb), yb))
        shorten(net.parameters(), 1.0)
        scaled.step(opt)
"""


def test_without_a_model_nothing_is_known() -> None:
    Path("train.py").write_text(USER)
    assert found("train.py") == []


@pytest.mark.parametrize("target", ["train.py", "."])
def test_a_model_in_the_configuration(target: str) -> None:
    Path("train.py").write_text(USER)
    Path("pyproject.toml").write_text(f"[tool.ampclip-lint.models]\n\"acme.amp\" = '''{MODEL}'''\n")
    assert found(target) == [("train.py", 9, "AMP101")]


def test_a_model_in_a_file_of_its_own() -> None:
    Path("train.py").write_text(USER)
    Path("models").mkdir()
    Path("models/acme.py").write_text(MODEL)
    Path("ampclip-lint.toml").write_text('[models]\n"acme.amp" = "models/acme.py"\n')
    assert found("train.py") == [("train.py", 9, "AMP101")]


def test_a_model_comes_before_source() -> None:
    Path("train.py").write_text(USER)
    Path("acme").mkdir()
    Path("acme/amp.py").write_text("class Scaled:\n    pass\n\n\ndef shorten(parameters, bound):\n    pass\n")
    assert found("train.py") == []
    Path("ampclip-lint.toml").write_text(f"[models]\n\"acme.amp\" = '''{MODEL}'''\n")
    assert found("train.py") == [("train.py", 9, "AMP101")]


def test_trace_knows_the_models_of_the_configuration() -> None:
    Path("train.py").write_text(USER)
    Path("ampclip-lint.toml").write_text(f"[models]\n\"acme.amp\" = '''{MODEL}'''\n")
    assert "shorten(net.parameters(), 1.0)" in run("trace", "train.py::fit").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = 3", "`models` is not a table"),
        ('[models]\n"acme.amp" = 3', "is neither Python text nor the path of a Python file"),
        ('[models]\n"acme amp" = "x"', "is not the name of a module"),
        ('[models.acme]\namp = "class A: pass"', "is neither Python text"),
        ("[models]\nacme = '''\nclass A:\n  def f(:\n'''", "line 2: not valid Python"),
        ('[models]\nacme = "x = 1"', "defines no class and no function"),
        ('[models]\nacme = "missing.py"', "missing.py: no such file"),
        ('[model]\nacme = "x = 1"', "unknown key `model`; did you mean `models`?"),
    ],
)
def test_a_model_that_cannot_be_used_is_exit_code_2(text: str, message: str) -> None:
    Path("train.py").write_text(USER)
    Path("ampclip-lint.toml").write_text(text)
    result = run("check", "train.py")
    assert result.exit_code == 2
    assert message in result.stderr
