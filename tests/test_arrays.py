"""Columns of numpy as Arrow's, and back: as pyarrow has them, without pandas."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gifair_ray.arrays import array, coded, empty, values
from gifair_ray.tables import TABLES

COLUMNS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=5),
}


@given(st.data(), st.sampled_from(list(COLUMNS)))
def test_a_list_is_what_pyarrow_makes_of_it(data, kind):
    column = data.draw(st.lists(st.none() | COLUMNS[kind], max_size=20))
    made = array(column, kind)
    made.validate(full=True)
    assert made.type == kind
    np.testing.assert_array_equal(made.to_pylist(), pa.array(column, kind).to_pylist())


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.booleans()), max_size=20),
    st.sampled_from([pa.int64(), pa.float64(), pa.bool_()]),
    st.lists(st.integers(0, 20), max_size=3),
)
def test_there_and_back_in_pieces(rows, kind, cuts):
    known = np.array([not null for _, null in rows], dtype=np.bool_)
    dtype = {pa.int64(): np.int64, pa.float64(): np.float64, pa.bool_(): np.bool_}[kind]
    column = np.array([value for value, _ in rows], dtype=dtype)
    whole = pa.chunked_array([array(column, kind, ~known)])
    at = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    parts = [whole.slice(a, b - a) for a, b in pairwise(at)]
    pieces = pa.chunked_array([c for part in parts for c in part.chunks], kind)
    np.testing.assert_array_equal(values(pieces)[known], column[known])
    np.testing.assert_array_equal(values(pieces.is_valid()), known)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True), st.data())
def test_words_by_their_places(words, data):
    codes = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=20))
    made = coded(np.array(codes, dtype=np.int8), words)
    made.validate(full=True)
    assert made.to_pylist() == [words[code] for code in codes]


def test_reals_are_no_whole_numbers():
    with pytest.raises(TypeError, match="same_kind"):
        array(np.array([0.5]), pa.int64())


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_rows(name):
    assert empty(TABLES[name]).equals(TABLES[name].empty_table())


def test_a_run_does_without_pandas(tmp_path):
    program = (
        "import sys, gifair_ray\n"
        "scenario = {'data': {'source': 'synthetic', 'clients': 4, 'samples': 8},\n"
        "  'model': {'kind': 'softmax'}, 'work': {'steps': 1}, 'stop': {'rounds': 2}}\n"
        "gifair_ray.run(scenario, backend='local', out=sys.argv[1]).digest\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], check=True)
