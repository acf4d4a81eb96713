"""Any fsspec file system through one page cache of this process.

``mglru::`` before a URL is all that is needed, as with ``blockcache::``:

    pandas.read_parquet("mglru::s3://bucket/frame.parquet", storage_options={"s3": {"anon": True}})
    fsspec.open("mglru::https://host/file", mglru={"tenant": "web", "tenant_max": "64MiB"})

pandas knows such URLs from version 3 on; pandas 2 takes ``filesystem=`` or an open file.

All files of all file systems share the budget of :func:`cache`, and each tenant its limits.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar, Optional, Union, cast

try:
    from fsspec import filesystem
    from fsspec.implementations.chained import ChainedFileSystem
    from fsspec.utils import tokenize
except ImportError:
    raise ImportError("mglru.fsspec needs fsspec 2025.10 or later: pip install -U fsspec") from None

from ._cache import PAGE_BYTES, Cache, CachedFile, Tenant, _bytes
from ._errors import UsageError
from ._requests import Size
from ._trace import _number

_BUDGET = "MGLRU_CACHE_MEMORY"
_DEFAULT_BUDGET = "256MiB"

_lock = threading.RLock()
_cache: Optional[Cache] = None
_targets: dict[str, "_Target"] = {}


def cache(memory: Optional[Size] = None) -> Cache:
    """The cache of this process, which is opened by the first call and closed at the end of the program.

    Args:
        memory: the budget, for the first call; ``None``: ``MGLRU_CACHE_MEMORY`` of the environment,
            or 256 MiB.

    Raises:
        UsageError: the cache is open with another budget.
    """
    global _cache
    with _lock:
        if _cache is None or _cache.closed:
            _targets.clear()
            _cache = Cache(os.environ.get(_BUDGET, _DEFAULT_BUDGET) if memory is None else memory)
        elif memory is not None and _cache.stats()["budget_bytes"] != _bytes("memory", memory):
            there = _cache.stats()["budget_bytes"]
            raise UsageError(
                f"memory: the cache of this process has {there} bytes; give the size to the first file system only"
            )
        return _cache


def _forget_in_child() -> None:
    # The threads of the cache are not in the child. Its lock may have been held by one that is not, too.
    global _cache, _lock
    _lock = threading.RLock()
    _cache = None
    _targets.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class _Object:
    """An open object: its state when it was asked for, and its pages."""

    def __init__(self, info: dict[str, Any], file: CachedFile, asked: float) -> None:
        self.info = info
        self.file = file
        self.asked = asked


class _Writer:
    """A file that was opened for writing."""

    def __init__(self, file: Any, autocommit: bool) -> None:
        self._file = weakref.ref(file)
        self._autocommit = autocommit

    def is_writing(self) -> bool:
        """Whether the file may still change its object. In a transaction that is so after it was closed, too: the
        transaction refers to it until it is committed."""
        file = self._file()
        return file is not None and not (self._autocommit and file.closed)


class _Target:
    """Knowledge about a target that all file systems of this process with the same options share: the objects that are
    open, and those that are being written."""

    def __init__(self) -> None:
        self.objects: "OrderedDict[tuple[str, str, int], _Object]" = OrderedDict()
        self.writers: dict[str, list[_Writer]] = {}
        # Number of times that objects were forgotten. A state that was asked for before may be outdated.
        self.changes = 0

    def forget(self, path: Optional[str]) -> None:
        """Forgets an object and all below it; ``None``: all."""
        with _lock:
            self.changes += 1
            if path is None:
                self.objects.clear()
                return
            below = path.rstrip("/") + "/"
            for key in [key for key in self.objects if key[0] == path or key[0].startswith(below)]:
                del self.objects[key]

    def may_have_changed(self, path: str) -> bool:
        """Whether the object was being written since it was asked the last time."""
        with _lock:
            writers = self.writers.pop(path, [])
            writing = [writer for writer in writers if writer.is_writing()]
            if writing:
                self.writers[path] = writing
            if len(writing) < len(writers):
                # Also for those that have other block sizes or tenants, and do not ask now.
                self.forget(path)
            return bool(writers)


class CachedFileSystem(ChainedFileSystem):
    """Reads another file system through the cache of this process, and passes everything else on.

    Args:
        target_protocol, target_options: the other file system; a chained URL gives both.
        fs: the other file system itself, instead.
        tenant: the tenant that pays for what is read; it is added if it is not there.
        tenant_max, tenant_low: its limit and its floor, as :meth:`mglru.Cache.add_tenant` has them.
        memory: the budget of the whole cache, for the first file system of the process; see :func:`cache`.
        block_size: a miss brings in a block of this size: ``"4MiB"`` or bytes.
        fresh_s: how long the length and the version of an object are believed, in seconds. Changes
            through this file system are seen at once.
        open_max: objects that stay open per target; the pages of an object are forgotten when it is closed.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/doc/words", b"some words")
    >>> with fsspec.open("mglru::memory://doc/words") as file:
    ...     file.read(4)
    b'some'
    """

    protocol: ClassVar[Union[str, tuple[str, ...]]] = "mglru"
    _strip_tokenize_options = ("fo",)

    def __init__(
        self,
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        fs: Any = None,
        fo: Optional[str] = None,
        *,
        tenant: str = "",
        tenant_max: Optional[Size] = None,
        tenant_low: Optional[Size] = None,
        memory: Optional[Size] = None,
        block_size: Size = 1 << 20,
        fresh_s: float = 10.0,
        open_max: int = 4096,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if (fs is None) == (target_protocol is None):
            raise UsageError("mglru needs a file system to read: mglru::s3://bucket/key, target_protocol= or fs=")
        self.fs: Any = fs if fs is not None else filesystem(target_protocol, **(target_options or {}))
        block_bytes = _bytes("block_size", block_size) or 0
        if block_bytes < PAGE_BYTES:
            raise UsageError(f'block_size: {block_size!r} is not a size of at least {PAGE_BYTES} bytes, such as "1MiB"')
        self.block_size: int = block_bytes
        if not isinstance(fresh_s, (int, float)) or not fresh_s >= 0:
            raise UsageError(f"fresh_s: {fresh_s!r} is not a number of seconds")
        self.fresh_s: float = float(fresh_s)
        self.open_max: int = max(_number("open_max", open_max), 1)
        self.root_marker: str = self.fs.root_marker
        self.sep: str = self.fs.sep
        self._tenant_name = tenant
        self._limits = {"max": tenant_max, "low": tenant_low}
        self._target_name = tokenize(type(self.fs), self.fs.storage_args, self.fs.storage_options)
        cache(memory)
        self._tenant()
        # Depends on the target, so that it is of this instance and not of the class.
        setattr(self, "_strip_protocol", self._strip_both)

    def _strip_both(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._strip_both(one) for one in path]
        return self.fs._strip_protocol(_without_own_protocol(path))

    def _tenant(self) -> Tenant:
        with _lock:
            limits = {name: size for name, size in self._limits.items() if size is not None}
            try:
                tenant = cache().tenant(self._tenant_name)
            except UsageError:
                return cache().add_tenant(self._tenant_name, **limits)
            if limits:
                tenant.set(**limits)
                self._limits = {}
            return tenant

    @property
    def _target(self) -> _Target:
        cache()
        return _targets.setdefault(self._target_name, _Target())

    def _object(self, path: str) -> Optional[_Object]:
        """The open object at a path; ``None`` if its length is not known, so that it cannot be cached."""
        path = self._strip_protocol(path)
        key = (path, self._tenant_name, self.block_size)
        now = time.monotonic()
        with _lock:
            target = self._target
            changed = target.may_have_changed(path)
            known = target.objects.get(key)
            if known is not None and not changed and now - known.asked < self.fresh_s:
                target.objects.move_to_end(key)
                return known
            changes = target.changes
        # Outside of the lock: this asks the service.
        info = self.fs.info(path)
        if info.get("type") == "directory":
            raise IsADirectoryError(21, "is a directory", path)
        if info.get("size") is None:
            return None
        version = tokenize(info)
        with _lock:
            known = target.objects.get(key)
            if known is not None and tokenize(known.info) == version:
                known.asked = max(known.asked, now)
                return known
            fs, size = self.fs, int(info["size"])

            def read(ranges: list[tuple[int, int]]) -> list[Any]:
                return _read_ranges(fs, path, ranges)

            name = f"{self._target_name}/{path}"
            # What was open before a change may be of another content with the same state.
            file = self._tenant().open_source(
                read, name=name, size=size, version=f"{version} {changes}", block_bytes=self.block_size
            )
            found = _Object(info, file, now)
            # After a change meanwhile it is what the object was: for this call alone, which began before.
            if target.changes == changes:
                target.objects[key] = found
                while len(target.objects) > self.open_max:
                    target.objects.popitem(last=False)
            return found

    def _forget(self, path: Union[str, Iterable[str], None]) -> None:
        """Forgets what was changed through this file system."""
        paths = [path] if path is None or isinstance(path, (str, os.PathLike)) else list(path)
        for one in paths:
            self._target.forget(None if one is None else _before_magic(self._strip_protocol(one)))

    # Reads: through the cache.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **options: Any,
    ) -> Any:
        if mode == "rb":
            found = self._object(path)
            if found is not None:
                return ObjectFile(self, self._strip_protocol(path), found)
        file = self.fs._open(
            self._strip_protocol(path),
            mode=mode,
            block_size=block_size,
            autocommit=autocommit,
            cache_options=cache_options,
            **options,
        )
        if mode != "rb":
            self._forget(path)
            with _lock:
                writers = self._target.writers.setdefault(self._strip_protocol(path), [])
                writers.append(_Writer(file, autocommit))
        return file

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **options: Any
    ) -> bytes:
        found = self._object(path)
        if found is None:
            return self.fs.cat_file(self._strip_protocol(path), start=start, end=end, **options)
        first, last, _ = slice(start, end).indices(found.file.size)
        return found.file.read_at(max(last - first, 0), first)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: Optional[int] = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        if not isinstance(starts, list):
            starts = [starts] * len(paths)
        if not isinstance(ends, list):
            ends = [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("cat_ranges: paths, starts and ends differ in length")
        out: list[Any] = [None] * len(paths)
        # All reads are begun before the first is waited for.
        for at, path in enumerate(paths):
            try:
                found = self._object(path)
                if found is not None:
                    first, last, _ = slice(starts[at], ends[at]).indices(found.file.size)
                    found.file.advise("will_need", first, last)
            except Exception as error:
                if on_error != "return":
                    raise
                out[at] = error
        for at, path in enumerate(paths):
            if out[at] is None:
                try:
                    out[at] = self.cat_file(path, starts[at], ends[at])
                except Exception as error:
                    if on_error != "return":
                        raise
                    out[at] = error
        return out

    # Requests for names and states are passed on.

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return self.fs.ls(self._strip_protocol(path), detail=detail, **options)

    def info(self, path: str, **options: Any) -> Any:
        return self.fs.info(self._strip_protocol(path), **options)

    def exists(self, path: str, **options: Any) -> bool:
        return self.fs.exists(self._strip_protocol(path), **options)

    def isdir(self, path: str) -> bool:
        return self.fs.isdir(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.fs.isfile(self._strip_protocol(path))

    def find(self, path: str, *arguments: Any, **options: Any) -> Any:
        return self.fs.find(self._strip_protocol(path), *arguments, **options)

    def walk(self, path: str, *arguments: Any, **options: Any) -> Any:
        return self.fs.walk(self._strip_protocol(path), *arguments, **options)

    def glob(self, path: str, *arguments: Any, **options: Any) -> Any:
        return self.fs.glob(_without_own_protocol(path), *arguments, **options)

    def created(self, path: str) -> Any:
        return self.fs.created(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        return self.fs.modified(self._strip_protocol(path))

    def checksum(self, path: str) -> Any:
        return self.fs.checksum(self._strip_protocol(path))

    def ukey(self, path: str) -> Any:
        return self.fs.ukey(self._strip_protocol(path))

    def sign(self, path: str, *arguments: Any, **options: Any) -> Any:
        return self.fs.sign(self._strip_protocol(path), *arguments, **options)

    def unstrip_protocol(self, name: str) -> str:
        return self.fs.unstrip_protocol(name)

    def _parent(self, path: str) -> str:
        return self.fs._parent(path)

    # Changes: passed on, and what they change is forgotten.

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        self._forget(path)
        self.fs.invalidate_cache(None if path is None else self._strip_protocol(path))

    def _change(self, name: str, changed: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self.fs, name)(*arguments, **options)
        finally:
            self._forget(changed)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        self.fs.mkdir(self._strip_protocol(path), create_parents=create_parents, **options)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.fs.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self._change("rmdir", path, self._strip_protocol(path))

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        self._change("touch", path, self._strip_protocol(path), truncate=truncate, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> Any:
        return self._change("pipe_file", path, self._strip_protocol(path), value, mode=mode, **options)

    def put_file(self, lpath: str, rpath: str, *arguments: Any, **options: Any) -> Any:
        return self._change("put_file", rpath, lpath, self._strip_protocol(rpath), *arguments, **options)

    def cp_file(self, path1: str, path2: str, **options: Any) -> Any:
        paths = self._strip_protocol(path1), self._strip_protocol(path2)
        return self._change("cp_file", path2, *paths, **options)

    def rm_file(self, path: str) -> Any:
        return self._change("rm_file", path, self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> Any:
        paths = path if isinstance(path, list) else [path]
        stripped = [self._strip_protocol(one) for one in paths]
        given = stripped if isinstance(path, list) else stripped[0]
        return self._change("rm", paths, given, recursive=recursive, maxdepth=maxdepth)


class _Closed:
    """Takes the place of the object in a closed file: every use raises."""

    def __init__(self, path: str) -> None:
        self._path = path

    def path(self) -> str:
        return self._path

    def __getattr__(self, name: str) -> Any:
        raise ValueError(f"I/O operation on closed file {self._path}")


class ObjectFile(CachedFile):
    """An object that is open for reading, as fsspec's files are. Closing it leaves its pages cached."""

    def __init__(self, fs: CachedFileSystem, path: str, found: _Object) -> None:
        super().__init__(found.file._native, False)
        self.fs = fs
        self.path = path
        self.details: dict[str, Any] = found.info
        self.blocksize: int = fs.block_size
        # Keeps it open when the file system forgets the object.
        self._of = found

    @property
    def full_name(self) -> str:
        """The URL without ``mglru::``."""
        return self.fs.unstrip_protocol(self.path)

    @property
    def _fetch_range(self) -> Any:
        # fsspec's blockcache calls it, and sets a cache that this file would not read from.
        raise UsageError(
            "blockcache cannot be before mglru in a chain: put mglru first, as in mglru::blockcache::s3://bucket/key, or "
            "take filecache"
        )

    def info(self) -> dict[str, Any]:
        """The state of the object when it was opened."""
        return self.details

    def close(self) -> None:
        # Not the object: others may have it open.
        super(CachedFile, self).close()
        self._native = cast(Any, _Closed(self.path))


def _without_own_protocol(path: Any) -> str:
    return CachedFileSystem._strip_protocol(path)


def _before_magic(path: str) -> str:
    """The part of a path before the first wildcard."""
    ends = [path.find(sign) for sign in "*?[" if sign in path]
    return path[: path.rfind("/", 0, min(ends))] if ends else path


def _read_ranges(fs: Any, path: str, ranges: list[tuple[int, int]]) -> list[Any]:
    """Reads what the cache misses. An object that became shorter or longer gives an error there."""
    if len(ranges) == 1:
        start, end = ranges[0]
        return [bytes(fs.cat_file(path, start=start, end=end))]
    answers = fs.cat_ranges(
        [path] * len(ranges), [start for start, _ in ranges], [end for _, end in ranges], on_error="return"
    )
    return [answer if isinstance(answer, BaseException) else bytes(answer) for answer in answers]
