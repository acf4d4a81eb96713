"""Tables of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from . import _mglru

_SHOWN_ROWS = 10
_SHOWN_COLUMNS = 8
_SHOWN_CHARACTERS = 24


class Table:
    """Rows of results, kept as Arrow columns.

    Any library that reads Arrow's PyCapsule interface takes a table as it is:
    ``pyarrow.table(table)``, ``polars.DataFrame(table)``, ``duckdb.sql("from table")``.

    >>> import mglru
    >>> table = mglru.replay(mglru.Trace([1, 2, 1, 3, 1]), memory="2p", policy="lru")
    >>> len(table), table["misses"], table.to_pylist()[0]["miss_ratio"]
    (1, [3], 0.6)
    """

    __slots__ = ("_native",)

    def __init__(self, native: "_mglru.Table") -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, with the unit last."""
        return self._native.column_names()

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column; ``None`` where a row has none.

        Raises:
            KeyError: no column has this name.
        """
        if not isinstance(column, str):
            raise TypeError(f'a table has columns by name, such as table["misses"], and not {column!r}')
        return self._native.column(column)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def to_pydict(self) -> dict[str, list[Any]]:
        """A list per column."""
        return {name: self._native.column(name) for name in self.column_names}

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dictionary per row."""
        names = self.column_names
        return [dict(zip(names, row)) for row in zip(*(self._native.column(name) for name in names))]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._native.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> "pyarrow.Table":
        """A pyarrow table. Needs pyarrow."""
        import pyarrow

        return pyarrow.table(self)

    def to_polars(self) -> "polars.DataFrame":
        """A polars data frame. Needs polars."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """A pandas data frame. Needs pandas; counts with missing values become floats there."""
        import pandas

        return pandas.DataFrame(self.to_pydict(), columns=self.column_names)

    def __copy__(self) -> "Table":
        # It never changes.
        return self

    def __deepcopy__(self, _: Any) -> "Table":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Table cannot be pickled; send table.to_arrow() or table.to_pandas()")

    def _rows_as_text(self) -> tuple[list[str], list[list[str]]]:
        names = self.column_names[:_SHOWN_COLUMNS]
        if len(self.column_names) > _SHOWN_COLUMNS:
            # The ratio is what most tables are made for.
            names += [name for name in ("miss_ratio",) if name in self.column_names[_SHOWN_COLUMNS:]]

        def text(value: Any) -> str:
            if isinstance(value, float):
                return f"{value:.4f}"
            shown = "" if value is None else str(value)
            return shown if len(shown) <= _SHOWN_CHARACTERS else "…" + shown[1 - _SHOWN_CHARACTERS :]

        columns = [[text(value) for value in self._native.column(name)[:_SHOWN_ROWS]] for name in names]
        return names, [list(row) for row in zip(*columns)]

    def __repr__(self) -> str:
        names, rows = self._rows_as_text()
        widths = [max(len(cell) for cell in column) for column in zip(names, *rows)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in [names, *rows]]
        left = [f"{len(self)} rows", f"{len(self.column_names)} columns"]
        return "\n".join([*lines, f"[{' × '.join(left)}]"])

    def _repr_html_(self) -> str:
        from html import escape

        names, rows = self._rows_as_text()
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        size = f"{len(self)} rows × {len(self.column_names)} columns"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{size}</p>"
