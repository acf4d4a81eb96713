"""MariaDB and PostgreSQL with sysbench, PostgreSQL also with pgbench, SQLite with a load of its own."""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from bench import Failure, call, wait_until

# Servers run as users of their own, who may not write to a folder of another user.
os.environ["TMPDIR"] = "/tmp"


class Server:
    """A server's process, and its folder with socket and log."""

    def __init__(self):
        self.process = None
        self.folder = None

    def make_folder(self, user):
        # A Unix socket's path has at most 107 bytes.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mglru-", dir="/tmp"))
        shutil.chown(self.folder, user, user)

    def launch(self, server, command, **options):
        log = open(self.folder / "log", "w+")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        try:
            wait_until(f"{server} answers", self.answers, 120, self.process)
        except Failure as failure:
            log.seek(0)
            raise Failure(f"{failure}\n{log.read()[-3000:]}") from None

    def end(self):
        self.process = None
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class Sysbench(Server):
    """A server with sysbench's tables; a class has `connection`, sysbench's options for it."""

    loads = ["oltp_read_only", "select_random_points", "oltp_read_write"]

    def command(self, workload, step, seconds):
        return ["sysbench", workload, *self.connection(), f"--tables={self.tables}", f"--table-size={self.rows}",
                "--threads=4", "--rand-type=pareto", "--rand-pareto-h=0.2", "--percentile=99", f"--time={seconds}",
                "--events=0", step]

    def sysbench(self, workload, step, seconds=0):
        return call(*self.command(workload, step, seconds))

    def measured(self, workload, seconds):
        text = self.sysbench(workload, "run", seconds)
        transactions = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", text)
        late = re.search(r"99th percentile:\s+([\d.]+)", text)
        return {"transactions/s": float(transactions[1]), "p99 ms": float(late[1])}


class MariaDb(Sysbench):
    """Small buffer pool, so that reads come from the cache of the mount."""

    name = "MariaDB with sysbench"
    packages = {"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server", "sysbench": "sysbench"}
    workloads = Sysbench.loads

    def __init__(self, quick):
        super().__init__()
        self.tables, self.rows = (2, 100_000) if quick else (4, 500_000)

    def prepare(self, data):
        shutil.chown(data, "mysql", "mysql")
        call("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={data}",
             "--auth-root-authentication-method=normal", "--skip-test-db")
        self.start(data)
        try:
            self.sql("CREATE DATABASE sbtest")
            self.sysbench("oltp_read_only", "prepare")
        finally:
            self.stop()

    def start(self, data):
        self.make_folder("mysql")
        self.launch(
            "MariaDB",
            ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={data}", f"--socket={self.folder}/socket",
             f"--pid-file={self.folder}/pid", "--skip-networking", "--innodb-buffer-pool-size=8M",
             "--innodb-log-file-size=48M", "--innodb-flush-log-at-trx-commit=1", "--innodb-flush-method=fsync",
             "--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0",
             "--max-connections=64", "--table-open-cache=64"])

    def answers(self):
        return subprocess.run(["mariadb-admin", "--no-defaults", f"--socket={self.folder}/socket", "ping"],
                              capture_output=True).returncode == 0

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(300)
        self.end()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.end()

    def sql(self, text):
        return call("mariadb", "--no-defaults", f"--socket={self.folder}/socket", "--batch", "-e", text)

    def connection(self):
        return ["--db-driver=mysql", f"--mysql-socket={self.folder}/socket", "--mysql-user=root", "--mysql-db=sbtest",
                "--mysql-ignore-errors=all"]

    def work(self, workload, _point, seconds):
        return self.measured(workload, seconds)

    def load(self, _point):
        return subprocess.Popen(self.command("oltp_read_write", "run", 600), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def check(self, _point):
        names = ", ".join(f"sbtest.sbtest{number}" for number in range(1, self.tables + 1))
        found = [line.split("\t") for line in self.sql(f"CHECK TABLE {names} EXTENDED").splitlines()[1:]]
        if len(found) != self.tables or any(line[3] != "OK" for line in found):
            raise Failure(f"CHECK TABLE found: {found}")
        return f"CHECK TABLE EXTENDED of {self.tables} tables: OK"


class PostgreSql(Sysbench):
    """Small shared buffers, so that reads come from the cache of the mount."""

    name = "PostgreSQL with pgbench and sysbench"
    workloads = ["select-only", "tpcb-like", *Sysbench.loads]

    def __init__(self, quick):
        super().__init__()
        self.scale = 5 if quick else 30
        self.tables, self.rows = (2, 50_000) if quick else (4, 250_000)
        self.packages = {"sysbench": "sysbench", **({} if self.binaries() else {"initdb": "postgresql"})}

    @staticmethod
    def binaries():
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: int(path.split("/")[4]))
        return pathlib.Path(found[-1]).parent if found else None

    def call(self, program, *arguments, **options):
        return call("runuser", "-u", "postgres", "--", self.binaries() / program, *arguments, cwd="/", **options)

    def prepare(self, data):
        shutil.chown(data, "postgres", "postgres")
        data.chmod(0o700)
        self.call("initdb", "-D", data, "--auth=trust", "--data-checksums")
        self.start(data)
        try:
            self.client("pgbench", "--initialize", "--quiet", f"--scale={self.scale}", "postgres")
            self.client("psql", "-c", "CREATE EXTENSION amcheck", "postgres")
            self.sysbench("oltp_read_only", "prepare")
        finally:
            self.stop()

    def client(self, program, *arguments):
        return self.call(program, "-h", self.folder, *arguments)

    def start(self, data):
        self.make_folder("postgres")
        command = ["runuser", "-u", "postgres", "--", str(self.binaries() / "postgres"), "-D", str(data), "-k",
                   str(self.folder), "-c", "listen_addresses=", "-c", "shared_buffers=8MB", "-c", "max_wal_size=128MB"]
        self.launch("PostgreSQL", command, cwd="/")
        # `runuser` is the parent of the server.
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.server = int(children[0]) if children else self.process.pid

    def answers(self):
        command = ["runuser", "-u", "postgres", "--", str(self.binaries() / "pg_isready"), "-h", str(self.folder)]
        return subprocess.run(command, cwd="/", capture_output=True).returncode == 0

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            os.kill(self.server, signal.SIGINT)
            self.process.wait(300)
        self.end()

    def kill(self):
        # The whole server at once, as when the machine fails: its children would stop by themselves.
        # It may also have ended by itself when the mount below it was gone.
        try:
            children = pathlib.Path(f"/proc/{self.server}/task/{self.server}/children").read_text().split()
        except FileNotFoundError:
            children = []
        for number in [self.server, *map(int, children)]:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        self.end()

    def connection(self):
        return ["--db-driver=pgsql", f"--pgsql-host={self.folder}", "--pgsql-user=postgres", "--pgsql-db=postgres"]

    def work(self, workload, _point, seconds):
        if workload in self.loads:
            return self.measured(workload, seconds)
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        shutil.chown(logs, "postgres", "postgres")
        text = self.client("pgbench", "--no-vacuum", "--client=4", "--jobs=2", f"--time={seconds}", "--log",
                           f"--log-prefix={logs}/log", f"--builtin={workload}", "postgres")
        late = []
        for log in logs.iterdir():
            # The third field is the time of a transaction in microseconds.
            late += [int(line.split()[2]) for line in log.read_text().splitlines()]
            log.unlink()
        late.sort()
        per_second = re.search(r"tps = ([\d.]+) \(without", text)
        return {"transactions/s": float(per_second[1]), "p99 ms": late[len(late) * 99 // 100] / 1000}

    def load(self, _point):
        command = ["runuser", "-u", "postgres", "--", str(self.binaries() / "pgbench"), "-h", str(self.folder),
                   "--client=4", "--time=600", "--no-vacuum", "postgres"]
        return subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def check(self, _point):
        self.client("pg_amcheck", "--all", "--heapallindexed", "--install-missing")
        sums = self.client("psql", "--tuples-only", "--no-align", "postgres", "-c",
                           "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(delta) FROM pgbench_history)")
        accounts, changes = sums.strip().split("|")
        if accounts != (changes or "0"):
            raise Failure(f"the accounts have {accounts}, and the history has {changes}")
        return "pg_amcheck --heapallindexed: clean; accounts and history agree"


LOAD = """
import random, sqlite3, sys, time
path, seconds, rows, writes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "mixed"
base = sqlite3.connect(path, isolation_level=None)
base.execute("PRAGMA cache_size=-1024")
base.execute("PRAGMA mmap_size=0")
draw = random.Random(7)
end, late = time.monotonic() + seconds, []
while True:
    began = time.monotonic()
    if began > end:
        break
    # Skewed to low keys, which are spread over the table.
    key = int(rows * draw.random() ** 4) * 7919 % rows
    if writes and len(late) % 10 == 9:
        base.execute("UPDATE t SET n = n + 1 WHERE id = ?", (key,))
    else:
        base.execute("SELECT n, filler FROM t WHERE id = ?", (key,)).fetchone()
    late.append(time.monotonic() - began)
late.sort()
print(len(late) / seconds, late[len(late) * 99 // 100] * 1000)
"""


class Sqlite:
    """Python's own SQLite, in WAL mode with 1 MiB of page cache."""

    name = "SQLite"
    packages = {}
    workloads = ["point reads", "mixed"]

    def __init__(self, quick):
        self.rows = 100_000 if quick else 1_000_000
        self.loading = None

    def prepare(self, data):
        import sqlite3
        base = sqlite3.connect(data / "db")
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, filler TEXT)")
        base.executemany("INSERT INTO t VALUES (?, 0, ?)", ((row, "x" * 200) for row in range(self.rows)))
        base.commit()
        base.close()

    def start(self, _point):
        """There is no server."""

    def stop(self):
        """There is no server."""

    def kill(self):
        if self.loading is not None:
            self.loading.kill()

    def command(self, workload, point, seconds):
        return [sys.executable, "-c", LOAD, str(point / "db"), str(seconds), str(self.rows), workload]

    def work(self, workload, point, seconds):
        per_second, late = map(float, call(*self.command(workload, point, seconds)).split())
        return {"transactions/s": per_second, "p99 ms": late}

    def load(self, point):
        self.loading = subprocess.Popen(self.command("mixed", point, 600), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        return self.loading

    def check(self, point):
        import sqlite3
        base = sqlite3.connect(point / "db")
        found = base.execute("PRAGMA integrity_check").fetchall()
        rows = base.execute("SELECT count(*) FROM t").fetchone()[0]
        base.close()
        if found != [("ok",)] or rows != self.rows:
            raise Failure(f"integrity_check found {found}; {rows} of {self.rows} rows")
        return "integrity_check: ok"
