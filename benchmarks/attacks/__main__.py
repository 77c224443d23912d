"""Let clients lie, and show what the honest ones get: accuracy, violation, worst client.

    PYTHONPATH=benchmarks python -m attacks sign-flip alie-optimal --data compas
    PYTHONPATH=benchmarks python -m attacks --liars 1 --clients 5 --robust multi-krum --seeds 3
    make attacks     # both suites and their page

Repeat a command to continue where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from attacks.lies import ATTACKS
from attacks.page import page
from attacks.suite import ROUNDS, Case, core, fits, read_outcomes, run_cases, wider
from attacks.tables import AttackLine, lines
from mfairfl.errors import ConfigError, MfairflError, require_known
from mfairfl.files import write_atomically
from mfairfl.text import aligned

SUITES = {"core": core, "wider": wider}
HEAD = ["data", "method", "robust", "liars", "attack", "accuracy", "violation", "worst client"]
HEAD += ["liars out", "honest out"]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("attacks", description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="ATTACK", help="by default all of them")
    parser.add_argument("--suite", nargs="+", help="whole tables: core (an hour), wider")
    parser.add_argument("--data", nargs="+", default=["compas"])
    parser.add_argument("--strategy", nargs="+", default=["mfairfl"])
    parser.add_argument("--robust", nargs="+", default=["none", "auto"], help="defences")
    parser.add_argument("--liars", type=int, default=2)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--split", default="high", choices=["high", "dirichlet", "iid"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=Path("attacks.csv"), help="one row per run")
    parser.add_argument("--page", type=Path, help="a page of both suites")
    return parser.parse_args(given)


def cases_of(args: argparse.Namespace) -> list[Case]:
    """Return what is asked for; the run without attack is always included."""
    if args.suite:
        require_known("suite", args.suite, list(SUITES))
        return [case for name in args.suite for case in SUITES[name]()]
    if args.liars >= args.clients:
        raise ConfigError(f"--liars {args.liars}: at least one of {args.clients} must be honest")
    require_known("attack", args.names, list(ATTACKS))
    chosen = dict.fromkeys(["none", *(args.names or ATTACKS)])
    return [
        Case(data, strategy, attack, rule, args.liars, args.clients, seed, args.split, args.rounds)
        for data, seed, attack, strategy, rule in product(
            args.data, range(args.seeds), chosen, args.strategy, args.robust
        )
    ]


def carry_out(cases: Sequence[Case], out: Path) -> list[AttackLine]:
    fitting = [case for case in cases if fits(case)]
    for case in fitting:
        case.config()  # a wrong name is refused before anything runs
    finished = 0

    def count(_: Case) -> None:
        nonlocal finished
        finished += 1
        print(f"{finished}/{len(fitting)} runs", file=sys.stderr)

    return lines(run_cases(fitting, out, done=count))


def table(found: Sequence[AttackLine]) -> str:
    rows = [
        [
            line.setting.data,
            line.setting.strategy,
            line.setting.robust,
            f"{line.setting.liars}/{line.setting.clients}",
            line.attack,
            *(f"{mean:.3f}" for mean in line.means.values()),
            f"{line.liars_out:.0%}",
            f"{line.honest_out:.0%}",
        ]
        for line in found
    ]
    return "\n".join(aligned([HEAD, *rows], right=(3, 5, 6, 7, 8, 9)))


def main(given: Sequence[str] | None = None) -> int:
    args = arguments(given)
    try:
        found = carry_out(cases_of(args), args.out)
    except MfairflError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(found))
    print(
        "accuracy, violation and worst client: of the honest clients, on test rows. out: share of "
        "rounds in which clients were set aside or suspended."
    )
    if args.page is not None:
        write_atomically(args.page, page(lines(read_outcomes(args.out))).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
