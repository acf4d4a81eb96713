"""Traces as streams: URLs of fsspec, open binary files and named pipes, read once and never stored."""

from __future__ import annotations

import contextlib
import io
import json
import os
import posixpath
import select
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Optional

from . import _mglru
from ._errors import Error, UsageError

_PIECE_BYTES = 1 << 20
_LOOK_EVERY_S = 0.05
"""Time between two looks at pending signals."""


_TEXT_BYTES_MAX = 1 << 20
"""The longest text that is read, as for a file."""


def is_url(source: Any) -> bool:
    """Whether a source of a trace is a URL."""
    return isinstance(source, str) and "://" in source


def is_stream(source: Any) -> bool:
    """Whether a source of a trace is a URL, an open file, or the path of a pipe or a terminal."""
    return is_url(source) or hasattr(source, "read") or is_pipe(source)


def is_pipe(source: Any) -> bool:
    """Whether a source is the path of a named pipe or a terminal."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    try:
        mode = os.stat(source).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def read(
    source: Any, storage_options: Optional[Mapping[str, Any]], reader: "Callable[[str], list[_mglru.Trace]]"
) -> "list[_mglru.Trace]":
    """Reads traces from a stream: ``reader`` gets a path that gives the bytes once.

    Raises:
        UsageError: as :class:`mglru.Trace`, or the file is not binary, or fsspec is missing.
        WorkError: the trace is damaged, or too long to be kept decoded.
    """
    is_path = isinstance(source, (str, os.PathLike))
    name = os.fspath(source) if is_path else str(getattr(source, "name", "stream"))
    with _opened(source, storage_options or {}) as pipe:
        try:
            return [trace.named(name) for trace in _interruptible(lambda: reader(pipe.path), pipe)]
        except Error as error:
            raise type(error)(str(error).replace(pipe.path, name)) from None


def _interruptible(work: "Callable[[], list[_mglru.Trace]]", pipe: "_Pipe") -> "list[_mglru.Trace]":
    """Reads on a thread of its own: Ctrl-C must end a read that waits for a source which gives nothing."""
    done: list[list[_mglru.Trace]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="mglru-reader", daemon=True)
    try:
        thread.start()
        # The signal may have come to another thread, which does not end a wait without a limit.
        while thread.is_alive():
            thread.join(_LOOK_EVERY_S)
    except BaseException:
        pipe.abort(thread)
        if thread.is_alive():
            thread.join()
        raise
    if failed:
        raise failed[0]
    return done[0]


@contextlib.contextmanager
def _opened(source: Any, storage_options: Mapping[str, Any]) -> "Iterator[_Pipe]":
    """A pipe with the bytes of a stream."""
    with contextlib.ExitStack() as stack:
        name = str(getattr(source, "name", "stream"))
        if is_url(source):
            # The trace's own decoder finds compressions by their content.
            name, opened = source, _fsspec(source).open(source, "rb", compression=None, **storage_options)
            source = stack.enter_context(opened)
        elif isinstance(source, (str, os.PathLike)):
            name = os.fspath(source)
            source = stack.enter_context(_open_pipe(name))
        yield stack.enter_context(_Pipe(source, posixpath.basename(name) or "stream"))


def _open_pipe(path: str) -> IO[bytes]:
    """Opens a named pipe without waiting for its writer: the first look at it waits."""
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb", buffering=0)


def text_of_pipe(path: "str | os.PathLike[str]", bytes_max: int = _TEXT_BYTES_MAX) -> str:
    """The text that comes through a named pipe. Ctrl-C ends the wait for it.

    Raises:
        UsageError: the text is too long, or not UTF-8.
    """
    name, content = os.fspath(path), bytearray()
    with _open_pipe(name) as pipe:
        look = select.poll()
        look.register(pipe, select.POLLIN)
        while len(content) <= bytes_max:
            # The signal may have come to another thread, which does not end a wait without a limit.
            while not look.poll(1000 * _LOOK_EVERY_S):
                pass
            piece = pipe.read(_PIECE_BYTES)
            if piece == b"":
                break
            content += piece or b""
        else:
            raise UsageError(f"{name}: the text is longer than {bytes_max} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name}: this is not UTF-8 text") from None


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{url}: a URL needs fsspec: pip install fsspec") from None
    return fsspec


@contextlib.contextmanager
def opened(url: str, storage_options: str) -> Iterator[str]:
    """For sweeps: a path that gives the bytes of a URL, once. The options are JSON."""
    with _opened(url, json.loads(storage_options)) as pipe:
        yield pipe.path


def state(url: str, storage_options: str) -> str:
    """For sweeps: length and, if the store has one, version of what is at a URL."""
    system, path = _fsspec(url).core.url_to_fs(url, **json.loads(storage_options))
    info = system.info(path)
    if info.get("type") == "directory":
        raise UsageError(f"{url}: a folder, not a trace")
    size = info.get("size")
    version = next((str(info[key]) for key in ("ETag", "etag", "VersionId") if info.get(key)), None)
    text = "unknown length" if size is None else f"{size} bytes"
    return text if version is None else f"{text}, version {version}"


class _Pipe:
    """A path that gives what a thread reads from a file, once, with a name whose ending tells the format.

    An error of the file takes precedence over those of the reader, which saw only the beginning.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        # It takes as long to import as the rest of this package.
        import tempfile

        self._file = file
        self._name = name
        # Python's own files are looked at before they are read, so that an interrupt ends the wait.
        self._is_looked_at = isinstance(file.raw if isinstance(file, io.BufferedReader) else file, io.FileIO)
        self._failure: list[BaseException] = []
        # Held for each write, so that the pipe is not closed in the middle of one.
        self._lock = threading.Lock()
        self._aborted = False
        self._end, start = os.pipe()
        self._start = open(start, "wb", buffering=0)
        self._folder = tempfile.TemporaryDirectory(prefix="mglru-")
        self.path = os.path.join(self._folder.name, name)
        """The reader's end."""
        os.symlink(f"/proc/self/fd/{self._end}", self.path)
        self._thread = threading.Thread(target=self._pump, name="mglru-stream", daemon=True)

    def _read(self) -> Any:
        """The next piece of the file; nothing at its end, or after an interrupt."""
        file: Any = self._file
        if not self._is_looked_at:
            return file.read(_PIECE_BYTES)
        # Waits before the read, which holds a lock of the file that Python needs to end: for sys.stdin.buffer.
        look = select.poll()
        look.register(file, select.POLLIN)
        while not self._aborted:
            if look.poll(1000 * _LOOK_EVERY_S):
                piece = file.read1(_PIECE_BYTES) if hasattr(file, "read1") else file.read(_PIECE_BYTES)
                # Another reader of the same pipe may have been faster.
                if piece is not None:
                    return piece
        return b""

    def _pump(self) -> None:
        try:
            while piece := self._read():
                if not isinstance(piece, (bytes, bytearray, memoryview)):
                    raise UsageError(f"{self._name}: open it in binary mode, to read bytes and not text")
                rest = memoryview(piece)
                while rest:
                    with self._lock:
                        if self._aborted:
                            return
                        try:
                            rest = rest[self._start.write(rest) :]
                        except BrokenPipeError:
                            # The reader has found an error, and says so.
                            return
        except BaseException as error:
            self._failure.append(error)
        finally:
            with self._lock:
                self._start.close()

    def abort(self, reader: threading.Thread) -> None:
        """Ends what the reader gets, even while the file gives nothing."""
        self._aborted = True
        while not self._lock.acquire(timeout=0.05):
            # A write goes on as long as the reader takes its bytes. Then closing the reader's end ends it.
            if not reader.is_alive():
                return
        try:
            self._start.close()
        finally:
            self._lock.release()

    def __enter__(self) -> "_Pipe":
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        # An interrupt may also come before the reader begins.
        self._aborted = self._aborted or not (kind is None or issubclass(kind, Exception))
        # A reader that ended early leaves the thread a broken pipe.
        os.close(self._end)
        # The thread of an aborted pipe may wait for the file for long. It ends when that gives something.
        if self._is_looked_at or not self._aborted:
            self._thread.join()
        self._folder.cleanup()
        if self._failure and not self._aborted:
            raise self._failure[0]
