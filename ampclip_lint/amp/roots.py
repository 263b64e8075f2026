"""Which functions of a program are read as roots, in which order, and in which process."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ampclip_lint.amp.callgraph import CallGraph, handles_gradients
from ampclip_lint.processes import Child, can_fork
from ampclip_lint.syntax.index import FunctionInfo, ModuleIndex

#: So many roots of one file may be too large before the others are not tried, and so many that only call others.
MAX_FAILURES = 3
MAX_GLUE_FAILURES = 6
#: So many roots that wait are worth another process.
_ROOTS_A_PROCESS = 4
#: The words of a function that does more with a scaler than make it.
_USES = frozenset({"backward", "unscale_", "step"})


class Told(NamedTuple):
    """What another process told of a root in which nothing is wrong."""

    too_large: bool
    cut_off: bool
    worlds: int
    gaps: tuple[tuple[str, int, int, int, int, str, str], ...]
    """(file, first row and column, last row and column, function, message) of what was not analysed."""
    followed: frozenset[FunctionInfo]
    judged: frozenset[FunctionInfo]


class Root(Protocol):
    """What is known of a root that was analysed."""

    too_large: bool

    @property
    def is_cut_off(self) -> bool: ...
    @property
    def followed(self) -> Collection[FunctionInfo]: ...
    def judged(self) -> Collection[FunctionInfo]: ...
    def told(self) -> Told | None:
        """What a process can tell another one; ``None`` where there is more to it."""
        ...


R = TypeVar("R", bound=Root)


class Ahead:
    """
    Roots that other processes analyse before their turn comes. What these tell serves where nothing is wrong; any other
    root is analysed again, here, so that the answers do not depend on the number of processes.
    """

    def __init__(self, calls: CallGraph, analyse: Callable[[FunctionInfo], Root], jobs: int) -> None:
        self._infos = calls.everything
        self._numbers = {info: number for number, info in enumerate(calls.everything)}
        self._analyse = analyse
        self._jobs = jobs if can_fork() else 1
        self._known: dict[FunctionInfo, Root | Told] = {}

    def look(self, infos: Sequence[FunctionInfo]) -> None:
        """Analyse those that wait, if that pays."""
        workers = min(self._jobs, len(infos) // _ROOTS_A_PROCESS)
        if workers < 2:
            return
        shares: list[list[FunctionInfo]] = [[] for _ in range(workers)]
        of_file: dict[ModuleIndex, list[FunctionInfo]] = {}
        for info in infos:
            of_file.setdefault(info.module, []).append(info)
        for together in sorted(of_file.values(), key=len, reverse=True):
            min(shares, key=len).extend(together)
        children = [Child(partial(self._tell, share)) for share in shares[1:]]
        self._known.update(self._share(shares[0]))
        for child in children:
            for number, (large, cut_off, worlds, gaps, followed, judged) in (child.answer() or {}).items():
                told = Told(large, cut_off, worlds, gaps, self._these(followed), self._these(judged))
                self._known[self._infos[number]] = told

    def _these(self, numbers: Iterable[int]) -> frozenset[FunctionInfo]:
        return frozenset(self._infos[number] for number in numbers)

    def _share(self, infos: Sequence[FunctionInfo]) -> Iterator[tuple[FunctionInfo, Root]]:
        """Those of a share whose turn may come: not what others cover, nor the rest of a file that is too large."""
        covered: set[FunctionInfo] = set()
        failed: Counter[ModuleIndex] = Counter()
        for info in infos:
            if info in covered or failed[info.module] >= MAX_FAILURES:
                continue
            result = self._analyse(info)
            if result.too_large:
                failed[info.module] += 1
            elif not result.is_cut_off:
                covered.update(result.followed)
            yield info, result

    def _tell(self, infos: Sequence[FunctionInfo]) -> dict[int, tuple[object, ...]]:
        answers = ((info, result.told()) for info, result in self._share(infos))
        return {self._numbers[info]: self._plain(told) for info, told in answers if told is not None}

    def _plain(self, told: Told) -> tuple[object, ...]:
        """The same for `marshal`; functions of models stand nowhere in the program, and nobody asks for them."""
        followed, judged = ([self._numbers[i] for i in of if i in self._numbers] for of in (told.followed, told.judged))
        return (told.too_large, told.cut_off, told.worlds, told.gaps, followed, judged)

    def take(self, info: FunctionInfo) -> Root | Told | None:
        """What is known of a root, once."""
        return self._known.pop(info, None)


def all_roots(
    calls: CallGraph,
    entries: Collection[str] | None,
    analyse: Callable[[FunctionInfo], R],
    not_tried: Callable[[FunctionInfo], R],
    ahead: Callable[[Sequence[FunctionInfo]], None],
) -> Iterator[R]:
    """
    Every root with what it calls, analysed. Where that is too large, or has more paths than are followed, what it calls
    is a root, too; where several of a file are too large (a suite of tests over one trainer), the rest of it is not
    tried. `ahead` is told of those that wait.
    """
    covered: set[FunctionInfo] = set()
    judged: set[FunctionInfo] = set()
    tried: set[FunctionInfo] = set()
    failed: Counter[ModuleIndex | str] = Counter()
    pending = deque(info for info in calls.roots() if entries is None or info.module.file.name in entries)
    while True:
        waiting = 0
        while pending:
            if not waiting:
                waiting = len(pending)
                ahead([info for info in pending if info not in covered])
            waiting -= 1
            info = pending.popleft()
            if info in covered:
                continue
            covered.add(info)
            tried.add(info)
            below = [callee for callee in calls.below(info) if callee not in covered]
            own = "own" if calls.takes_part(info) or handles_gradients(info) else "glue"
            if below and (failed[info.module] >= MAX_FAILURES or (own == "glue" and failed[own] >= MAX_GLUE_FAILURES)):
                pending.extend(below)
                if own == "own":
                    yield not_tried(info)
                continue
            result = analyse(info)
            if result.too_large or result.is_cut_off:
                pending.extend(below)
            else:
                covered |= set(result.followed)
                judged |= set(result.judged())
            if result.too_large:
                failed.update((info.module, own))
                if below and own == "glue":
                    continue  # What it calls is read by itself, and nothing else is lost.
            yield result
        # What only seems to be called, and what is only called where nothing is scaled (tests often do).
        covered -= {info for info in covered - judged - tried if info.words & _USES}
        rest = [
            info
            for info in calls.everything
            if info not in covered
            and info.outer is None
            and calls.takes_part(info)
            and (entries is None or info.module.file.name in entries)
        ]
        above = (caller for info in rest if info.words & _USES for caller in calls.above(info, covered))
        pending.extend(dict.fromkeys((*above, *rest)))
        if not pending:
            return
