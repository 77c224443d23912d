"""Which attacks are tried on which methods, and what honest clients get in the end.

A result is one row: accuracy, violation and worst client among the *honest* clients, on test rows,
under the model that was served. Rows are appended to a CSV file as they come; a suite that was
stopped goes on where it was.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from attacks.lies import ATTACKS, Liars, poisoned
from mfairfl.data import Federation
from mfairfl.engine.embedded import Member, run_all
from mfairfl.engine.loop import Result
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import MfairflError, RunDirectoryError, require_known
from mfairfl.fairness.cells import Statistics
from mfairfl.randomness import stream
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.execute import federation_of, model_of, setup_of, table_of
from mfairfl.strategies.registry import create, hyper_parameters_of
from mfairfl.training.execution import steady_arithmetic

ROUNDS = 20
"""Rounds of an attacked run: half of the default, so that a suite ends within the hour."""

# The paper's split of high heterogeneity, each of its five clients cut in two.
_HIGH_OF_TEN = (
    (0.25, 0.25, 0.05, 0.05, 0.05, 0.05, 0.1, 0.1, 0.05, 0.05),
    (0.05, 0.05, 0.2, 0.2, 0.15, 0.15, 0.05, 0.05, 0.05, 0.05),
)


class Case(NamedTuple):
    """One attacked run.

    Parameters
    ----------
    data, strategy, attack, robust : str
        Names of each.
    liars, clients : int
        So many of so many lie.
    seed : int
        Of the split, the run and the draw of the liars.
    split : {"high", "dirichlet", "iid"}
        How rows are split among clients.
    rounds : int
        Of training.
    """

    data: str
    strategy: str
    attack: str
    robust: str
    liars: int = 2
    clients: int = 10
    seed: int = 0
    split: str = "high"
    rounds: int = ROUNDS

    def config(self) -> Config:
        """Return the run's configuration: the defaults, and what the attack needs."""
        clients: dict[str, Any] = {"scheme": self.split, "count": self.clients}
        if self.split == "high" and self.clients == 10:
            clients = {"scheme": "ratio", "options": {"ratios": _HIGH_OF_TEN}}
        strategy = {"name": self.strategy, **ATTACKS[self.attack].strategy}
        values = {
            "seed": self.seed,
            "data": {"name": self.data},
            "clients": clients,
            "strategy": strategy,
            "training": {"rounds": self.rounds},
            "robust": self.robust,
        }
        return make_config(values, f"attack {self.attack}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackOutcome:
    """What became of a case, among honest clients and on test rows.

    Parameters
    ----------
    accuracy, violation, worst : float
        Pooled accuracy, violation of the run's goal, accuracy of the worst client.
    liars_out, honest_out : int
        Rounds times clients that were set aside.
    error : str
        Why the run ended early; empty if it did not.
    """

    case: Case
    accuracy: float
    violation: float
    worst: float
    liars_out: int = 0
    honest_out: int = 0
    error: str = ""

    def row(self) -> dict[str, Any]:
        """Return it as a row of the CSV file."""
        plain = {**self.case._asdict(), **asdict(self)}
        del plain["case"]
        return plain


def core(
    data: Sequence[str] = ("compas", "adult", "bank"), seeds: Iterable[int] = range(5)
) -> list[Case]:
    """Return every attack on FedAvg and mFairFL, with and without defence: 2 of 10 lie."""
    return [
        Case(name, strategy, attack, robust, seed=seed)
        for name in data
        for seed in seeds
        for attack in ATTACKS
        for strategy in ("fedavg", "mfairfl")
        for robust in ("none", "auto")
    ]


def wider(data: str = "compas", seeds: Iterable[int] = range(2)) -> list[Case]:
    """Return other rules, methods, numbers of liars and splits, on one data set."""
    both, rules = ("fedavg", "mfairfl"), ("clip", "nnm-gm", "multi-krum", "centred-clip")
    plain = ("none", "auto")
    found = []
    for seed in seeds:
        for attack in ATTACKS:
            given: dict[str, Any] = {"data": data, "attack": attack, "seed": seed}
            found += [Case(strategy=s, robust=r, **given) for s in both for r in rules]
            found += [
                Case(strategy=s, robust=r, **given) for s in ("fpfl", "fedfb") for r in plain
            ]
            found += [
                Case(strategy=s, robust=r, liars=liars, clients=clients, **given)
                for liars, clients in ((1, 5), (1, 10), (4, 10))
                for s in both
                for r in plain
            ]
            found += [
                Case(strategy=s, robust=r, split="dirichlet", **given) for s in both for r in plain
            ]
    return found


def fits(case: Case) -> bool:
    """Say whether an attack has something to lie about in a strategy."""
    return set(ATTACKS[case.attack].strategy) <= set(hyper_parameters_of(create(case.strategy)))


# ------------------------------------------------------------------ carry out


def run_cases(
    cases: Sequence[Case],
    out: Path,
    *,
    processes: int | None = None,
    done: Callable[[Case], None] | None = None,
) -> list[AttackOutcome]:
    """Carry out cases over processes; those with a row in `out` are not repeated.

    Parameters
    ----------
    out : Path
        The CSV file.
    processes : int, optional
        By default one for each processor this process may use.
    done : callable, optional
        Called with every case that is finished.
    """
    known = {outcome.case: outcome for outcome in read_outcomes(out)} if out.exists() else {}
    left = [case for case in dict.fromkeys(cases) if case not in known and fits(case)]
    for case in known:
        if done is not None and case in cases:
            done(case)
    with (
        _one_thread(),
        ProcessPoolExecutor(
            processes or len(os.sched_getaffinity(0)),
            mp_context=multiprocessing.get_context("spawn"),
            # Ctrl-C reaches every process of a terminal; this one says so for all.
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),
        ) as pool,
    ):
        waiting = {pool.submit(run_case, case): case for case in left}
        try:
            for future in as_completed(waiting):
                outcome = future.result()
                _append(out, outcome)
                known[outcome.case] = outcome
                if done is not None:
                    done(outcome.case)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return [known[case] for case in cases if case in known]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the processes that are started meanwhile use one thread each."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    before = {name: os.environ.get(name) for name in threads}
    os.environ.update(threads)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_case(case: Case) -> AttackOutcome:
    """Carry out one case in this process."""
    config, attack = case.config(), ATTACKS[case.attack]
    clean = _federation(case._replace(strategy="fedavg", attack="none", robust="none", liars=0))
    liars = _liars(case, [client.name for client in clean.clients])
    federation = poisoned(clean, attack, liars)
    model = model_of(config, federation.pool.inputs.width)
    setup, watch = setup_of(config, federation, model), _Asides(liars)
    member = Member(
        setup=setup,
        model=model,
        federation=federation,
        callbacks=(watch,),
        tamper=Liars(setup, attack, liars),
    )
    try:
        with steady_arithmetic():
            (result,) = run_all([member])
    except MfairflError as error:
        lost: dict[str, Any] = dict.fromkeys(("accuracy", "violation", "worst"), float("nan"))
        return AttackOutcome(case=case, **lost, error=str(error))
    outs = {"liars_out": watch.liars_out, "honest_out": watch.honest_out}
    numbers: dict[str, Any] = {**_numbers(setup, result, liars), **outs}
    return AttackOutcome(case=case, **numbers)


@lru_cache(maxsize=1)  # cases on the same rows follow each other
def _federation(case: Case) -> Federation:
    config = case.config()
    return federation_of(config, table_of(config))


def _liars(case: Case, names: Sequence[str]) -> list[str]:
    drawn = stream(case.seed, "liars").permutation(len(names))[: case.liars]
    return sorted(names[i] for i in drawn)


def _numbers(setup: Setup, result: Result, liars: Sequence[str]) -> dict[str, float]:
    measured = result.measured[0]["test"]
    honest = {name: sums for name, sums in measured.items() if name not in liars}
    whole = Statistics.pooled(honest)
    return {
        "accuracy": whole.accuracy,
        "violation": setup.summary.constraints.violation(whole),
        "worst": min(sums.accuracy for sums in honest.values()),
    }


@dataclass(slots=True)
class _Asides:
    """Callback that counts who is set aside."""

    liars: Sequence[str]
    liars_out: int = field(default=0, init=False)
    honest_out: int = field(default=0, init=False)

    def on_start(self, setup: Setup, state: RunState) -> None:
        """Nothing has happened yet."""

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        """Count this round's."""
        del setup, state
        lying = sum(name in self.liars for name in record.set_aside)
        self.liars_out += lying
        self.honest_out += len(record.set_aside) - lying


# ------------------------------------------------------------------ the file


def _append(path: Path, outcome: AttackOutcome) -> None:
    row, new = outcome.row(), not path.exists() or path.stat().st_size == 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def read_outcomes(path: Path) -> list[AttackOutcome]:
    """Read what a suite wrote."""
    whole = ("liars", "clients", "seed", "rounds")
    numbers = {f.name for f in fields(AttackOutcome)} - {"case", "error"}
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                case: dict[str, Any] = {
                    k: int(row[k]) if k in whole else row[k] for k in Case._fields
                }
                values: dict[str, Any] = {name: float(row[name]) for name in numbers}
            except (KeyError, TypeError, ValueError):
                raise RunDirectoryError(
                    f"{path}: line {line} is not a result of this suite; choose another file"
                ) from None
            require_known("attack", [str(case["attack"])], list(ATTACKS))
            outs = {name: int(values[name]) for name in ("liars_out", "honest_out")}
            found.append(
                AttackOutcome(case=Case(**case), **{**values, **outs}, error=row["error"])
            )
    return found
