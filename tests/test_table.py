"""The data source `table`: what it makes of a user's file, and what it says of a bad one."""

import math
import os
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gifair_ray.data import _columns
from gifair_ray.data.table import Table
from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.federation import SPLITS, DataSource, Shard, split_samples

FORMATS = ("parquet", "arrow", "csv")
FARM = {
    "client": ["ben", "anna", "ben", "anna", "cleo", "anna"],
    "group": ["farm", "city", "farm", "city", "farm", "city"],
    "split": ["train", "train", "test", "val", "train", "train"],
    "a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "b": [-1.5, -2.5, -3.5, -4.5, -5.5, -6.5],
    "y": ["dog", "cat", "cat", "dog", "dog", "emu"],
}


def without(*names):
    return {name: column for name, column in FARM.items() if name not in names}


def write(folder, columns, fmt="parquet", *, lists=None, chunk=None, name=None):
    """A file of this format; the features are folded into a list column x of the type `lists`."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if lists is not None:
        rows = list(zip(*(table[name].to_pylist() for name in ("a", "b")), strict=True))
        table = table.drop_columns(["a", "b"]).append_column("x", pa.array(rows, lists))
    name = name or f"table{len(list(Path(folder).iterdir()))}"  # a new file every time
    path = Path(folder) / f"{name}.{fmt}"
    if fmt == "parquet":
        pq.write_table(table, path, row_group_size=chunk)
    elif fmt == "csv":
        pcsv.write_csv(table, path)
    elif fmt == "feather":
        pyarrow.feather.write_feather(table, path, compression="lz4", chunksize=chunk)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=chunk)
    return str(path)


def build(path, seed=0, **options):
    return Table(path=path, **options).build(seed)


def refused(path, **options):
    with pytest.raises(BadInput) as caught:
        build(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def splits(shard):
    return [getattr(shard, name) for name in SPLITS]


def equal(one: Shard, other: Shard):
    for a, b in zip(splits(one), splits(other), strict=True):
        assert a.x.dtype == b.x.dtype
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.y, b.y)


# What a file means


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_small_federation_comes_back(tmp_path, fmt):
    federation = build(write(tmp_path, FARM, fmt))
    population = federation.population
    assert population.names == ("anna", "ben", "cleo")
    assert population.group_names == ("city", "farm")
    assert population.groups.tolist() == [0, 1, 1]
    assert [population.sizes(s).tolist() for s in SPLITS] == [[2, 1, 1], [1, 0, 0], [0, 1, 0]]
    assert (federation.task.input_shape, federation.task.classes) == ((2,), 3)
    anna = federation.shard(0)
    assert anna.train.x.tolist() == [[2.0, -2.5], [6.0, -6.5]]
    assert anna.train.y.tolist() == [0, 2]
    assert anna.val.x.tolist() == [[4.0, -4.5]]
    assert anna.test.x.shape == (0, 2)
    assert anna.train.x.dtype == np.float64
    assert anna.train.y.dtype == np.int64
    assert federation.shard(1).test.y.tolist() == [0]


def test_a_scenario_names_it():
    part = DataSource.model_validate({"source": "table", "path": "a.csv"})
    assert isinstance(part, Table)
    assert "-columns" not in DataSource.names()


@pytest.mark.parametrize("fmt", FORMATS)
def test_without_a_split_column_the_split_is_drawn_as_everywhere(tmp_path, fmt):
    n = 20
    x, y = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 3
    columns = {"client": ["k"] * n, "a": x[:, 0], "b": x[:, 1], "y": y}
    federation = build(write(tmp_path, columns, fmt), seed=5)
    equal(federation.shard(0), split_samples(5, 0, x, y, 0.1, 0.2))
    assert [len(s) for s in splits(federation.shard(0))] == [14, 2, 4]
    half = build(write(tmp_path, columns, fmt), val=0.0, test=0.5)
    assert [len(s) for s in splits(half.shard(0))] == [10, 0, 10]


@pytest.mark.parametrize("fmt", FORMATS)
def test_groups_each_and_no_group_column_make_every_client_its_own(tmp_path, fmt):
    own = build(write(tmp_path, FARM, fmt), groups="each").population
    bare = build(write(tmp_path, without("group"), fmt)).population
    assert own.groups.tolist() == bare.groups.tolist() == [0, 1, 2]
    assert own.group_names == bare.group_names == own.names
    torn = FARM | {"group": ["farm", "farm", "farm", "city", "farm", "city"]}
    assert build(write(tmp_path, torn, fmt), groups="each").population.d == 3


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.string()])
def test_whole_numbers_sort_as_numbers_in_every_format(tmp_path, fmt, kind):
    columns = without("group", "split") | {
        "client": pa.array([10, 9, 10, 9, 100, 9]).cast(kind),
        "y": pa.array([11, 2, 2, 11, 3, 3]).cast(kind),
    }
    federation = build(write(tmp_path, columns, fmt), val=0, test=0)
    assert federation.population.names == ("9", "10", "100")
    assert sorted(federation.shard(0).train.y.tolist()) == [0, 1, 2]
    assert sorted(federation.shard(1).train.y.tolist()) == [0, 2]


def test_leading_zeros_in_csv_stay_apart(tmp_path):
    columns = without("group", "split") | {"client": ["01", "1", "01", "1", "1", "01"]}
    assert build(write(tmp_path, columns, "csv")).population.names == ("01", "1")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0.0, 1.0, 5.0, 0.0, 1.0, 5.0], [0, 1, 2, 0, 1, 2]),
        ([True, False, True, True, False, False], [1, 0, 1, 1, 0, 0]),
        ([-2, 7, 7, -2, 0, 0], [0, 2, 2, 0, 1, 1]),
        ([Decimal("3.0"), Decimal("1.0")] * 3, [1, 0] * 3),
    ],
)
@pytest.mark.parametrize("fmt", FORMATS)
def test_labels_of_all_kinds(tmp_path, fmt, labels, classes):
    columns = without("group", "split") | {"client": ["k"] * 6, "y": labels}
    shard = build(write(tmp_path, columns, fmt), val=0, test=0).shard(0)
    order = np.argsort(shard.train.x[:, 0])
    assert shard.train.y[order].tolist() == classes


def test_columns_may_have_other_names(tmp_path):
    names = {"client": "who", "y": "what", "group": "where", "split": "when", "x": "input"}
    table = pa.table({names.get(name, name): column for name, column in FARM.items()})
    path = write(tmp_path, table, lists=pa.list_(pa.float64()))
    table = pq.read_table(path).rename_columns({"x": "input"})
    renamed = build(write(tmp_path, table), **names)
    plain = build(write(tmp_path, FARM, lists=pa.list_(pa.float64())))
    assert renamed.population.fingerprint() == plain.population.fingerprint()
    equal(renamed.shard(0), plain.shard(0))


def test_columns_that_are_no_features_are_left_out(tmp_path):
    table = pa.table(FARM | {"note": ["n"] * 6, "index": list(range(6))})
    pandas = b'{"index_columns": ["index"], "columns": []}'
    path = write(tmp_path, table.replace_schema_metadata({b"pandas": pandas}))
    assert build(path).task.input_shape == (2,)
    path = write(tmp_path, table.replace_schema_metadata({b"pandas": b"]["}))
    assert build(path).task.input_shape == (3,)
    unnamed = pa.table({"": list(range(6))} | FARM)
    assert build(write(tmp_path, unnamed, "csv")).task.input_shape == (2,)


def test_a_list_column_wins_over_other_numbers(tmp_path):
    table = pq.read_table(write(tmp_path, FARM, lists=pa.list_(pa.float32())))
    path = write(tmp_path, table.append_column("age", pa.array([1] * 6)))
    assert build(path).task.input_shape == (2,)


def test_names_with_dots_are_single_columns(tmp_path):
    columns = {f"t.{name}": column for name, column in FARM.items()} | {"t": ["text"] * 6}
    options = {name: f"t.{name}" for name in ("client", "group", "split", "y")}
    for fmt in FORMATS:
        assert build(write(tmp_path, columns, fmt), **options).task.input_shape == (2,)


def test_one_feature_may_be_a_column_of_its_own(tmp_path):
    columns = without("a", "b") | {"x": FARM["a"]}
    for fmt in FORMATS:
        federation = build(write(tmp_path, columns, fmt))
        assert federation.task.input_shape == (1,)
        assert federation.shard(2).train.x.tolist() == [[5.0]]
    message = refused(write(tmp_path, columns | {"z": FARM["a"]}))
    assert "'x'" in message
    assert "'z'" in message


def test_the_current_folder_and_home_are_where_paths_start(tmp_path, monkeypatch):
    path = write(tmp_path, FARM, name="table")
    expected = build(path).population.fingerprint()
    monkeypatch.chdir(tmp_path)
    federation = build("table.parquet")
    assert federation.population.fingerprint() == expected
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(federation.shard(0).train) == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert build("~/table.parquet").population.fingerprint() == expected


# How a file may be laid out


def null_bitmap(array):
    """The same array with a validity bitmap that says that nothing is null."""
    buffers = array.buffers()
    buffers[0] = pa.py_buffer(b"\xff" * (len(array) // 8 + 1))
    return pa.Array.from_buffers(array.type, len(array), buffers)


def dictionary(array):
    """Dictionary-encoded, with an entry that is not used and not in sorted order."""
    encoded = pa.array(array).dictionary_encode()
    entries = pa.concat_arrays([pa.array(["zz unused"]), encoded.dictionary])
    indices = pa.array([i + 1 for i in encoded.indices.to_pylist()], pa.int8())
    return pa.DictionaryArray.from_arrays(indices, entries)


LAYOUTS = {
    "large strings": lambda c: pa.array(c, pa.large_string()),
    "dictionary": dictionary,
    "null bitmap": lambda c: null_bitmap(pa.array(c)),
    "chunks": lambda c: pa.chunked_array([c[:1], [], c[1:4], c[4:]], pa.string()),
    "dictionary per chunk": lambda c: pa.chunked_array([dictionary(c[:2]), dictionary(c[2:])]),
    "sliced": lambda c: pa.array(["drop", *c, "drop"]).slice(1, len(c)),
    "run lengths": lambda c: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(c) + 1), pa.int32()), pa.array(c)
    ),
    "views": lambda c: pa.array(c, pa.string_view()),
}


@pytest.mark.parametrize(
    ("fmt", "layout"),
    [
        *(("stream", layout) for layout in LAYOUTS),
        *(("arrow", layout) for layout in LAYOUTS if layout != "dictionary per chunk"),
        *(("parquet", layout) for layout in LAYOUTS if layout not in ("run lengths", "views")),
    ],
)
def test_layouts_of_keys_mean_the_same(tmp_path, fmt, layout):
    expected = build(write(tmp_path, FARM, "csv"))
    texts = ("client", "group", "split", "y")
    table = pa.table({n: LAYOUTS[layout](c) if n in texts else c for n, c in FARM.items()})
    if fmt == "stream":
        path = str(tmp_path / "table.arrow")
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    else:
        path = write(tmp_path, table, fmt, chunk=4)
    federation = build(path)
    assert federation.population.fingerprint() == expected.population.fingerprint()
    for client in range(3):
        equal(federation.shard(client), expected.shard(client))


NUMBERS = {
    pa.float16(): np.float32,
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.int8(): np.float32,
    pa.uint16(): np.float32,
    pa.int32(): np.float64,
    pa.int64(): np.float64,
    pa.uint64(): np.float64,
    pa.decimal128(8, 2): np.float64,
}


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_layouts_of_lists_mean_the_same(tmp_path, fmt, number):
    whole = FARM | {"b": FARM["a"][::-1]}
    if number == pa.decimal128(8, 2):
        whole |= {name: [Decimal(v) for v in whole[name]] for name in "ab"}
    elif not pa.types.is_floating(number):
        whole |= {name: [int(v) for v in whole[name]] for name in "ab"}
    expected = None
    lists = [pa.list_(number), pa.large_list(number), pa.list_(number, 2), pa.list_view(number)]
    for kind in lists[: None if fmt == "arrow" else 3]:
        for chunk in (None, 1, 4):
            federation = build(write(tmp_path, whole, fmt, lists=kind, chunk=chunk))
            expected = expected or federation
            assert federation.task == expected.task
            for client in range(3):
                equal(federation.shard(client), expected.shard(client))
    assert expected.shard(0).train.x.dtype == NUMBERS[number]
    assert expected.shard(0).train.x.tolist() == [[2.0, 5.0], [6.0, 1.0]]


def test_columns_of_several_types_are_features_together(tmp_path):
    columns = FARM | {
        "b": pa.array([1, 2, 3, 4, 5, 6], pa.int8()),
        "c": [True, False] * 3,
        "d": pa.array([0.5] * 6, pa.float32()),
    }
    for fmt in FORMATS:
        assert build(write(tmp_path, columns, fmt)).shard(2).train.x.tolist() == [[5, 5, 1, 0.5]]


def test_an_extension_type_is_read_as_what_it_stores(tmp_path):
    tensor = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    storage = pa.array([[i, 0, 0, 1] for i in range(6)], pa.list_(pa.float32(), 4))
    x = pa.ExtensionArray.from_storage(tensor, storage)
    federation = build(write(tmp_path, without("a", "b") | {"x": x}, "arrow"))
    assert federation.shard(2).train.x.tolist() == [[4, 0, 0, 1]]


def test_files_larger_than_a_step_and_arrow_is_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(_columns, "STEP", 2)
    monkeypatch.setattr(_columns, "_CSV_BLOCK", 160)
    n = 11
    columns = {
        "client": [f"c{i % 3}" for i in range(n)],
        "split": ["train"] * n,
        "a": [float(i) for i in range(n)],
        "b": [i / 4 for i in range(n)],
        "y": [i % 2 for i in range(n)],
    }
    by_column = [build(write(tmp_path, columns, fmt)) for fmt in FORMATS]
    lists = pa.list_(pa.float64(), 2)
    by_list = [build(write(tmp_path, columns, fmt, lists=lists)) for fmt in ("parquet", "arrow")]
    for federation in (*by_column, *by_list):
        for client in range(3):
            rows = np.arange(client, n, 3)
            shard = federation.shard(client)
            assert shard.train.x.tolist() == np.column_stack([rows, rows / 4]).tolist()
            assert shard.train.y.tolist() == (rows % 2).tolist()
    mapped = build(by_list[1].path)
    before = pa.total_allocated_bytes()
    mapped.shard(0)
    assert pa.total_allocated_bytes() == before
    assert "_x" not in vars(build(write(tmp_path, columns)))


def test_tokens_are_kept_as_whole_numbers(tmp_path):
    columns = FARM | {"a": [0, 1, 2, 3, 4, 79], "b": [1] * 6}
    for fmt in FORMATS:
        federation = build(write(tmp_path, columns, fmt), tokens=80)
        assert federation.task.tokens == 80
        assert federation.shard(0).train.x.dtype == np.int64
        assert federation.shard(0).train.x.tolist() == [[1, 1], [79, 1]]
        message = refused(write(tmp_path, columns, fmt), tokens=79)
        assert "row 6" in message
        assert "'anna'" in message
        assert "[0, 79)" in message
    path = write(tmp_path, columns, "arrow", lists=pa.list_(pa.uint8()))
    assert build(path, tokens=80).shard(0).train.x.dtype == np.int64
    assert build(path, tokens=1000).task.tokens == 1000
    for bad in (-1.0, 0.5):
        path = write(tmp_path, FARM | {"b": [1.0] * 5 + [bad]}, lists=pa.list_(pa.float16()))
        assert f"{bad} is no character" in refused(path, tokens=100_000)


# What is refused, and what is said about it


def test_missing_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "there is no file" in refused("none.csv")
    assert str(tmp_path) in refused("none.csv")
    assert "there is no file" in refused(str(tmp_path / "none.parquet"))
    (tmp_path / "folder.csv").mkdir()
    assert "is no file" in refused("folder.csv")


def test_unknown_extension(tmp_path):
    for name in ("table.xlsx", "table"):
        (tmp_path / name).write_bytes(b"x")
        assert ".parquet, .arrow, .feather, .ipc, .csv" in refused(str(tmp_path / name))


@pytest.mark.parametrize("fmt", FORMATS)
def test_empty_files(tmp_path, fmt):
    path = write(tmp_path, pa.table(FARM).slice(0, 0), fmt)
    assert "no rows" in refused(path)
    Path(path).write_bytes(b"")
    assert "empty file" in refused(path)


def test_no_columns(tmp_path):
    for fmt in ("parquet", "arrow"):
        assert "no column 'client'" in refused(write(tmp_path, pa.table({}), fmt))


@pytest.mark.parametrize("fmt", [*FORMATS, "feather"])
def test_damaged_files(tmp_path, fmt):
    whole = Path(write(tmp_path, FARM, fmt)).read_bytes()
    path = tmp_path / f"bad.{fmt}"
    path.write_bytes(b"\x00\xff\xfejunk\n" * 50)
    assert "bad" in refused(str(path))
    if fmt == "csv":
        path.write_bytes(whole + b"1,2\n")
        assert "Expected 6 columns" in refused(str(path))
        path.write_bytes(whole.replace(b"anna", b"\xff\xfe"))
        assert "cannot be read as CSV" in refused(str(path))
    else:
        for keep in range(1, len(whole), 97):
            path.write_bytes(whole[:keep])
            assert "cannot be read as" in refused(str(path))
            path.write_bytes(b"FEA1" + whole[4:keep])
            assert "cannot be read as" in refused(str(path))


@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_flipped_bytes_never_escape_as_other_errors(data):
    fmt = data.draw(st.sampled_from(FORMATS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(
            write(folder, FARM, fmt, lists=None if fmt == "csv" else pa.list_(pa.float32()))
        )
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        try:
            federation = build(str(path))
        except BadInput:
            return
        for client in range(len(federation.population)):
            federation.shard(client)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("column", ["client", "y"])
def test_missing_columns(tmp_path, fmt, column):
    table = pa.table(FARM).rename_columns({column: column + "s"})
    message = refused(write(tmp_path, table, fmt))
    assert f"no column {column!r} (data.{column})" in message
    assert f"did you mean '{column}s'?" in message
    assert "'split'" in message


@pytest.mark.parametrize("option", ["group", "split", "x"])
def test_a_column_that_was_named_must_be_there(tmp_path, option):
    message = refused(write(tmp_path, FARM), **{option: "zzzzz"})
    assert "no column 'zzzzz'" in message
    assert f"set data.{option}" in message


def test_no_features_and_many_columns(tmp_path):
    assert "no column 'x'" in refused(write(tmp_path, without("a", "b")))
    wide = without("client") | {f"pixel{i}": [0.0] * 6 for i in range(100)}
    message = refused(write(tmp_path, wide))
    assert "and 93 more" in message
    assert len(message) < 500


def test_columns_named_twice(tmp_path):
    table = pa.table([*FARM.values(), FARM["a"]], [*FARM, "a"])
    for fmt in FORMATS:
        assert "'a' is there 2 times" in refused(write(tmp_path, table, fmt))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("column", ["client", "group", "split", "y", "b"])
def test_missing_values(tmp_path, fmt, column):
    columns = FARM | {column: [*FARM[column][:4], None, FARM[column][5]]}
    message = refused(write(tmp_path, columns, fmt))
    assert f"column {column!r}, row 5: " in message
    assert "missing value" in message


@pytest.mark.parametrize("x", [[[1, 2]] * 5 + [None], [[1, 2]] * 5 + [[1, None]]])
@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.list_(pa.int32(), 2)])
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_missing_values_in_lists(tmp_path, fmt, kind, x):
    columns = without("a", "b") | {"x": pa.array(x, kind)}
    assert "column 'x', row 6: client 'anna': missing" in refused(write(tmp_path, columns, fmt))


def test_a_column_of_nothing_is_not_passed_over(tmp_path):
    columns = FARM | {"c": pa.nulls(6)}
    for fmt in FORMATS:
        assert "column 'c', row 1: client 'ben': missing" in refused(write(tmp_path, columns, fmt))


def test_quotes_tell_text_from_missing_values_in_csv(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('client,a,y\n"NA",1,0\nb,2,1\n')
    assert build(str(path)).population.names == ("NA", "b")
    path.write_text("client,a,y\nNA,1,0\nb,2,1\n")
    assert "column 'client', row 1: missing" in refused(str(path))


@pytest.mark.parametrize("fmt", FORMATS)
def test_real_labels(tmp_path, fmt):
    message = refused(write(tmp_path, FARM | {"y": [1.0, 2.0, 1.0, 0.25, 1.0, 2.0]}, fmt))
    assert "row 4: label 0.25" in message
    assert "regression is not supported" in message
    message = refused(write(tmp_path, FARM | {"y": [1.0, 2.0, math.inf, 1.0, 1.0, 2.0]}, fmt))
    assert "label inf" in message


@pytest.mark.parametrize("fmt", FORMATS)
def test_one_class(tmp_path, fmt):
    assert "only the class 'cat'" in refused(write(tmp_path, FARM | {"y": ["cat"] * 6}, fmt))


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_client_in_two_groups(tmp_path, fmt):
    columns = FARM | {"group": ["farm", "city", "sea", "city", "farm", "city"]}
    assert "client 'ben' is in two groups, 'farm' and 'sea'" in refused(
        write(tmp_path, columns, fmt)
    )


@pytest.mark.parametrize("fmt", FORMATS)
def test_unknown_splits(tmp_path, fmt):
    columns = FARM | {"split": ["train", "valid", *FARM["split"][2:]]}
    message = refused(write(tmp_path, columns, fmt))
    assert "column 'split', row 2: 'valid' is none of train, val, test" in message


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_client_without_training_rows(tmp_path, fmt):
    columns = FARM | {"split": [*FARM["split"][:4], "test", "train"]}
    message = refused(write(tmp_path, columns, fmt))
    assert "client 'cleo' has no rows to train on (1 of 3 clients)" in message


@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_mixed_widths(tmp_path, fmt):
    x = [[1.0, 2.0]] * 4 + [[1.0]] + [[1.0, 2.0]]
    message = refused(write(tmp_path, without("a", "b") | {"x": x}, fmt, chunk=3))
    assert "column 'x', row 5: client 'cleo': 1 numbers, where the first row has 2" in message
    empty = pa.array([[]] * 6, pa.list_(pa.float32()))
    assert "at least one feature" in refused(write(tmp_path, without("a", "b") | {"x": empty}, fmt))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite(tmp_path, bad):
    columns = FARM | {"b": [*FARM["b"][:4], bad, 1.0]}
    for fmt in ("parquet", "arrow"):
        message = refused(write(tmp_path, columns, fmt))
        assert f"column 'b', row 5: client 'cleo': {bad} is not finite" in message
        message = refused(write(tmp_path, columns, fmt, lists=pa.list_(pa.float32()), chunk=2))
        assert f"column 'x', row 5: client 'cleo': {bad} is not finite" in message
    assert "column 'b', row 5: client 'cleo'" in refused(write(tmp_path, columns, "csv"))


@pytest.mark.parametrize("x", [["one"] * 6, [["one"]] * 6, [[[1.0]]] * 6])
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_inputs_that_are_no_numbers(tmp_path, fmt, x):
    message = refused(write(tmp_path, FARM | {"x": x}, fmt))
    assert "column 'x' (data.x) holds" in message


def test_lists_in_csv(tmp_path):
    message = refused(write(tmp_path, FARM | {"x": ["[1, 2]"] * 6}, "csv"))
    assert "a CSV file needs a column per feature" in message


def test_text_far_down_a_csv_column_of_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(_columns, "_CSV_BLOCK", 100)
    path = tmp_path / "a.csv"
    rows = [f"{i % 2},{i},{i % 2}" for i in range(100)]
    path.write_text("\n".join(["client,a,y", *rows, "0,many,1"]) + "\n")
    message = refused(str(path))
    assert "column 'a': CSV conversion error" in message
    assert "'many'" in message
    assert "drop the column" in message


def test_keys_of_other_types(tmp_path):
    for column in ("client", "group", "y"):
        columns = FARM | {column: pa.array([1] * 6, pa.date32())}
        assert f"column {column!r}: holds date32" in refused(write(tmp_path, columns))
    assert "holds double" in refused(write(tmp_path, FARM | {"client": FARM["a"]}))


def test_options_that_contradict():
    with pytest.raises(ValidationError, match="leaves nothing to train on"):
        Table(path="a.csv", val=0.5, test=0.5)
    with pytest.raises(ValidationError, match="'label' has two roles"):
        Table(path="a.csv", y="label", group="label")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_file_that_changes_after_the_start(tmp_path, fmt, loaded):
    path = Path(write(tmp_path, FARM, fmt))
    federation = build(str(path))
    if loaded:
        federation.shard(0)
    other = Path(write(tmp_path, FARM | {"y": ["cat", "owl"] * 3}, fmt))
    other.replace(path)
    with pytest.raises(RunFailed, match="was changed or removed"):
        federation.shard(0)
    federation = build(str(path))
    path.unlink()
    with pytest.raises(RunFailed, match="was changed or removed"):
        federation.shard(1)


# Any table


@st.composite
def tables(draw):
    """A table that is in order, with the features numbering the rows, and its format."""
    n = draw(st.integers(2, 24))
    name = draw(st.sampled_from([st.integers(-20, 20), st.text("ab1é ", min_size=1, max_size=3)]))
    names = draw(st.lists(name, min_size=1, max_size=5, unique=True))
    # Every client's first row trains; the other rows may be anything.
    clients = names + draw(st.lists(st.sampled_from(names), min_size=n, max_size=n))
    n = len(clients)
    width = draw(st.integers(1, 3))
    columns = {"client": clients}
    columns["y"] = [0, 1, *draw(st.lists(st.integers(0, 3), min_size=n - 2, max_size=n - 2))]
    if draw(st.booleans()):
        groups = {name: draw(st.sampled_from(["g", "h"])) for name in names}
        columns["group"] = [groups[name] for name in clients]
    if draw(st.booleans()):
        drawn = draw(st.lists(st.sampled_from(SPLITS), min_size=n, max_size=n))
        columns["split"] = ["train"] * len(names) + drawn[len(names) :]
    for i in range(width):
        columns[f"f{i}"] = np.arange(n) * 10.0 + i
    return columns, draw(st.sampled_from(FORMATS)), width


@given(tables(), st.integers(0, 3), st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_shards_partition_the_rows(drawn, seed, data):
    columns, fmt, width = drawn
    n = len(columns["y"])
    with tempfile.TemporaryDirectory() as folder:
        path = write(folder, columns, fmt, chunk=data.draw(st.sampled_from([None, 3])))
        federation = build(path, seed)
        population = federation.population
        shards = [federation.shard(client) for client in range(len(population))]
        order = data.draw(st.permutations(range(n)))
        shuffled = build(write(folder, pa.table(columns).take(order), fmt), seed)

    assert list(population.names) == [str(name) for name in sorted_names(set(columns["client"]))]
    assert sum(int(population.sizes(split).sum()) for split in SPLITS) == n
    seen = []
    for client, shard in enumerate(shards):
        for split, samples in zip(SPLITS, splits(shard), strict=True):
            assert len(samples) == population.sizes(split)[client]
            assert samples.x.shape == (len(samples), width)
            rows = (samples.x[:, 0] / 10).astype(int)
            seen += rows.tolist()
            for row, label in zip(rows, samples.y, strict=True):
                assert str(columns["client"][row]) == population.names[client]
                assert sorted(set(columns["y"]))[label] == columns["y"][row]
                if "split" in columns:
                    assert columns["split"][row] == split
                if "group" in columns:
                    group = population.group_names[population.groups[client]]
                    assert columns["group"][row] == group
    assert sorted(seen) == list(range(n))
    assert shuffled.population.fingerprint() == population.fingerprint()


def sorted_names(names):
    numbers = [str(name).lstrip("-").isdecimal() and str(int(name)) == str(name) for name in names]
    return sorted(names, key=int) if all(numbers) else sorted(names)


# A real file


def test_a_real_table_without_our_columns():
    if not (root := os.environ.get("GIFAIR_DATA")):
        pytest.skip("GIFAIR_DATA is not set")
    path = Path(root) / "shakespeare" / "shakespeare_roles.parquet"
    if not path.exists():
        pytest.skip("GIFAIR_DATA has no shakespeare/shakespeare_roles.parquet")
    message = refused(str(path))
    assert "no column 'client' (data.client)" in message
    assert "'role_id'" in message
    message = refused(str(path), client="role_id", y="gender", x="text")
    assert "column 'text' (data.x) holds string" in message
    federation = build(str(path), client="play", y="gender")
    assert len(federation.population) == 37
    assert federation.task.classes == 3
    assert federation.task.input_shape == (3,)  # is_group, n_speeches, n_chars
