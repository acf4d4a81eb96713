"""A page cache: open files, tenants, lent pages."""

from __future__ import annotations

import contextlib
import io
import operator
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Optional, Union

from . import _mglru
from ._errors import UsageError
from ._requests import Size
from ._trace import _name, _number

PAGE_BYTES = 4096
"""Bytes of a page."""

_ALL = (1 << 64) - 1
"""More bytes than any file has."""

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Source = Callable[[list[tuple[int, int]]], Sequence[Union[bytes, BaseException]]]
"""A function of ranges of bytes, as pairs of start and end. It returns for each its bytes or an exception."""


def _bytes(name: str, size: Optional[Size]) -> Optional[int]:
    """A size in bytes: an integer, or text such as ``"64MiB"`` or ``"8192p"`` (pages)."""
    if size is None:
        return None
    return _mglru.size_bytes(name, size) if isinstance(size, str) else _number(name, size)


def _flat(buffer: Any) -> memoryview:
    """The bytes of a buffer. One without any cannot be cast."""
    try:
        view = memoryview(buffer)
    except ValueError:
        # numpy's dates and times are in no format that a memoryview has.
        if not hasattr(buffer, "view"):
            raise
        view = memoryview(buffer.view("u1"))
    return view.cast("B") if view.nbytes else memoryview(bytearray())


class Cache:
    """A page cache over files with a hard memory budget. All threads of the process can share it. It is closed
    with the last reference to it, to its tenants and to its open files.

    Reads and writes release Python's lock. A child of the process cannot use the cache: open one there.

    Args:
        memory: the budget for pages and all metadata: ``"64MiB"``, ``"8192p"`` (pages) or bytes.
        policy: a preset, with changes as in :func:`mglru.replay`: ``"linux-7.2 -reclaim_loop"``.
        backend: ``"auto"``, ``"io_uring"`` or ``"threads"``.
        source_deadline_s: how long a source may take to answer, in seconds.

    Raises:
        UsageError: the budget is too small or too large, or a name is unknown.

    >>> import mglru, pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with mglru.Cache("4MiB") as cache:
    ...     web = cache.add_tenant("web", max="1MiB")
    ...     with web.open(pathlib.Path(folder.name, "file"), "w+b") as file:
    ...         _ = file.write(b"hello" * 1000)
    ...         _ = file.seek(4995)
    ...         file.read(), file.size, web.stats()["hits"] > 0
    (b'hello', 5000, True)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        memory: Size,
        *,
        policy: str = "default",
        backend: str = "auto",
        source_deadline_s: float = 60.0,
    ) -> None:
        is_number = isinstance(source_deadline_s, (int, float)) and not isinstance(source_deadline_s, bool)
        if not is_number or not 0.001 <= source_deadline_s <= 86400:
            raise UsageError(f"source_deadline_s: {source_deadline_s!r} is not in 0.001 to 86400 seconds")
        budget = _bytes("memory", memory)
        if budget is None:
            raise UsageError('memory: a cache needs a budget, such as "64MiB"')
        names = _name("policy", policy), _name("backend", backend)
        self._native = _mglru.Cache(budget, *names, round(source_deadline_s * 1000))
        # Also at the end of the program: the threads of the cache must not outlive Python.
        self._end = weakref.finalize(self, _end, self._native, os.getpid())

    @property
    def closed(self) -> bool:
        """Whether the cache was closed."""
        return self._native.is_closed()

    def open(self, path: Path, mode: str = "rb", *, tenant: str = "") -> "CachedFile":
        """Opens a file for a tenant. See :meth:`Tenant.open`."""
        return self.tenant(tenant).open(path, mode)

    def tenant(self, path: str = "") -> "Tenant":
        """The tenant at a path such as ``"a/b"``; the empty path is the root.

        Raises:
            UsageError: the tenant does not exist.
        """
        return Tenant(self._native.tenant(_name("tenant", path)), self)

    @property
    def tenants(self) -> list["Tenant"]:
        """All tenants, the root first."""
        return [Tenant(tenant, self) for tenant in self._native.tenants()]

    def add_tenant(
        self,
        path: str,
        *,
        max: Optional[Size] = None,
        high: Optional[Size] = None,
        low: Size = 0,
        min: Size = 0,
    ) -> "Tenant":
        """Adds a tenant, below an existing one if the path has a slash.

        Args:
            max: the hard limit (``memory.max``).
            high: above this use the tenant is slowed down (``memory.high``).
            low: reclaim for others takes this much only if nothing else is left (``memory.low``).
            min: reclaim for others never takes this much (``memory.min``).

        Raises:
            UsageError: the name is taken or invalid, or the parent does not exist.
        """
        floors = _bytes("min", min) or 0, _bytes("low", low) or 0
        native = self._native.add_tenant(_name("tenant", path), *floors, _bytes("high", high), _bytes("max", max))
        return Tenant(native, self)

    def remove_tenant(self, path: str) -> None:
        """Removes a tenant. Its pages stay, and its open files keep working.

        Raises:
            UsageError: the tenant does not exist, has tenants below it, or is the root.
        """
        self._native.remove_tenant(_name("tenant", path))

    def stats(self) -> dict[str, Any]:
        """Sizes and counts of the whole cache: the backend, and why it is not io_uring (``why_not_uring``),
        the budget and its use in bytes, pages of files, free pages, and what sources were asked for."""
        return self._native.stats()

    def prometheus_text(self) -> str:
        """All statistics in the text format of Prometheus."""
        return self._native.prometheus_text()

    def sync(self) -> None:
        """Writes all dirty pages of all files, and waits for that. A device may still have the bytes in a
        cache of its own: :meth:`CachedFile.sync` puts a file on stable storage.

        Raises:
            OSError: the error of the first file. The others are still written.
        """
        self._native.sync()

    def close(self) -> None:
        """Writes all dirty pages and stops the threads of the cache. Its files then raise
        :class:`mglru.UsageError`, a ``ValueError``. Waits for sources that are being read, at most until
        their deadline.

        Raises:
            OSError: pages could not be written. They are lost.
        """
        self._native.close()

    def __enter__(self) -> "Cache":
        if self.closed:
            raise UsageError("the cache is closed")
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<mglru.Cache, closed>"
        try:
            stats = self.stats()
        except UsageError:
            # Of the process that this one is a child of.
            return "<mglru.Cache of another process>"
        return f"<mglru.Cache of {stats['budget_bytes']} bytes, {stats['file_pages']} pages in use>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Cache cannot be pickled; open one in each process")


def _end(native: "_mglru.Cache", process: int) -> None:
    if process == os.getpid():
        native.close()


class Tenant:
    """A part of a cache with limits and floors of its own. :meth:`Cache.tenant` returns it."""

    __slots__ = ("_cache", "_native")

    def __init__(self, native: "_mglru.Tenant", cache: Optional[Cache] = None) -> None:
        self._native = native
        # A cache that nobody refers to is closed.
        self._cache = cache

    @property
    def name(self) -> str:
        """The path; empty for the root."""
        return self._native.name()

    @property
    def is_online(self) -> bool:
        """Whether it still exists, that is, was not removed."""
        return self._native.is_online()

    def set(self, **limits: Optional[Size]) -> None:
        """Changes limits and floors: ``max``, ``high``, ``low``, ``min``, as :meth:`Cache.add_tenant` has
        them; ``None`` removes one. Reclaims what is above a lowered limit before it returns.

        Raises:
            UsageError: the tenant was removed, or is the root.
        """
        unknown = set(limits) - {"max", "high", "low", "min"}
        if unknown:
            raise UsageError(f"unknown limit `{unknown.pop()}`; expected max, high, low or min")
        sizes = {name: _bytes(name, size) for name, size in limits.items()}
        for name, size in sizes.items():
            self._native.set_limit(name, size)

    def stats(self) -> dict[str, Any]:
        """Limits, use and peak in pages; hits and misses; ``counters`` under the kernel's names; the live
        ``generations``, oldest first."""
        return self._native.stats()

    def open(self, path: Path, mode: str = "rb") -> "CachedFile":
        """Opens a file. Pages that are first read or written through it are charged to this tenant. All
        open files of the same path share its pages; after the last one is closed they are forgotten.

        Args:
            mode: ``"rb"``, ``"r+b"``, ``"w+b"`` (created or emptied), ``"x+b"`` (created; an error if it
                is there). ``"wb"`` and ``"xb"`` are the same as ``"w+b"`` and ``"x+b"``.

        Raises:
            OSError: the system refuses.
        """
        if mode not in ("rb", "r+b", "rb+", "wb", "w+b", "wb+", "xb", "x+b", "xb+"):
            raise UsageError(f"mode: unknown {mode!r}; expected rb, r+b, w+b or x+b")
        path = os.fsdecode(path)
        if "x" in mode:
            # Raises if the cache is closed, before the file is there.
            self._native.is_online()
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        file = CachedFile(self._native.open(path, mode != "rb", "w" in mode), mode != "rb", self._cache)
        if "w" in mode:
            file.truncate(0)
        return file

    def open_source(
        self,
        read: Source,
        *,
        name: str,
        size: int,
        version: Optional[str] = None,
        block_bytes: int = 1 << 20,
    ) -> "CachedFile":
        """Opens bytes that a function reads, such as those of an object in a bucket.

        Args:
            read: called with a list of ranges, pairs of start and end in bytes, on a thread of the
                cache. Returns for each range its bytes, or an exception. Each page is asked for once.
            name: for messages. Files with the same name and version share their pages.
            size: length in bytes.
            version: what distinguishes the bytes from earlier ones of the same name.
            block_bytes: a miss brings in a block of this size, as far as memory is free.

        >>> import mglru
        >>> with mglru.Cache("4MiB") as cache:
        ...     source = lambda ranges: [bytes(end - start) for start, end in ranges]
        ...     len(cache.tenant().open_source(source, name="zeros", size=10_000).read())
        10000
        """
        if not callable(read):
            raise UsageError(f"read: expected a function of ranges, not {read!r}")
        size = _number("size", size)
        block_bytes = _number("block_bytes", block_bytes)
        version = None if version is None else _name("version", version)
        native = self._native.open_source(read, _name("name", name), size, version, block_bytes)
        return CachedFile(native, False, self._cache)

    def __repr__(self) -> str:
        return f"<mglru.Tenant {self.name or '(root)'!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Tenant cannot be pickled; open a cache in each process")


class CachedFile(io.RawIOBase):
    """An open file of a cache, as a binary file object. :meth:`Tenant.open` returns it.

    ``read`` returns all that it is asked for up to the end of the file, so that no ``BufferedReader`` is
    needed; one makes many small reads faster. Threads may share a file with :meth:`read_at` and
    :meth:`write_at`; ``read`` and ``write`` move its one position.
    """

    def __init__(self, native: "_mglru.File", writable: bool, cache: Optional[Cache] = None) -> None:
        self._native = native
        self._writable = writable
        self._position = 0
        # A cache that nobody refers to is closed.
        self._cache = cache

    @property
    def name(self) -> str:
        """The path, or the name of a source."""
        return self._native.path()

    @property
    def mode(self) -> str:
        """``"rb"`` or ``"rb+"``."""
        return "rb+" if self._writable else "rb"

    @property
    def size(self) -> int:
        """Length in bytes, with what is not yet on disk."""
        return self._native.len()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return self._writable

    def read_at(self, size: int, offset: int) -> bytes:
        """Bytes from ``offset`` on: ``size``, or fewer only at the end of the file. Ctrl-C ends a long read."""
        return self._native.read_at(_number("size", size), _number("offset", offset))

    def read(self, size: Optional[int] = -1, /) -> bytes:
        """Reads ``size`` bytes at the position, or up to the end of the file."""
        size = -1 if size is None else operator.index(size)
        if size < 0:
            return self.readall()
        data = self._native.read_at(min(size, _ALL), self._position)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Reads from the position up to the end of the file, also what another process has appended."""
        data = self._native.read_at(_ALL, self._position)
        self._position += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Reads into a buffer at the position. Returns the number of bytes, fewer than it has only at the end
        of the file."""
        view = _flat(buffer)
        data = self._native.read_at(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def peek(self, size: int = 1, /) -> bytes:
        """Bytes after the position, up to the end of its page, without moving it."""
        return self._native.read_at(PAGE_BYTES - self._position % PAGE_BYTES, self._position)

    def write_at(self, data: Any, offset: int) -> int:
        """Writes all of ``data`` at ``offset``, beyond the end too. The bytes are in memory then, and on
        disk after :meth:`sync`. Ctrl-C ends a long write, of which a part is written then.

        Raises:
            BufferError: a page of the range is lent.
            OSError: the file was opened for reading only, or earlier writes fail.
        """
        data = data if isinstance(data, bytes) else bytes(_flat(data))
        return self._native.write_at(data, _number("offset", offset))

    def write(self, data: Any, /) -> int:
        """Writes all of ``data`` at the position, as :meth:`write_at`."""
        written = self.write_at(data, self._position)
        self._position += written
        return written

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"seek: unknown whence {whence!r}; expected 0, 1 or 2")
        # Raises if the file is closed.
        size = self.size
        offset = operator.index(offset)
        position = offset + (0, self._position, size)[whence]
        if position < 0:
            raise OSError(22, f"seek: position {position} is before the beginning", self.name)
        if position >= 1 << 63:
            raise OverflowError(f"seek: position {position} is beyond every file")
        self._position = position
        return position

    def tell(self) -> int:
        # Raises if the file is closed.
        self._native.len()
        return self._position

    def truncate(self, size: Optional[int] = None, /) -> int:
        size = self._position if size is None else _number("size", size)
        self._native.truncate(size)
        return size

    def flush(self) -> None:
        """Writes the dirty pages to the file and waits for that: other programs then see them. :meth:`sync` also
        puts them on stable storage. Ctrl-C ends the wait.

        Raises:
            OSError: a page could not be written. It stays in memory, and is written again later.
        """
        super().flush()
        if self._writable:
            self._native.write_back()

    def sync(self, *, metadata: bool = False) -> None:
        """Writes the dirty pages, and waits until they are on stable storage; ``metadata``: with all
        metadata of the file.

        Raises:
            OSError: a page could not be written now or earlier. It stays in memory.
        """
        self._native.sync(bool(metadata))

    def page(self, index: int) -> "Page":
        """Lends a page, without a copy.

        Raises:
            UsageError: the page is beyond the end of the file.
            WorkError: no memory can be freed for it.
        """
        return Page(self._native.page(_number("index", index, 32)), index)

    def views(self, offset: int, size: int) -> list[memoryview]:
        """The bytes of a range as read-only views, one per page, without a copy. The pages are lent as
        long as their views live.

        >>> import mglru, tempfile
        >>> with mglru.Cache("4MiB") as cache, tempfile.NamedTemporaryFile() as data:
        ...     with cache.open(data.name, "w+b") as file:
        ...         _ = file.write(bytes(4096) + b"second page")
        ...         views = file.views(4094, 8)
        ...         [bytes(view) for view in views]
        [b'\\x00\\x00', b'second']
        """
        offset, end = _number("offset", offset), _number("offset", offset) + _number("size", size)
        views = []
        if offset < end and end > self.size and not self._native.read_at(1, min(end - 1, _ALL)):
            raise UsageError(f"byte {end} of {self.name} is beyond its end ({self.size} bytes)")
        while offset < end:
            index, start = divmod(offset, PAGE_BYTES)
            view = self.page(index).view[start : start + end - offset]
            if not len(view):
                raise UsageError(f"byte {end} of {self.name} is beyond its end ({self.size} bytes)")
            views.append(view)
            offset += len(view)
        return views

    def evict(self, start: int = 0, end: Optional[int] = None) -> int:
        """Writes and drops the pages that lie wholly in a range of bytes. Returns how many of them are in
        memory afterwards, because they are in use: lent, or lent before through another open file."""
        return self._native.evict(_number("start", start), self.size if end is None else _number("end", end))

    def advise(self, advice: str, start: int = 0, end: Optional[int] = None) -> None:
        """Tells how a range of bytes will be used: ``"normal"``, ``"sequential"``, ``"random"``,
        ``"will_need"`` (starts reading), ``"dont_need"`` or ``"no_reuse"``."""
        end = self.size if end is None else _number("end", end)
        self._native.advise(_name("advice", advice), _number("start", start), end)

    def stats(self, start: int = 0, end: Optional[int] = None) -> dict[str, int]:
        """Hits and misses of this open file, and the pages of a range of bytes that are in memory, dirty,
        being written, and evicted but remembered."""
        return self._native.stats(_number("start", start), self.size if end is None else _number("end", end))

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a cached file has no descriptor; its content may not be on disk yet")

    def close(self) -> None:
        """Writes the dirty pages as :meth:`flush` does, and closes the file, also if that fails.

        Raises:
            OSError: a page could not be written. It is in memory, and is written again later, until the cache is
                closed.
        """
        if self.closed:
            return
        try:
            # A closed cache has written all, and a child of the process has nothing to write.
            with contextlib.suppress(UsageError):
                super().close()
        finally:
            self._native.close()
            self._cache = None

    def __repr__(self) -> str:
        return f"<mglru.CachedFile {self.name!r}, mode {self.mode!r}{', closed' if self.closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a CachedFile cannot be pickled; open it in each process")


class Page:
    """A page lent by :meth:`CachedFile.page`: it stays in memory, unchanged, as long as the object or a
    view of it lives. Writing to a lent page raises ``BufferError``.

    From Python 3.12 on the object itself is a buffer; before, ``view`` is. The memory of the cache is not
    in a forked child: a page is refused there, and reading a view from before the fork ends the child.

    >>> import mglru, tempfile
    >>> with mglru.Cache("4MiB") as cache, tempfile.NamedTemporaryFile() as data:
    ...     with cache.open(data.name, "w+b") as file:
    ...         _ = file.write(b"lent without a copy")
    ...         with file.page(0) as view:
    ...             bytes(view[:4]), view.readonly
    (b'lent', True)
    """

    __slots__ = ("_process", "_view", "index")

    def __init__(self, native: "_mglru.Page", index: int) -> None:
        import ctypes

        # The views keep the array, and the array keeps the page lent.
        array = (ctypes.c_ubyte * len(native)).from_address(native.address())
        array._page = native  # type: ignore[attr-defined]
        self._view: Optional[memoryview] = memoryview(array).toreadonly().cast("B")
        self._process = os.getpid()
        self.index: int = index
        """Number of the page in its file, from 0."""

    @property
    def view(self) -> memoryview:
        """The page's bytes, up to the end of the file.

        Raises:
            ValueError: the page was released.
            UsageError: this is a forked child of the process that was lent the page.
        """
        if self._view is None:
            raise ValueError(f"page {self.index} was released")
        if self._process != os.getpid():
            raise UsageError(
                f"page {self.index} belongs to process {self._process}, and this is its child, which does not have the "
                "cache's memory: copy the bytes before the fork, or open a cache here"
            )
        return self._view

    def release(self) -> None:
        """Gives the page back and ends its view, as leaving a ``with`` does. Slices of the view and arrays
        over it live on: then the page is given back with the last of them.
        """
        if self._view is not None:
            # An array over the view keeps it.
            with contextlib.suppress(BufferError):
                self._view.release()
            self._view = None

    def __len__(self) -> int:
        return len(self.view)

    def __bytes__(self) -> bytes:
        return bytes(self.view)

    def __buffer__(self, flags: int, /) -> memoryview:
        return memoryview(self.view)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Page cannot be pickled; send bytes(page)")

    def __enter__(self) -> memoryview:
        return self.view

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()
