"""The program as it is installed and as `python -m ampclip_lint` runs it."""

import os
import sys
from typing import NoReturn

from ampclip_lint.cli import main


def run() -> NoReturn:
    """
    `ampclip_lint.cli.main`, which ends the process at once: to take the interpreter apart, module by module, takes as
    long as to check a small file, and frees what the system frees anyway.
    """
    try:
        main(prog_name="ampclip-lint")
    except SystemExit as end:
        code = 0 if end.code is None else end.code
        if not isinstance(code, int):
            raise
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            raise end from None  # a stream that is closed or full: the usual way out knows what to say
        os._exit(code)
    raise AssertionError("a click command ends by exiting")


if __name__ == "__main__":
    run()
