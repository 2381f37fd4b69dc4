"""Reading runs: what is read, in which order, and what is refused with which words."""

import json

import pyarrow as pa
import pytest

from gifair_ray.analysis import RunTables, find_runs, load
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

MANIFEST = {
    "format": 1,
    "name": "smoke-0",
    "label": "FedAvg",
    "algorithm": "fedavg",
    "seed": 0,
    "status": "done",
    "digest": None,
}


def losses(*clients, schema=TABLES["losses"]):
    rows = [dict.fromkeys(schema.names) | {"client": client, "loss": 0.5} for client in clients]
    return pa.Table.from_pylist(rows, schema)


def write_segment(folder, name, table, kind="losses"):
    path = folder / "tables" / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def write_run(folder, **changes):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST | changes), encoding="utf-8")
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def test_segments_are_read_in_order_and_nothing_else_is(run):
    for name, client in (("000010", 3), ("000000", 1), ("000002", 2)):
        write_segment(run, f"{name}.arrow", losses(client))
    whole = write_segment(run, "000003.arrow.tmp", losses(9)).read_bytes()
    folder = run / "tables" / "losses"
    for name in ("3.arrow", ".000003.arrow", "0000003.arrow", "notes.txt", "٠٠٠٠٠٣.arrow"):
        (folder / name).write_bytes(whole[:50])
    table = load(run).table("losses")
    assert table["client"].to_pylist() == [1, 2, 3]
    assert table.schema.equals(TABLES["losses"], check_metadata=True)


def test_a_run_can_be_read_while_it_goes_on(run):
    opened = load(str(run))
    assert len(opened.table("losses")) == 0
    write_segment(run, "000000.arrow", losses(1))
    before = opened.table("losses")
    write_segment(run, "000001.arrow", losses(2))
    assert (len(before), len(opened.table("losses"))) == (1, 2)


def test_tables_outlive_their_files(run):
    path = write_segment(run, "000000.arrow", losses(1, 2))
    table = load(run).table("losses")
    path.unlink()
    assert table["client"].to_pylist() == [1, 2]


def test_a_segment_may_be_empty_or_have_several_batches(run):
    write_segment(run, "000000.arrow", losses())
    write_segment(run, "000001.arrow", pa.concat_tables([losses(1), losses(2)]))
    assert load(run).table("losses")["client"].to_pylist() == [1, 2]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_segments_is_empty_and_has_its_columns(run, name):
    for opened in (load(run), RunTables.of({})):
        table = opened.table(name)
        assert len(table) == 0
        assert table.schema.equals(TABLES[name], check_metadata=True)


def test_manifest_and_folder_are_kept(run):
    opened = load(run)
    assert opened.folder == run
    assert opened.manifest == MANIFEST


def test_an_unknown_table_is_refused(run):
    for opened in (load(run), RunTables.of({})):
        with pytest.raises(BadInput, match=r"no table 'loss': the tables are rounds, .*timings"):
            opened.table("loss")
    with pytest.raises(BadInput, match="no table 'loss'"):
        RunTables.of({"loss": losses(1)})


@pytest.mark.parametrize("length", [0, 5, 8, 300, -1], ids=lambda length: f"{length} bytes")
def test_a_segment_that_was_cut_short_is_refused_by_name(run, length):
    path = write_segment(run, "000000.arrow", losses(1, 2, 3))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BadInput, match=r"losses.000000\.arrow is corrupt or cut short.*run again"):
        load(run).table("losses")


def test_a_corrupt_segment_is_refused_or_read_but_never_fatal(run):
    path = write_segment(run, "000000.arrow", losses(*range(20)))
    whole = path.read_bytes()
    refused = []
    for at in range(0, len(whole), 61):
        path.unlink()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            assert load(run).table("losses").to_pylist() is not None
        except BadInput as error:
            refused.append(str(error))
    assert refused
    assert all("000000.arrow" in words for words in refused)


def versioned(version, kind="losses"):
    return TABLES["losses"].with_metadata({"table": kind, "version": version})


@pytest.mark.parametrize("version", ["0", "2", "x"])
def test_an_unknown_schema_version_is_refused(run, version):
    write_segment(run, "000000.arrow", losses(1))
    write_segment(run, "000001.arrow", losses(2, schema=versioned(version)))
    with pytest.raises(
        BadInput, match=rf"000001\.arrow has schema version {version}, .* reads 1: use"
    ):
        load(run).table("losses")
    with pytest.raises(BadInput, match=f"table 'losses' has schema version {version}"):
        RunTables.of({"losses": losses(1, schema=versioned(version))})


def test_a_table_without_a_version_is_refused():
    with pytest.raises(BadInput, match="has schema version none"):
        RunTables.of({"losses": losses(1).replace_schema_metadata(None)})


def test_a_segment_of_another_table_is_refused(run):
    write_segment(run, "000000.arrow", losses(1), kind="ranks")
    with pytest.raises(BadInput, match="holds table 'losses', not 'ranks'"):
        load(run).table("ranks")


def test_columns_may_be_added_without_a_new_version(run):
    older = losses(1).drop_columns(["age", "loss"])
    newer = losses(2).append_column("extra", [[1.5]])
    write_segment(run, "000000.arrow", older)
    write_segment(run, "000001.arrow", newer)
    table = load(run).table("losses")
    assert table.column_names == TABLES["losses"].names
    assert table["loss"].to_pylist() == [None, 0.5]


def test_a_column_of_another_type_is_refused():
    table = losses(1)
    schema = table.schema.set(1, pa.field("client", pa.int32()))
    with pytest.raises(BadInput, match="column 'client' is not one column of int64"):
        RunTables.of({"losses": table.cast(schema)})


def test_tables_in_memory_make_a_run():
    run = RunTables.of({"losses": losses(4)}, {"label": "GIFAIR", "seed": 3})
    assert run.folder is None
    assert run.table("losses")["client"].to_pylist() == [4]
    assert (run.manifest["label"], run.manifest["seed"]) == ("GIFAIR", 3)
    assert run.manifest["status"] == "done"


def test_a_folder_that_is_no_run_is_refused(tmp_path, run):
    for path in (tmp_path, tmp_path / "nowhere", run / "manifest.json"):
        with pytest.raises(BadInput, match=r"is not the folder of a run.*no manifest"):
            load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null"])
def test_a_manifest_that_is_not_one_is_refused(run, content):
    (run / "manifest.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"manifest\.json"):
        load(run)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 2, and this gifair-ray reads 1"),
        ({"label": None}, "lacks a valid label"),
        ({"seed": "0", "name": 1}, "lacks a valid name, seed"),
        ({"seed": True}, "lacks a valid seed"),
        ({"status": "lost"}, "status 'lost', which is none of running, done"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, change, words):
    with pytest.raises(BadInput, match=words):
        load(write_run(tmp_path / "run", **change))
    with pytest.raises(BadInput, match=words):
        RunTables.of({}, change)


def test_runs_are_found_below_a_folder_once_and_in_order(tmp_path):
    study = tmp_path / "study"
    runs = [write_run(study / name) for name in ("b/seed-1", "a", "b/seed-0")]
    write_run(runs[1] / "inner")  # belongs to run a
    (study / "empty").mkdir()
    expected = [study / "a", study / "b/seed-0", study / "b/seed-1"]
    assert find_runs(study) == find_runs([study]) == find_runs(str(study)) == expected
    assert find_runs([runs[0], study]) == [runs[0], *expected[:2]]
    assert find_runs(runs[1]) == [runs[1]]


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no run in"):
        find_runs(tmp_path)
    with pytest.raises(BadInput, match="is not a folder"):
        find_runs([tmp_path / "nowhere"])


# --- other libraries ------------------------------------------------------------------------------


def address(values):
    return values.__array_interface__["data"][0]


def test_tables_are_mapped_and_not_read(run):
    write_segment(run, "000000.arrow", losses(*range(10_000)))
    before = pa.total_allocated_bytes()
    table = load(run).table("losses")
    assert len(table) == 10_000
    assert pa.total_allocated_bytes() == before


def test_pandas_takes_every_column_without_a_copy(run):
    """Numbers, texts and nulls, of several segments."""
    pandas = pytest.importorskip("pandas")
    for i in range(2):
        write_segment(run, f"00000{i}.arrow", losses(*range(10_000)))
    table = load(run).table("losses")
    before = pa.total_allocated_bytes()
    frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    assert pa.total_allocated_bytes() - before < table.nbytes / 100
    assert frame["client"].tolist() == 2 * list(range(10_000))
    assert frame["age"].isna().all()
    taken = pa.chunked_array(frame["loss"].array.__arrow_array__())
    for ours, theirs in zip(table["loss"].chunks, taken.chunks, strict=True):
        assert ours.buffers()[1].address == theirs.buffers()[1].address


def test_polars_takes_numbers_without_a_copy(run):
    polars = pytest.importorskip("polars")
    for i in range(2):
        write_segment(run, f"00000{i}.arrow", losses(2 * i, 2 * i + 1))
    table = load(run).table("losses")
    frame = polars.from_arrow(table, rechunk=False)
    assert frame["client"].to_list() == [0, 1, 2, 3]
    for name in ("client", "loss"):
        ours = [chunk.to_numpy(zero_copy_only=True) for chunk in table[name].chunks]
        theirs = [part.to_numpy(allow_copy=False) for part in frame[name].get_chunks()]
        assert list(map(address, theirs)) == list(map(address, ours))
