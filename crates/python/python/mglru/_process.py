"""A process of its own for the units of workers: a unit that kills its process does not kill a worker.

A worker of a cluster takes long to start again, and the cluster runs what it lost several times before
it gives up. So the workers of a machine have one child, which decodes each trace once for all of them:

    worker ──┐ socket                          worker: a process of Dask or Ray
    worker ──┼────────► child                  child:  a thread per range, decoded traces
    worker ──┘

They meet at a socket in the folder for temporary files. Workers of other users, environments or control
groups have another one. Where no socket can be made, each worker has a child of its own on pipes.

When the child dies, every range that was in it is run once more, one unit at a time in a child of its
worker alone. A unit whose child dies twice has failed.

Messages are a length of 8 bytes and a pickle. The child ends after a minute without work, and soon after
the last worker is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import IO, Any, Optional

from . import _mglru
from ._errors import Error

IDLE_S = 60.0
"""A child without work for so long ends, in seconds, and frees its traces."""
FIRST_S = 60.0
"""A child that nobody asks for work ends after so long, in seconds."""
ALONE_S = 5.0
"""A child whose workers are all gone ends after so long, in seconds, whatever it is doing."""
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
    """A connection to a running child, and what waits for its answers."""

    def __init__(self, connection: Optional[socket.socket] = None) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        if connection is None:
            self._process = _start(subprocess.PIPE, subprocess.PIPE)
            assert self._process.stdin is not None and self._process.stdout is not None
            self._requests: IO[bytes] = self._process.stdin
            self._answers: IO[bytes] = self._process.stdout
        else:
            self._requests, self._answers = connection.makefile("wb"), connection.makefile("rb")
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: dict[int, "Future[Rows]"] = {}
        self._next = 0
        self._dead = False
        self.listener = threading.Thread(target=self._listen, name="mglru-child", daemon=True)
        self.listener.start()

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
                _send(self._requests, (self._next, description, start, end))
            except OSError:
                # It is dying. The listener will say so.
                pass
        return future.result()

    def close(self) -> None:
        """Ends the connection, which gets no work any more, and a child that is this worker's alone."""
        with self._lock:
            self._dead = True
            with contextlib.suppress(OSError):
                self._requests.close()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        try:
            while (message := _receive(self._answers)) is not None:
                number, result, error = message
                with self._lock:
                    future = self._waiting.pop(number)
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
        except OSError:
            # It died with a part of our request unread.
            pass
        ending = "it ended" if self._process is None else _ending(self._process.wait())
        with self._lock:
            self._dead = True
            lost = list(self._waiting.values())
            self._waiting.clear()
        for future in lost:
            future.set_exception(Died(ending))


def _start(requests: Any, answers: Any) -> "subprocess.Popen[bytes]":
    # The child can import all that the worker can: environments of a cluster may add folders.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(command(), stdin=requests, stdout=answers, env=environment)


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
            try:
                _shared = Child(_of_machine())
            except OSError:
                _shared = Child()
        return _shared


def _of_machine() -> socket.socket:
    """A connection to the child of this machine, which is started if there is none.

    Raises:
        OSError: there can be no socket here.
    """
    path = _meeting_point()
    with _locked(f"{path}.lock"):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            # Nobody listens: its child has ended.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        except OSError:
            connection.close()
            raise
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            child = _start(listener, subprocess.DEVNULL)
        # Its status is of no interest, but it must not stay a zombie.
        threading.Thread(target=child.wait, name="mglru-reaper", daemon=True).start()
        connection.connect(path)
        return connection


def _meeting_point() -> str:
    """The path of the socket: one for each user, environment, installed version and control group, whose
    memory counts what the child takes."""
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), f"mglru-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"{folder}: others may write there")
    group = b""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", "rb") as file:
        group = file.read()
    # An installation that replaced this one in its folder has another child.
    library = os.stat(_mglru.__file__)
    version = f"{_mglru.__version__} {library.st_ino} {library.st_mtime_ns} {library.st_size}"
    parts = [*(part.encode() for part in (*command(), *sys.path, __file__, version)), group]
    return os.path.join(folder, hashlib.sha256(b"\0".join(parts)).hexdigest()[:16])


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    import fcntl

    with open(path, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(description: str, start: int, end: int) -> list[Rows]:
    """Runs the units of a range in the worker's child. Returns the rows of the whole range, or those of
    each of its units after the child died."""
    try:
        return [_of_worker().run(description, start, end)]
    except Died:
        return _one_by_one(description, start, end)


def _one_by_one(description: str, start: int, end: int) -> list[Rows]:
    from ._sweep import _of

    done: list[Rows] = []
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
        done.append(rows)
    if child is not None:
        child.close()
    return done


class _Service:
    """What a child does for its workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of = threading.Lock()
        self._running = 0
        self._workers = 0
        self._since = time.monotonic()
        self._asked = False

    def answer(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        """Answers a worker until it is gone."""
        answering = threading.Lock()
        self._count(workers=1)
        try:
            while (message := _receive(requests)) is not None:
                self._asked = True
                self._count(running=1)
                threading.Thread(target=self._work, args=(answers, answering, *message), daemon=True).start()
        except OSError:
            pass
        self._count(workers=-1)

    def _work(
        self, answers: IO[bytes], answering: threading.Lock, number: int, description: str, start: int, end: int
    ) -> None:
        from ._sweep import _of

        result: Optional[Rows] = None
        failure: Optional[Exception] = None
        try:
            # One after the other: the first reads the grid, and the others find it read.
            with self._of:
                sweep = _of(description)
            result = sweep.run(start, end)
        except Error as error:
            failure = error
        except BaseException as error:
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        # A worker that is gone needs no answer.
        with answering, contextlib.suppress(OSError, ValueError):
            _send(answers, (number, result, failure))
        self._count(running=-1)

    def _count(self, running: int = 0, workers: int = 0) -> None:
        with self._lock:
            self._running += running
            self._workers += workers
            self._since = time.monotonic()

    def is_idle(self) -> bool:
        with self._lock:
            quiet_s = time.monotonic() - self._since
            if not self._asked:
                # The first worker is on its way, perhaps slowly.
                return quiet_s > FIRST_S
            return self._workers == 0 and quiet_s > ALONE_S or self._running == 0 and quiet_s > IDLE_S

    def end_when_idle(self) -> None:
        while not self.is_idle():
            time.sleep(min(IDLE_S, ALONE_S) / 5)
        os._exit(0)


def serve() -> None:
    """The program of a child. Its input is the socket where workers come, or the pipe of one of them."""
    service = _Service()
    threading.Thread(target=service.end_when_idle, daemon=True).start()
    if stat.S_ISSOCK(os.fstat(0).st_mode):
        with socket.socket(fileno=os.dup(0)) as listener:
            while True:
                connection, _ = listener.accept()
                pipes = connection.makefile("rb"), connection.makefile("wb")
                threading.Thread(target=service.answer, args=pipes, daemon=True).start()
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    answers = os.fdopen(os.dup(1), "wb")
    # Prints must not come between the messages.
    os.dup2(2, 1)
    service.answer(requests, answers)
    # The worker died or has closed the child: nobody waits for what is running.
    os._exit(0)
