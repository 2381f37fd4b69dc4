"""The paper's learning bound (its appendix), for linear classes of bounded norm.

For losses in [0, M], with probability at least 1 − δ0 and for all h at once, as printed

    H(h) ≤ Ĥ(h) + √(½ Σ_k (p_k M/N_k + λ d(d−1)M/2)² log(1/δ0)) + 2ℜ(p) + λ d(d−1)M/2.

Ĥ is the objective on the samples, H its expectation, and ℜ(p) = E sup_h Σ w_n σ_n ℓ(h(x_n), y_n)
the Rademacher complexity with weights w_n = p_k/N_k. It has two faults. McDiarmid's inequality sums
over samples, N_k of each client, not over clients: for λ = 0 the printed root is too small. And
one sample moves the penalty by (d−1)M/(|A|N_k) at most, not by d(d−1)M/2: the printed bound does
not vanish however many samples there are. `corrected` mends both; with b_k = p_k + λ(d−1)/|A|,

    H(h) ≤ Ĥ(h) + M√(½ Σ_k b_k²/N_k log(1/δ0)) + 2ℜ(p) + 2λ(d−1) Σ_i ℜ_i,

where ℜ_i = E sup_h |Σ_{group i} σ_n ℓ_n/(|A_i|N_k)|: symmetrise the supremum over h and over the
ranks in H = max_r Σ c_k(r) F_k, and use Σ_{i<j}|T_i − T_j| ≤ (d−1) Σ_i|T_i|.

The class is h(x) = ⟨w, x⟩, ‖w‖ ≤ B, with a ρ-Lipschitz loss. By contraction ℜ ≤ ρB E‖Σ w_n σ_n x_n‖
(`monte_carlo`), and by Jensen that is at most ρB√(Σ w_n²‖x_n‖²) (`contraction`). With absolute
values contraction costs a factor 2, and the losses ℓ(0, y) come on top. Both are taken over the
signs for the inputs at hand; the theorem has their mean over inputs as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gifair_ray import draws, objective
from gifair_ray.theory.problems import Floats, Ints


@dataclass(frozen=True)
class LinearClass:
    """{x ↦ ⟨w, x⟩ : ‖w‖ ≤ B} under a ρ-Lipschitz loss with values in [0, M]."""

    B: float
    rho: float
    M: float
    at_zero: float
    """The largest ℓ(0, y)."""

    @staticmethod
    def logistic(B: float, longest: float) -> LinearClass:
        """log(1 + e^{−y⟨w,x⟩}), for inputs of norm ≤ `longest`."""
        return LinearClass(B, 1.0, float(np.logaddexp(0.0, B * longest)), float(np.log(2.0)))


@dataclass(frozen=True)
class Learning:
    """How much the objective may exceed its value on the samples: the sum, and what it is of."""

    deviation: float
    complexity: float
    penalty: float

    @property
    def total(self) -> float:
        return self.deviation + self.complexity + self.penalty


def contraction(X: Sequence[Floats], weights: Floats, ball: LinearClass) -> float:
    """ρB√(Σ w_n²‖x_n‖²): an upper bound on ℜ, for inputs by client and a weight per client's."""
    squares = [w**2 * np.sum(x**2) for w, x in zip(weights, X, strict=True)]
    return ball.rho * ball.B * float(np.sqrt(np.sum(squares)))


def monte_carlo(
    X: Sequence[Floats], weights: Floats, ball: LinearClass, draws_: int = 200, seed: int = 0
) -> tuple[float, float]:
    """ρB E‖Σ w_n σ_n x_n‖ by random signs, and its standard error: tighter than `contraction`."""
    rows = np.concatenate([w * x for w, x in zip(weights, X, strict=True)])
    n = np.arange(len(rows))
    norms = [
        np.linalg.norm(np.where(draws.uniform(seed, "theory/signs", i, n) < 0.5, -1.0, 1.0) @ rows)
        for i in range(draws_)
    ]
    scale = ball.rho * ball.B
    return scale * float(np.mean(norms)), scale * float(np.std(norms) / np.sqrt(draws_))


def printed(
    X: Sequence[Floats], groups: Ints, lam: float, ball: LinearClass, delta0: float,
    complexity: float,
) -> Learning:  # fmt: skip
    """The bound as printed; `complexity` is ℜ(p), by either of the functions above."""
    N = np.array([len(x) for x in X])
    p, d = objective.shares(N), int(groups.max()) + 1
    penalty = lam * d * (d - 1) / 2 * ball.M
    root = np.sqrt(0.5 * np.sum((p / N * ball.M + penalty) ** 2) * np.log(1 / delta0))
    return Learning(float(root), 2 * complexity, penalty)


def corrected(
    X: Sequence[Floats], groups: Ints, lam: float, ball: LinearClass, delta0: float,
    complexity: float,
) -> Learning:  # fmt: skip
    """The bound with both remarks heeded; it vanishes as the samples grow in number."""
    N = np.array([len(x) for x in X])
    p, d = objective.shares(N), int(groups.max()) + 1
    members = objective.group_sizes(groups, d)
    b = p + lam * (d - 1) / members[groups]
    root = ball.M * np.sqrt(0.5 * np.sum(b**2 / N) * np.log(1 / delta0))
    weights = 1.0 / (members[groups] * N)
    total = 0.0
    for i in range(d):
        mine = np.flatnonzero(groups == i)
        spread = contraction([X[k] for k in mine.tolist()], weights[mine], ball)
        total += 2 * spread + ball.at_zero * float(np.sqrt(np.sum(N[mine] * weights[mine] ** 2)))
    return Learning(float(root), 2 * complexity, 2 * lam * (d - 1) * total)
