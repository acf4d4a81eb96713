"""The page cache: files, tenants, lent pages, sources, and bad input."""

import errno
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import weakref
import zipfile

import numpy
import pytest

import mglru

PAGE = 4096


@pytest.fixture
def cache():
    with mglru.Cache("4MiB") as cache:
        yield cache


@pytest.fixture
def data(tmp_path) -> bytes:
    content = numpy.random.default_rng(1).bytes(100 * PAGE + 123)
    (tmp_path / "data").write_bytes(content)
    return content


def test_files_are_binary_files(cache, tmp_path, data):
    with cache.open(tmp_path / "data") as file:
        assert (file.readable(), file.writable(), file.seekable(), file.size) == (True, False, True, len(data))
        assert file.read(10) == data[:10] and file.tell() == 10
        assert file.seek(-5, os.SEEK_END) == len(data) - 5 and file.read() == data[-5:]
        assert file.read(10) == b"" and file.read_at(7, PAGE - 3) == data[PAGE - 3 : PAGE + 4]
        file.seek(3 * PAGE - 2)
        buffer = bytearray(2 * PAGE)
        assert file.readinto(buffer) == 2 * PAGE and buffer == data[3 * PAGE - 2 : 5 * PAGE - 2]
        numbers = numpy.zeros(4, dtype="u4")
        file.seek(0)
        assert file.readinto(numbers) == 16 and numbers.tobytes() == data[:16]
        file.seek(0)
        assert b"".join(file) == data, "lines"
        with io.BufferedReader(cache.open(tmp_path / "data")) as buffered:
            assert buffered.read() == data
    with cache.open(tmp_path / "data") as file:
        assert file.evict() == 0 and file.stats()["cached_pages"] == 0
        file.read(5 * PAGE)
        assert file.stats()["misses"] > 0 and file.stats(0, 5 * PAGE)["cached_pages"] == 5


def test_writes_are_in_the_file_after_a_sync(cache, tmp_path):
    path = tmp_path / "new"
    with cache.open(path, "x+b") as file:
        assert file.write(b"abc" * 3000) == 9000 and file.tell() == 9000
        assert file.write_at(memoryview(b"XY"), 1) == 2
        file.write_at(numpy.array([1], dtype="<u4"), 8998)
        file.sync()
        expected = bytearray(b"abc" * 3000 + b"\0\0")
        expected[1:3], expected[8998:] = b"XY", b"\1\0\0\0"
        assert path.read_bytes() == expected
        assert file.truncate(100) == 100 and (file.size, file.read_at(200, 0)) == (100, bytes(expected[:100]))
        assert file.stats()["dirty_pages"] >= 0
    with pytest.raises(FileExistsError):
        cache.open(path, "xb")
    with cache.open(path, "w+b") as file:
        assert file.size == 0
    with cache.open(path, "r+b") as file, cache.open(path) as other:
        file.write(b"shared")
        assert other.read() == b"shared"


def test_other_programs_see_what_was_written_after_a_flush_and_after_a_close(cache, tmp_path):
    path = tmp_path / "new"
    with cache.open(path, "xb") as file, cache.open(path) as other:
        file.write(b"first")
        file.flush()
        assert path.read_bytes() == b"first"
        other.flush()
        file.write(b", second")
    assert path.read_bytes() == b"first, second"
    with cache.open(tmp_path / "archive", "w+b") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("name", b"content")
    assert zipfile.ZipFile(tmp_path / "archive").read("name") == b"content"
    with io.BufferedWriter(cache.open(tmp_path / "buffered", "xb")) as file:
        file.write(b"first")
        file.flush()
        file.raw.flush()
        assert (tmp_path / "buffered").read_bytes() == b"first"
        file.write(b", second")
    assert (tmp_path / "buffered").read_bytes() == b"first, second"
    file = cache.open(path, "r+b")
    file.write(b"FIRST")
    del file
    gc.collect()
    assert path.read_bytes() == b"FIRST, second"


def test_a_close_that_cannot_write_raises_and_keeps_the_bytes(tmp_path):
    # In another process, because the limit is for all of its files.
    code = """
import errno, mglru, resource, sys
path, _, hard = sys.argv[1], *resource.getrlimit(resource.RLIMIT_FSIZE)
with mglru.Cache("4MiB") as cache:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    file = cache.open(path, "w+b")
    file.write(b"0123456789" * 2000)
    try:
        file.close()
    except OSError as error:
        assert (error.errno, error.filename) == (errno.EFBIG, path), error
    else:
        sys.exit("it did not raise")
    assert file.closed
    file.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    cache.sync()
    assert open(path, "rb").read() == b"0123456789" * 2000
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "new")], check=True, timeout=60)


def test_a_read_to_the_end_sees_what_another_process_changed(cache, tmp_path):
    """Reads were cut to the length that the cache knew, so that `read()` gave nothing of what was appended."""
    path = tmp_path / "log"
    path.write_bytes(b"a" * 10_000)
    with cache.open(path) as file:
        assert file.read() == b"a" * 10_000 and file.read() == b""
        # A lent page stays as it was.
        last = file.page(2)
        with open(path, "ab") as other:
            other.write(b"b" * 10_000)
        assert file.read() == b"b" * 10_000 and file.tell() == file.size == 20_000
        assert bytes(last) == b"a" * (10_000 - 2 * PAGE)
        with open(path, "ab") as other:
            other.write(b"c" * 10_000)
        assert bytes(file.page(7)) == b"c" * (30_000 - 7 * PAGE)
        with open(path, "ab") as other:
            other.write(b"d")
        assert b"".join(file.views(29_999, 2)) == b"cd"
        os.truncate(path, 15_000)
        assert file.read_at(40_000, 0) == b"a" * 10_000 + b"b" * 5_000 and file.size == 15_000
        file.seek(0)
        assert len(file.read()) == 15_000


def test_dates_of_numpy_are_bytes(cache, tmp_path):
    """They are in no format that a memoryview has, and files of Python take them."""
    days = numpy.arange("2026-01-01", "2026-03-01", dtype="M8[D]")
    with cache.open(tmp_path / "days", "x+b") as file:
        assert file.write(days) == days.nbytes and file.write_at(days[:0], 0) == 0
        again = numpy.zeros_like(days)
        file.seek(0)
        assert file.readinto(again) == days.nbytes and (again == days).all()
        with pytest.raises(ValueError):
            file.write(days[::2])


def test_a_path_may_be_bytes_and_is_the_name_of_its_file(cache, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    with cache.open(path, "xb") as file:
        file.write(b"there")
    for path in (path, os.fsdecode(path)):
        with cache.open(path) as file:
            assert os.fsencode(file.name) == os.fsencode(path)
            assert file.read() == b"there"


def test_a_lent_page_is_a_view_that_outlives_everything(tmp_path, data):
    with mglru.Cache("4MiB") as cache:
        file = cache.open(tmp_path / "data")
        page = file.page(3)
        view = page.view
        assert view.readonly and (view.format, len(page), bytes(page)) == ("B", PAGE, data[3 * PAGE : 4 * PAGE])
        array = numpy.frombuffer(view, dtype="u1")
        part = view[10:20]
        assert file.page(100).view == data[100 * PAGE :]
        pieces = file.views(PAGE - 10, 2 * PAGE)
        assert [len(piece) for piece in pieces] == [10, PAGE, PAGE - 10]
        assert b"".join(pieces) == data[PAGE - 10 : 3 * PAGE - 10]
        page.release()
        with pytest.raises(ValueError, match="page 3 was released"):
            page.view
        file.close()
        del page, view, file
    gc.collect()
    assert array.tobytes() == data[3 * PAGE : 4 * PAGE] and part == data[3 * PAGE + 10 : 3 * PAGE + 20]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python are buffers from 3.12 on")
def test_a_page_itself_is_a_buffer(cache, tmp_path, data):
    with cache.open(tmp_path / "data") as file:
        assert numpy.frombuffer(file.page(1), dtype="u1").tobytes() == data[PAGE : 2 * PAGE]


def test_a_lent_page_cannot_be_written_until_it_is_released(cache, tmp_path, data):
    with cache.open(tmp_path / "data", "r+b") as file:
        page = file.page(2)
        for change in (
            lambda: file.write_at(b"x", 2 * PAGE + 5),
            lambda: file.write_at(b"x" * 3 * PAGE, PAGE),
            lambda: file.truncate(2 * PAGE + 1),
        ):
            with pytest.raises(BufferError, match="page 2 of .*data is lent: release its Page"):
                change()
        file.write_at(b"x", 3 * PAGE)
        assert bytes(page) == data[2 * PAGE : 3 * PAGE]
        part = page.view[:5]
        page.release()
        with pytest.raises(BufferError):
            file.write_at(b"x", 2 * PAGE)
        del part
        assert file.write_at(b"x", 2 * PAGE) == 1 and file.read_at(1, 2 * PAGE) == b"x"


def test_the_end_of_with_gives_a_page_back_unless_an_array_or_a_slice_has_it(cache, tmp_path, data):
    with cache.open(tmp_path / "data", "r+b") as file:
        with file.page(2) as view:
            assert view == data[2 * PAGE : 3 * PAGE]
        with pytest.raises(ValueError, match="released"):
            view[0]
        assert file.write_at(b"x", 2 * PAGE) == 1
        for over in (lambda view: numpy.frombuffer(view, dtype="u1"), lambda view: view[:]):
            with file.page(3) as view:
                array = over(view)
            del view
            with pytest.raises(BufferError):
                file.write_at(b"x", 3 * PAGE)
            assert bytes(array) == data[3 * PAGE : 4 * PAGE]
            del array
        assert file.write_at(b"x", 3 * PAGE) == 1


def test_a_page_that_was_given_back_can_be_evicted(cache, tmp_path, data):
    with cache.open(tmp_path / "data") as file:
        page = file.page(1)
        assert file.evict() == 1
        page.release()
        assert file.evict() == 0
        with file.page(1):
            pass
        file.advise("dont_need")
        assert file.stats()["cached_pages"] == 0


def test_the_backend_and_why_it_is_not_io_uring_are_known(cache, tmp_path):
    stats = cache.stats()
    assert (stats["backend"] == "io_uring") == (stats["why_not_uring"] is None)
    assert isinstance(stats["registered_buffers"], bool) and isinstance(stats["huge_pages"], bool)
    with mglru.Cache("1MiB", backend="threads") as other:
        assert other.stats()["backend"] == "threads" and other.stats()["why_not_uring"] is None


def test_tenants_have_limits_and_floors(cache, tmp_path, data):
    web = cache.add_tenant("web", max="64p", low="16KiB", min=PAGE)
    below = cache.add_tenant("web/images", high="32p")
    assert [tenant.name for tenant in cache.tenants][0] == "" and below.name == "web/images"
    with web.open(tmp_path / "data") as file:
        assert file.read() == data
    stats = web.stats()
    assert (stats["max_pages"], stats["low_pages"], stats["min_pages"], stats["high_pages"]) == (64, 4, 1, None)
    assert stats["usage_pages"] <= 64 and stats["misses"] > 0
    counters = stats["counters"]
    for name in ["pgscan", "pgsteal"]:
        assert counters[name] == sum(counters[f"{name}_{kind}"] for kind in ["kswapd", "direct", "proactive"]) > 0
    web.set(max=None, low="8p")
    assert (web.stats()["max_pages"], web.stats()["low_pages"]) == (None, 8)
    with pytest.raises(mglru.UsageError, match="unknown limit `lower`"):
        web.set(lower=1)
    with pytest.raises(mglru.UsageError, match="no tenant 'mail'"):
        cache.tenant("mail")
    with pytest.raises(mglru.UsageError):
        cache.remove_tenant("web")
    cache.remove_tenant("web/images")
    assert not below.is_online
    with pytest.raises(mglru.UsageError):
        cache.tenant().set(max="1MiB")
    assert 'mglru_tenant_usage_pages{tenant="web"}' in cache.prometheus_text()


def test_generations_of_a_tenant(tmp_path, data):
    with mglru.Cache("4MiB", policy="linux-7.2") as cache, cache.open(tmp_path / "data") as file:
        file.read()
        assert cache.stats()["preset"] == "linux-7.2"
        rows = cache.tenant().stats()["generations"]
        assert len(rows) >= 2 and {"seq", "age_ms", "file_pages", "anon_pages"} == set(rows[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"memory": "4KiB"}, "too small"),
        ({"memory": None}, "needs a budget"),
        ({"memory": "much"}, "memory: "),
        ({"memory": -1}, "memory: -1"),
        ({"memory": "1024TiB"}, "a budget of 1125899906842624 bytes is too large: .*: choose a smaller budget"),
        ({"policy": "mru"}, "unknown policy `mru`"),
        ({"policy": "arc"}, "a cache runs a preset"),
        ({"policy": None}, "policy: expected text, not None"),
        ({"backend": "tape"}, "backend: unknown `tape`; expected auto"),
        ({"backend": 3}, "backend: expected text, not 3"),
        ({"source_deadline_s": 0}, "source_deadline_s: 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(mglru.UsageError, match=words):
        mglru.Cache(**{"memory": "4MiB", **arguments})


def test_a_closed_cache_creates_no_file(tmp_path):
    cache = mglru.Cache("4MiB")
    tenant = cache.tenant()
    cache.close()
    for mode in ("xb", "wb"):
        with pytest.raises(mglru.UsageError, match="closed"):
            tenant.open(tmp_path / "new", mode)
        assert not (tmp_path / "new").exists(), mode


def test_errors_of_files_are_those_of_python(cache, tmp_path, data):
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as error:
        cache.open(missing)
    assert (error.value.errno, error.value.filename) == (errno.ENOENT, missing)
    assert str(error.value) == f"[Errno 2] cannot open: No such file or directory: {missing!r}"
    with pytest.raises(FileNotFoundError, match="cannot open: No such file or directory: ''"):
        cache.open("")
    with pytest.raises(mglru.UsageError, match="mode: unknown 'r'"):
        cache.open(tmp_path / "data", "r")
    with cache.open(tmp_path / "data") as file:
        with pytest.raises(io.UnsupportedOperation, match="opened for reading only: open it with the mode"):
            file.write(b"x")
        with pytest.raises(io.UnsupportedOperation, match="no descriptor"):
            file.fileno()
        with pytest.raises(mglru.UsageError, match="is beyond its end"):
            file.page(101)
        with pytest.raises(mglru.UsageError, match="is beyond its end"):
            file.views(len(data) - 2, 5)
        for offset in (1 << 20, 1 << 63, (1 << 64) - 1):
            with pytest.raises(mglru.UsageError, match=f"byte {offset + 9} of .* is beyond its end"):
                file.views(offset, 9)
        assert file.views(1 << 63, 0) == []
        with pytest.raises(TypeError, match="'str' object cannot be"):
            file.read("5")
        with pytest.raises(mglru.UsageError, match="offset: -1"):
            file.read_at(1, -1)
        with pytest.raises(OSError, match="before the beginning"):
            file.seek(-1)
        with pytest.raises(OverflowError):
            file.seek(1 << 70)
        assert file.readinto(numpy.zeros((0, 3))) == 0
        with pytest.raises(TypeError):
            file.seek(1.5)
        assert file.tell() == 0
        with pytest.raises(mglru.UsageError, match="unknown advice `soon`"):
            file.advise("soon")
        with pytest.raises(mglru.UsageError, match="advice: expected text, not None"):
            file.advise(None)
        others = (cache, cache.tenant(), file.page(0))
        for broken in (pickle.dumps, *(lambda _, other=other: pickle.dumps(other) for other in others)):
            with pytest.raises(TypeError, match="cannot be pickled"):
                broken(file)
    for operation in (lambda: file.read(1), lambda: file.tell(), lambda: file.size, lambda: file.page(0)):
        with pytest.raises(ValueError, match="closed file"):
            operation()
    with cache.open(tmp_path / "data", "r+b") as file, pytest.raises(OSError) as error:
        file.write_at(b"x", 1 << 44)
    assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(tmp_path / "data"))


def test_an_open_file_keeps_its_cache_open(tmp_path, data):
    file = mglru.Cache("4MiB").open(tmp_path / "data", "r+b")
    gc.collect()
    assert file.read(10) == data[:10]
    tenant = mglru.Cache("4MiB").add_tenant("web")
    gc.collect()
    with tenant.open(tmp_path / "data") as other:
        assert other.read(10) == data[:10]
    cache = weakref.ref(tenant._cache)
    del tenant, other
    gc.collect()
    assert cache() is None


def test_folders_and_devices_have_their_errors(cache, tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        cache.open(tmp_path)
    assert error.value.filename == str(tmp_path)
    with pytest.raises(OSError, match="only regular files") as error:
        cache.open("/dev/null")
    assert (error.value.errno, error.value.filename) == (errno.EINVAL, "/dev/null")


def test_a_closed_cache_raises_value_errors(tmp_path, data):
    cache = mglru.Cache("4MiB")
    tenant, file = cache.tenant(), cache.open(tmp_path / "data")
    file.read(1)
    cache.close()
    cache.close()
    assert cache.closed and "closed" in repr(cache)
    for operation in (
        lambda: cache.open(tmp_path / "data"),
        lambda: tenant.stats(),
        lambda: file.read(1),
        lambda: file.page(0),
        lambda: cache.stats(),
        lambda: cache.sync(),
    ):
        with pytest.raises(ValueError, match="the cache is closed: open the file through"):
            operation()
    file.close()


def test_a_function_is_a_source_of_blocks(cache):
    content = numpy.random.default_rng(2).bytes(300_000)
    asked = []

    def read(ranges):
        asked.extend(ranges)
        return [bytearray(content[start:end]) if start else content[start:end] for start, end in ranges]

    with cache.tenant().open_source(read, name="object", size=len(content), block_bytes=64 << 10) as file:
        assert file.read_at(10, 100_000) == content[100_000:100_010]
        assert file.read() == content and file.read_at(5, 7) == content[7:12]
        assert not file.writable()
        pages = [page for start, end in asked for page in range(start // PAGE, -(-end // PAGE))]
        assert sorted(pages) == list(range(-(-len(content) // PAGE))), "each page is asked for once"
    assert cache.stats()["source_bytes"] == len(content)


def test_errors_of_sources_reach_the_reader(cache):
    class Odd(Exception):
        pass

    answers = {
        "missing": (FileNotFoundError(2, "gone"), FileNotFoundError, errno.ENOENT),
        "words": (FileNotFoundError("bucket/key"), FileNotFoundError, errno.ENOENT),
        "late": (TimeoutError(), TimeoutError, errno.ETIMEDOUT),
        "reset": (ConnectionResetError("hung up"), ConnectionResetError, errno.ECONNRESET),
        "odd": (Odd("very"), OSError, errno.EIO),
        "short": (b"x", OSError, errno.EIO),
        "text": ("text", OSError, errno.EIO),
    }
    for name, (answer, expected, number) in answers.items():
        with cache.tenant().open_source(lambda ranges: [answer] * len(ranges), name=name, size=10) as file:
            with pytest.raises(expected) as error:
                file.read()
            assert (error.value.errno, error.value.filename) == (number, name)
            if isinstance(answer, Exception):
                assert error.value.__cause__ is answer and type(answer).__name__ in str(error.value)
            if isinstance(answer, str):
                # Not the answer itself, which may be long.
                assert "the source returned str for a range; expected bytes" in str(error.value)

    def fail(ranges):
        raise Odd("all of them")

    with cache.tenant().open_source(fail, name="fail", size=10) as file, pytest.raises(OSError, match="Odd: all"):
        file.read()
    with cache.tenant().open_source(lambda ranges: [], name="none", size=10) as file:
        with pytest.raises(OSError, match="gave no answer"):
            file.read()


def test_a_source_that_does_not_answer_times_out():
    ended = threading.Event()
    with mglru.Cache("4MiB", source_deadline_s=0.05) as cache:
        with cache.tenant().open_source(lambda ranges: ended.wait() and [], name="slow", size=10) as file:
            with pytest.raises(TimeoutError, match="did not answer within") as error:
                file.read()
            assert (error.value.errno, error.value.filename) == (errno.ETIMEDOUT, "slow")
        ended.set()


def test_threads_read_while_a_source_runs_python(cache):
    """Readers wait without Python's lock, which their source needs."""
    content = bytes(range(256)) * 4096
    read = lambda ranges: [content[start:end] for start, end in ranges]  # noqa: E731
    tenant = cache.add_tenant("small", max="256KiB")
    file = tenant.open_source(read, name="content", size=len(content), block_bytes=16 << 10)
    wrong = []

    def work(seed: int) -> None:
        for offset in numpy.random.default_rng(seed).integers(0, len(content) - 100, 500).tolist():
            if file.read_at(100, offset) != content[offset : offset + 100]:
                wrong.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and tenant.stats()["usage_pages"] <= 64


def test_a_child_of_the_process_is_refused_and_ends(cache, tmp_path, data):
    file = cache.open(tmp_path / "data")
    child = os.fork()
    if child == 0:
        try:
            file.read(1)
        except mglru.UsageError as error:
            os._exit(7 if "this is its child" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert file.read(1) == data[:1]


def test_a_lent_page_is_refused_in_a_child_of_the_process(cache, tmp_path, data):
    page = cache.open(tmp_path / "data").page(1)
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (bytes, len, lambda page: page.view, lambda page: page.__enter__()):
            try:
                use(page)
            except mglru.UsageError as error:
                refused += "this is its child" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert bytes(page) == data[PAGE : 2 * PAGE]


def test_a_program_that_closes_nothing_writes_and_ends(tmp_path):
    code = (
        "import mglru, sys; cache = mglru.Cache('4MiB'); file = cache.open(sys.argv[1], 'w+b');"
        "file.write(b'kept'); page = file.page(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "kept")], check=True, timeout=60)
    assert (tmp_path / "kept").read_bytes() == b"kept"


SILENT = """
import os
import mglru

def answer():
    while True:
        pass
    yield

class Last:
    def __del__(self, stat=os.stat):
        for _ in range(50_000):
            stat("/")

last = Last()
cache = mglru.Cache("4MiB", source_deadline_s=0.05)
try:
    cache.tenant().open_source({read}, name="silent", size=5).read()
except TimeoutError:
    print("done")
"""


@pytest.mark.parametrize("read", ["lambda ranges: next(answer())", "lambda ranges: answer()"])
def test_a_program_ends_while_a_source_still_runs(read):
    """The thread that called the source ended the process by a signal, before Python 3.14."""
    program = [sys.executable, "-c", SILENT.format(read=read)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_what_is_missing_is_asked_for_once():
    calls = []

    def read(ranges):
        calls.append(ranges)
        raise FileNotFoundError("gone")

    with mglru.Cache("4MiB") as cache:
        file = cache.tenant().open_source(read, name="gone", size=1 << 20)
        with pytest.raises(FileNotFoundError, match="gone"):
            file.read(10)
    assert len(calls) == 1


def test_a_source_that_reads_itself_is_told():
    files, calls = [], []

    def read(ranges):
        calls.append(ranges)
        return [files[0].read_at(end - start, start) for start, end in ranges]

    with mglru.Cache("4MiB") as cache:
        files.append(cache.tenant().open_source(read, name="selfish", size=1 << 20))
        for work in (lambda: files[0].read(10), lambda: files[0].page(7)):
            with pytest.raises(OSError, match="the source reads its own pages") as error:
                work()
            assert error.value.errno == errno.EDEADLK
        assert len(calls) == 2


@pytest.mark.parametrize("read_or_page", [lambda file: file.read(10), lambda file: file.page(0)], ids=["read", "page"])
def test_an_interrupt_ends_a_read_of_a_source_that_hangs(read_or_page, interrupted):
    asked, answer = threading.Event(), threading.Event()

    def read(ranges):
        asked.set()
        answer.wait()
        return [bytes(end - start) for start, end in ranges]

    with mglru.Cache("4MiB", source_deadline_s=20) as cache:
        file = cache.tenant().open_source(read, name="hangs", size=1 << 20)
        with interrupted(asked), pytest.raises(KeyboardInterrupt):
            read_or_page(file)
        assert cache.stats()["source_failures"] == 0, "it did not wait until the deadline"
        answer.set()
        assert file.read(10) == bytes(10)


SPARSE_BYTES = 512 << 20


@pytest.mark.parametrize(
    ("work", "is_done"),
    [
        (lambda file: file.read(), lambda file: file.stats()["hits"] + file.stats()["misses"] >= SPARSE_BYTES // PAGE),
        (lambda file: file.write_at(bytes(1 << 30), SPARSE_BYTES), lambda file: file.size == SPARSE_BYTES + (1 << 30)),
    ],
    ids=["read", "write"],
)
def test_an_interrupt_ends_long_work(work, is_done, cache, tmp_path, interrupted):
    """It comes when a page was missed, and what was not read or written by then is left."""

    def ends_early() -> bool:
        with open(tmp_path / "sparse", "wb") as sparse:
            sparse.truncate(SPARSE_BYTES)
        with cache.open(tmp_path / "sparse", "r+b") as file:
            begun, ended = threading.Event(), threading.Event()

            def look() -> None:
                while not ended.is_set() and file.stats()["misses"] == 0:
                    pass
                begun.set()

            thread = threading.Thread(target=look)
            thread.start()
            try:
                with interrupted(begun), pytest.raises(KeyboardInterrupt):
                    try:
                        work(file)
                    finally:
                        ended.set()
            finally:
                thread.join()
            ended_early = not is_done(file)
            assert file.tell() == 0 or not ended_early
            file.truncate(0)
        return ended_early

    # The work may be done before the signal is seen, if this machine gives the other threads no time.
    assert any(ends_early() for _ in range(10))
