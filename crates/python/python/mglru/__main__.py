"""The command ``mglru``: ``python -m mglru``."""

import sys

from ._mglru import command


def main() -> None:
    """Runs the command with this program's arguments, and exits with its status: 0 done, 1 the work
    failed, 2 wrong usage."""
    sys.exit(command(["mglru", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
