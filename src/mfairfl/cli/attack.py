"""`mfairfl attack`: what clients that lie achieve, with and without defence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_table, print_text, say, terminal
from mfairfl.errors import ConfigError, require_known

if TYPE_CHECKING:
    from mfairfl.experiments.attacks.suite import Case
    from mfairfl.experiments.attacks.tables import AttackLine

_SUITES = ("core", "wider")


def attack(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ATTACK...]", help="Names of attacks; by default all of them."),
    ] = None,
    *,
    suite: Annotated[
        str | None,
        typer.Option(help="A whole table: core (an hour on two processors) or wider."),
    ] = None,
    data: Annotated[list[str] | None, typer.Option(help="Data sets; compas by default.")] = None,
    strategy: Annotated[
        list[str] | None, typer.Option(help="Methods; mfairfl by default.")
    ] = None,
    robust: Annotated[
        list[str] | None, typer.Option(help="Defences; none and auto by default.")
    ] = None,
    liars: Annotated[int, typer.Option(min=0, help="How many clients lie.")] = 2,
    clients: Annotated[int, typer.Option(min=2, help="How many clients there are.")] = 10,
    split: Annotated[
        str, typer.Option(help="How rows are split: high (10 or 5 clients), dirichlet, iid.")
    ] = "high",
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 20,
    out: Annotated[
        Path, typer.Option(help="CSV file for the results; those it has are not repeated.")
    ] = Path("attacks.csv"),
    json: Json = False,
) -> None:
    """Let clients lie, and show what the honest ones get: accuracy, violation, worst client.

    Repeat the command to go on where it was stopped.

    Examples
    --------
    mfairfl attack sign-flip alie-optimal --data compas --strategy fedavg --strategy mfairfl
    mfairfl attack --liars 1 --clients 5 --robust multi-krum --seeds 3
    mfairfl attack --suite core --out results/attacks.csv
    """
    if liars >= clients:
        raise ConfigError(f"--liars {liars}: somebody must be honest; there are {clients} clients")
    require_known("suite", [suite or _SUITES[0]], _SUITES)
    given = (data or ["compas"], strategy or ["mfairfl"], robust or ["none", "auto"])
    cases = _suite(suite) if suite else _cases(names or (), *given, range(seeds))
    cases = [
        case if suite else case._replace(liars=liars, clients=clients, split=split, rounds=rounds)
        for case in cases
    ]
    found = _carry_out(cases, out)
    if json:
        print_json([_plain(line) for line in found])
        return
    _print(found)
    say(f"{out}: every run")


def _suite(name: str) -> list[Case]:
    from mfairfl.experiments.attacks.suite import core, wider  # noqa: PLC0415 - loads PyTorch

    return core() if name == "core" else wider()


def _cases(
    names: Sequence[str],
    data: Sequence[str],
    strategies: Sequence[str],
    rules: Sequence[str],
    seeds: Sequence[int],
) -> list[Case]:
    """Return the cases that flags ask for; the run without attack is always among them."""
    from mfairfl.experiments.attacks.lies import ATTACKS  # noqa: PLC0415 - loads PyTorch
    from mfairfl.experiments.attacks.suite import Case  # noqa: PLC0415

    require_known("attack", names, list(ATTACKS))
    chosen = dict.fromkeys(["none", *(names or ATTACKS)])
    return [
        Case(one, strategy, attack, rule, seed=seed)
        for one in data
        for seed in seeds
        for attack in chosen
        for strategy in strategies
        for rule in rules
    ]


def _carry_out(cases: Sequence[Case], out: Path) -> list[AttackLine]:
    from mfairfl.cli.progress import ManyRuns, stoppable  # noqa: PLC0415
    from mfairfl.experiments.attacks.suite import fits, run_cases  # noqa: PLC0415 - loads PyTorch
    from mfairfl.experiments.attacks.tables import lines  # noqa: PLC0415
    from mfairfl.runs.workers import PlannedRun  # noqa: PLC0415

    fitting = [case for case in cases if fits(case)]
    for case in fitting:
        case.config()  # a wrong name is told before anything runs
    with stoppable(), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.begin("attacks", {str(case): PlannedRun() for case in fitting})
        return lines(run_cases(fitting, out, done=lambda case: watcher.on_round(str(case), 1, 1)))


def _plain(line: AttackLine) -> dict[str, Any]:
    changes = {
        name: {"mean": _finite(one.mean), "half_width": _finite(one.half)}
        for name, one in line.changes.items()
    }
    return {
        **line.setting._asdict(),
        "attack": line.attack,
        "seeds": line.seeds,
        **{name: _finite(value) for name, value in line.means.items()},
        "changes": changes,
        "liars_set_aside": line.liars_out,
        "honest_set_aside": line.honest_out,
        "ended_early": line.ended,
    }


def _finite(value: float) -> float | None:
    return value if value == value else None  # noqa: PLR0124 - nan is not equal to itself


def _print(found: Sequence[AttackLine]) -> None:
    head = ["data", "method", "robust", "liars", "attack", "accuracy", "violation", "worst client"]
    head += ["liars out", "honest out"]
    print_table(
        head,
        [
            [
                line.setting.data,
                line.setting.strategy,
                line.setting.robust,
                f"{line.setting.liars}/{line.setting.clients}",
                line.attack,
                *(f"{line.means[name]:.3f}" for name in line.means),
                f"{line.liars_out:.0%}",
                f"{line.honest_out:.0%}",
            ]
            for line in found
        ],
        right=(3, 5, 6, 7, 8, 9),
    )
    print_text(
        "accuracy, violation and worst client: of the honest clients, on test rows. out: share of "
        "rounds in which clients were set aside or suspended."
    )
