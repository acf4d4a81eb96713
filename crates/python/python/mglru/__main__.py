"""The command ``mglru``: ``python -m mglru``."""

import signal
import sys

from ._mglru import command


def main() -> None:
    """Runs the command with this program's arguments, and exits with its status: 0 done, 1 the work
    failed, 2 wrong usage. Ctrl-C ends it as it ends any program."""
    # Python only notes a signal, and looks at it when the command has returned.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(command(["mglru", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
