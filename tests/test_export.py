"""Tables in other formats: nothing is lost, and what is missing is said."""

from __future__ import annotations

import struct
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from by_hand import small_run

from gifair_ray.analysis.export import export, scalars
from gifair_ray.cli import main
from gifair_ray.errors import BadInput
from gifair_ray.results import Written, write_segment
from gifair_ray.tables import TABLES

WHO = ["run", "label", "seed"]


@pytest.fixture
def runs():
    return [small_run("FedAvg", 0, plain=True), small_run("GIFAIR", 1)]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_per_table_with_all_rows_of_all_runs(runs, kind, tmp_path):
    export(runs, kind, tmp_path / "out")
    for name, schema in TABLES.items():
        file = tmp_path / "out" / f"{name}.{kind}"
        if kind == "parquet":
            found = pa.parquet.read_table(file)
            assert found.schema.field(schema.names[-1]).metadata[b"unit"] is not None
        else:
            kinds = {field.name: field.type for field in schema}
            options = pa.csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
            found = pa.csv.read_csv(file, convert_options=options)
        assert found.column_names == [*WHO, *schema.names]
        expected = [row for run in runs for row in run.table(name).to_pylist()]
        assert found.drop_columns(WHO).to_pylist() == expected
    assert set(found_labels(tmp_path / "out", kind)) == {"FedAvg", "GIFAIR"}


def found_labels(folder, kind):
    file = folder / f"rounds.{kind}"
    read = pa.parquet.read_table if kind == "parquet" else pa.csv.read_csv
    return read(file)["label"].to_pylist()


def test_a_database(runs, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    export(runs, "duckdb", tmp_path / "all.duckdb")
    with duckdb.connect(str(tmp_path / "all.duckdb"), read_only=True) as database:
        tables = {name for (name,) in database.execute("SHOW TABLES").fetchall()}
        assert tables == set(TABLES)
        query = "SELECT label, count(*), sum(weight) FROM dispatches GROUP BY label ORDER BY label"
        assert database.execute(query).fetchall() == [("FedAvg", 6, 2.5), ("GIFAIR", 6, 2.5)]


def test_curves_by_hand():
    found = {}
    for name, version, time_s, value in scalars(small_run()):
        found.setdefault(name, []).append((version, time_s, value))
    assert found["test/global/accuracy"] == [
        (0, 0.0, 0.0),
        (1, 5.0, 0.5),
        (2, 3600.0, pytest.approx(0.7)),
    ]
    assert found["test/global/accuracy of b"][-1] == (2, 3600.0, 0.5)
    assert found["server/delta"] == [(1, 5.0, 0.0), (2, 3600.0, 0.6)]
    assert "server/H" not in found  # never known


def test_events_for_tensorboard(runs, tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    export(runs, "tensorboard", tmp_path / "events")
    folders = sorted(path.name for path in (tmp_path / "events").iterdir())
    assert folders == ["FedAvg-seed0", "GIFAIR-seed1"]
    (file,) = (tmp_path / "events" / "GIFAIR-seed1").iterdir()
    data, found = file.read_bytes(), []
    while data:  # length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        for value in event.summary.value:
            if value.tag == "test/global/accuracy":
                found.append((event.step, event.wall_time, round(value.simple_value, 6)))
        data = data[16 + length :]
    assert found == [(0, 0.0, 0.0), (1, 5.0, 0.5), (2, 3600.0, 0.7)]


def test_runs_for_mlflow(runs, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own affair
        export(runs, "mlflow", tmp_path / "ml.db")
        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml.db'}")
        where = client.get_experiment_by_name("by-hand").experiment_id
        found = {run.info.run_name: run for run in client.search_runs([where])}
        assert set(found) == {"FedAvg-seed0", "GIFAIR-seed1"}
        run = found["GIFAIR-seed1"]
        assert run.data.params["seed"] == "1"
        assert run.data.metrics["test/global/accuracy"] == pytest.approx(0.7)
        history = client.get_metric_history(run.info.run_id, "test/global/accuracy")
        assert [(m.step, m.timestamp) for m in history] == [(0, 0), (1, 5000), (2, 3_600_000)]


@pytest.mark.parametrize(
    ("kind", "package"),
    [("duckdb", "duckdb"), ("tensorboard", "tensorboardX"), ("mlflow", "mlflow")],
)
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(
    runs, kind, package, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BadInput, match=rf"{package}.*pip install 'gifair-ray\[{kind}\]'"):
        export(runs, kind, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(runs, tmp_path):
    with pytest.raises(BadInput, match="'xml': it is one of parquet, csv"):
        export(runs, "xml", tmp_path / "x")
    export(runs, "csv", tmp_path / "out")
    for kind in ("csv", "parquet", "duckdb"):
        with pytest.raises(BadInput, match="is there already; choose another -o"):
            export(runs, kind, tmp_path / "out")


def test_the_command(tmp_path, capsys):
    import json

    folder = tmp_path / "run"
    run = small_run()
    for name in TABLES:
        if len(run.table(name)):
            write_segment(folder, name, Written(), run.table(name))
    (folder / "manifest.json").write_text(json.dumps(dict(run.manifest)))
    arguments = ["export", str(folder), "--to", "parquet", "-o", str(tmp_path / "p")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'p'}\n"
    assert (
        pa.parquet.read_table(tmp_path / "p" / "rounds.parquet")["run"].to_pylist() == ["run"] * 2
    )
    assert main(arguments) == 2
    with pytest.raises(SystemExit):
        main(["export", str(folder), "--to", "parquet"])
