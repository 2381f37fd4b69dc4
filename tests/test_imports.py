"""Importing public data sets: what comes out, and what is said of files that are not right."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from gifair_ray.data._text import LETTERS, WINDOW
from gifair_ray.data.pooled import Pooled
from gifair_ray.data.table import Table
from gifair_ray.errors import BadInput
from gifair_ray.imports._json import Cursor
from gifair_ray.imports.emnist import CHARACTERS, import_emnist
from gifair_ray.imports.leaf import import_leaf
from gifair_ray.imports.roles import import_roles
from gifair_ray.imports.sources import make_table

SPEECH = "Now is the winter of our discontent\nMade glorious summer by this sun of York; and all!"


def femnist(users=("f1", "f2"), samples=3, seed=0):
    """A file of LEAF's FEMNIST, as a dictionary."""
    g = np.random.default_rng(seed)
    data = {}
    for user in users:
        x = (g.integers(0, 256, (samples, 784)) / 255).tolist()
        data[user] = {"x": x, "y": g.integers(0, 62, samples).tolist()}
    return {"users": list(users), "num_samples": [samples] * len(users), "user_data": data}


def shakespeare(users=("LEAR", "KENT")):
    windows = [SPEECH[i : i + WINDOW] for i in range(len(SPEECH) - WINDOW)]
    data = {u: {"x": windows, "y": [*SPEECH[WINDOW:]]} for u in users}
    n = len(SPEECH) - WINDOW
    return {"users": list(users), "num_samples": [n] * len(users), "user_data": data}


def idx(images, labels, folder, *, zipped=True, name="emnist-byclass-train"):
    """The two files as NIST writes them: images transposed."""
    stored = np.asarray(images, dtype=np.uint8).transpose(0, 2, 1)
    contents = {
        f"{name}-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, *stored.shape)
        + stored.tobytes(),
        f"{name}-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, len(labels))
        + np.asarray(labels, dtype=np.uint8).tobytes(),
    }
    for file, content in contents.items():
        data = gzip.compress(content, mtime=0) if zipped else content
        (Path(folder) / (file + ".gz" * zipped)).write_bytes(data)


IMAGES = np.random.default_rng(1).integers(0, 256, (5, 28, 28), dtype=np.uint8)
CLASSES = np.array([0, 10, 36, 61, 9])
ROLES = {
    "role_id": ["LEAR", "CORDELIA", "FOOL"],
    "text": [SPEECH * 6, SPEECH * 5, "Nuncle"],
    "gender": ["MALE", "FEMALE", "UNKNOWN"],
}


def written(path):
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def refused(do, folder):
    """The message; nothing is left behind."""
    before = set(Path(folder).iterdir())
    with pytest.raises(BadInput) as caught:
        do()
    assert set(Path(folder).iterdir()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def leaf(folder, content, name="all_data_0_niid_0_keep_0.json", **options):
    file = Path(folder) / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return lambda: import_leaf(str(file), str(Path(folder) / "out.arrow"), **options)


# What comes out


def test_femnist_comes_back_bit_for_bit(tmp_path):
    content = femnist()
    done = leaf(tmp_path, content)()
    assert (done.rows, done.clients, done.left_out) == (6, 2, 0)
    federation = Table(path=str(tmp_path / "out.arrow"), val=0, test=0.34).build(0)
    assert federation.population.names == ("f1", "f2")
    shard = federation.shard(0)
    assert shard.train.x.dtype == np.float32
    given_x = np.array(content["user_data"]["f1"]["x"], dtype=np.float32)
    got = np.concatenate([shard.train.x, shard.test.x])
    np.testing.assert_allclose(np.sort(got, axis=0), np.sort(given_x, axis=0), atol=1e-7)
    labels = written(tmp_path / "out.arrow")["y"].to_pylist()[:3]
    assert labels == [CHARACTERS[c] for c in content["user_data"]["f1"]["y"]]


def test_shakespeare_is_tokens_without_being_told(tmp_path):
    leaf(tmp_path, shakespeare())()
    federation = Table(path=str(tmp_path / "out.arrow"), val=0).build(0)
    assert federation.task.tokens == len(LETTERS) == 80
    x = federation.shard(0).train.x
    assert x.dtype == np.int64
    assert "".join(LETTERS[i] for i in x[0]) in SPEECH


def test_train_and_test_of_leaf_become_splits_or_are_pooled(tmp_path):
    for split, seed in (("train", 0), ("test", 1)):
        (tmp_path / split).mkdir()
        leaf(tmp_path / split, femnist(seed=seed), f"all_data_0_keep_0_{split}_9.json")
    out = str(tmp_path / "kept.arrow")
    assert import_leaf(str(tmp_path), out).clients == 2
    population = Table(path=out).build(0).population
    assert (population.train.tolist(), population.test.tolist()) == ([3, 3], [3, 3])
    pooled = str(tmp_path / "pooled.arrow")
    import_leaf(str(tmp_path), pooled, pool=True)
    assert Table(path=pooled).build(0).population.train.tolist() == [5, 5]


def test_users_of_test_alone_are_refused_unless_pooled(tmp_path):
    for split, users in (("train", ["a"]), ("test", ["b"])):
        (tmp_path / split).mkdir()
        leaf(tmp_path / split, femnist(users), f"all_data_{split}.json")
    out = str(tmp_path / "out.arrow")
    assert "--pool" in refused(lambda: import_leaf(str(tmp_path), out), tmp_path)
    assert import_leaf(str(tmp_path), out, pool=True).clients == 2


def test_users_that_leaf_itself_left_without_samples_are_passed_over(tmp_path):
    content = femnist()
    content["user_data"]["gone"] = {"x": [], "y": []}
    content["hierarchies"] = ["of another length"]
    assert leaf(tmp_path, content)().left_out == 1


def test_keys_come_in_any_order(tmp_path):
    content = shakespeare()
    done = leaf(tmp_path, dict(reversed(content.items())))()
    assert done.rows == sum(content["num_samples"])


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_turned_upright(tmp_path, zipped):
    idx(IMAGES, CLASSES, tmp_path, zipped=zipped)
    idx(IMAGES, CLASSES[::-1], tmp_path, zipped=zipped, name="emnist-byclass-test")
    idx(IMAGES, [99] * 5, tmp_path, zipped=zipped, name="emnist-letters-train")  # not looked at
    done = import_emnist(str(tmp_path), str(tmp_path / "out.arrow"))
    assert (done.rows, done.clients) == (10, 0)
    table = written(tmp_path / "out.arrow")
    assert table["x"].to_pylist()[5:] == IMAGES.reshape(5, 784).tolist()
    assert "".join(table["y"].to_pylist()) == "9zaA00Aaz9"
    federation = Pooled(path=str(tmp_path / "out.arrow"), clients=1, test=0, val=0).build(0)
    assert federation.shard(0).train.x.max() <= 1.0


def test_npz_with_writers_is_a_federation(tmp_path):
    np.savez_compressed(tmp_path / "w.npz", images=IMAGES, labels=CLASSES, writer=[3, 3, 1, 1, 3])
    done = import_emnist(str(tmp_path / "w.npz"), str(tmp_path / "out.arrow"))
    assert done.clients == 2
    federation = Table(path=str(tmp_path / "out.arrow"), val=0, test=0).build(0)
    assert federation.population.names == ("1", "3")
    assert federation.population.train.tolist() == [2, 3]


def test_no_window_of_a_role_lies_across_two_splits(tmp_path):
    pq.write_table(pa.table(ROLES), tmp_path / "roles.parquet")
    done = import_roles(str(tmp_path / "roles.parquet"), str(tmp_path / "out.arrow"))
    assert (done.clients, done.left_out) == (2, 1)
    table = written(tmp_path / "out.arrow").to_pylist()
    text = ROLES["text"][0].replace("\n", " ")
    n = len(text)
    ends = {
        "train": (0, int(n * 0.7)),
        "val": (int(n * 0.7), int(n * 0.8)),
        "test": (int(n * 0.8), n),
    }
    counts = {}
    for row in table:
        if row["client"] == "LEAR":
            start, stop = ends[row["split"]]
            whole = "".join(LETTERS[i] for i in row["x"]) + row["y"]
            assert whole in text[start:stop]
            counts[row["split"]] = counts.get(row["split"], 0) + 1
    assert counts == {s: b - a - WINDOW for s, (a, b) in ends.items() if b - a > WINDOW}
    federation = Table(path=str(tmp_path / "out.arrow")).build(0)
    assert federation.population.group_names == ("FEMALE", "MALE")


def test_roles_without_a_split_have_a_window_at_every_place(tmp_path):
    pq.write_table(pa.table(ROLES), tmp_path / "roles.parquet")
    options = {"split": False, "stride": 3}
    done = import_roles(str(tmp_path / "roles.parquet"), str(tmp_path / "out.arrow"), **options)
    assert done.rows == sum(-(-(len(t) - WINDOW) // 3) for t in ROLES["text"][:2])


def test_an_import_is_told_of_its_progress(tmp_path):
    told = []
    leaf(tmp_path, femnist(), tell=lambda done, total: told.append((done, total)))()
    assert told == sorted(told)
    assert 0 < told[-1][0] <= told[-1][1]


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(users):
        names = [f"u{i}" for i in range(users)]
        file = tmp_path / f"{users}.json"
        file.write_text(json.dumps(femnist(names, samples=10)), "utf-8")
        tracemalloc.start()
        import_leaf(str(file), str(tmp_path / f"{users}.arrow"))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, file.stat().st_size

    (few, _), (many, size) = peak(20), peak(80)
    assert size > 8 << 20
    assert many < 1.3 * few + (1 << 20)


@given(st.integers(1, 40), st.data())
@examples(25)
def test_json_is_the_same_in_pieces_of_any_size(piece, data):
    value = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=12,
        )
    )
    text = json.dumps(
        {"a": [value, value], "b": value}, indent=data.draw(st.sampled_from([None, 1]))
    )
    cursor, got = Cursor(io.StringIO(text), "text", piece), {}
    for key in cursor.fields():
        got[key] = [cursor.value() for _ in cursor.items()] if key == "a" else cursor.value()
    cursor.end()
    assert got == json.loads(text)


# Malformed LEAF files


def broken(change):
    content = femnist()
    change(content)
    return content


LEAF_FLAWS = {
    "user 'f1' has 3 samples, where num_samples says 4": lambda c: c["num_samples"].__setitem__(
        0, 4
    ),
    "3 users, but 2 entries": lambda c: c["users"].append("f3"),
    "user 'f2' is listed, but is not in user_data": lambda c: c["user_data"].pop("f2"),
    "user 'f1' is listed twice": lambda c: c["users"].__setitem__(1, "f1"),
    "no 'users'": lambda c: c.pop("users"),
    "no 'num_samples'": lambda c: c.pop("num_samples"),
    "'num_samples' is no list of whole numbers": lambda c: c["num_samples"].__setitem__(0, True),
    "no user has an x": lambda c: c.pop("user_data"),
    "3 inputs x, but 2 labels y": lambda c: c["user_data"]["f1"]["y"].pop(),
    "there is no 'y'": lambda c: c["user_data"]["f1"].pop("y"),
    "784 numbers, not 783 values": lambda c: c["user_data"]["f2"]["x"][1].pop(),
    "pixel 6 is 1.5": lambda c: c["user_data"]["f2"]["x"][1].__setitem__(5, 1.5),
    "pixel 6 is 0.5,": lambda c: c["user_data"]["f2"]["x"][1].__setitem__(5, 0.5),
    "pixel 6 is 1000": lambda c: c["user_data"]["f2"]["x"][1].__setitem__(5, 10**400),
    "pixel 6 is -1": lambda c: c["user_data"]["f2"]["x"][1].__setitem__(5, -1),
    "half of a character": lambda c: c["user_data"].update({"\ud800": c["user_data"].pop("f2")}),
    "'0' is no number": lambda c: c["user_data"]["f2"]["x"][1].__setitem__(5, "0"),
    "label 62": lambda c: c["user_data"]["f2"]["y"].__setitem__(1, 62),
    "label 1.0": lambda c: c["user_data"]["f2"]["y"].__setitem__(1, 1.0),
    "'f3' has samples but is not listed": lambda c: c["user_data"].update(f3=c["user_data"]["f1"]),
}


@pytest.mark.parametrize("message", LEAF_FLAWS)
def test_a_flaw_of_a_leaf_file_is_named_with_its_place(tmp_path, message):
    said = refused(leaf(tmp_path, broken(LEAF_FLAWS[message])), tmp_path)
    assert message in said
    assert "all_data_0_niid_0_keep_0.json" in said


def test_where_a_flaw_is_can_be_looked_up(tmp_path):
    content = femnist()
    content["user_data"]["f2"]["y"][1] = 777
    said = refused(leaf(tmp_path, content), tmp_path)
    assert f"character {json.dumps(content).index('777') + 1} (user 'f2', y of sample 2)" in said


def test_empty_users_that_are_listed_are_refused(tmp_path):
    content = femnist()
    content["user_data"]["f2"], content["num_samples"][1] = {"x": [], "y": []}, 0
    assert "'f2' is listed but has no samples" in refused(leaf(tmp_path, content), tmp_path)


def test_a_user_twice_in_a_file_or_in_two_is_refused(tmp_path):
    text = json.dumps(femnist())
    assert "'f1' is there twice" in refused(
        leaf(tmp_path, text.replace('"f2": {', '"f1": {')), tmp_path
    )
    folder = tmp_path / "all_data"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        leaf(folder, femnist(), name)
    said = refused(lambda: import_leaf(str(folder), str(tmp_path / "out.arrow")), tmp_path)
    assert "b.json" in said
    assert "in a.json as well" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Now is", "Nöw is", "character 'ö' is none of the alphabet's 80"),
        ("Now is", "Now, is", "80 characters, not 81"),
        ('"y": ["', '"y": ["\\ud800', "is not one character"),
        ('{"users"', '[{"users"', "'{' is expected here, not '['"),
        ('"users": ', '"users": NaN, "more": ', "'users' is no list"),
    ],
)
def test_flaws_of_text_files(tmp_path, old, new, message):
    text = json.dumps(shakespeare(), ensure_ascii=False).replace(old, new, 1)
    said = refused(leaf(tmp_path, text), tmp_path)
    assert message in said or "NaN is no number" in said


@pytest.mark.parametrize(
    "text", ["", " ", "{", "{}", "null", "[" * 10**5, '{"a": ' * 10**5, '{"a":1} x']
)
def test_what_is_no_leaf_file_at_all(tmp_path, text):
    assert "all_data" in refused(leaf(tmp_path, text), tmp_path)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{"users": ["\xff\xfe"]}')
    said = refused(
        lambda: import_leaf(str(tmp_path / "x.json"), str(tmp_path / "o.arrow")), tmp_path
    )
    assert "not UTF-8" in said


# Corruptions of every kind, made by a search


def outcome(do):
    """The rows that were written, or None if the file was refused with a clear word."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.arrow"
        try:
            do(Path(folder))
        except BadInput:
            assert not out.exists()  # and nothing but BadInput gets here
            return None
        return written(out).to_pylist()


def corrupted(content: bytes, data) -> bytes:
    """The bytes with something cut out, put in or changed."""
    at = data.draw(st.integers(0, len(content) - 1))
    length = data.draw(st.integers(0, min(60, len(content) - at)))
    new = data.draw(
        st.binary(max_size=8) | st.just(b"") | st.sampled_from([b'"', b",", b"}", b"0"])
    )
    return content[:at] + new + content[at + length :]


TEXT = json.dumps(shakespeare()).encode()


@given(st.integers(0, len(TEXT) - 1))
@examples(60)
def test_a_leaf_file_cut_short_is_always_refused(length):
    def do(folder):
        (folder / "a.json").write_bytes(TEXT[:length])
        import_leaf(str(folder / "a.json"), str(folder / "out.arrow"))

    assert outcome(do) is None


@given(st.data())
@examples(100)
def test_a_damaged_leaf_file_is_refused_or_keeps_its_counts(data):
    content = corrupted(TEXT, data)

    def do(folder):
        (folder / "a.json").write_bytes(content)
        import_leaf(str(folder / "a.json"), str(folder / "out.arrow"))

    rows = outcome(do)
    if rows is not None:  # one character for another, say: it is valid JSON that agrees with itself
        told = json.loads(content)
        assert len(rows) == sum(told["num_samples"])
        assert {row["client"] for row in rows} == set(told["users"])


def idx_files(zipped):
    with tempfile.TemporaryDirectory() as folder:
        idx(IMAGES, CLASSES, folder, zipped=zipped)
        return {f.name: f.read_bytes() for f in Path(folder).iterdir()}


@pytest.mark.parametrize("zipped", [True, False])
@given(data=st.data())
@examples(100)
def test_a_damaged_idx_file_is_refused_or_harmless(zipped, data):
    files = idx_files(zipped)
    name = data.draw(st.sampled_from(sorted(files)))
    whole = files[name]
    files[name] = corrupted(whole, data)

    def do(folder):
        for file, content in files.items():
            (folder / file).write_bytes(content)
        import_emnist(str(folder), str(folder / "out.arrow"))

    rows = outcome(do)
    if rows is not None:
        assert len(rows) == 5
        if zipped:  # it has a checksum: only what does not matter may change
            assert [row["x"] for row in rows] == IMAGES.reshape(5, 784).tolist()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("images", lambda b: b[:-1], "the file is damaged or cut short"),
        ("images", lambda b: b"\0\0\x08\x01" + b[4:], "magic number 00000801 instead of 00000803"),
        ("images", lambda b: b + b"\0", "are there; the file is damaged"),
        ("labels", lambda b: b[:7] + b"\x04" + b[8:-1], "5 images"),
        ("labels", lambda b: b[:-1] + b"\x3e", "label 5: 62 is outside [0, 61]"),
        ("images", lambda b: b[:4] + b"\0\0\0\0" + b[8:16], "there is nothing in it"),
        ("images", lambda b: b[:3], "it is cut short"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_a_flaw_of_an_idx_file_is_named(tmp_path, file, change, message, zipped):
    for name, content in idx_files(False).items():
        changed = change(content) if file in name else content
        target = tmp_path / (name + ".gz" * zipped)
        target.write_bytes(gzip.compress(changed) if zipped else changed)
    said = refused(lambda: import_emnist(str(tmp_path), str(tmp_path / "out.arrow")), tmp_path)
    if not zipped:
        assert message in said
    assert f"{file}-idx" in said


def npz_bytes(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


GOOD_NPZ = npz_bytes(images=IMAGES, labels=CLASSES, writer=np.array(["a", "b", "a", "b", "a"]))


@given(st.data())
@examples(100)
def test_a_damaged_npz_is_refused_or_harmless(data):
    content = corrupted(GOOD_NPZ, data)

    def do(folder):
        (folder / "a.npz").write_bytes(content)
        import_emnist(str(folder / "a.npz"), str(folder / "out.arrow"))

    rows = outcome(do)
    if rows is not None:
        assert [row["x"] for row in rows] == IMAGES.reshape(5, 784).tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": CLASSES}, "no array 'images'"),
        ({"images": IMAGES}, "no array 'labels'"),
        ({"images": IMAGES, "labels": CLASSES[:4]}, "5 images, but array 'labels' has shape (4,)"),
        ({"images": IMAGES, "labels": CLASSES + 1.0}, "holds float64"),
        ({"images": IMAGES, "labels": CLASSES + 1}, "label 4: 62 is outside"),
        ({"images": IMAGES[:, :27], "labels": CLASSES}, "(5, 27, 28)"),
        ({"images": IMAGES[:0], "labels": CLASSES[:0]}, "nothing in it"),
        ({"images": IMAGES * 1.0, "labels": CLASSES}, "holds float64"),
        ({"images": IMAGES.astype(np.int16) - 1, "labels": CLASSES}, "outside 0 to 255"),
        ({"images": np.asfortranarray(IMAGES), "labels": CLASSES}, "Fortran"),
        ({"images": IMAGES, "labels": CLASSES, "writer": CLASSES[:2]}, "array 'writer'"),
    ],
)
def test_a_flaw_of_an_npz_is_named(tmp_path, arrays, message):
    (tmp_path / "a.npz").write_bytes(npz_bytes(**arrays))
    said = refused(
        lambda: import_emnist(str(tmp_path / "a.npz"), str(tmp_path / "o.arrow")), tmp_path
    )
    assert message in said
    assert "a.npz" in said


class Mine:
    """What must never come to life."""

    def __reduce__(self):
        return (pytest.fail, ("an array was unpickled",))


def test_nothing_is_unpickled(tmp_path):
    objects = np.array([Mine()] * 5, dtype=object)
    for arrays in ({"images": objects, "labels": CLASSES}, {"images": IMAGES, "labels": objects}):
        np.savez(tmp_path / "a.npz", **arrays, allow_pickle=True)
        said = refused(
            lambda: import_emnist(str(tmp_path / "a.npz"), str(tmp_path / "o.arrow")), tmp_path
        )
        assert "holds object" in said


def test_an_array_that_says_it_is_larger_than_it_is(tmp_path):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, IMAGES)
    content = buffer.getvalue().replace(b"(5, 28, 28)", b"(9, 28, 28)")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("images.npy", content)
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.zeros(9, dtype=np.int64))
        file.writestr("labels.npy", buffer.getvalue())
    said = refused(
        lambda: import_emnist(str(tmp_path / "a.npz"), str(tmp_path / "o.arrow")), tmp_path
    )
    assert "entry 6 of 9" in said


def roles_file(folder, columns):
    pq.write_table(pa.table(columns), Path(folder) / "roles.parquet")
    return lambda: import_roles(
        str(Path(folder) / "roles.parquet"), str(Path(folder) / "out.arrow")
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({**ROLES, "role_id": ["LEAR", "FOOL", "LEAR"]}, "row 3: role 'LEAR' is in row 1 too"),
        ({**ROLES, "gender": ["MALE", None, "MALE"]}, "row 2: gender = None"),
        ({**ROLES, "gender": ["MALE", "", "MALE"]}, "row 2: gender = ''"),
        ({**ROLES, "text": [SPEECH, 'a"é', "b"]}, "row 2, role 'CORDELIA', character 3: 'é'"),
        ({k: v for k, v in ROLES.items() if k != "gender"}, "0 columns 'gender'"),
        ({**ROLES, "text": [1, 2, 3]}, "row 1: text = 1"),
        ({**ROLES, "text": ["a", "b", "c"]}, "no samples"),
    ],
)
def test_a_flaw_of_a_file_of_roles_is_named(tmp_path, columns, message):
    assert message in refused(roles_file(tmp_path, columns), tmp_path)


def parquet_bytes():
    buffer = io.BytesIO()
    pq.write_table(pa.table(ROLES), buffer)
    return buffer.getvalue()


PARQUET = parquet_bytes()


@given(st.data())
@examples(60)
def test_a_damaged_parquet_file_never_ends_in_a_traceback(data):
    content = corrupted(PARQUET, data)

    def do(folder):
        (folder / "a.parquet").write_bytes(content)
        import_roles(str(folder / "a.parquet"), str(folder / "out.arrow"))

    outcome(do)


# Where it goes


def test_the_table_is_there_as_a_whole_or_not_at_all(tmp_path):
    do = leaf(tmp_path, femnist())
    do()
    assert "already" in refused(do, tmp_path)
    out = str(tmp_path / "nowhere" / "out.arrow")
    assert "no folder" in refused(lambda: import_leaf(str(tmp_path), out), tmp_path)
    out = str(tmp_path / "out.csv")
    assert "end in .arrow" in refused(lambda: import_leaf(str(tmp_path), out), tmp_path)


@pytest.mark.parametrize("do", [import_leaf, import_emnist, import_roles])
def test_a_path_that_leads_nowhere(tmp_path, do, monkeypatch):
    monkeypatch.setenv("GIFAIR_DATA", str(tmp_path / "there"))
    said = refused(lambda: do("nothing-here", str(tmp_path / "out.arrow")), tmp_path)
    assert str(tmp_path / "there" / "nothing-here") in said
    (tmp_path / "empty").mkdir()
    assert "empty" in refused(
        lambda: do(str(tmp_path / "empty"), str(tmp_path / "out.arrow")), tmp_path
    )


def test_the_tables_of_the_experiments_are_made_once_or_linked(tmp_path, monkeypatch):
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    monkeypatch.setenv("GIFAIR_DATA", str(data))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"emnist_byclass_62x200.npz.*--data-dir"):
        make_table("emnist.arrow", out)
    np.savez(data / "emnist_byclass_62x200.npz", images=IMAGES, labels=CLASSES)
    make_table("emnist.arrow", out)
    assert len(written(out / "emnist.arrow")) == len(CLASSES)
    make_table("emnist.arrow", out)  # there already
    (out / "emnist.arrow").rename(data / "emnist.arrow")
    make_table("emnist.arrow", out)
    assert (out / "emnist.arrow").samefile(data / "emnist.arrow")
