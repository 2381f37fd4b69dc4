"""Stochastic gradient descent, as in FedAvg and in the paper's Algorithms 1 and 2."""

from __future__ import annotations

from typing import Literal

from gifair_ray.solvers import Solver


class Sgd(Solver):
    """y ← y − η m_k g_k(y)."""

    kind: Literal["sgd"] = "sgd"
