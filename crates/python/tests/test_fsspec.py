"""`mglru::` before a URL: fsspec's own tests, what is cached and forgotten, and readers of data."""

import os
import pickle
import subprocess
import sys
import threading

import fsspec
import fsspec.tests.abstract as abstract
import numpy
import pytest
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.implementations.memory import MemoryFileSystem

import mglru
from mglru.fsspec import CachedFileSystem, cache


class Counting(MemoryFileSystem):
    """A file system in memory that counts what it is asked for."""

    protocol = "counting"
    store: dict = {}
    pseudo_dirs = [""]

    def __init__(self, **options):
        super().__init__(**options)
        self.reads: list = []
        self.infos = 0

    def cat_file(self, path, start=None, end=None, **options):
        self.reads.append((path, start, end))
        return super().cat_file(path, start=start, end=end, **options)

    def info(self, path, **options):
        self.infos += 1
        return super().info(path, **options)


@pytest.fixture
def under():
    under = Counting(skip_instance_cache=True)
    under.store.clear()
    return under


@pytest.fixture
def fs(under):
    return CachedFileSystem(fs=under, block_size=64 << 10, fresh_s=1000)


CONTENT = numpy.random.default_rng(3).bytes(300_000)


def test_blocks_are_read_once(fs, under):
    under.pipe_file("/a/b", CONTENT)
    assert fs.cat_file("/a/b", 100, 200) == CONTENT[100:200]
    assert sum(end - start for _, start, end in under.reads) <= 128 << 10, "not the whole object"
    assert fs.cat_file("/a/b") == CONTENT and fs.cat_file("/a/b", -5) == CONTENT[-5:]
    assert sum(end - start for _, start, end in under.reads) == len(CONTENT)
    reads, infos = len(under.reads), under.infos
    with fs.open("/a/b") as file:
        file.seek(1000)
        assert file.read(10) == CONTENT[1000:1010] and (file.size, file.path) == (len(CONTENT), "/a/b")
    with pytest.raises(ValueError, match="closed file"):
        file.read(1)
    assert fs.cat_ranges(["/a/b"] * 2, [5, 70_000], [9, 70_009]) == [CONTENT[5:9], CONTENT[70_000:70_009]]
    assert fs.head("/a/b", 4) + fs.tail("/a/b", 4) == CONTENT[:4] + CONTENT[-4:]
    assert (len(under.reads), under.infos) == (reads, infos), "all of it is in memory"


def test_changes_through_it_are_seen_at_once(fs, under, tmp_path):
    (tmp_path / "file").write_bytes(b"put")
    under.pipe_file("/x/old", b"copied")
    changes = [
        (lambda: fs.pipe_file("/x/y", b"piped"), b"piped"),
        (lambda: fs.put_file(str(tmp_path / "file"), "/x/y"), b"put"),
        (lambda: fs.cp_file("/x/old", "/x/y"), b"copied"),
        (lambda: fs.copy("/x/old", "/x/y"), b"copied"),
        (lambda: fs.pipe({"/x/y": b"many"}), b"many"),
        (lambda: fs.mv("/x/old", "/x/y"), b"copied"),
        (lambda: fs.touch("/x/y"), b""),
    ]
    fs.pipe_file("/x/y", b"first")
    for change, expected in changes:
        fs.cat_file("/x/y")
        change()
        assert fs.cat_file("/x/y") == expected
    with fs.open("/x/y", "wb") as file:
        file.write(b"written")
        fs.exists("/x/y") and fs.cat_file("/x/y")
    assert fs.cat_file("/x/y") == b"written"
    for path in ("/x/y", "/x", "/x/*"):
        fs.pipe_file("/x/y", b"again")
        fs.cat_file("/x/y")
        fs.rm(path, recursive=True)
        with pytest.raises(FileNotFoundError):
            fs.cat_file("/x/y")


def test_a_state_that_was_asked_for_before_a_change_is_not_kept(fs, under):
    under.pipe_file("/x/y", b"old")
    ask = under.info

    def info(path, **options):
        state = ask(path, **options)
        under.info = ask
        fs.pipe_file("/x/y", b"changed meanwhile")
        return state

    under.info = info
    fs.cat_file("/x/y")
    assert fs.cat_file("/x/y") == b"changed meanwhile"


def test_the_end_of_a_write_is_seen_by_all_that_share_the_target(tmp_path):
    path = make_path_posix(str(tmp_path / "file"))
    sizes = (4096, 8192, 16384)
    first, *others = [CachedFileSystem(fs=LocalFileSystem(), block_size=size, fresh_s=1000) for size in sizes]
    first.pipe_file(path, b"old")
    with first.open(path, "wb") as writer:
        assert [other.cat_file(path) for other in others] == [b""] * 2, "it was emptied"
        writer.write(b"written")
    assert [other.cat_file(path) for other in others] == [b"written"] * 2


def test_a_transaction_is_seen_when_it_is_committed(tmp_path):
    fs = CachedFileSystem(fs=LocalFileSystem(), fresh_s=1000)
    path = make_path_posix(str(tmp_path / "file"))
    fs.pipe_file(path, b"old")
    with fs.transaction:
        with fs.open(path, "wb") as writer:
            writer.write(b"committed")
        assert fs.cat_file(path) == b"old"
    assert fs.cat_file(path) == b"committed"


def test_a_change_that_the_state_does_not_show_is_seen_beside_an_open_file(fs, under):
    under.info = lambda path, **options: {"name": path, "size": len(under.store[path].getvalue()), "type": "file"}
    fs.pipe_file("/x/y", b"old")
    with fs.open("/x/y") as file:
        assert file.read() == b"old"
        fs.pipe_file("/x/y", b"new")
        assert fs.cat_file("/x/y") == b"new"


def test_changes_behind_it_are_seen_when_its_state_is_old(under):
    fs = CachedFileSystem(fs=under, fresh_s=0)
    under.pipe_file("/f", b"one")
    file = fs.open("/f")
    assert fs.cat_file("/f") == b"one"
    under.pipe_file("/f", b"other")
    assert fs.cat_file("/f") == b"other"
    assert file.read() == b"one", "it was open, and its pages are in memory"
    fresh = CachedFileSystem(fs=under, fresh_s=1000)
    under.pipe_file("/f", b"more")
    assert fresh.cat_file("/f") == b"other"
    fresh.invalidate_cache()
    assert fresh.cat_file("/f") == b"more"


def test_objects_are_closed_when_there_are_too_many(under):
    fs = CachedFileSystem(fs=under, open_max=3, fresh_s=1000)
    for number in range(10):
        under.pipe_file(f"/n/{number}", bytes([number]))
    assert [fs.cat_file(f"/n/{number}") for number in range(10)] == [bytes([n]) for n in range(10)]
    assert len(fs._target.objects) == 3


def test_all_file_systems_share_one_budget_and_tenants_have_limits(under):
    under.pipe_file("/big", CONTENT)
    fs = CachedFileSystem(fs=under, tenant="small", tenant_max="64KiB", block_size=16 << 10)
    assert fs.cat_file("/big") == CONTENT
    stats = cache().tenant("small").stats()
    assert stats["max_pages"] == 16 and stats["usage_pages"] <= 16
    again = CachedFileSystem(fs=under, tenant="small", tenant_max="128KiB")
    assert again.cat_file("/big") == CONTENT and cache().tenant("small").stats()["max_pages"] == 32
    with pytest.raises(mglru.UsageError, match="the cache of this process has"):
        CachedFileSystem(fs=under, memory="3MiB")


def test_chained_urls(tmp_path):
    memory = fsspec.filesystem("memory")
    memory.pipe("/chain/words", b"some words")
    (tmp_path / "words").write_text("other words\nof two lines\n")
    with fsspec.open("mglru::memory://chain/words", mglru={"tenant": "chain"}) as file:
        assert file.read() == b"some words" and file.full_name == "memory:///chain/words"
    assert cache().tenant("chain").stats()["misses"] > 0
    with fsspec.open(f"mglru::file://{tmp_path}/words", "rt") as file:
        assert file.readlines() == ["other words\n", "of two lines\n"]
    with fsspec.open(f"mglru::{tmp_path}/words", "rb", compression=None) as file:
        assert file.read(5) == b"other"
    fs, path = fsspec.core.url_to_fs("mglru::memory://chain/words")
    assert isinstance(fs, CachedFileSystem) and fs.ls("chain", detail=False) == ["/chain/words"]
    copy = pickle.loads(pickle.dumps(fs))
    assert copy.cat_file(path) == b"some words"
    files = fsspec.open_files("mglru::memory://chain/*")
    assert [file.path for file in files] == ["/chain/words"]
    with fsspec.open("filecache::mglru::memory://chain/words", filecache={"cache_storage": str(tmp_path)}) as file:
        assert file.read() == b"some words"
    # It would set a cache in a file that reads from another one.
    blocks = {"cache_storage": str(tmp_path / "blocks")}
    chain = fsspec.open("blockcache::mglru::memory://chain/words", blockcache=blocks)
    with pytest.raises(mglru.UsageError, match="put mglru first"):
        chain.open()
    memory.rm("/chain", recursive=True)


def test_bad_requests(fs, under, tmp_path):
    under.pipe_file("/d/f", b"1")
    with pytest.raises(FileNotFoundError):
        fs.open("/missing")
    with pytest.raises(IsADirectoryError):
        fs.open("/d")
    with pytest.raises(mglru.UsageError, match="mglru needs a file system"):
        CachedFileSystem()
    with pytest.raises(mglru.UsageError, match="tenant_max|max: "):
        CachedFileSystem(fs=under, tenant="odd", tenant_max="much")
    found = fs.cat_ranges(["/d/f", "/missing"], 0, 1)
    assert found[0] == b"1" and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["/missing"], 0, 1, on_error="raise")
    for name, wrong in [("block_size", 0), ("block_size", "much"), ("fresh_s", "long"), ("open_max", "many")]:
        with pytest.raises(mglru.UsageError, match=f"^{name}: "):
            CachedFileSystem(fs=under, **{name: wrong})
    assert CachedFileSystem(fs=under, block_size="64KiB").block_size == 64 << 10


def test_a_failing_service_is_an_error_and_then_works_again(fs, under):
    under.pipe_file("/f", CONTENT)
    working = under.cat_file

    def fail(path, start=None, end=None, **options):
        raise ConnectionResetError(104, "the service hung up")

    under.cat_file = fail
    with pytest.raises(ConnectionResetError, match="the service hung up"):
        fs.cat_file("/f", 0, 10)
    under.cat_file = working
    assert fs.cat_file("/f") == CONTENT


def test_threads_share_what_is_read(under):
    under.pipe_file("/t", CONTENT)
    wrong = []

    def work() -> None:
        fs = CachedFileSystem(fs=under, fresh_s=1000)
        for start in range(0, len(CONTENT), 10_000):
            if fs.cat_file("/t", start, start + 10_000) != CONTENT[start : start + 10_000]:
                wrong.append(start)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sum(end - start for _, start, end in under.reads) == len(CONTENT)


def test_a_forked_child_has_a_cache_of_its_own():
    code = (
        "import fsspec, os; fsspec.filesystem('memory').pipe('/f', b'content');"
        "read = lambda: fsspec.filesystem('mglru', target_protocol='memory').cat_file('/f');"
        "first = read(); child = os.fork();"
        "child or os._exit(0 if read() == first else 1);"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), read())"
    )
    environment = {**os.environ, "MGLRU_CACHE_MEMORY": "4MiB"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout.strip() == "0 b'content'", done.stderr


# Readers of data.


def test_pandas_and_arrow_read_through_it(tmp_path):
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame({"page": range(50_000), "name": [f"n{n % 100}" for n in range(50_000)]})
    frame.to_parquet(tmp_path / "frame.parquet")
    frame.to_csv(tmp_path / "frame.csv", index=False)
    url = f"mglru::file://{tmp_path}/frame"
    before = cache().stats()["source_bytes"]
    fs, path = fsspec.core.url_to_fs(f"{url}.parquet")
    assert pandas.read_parquet(path, filesystem=fs).equals(frame)
    assert pandas.read_csv(fs.open(f"{url}.csv")).equals(frame)
    read = cache().stats()["source_bytes"]
    assert read > before
    if int(pandas.__version__.partition(".")[0]) >= 3:
        # Before, it takes such a URL for a path.
        assert pandas.read_parquet(f"{url}.parquet").equals(frame)
        assert pandas.read_csv(f"{url}.csv").equals(frame)
    assert pandas.read_csv(fs.open(f"{url}.csv")).equals(frame)
    table = parquet.read_table(path, filesystem=fs, columns=["page"])
    assert table.column("page").to_pylist() == list(range(50_000))
    assert cache().stats()["source_bytes"] == read, "the second time from memory"


def test_dask_reads_through_it(tmp_path):
    bag = pytest.importorskip("dask.bag")
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"line {number}\n" * 100)
    lines = bag.read_text(f"mglru::file://{tmp_path}/*.txt").compute(scheduler="threads")
    assert len(lines) == 300 and lines[150] == "line 1\n"


def test_zarr_reads_through_it(tmp_path):
    zarr = pytest.importorskip("zarr")
    numbers = numpy.arange(10_000).reshape(100, 100)
    array = zarr.open_array(str(tmp_path / "a.zarr"), mode="w", shape=(100, 100), chunks=(10, 10), dtype="i8")
    array[:] = numbers
    before = cache().stats()["source_bytes"]
    through = zarr.open_array(f"mglru::file://{tmp_path}/a.zarr", mode="r")
    assert (through[:] == numbers).all() and cache().stats()["source_bytes"] > before


# The tests that fsspec has for its own file systems.


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return CachedFileSystem(fs=MemoryFileSystem(skip_instance_cache=True))

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def fs_path(self):
        return ""


class LocalFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return CachedFileSystem(fs=LocalFileSystem(auto_mkdir=True))

    @pytest.fixture
    def fs_path(self, tmpdir):
        return make_path_posix(str(tmpdir))


class TestMemoryCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestMemoryGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestMemoryPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestMemoryPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestMemoryOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestLocalCopy(abstract.AbstractCopyTests, LocalFixtures):
    pass


class TestLocalGet(abstract.AbstractGetTests, LocalFixtures):
    pass


class TestLocalPut(abstract.AbstractPutTests, LocalFixtures):
    pass


class TestLocalPipe(abstract.AbstractPipeTests, LocalFixtures):
    pass


class TestLocalOpen(abstract.AbstractOpenTests, LocalFixtures):
    pass


def test_a_closed_object_refuses_every_use(tmp_path):
    (tmp_path / "words").write_bytes(b"some words")
    with fsspec.open(f"mglru::file://{tmp_path}/words") as file:
        assert file.read() == b"some words"
    uses = [
        lambda: file.readinto(bytearray(3)),
        lambda: file.read_at(3, 0),
        lambda: file.readall(),
        lambda: file.peek(),
        lambda: file.size,
        lambda: file.page(0),
        lambda: file.seek(0),
        lambda: file.tell(),
        lambda: file.read(1),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed file .*words"):
            use()
    assert file.closed and file.name.endswith("words")


def test_options_of_the_cache_reach_it_through_dask(tmp_path):
    bag = pytest.importorskip("dask.bag")
    (tmp_path / "words.txt").write_bytes(b"some\nwords\n")
    options = {"mglru": {"tenant": "text", "tenant_max": "1MiB"}}
    lines = bag.read_text(f"mglru::file://{tmp_path}/*.txt", storage_options=options)
    assert lines.compute(scheduler="sync") == ["some\n", "words\n"]
    assert mglru.fsspec.cache().tenant("text").stats()["max_pages"] == 256
