"""Exceptions of the package, with the words of the command line."""


class Error(Exception):
    """Any error of mglru. The text says what happened, where, and what to do."""


class UsageError(Error, ValueError):
    """The request is invalid. No work was done."""


class WorkError(Error, RuntimeError):
    """The request is valid, and the work failed."""


UsageError.__module__ = WorkError.__module__ = Error.__module__ = "mglru"
