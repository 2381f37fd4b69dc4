"""The logical digest sees every value and nothing else; the recorder loses nothing on the way."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray import digest, recorder
from gifair_ray.commands import Nullable
from gifair_ray.digest import canonical, model_hash, run_digest, table_chain
from gifair_ray.errors import RunFailed
from gifair_ray.recorder import FolderRecorder, Recorder, to_table
from gifair_ray.results import read_manifest, read_table
from gifair_ray.tables import DIGESTED, TABLES

KINDS = {
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "real": (pa.float64(), st.floats(width=64)),
    "text": (pa.string(), st.text(max_size=3) | st.sampled_from(["", "\0", "a\0", "\0a"])),
    "flag": (pa.bool_(), st.booleans()),
}
ROW = st.tuples(*(st.none() | values for _, values in KINDS.values()))
ROWS = st.lists(ROW, max_size=12)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


def table(rows, cuts=()):
    """Rows as a table of one record batch, or of several that end at the cuts."""
    ends = sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)})
    parts, at = [], 0
    for end in ends:
        columns = [[row[i] for row in rows[at:end]] for i in range(len(SCHEMA))]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
        parts.append(pa.record_batch(arrays, schema=SCHEMA))
        at = end
    return pa.Table.from_batches(parts, SCHEMA)


def same(a, b):
    """Whether two values mean the same: NaN is NaN, −0 is +0, and null is only itself."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a is b if a is None or b is None else a == b


# What the digest does not see


@given(ROWS, st.lists(st.integers(0, 12), max_size=4), st.integers(1, 5))
@examples(100)
def test_where_batches_and_segments_end_does_not_matter(rows, cuts, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "BLOCK_ROWS", block)
        chain = table_chain(table(rows))
        assert table_chain(table(rows, cuts)) == chain
        assert table_chain(table(rows, cuts).combine_chunks()) == chain
        shifted = table([*rows[:1], *rows]).slice(min(1, len(rows)))  # an offset in its buffers
        assert table_chain(shifted) == chain
    assert len(chain) == -(-len(rows) // block)


NANS = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001]
NANS32 = [0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001]


@pytest.mark.parametrize(("kind", "patterns"), [("f8", NANS), ("f4", NANS32)])
def test_nan_and_zero_have_one_form_each(kind, patterns):
    nans = np.array(patterns, dtype=kind.replace("f", "u")).view(kind)
    assert len({canonical(nans[i : i + 1]).tobytes() for i in range(len(nans))}) == 1
    zeros = np.array([0.0, -0.0], dtype=kind)
    zeros.setflags(write=False)
    assert canonical(zeros).tobytes() == np.zeros(2, dtype=kind).tobytes()
    assert np.signbit(zeros[1])  # the argument stays as it was
    ordinary = np.array([1.5, -2.0, np.inf, -np.inf, 5e-324], dtype=kind)
    assert canonical(ordinary).tobytes() == ordinary.tobytes()


def test_tables_and_models_with_other_forms_of_nan_and_zero_are_the_same():
    odd = np.array([*NANS, 1 << 63], dtype=np.uint64).view(np.float64)
    plain = np.array([np.nan] * len(NANS) + [0.0])
    chains = [table_chain(pa.table({"x": pa.array(x, from_pandas=False)})) for x in (odd, plain)]
    assert chains[0] == chains[1]
    assert model_hash(odd) == model_hash(plain)
    assert model_hash(odd[::-1]) == model_hash(plain[::-1].copy())  # in any layout in memory


# What it does


@given(ROWS.filter(len), st.data(), st.integers(1, 5))
@examples(150)
def test_every_changed_value_is_seen_in_its_block_and_all_that_follow(rows, data, block):
    i = data.draw(st.integers(0, len(rows) - 1))
    j = data.draw(st.integers(0, len(SCHEMA) - 1))
    value = data.draw(st.none() | KINDS[SCHEMA.names[j]][1])
    assume(not same(value, rows[i][j]))
    changed = [list(row) for row in rows]
    changed[i][j] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digest, "BLOCK_ROWS", block)
        before, after = table_chain(table(rows)), table_chain(table(changed))
    first = i // block
    assert before[:first] == after[:first]
    assert all(a != b for a, b in zip(before[first:], after[first:], strict=True))


@given(st.lists(ROW, min_size=2, max_size=6), st.randoms())
@examples(60)
def test_the_order_of_rows_is_seen(rows, random):
    shuffled = rows[:]
    random.shuffle(shuffled)
    before, after = ([value for row in some for value in row] for some in (rows, shuffled))
    unchanged = all(same(a, b) for a, b in zip(before, after, strict=True))
    assert (table_chain(table(rows)) == table_chain(table(shuffled))) == unchanged


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a\0", "b"], ["a", "\0b"]),
        (["ab", ""], ["a", "b"]),
        ([None, "a"], ["a", None]),
        ([None, "a"], ["", "a"]),
        ([None], [""]),
        (["ä"], ["a"]),
    ],
)
def test_texts_are_told_apart(one, other):
    chains = [table_chain(pa.table({"x": pa.array(x, pa.string())})) for x in (one, other)]
    assert chains[0] != chains[1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_()], ids=str)
def test_null_is_not_zero(kind):
    zero = pa.array([0], pa.int64()).cast(kind)
    assert table_chain(pa.table({"x": zero})) != table_chain(pa.table({"x": pa.nulls(1, kind)}))


def test_every_single_bit_of_a_model_is_seen():
    for kind in (np.float64, np.float32):
        model = np.array([1.0, -2.5, 0.125], dtype=kind)
        raw = model.view(np.uint8)
        hashes = {model_hash(model)}
        for at in range(8 * len(raw)):
            changed = raw.copy()
            changed[at // 8] ^= 1 << at % 8
            hashes.add(model_hash(changed.view(kind)))
        assert len(hashes) == 8 * len(raw) + 1


EMPTY = {name: schema.empty_table() for name, schema in TABLES.items()}
MODEL = np.array([1.0, 2.0])


def filled(name):
    """One row of a table, with a number in every column."""
    columns = [pa.array([1], pa.int64()).cast(field.type) for field in TABLES[name]]
    return pa.table(columns, schema=TABLES[name])


@pytest.mark.parametrize("name", TABLES)
def test_a_run_is_all_of_its_tables_but_the_timings(name):
    bare = run_digest(EMPTY, MODEL, {})
    assert (run_digest(EMPTY | {name: filled(name)}, MODEL, {}) != bare) == (name != "timings")
    assert set(DIGESTED) == set(TABLES) - {"timings"}


def test_a_run_is_its_models_and_whose_they_are():
    runs = [
        (MODEL, {}),
        (MODEL + 1, {}),
        (MODEL, {0: MODEL}),
        (MODEL, {1: MODEL}),
        (MODEL, {0: MODEL, 1: MODEL}),
        (MODEL, {0: MODEL, 1: MODEL + 1}),
        (MODEL, {0: MODEL + 1, 1: MODEL}),
    ]
    assert len({run_digest(EMPTY, *models) for models in runs}) == len(runs)
    either_order = [{0: MODEL, 1: MODEL + 1}, {1: MODEL + 1, 0: MODEL}]
    assert len({run_digest(EMPTY, MODEL, personal) for personal in either_order}) == 1


# Rows into tables


def losses(*rows, **changes):
    """Rows (client, loss) of the table of losses."""
    n = len(rows)
    columns = {
        "time_s": np.zeros(n),
        "client": np.array([client for client, _ in rows]),
        "version": np.arange(n),
        "basis": ["local"] * n,
        "loss": np.array([loss for _, loss in rows], dtype=np.float64),
        "age": None,
    }
    return columns | changes


def test_columns_of_every_kind():
    whole = Nullable(np.array([3.0, np.inf, np.nan]))
    columns = losses((0, 0.1), (1, 0.2), (2, np.nan), age=whole)
    rows = to_table("losses", [columns])
    assert rows.schema == TABLES["losses"]
    assert rows["age"].to_pylist() == [3, None, None]
    assert rows["loss"].to_pylist()[:2] == [0.1, 0.2]
    assert math.isnan(rows["loss"][2].as_py())  # a NaN in a plain column is a value
    some = losses((0, 0.1), (1, 0.2), loss=Nullable(np.array([1.0, np.nan])))
    assert to_table("losses", [some])["loss"].to_pylist() == [1.0, None]
    # A NaN in a plain column stays a value beside a record whose nulls are NaN.
    beside = to_table("losses", [columns, some])["loss"].to_pylist()
    assert math.isnan(beside[2])
    assert beside[:2] + beside[3:] == [0.1, 0.2, 1.0, None]
    assert to_table("losses", [losses((0, 0.1))])["age"].to_pylist() == [None]


@given(st.permutations(range(5)), st.data())
@examples(60)
def test_a_value_is_the_same_whatever_it_is_recorded_with(order, data):
    records = [
        losses((0, np.nan), (1, np.inf), age=[1, 2]),
        losses((2, 0.5), age=None),
        losses((3, 0.0), (4, 0.0), loss=Nullable(np.array([np.nan, 2.0])), age=np.array([4, 5])),
        losses((5, -np.inf), age=Nullable(np.array([np.nan]))),
        losses((6, 1.5), loss=[None], age=[None]),
    ]
    records = [records[i] for i in order[: data.draw(st.integers(1, 5))]]
    together = to_table("losses", records)
    alone = pa.concat_tables(to_table("losses", [record]) for record in records)
    assert table_chain(together) == table_chain(alone)
    for record in records:
        assert len(record["client"]) == to_table("losses", [record]).num_rows


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c.pop("age"), "age"),
        (lambda c: c.update(los=c["loss"]), "los"),
        (lambda c: c.update(los=c.pop("loss")), "'los', 'loss'"),
    ],
)
def test_wrong_columns_are_refused_by_name(change, named):
    columns = losses((0, 0.1))
    change(columns)
    with pytest.raises(RunFailed, match=f"table losses: columns .*{named}"):
        to_table("losses", [losses((0, 0.1)), columns])


@pytest.mark.parametrize("column", [["local"], [], ["local"] * 3], ids=len)
def test_columns_of_different_lengths_are_refused_by_name(column):
    uneven = losses((0, 0.1), (1, 0.2), basis=column)
    # The lengths of the two records' columns may well sum to the same.
    even_out = losses((0, 0.1), (1, 0.2), basis=["local"] * (4 - len(column)))
    named = rf"table losses: .*'basis' has {len(column)} rows"
    with pytest.raises(RunFailed, match=named):
        to_table("losses", [uneven, even_out])
    with pytest.raises(RunFailed, match=named):
        Recorder().add("losses", uneven)


def test_memory_and_folder_hold_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 5)
    in_memory, in_folder = Recorder(), FolderRecorder(tmp_path)
    for i in range(20):
        rows = losses(*((k, i + k / 10) for k in range(i % 4 + 1)))
        for one in (in_memory, in_folder):
            one.add("losses", rows)
            one.timing(float(i), 0.0, "collect", 0.5)
    in_folder.close()
    in_folder.close()  # once more does no harm
    kept, written = in_memory.tables(), in_folder.tables()
    assert set(kept) == set(written) == set(TABLES)
    for name in DIGESTED:
        assert written[name].equals(kept[name])
    assert run_digest(written, MODEL, {}) == run_digest(kept, MODEL, {})
    assert written["timings"].num_rows == 20
    segments = sorted((tmp_path / "tables" / "losses").iterdir())
    assert [path.name for path in segments] == [f"{i:06d}.arrow" for i in range(len(segments))]
    assert len(segments) > 3
    for path in segments:  # each is an Arrow file of its own
        with pa.memory_map(str(path)) as source:
            assert pa.ipc.open_file(source).read_all().num_rows >= 1


def test_tables_can_be_read_while_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 2)
    written = threading.Semaphore(0)

    def write_and_tell(*args, write=recorder.write_segment):
        added = write(*args)
        written.release()
        return added

    monkeypatch.setattr(recorder, "write_segment", write_and_tell)
    writer = FolderRecorder(tmp_path)
    for i in range(1, 4):
        writer.add("losses", losses((0, float(i)), (1, float(i))))
        assert written.acquire(timeout=60)
        rows = read_table(tmp_path, "losses").to_pylist()
        assert [row["loss"] for row in rows] == [float(n) for n in range(1, i + 1) for _ in "ab"]
    # What is still being written is not there yet.
    (tmp_path / "tables" / "losses" / "000003.partial").write_bytes(b"ARROW1")
    assert read_table(tmp_path, "losses").num_rows == 6
    writer.close()


def fail(*args):
    raise OSError(28, "No space left on device")


def wait_for_failure(writer):
    until = time.monotonic() + 60
    while writer._failure is None and time.monotonic() < until:
        time.sleep(0.001)
    assert writer._failure is not None


def test_an_error_of_the_writer_reaches_whoever_adds(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    (tmp_path / "tables").write_text("a file where a folder should be")
    writer = FolderRecorder(tmp_path)
    writer.add("losses", losses((0, 0.1)))
    wait_for_failure(writer)
    for _ in range(2):
        with pytest.raises(RunFailed, match=f"cannot write results to {tmp_path}"):
            writer.add("losses", losses((1, 0.2)))
        with pytest.raises(RunFailed, match="what was written before is complete"):
            writer.close()
    assert not writer._thread.is_alive()


def test_a_writer_that_has_failed_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "QUEUED", 1)
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    monkeypatch.setattr(recorder, "write_segment", fail)
    writer = FolderRecorder(tmp_path)

    def add_more_than_there_is_room_for():
        for i in range(10_000):
            writer.add("losses", losses((0, float(i))))

    with pytest.raises(RunFailed, match="No space left on device"):
        add_more_than_there_is_room_for()
    with pytest.raises(RunFailed, match="No space left on device"):
        writer.close()
    assert not writer._thread.is_alive()


def test_an_error_of_the_last_write_is_raised_on_closing(tmp_path, monkeypatch):
    writer = FolderRecorder(tmp_path)
    writer.add("losses", losses((0, 0.1)))
    monkeypatch.setattr(recorder, "write_segment", fail)
    with pytest.raises(RunFailed, match="No space left on device"):
        writer.close()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"client": [1]}, "table losses: columns .*'age'"),
        ({}, "table losses: columns .*'age'"),
        (dict.fromkeys(TABLES["losses"].names), "table losses: .* all are None"),
        (losses((0, 0.1), (1, 0.2), client=np.arange(3)), "table losses: .*'client' has 3 rows"),
    ],
    ids=["one column", "no column", "no length", "lengths differ"],
)
def test_rows_that_do_not_fit_a_table_are_refused_when_they_are_added(tmp_path, record, message):
    writer = FolderRecorder(tmp_path)
    writer.add("losses", losses((0, 0.1)))
    with pytest.raises(RunFailed, match=message):
        writer.add("losses", record)
    writer.close()
    assert writer.tables()["losses"].num_rows == 1


def test_values_of_the_wrong_kind_reach_the_loop_too(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    writer = FolderRecorder(tmp_path)
    writer.add("losses", losses((0, 0.1), client=["first"]))
    wait_for_failure(writer)
    with pytest.raises(RunFailed, match="cannot write results"):
        writer.add("losses", losses((0, 0.1)))
    with pytest.raises(RunFailed, match="cannot write results"):
        writer.close()


def test_what_fills_no_batch_is_written_before_long(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_S", 0.01)
    written = threading.Event()

    def write_and_tell(*args, write=recorder.write_segment):
        added = write(*args)
        written.set()
        return added

    monkeypatch.setattr(recorder, "write_segment", write_and_tell)
    writer = FolderRecorder(tmp_path)
    for i in range(1, 4):  # and nothing is added while we wait
        writer.add("losses", losses((0, float(i))))
        assert written.wait(timeout=60)
        written.clear()
        rows = read_table(tmp_path, "losses")["loss"].to_pylist()
        assert rows == [float(n) for n in range(1, i + 1)]
    writer.close()
    assert len(list((tmp_path / "tables" / "losses").iterdir())) == 3


def test_whoever_adds_waits_for_a_writer_that_falls_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    monkeypatch.setattr(recorder, "QUEUED", 2)
    go, added, most = threading.Event(), [], []

    def write_when_told(*args, write=recorder.write_segment):
        go.wait(timeout=60)
        most.append(len(added) - len(most))
        return write(*args)

    monkeypatch.setattr(recorder, "write_segment", write_when_told)
    writer = FolderRecorder(tmp_path)

    def add():
        for i in range(50):
            writer.add("losses", losses((0, float(i))))
            added.append(i)

    loop = threading.Thread(target=add)
    loop.start()
    loop.join(timeout=0.2)
    assert loop.is_alive()
    go.set()
    loop.join(timeout=60)
    writer.close()
    assert max(most) <= 4  # two that wait, one that is being written, one on its way
    assert writer.tables()["losses"]["loss"].to_pylist() == [float(i) for i in range(50)]


SCENARIO = {
    "algorithm": "gifair-per",
    "data": {"source": "quadratic"},
    "model": {"kind": "quadratic", "init": 1.5},
    "work": {"steps": 2, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "all"},
    "weighting": {"lambda_fraction": 0.5},
    "devices": {"dropout": 0.2},
    "stop": {"rounds": 5},
}


def test_a_full_disk_ends_the_run_and_leaves_whole_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    failed = threading.Event()

    def fill_up(folder, name, written, rows, write=recorder.write_segment):
        if name == "dispatches" and written.segments == 2:
            failed.set()
            fail()
        return write(folder, name, written, rows)

    monkeypatch.setattr(recorder, "write_segment", fill_up)
    with pytest.raises(RunFailed, match=r"cannot write results to .*No space left on device"):
        gifair_ray.run(SCENARIO, backend="local", out=tmp_path / "run")
    assert failed.is_set()
    manifest = read_manifest(tmp_path / "run")
    assert manifest["status"] == "failed"
    assert "No space left" in manifest["error"]
    assert read_table(tmp_path / "run", "dispatches").num_rows >= 2
    assert not (tmp_path / "run" / "lock").exists()


def test_a_run_that_fails_at_its_start_leaves_what_it_wrote_and_no_thread(tmp_path):
    nobody = SCENARIO | {"availability": {"kind": "blocks", "offline": 1.0}}
    before = set(threading.enumerate())
    with pytest.raises(RunFailed, match="no client is ever online"):
        gifair_ray.run(nobody, backend="local", out=tmp_path / "run")
    assert read_manifest(tmp_path / "run")["status"] == "failed"
    assert set(threading.enumerate()) <= before
    assert read_table(tmp_path / "run", "clients").num_rows == 2


def test_a_run_in_memory_and_one_in_a_folder_have_one_digest(tmp_path):
    kept = gifair_ray.run(SCENARIO, backend="local")
    written = gifair_ray.run(SCENARIO, backend="local", out=tmp_path / "run")
    assert written.digest == kept.digest == read_manifest(tmp_path / "run")["digest"]
    other = gifair_ray.run(SCENARIO | {"seed": 1}, backend="local")
    assert other.digest != kept.digest
