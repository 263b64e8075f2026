"""Names that never mean a file of the program, wherever it lies."""

from __future__ import annotations

#: What the tables of the analysis describe. Where its source is part of a run (in its own repository, beside a script),
#: each name in it would be looked up in there; as a folder of a program that is called like it would be.
_LIBRARY = "torch"


def is_outside(dotted: str) -> bool:
    """Whether an absolute name of a module, or of something in one, is known for what it is."""
    return dotted.partition(".")[0] == _LIBRARY
