"""`mfairfl.choose`: from what a person asks for to a method, an output rule, and a finished run.

A few methods are trained side by side on folds of the train rows. Thresholds of a method that
serves its last weights follow from the counts of its scores, without another training. What is
chosen is trained once more on all train rows; test rows only report.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from mfairfl.data import Table
from mfairfl.engine.embedded import counts_of
from mfairfl.engine.state import RoundRecord, RunState, Setup
from mfairfl.errors import ConfigError, require_known
from mfairfl.experiments.candidates import (
    BASELINE,
    Contender,
    FoldNumbers,
    Pick,
    pick_accurate,
    pick_fair,
)
from mfairfl.experiments.choice import ChosenModel, Wanted
from mfairfl.experiments.search.space import applied
from mfairfl.experiments.study_run import StudyWatcher, Unwatched
from mfairfl.fairness.constraints import Constraints
from mfairfl.fairness.fitting import By, Demand, fit_thresholds, refuse_losses
from mfairfl.fairness.rates import constant_classifier, performance, pooled_table, violation_of
from mfairfl.fairness.rule_counts import tally_under
from mfairfl.fairness.tally import Tally
from mfairfl.files import write_atomically
from mfairfl.runs.config import Allowed, Config, make_config
from mfairfl.runs.execute import (
    Run,
    RunRequest,
    federation_of,
    run_requests,
    table_of,
    with_baseline,
)
from mfairfl.runs.options import dotted, settings
from mfairfl.runs.workers import planned_runs

METHODS = (BASELINE, "fedfb", "fpfl", "mfairfl")
TOLERANCES = (0.01, 0.02, 0.05, 0.1)
"""What is tried where no violation, but a loss of accuracy is given."""

_DECIDED = (
    *("fairness.tolerance", "fairness.dead_zone", "fairness.verdict_tolerance"),
    "clients.folds",
)
_log = logging.getLogger("mfairfl")


def choose(
    config: Config | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    at_most: str | None = None,
    lose_at_most: float | None = None,
    by: By = "none",
    methods: Sequence[str] = METHODS,
    folds: int = 3,
    rows: Table | None = None,
    workers: int | None = None,
    watcher: StudyWatcher | None = None,
) -> ChosenModel:
    """Choose a method and an output rule on folds of the train rows, then train the choice.

    Parameters
    ----------
    config : Config, path or mapping
        Data, task, clients, model and budget, as for `mfairfl train`. Method, tolerance and output
        rule are what is chosen.
    out : path, optional
        Run folder of the chosen model; None keeps it in memory.
    at_most : str
        Notions and the largest acceptable violation: ``"dp 0.05"`` or ``"dp,eo 0.05"``. The most
        accurate candidate is chosen.
    lose_at_most : float
        How much of FedAvg's accuracy may be lost, instead. The fairest candidate by the configured
        notion is chosen.
    by : {"none", "group"}
        Whether a decision may depend on a person's group.
    methods : sequence of str
        Which are tried, FedAvg always.
    folds : int
        Number of parts of each client's train rows; each is held out once.
    rows : Table, optional
        Rows in memory, instead of what the configuration names.
    workers : int, optional
        Threads; the result does not depend on it.
    watcher : StudyWatcher, optional
        Receives the progress.

    Raises
    ------
    ConfigError
        If the configuration says itself what is to be chosen.
    """
    wanted = Wanted.of(at_most, lose_at_most)
    plan = _Trials.of(_configuration(config, wanted, by), wanted, methods, folds, rows)
    beforehand = plan.beforehand()
    if beforehand:
        _log.warning(beforehand)
    train = partial(_trained, watcher=watcher or Unwatched(), workers=workers)
    trials = plan.trials(train([RunRequest(config=c, rows=rows) for c in plan.fold_configs()]))
    pick = plan.pick(trials, by)
    folder, chosen = None if out is None else Path(out), trials[pick.chosen].candidate
    request = RunRequest(config=plan.config_of(chosen), out=folder, rows=rows)
    run, *beside = train(with_baseline(request, chosen != plan.baseline))
    choice = ChosenModel(
        wanted=wanted,
        folds=folds,
        trials=trials,
        pick=pick,
        free=plan.pick(trials, "none" if plan.config.fairness.blind else "group"),
        beforehand=beforehand,
        run=replace(run, baseline=beside[0]) if beside else run,
    )
    if folder is not None:
        text = json.dumps(choice.to_json(), indent=1, allow_nan=False)
        write_atomically(folder / "choice.json", text.encode() + b"\n")
    return choice


def _configuration(
    config: Config | str | Path | Mapping[str, Any], wanted: Wanted, by: By
) -> Config:
    """Return the configuration with the notions; refuse what it says of what is to be chosen."""
    require_known("by", [by], ("none", "group"))
    source = str(config) if isinstance(config, str | Path) else "configuration"
    if not isinstance(config, Config):
        config = make_config(settings(config, {}), source)
    said = dotted(config.model_dump(exclude_defaults=True))
    taken = [key for key in said if key in _DECIDED or key.startswith("output.")]
    if taken:
        raise ConfigError(f"{source}: {taken[0]}: is what `choose` decides; remove it")
    if config.fairness.blind and by == "group":
        raise ConfigError("fairness.blind: by = 'group' reads the group; leave one of them out")
    return applied(config, {"fairness.notion": list(wanted.notions)} if wanted.notions else {})


class _NamedRounds:
    """Callback that passes the rounds of one run on to a watcher of many."""

    def __init__(self, name: str, watcher: StudyWatcher) -> None:
        self._name, self._watcher = name, watcher

    def on_start(self, setup: Setup, state: RunState) -> None:
        self._watcher.on_round(self._name, state.round, setup.rounds)

    def on_round(self, setup: Setup, state: RunState, record: RoundRecord) -> None:
        del record
        self.on_start(setup, state)


def _trained(
    requests: Sequence[RunRequest], *, workers: int | None, watcher: StudyWatcher
) -> list[Run]:
    """Train runs side by side."""
    watcher.begin("choose", planned_runs([(r.config, str(i)) for i, r in enumerate(requests)]))
    watched = [
        replace(request, callbacks=(_NamedRounds(str(i), watcher),))
        for i, request in enumerate(requests)
    ]
    return run_requests(watched, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """What is tried.

    Parameters
    ----------
    train, test : ndarray (C, 2)
        Rows by cell and label: those that folds hold out in turn, and those that will report.
    aims : mapping
        By tolerance: how far below it training and rule stay, in folds as in the final run.
    sources : mapping
        What is trained for each candidate: itself, or the method whose scores its thresholds meet.
    """

    config: Config
    wanted: Wanted
    constraints: Constraints
    folds: int
    train: np.ndarray
    test: np.ndarray
    aims: Mapping[float, Allowed]
    sources: Mapping[Contender, Contender]

    @classmethod
    def of(
        cls,
        config: Config,
        wanted: Wanted,
        methods: Sequence[str],
        folds: int,
        rows: Table | None,
    ) -> "_Trials":
        """Prepare the clients, and refuse what cannot be tried, before anything is trained."""
        federation = federation_of(config, table_of(config, rows))
        names = tuple(attribute.name for attribute in federation.attributes)
        constraints = config.goal(names).constraints(federation.attributes)
        refuse_losses(constraints)
        train, test = (
            np.sum([*counts_of(federation, split).values()], axis=0) for split in ("train", "test")
        )
        if not test.any():
            raise ConfigError("clients.test = 0: choose reports on test rows; give 0.2")
        aims = {
            tolerance: applied(config, {"fairness.tolerance": tolerance}).allowed(
                constraints, [test]
            )
            for tolerance in (TOLERANCES if wanted.at_most is None else (wanted.at_most,))
        }
        sources: dict[Contender, Contender] = {}
        for method in dict.fromkeys((BASELINE, *methods)):
            sources |= _candidates(config, method, aims)
        return cls(
            config=config,
            wanted=wanted,
            constraints=constraints,
            folds=folds,
            train=train,
            test=test,
            aims=aims,
            sources=sources,
        )

    @property
    def baseline(self) -> Contender:
        """FedAvg as it is."""
        return next(iter(self.sources))

    @property
    def trained(self) -> Sequence[Contender]:
        """What is trained on folds."""
        return list(dict.fromkeys(self.sources.values()))

    def config_of(self, candidate: Contender, more: Mapping[str, Any] | None = None) -> Config:
        """Return the configuration of a run with these further values."""
        values = _with_method(self.config, candidate.strategy)
        tolerance = candidate.tolerance or self.wanted.at_most
        values |= {"fairness.tolerance": tolerance, **(more or {})}
        if self.sources[candidate] != candidate:
            values |= {"output.rule": candidate.rule, "output.by": candidate.by}
        return applied(self.config, values)

    def beforehand(self) -> str:
        """Return a warning if test rows are too few to show the tolerance; else nothing."""
        tolerance, margin = self.wanted.at_most, self.constraints.margin(self.test)
        if tolerance is None or margin <= tolerance / 2:
            return ""
        found = float(self.test.sum())
        needed = found * (2 * margin / tolerance) ** 2
        return (
            f"too few rows to show a violation of at most {tolerance:g}: {found:,.0f} test rows "
            f"ask for a margin of {margin:.4f}, more than half of it; about {needed:,.0f} test "
            f"rows ({needed / self.config.clients.test:,.0f} in all) would do"
        )

    def fold_configs(self) -> Iterator[Config]:
        """Yield what is trained on all folds but one: every method, fold by fold."""
        for source, fold in product(self.trained, range(self.folds)):
            more: dict[str, Any] = {"clients.folds": self.folds, "clients.fold": fold}
            if source.tolerance is not None:
                aim = self.aims[source.tolerance]
                more |= {"fairness.dead_zone": aim.dead_zone, "output.tolerance": aim.output}
            yield self.config_of(source, more)

    def trials(self, runs: Sequence[Run]) -> tuple[FoldNumbers, ...]:
        """Return what every candidate decides on the held-out rows of these runs."""
        of = {one: runs[i * self.folds :][: self.folds] for i, one in enumerate(self.trained)}
        return tuple(self._numbers(one, of[source]) for one, source in self.sources.items())

    def _numbers(self, candidate: Contender, runs: Sequence[Run]) -> FoldNumbers:
        tallies = [self._decided(candidate, run) for run in runs]
        alike = [
            constant_classifier(run.record.tallies["test"], majority=run.record.tallies["train"])
            for run in runs
        ]
        return FoldNumbers(
            candidate=candidate,
            accuracies=tuple(map(_accuracy, tallies)),
            violations=tuple(map(self._violation, tallies)),
            violation=self._violation(reduce(add, tallies)),
            constant_accuracy=float(np.mean([*map(_accuracy, alike)])),
        )

    def _decided(self, candidate: Contender, run: Run) -> Tally:
        """Return a candidate's counts on the held-out rows of a run."""
        held_out = run.record.tallies["test"]
        if candidate.rule != "thresholds" or self.sources[candidate] == candidate:
            return held_out
        fitted_to = run.scores["validation" if "validation" in run.scores else "train"]
        aim = self.aims[candidate.tolerance or 0.0].output
        demand = Demand(by=candidate.by or "none", tolerance=aim)
        rule = fit_thresholds(fitted_to, self.constraints, demand).thresholds
        return tally_under(rule, run.scores["test"], held_out.attributes)

    def _violation(self, tally: Tally) -> float:
        measures = [
            violation_of(item, self.constraints.groupings) for item in self.constraints.notions
        ]
        return float(np.max([measure.value(tally.counts) for measure in measures]))

    def pick(self, trials: Sequence[FoldNumbers], by: By) -> Pick:
        """Return the pick.

        What candidates show on held-out rows may exceed what they aim at by the margin of so many
        rows, which is smaller than the one of test rows, but never the tolerance.
        """
        tolerance = self.wanted.at_most
        if tolerance is None:
            return pick_fair(trials, self.wanted.lose_at_most or 0.0, by=by)
        limit = self.aims[tolerance].output + self.constraints.margin(self.train)
        return pick_accurate(trials, min(tolerance, limit), by=by)


def _candidates(
    config: Config, method: str, tolerances: Iterable[float]
) -> Iterator[tuple[Contender, Contender]]:
    """Yield a method's candidates, each with what is trained for it."""
    card = applied(config, _with_method(config, method)).strategy.create().card
    if card.usual_rule in ("select", "thresholds"):
        own: By | None = card.thresholds_by if card.usual_rule == "thresholds" else None
        for tolerance in tolerances:
            one = Contender(strategy=method, rule=card.usual_rule, by=own, tolerance=tolerance)
            yield one, one
        return
    source = Contender(strategy=method, rule=card.usual_rule)
    yield source, source
    if card.usual_rule != "last" or card.serves != "global":
        return
    permitted: tuple[By, ...] = ("none",) if config.fairness.blind else ("none", "group")
    for by, tolerance in product(permitted, tolerances):
        yield Contender(strategy=method, rule="thresholds", by=by, tolerance=tolerance), source


def _with_method(config: Config, method: str) -> dict[str, Any]:
    """Return the section of a method; its hyper-parameters are those of the configuration."""
    own = config.strategy.model_dump(mode="json", exclude_unset=True)
    same = config.strategy.name == method
    return {"strategy": {**(own if same else {}), "name": method}}


def _accuracy(tally: Tally) -> float:
    return performance("accuracy", pooled_table(tally.counts))[0]
