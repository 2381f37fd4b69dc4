"""`gifair theory`: the engine on a problem of known answer, beside what theory says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gifair_ray.errors import BadInput

if TYPE_CHECKING:
    from gifair_ray.theory.study import Study

FEWEST = 100  # rounds; with fewer there is no slope to speak of


def theory(arguments: argparse.Namespace) -> None:
    """Print constants, certificate, slopes and bounds, and draw the gaps."""
    from gifair_ray.theory.study import study

    if arguments.rounds < FEWEST:
        raise BadInput(f"--rounds {arguments.rounds} is less than {FEWEST}: no slope can be seen")
    if arguments.steps < 1:
        raise BadInput(f"--steps {arguments.steps} is less than 1")
    if arguments.fraction is not None and not 0 <= arguments.fraction < 1:
        raise BadInput(f"--fraction {arguments.fraction} is outside [0, 1)")
    folder = Path(arguments.output)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"-o {arguments.output} is a file: give a folder for the figures")
    found = study(
        arguments.problem, arguments.fraction, arguments.steps, arguments.rounds, arguments.seed
    )
    folder.mkdir(parents=True, exist_ok=True)
    files = _draw(found, arguments.problem, folder)
    for line in [*lines(found, arguments.problem), *map(str, files)]:
        print(line)


def lines(found: Study, name: str) -> list[str]:
    """What is printed."""
    from gifair_ray.theory.bounds import printed_floor

    k, best, scenario = found.k, found.best, found.scenario
    schedule, steps = scenario.work.schedule, scenario.work.steps
    d, C = int(found.problem.groups.max()) + 1, len(found.T)
    out = [
        f"problem       {name}: {k.K} clients in {d} groups, dimension {len(best.theta)}; "
        f"λ = {k.lam:.6g} = {k.lam / k.lam_max:.3g} λ_max",
        f"constants     μ = {k.mu:.6g}  L = {k.L:.6g}  G = {k.G:.4g}  σ_k = 0  "
        f"Γ_K = {k.Gamma_K:.6g}  Γ_max = {k.Gamma_max:.6g}",
        f"optimum       H* = {best.H:.10g}  θ* = ({', '.join(f'{x:.6f}' for x in best.theta)})",
        f"certificate   H(θ*) − max of the dual = {best.certificate:.1e}",
    ]
    pairs = ", ".join(f"{i} and {j} (σ = {best.sigma[i, j]:.6f})" for i, j in best.ties)
    out.append(f"ties at θ*    {'groups ' + pairs if pairs else 'none: H is smooth there'}")
    eta = f"η_t = {schedule.beta:.4g}/(t + {schedule.gamma:.4g})"
    out.append(f"runs          {eta}, E = {steps}, {C} rounds, everybody in every round")
    marks = [c for c in (100, 1000, 10_000, 100_000) if c < C] + [C]
    head = "".join(f"{f'C = {c}':>12}" for c in marks)
    out.append(f"{'gap':<26}{head}{'slope':>9}{'mean δ':>10}")
    for mode, run in found.modes.items():
        gaps = "".join(f"{run.gaps[c]:>12.1e}" for c in marks)
        out.append(f"  {mode + ' ranks':<24}{gaps}{run.slope:>9.2f}{run.deltas.mean():>10.1e}")
    out.append("bound")
    rows = {f"recursion, {mode}": run.recursion[1:] for mode, run in found.modes.items()}
    rows |= {"Theorem 1, corrected": found.corrected, "Theorem 1, as printed": found.printed}
    for label, values in rows.items():
        out.append(f"  {label:<24}" + "".join(f"{values[c - 1]:>12.1e}" for c in marks))
    out.append(f"  the printed bound tends to {printed_floor(k):.3g}, not to 0")
    for mode, run in found.modes.items():
        out += [
            f"{mode} ranks",
            f"  ‖θ − θ*‖² was at most {100 * run.worst:.3g} % of what the recursion allows a round",
            f"  at the end ‖∇H‖ = {run.gradient:.3g}; Clarke's measure {run.stationarity:.1e}",
        ]
    first, last = found.window
    out.append(f"slopes are fitted over C = {first} … {last}, to means over stretches")
    return out


def _draw(found: Study, name: str, folder: Path) -> list[Path]:
    from gifair_ray.analysis.convergence import Bound, Run, convergence, write

    steps = found.scenario.work.steps or 1
    runs = [
        Run(
            f"{mode} ranks (slope {run.slope:.2f})".replace("-", "−"),
            found.T,
            run.gaps[1:],
            f"recursion, {mode} ranks",
            run.recursion[1:],
        )
        for mode, run in found.modes.items()
    ]
    bounds = [
        Bound("Theorem 1, corrected", found.T, found.corrected),
        Bound("Theorem 1, as printed", found.T, found.printed),
    ]
    where = "the optimum is at a tie" if found.best.ties else "the optimum is smooth"
    fraction = found.k.lam / found.k.lam_max
    title = rf"{name}, $\lambda = {fraction:.2g}\,\lambda_\max$, $E = {steps}$: {where}"
    slope = -1.0 if found.best.ties else -2.0 if steps > 1 else None  # then it is geometric
    figure = convergence(title, runs, bounds, slope)
    return write(figure, folder / f"theory-{name}-f{fraction:.2g}-E{steps}")
