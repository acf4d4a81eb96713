"""Traces of page accesses."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Optional

from . import _mglru, _stream
from ._errors import UsageError

if TYPE_CHECKING:
    import numpy

_DECODED_ACCESSES_MAX = 64 << 20


def _is_flag(value: Any) -> bool:
    """Whether a value is a boolean. Those of older versions of numpy pass for whole numbers, too."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _number(name: str, value: Any, bits: int = 64) -> int:
    if _is_flag(value) or not hasattr(value, "__index__"):
        raise UsageError(f"{name}: expected a whole number, not {value!r}")
    number = value.__index__()
    if not 0 <= number < 1 << bits:
        raise UsageError(f"{name}: {number} is not in 0 to {(1 << bits) - 1}")
    return number


def _threads(value: Any) -> Optional[int]:
    if value is None:
        return None
    threads = _number("threads", value)
    if threads == 0:
        raise UsageError("threads: 0: at least 1, or None: one per processor")
    return threads


def _share(value: Any) -> float:
    """A share of the pages. The native half checks its range."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise UsageError(f"sample: expected a share of the pages, such as 0.01, not {value!r}")
    return float(value)


def _name(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what}: expected text, not {value!r}")
    return value


class Trace:
    """The pages that a program touched, in order. Decoded once; copies and threads share it.

    Args:
        source: a path of a file in any format of ``mglru trace formats``, also compressed; the same
            as a URL of fsspec such as ``s3://bucket/trace.zst``, as an open binary file or as the
            path of a named pipe, which are read once as a stream; or page numbers from 0: a numpy
            array of integers, any Arrow array, or a sequence.
        format: format of the file, if it is not recognised.
        lossy: skip and count bad records of the file instead of failing at the first one.
        unit_bytes: bytes per block number, in formats of block numbers.
        sample: keep only this share of the pages, such as 0.01; see :meth:`sample`. A file of any
            length is read as a stream then.
        salt: chooses other pages for the sample.
        writes: for page numbers, which accesses write: one boolean per access.
        mapped: for page numbers, which accesses are through a mapping.
        anon: for page numbers, which accesses are to anonymous pages, which are numbered apart. One
            that is only read takes no memory.
        name: for page numbers, the name of the trace in tables.
        decoded_accesses_max: a file with more accesses is not kept decoded, at 16 bytes each; every
            replay decodes it again. Such a trace has no slices and no reuse distances. A stream with
            more is refused; its sample may be as long as it likes.
        storage_options: for a URL, options of its file system.

    Raises:
        UsageError: the arguments are invalid, or the format is not recognised.
        WorkError: the file cannot be read or is damaged. Errors of a stream are its own.

    >>> import mglru
    >>> trace = mglru.Trace([7, 8, 7, 9], writes=[False, True, False, False])
    >>> len(trace), trace.distinct_pages, trace.summary()["writes"]
    (4, 3, 1)
    >>> trace[1:3].pages().tolist()
    [8, 7]
    """

    __slots__ = ("_native", "_arguments")

    def __init__(
        self,
        source: Any,
        *,
        format: Optional[str] = None,
        lossy: bool = False,
        unit_bytes: Optional[int] = None,
        sample: Optional[float] = None,
        salt: int = 0,
        writes: Any = None,
        mapped: Any = None,
        anon: Any = None,
        name: Optional[str] = None,
        decoded_accesses_max: int = _DECODED_ACCESSES_MAX,
        storage_options: Optional[Mapping[str, Any]] = None,
    ) -> None:
        flags = {"writes": writes, "mapped": mapped, "anon": anon}
        share = None if sample is None else _share(sample)
        salt = _number("salt", salt, 32)
        if salt and share is None:
            raise UsageError("salt: only for a sample: give sample=0.01")
        is_stream = _stream.is_stream(source)
        if storage_options is not None and not _stream.is_url(source):
            raise UsageError("storage_options: only for a URL")
        if is_stream or isinstance(source, (str, os.PathLike)):
            given = [what for what, value in (*flags.items(), ("name", name)) if value is not None]
            if given:
                raise UsageError(f"{given[0]}: only for page numbers; a file has its own")
            options = (
                None if format is None else _name("format", format),
                bool(lossy),
                None if unit_bytes is None else _number("unit_bytes", unit_bytes, 32),
                None if share is None else (share, salt),
                _number("decoded_accesses_max", decoded_accesses_max),
            )
            source = source if is_stream else os.fspath(source)
            place = None if is_stream else os.path.abspath(source)
            self._native = _read(source, storage_options, options)
            # Another process cannot read an open file or a pipe again.
            is_read_again = not is_stream or _stream.is_url(source)
            arguments = (place, source, storage_options, options)
            self._arguments: Optional[tuple[Any, ...]] = arguments if is_read_again else None
            return
        given = [what for what, value in (("format", format), ("unit_bytes", unit_bytes)) if value is not None]
        if given:
            raise UsageError(f"{given[0]}: only for files; page numbers have no format")
        pages = _page_bytes(source)
        accesses = len(pages) // 8
        columns = [_flag_bytes(what, values, accesses) for what, values in flags.items()]
        self._native = _mglru.Trace.from_bytes(_name("name", name or "pages"), pages, *columns)
        self._arguments = None
        if share is not None:
            self._native = self._native.sample(share, salt)

    @classmethod
    def _of(cls, native: "_mglru.Trace") -> "Trace":
        trace = cls.__new__(cls)
        trace._native, trace._arguments = native, None
        return trace

    @property
    def name(self) -> str:
        """The path, or the name of page numbers."""
        return self._native.name()

    def __len__(self) -> int:
        """Number of accesses; of a sample, its own. A long file is read once for this."""
        return self._native.counts()[0]

    @property
    def distinct_pages(self) -> int:
        """Number of distinct pages; of a sample, its own. A long file is read once for this."""
        return self._native.counts()[1]

    @property
    def sampled(self) -> Optional[float]:
        """Share of the pages that were kept; ``None`` if the trace is whole."""
        return self._native.sampled()

    def summary(self) -> dict[str, Any]:
        """Counts of the trace: records, accesses, distinct pages, writes, mapped, anonymous, fsyncs,
        the lowest and the highest page, bad records skipped, and the share of the accesses before
        counting starts (``warm``)."""
        return self._native.summary()

    def __getitem__(self, part: slice) -> "Trace":
        """A part of the records: ``trace[1000:5000]``. Fsyncs of a file are records, too.

        Raises:
            UsageError: the trace is too long to be kept decoded, or the part has no access.
        """
        if not isinstance(part, slice):
            raise TypeError("a trace has slices: trace[start:end]; trace.pages() has the numbers")
        start, end, step = part.indices(self._native.records())
        if step != 1:
            raise UsageError("a part of a trace has a step of 1; its order is what it is about")
        return Trace._of(self._native.part(start, max(start, end)))

    def sample(self, share: float, salt: int = 0) -> "Trace":
        """The accesses to a share of the pages, above 0 and below 1, chosen by a hash of the page
        number. A replay of it uses the same share of the memory, and its miss ratios estimate those
        of the whole trace; ``docs/book/src/python.md`` has the measured errors. Samples with other
        salts have other pages: the mean of several is a better estimate, and their spread bounds it.

        Raises:
            UsageError: the share is out of range, or no page is in the sample.
        """
        return Trace._of(self._native.sample(_share(share), _number("salt", salt, 32)))

    def pages(self) -> "numpy.ndarray":
        """The page of each access, unsigned 64-bit numbers. Needs numpy."""
        import numpy

        return numpy.frombuffer(self._native.to_bytes()[0], dtype="<u8")

    def reuse_distances(self) -> "numpy.ndarray":
        """For each access, the number of distinct other pages touched since the last access to the
        same page; -1 for a first access. An access hits an LRU of more pages than that. Needs numpy.

        >>> import mglru
        >>> mglru.Trace([1, 2, 3, 1, 1]).reuse_distances().tolist()
        [-1, -1, -1, 2, 0]
        """
        import numpy

        return numpy.frombuffer(self._native.reuse_distances(), dtype="<i8")

    def __repr__(self) -> str:
        part = f", sample {self.sampled:g}" if self.sampled is not None else ""
        return f"mglru.Trace({self.name!r}{part})"

    def __copy__(self) -> "Trace":
        # It never changes.
        return self

    def __deepcopy__(self, _: Any) -> "Trace":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A file is read again by its path; other records travel along.
        if self._arguments is not None:
            return (_open, self._arguments)
        if self.sampled is not None:
            raise TypeError("a sample cannot be pickled; sample the trace where it is replayed")
        return (_of_state, (self.name, *self._native.state()))


def _read(source: Any, storage_options: Any, options: tuple[Any, ...]) -> "_mglru.Trace":
    if _stream.is_stream(source):
        return _stream.read(source, storage_options, lambda path: [_mglru.Trace.open(path, *options)])[0]
    return _mglru.Trace.open(source, *options)


def _samples(source: Any, share: float, salts: int) -> "list[_mglru.Trace]":
    """Samples of one trace with the salts 0, 1 and so on. What is read is read once."""
    share = _share(share)
    if isinstance(source, Trace):
        return [source._native.sample(share, salt) for salt in range(salts)]
    if _stream.is_stream(source):
        return _stream.read(source, None, lambda path: _mglru.Trace.open_samples(path, share, 0, salts))
    return _mglru.Trace.open_samples(os.fspath(source), share, 0, salts)


def _open(place: Any, source: Any, *options: Any) -> Trace:
    # In another working directory, a relative path is that of another file.
    if place is not None and os.path.abspath(source) != place:
        source = place
    trace = Trace._of(_read(source, *options))
    trace._arguments = (place, source, *options)
    return trace


def _of_state(*arguments: Any) -> Trace:
    return Trace._of(_mglru.Trace.of_state(*arguments))


def _refuse(what: str) -> UsageError:
    return UsageError(f"page numbers: {what}; expected one dimension of integers from 0")


def _page_bytes(source: Any) -> bytes:
    """Page numbers as bytes of little-endian 64-bit numbers."""
    if isinstance(source, (bytes, bytearray)):
        raise UsageError(
            f"{type(source).__name__}: a path is text or a pathlib.Path; numpy.frombuffer makes page numbers of bytes"
        )
    if isinstance(source, (Mapping, Set)):
        raise _refuse(f"a {type(source).__name__} has no order of accesses")
    arrow = hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")
    if arrow and not hasattr(source, "dtype"):
        source = _from_arrow(source)
    if hasattr(source, "dtype"):
        import numpy

        _refuse_masked("page numbers", source)
        numbers = numpy.asarray(source)
        if numbers.ndim != 1:
            raise _refuse(f"an array of {numbers.ndim} dimensions")
        if numbers.dtype.kind not in "iu":
            missing = int(numpy.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0
            raise _refuse(f"an array of {numbers.dtype}" + (f", {missing} of them missing" if missing else ""))
        if numbers.dtype.kind == "i" and numbers.size and numbers.min() < 0:
            at = int((numbers < 0).argmax())
            raise _refuse(f"access {at} is to page {int(numbers[at])}")
        return numpy.ascontiguousarray(numbers, dtype="<u8").tobytes()
    try:
        listed: list[Any] = list(source)
    except TypeError:
        raise _refuse(f"a value of type {type(source).__name__}") from None
    for at, page in enumerate(listed):
        if isinstance(page, bool) or not isinstance(page, int):
            # Elements of numpy arrays are integers, too.
            if _is_flag(page) or not hasattr(page, "__index__") or hasattr(page, "ndim") and page.ndim:
                raise _refuse(f"access {at} is to {page!r}")
            listed[at] = page = page.__index__()
        if not 0 <= page < 1 << 64:
            raise _refuse(f"access {at} is to page {page}")
    packed = array("Q", listed)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def _refuse_masked(what: str, source: Any) -> None:
    """Refuses a masked array of numpy with masked elements, whose values mean nothing."""
    import numpy

    masked = int(numpy.ma.count_masked(source)) if isinstance(source, numpy.ma.MaskedArray) else 0
    if masked:
        raise UsageError(f"{what}: {masked} of {source.size} are masked; leave them out, or fill them")


def _arrow_column(source: Any) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UsageError("page numbers in Arrow need pyarrow: pip install pyarrow") from None
    return pyarrow.chunked_array(source)


def _from_arrow(source: Any) -> Any:
    column = _arrow_column(source)
    import pyarrow

    if pyarrow.types.is_struct(column.type):
        raise _refuse(f"a table of {column.type.num_fields} columns: choose one, such as table[\"page\"]")
    if column.null_count:
        raise _refuse(f"{column.null_count} of {len(column)} are null")
    if not pyarrow.types.is_integer(column.type):
        raise _refuse(f"an Arrow array of {column.type}")
    return column.to_numpy()


def _flag_bytes(what: str, values: Any, accesses: int) -> Optional[bytes]:
    """Booleans as one byte each."""
    if values is None:
        return None
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        if not hasattr(values, "dtype"):
            column = _arrow_column(values)
            if column.null_count:
                raise UsageError(f"{what}: {column.null_count} of {len(column)} are null; expected booleans")
            values = column.to_numpy()
    if hasattr(values, "dtype"):
        import numpy

        _refuse_masked(what, values)
        flags = numpy.asarray(values)
        if flags.ndim != 1 or flags.dtype.kind != "b":
            raise UsageError(f"{what}: expected one dimension of booleans, not {flags.ndim} of {flags.dtype}")
        return flags.astype("u1").tobytes()
    try:
        listed: list[Any] = list(values)
    except TypeError:
        raise UsageError(f"{what}: expected one boolean for each access, not {values!r}") from None
    for at, flag in enumerate(listed):
        if not _is_flag(flag):
            raise UsageError(f"{what}: expected booleans, and access {at} has {flag!r}")
    return bytes(map(bool, listed))
