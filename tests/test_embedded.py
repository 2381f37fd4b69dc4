"""Data that are made, not read: handwriting and speech; and the rules that deal out samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pydantic import ValidationError

from gifair_ray.data._letters import CHARACTERS, FONTS, fields, signed_distances
from gifair_ray.data._text import LETTERS, WINDOW, encode, first_odd
from gifair_ray.data.dialogues import Dialogues
from gifair_ray.data.glyphs import Glyphs
from gifair_ray.data.pooled import Pooled
from gifair_ray.data.table import Table
from gifair_ray.errors import BadInput
from gifair_ray.federation import SPLITS

LOGNORMAL = {"dist": "lognormal", "median": 200, "sigma": 0.4}


def parts(shard):
    return [getattr(shard, split) for split in SPLITS]


def everything(shard):
    return (
        np.concatenate([part.x for part in parts(shard)]),
        np.concatenate([part.y for part in parts(shard)]),
    )


def same(one, other):
    return all(
        np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y)
        for a, b in zip(parts(one), parts(other), strict=True)
    )


SOURCES = [
    Glyphs(clients=6, samples=20),
    Dialogues(clients=6, samples=20),
    Dialogues(groups={"a": {"clients": 3}, "b": {"clients": 3, "dialect": 0.5}}, samples=30),
]


@pytest.mark.parametrize("source", SOURCES)
class TestMade:
    def test_a_shard_is_a_function_of_seed_and_client(self, source):
        federation = source.build(3)
        first = [federation.shard(k) for k in (0, 5)]
        again = source.build(3)
        assert same(again.shard(5), first[1])  # in any order, on any worker
        assert same(again.shard(0), first[0])
        assert not same(source.build(4).shard(0), first[0])
        assert not np.array_equal(everything(first[0])[0][:14], everything(first[1])[0][:14])

    def test_a_shard_is_as_large_as_the_population_says(self, source):
        federation = source.build(0)
        for k in range(6):
            sizes = [federation.population.sizes(split)[k] for split in SPLITS]
            assert [len(part) for part in parts(federation.shard(k))] == sizes
            for part in parts(federation.shard(k)):
                assert part.x.shape == (len(part), *federation.task.input_shape)
                assert ((part.y >= 0) & (part.y < federation.task.classes)).all()

    def test_a_million_clients_are_columns(self, source):
        if isinstance(source.groups, dict):
            return
        many = source.model_copy(update={"clients": 1_000_000, "groups": 10})
        federation = many.build(0)
        assert len(federation.population) == 1_000_000
        assert len(federation.shard(999_999).train) == 14


# Handwriting


def test_ink_is_white_on_black_and_never_missing():
    x, _ = everything(Glyphs(clients=1, samples=620, style=2, wobble=2).build(0).shard(0))
    assert x.dtype == np.float32
    assert x.shape == (620, 28, 28)
    assert (x.min(), x.max()) == (0, 1)
    ink = x.mean(axis=(1, 2))
    assert 0.01 < ink.min() < ink.max() < 0.6
    usual, _ = everything(Glyphs(clients=1, samples=620).build(1).shard(0))
    assert usual[:, [0, -1], :].mean() < 0.02  # characters are within the frame, as a rule


def test_a_writer_is_more_like_itself_than_like_others():
    federation = Glyphs(clients=12, classes=["A", "g"], samples=40, val=0, test=0).build(0)
    of = [federation.shard(k).train for k in range(12)]
    a = np.stack([s.x[s.y == 0][:20] for s in of])  # (writer, image, …)
    within = a.var(axis=1).mean()
    between = a.mean(axis=1).var(axis=0).mean()
    assert between > 0.5 * within
    alike = Glyphs(clients=12, classes=["A", "g"], samples=40, style=0, val=0, test=0).build(0)
    b = np.stack([s.x[s.y == 0][:20] for s in (alike.shard(k).train for k in range(12))])
    assert b.mean(axis=1).var(axis=0).mean() < 0.2 * between


def test_without_style_and_wobble_all_images_of_a_character_are_one():
    source = Glyphs(clients=2, classes=["a-j"], samples=30, style=0, wobble=0, val=0, test=0)
    one, other = (source.build(0).shard(k).train for k in (0, 1))
    for c in range(10):
        images = np.concatenate([one.x[one.y == c], other.x[other.y == c]])
        assert (images == images[0]).all()


def test_characters_can_be_told_apart_by_their_nearest_mean():
    federation = Glyphs(clients=60, samples=62, val=0, test=0.3).build(0)
    shards = [federation.shard(k) for k in range(60)]
    x, y = (np.concatenate([getattr(s.train, f) for s in shards]) for f in "xy")
    means = np.stack([x[y == c].mean(axis=0).ravel() for c in range(62)])
    test_x, test_y = (np.concatenate([getattr(s.test, f) for s in shards]) for f in "xy")
    flat = test_x.reshape(len(test_x), -1)
    nearest = np.argmin((means**2).sum(1) - 2 * flat @ means.T, axis=1)
    assert 0.3 < (nearest == test_y).mean() < 0.9  # neither noise nor trivial


@given(st.integers(0, 2**32))
@examples(10)
def test_distances_are_euclidean(seed):
    ink = np.random.default_rng(seed).random((9, 9)) < 0.3
    ink[4, 4], ink[0, 0] = True, False
    places = np.argwhere(np.ones_like(ink))
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(2))
    flat = ink.ravel()
    want = [
        apart[i][~flat].min() - 0.5 if flat[i] else 0.5 - apart[i][flat].min() for i in range(81)
    ]
    np.testing.assert_allclose(signed_distances(ink).ravel(), want, rtol=1e-6)


@pytest.mark.parametrize("font", range(len(FONTS)))
def test_every_font_has_all_62_characters(font):
    shapes = fields(font) > 0
    assert len({shape.tobytes() for shape in shapes}) >= 58  # o and O may be one shape
    heights = [np.ptp(np.flatnonzero(s.any(axis=1))) + 1 for s in shapes]
    widths = [np.ptp(np.flatnonzero(s.any(axis=0))) + 1 for s in shapes]
    assert all(36 <= max(h, w) <= 41 for h, w in zip(heights, widths, strict=True))


# Who has which classes


def test_k_classes_in_equal_shares():
    federation = Glyphs(clients=50, classes=["a-j"], classes_per_client=5, samples=100).build(0)
    assert federation.task.classes == 10
    held = []
    for k in range(50):
        y, counts = np.unique(everything(federation.shard(k))[1], return_counts=True)
        assert len(y) == 5
        assert set(counts) == {20}
        held += y.tolist()
    assert np.bincount(held).min() >= 10  # no class is forgotten


def test_groups_have_their_own_classes_sizes_and_names():
    source = Glyphs(
        groups={
            "capitals": {"clients": 2, "classes": ["A-Z", "0-9"], "samples": 72},
            "both": {"clients": 3, "classes": ["a-z", "A-Z"], "samples": LOGNORMAL},
        }
    )
    federation = source.build(0)
    assert federation.population.group_names == ("capitals", "both")
    assert federation.population.groups.tolist() == [0, 0, 1, 1, 1]
    _, y = everything(federation.shard(0))
    assert {CHARACTERS[c] for c in y} == set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    assert np.bincount(y).max() == 2
    _, y = everything(federation.shard(4))
    assert y.min() >= 10


def test_dirichlet_shares_are_the_more_unequal_the_smaller_alpha_is():
    def largest(alpha):
        deal = Glyphs(clients=200, classes=["a-j"], alpha=alpha, samples=100).build(0).deal
        return np.mean([deal.counts(k)[1].max() for k in range(200)])

    assert largest(0.01) > 90 > largest(0.3) > largest(3) > largest(1000)
    assert largest(1000) < 13
    assert largest(1e-300) == 100


@given(
    clients=st.integers(1, 12),
    k=st.none() | st.integers(1, 4),
    alpha=st.none() | st.floats(0.05, 10),
    samples=st.integers(2, 60),
    seed=st.integers(0, 5),
)
@examples(40)
def test_counts_are_whole_and_add_up(clients, k, alpha, samples, seed):
    source = Glyphs(
        clients=clients, classes=["a-d"], classes_per_client=k, alpha=alpha, samples=samples
    )
    deal = source.build(seed).deal
    for client in range(clients):
        classes, counts = deal.counts(client)
        shares = deal.shares(client)[1]
        assert counts.sum() == samples
        assert len(classes) == len(counts) == (k or 4)
        assert (np.abs(counts - shares * samples) < 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["a-ä"]}, "there is no class '{'"),
        ({"classes": ["a"]}, "two or more"),
        ({"classes": ["a-d", "b"]}, "none of them twice"),
        ({"classes": ["d-a"]}, "wrong way round"),
        ({"classes": ["a-d"], "classes_per_client": 5}, "only 4 classes"),
        ({"samples": 1}, "outside [2"),
        ({"samples": {"dist": "lognormal", "median": 5, "sigma": 900}}, "change the distribution"),
        ({"clients": 3, "groups": 4}, "outside [1, 3 clients]"),
    ],
)
def test_rules_that_cannot_be_kept(options, message):
    with pytest.raises(BadInput) as caught:
        Glyphs(**{"clients": 3, **options}).build(0)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"val": 0.5, "test": 0.5},
        {"groups": {}},
        {"clients": 3, "groups": {"a": {"clients": 2}}},
        {"alpha": 0},
    ],
)
@pytest.mark.parametrize("kind", [Glyphs, Dialogues])
def test_rules_that_contradict_themselves(kind, options):
    with pytest.raises(ValidationError):
        kind(**options)


# Speech


def test_speech_is_of_the_alphabet_and_its_splits_share_no_window():
    federation = Dialogues(clients=3, samples=400).build(0)
    texts = federation.text(1)
    assert all(first_odd(encode(text)) is None for text in texts)
    assert [len(text) - WINDOW for text in texts] == [280, 40, 80]
    shard = federation.shard(1)
    x, y = shard.train.x, shard.train.y
    assert "".join(LETTERS[i] for i in x[7]) == texts[0][7 : 7 + WINDOW]
    assert LETTERS[y[7]] == texts[0][7 + WINDOW]
    windows = [{row.tobytes() for row in part.x} for part in parts(shard)]
    assert not windows[0] & windows[1]
    assert not windows[0] & windows[2]


def words(federation, clients):
    return {
        word.strip(".,!?;").lower()
        for k in clients
        for text in federation.text(k)
        for word in text.split()
    }


def test_a_dialect_is_its_groups_own():
    def shared(dialect):
        groups = {"many": {"clients": 5}, "few": {"clients": 5, "dialect": dialect}}
        federation = Dialogues(groups=groups, samples=4000, own=0).build(0)
        many, few = words(federation, range(5)), words(federation, range(5, 10))
        return len(few - many) / len(few)

    assert shared(0.0) < 0.15
    assert shared(0.5) > 0.3


def test_a_role_has_words_of_its_own():
    federation = Dialogues(clients=2, samples=4000, own=0.3).build(0)
    a, b = words(federation, [0]), words(federation, [1])
    assert len(a - b) >= 8
    assert len(a & b) > 50


def test_a_dialogue_is_neither_noise_nor_trivial():
    """The best guess from the last three characters: what a model should learn soon."""
    federation = Dialogues(clients=20, samples=3000).build(0)
    seen = {}
    for k in range(20):
        shard = federation.shard(k)
        for row, y in zip(shard.train.x[:, -3:].tolist(), shard.train.y.tolist(), strict=True):
            seen.setdefault(tuple(row), []).append(y)
    guess = {row: max(set(ys), key=ys.count) for row, ys in seen.items()}
    right = total = 0
    for k in range(20):
        test = federation.shard(k).test
        rows = map(tuple, test.x[:, -3:].tolist())
        right += sum(guess.get(row) == y for row, y in zip(rows, test.y.tolist(), strict=True))
        total += len(test)
    assert 0.4 < right / total < 0.75


# Samples that belong to nobody


def pool(folder, counts, **columns):
    """A table with so many rows of each class; the input is the number of the row."""
    y = np.random.default_rng(0).permutation(np.repeat(list(counts), list(counts.values())))
    path = folder / f"pool{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.table({"x": np.arange(len(y)) * 1.0, "y": y, **columns}), path)
    return str(path)


def held(federation):
    return [
        everything(federation.shard(k))[0].ravel().tolist()
        for k in range(len(federation.population))
    ]


@given(
    clients=st.integers(1, 8),
    k=st.none() | st.integers(1, 3),
    alpha=st.none() | st.floats(0.1, 5),
    seed=st.integers(0, 9),
    counts=st.lists(st.integers(12, 40), min_size=3, max_size=3),
)
@examples(40)
def test_without_sizes_everything_is_dealt_once(tmp_path_factory, clients, k, alpha, seed, counts):
    path = pool(tmp_path_factory.mktemp("pool"), dict(zip("abc", counts, strict=True)))
    try:
        source = Pooled(path=path, clients=clients, classes_per_client=k, alpha=alpha)
        federation = source.build(seed)
    except BadInput as error:
        assert "fewer than 2 samples" in str(error) or "no training data" in str(error)  # noqa: PT017
        return
    rows = sorted(row for rows in held(federation) for row in rows)
    assert len(set(rows)) == len(rows)
    if k is None:
        assert rows == list(range(sum(counts)))


@given(
    clients=st.integers(1, 10),
    samples=st.integers(2, 40),
    k=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@examples(60)
def test_sizes_are_kept_or_refused(tmp_path_factory, clients, samples, k, seed):
    path = pool(tmp_path_factory.mktemp("pool"), {"a": 10, "b": 40, "c": 30, "d": 20})
    source = Pooled(
        path=path, clients=clients, classes_per_client=k, samples=samples, val=0, test=0
    )
    try:
        federation = source.build(seed)
    except BadInput as error:
        assert "go short" in str(error)  # noqa: PT017
        assert samples * clients > 10
        return
    rows = held(federation)
    assert [len(r) for r in rows] == [samples] * clients
    assert len({row for r in rows for row in r}) == samples * clients
    for client in range(clients):
        assert len(np.unique(everything(federation.shard(client))[1])) <= k


def test_a_rare_class_is_rationed_and_others_make_up_for_it(tmp_path):
    path = pool(tmp_path, {"a": 10, "b": 100, "c": 100})
    source = Pooled(path=path, clients=5, classes_per_client=3, samples=30, val=0, test=0)
    for k in range(5):
        y = np.bincount(everything(source.build(1).shard(k))[1], minlength=3)
        assert y.tolist() == [2, 14, 14]


def test_without_rules_a_client_is_a_fair_sample_of_the_pool(tmp_path):
    path = pool(tmp_path, {"a": 300, "b": 100, "c": 600})
    federation = Pooled(path=path, clients=5, samples=100, val=0, test=0).build(0)
    for k in range(5):
        y = np.bincount(everything(federation.shard(k))[1])
        np.testing.assert_allclose(y, [30, 10, 60], atol=1)


def test_shared_samples_may_be_held_by_several(tmp_path):
    path = pool(tmp_path, {"a": 30, "b": 30})
    with pytest.raises(BadInput, match=r"data\.shared"):
        Pooled(path=path, clients=10, samples=20).build(0)
    federation = Pooled(path=path, clients=10, samples=20, shared=True).build(0)
    rows = held(federation)
    assert all(len(set(r)) == 20 for r in rows)
    assert len({row for r in rows for row in r}) > 50
    with pytest.raises(BadInput, match="lower"):
        Pooled(path=path, clients=10, samples=61, shared=True).build(0)


def test_classes_that_are_left_out_are_not_numbered(tmp_path):
    path = pool(tmp_path, {"ant": 20, "bee": 20, "cow": 20, "dog": 20})
    federation = Pooled(path=path, clients=2, classes=["bee", "dog"], val=0, test=0).build(0)
    assert federation.task.classes == 2
    assert set(everything(federation.shard(0))[1]) == {0, 1}


def test_named_groups_without_sizes_share_out_the_whole_pool(tmp_path):
    path = pool(tmp_path, {"a": 60, "b": 60, "c": 30})
    groups = {"ab": {"clients": 2, "classes": ["a", "b"]}, "bc": {"clients": 1, "classes": ["b-c"]}}
    federation = Pooled(path=path, groups=groups, val=0, test=0).build(0)
    assert federation.population.group_names == ("ab", "bc")
    y = [np.bincount(everything(federation.shard(k))[1], minlength=3).tolist() for k in range(3)]
    assert np.sum(y, axis=0).tolist() == [60, 60, 30]
    assert y[2][0] == y[0][2] == y[1][2] == 0
    assert y[0][0] == y[1][0] == 30


def test_a_pool_has_no_clients_of_its_own(tmp_path):
    with pytest.raises(BadInput, match="pooled"):
        Table(path=pool(tmp_path, {"a": 5, "b": 5})).build(0)


def test_a_pool_with_splits_keeps_them(tmp_path):
    path = pool(tmp_path, {"a": 40, "b": 40}, split=["train", "test"] * 40)
    federation = Pooled(path=path, clients=2).build(0)
    assert federation.population.val.tolist() == [0, 0]
    for k in range(2):
        assert (federation.shard(k).train.x % 2 == 0).all()
        assert (federation.shard(k).test.x % 2 == 1).all()


# Some clients of a table


def roster(folder, sizes, groups, **columns):
    client = np.repeat([f"c{i}" for i in range(len(sizes))], sizes)
    n = len(client)
    table = {"client": client, "group": np.repeat(groups, sizes), "x": np.arange(n) * 1.0}
    pq.write_table(pa.table({**table, "y": np.arange(n) % 2, **columns}), folder / "t.parquet")
    return str(folder / "t.parquet")


def test_clients_are_drawn_by_the_seed(tmp_path):
    path = roster(tmp_path, [10] * 8 + [4], ["m"] * 5 + ["f"] * 4)
    build = [Table(path=path, clients=4, at_least=5).build(seed).population for seed in range(20)]
    assert all(len(p) == 4 for p in build)
    assert len({p.names for p in build}) > 10
    assert not any("c8" in (p.names or ()) for p in build)
    by_group = Table(path=path, clients={"f": 2, "m": 3}).build(0).population
    assert by_group.group_names == ("f", "m")
    assert np.bincount(by_group.groups).tolist() == [2, 3]
    one = Table(path=path, clients={"m": 3}).build(0).population
    assert one.group_names == ("m",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": 4}, "data.clients = 4, but"),
        ({"clients": {"f": 3}}, "data.clients.f = 3, but"),
        ({"clients": {"x": 1}}, "no group 'x'"),
        ({"at_least": 11}, "the largest has 10"),
    ],
)
def test_clients_that_are_not_there(tmp_path, options, message):
    path = roster(tmp_path, [10, 10, 10], ["m", "f", "f"])
    with pytest.raises(BadInput) as caught:
        Table(path=path, **options).build(0)
    assert message in str(caught.value)


def test_a_cap_keeps_the_proportion_of_splits(tmp_path):
    split = (["train"] * 7 + ["val"] + ["test"] * 2) * 10
    path = roster(tmp_path, [90, 10], ["a", "b"], split=split)
    population = Table(path=path, at_most=20).build(0).population
    assert population.train.tolist() == [14, 7]
    assert population.test.tolist() == [4, 2]
    drawn = [
        Table(path=path, at_most=20).build(seed).shard(0).train.x.tolist() for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_relative_path_is_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    roster(tmp_path / "there", [3, 3], ["a", "b"])
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(BadInput, match="--data-dir"):
        Table(path="t.parquet").build(0)
    monkeypatch.setenv("GIFAIR_DATA", str(tmp_path / "there"))
    assert len(Table(path="t.parquet").build(0).population) == 2
    roster(tmp_path / "here", [3, 3, 3], ["a", "b", "b"])  # the current folder goes first
    assert len(Table(path="t.parquet").build(0).population) == 3
