"""What is true of GIFAIR's convergence, as functions: docs/theory.md says it in words.

optimum         θ* and H* with a certificate, by the concave dual
constants       L, μ, G, σ_k, Γ_K, Γ_max
recursion       the bound that holds, round by round; δ itself is `objective.rank_error`
bounds          the paper's Theorems 1 and 2, as printed and corrected
clarke          stationarity at kinks, for any model
generalisation  the paper's learning bound
follow          a run of which every version of the model is kept
"""

from gifair_ray.theory.constants import Constants, constants
from gifair_ray.theory.follow import Path, follow, quadratics
from gifair_ray.theory.optimum import Optimum, optimum
from gifair_ray.theory.problems import Problem, Quadratics, Softmax, ridge
from gifair_ray.theory.rates import slope

__all__ = [
    "Constants",
    "Optimum",
    "Path",
    "Problem",
    "Quadratics",
    "Softmax",
    "constants",
    "follow",
    "optimum",
    "quadratics",
    "ridge",
    "slope",
]
