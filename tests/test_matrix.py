"""The table in docs/reliability.md is of the faults and policies that there are, and has no gap."""

from __future__ import annotations

import faulty
import matrix


def test_the_fault_matrix_is_whole():
    text = matrix.PAGE.read_text(encoding="utf-8")
    rows = text.partition(matrix.BEGIN)[2].partition(matrix.END)[0].strip().splitlines()
    head, _, *body = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
    assert head[1:] == [f"`{policy}`" for policy in faulty.POLICIES]
    assert {row[0] for row in body} == set(matrix.ON_RAY) | set(matrix.IN_PROCESS)
    for fault, *cells in body:
        for policy, cell in zip(faulty.POLICIES, cells, strict=True):
            n = sum(case[0] == policy for case in faulty.CASES)
            assert cell == f"{n} of {n}", (fault, policy)
