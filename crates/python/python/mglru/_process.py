"""A process of its own for the units of a worker: a unit that kills its process does not kill the worker.

A worker of a cluster takes long to start again, and the cluster runs what it lost several times before
it gives up. So each worker has one child, which all of its threads share and which decodes each trace
once. When the child dies, every range that was in it is run once more, one unit at a time in a child of
its own. A unit whose child dies twice has failed.

Messages are a length of 8 bytes and a pickle. The child ends when its input does, because the worker
died, or after a minute without work.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import IO, Any, Optional

from ._errors import Error

IDLE_S = 60.0
"""A child without work for so long ends, in seconds, and frees its trace."""
TRIES = 2
"""Children that a unit may kill before it has failed."""

Rows = tuple[bytes, int, Optional[str]]
"""Rows as Parquet, the number of units among them that failed, and the first error."""

_LENGTH = struct.Struct("<Q")


class Died(Exception):
    """The child ended in the middle of its work."""


def command() -> list[str]:
    """The command of a child."""
    return [sys.executable, "-c", "from mglru._process import serve; serve()"]


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes], count: int) -> Optional[bytes]:
    data = b""
    while len(data) < count:
        part = pipe.read(count - len(data))
        if not part:
            return None
        data += part
    return data


def _receive(pipe: IO[bytes]) -> Any:
    """The next message; ``None`` at the end."""
    head = _read(pipe, _LENGTH.size)
    data = None if head is None else _read(pipe, *_LENGTH.unpack(head))
    return None if data is None else pickle.loads(data)


class Child:
    """A running child, and what waits for it."""

    def __init__(self) -> None:
        # The child can import all that the worker can: environments of a cluster may add folders.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, "Future[Rows]"] = {}
        self._next = 0
        self._dead = False
        threading.Thread(target=self._listen, name="mglru-child", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._dead

    def run(self, description: str, start: int, end: int) -> Rows:
        """Runs the units of a range.

        Raises:
            Died: the child ended.
            Error: the range could not be run.
        """
        future: "Future[Rows]" = Future()
        with self._lock:
            if self._dead:
                raise Died("it ended before")
            self._next += 1
            self._waiting[self._next] = future
            try:
                assert self._process.stdin is not None
                _send(self._process.stdin, (self._next, description, start, end))
            except OSError:
                # It is dying. The listener will say so.
                pass
        return future.result()

    def close(self) -> None:
        """Ends the child, which gets no work any more."""
        assert self._process.stdin is not None
        with self._lock:
            self._dead = True
            try:
                self._process.stdin.close()
            except OSError:
                pass

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while (message := _receive(self._process.stdout)) is not None:
            number, result, error = message
            with self._lock:
                future = self._waiting.pop(number)
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        status = self._process.wait()
        with self._lock:
            self._dead = True
            lost = list(self._waiting.values())
            self._waiting.clear()
        for future in lost:
            future.set_exception(Died(_ending(status)))


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


_shared_lock = threading.Lock()
_shared: Optional[Child] = None


def _of_worker() -> Child:
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.is_alive:
            _shared = Child()
        return _shared


def run(description: str, start: int, end: int) -> list[tuple[int, int, Rows]]:
    """Runs the units of a range in the worker's child. Returns ranges with their rows: the whole range,
    or single units after the child died."""
    try:
        return [(start, end, _of_worker().run(description, start, end))]
    except Died:
        return _one_by_one(description, start, end)


def _one_by_one(description: str, start: int, end: int) -> list[tuple[int, int, Rows]]:
    from ._sweep import _of

    done: list[tuple[int, int, Rows]] = []
    child: Optional[Child] = None
    for unit in range(start, end):
        endings: list[str] = []
        while len(endings) < TRIES:
            try:
                child = child or Child()
                rows = child.run(description, unit, unit + 1)
                break
            except Died as died:
                endings.append(str(died))
                child = None
        else:
            reason = f"its process died {TRIES} times: {', '.join(endings)}"
            rows = _of(description).failed(unit, unit + 1, reason), 1, f"unit {unit}: {reason}"
        done.append((unit, unit + 1, rows))
    if child is not None:
        child.close()
    return done


def serve() -> None:
    """The program of a child."""
    from ._sweep import _of

    # Without a buffer, so that `select` sees all that was not read.
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    # Prints must not come between the messages.
    os.dup2(2, 1)
    lock = threading.Lock()
    working: set[threading.Thread] = set()

    def work(number: int, description: str, start: int, end: int) -> None:
        result: Optional[Rows] = None
        failure: Optional[Exception] = None
        try:
            result = _of(description).run(start, end)
        except Error as error:
            failure = error
        except BaseException as error:
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        with lock:
            _send(answers, (number, result, failure))
            working.discard(threading.current_thread())

    while True:
        ready, _, _ = select.select([requests], [], [], IDLE_S)
        if not ready:
            with lock:
                if not working:
                    os._exit(0)
            continue
        message = _receive(requests)
        if message is None:
            # The worker died or has closed the child: nobody waits for what is running.
            os._exit(0)
        thread = threading.Thread(target=work, args=message, daemon=True)
        with lock:
            working.add(thread)
        thread.start()
