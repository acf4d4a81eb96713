"""Traces from arrays, Arrow, files and streams; slices, samples, and bad input."""

import copy
import gzip
import io
import os
import pickle
import signal
import statistics
import subprocess
import sys
import threading

import numpy
import pyarrow
import pytest

import mglru
from mglru import _stream

PAGES = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


@pytest.mark.parametrize(
    "source",
    [
        PAGES,
        tuple(PAGES),
        iter(PAGES),
        list(numpy.array(PAGES)),
        numpy.ma.masked_array(PAGES),
        numpy.array(PAGES, dtype="u1"),
        numpy.array(PAGES, dtype=">i8"),
        numpy.array(PAGES * 2, dtype="i4")[: len(PAGES)],
        numpy.array([PAGES, PAGES], dtype="u8").T[:, 0],
        pyarrow.array(PAGES),
        pyarrow.chunked_array([PAGES[:4], PAGES[4:]]),
        pyarrow.array(PAGES, pyarrow.uint16()),
    ],
    ids=lambda source: f"{type(source).__module__}.{getattr(source, 'dtype', type(source).__name__)}",
)
def test_any_integers_are_pages(source):
    trace = mglru.Trace(source)
    assert trace.pages().tolist() == PAGES
    assert (len(trace), trace.distinct_pages, trace.name) == (10, 7, "pages")


def test_data_frames_give_their_columns():
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    for column in [polars.Series(PAGES), pandas.Series(PAGES)]:
        assert mglru.Trace(column).pages().tolist() == PAGES


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (numpy.array([1.0, 2.0]), "float64"),
        (numpy.array([[1, 2]]), "2 dimensions"),
        (numpy.array(5), "0 dimensions"),
        (numpy.array([1, -7, 3]), "access 1 is to page -7"),
        (numpy.array([True]), "bool"),
        (numpy.array([1, None]), "object"),
        (numpy.array(["2026-01-01"], dtype="M8[s]"), "datetime64"),
        (numpy.array([], dtype="i8"), "no page access"),
        (pyarrow.array([1, None]), "1 of 2 are null"),
        (pyarrow.array(["a"]), "string"),
        (pyarrow.array([-1]), "access 0 is to page -1"),
        ([1, -2], "access 1 is to page -2"),
        ([1 << 64], "access 0 is to page 18446744073709551616"),
        ([1, "2"], "access 1 is to '2'"),
        ([True], "access 0 is to True"),
        ([], "no page access"),
        ([1, numpy.bool_(True)], "access 1 is to"),
        (numpy.ma.masked_array([1, 2, 3], mask=[0, 1, 0]), "1 of 3 are masked"),
        (numpy.array([1.0, numpy.nan]), "float64, 1 of them missing"),
        (pyarrow.table({"page": [1]}), "a table of 1 columns: choose one"),
        (b"trace.bin", "bytes: a path is text"),
        ({1, 2}, "a set has no order"),
        ({1: 2}, "a dict has no order"),
        (7, "type int"),
        (None, "type NoneType"),
    ],
    ids=str,
)
def test_other_arrays_are_refused_with_the_place(source, words):
    with pytest.raises(mglru.UsageError, match=words):
        mglru.Trace(source)


def test_flags_belong_to_accesses():
    trace = mglru.Trace([1, 1, 2], writes=[True, False, True], mapped=numpy.array([0, 1, 1], dtype=bool))
    summary = trace.summary()
    assert (summary["writes"], summary["mapped"], summary["anon"]) == (2, 2, 0)
    with pytest.raises(mglru.UsageError, match="writes: expected one value for each of 3 accesses"):
        mglru.Trace([1, 1, 2], writes=[True])
    with pytest.raises(mglru.UsageError, match="anon: expected one dimension of booleans"):
        mglru.Trace([1, 1, 2], anon=numpy.array([0, 1, 1]))
    for flags in (pyarrow.array([True, False, True]), list(numpy.array([True, False, True]))):
        assert mglru.Trace([1, 1, 2], writes=flags).summary()["writes"] == 2
    with pytest.raises(mglru.UsageError, match="mapped: expected booleans, and access 0 has 1"):
        mglru.Trace([1], mapped=[1])
    with pytest.raises(mglru.UsageError, match="writes: expected one boolean for each access, not True"):
        mglru.Trace([1], writes=True)
    with pytest.raises(mglru.UsageError, match="writes: 1 of 2 are null"):
        mglru.Trace([1, 2], writes=pyarrow.array([True, None]))
    with pytest.raises(mglru.UsageError, match="anon: 1 of 2 are masked"):
        mglru.Trace([1, 2], anon=numpy.ma.masked_array([True, True], mask=[0, 1]))
    with pytest.raises(mglru.UsageError, match="writes: only for page numbers"):
        mglru.Trace("file", writes=[True])
    with pytest.raises(mglru.UsageError, match="format: only for files"):
        mglru.Trace([1], format="plain")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sample": "1%"}, "sample: expected a share of the pages, such as 0.01, not '1%'"),
        ({"sample": True}, "sample: expected a share"),
        ({"salt": 3}, "salt: only for a sample"),
        ({"name": 5}, "name: expected text, not 5"),
        ({"source": "x", "format": 5}, "format: expected text, not 5"),
        ({"source": "x", "unit_bytes": -1}, "unit_bytes: -1 is not in 0"),
        ({"source": "x", "decoded_accesses_max": -1}, "decoded_accesses_max: -1 is not in 0"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(mglru.UsageError, match=words):
        mglru.Trace(**{"source": [1], **arguments})


def test_files_of_any_format_are_read(tmp_path):
    plain = tmp_path / "trace.plain"
    plain.write_text("".join(f"{page}\n" for page in PAGES))
    trace = mglru.Trace(plain)
    assert trace.pages().tolist() == PAGES and trace.name == str(plain)
    assert trace.summary()["format"] == "plain"


def test_files_that_cannot_be_read_say_so(tmp_path):
    with pytest.raises(mglru.WorkError, match="nothing-here: No such file"):
        mglru.Trace(tmp_path / "nothing-here")
    bad = tmp_path / "bad.plain"
    bad.write_text("1\n2\nthree\n")
    with pytest.raises(mglru.Error, match="line 3"):
        mglru.Trace(bad, format="plain")
    assert mglru.Trace(bad, format="plain", lossy=True).summary()["skipped"] == 1
    with pytest.raises(mglru.UsageError, match="kernel-lab"):
        mglru.Trace(bad, format="tape")


def test_long_files_are_not_kept(tmp_path):
    path = tmp_path / "long.plain"
    path.write_text("".join(f"{n % 50}\n" for n in range(10_000)))
    long, short = mglru.Trace(path, decoded_accesses_max=100), mglru.Trace(path)
    assert (len(long), long.distinct_pages) == (10_000, 50)
    assert mglru.replay(long)["misses"] == mglru.replay(short)["misses"]
    with pytest.raises(mglru.UsageError, match="too long to be kept in memory"):
        long[:10]


def test_streams_are_read_once(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    text = "".join(f"{n % 50}\n" for n in range(10_000)).encode()
    memory = fsspec.filesystem("memory")
    memory.pipe("/traces/long.plain.gz", gzip.compress(text))
    url = "memory://traces/long.plain.gz"
    of_url = mglru.Trace(url, storage_options={})
    assert (len(of_url), of_url.distinct_pages, of_url.name) == (10_000, 50, url)
    assert pickle.loads(pickle.dumps(of_url)).pages().tolist() == of_url.pages().tolist()
    with memory.open("/traces/long.plain.gz") as file:
        of_file = mglru.Trace(file)
    assert of_file.pages().tolist() == of_url.pages().tolist()
    assert len(pickle.loads(pickle.dumps(of_file))) == 10_000
    (tmp_path / "long.plain").write_bytes(text)
    sample = mglru.Trace(io.BytesIO(text), format="plain", sample=0.3, decoded_accesses_max=100)
    assert sample.pages().tolist() == mglru.Trace(tmp_path / "long.plain", sample=0.3).pages().tolist()
    assert mglru.replay(sample, "50%")["accesses"] == [3000]


def test_streams_that_fail_say_so():
    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 1 << 20:
                raise ConnectionResetError(104, "the service hung up")
            return super().read(size)

    numbers = b"7\n" * (1 << 20)
    with pytest.raises(ConnectionResetError, match="the service hung up"):
        mglru.Trace(Failing(numbers), format="plain")
    with pytest.raises(mglru.WorkError, match="^stream: not a file, and longer than 10 records"):
        mglru.Trace(io.BytesIO(numbers), format="plain", decoded_accesses_max=10)
    with pytest.raises(mglru.Error, match="^stream.*line 2"):
        mglru.Trace(io.BytesIO(b"1\ntwo\n"), format="plain")
    with pytest.raises(mglru.UsageError, match="open it in binary mode"):
        mglru.Trace(io.StringIO("1\n"), format="plain")
    with pytest.raises(mglru.UsageError, match="tape"):
        mglru.Trace(io.BytesIO(numbers), format="tape")
    with pytest.raises(FileNotFoundError):
        mglru.Trace("memory://traces/nothing-here")
    with pytest.raises(mglru.UsageError, match="storage_options: only for a URL"):
        mglru.Trace([1], storage_options={})


def test_an_interrupt_ends_a_wait_for_a_stream(interrupted):
    reading = threading.Event()
    ended = threading.Event()

    class Silent(io.RawIOBase):
        def read(self, size=-1):
            reading.set()
            ended.wait()
            return b""

    with interrupted(reading):
        try:
            with pytest.raises(KeyboardInterrupt):
                mglru.Trace(Silent(), format="plain")
            assert not ended.is_set()
        finally:
            ended.set()


def test_an_interrupt_of_a_silent_standard_input_ends_the_program():
    code = "import sys, mglru; print('go', flush=True); mglru.Trace(sys.stdin.buffer, format='plain')"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler); {code}"]
    with subprocess.Popen(command, **pipes) as child:
        child.stdin.write(b"1\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"go\n"
        child.send_signal(signal.SIGINT)
        assert child.wait() == -signal.SIGINT
        assert b"KeyboardInterrupt" in child.stderr.read()


@pytest.mark.parametrize("has_writer", [False, True])
def test_an_interrupt_ends_a_wait_for_a_named_pipe(has_writer, tmp_path, interrupted, monkeypatch):
    path = tmp_path / "pages.plain"
    os.mkfifo(path)
    # Open for both, so that opening it waits for nobody.
    writer = os.open(path, os.O_RDWR) if has_writer else None
    if writer is not None:
        os.write(writer, b"1\n2\n")
    begun, interruptible = threading.Event(), _stream._interruptible

    def begins(work, pipe):
        def read():
            # From here on, an interrupt closes all that was opened. Before, it may come between two instructions of
            # Python, the first of which opened the pipe.
            begun.set()
            return work()

        return interruptible(read, pipe)

    with interrupted(begun), monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(_stream, "_interruptible", begins)
        mglru.replay(path, "1p")
    if writer is not None:
        os.close(writer)
    # Nothing is left behind that would read a part of the next trace.
    thread = threading.Thread(target=path.write_bytes, args=[b"1\n2\n1\n"])
    thread.start()
    trace = mglru.Trace(path)
    thread.join()
    assert trace.name == str(path) and trace.pages().tolist() == [1, 2, 1]
    assert pickle.loads(pickle.dumps(trace)).pages().tolist() == [1, 2, 1]


def test_a_copy_shares_what_was_decoded(tmp_path):
    path = tmp_path / "trace.plain"
    path.write_text("1\n2\n1\n")
    trace = mglru.Trace(path)
    path.unlink()
    for again in (copy.copy(trace), copy.deepcopy([trace])[0]):
        assert again.pages().tolist() == [1, 2, 1]


def test_parts():
    trace = mglru.Trace(PAGES)
    assert trace[2:5].pages().tolist() == [4, 1, 5]
    assert trace[-3:].pages().tolist() == [6, 5, 3]
    assert trace[2:8][1:3].pages().tolist() == [1, 5]
    for empty in (slice(5, 5), slice(8, 2), slice(100, 200)):
        with pytest.raises(mglru.UsageError, match="no page access"):
            trace[empty]
    with pytest.raises(mglru.UsageError, match="a step of 1"):
        trace[::2]
    with pytest.raises(TypeError, match="slices"):
        trace[3]


def test_reuse_distances_predict_lru(mixed):
    distances = mixed.reuse_distances()
    for pages in (1, 7, 100, 2000):
        misses = int(((distances < 0) | (distances >= pages)).sum())
        assert mglru.replay(mixed, f"{pages}p", "lru")["misses"] == [misses]


def test_traces_travel_to_other_processes(tmp_path):
    path = tmp_path / "trace.plain"
    path.write_text("1\n2\n1\n")
    for trace in (mglru.Trace(path), mglru.Trace(PAGES, writes=[True] * 10, name="mine")):
        again = pickle.loads(pickle.dumps(trace))
        assert (again.name, again.summary()) == (trace.name, trace.summary())


def test_a_relative_path_travels_to_other_folders(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "trace.plain").write_text("1\n2\n1\n")
    (tmp_path / "elsewhere" / "trace.plain").write_text("7\n")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(mglru.Trace("trace.plain"))
    assert pickle.loads(pickled).name == "trace.plain"
    monkeypatch.chdir("elsewhere")
    again = pickle.loads(pickled)
    assert (again.name, again.pages().tolist()) == (str(tmp_path / "trace.plain"), [1, 2, 1])
    assert pickle.loads(pickle.dumps(again)).pages().tolist() == [1, 2, 1]


def test_a_trace_travels_with_its_syncs_trims_and_numbering(tmp_path):
    path = tmp_path / "log.iolog"
    path.write_text(
        "fio version 2 iolog\n/a add\n/a open\n/a write 0 8192\n/a sync 0 0\n/a write 4096 8192\n"
        "/a trim 0 4096\n/a read 100 8192\n/a close\n"
    )
    sparse = mglru.Trace([n * n * 1_000_003 % (1 << 40) for n in range(3000)] * 2)
    with path.open("rb") as file:
        traces = [mglru.Trace(path)[:], mglru.Trace(path)[1:4], mglru.Trace(file), sparse[:], sparse[:5]]
    for trace in traces:
        again = pickle.loads(pickle.dumps(trace))
        assert again._native.state() == trace._native.state()
        assert mglru.replay(again, "50%")["misses"] == mglru.replay(trace, "50%")["misses"]
    assert pickle.loads(pickle.dumps(traces[0])).summary()["syncs"] == 1
    assert sparse[:5]._native.state()[1], "a part has the numbering of the whole"
    with pytest.raises(mglru.WorkError, match="this pickle of a trace is damaged"):
        mglru._trace._of_state("x", b"\xff" * 16, False, None, 0)


def test_threads_share_a_trace(mixed):
    expected = mglru.replay(mixed, "5%")["misses"]
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(mglru.replay(mixed, "5%", threads=1)["misses"]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_samples_estimate_the_whole():
    numbers = numpy.random.default_rng(7).zipf(1.2, 400_000) % 60_000
    trace = mglru.Trace(numpy.ascontiguousarray(numbers), name="zipf")
    sample = trace.sample(0.1)
    assert sample.sampled == 0.1 and 0.05 < sample.distinct_pages / trace.distinct_pages < 0.15
    sizes = ["10%", "2000p", "40%"]
    whole, part = (mglru.replay(one, sizes, ["lru", "default"]) for one in (trace, sample))
    assert part["sample"] == [0.1] * 6 and whole["sample"] == [1.0] * 6
    for row, estimate in zip(whole, part):
        assert abs(row["miss_ratio"] - estimate["miss_ratio"]) < 0.03, (row, estimate)
        assert abs(row["memory_pages"] / estimate["memory_pages"] - 1) < 0.1
        assert "estimates" in estimate["notes"]
    for share in (0, 1, -0.5, float("nan")):
        with pytest.raises(mglru.UsageError, match="0.01 or 1%"):
            trace.sample(share)
    with pytest.raises(mglru.UsageError, match="a sample already"):
        sample.sample(0.5)
    with pytest.raises(mglru.UsageError, match="none of its pages"):
        mglru.Trace([5]).sample(1e-9)
    with pytest.raises(mglru.UsageError, match="cannot be ablated"):
        mglru.ablate(sample)


def test_samples_with_other_salts_have_other_pages(tmp_path):
    numbers = [number * number % 9973 for number in range(40_000)]
    trace = mglru.Trace(numbers, name="squares")
    samples = [trace.sample(0.1, salt) for salt in range(3)]
    pages = [set(sample.pages().tolist()) for sample in samples]
    assert pages[0] == set(mglru.Trace(numbers, sample=0.1).pages().tolist()) != pages[1]
    assert all(0.05 * trace.distinct_pages < len(one) < 0.2 * trace.distinct_pages for one in pages)
    (tmp_path / "squares.plain").write_text("".join(f"{number}\n" for number in numbers))
    of_file = mglru.Trace(tmp_path / "squares.plain", sample=0.1, salt=2)
    assert of_file.pages().tolist() == samples[2].pages().tolist()
    assert mglru.replay(of_file, "5%")["misses"] == mglru.replay(samples[2], "5%")["misses"]
    assert pickle.loads(pickle.dumps(of_file)).pages().tolist() == samples[2].pages().tolist()
    note = mglru.replay(samples[1], "10%")["notes"][0]
    assert "in only" in note and "or compare samples with other salts" in note
    with pytest.raises(mglru.UsageError, match="replay the whole trace or a part"):
        mglru.events(samples[1])
    with pytest.raises(mglru.UsageError, match="salt: -1"):
        trace.sample(0.1, -1)


def test_several_salts_give_their_mean_and_deviation(tmp_path):
    numbers = [page * page % 20011 * (page % 3) for page in range(60_000)]
    path = tmp_path / "squares.plain"
    path.write_text("".join(f"{page}\n" for page in numbers))
    sizes, policies = ["5%", "300p"], ["default", "lru"]
    each = mglru.replay([mglru.Trace(path, sample=0.1, salt=salt) for salt in range(4)], sizes, policies)
    mean = mglru.replay(path, sizes, policies, sample=0.1, salts=4)
    assert len(mean) == 4 and mean["salts"] == [4] * 4 and mean["policy"] == each["policy"][:4]
    for row in range(4):
        ratios = each["miss_ratio"][row::4]
        assert mean["miss_ratio"][row] == pytest.approx(statistics.mean(ratios))
        assert mean["miss_ratio_deviation"][row] == pytest.approx(statistics.stdev(ratios))
    same = [mean["misses"], mean["miss_ratio_deviation"], mean["memory_pages"]]
    for source in (mglru.Trace(path), path.open("rb")):
        again = mglru.replay(source, sizes, policies, sample=0.1, salts=4)
        assert [again["misses"], again["miss_ratio_deviation"], again["memory_pages"]] == same
    one = mglru.replay(path, "5%", "lru", sample=0.1)
    assert one["misses"] == each["misses"][2:3] and "salts" not in one.column_names
    assert mglru.mrc(path, "lru", ["5%", "50%"], sample=0.1, salts=3)["salts"] == [3, 3]
    with pytest.raises(mglru.UsageError, match="salts: 4: .* only for a sample"):
        mglru.replay(path, salts=4)
    with pytest.raises(mglru.UsageError, match="salts: 0"):
        mglru.replay(path, sample=0.1, salts=0)
    with pytest.raises(mglru.UsageError, match="a sample already"):
        mglru.replay(mglru.Trace(path, sample=0.1), sample=0.1, salts=2)
