"""Shared by the tests: traces, some from the kernel lab where it lies beside the checkout."""

import contextlib
import pathlib
import signal
import threading

import pytest

import mglru

KERNEL_LAB = pathlib.Path(__file__).parents[4] / "shared" / "kernel"


@pytest.fixture(scope="session")
def mixed() -> mglru.Trace:
    """A loop, a scan and a few hot pages."""
    return mglru.Trace([n * n % 251 if n % 3 else n for n in range(20_000)], name="mixed")


@pytest.fixture(scope="session")
def kernel_lab() -> pathlib.Path:
    if not KERNEL_LAB.is_dir():
        pytest.skip("the kernel lab's traces are not here")
    return KERNEL_LAB


@pytest.fixture
def interrupted():
    """A context in which Ctrl-C comes once an event is set."""

    @contextlib.contextmanager
    def context(begun: threading.Event):
        def interrupt() -> None:
            begun.wait()
            signal.raise_signal(signal.SIGINT)

        # A shell starts its background jobs with the signal ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            yield
        finally:
            thread.join()
            signal.signal(signal.SIGINT, before)

    return context
