"""The result tables: Arrow schemas with units and meanings, the contract with all analysis.

Times are virtual seconds since the start of the run, unless a column says otherwise. `TABLES`
lists every table; `SCHEMA_VERSION` changes when a column changes its meaning or goes away.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

SCHEMA_VERSION = 1

OUTCOMES = (
    "completed",
    "offline",
    "dropped",
    "late",
    "surplus",
    "too-stale",
    "unfinished",
)
"""How a dispatch ended. All but `completed` are discarded: their result columns are null."""

_INT, _FLOAT, _TEXT, _BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()


def _schema(table: str, *columns: tuple[str, pa.DataType, str, str]) -> pa.Schema:
    fields = [
        pa.field(name, kind, metadata={"unit": unit, "description": description})
        for name, kind, unit, description in columns
    ]
    return pa.schema(fields, metadata={"table": table, "version": str(SCHEMA_VERSION)})


_CAUSES = [
    (cause.replace("-", "_"), _INT, "dispatches", f"dispatches that ended as {cause}")
    for cause in OUTCOMES[1:]
]

TABLES: Mapping[str, pa.Schema] = {
    "rounds": _schema(
        "rounds",
        ("round", _INT, "1", "number of the server update, from 1; also the version it made"),
        ("time_s", _FLOAT, "s", "when it was committed"),
        ("selected", _INT, "dispatches", "distinct clients asked"),
        ("completed", _INT, "dispatches", "of which came back and were aggregated"),
        ("updates", _INT, "client updates", "aggregated since the start of the run"),
        ("lam", _FLOAT, "1", "λ; null where the weighting has none"),
        ("lam_max", _FLOAT, "1", "its bound λ_max; null where the weighting has none"),
        ("bytes_down", _INT, "B", "sent to clients since the start of the run"),
        ("bytes_up", _INT, "B", "received from clients since the start of the run"),
        ("step_norm", _FLOAT, "1", "Euclidean norm of the change of the model's parameters"),
        ("weight_sum", _FLOAT, "1", "sum of the aggregation weights ω_k"),
        ("H", _FLOAT, "loss", "H at the model the round started from; null unless audited"),
        ("delta", _FLOAT, "loss", "δ of the ranks the round used, at that model; as H"),
    ),
    "dispatches": _schema(
        "dispatches",
        ("dispatch", _INT, "1", "serial number, from 0"),
        ("round", _INT, "1", "server update that it was meant for"),
        ("client", _INT, "1", "client number"),
        ("ordinal", _INT, "1", "how many dispatches this client had before"),
        ("version", _INT, "1", "version of the model it was sent"),
        ("slots", _INT, "1", "how often the client was drawn for this round"),
        ("send_s", _FLOAT, "s", "the server sent the model"),
        ("start_s", _FLOAT, "s", "the client had it and began to train"),
        ("end_s", _FLOAT, "s", "the client stopped: done, dropped or gone offline"),
        ("arrival_s", _FLOAT, "s", "the reply reached the server; null if it never did"),
        ("notice_s", _FLOAT, "s", "the server knew the outcome"),
        ("outcome", _TEXT, "", " | ".join(OUTCOMES)),
        ("staleness", _INT, "versions", "model version at aggregation minus version sent"),
        ("steps", _INT, "steps", "local steps: all of the client's work, or those it had time for"),
        ("tilt", _FLOAT, "1", "λ r_k/(p_k |A|), the scalar sent with the model"),
        ("rank", _FLOAT, "1", "r_k (whole, but for soft signs); null where the weighting has none"),
        ("loss_local", _FLOAT, "loss", "F_k at the local model, as reported"),
        ("loss_received", _FLOAT, "loss", "F_k at the received model, as reported"),
        ("bytes_down", _INT, "B", "sent to the client"),
        ("bytes_up", _INT, "B", "received from the client"),
        ("weight", _FLOAT, "1", "aggregation weight ω_k (fedmgda: before λ* takes its place)"),
    ),
    "losses": _schema(
        "losses",
        ("time_s", _FLOAT, "s", "when the server learned it"),
        ("client", _INT, "1", "client number"),
        ("version", _INT, "1", "version of the model that the loss belongs to"),
        ("basis", _TEXT, "", "local, received or global: the model at which it was taken"),
        ("loss", _FLOAT, "loss", "F_k on the client's training data"),
        ("age", _INT, "versions", "age of the entry that it replaced; null for the first"),
    ),
    "ranks": _schema(
        "ranks",
        ("version", _INT, "1", "audited version of the model"),
        ("time_s", _FLOAT, "s", "when that version was sent out"),
        ("group", _INT, "1", "group number"),
        ("L_used", _FLOAT, "loss", "L_i from the losses known to the server; null if none was"),
        ("L_exact", _FLOAT, "loss", "L_i at the audited model"),
        ("r_used", _FLOAT, "1", "rank that the server used; null after the last round"),
        ("r_exact", _FLOAT, "1", "rank at the audited model, by the paper's definition"),
        ("age_mean", _FLOAT, "versions", "mean age of the known losses of the group"),
        ("age_max", _INT, "versions", "largest age of the known losses of the group"),
    ),
    "clients": _schema(
        "clients",
        ("client", _INT, "1", "client number"),
        ("name", _TEXT, "", "its name in the data; its number where it has none"),
        ("group", _INT, "1", "group number"),
        ("group_name", _TEXT, "", "name of the group"),
        ("train_samples", _INT, "samples", "n_k"),
        ("val_samples", _INT, "samples", "validation samples"),
        ("test_samples", _INT, "samples", "test samples"),
        ("p", _FLOAT, "1", "p_k = n_k / Σ n"),
        ("sample_s", _FLOAT, "s", "compute time of one sample's forward and backward pass"),
        ("up_mbps", _FLOAT, "Mbit/s", "uplink bandwidth"),
        ("down_mbps", _FLOAT, "Mbit/s", "downlink bandwidth"),
        ("latency_s", _FLOAT, "s", "one-way network latency"),
        ("dropout", _FLOAT, "1", "probability of dropping out of one dispatch"),
    ),
    "participation": _schema(
        "participation",
        ("version", _INT, "1", "version of the model at that moment"),
        ("time_s", _FLOAT, "s", "moment up to which everything is counted"),
        ("client", _INT, "1", "client number"),
        ("selected", _INT, "dispatches", "dispatches to the client"),
        ("completed", _INT, "dispatches", "of which were aggregated"),
        *_CAUSES,
        ("busy_s", _FLOAT, "s", "compute time of the client on dispatches"),
        ("wasted_s", _FLOAT, "s", "of which on dispatches that were discarded"),
        ("bytes", _INT, "B", "moved to and from the client"),
        ("wasted_bytes", _INT, "B", "of which for dispatches that were discarded"),
        ("weight", _FLOAT, "1", "sum of its aggregation weights ω_k"),
    ),
    "evaluations": _schema(
        "evaluations",
        ("evaluation", _INT, "1", "number of the evaluation, from 0"),
        ("version", _INT, "1", "version of the global model"),
        ("time_s", _FLOAT, "s", "when that version was made"),
        ("client", _INT, "1", "client number"),
        ("split", _TEXT, "", "train, val or test"),
        ("model", _TEXT, "", "global, or personal: the client's own model"),
        ("loss", _FLOAT, "loss", "mean loss over the samples"),
        ("samples", _INT, "samples", "samples evaluated"),
        ("correct", _INT, "samples", "of which were classified correctly; null for regression"),
        ("selected_ever", _BOOL, "", "whether an update of the client was ever aggregated"),
    ),
    "groups": _schema(
        "groups",
        ("evaluation", _INT, "1", "number of the evaluation, from 0"),
        ("version", _INT, "1", "version of the global model"),
        ("time_s", _FLOAT, "s", "when that version was made"),
        ("split", _TEXT, "", "train, val or test"),
        ("model", _TEXT, "", "global or personal"),
        ("group", _INT, "1", "group number"),
        ("clients", _INT, "clients", "members that were evaluated"),
        ("loss", _FLOAT, "loss", "mean over its members of their loss (L_i)"),
        ("accuracy", _FLOAT, "1", "mean over its members of their accuracy"),
        ("variance", _FLOAT, "1", "variance of accuracy over the groups (the paper's Def. 1)"),
        ("discrepancy", _FLOAT, "1", "largest minus smallest accuracy over the groups"),
    ),
    "timings": _schema(
        "timings",
        ("wall_s", _FLOAT, "s", "wall-clock time since the run started"),
        ("time_s", _FLOAT, "s", "virtual time at that moment"),
        ("what", _TEXT, "", "what was measured"),
        ("seconds", _FLOAT, "s", "wall-clock duration"),
    ),
}

DIGESTED = tuple(name for name in TABLES if name != "timings")
"""The tables that the logical digest covers: all but the wall clock."""
