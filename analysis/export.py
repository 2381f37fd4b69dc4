"""The tables of runs in other formats, and their curves for experiment trackers.

Every row begins with the run's folder, its label and its seed, so that tables of many runs can be
queried together. Tables are written batch by batch, whatever their size.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gifair_ray.analysis.load import RunTables
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

BATCH = 1 << 17
_WHO = [pa.field(name, kind) for name, kind in
        (("run", pa.string()), ("label", pa.string()), ("seed", pa.int64()))]  # fmt: skip


def export(runs: Sequence[RunTables], to: str, out: str | Path) -> None:
    """Write all tables of these runs: `to` is one of `FORMATS`, `out` a new folder or file."""
    if to not in FORMATS:
        raise BadInput(f"cannot export to {to!r}: it is one of {', '.join(FORMATS)}")
    FORMATS[to](runs, str(out))


def optional(name: str, extra: str) -> ModuleType:
    """A package that not everybody needs; BadInput says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise BadInput(
            f"this needs the package {name.partition('.')[0]}, which is not installed: "
            f"pip install 'gifair-ray[{extra}]'"
        ) from error


def name_of(run: RunTables) -> str:
    """What to call a run among others: its folder's name."""
    told = run.manifest
    return run.folder.name if run.folder is not None else f"{told['label']}-seed{told['seed']}"


def _schema(table: str) -> pa.Schema:
    return pa.schema([*_WHO, *TABLES[table]], metadata=TABLES[table].metadata)


def _batches(runs: Sequence[RunTables], table: str) -> Iterator[pa.RecordBatch]:
    schema = _schema(table)
    for run in runs:
        who = (name_of(run), run.manifest["label"], run.manifest["seed"])
        for batch in run.table(table).to_batches(max_chunksize=BATCH):
            first = [
                pa.repeat(pa.scalar(value, field.type), len(batch))
                for value, field in zip(who, _WHO, strict=True)
            ]
            yield pa.RecordBatch.from_arrays([*first, *batch.columns], schema=schema)


def _new(out: str) -> Path:
    path = Path(out)
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise BadInput(f"{path} is there already; choose another -o, or remove it")
    return path


def _to_files(ending: str, open_writer: Callable[[str, pa.Schema], Any]) -> Any:
    def write(runs: Sequence[RunTables], out: str) -> None:
        folder = _new(out)
        folder.mkdir(parents=True, exist_ok=True)
        for table in TABLES:
            with open_writer(str(folder / f"{table}.{ending}"), _schema(table)) as writer:
                for batch in _batches(runs, table):
                    writer.write_batch(batch)

    return write


def _to_duckdb(runs: Sequence[RunTables], out: str) -> None:
    duckdb = optional("duckdb", "duckdb")
    file = _new(out)
    file.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(str(file)) as database:
        for table in TABLES:
            rows = pa.RecordBatchReader.from_batches(_schema(table), _batches(runs, table))
            database.register("incoming", rows)
            database.execute(f'CREATE TABLE "{table}" AS SELECT * FROM incoming')
            database.unregister("incoming")


def scalars(run: RunTables) -> Iterator[tuple[str, int, float, float]]:
    """The run's curves: (name, version of the model, virtual seconds, value)."""
    from gifair_ray.analysis.course import course
    from gifair_ray.analysis.summary import MODELS, SPLITS, group_names

    for name in ("completed", "bytes_down", "bytes_up", "step_norm", "weight_sum", "H", "delta"):
        columns = run.table("rounds").select(["round", "time_s", name]).to_pydict()
        for version, time_s, value in zip(*columns.values(), strict=True):
            if value is not None:
                yield f"server/{name}", version, time_s, float(value)
    for split in SPLITS:
        for model in MODELS:
            way = course(run, split, model)
            for version, time_s, value in zip(way.rounds, way.time_s, way.accuracy, strict=True):
                if value == value:
                    yield f"{split}/{model}/accuracy", int(version), float(time_s), float(value)
    names = group_names(run)
    for row in run.table("groups").to_pylist():
        group = names.get(row["group"], f"group {row['group']}")
        for name in ("accuracy", "loss"):
            if row[name] is not None:
                tag = f"{row['split']}/{row['model']}/{name} of {group}"
                yield tag, row["version"], row["time_s"], row[name]


def _to_tensorboard(runs: Sequence[RunTables], out: str) -> None:
    """An event folder per run; the time of an event is virtual."""
    tensorboard = optional("tensorboardX", "tensorboard")
    folder = _new(out)
    for run in runs:
        with tensorboard.SummaryWriter(str(folder / name_of(run))) as writer:
            for tag, version, time_s, value in scalars(run):
                writer.add_scalar(tag, value, version, walltime=time_s)
            writer.add_text("scenario", f"```toml\n{run.scenario}\n```", 0, walltime=0.0)


def _to_mlflow(runs: Sequence[RunTables], out: str) -> None:
    """A run per run, in the experiment of the scenario's name; timestamps are virtual.

    `out` is the address of a tracking server, or a new file: a database of MLflow.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would call home
    mlflow = optional("mlflow", "mlflow")
    artifacts = None
    if "://" not in out:
        optional("sqlalchemy", "mlflow")
        file = _new(out).absolute()
        file.parent.mkdir(parents=True, exist_ok=True)
        out, artifacts = f"sqlite:///{file}", file.with_suffix(".artifacts").as_uri()
    client = mlflow.MlflowClient(tracking_uri=out)
    for run in runs:
        told = run.manifest
        found = client.get_experiment_by_name(told["name"])
        where = found.experiment_id if found else client.create_experiment(told["name"], artifacts)
        made = client.create_run(where, run_name=name_of(run), start_time=0)
        settings = {"seed": told["seed"], "algorithm": told["algorithm"], **run.settings}
        params = [mlflow.entities.Param(key, str(value)[:500]) for key, value in settings.items()]
        metrics = [
            mlflow.entities.Metric(_plain(tag), value, round(1000 * time_s), version)
            for tag, version, time_s, value in scalars(run)
        ]
        tags = [mlflow.entities.RunTag(k, str(told[k])) for k in ("label", "digest") if told.get(k)]
        for at in range(0, max(len(params), 1), 100):
            client.log_batch(made.info.run_id, params=params[at : at + 100], tags=tags)
        for at in range(0, len(metrics), 1000):
            client.log_batch(made.info.run_id, metrics=metrics[at : at + 1000])
        ended = {"done": "FINISHED", "running": "RUNNING", "interrupted": "KILLED"}
        client.set_terminated(made.info.run_id, ended.get(told["status"], "FAILED"))


def _plain(tag: str) -> str:
    """A name that MLflow takes: letters, digits and a few marks."""
    return "".join(c if c.isalnum() or c in "_-. /" else "_" for c in tag)


FORMATS: dict[str, Callable[[Sequence[RunTables], str], None]] = {
    "parquet": _to_files("parquet", pyarrow.parquet.ParquetWriter),
    "csv": _to_files("csv", pyarrow.csv.CSVWriter),
    "duckdb": _to_duckdb,
    "tensorboard": _to_tensorboard,
    "mlflow": _to_mlflow,
}
