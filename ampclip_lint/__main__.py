"""`python -m ampclip_lint`: the same as the command."""

from ampclip_lint.cli import main

if __name__ == "__main__":
    main(prog_name="ampclip-lint")
