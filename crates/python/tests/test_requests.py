"""Replays, curves, timelines, events, ablations, scenarios and fidelity, and their tables."""

import copy
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading

import numpy
import pyarrow
import pytest

import mglru


def test_a_row_per_trace_policy_size_and_seed(mixed):
    other = mglru.Trace([1, 2, 3] * 50, name="other")
    policies = ["linux-7.2 -reclaim_loop", "opt"]
    table = mglru.replay([mixed, other], ["10%", 1 << 20], policies, seeds=[1, 2])
    names = ("trace", "policy", "memory", "seed")
    rows = [tuple(row[name] for name in names) for row in table]
    assert rows == [
        (trace, policy, memory, seed)
        for trace in ("mixed", "other")
        for policy in policies
        for memory in ("10%", "1048576")
        for seed in (1, 2)
    ]
    assert table["memory_pages"][2] == 256


def test_the_command_in_the_wheel_gives_the_same_counts(tmp_path):
    path = tmp_path / "trace.plain"
    path.write_text("".join(f"{n * n % 997}\n" for n in range(30_000)))
    command = [sys.executable, "-m", "mglru", "replay", str(path), "--memory", "20%", "--json"]
    done = subprocess.run([*command, "--baseline", "arc"], capture_output=True, text=True, check=True)
    runs = json.loads(done.stdout)["runs"]
    table = mglru.replay(path, "20%", ["default", "arc"])
    assert [run["misses"] for run in runs] == table["misses"]
    refaults = runs[0]["counters"]["workingset_refault_file"]
    assert table["workingset_refault_file"] == [refaults, None]
    # The report has the command, not that of Python.
    report = path.with_suffix(".html")
    subprocess.run([*command, "--report", str(report)], capture_output=True, check=True)
    assert f"mglru replay {path} --memory 20% --json --report {report}" in report.read_text()
    wrong = subprocess.run([*command[:5], "--memory", "0"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "at least one page" in wrong.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"memory": "0"}, "memory: expected at least one page"),
        ({"memory": "ten"}, "memory: "),
        ({"memory": []}, "no memory sizes"),
        ({"memory": True}, "memory: expected text or a number"),
        ({"memory": None}, "memory: expected text or a number, not None"),
        ({"memory": 1 << 64}, "memory: `18446744073709551616` is too large"),
        ({"memory": 0.1}, "memory: 0.1 is no number of bytes; a share of the distinct pages is text"),
        ({"sample": "1%"}, "sample: expected a share of the pages"),
        ({"policy": "mru"}, "unknown policy `mru`; expected a preset"),
        ({"policy": "default +turbo"}, "turbo"),
        ({"policy": "linux-7.2 -fill_main"}, "fill_main has no effect under linux-7.2: it is a rule"),
        ({"policy": "arc +prefetch"}, "arc has no mechanisms"),
        ({"policy": 3}, "policy: expected names"),
        ({"policy": []}, "no policies"),
        ({"seeds": -1}, "seeds: -1 is not in 0"),
        ({"seeds": 1.5}, "seeds: expected a whole number"),
        ({"seeds": []}, "no seeds"),
        ({"warm": 2}, "warm: a share"),
        ({"writes": "perhaps"}, "expected rmw or blind"),
        ({"writes": None}, "writes: expected text, not None"),
        ({"swap_device": 5}, "swap_device: expected text, not 5"),
        ({"swap": "0"}, "swap needs at least"),
        ({"swap_device": "tape"}, "expected zram or disk"),
        ({"swappiness": 202}, "swappiness: expected 0 to 200"),
        ({"readahead": "1"}, "readahead: expected 4KiB"),
        ({"threads": -1}, "threads: -1"),
        ({"threads": 0}, "threads: 0: at least 1, or None"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(mixed, arguments, words):
    with pytest.raises(mglru.UsageError) as error:
        mglru.replay(mixed, **arguments)
    assert words in str(error.value)
    assert isinstance(error.value, ValueError)


def test_what_is_no_path_is_refused():
    for work, words in [
        (lambda: mglru.scenario(text=ENDLESS, world="real", directory=5), "directory: expected a path, not 5"),
        (lambda: mglru.fidelity(5), "results: expected a path, not 5"),
        (lambda: mglru.fidelity("results.csv", b"more.csv"), "also: expected a path, not b'more.csv'"),
    ]:
        with pytest.raises(mglru.UsageError, match=words):
            work()


def test_anonymous_pages_that_do_not_fit_fail_as_on_the_command_line():
    trace = mglru.Trace(range(30_000), anon=[True] * 30_000, writes=[True] * 30_000)
    with pytest.raises(mglru.WorkError, match="swap is full: give more --swap, or more --memory"):
        mglru.replay(trace, "100p", swap="100p")
    assert mglru.replay(trace, "100p", swap="30000p")["swap_pages"] == [30_000]


def test_tables_are_arrow_pandas_and_polars(mixed):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = mglru.replay(mixed, ["10%", "20%"], ["default", "lru"])
    arrow = pyarrow.table(table)
    assert arrow.to_pydict() == table.to_pydict() == table.to_arrow().to_pydict()
    assert arrow.schema.field("misses").type == pyarrow.uint64()
    assert arrow.schema.field("policy").type == pyarrow.string()
    assert isinstance(table.to_pandas(), pandas.DataFrame)
    assert table.to_pandas()["misses"].tolist() == table["misses"]
    assert isinstance(table.to_polars(), polars.DataFrame)
    assert table.to_polars()["pgsteal"].to_list() == table["pgsteal"]
    # The stream outlives the table.
    stream = table.__arrow_c_stream__()
    del table
    assert stream is not None


def test_tables_are_shown_and_not_pickled(mixed):
    table = mglru.replay(mixed, "10%")
    assert "miss_ratio" in repr(table) and "1 rows × " in repr(table)
    assert "<th>policy</th>" in table._repr_html_()
    with pytest.raises(TypeError, match="columns by name"):
        table[0]
    with pytest.raises(mglru.UsageError, match=r"expected a trace or a path, not 1; mglru.Trace\(pages\)"):
        mglru.replay([1, 2, 3])
    with pytest.raises(KeyError, match="speed"):
        table["speed"]
    with pytest.raises(TypeError, match="to_arrow"):
        pickle.dumps(table)
    assert copy.deepcopy([table])[0]["misses"] == copy.copy(table)["misses"] == table["misses"]


def test_timelines_have_generations(mixed):
    table = mglru.timeline(mixed, "10%", "linux-7.2")
    assert set(table["run"]) == {"multigen linux-7.2, 10%"}
    assert table["access"] == sorted(table["access"]) and table["access"][-1] == len(mixed)
    assert max(row["file_pages"] for row in table) > 0
    assert len(mglru.timeline(mixed, "10%", ["arc"])) == 0, "only the engine has one"


def test_events_are_those_of_the_replay(mixed):
    table = mglru.events(mixed, "10%", "linux-7.2")
    touches = [row for row in table if row["event"] == "touch"]
    assert len(touches) == len(mixed)
    assert [row["page"] for row in touches] == mixed.pages().tolist()
    misses = sum(not row["hit"] for row in touches)
    assert mglru.replay(mixed, "10%", "linux-7.2")["misses"] == [misses]
    assert {"insert", "evict", "age"} <= set(table["event"])
    part = mglru.events(mixed, "10%", "linux-7.2", accesses=(500, 600))
    assert set(part["access"]) == set(range(500, 600))
    with pytest.raises(mglru.UsageError, match="accesses: expected the first and the one after the last, not 5"):
        mglru.events(mixed, accesses=5)
    with pytest.raises(mglru.UsageError, match="only the engine has events"):
        mglru.events(mixed, policy="arc")
    with pytest.raises(mglru.UsageError, match="one replay"):
        mglru.events(mixed, policy=["default", "linux-7.2"])


def test_ablations_compare_seed_by_seed(mixed):
    table = mglru.ablate(mixed, "10%", preset="linux-7.2")
    assert {"misses", "refaults"} <= set(table["metric"])
    assert "workingset_rework + lulesh_fix + fault_placement" in table["without"]
    for row in table:
        assert row["change_low"] <= row["change"] <= row["change_high"], row
    assert {row["is_noise"] for row in mglru.ablate(mixed, runs=2)} == {None}, "two runs prove nothing"
    with pytest.raises(mglru.UsageError, match="runs: expected 1 to 1000"):
        mglru.ablate(mixed, runs=0)
    for names in (["turbo"], "turbo"):
        with pytest.raises(mglru.UsageError, match="unknown mechanism 'turbo'"):
            mglru.ablate(mixed, without=names)
    with pytest.raises(mglru.UsageError, match="unknown mechanism 'reclaimloop'; did you mean `reclaim_loop`"):
        mglru.ablate(mixed, without="reclaimloop")
    with pytest.raises(mglru.UsageError, match="share_momentum has no effect under default: it works through"):
        mglru.ablate(mixed, without="adaptive_newcomers", with_="share_momentum")
    with pytest.raises(mglru.UsageError, match="preset: expected text, not 5"):
        mglru.ablate(mixed, preset=5)


SCENARIO = """
[machine]
memory = "8MiB"
[[tenant]]
path = "web"
[[job]]
tenant = "web"
fio = "[pages]\\nrw=read\\nsize=4m"
[[action]]
at = "1ms"
write = { "web/memory.max" = "2M" }
[print]
files = ["web/memory.max"]
"""


def test_scenarios_from_text_and_files(tmp_path):
    result = mglru.scenario(text=SCENARIO)
    assert result.tenants["tenant"] == ["", "web"] and result.tenants["misses"] == [0, 1024]
    assert result.actions["error"] == [None] and result.failures == []
    assert result.readings["text"][-1].strip() == str(2 << 20)
    assert len(result.kills) == 0 and result.seconds > 0
    path = tmp_path / "web.toml"
    path.write_text(SCENARIO)
    assert mglru.scenario(path).tenants.to_pydict() == result.tenants.to_pydict()
    assert "accesses_per_second" in mglru.ablate(path, runs=1)["metric"]
    with pytest.raises(mglru.UsageError, match="web.toml:5:1: .* did you mean `path`"):
        mglru.scenario("web.toml", SCENARIO.replace("path =", "paths ="))
    with pytest.raises(mglru.UsageError, match="expected sim or real"):
        mglru.scenario(text=SCENARIO, world="moon")


def test_fidelity_repeats_the_kernels_runs(kernel_lab):
    table = mglru.fidelity(kernel_lab / "results.csv", kernel="7.2.12", workload="zipf12", lru="multigen")
    assert len(table) > 0 and set(table["within"]) == {True} and set(table["workload"]) == {"zipf12"}
    with pytest.raises(mglru.UsageError, match="has no such row"):
        mglru.fidelity(kernel_lab / "results.csv", kernel="2.4")


def test_plots(mixed, tmp_path):
    pytest.importorskip("matplotlib")
    curves = mglru.plot.mrc(mglru.mrc(mixed, ["default", "lru", "opt"]))
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["default", "lru", "opt"]
    same = [mglru.Trace(range(100), name=f"{folder}/trace.plain") for folder in "ab"]
    names = mglru.plot.mrc(mglru.mrc(same, "lru")).get_legend().get_texts()
    assert [text.get_text() for text in names] == ["a/trace.plain, lru", "b/trace.plain, lru"]
    curves.figure.savefig(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().count("<path") > 3
    table = mglru.timeline(mixed, "10%", ["linux-7.2", "linux-6.12"])
    with pytest.raises(mglru.UsageError, match="choose one run"):
        mglru.plot.generations(table)
    assert mglru.plot.generations(table, run="multigen linux-7.2, 10%").collections
    with pytest.raises(mglru.UsageError, match="choose a preset with the multi-gen LRU"):
        mglru.plot.generations(mglru.timeline(mixed))
    effects = mglru.ablate(mixed, runs=2)
    assert len(mglru.plot.ablation(effects).patches) == len(set(effects["without"]))
    with pytest.raises(mglru.UsageError, match="no column without"):
        mglru.plot.ablation(table)
    with pytest.raises(mglru.UsageError, match="a miss-ratio curve: expected a mglru.Table, not a dict"):
        mglru.plot.mrc(table.to_pydict())


ENDLESS = """
[machine]
memory = "8MiB"
[[tenant]]
path = "web"
[[job]]
tenant = "web"
fio = "[pages]\\nrw=randread\\nsize=4m\\ntime_based=1\\nruntime=1000000"
"""


def ablate_endless(trace, folder):
    (folder / "endless.toml").write_text(ENDLESS)
    mglru.ablate(folder / "endless.toml")


@pytest.mark.parametrize(
    "work",
    [
        lambda trace, folder: mglru.replay(trace, ["1%"] * 100, "default"),
        lambda trace, folder: mglru.scenario(text=ENDLESS),
        lambda trace, folder: mglru.scenario(text=ENDLESS, world="real", directory=folder),
        ablate_endless,
    ],
    ids=["replay", "scenario", "real scenario", "ablate"],
)
def test_an_interrupt_ends_the_work(work, tmp_path, interrupted):
    trace = mglru.Trace(numpy.arange(1_000_000) % 49_999)
    begun = threading.Event()
    with interrupted(begun), pytest.raises(KeyboardInterrupt):
        begun.set()
        work(trace, tmp_path)


READERS = {
    "scenario": lambda path: mglru.scenario(path).tenants["misses"],
    "ablate": lambda path: sorted(set(mglru.ablate(path, runs=1)["metric"]))[:1],
    "sweep": lambda path: mglru.sweep(path, path.parent / "rows").done_units,
}


@pytest.mark.parametrize("has_writer", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_an_interrupt_ends_a_wait_for_a_text(reader, has_writer, tmp_path, interrupted, monkeypatch):
    read, path = READERS[reader], tmp_path / "web.toml"
    os.mkfifo(path)
    # Open for both, so that opening it waits for nobody.
    writer = os.open(path, os.O_RDWR) if has_writer else None
    if writer is not None:
        os.write(writer, b"[machine]\n")
    begun, poll = threading.Event(), select.poll

    def waits():
        # The pipe is open, and will be closed.
        begun.set()
        return poll()

    with interrupted(begun), monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(select, "poll", waits)
        read(path)
    if writer is not None:
        os.close(writer)
    # Nothing is left behind that would read a part of the next one.
    (tmp_path / "loop.plain").write_text("1\n2\n1\n")
    text, answer = {
        "scenario": (SCENARIO, [0, 1024]),
        "ablate": (SCENARIO, ["accesses_per_second"]),
        "sweep": ("traces = ['loop.plain']\npolicies = ['lru', 'opt']\nmemory = ['1p']", 2),
    }[reader]
    longest = 16 << 20 if reader == "sweep" else 1 << 20
    texts = [
        (text.encode(), None),
        (b"\xff", "not UTF-8"),
        (b" " * longest + b"#", "the text is longer"),
        (b"x = 1", r"web.toml.*1"),
    ]
    for text, error in texts:
        thread = threading.Thread(target=path.write_bytes, args=[text])
        thread.start()
        if error is None:
            assert read(path) == answer
        else:
            with pytest.raises(mglru.UsageError, match=error):
                read(path)
        thread.join()


def test_an_interrupt_ends_the_command(tmp_path):
    path = tmp_path / "pages.plain"
    os.mkfifo(path)
    code = "import signal, mglru.__main__; signal.signal(2, signal.default_int_handler); mglru.__main__.main()"
    with subprocess.Popen([sys.executable, "-c", code, "replay", path, "--memory", "1p"]) as child:
        # Its other end opens once the command reads it.
        with path.open("wb"):
            child.send_signal(signal.SIGINT)
            assert child.wait() == -signal.SIGINT


def test_a_table_that_is_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "oom.csv")
    with pytest.raises(mglru.UsageError, match="oom.csv: a pipe or a device can be read once only"):
        mglru.fidelity(tmp_path / "oom.csv")


def test_the_import_is_light():
    code = "import sys, mglru; print([name for name in ('numpy', 'pandas', 'pyarrow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
