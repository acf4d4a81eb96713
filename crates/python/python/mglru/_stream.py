"""Traces as streams: URLs of fsspec and open binary files, read once and never stored."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Optional

from . import _mglru
from ._errors import Error, UsageError

_PIECE_BYTES = 1 << 20


def is_stream(source: Any) -> bool:
    """Whether a source of a trace is a URL or an open file."""
    return (isinstance(source, str) and "://" in source) or hasattr(source, "read")


def read(
    source: Any, storage_options: Optional[Mapping[str, Any]], reader: "Callable[[str], list[_mglru.Trace]]"
) -> "list[_mglru.Trace]":
    """Reads traces from a URL or from an open file: ``reader`` gets a path that gives the bytes once.

    Raises:
        UsageError: as :class:`mglru.Trace`, or the file is not binary, or fsspec is missing.
        WorkError: the trace is damaged, or too long to be kept decoded.
    """
    name = source if isinstance(source, str) else str(getattr(source, "name", "stream"))
    with _opened(source, storage_options or {}) as path:
        try:
            return [trace.named(name) for trace in reader(path)]
        except Error as error:
            raise type(error)(str(error).replace(path, name)) from None


@contextlib.contextmanager
def _opened(source: Any, storage_options: Mapping[str, Any]) -> Iterator[str]:
    """A path that gives the bytes of a URL or of an open file, once."""
    if not isinstance(source, str):
        with _piped(source, posixpath.basename(str(getattr(source, "name", "stream"))) or "stream") as path:
            yield path
        return
    # The trace's own decoder finds compressions by their content.
    with _fsspec(source).open(source, "rb", compression=None, **storage_options) as file:
        with _piped(file, posixpath.basename(source) or "stream") as path:
            yield path


def _fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{url}: a URL needs fsspec: pip install fsspec") from None
    return fsspec


def opened(url: str, storage_options: str) -> "contextlib.AbstractContextManager[str]":
    """For sweeps: a path that gives the bytes of a URL, once. The options are JSON."""
    return _opened(url, json.loads(storage_options))


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


@contextlib.contextmanager
def _piped(file: IO[bytes], name: str) -> Iterator[str]:
    """A path that gives what a thread reads from `file`, with a name whose ending tells the format.

    An error of `file` takes precedence over those of the reader, which saw only the beginning.
    """
    # It takes as long to import as the rest of this package.
    import tempfile

    failure: list[BaseException] = []
    end, start = os.pipe()

    def pump() -> None:
        try:
            with open(start, "wb", buffering=0) as pipe:
                while piece := file.read(_PIECE_BYTES):
                    if not isinstance(piece, (bytes, bytearray, memoryview)):
                        raise UsageError(f"{name}: open it in binary mode, to read bytes and not text")
                    rest = memoryview(piece)
                    while rest:
                        try:
                            rest = rest[pipe.write(rest) :]
                        except BrokenPipeError:
                            # The reader has found an error, and says so.
                            return
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=pump, name="mglru-stream", daemon=True)
    with tempfile.TemporaryDirectory(prefix="mglru-") as folder:
        path = os.path.join(folder, name)
        os.symlink(f"/proc/self/fd/{end}", path)
        thread.start()
        try:
            yield path
        finally:
            # A reader that ended early leaves the thread a broken pipe.
            os.close(end)
            thread.join()
            if failure:
                raise failure[0]
