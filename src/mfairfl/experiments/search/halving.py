"""Tuning for a comparison: cross-validation inside the train rows, successive halving.

Every method gets the same budget: as many settings drawn from its grids, the same rungs. A rung
trains the settings that are left on more folds or for longer and keeps the best by the rule of
`choose`: the most accurate that is fair enough, then the next, and so on. Test rows are not used.

The first setting is always the defaults. Where the grids hold fewer settings than wanted, all
of them are tried.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mfairfl.experiments.search import space as spaces
from mfairfl.experiments.search.trials import Scored, choose, mean_of
from mfairfl.experiments.study import StrategyVariant, Study, Trial, load_study, run_name, trials
from mfairfl.experiments.study_run import StudyWatcher, Unwatched
from mfairfl.files import write_atomically
from mfairfl.randomness import stream
from mfairfl.runs.config import Config, make_config
from mfairfl.runs.options import nested
from mfairfl.runs.record import RunRecord
from mfairfl.runs.workers import planned_runs, run_many

LEARNING_RATES = (0.001, 0.002, 0.005, 0.01, 0.02)
"""The paper's grid (Table S1); .002, our default, it has for FedAvg only."""

Setting = Mapping[str, Any]
"""Dotted keys of a run's configuration, and their values."""

Runner = Callable[[Sequence[Config]], Sequence[RunRecord]]
"""Carries out runs and returns their records, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """How many settings reach this rung, on which folds, for which share of the rounds."""

    settings: int
    folds: tuple[int, ...]
    share: float = 1.0


RUNGS = (
    Rung(settings=8, folds=(0,), share=0.5),
    Rung(settings=3, folds=(0,)),
    Rung(settings=2, folds=(0, 1, 2)),
)
FOLDS = 3


@dataclass(slots=True, kw_only=True)
class Subject:
    """A method on a data set, for one notion: what is tuned by itself.

    Attributes
    ----------
    settings : list of Setting
        Those that are left, best first once they were tried.
    scores : list of Scored
        Theirs on the last rung.
    reason : str
        Why the first was chosen.
    rows : list of dict
        Every trial so far.
    """

    trial: Trial
    settings: list[Setting]
    scores: list[Scored] = field(default_factory=list)
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)

    def rank(self, scores: Sequence[Scored], tolerance: float) -> None:
        """Put the settings into the order of their scores, best first."""
        order = ranked(scores, tolerance)
        self.settings = [self.settings[place] for place in order]
        self.scores = [scores[place] for place in order]
        self.reason = choose(self.scores, tolerance).reason


def candidates(variant: StrategyVariant, count: int, seed: int) -> list[Setting]:
    """Return `count` settings from a method's grids, the defaults first, without repetition.

    Examples
    --------
    >>> from mfairfl.experiments.study import StrategyVariant
    >>> fedavg = StrategyVariant.model_validate("fedavg")
    >>> [setting.get("training.lr") for setting in candidates(fedavg, 3, seed=0)]
    [None, 0.005, 0.002]
    """
    space: spaces.Space = spaces.default_space(variant.name, spaces.Choices(LEARNING_RATES))
    if variant.search is not None:
        space = {key: spaces.Choices(grid) for key, grid in variant.search.items()}
    grids = [part.examples for part in space.values()]
    points = [dict(zip(space, values, strict=True)) for values in itertools.product(*grids)]
    method = {"name": variant.name, **(variant.model_extra or {})}
    defaults = spaces.own_values(make_config({"strategy": method}), space)
    others = [point for point in points if point != defaults]
    order = stream(seed, "candidates", variant.label).permutation(len(others))
    return [{}, *(others[i] for i in order[: count - 1])]


def subjects(study: Study, count: int) -> list[Subject]:
    """Return what a tuning study tunes; its first seed draws the clients and the folds."""
    variants = {variant.label: variant for variant in study.strategies}
    first = study.model_copy(update={"seeds": study.seeds[:1]})
    return [
        Subject(trial=trial, settings=candidates(variants[trial.strategy], count, trial.seed))
        for trial in trials(first)
    ]


def halve(
    tuned: Sequence[Subject],
    run: Runner,
    *,
    rungs: Sequence[Rung] = RUNGS,
    tolerance: float = 0.01,
) -> None:
    """Take all subjects through the rungs at once, so that every processor has work."""
    for number, rung in enumerate(rungs):
        for subject in tuned:
            subject.settings = subject.settings[: rung.settings]
        configs = [
            _config(subject.trial, setting, fold, rung)
            for subject in tuned
            for setting in subject.settings
            for fold in rung.folds
        ]
        records = iter(run(configs))
        for subject in tuned:
            scores = [
                _score(subject.trial, list(itertools.islice(records, len(rung.folds))))
                for _ in subject.settings
            ]
            for setting, score in zip(subject.settings, scores, strict=True):
                subject.rows.append(_row(subject.trial, setting, number, rung, score))
            subject.rank(scores, tolerance)


def ranked(scores: Sequence[Scored], tolerance: float) -> list[int]:
    """Return positions, best first: the choice, then the choice among the others, and so on.

    Examples
    --------
    >>> one = Scored(accuracy=0.8, violation=0.3, floor=0.0, constant_accuracy=0.5)
    >>> two = Scored(accuracy=0.7, violation=0.0, floor=0.0, constant_accuracy=0.5)
    >>> ranked([one, two], 0.01)
    [1, 0]
    """
    places, order = list(range(len(scores))), []
    while places:
        chosen = choose([scores[place] for place in places], tolerance)
        order.append(places.pop(chosen.index))
    return order


def _config(trial: Trial, setting: Setting, fold: int, rung: Rung) -> Config:
    options = {
        **setting,
        "clients.folds": FOLDS,
        "clients.fold": fold,
        "training.rounds": max(1, round(trial.config.training.rounds * rung.share)),
    }
    return make_config(nested(options, trial.config.model_dump(mode="json")), trial.strategy)


def _score(trial: Trial, records: Sequence[RunRecord]) -> Scored:
    """Return means over folds; the violation is the notion's, or the spread of the clients."""
    tests = [record.table("test") for record in records]
    violation = floor = 0.0
    # A method without a protected party has nothing to keep small.
    if trial.config.strategy.create().card.protects != "nothing":
        small = [test.get(spaces.default_metrics(trial.config)[0]) for test in tests]
        violation = mean_of([number.value for number in small])
        floor = mean_of([number.noise_floor for number in small])
    return Scored(
        accuracy=mean_of([test["accuracy"].value for test in tests]),
        violation=violation,
        floor=floor,
        constant_accuracy=mean_of([test.constant_classifier["accuracy"] for test in tests]),
    )


def _row(trial: Trial, setting: Setting, number: int, rung: Rung, score: Scored) -> dict[str, Any]:
    return {
        "data": trial.data,
        "strategy": trial.strategy,
        "notion": trial.notion,
        "rung": number,
        "setting": json.dumps(dict(setting), sort_keys=True),
        "folds": len(rung.folds),
        "share": rung.share,
        "accuracy": score.accuracy,
        "violation": score.violation,
        "floor": score.floor,
    }


def write_lock(tuned: Sequence[Subject], title: str) -> str:
    """Return the lock file: each data set's and method's chosen values, and what they scored."""
    lines = [f"# {title}"]
    for subject in tuned:
        score = subject.scores[0]
        lines += [
            "",
            f"[{json.dumps(subject.trial.data)}.{json.dumps(subject.trial.strategy)}]",
            f"# {subject.reason}",
            f"# accuracy {score.accuracy:.4f}, violation {score.violation:.4f} "
            f"(noise floor {score.floor:.4f})",
            # JSON's numbers, strings and booleans are TOML's.
            *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in subject.settings[0].items()),
        ]
    return "\n".join(lines) + "\n"


def make_lock(file: Path, out: Path, *, watcher: StudyWatcher | None = None) -> None:
    """Choose hyper-parameters for every method of a study file; write them and all trials.

    `out` then holds lock.toml and tuning.csv.
    """
    study = load_study(file)

    shown = watcher or Unwatched()

    def run(configs: Sequence[Config]) -> list[RunRecord]:
        names = [run_name(("tuning", c.data.name or "own", c.strategy.name), c) for c in configs]
        work = [(c, out / "runs" / name) for c, name in zip(configs, names, strict=True)]
        shown.begin("tuning", planned_runs(work))
        return run_many(work, progress=shown.on_round)

    tuned = subjects(study, RUNGS[0].settings)
    halve(tuned, run)
    rows = pd.DataFrame([row for subject in tuned for row in subject.rows])
    text = rows.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "tuning.csv", text.encode())
    write_atomically(out / "lock.toml", write_lock(tuned, study.title).encode())
