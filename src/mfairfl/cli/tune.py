"""`mfairfl tune`: search hyper-parameters by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import ConfigFile, configuration, default_folder, run_flags
from mfairfl.cli.show import print_json, print_table, print_text, terminal
from mfairfl.errors import ConfigError, require_extra
from mfairfl.runs.options import OPTIONS, comma_list, toml_value

if TYPE_CHECKING:
    from mfairfl.experiments.search.space import Choices, Range
    from mfairfl.experiments.search.trials import SearchResult, SearchTrial

_search = partial(typer.Option, rich_help_panel="Search")
_study = partial(typer.Option, rich_help_panel="Study")


@run_flags(but=["tolerance"])
def tune(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    trials: Annotated[int, _search(min=1, help="Complete trials wanted in total.")] = 30,
    folds: Annotated[int, _search(min=2, help="Folds of the train rows.")] = 3,
    search: Annotated[
        list[str] | None,
        _search(
            metavar="KEY=VALUES",
            help="Replace or add a key: strategy.beta=0.4,0.8, training.lr=0.001:0.1:log, "
            "training.local_epochs=1:10",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        _search(
            help="What counts as violation, by its name in run.json; by default that of the "
            "notion, or client_accuracy_std for methods that protect clients only."
        ),
    ] = None,
    tolerance: Annotated[
        float, _search(min=0, max=1, help="Largest acceptable violation.")
    ] = 0.01,
    study: Annotated[
        str | None, _study(help="Name of the study; by default DATA-STRATEGY-SCHEME-sSEED.")
    ] = None,
    storage: Annotated[
        str | None,
        _study(
            metavar="URL",
            help="Database to share a study: postgresql://... or sqlite:///...; by default a file "
            "in the --out folder.",
        ),
    ] = None,
    out: Annotated[
        Path | None, _study(help="Folder of this process; by default runs/tune-STUDY.")
    ] = None,
    json: Annotated[bool, _study("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Search hyper-parameters by cross-validation; test rows are not used.

    The most accurate trial whose violation is acceptable is chosen. Repeat the command to resume a
    stopped search.

    Examples
    --------
    mfairfl tune my.toml --trials 30
    mfairfl tune --data adult --heterogeneity high --strategy fedfb --notion eo
    mfairfl tune my.toml --search strategy.beta=0.4,0.8 --search lr=0.001:0.1:log
    """
    require_extra("optuna", "tune")
    config = configuration(file, flags)
    from mfairfl.cli.progress import TrialProgress, stoppable  # noqa: PLC0415

    name = default_folder(config).name if study is None else study
    folder = Path("runs") / f"tune-{name}" if out is None else out
    with stoppable(), TrialProgress(terminal(stderr=True), trials, quiet=json) as watcher:
        watcher.loading(f"{trials} trials")
        from mfairfl.experiments.search import optuna_study as library  # noqa: PLC0415 - takes seconds
        from mfairfl.experiments.search.space import default_space  # noqa: PLC0415

        tuned = library.tune(
            config,
            folder,
            space=default_space(config.strategy.name) | parse_search(search or ()),
            metrics=None if metric is None else comma_list(metric),
            folds=folds,
            trials=trials,
            tolerance=tolerance,
            study=name,
            storage=storage,
            watcher=watcher,
        )
    if json:
        print_json(_as_json(tuned, name))
    else:
        _print_choice(tuned, folder)


def parse_search(pairs: Sequence[str]) -> dict[str, Choices | Range]:
    """Read the values of --search.

    Examples
    --------
    >>> parse_search(["lr=0.001:0.1:log"])
    {'training.lr': Range(low=0.001, high=0.1, log=True)}
    >>> parse_search(["strategy.beta=0.4,0.8", "model.hidden=[32],[8, 8]"])
    {'strategy.beta': Choices(values=(0.4, 0.8)), 'model.hidden': Choices(values=([32], [8, 8]))}
    """
    space: dict[str, Choices | Range] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not key or not text:
            raise ConfigError(
                f"--search {pair}: write key=a,b,c or key=low:high or key=low:high:log"
            )
        try:
            space[OPTIONS[key].key if key in OPTIONS else key] = _values(text)
        except ConfigError as error:
            raise ConfigError(f"--search {pair}: {error}") from None
    return space


def _values(text: str) -> Choices | Range:
    from mfairfl.experiments.search.space import Choices, Range  # noqa: PLC0415

    bounds = [toml_value(bound) for bound in text.removesuffix(":log").split(":")]
    if len(bounds) == 2 and all(type(bound) in (int, float) for bound in bounds):
        return Range(bounds[0], bounds[1], log=text.endswith(":log"))
    values = toml_value(f"[{text}]")  # lists have commas of their own
    if not isinstance(values, list):
        values = [toml_value(value) for value in comma_list(text)]
    if any(values.count(value) > 1 for value in values):
        raise ConfigError("a value appears twice; give it once")
    return Choices(tuple(values))


def _print_choice(tuned: SearchResult, folder: Path) -> None:
    """Print the Pareto set and the choice, best accuracy first."""
    from mfairfl.display.numbers import DECIMAL  # noqa: PLC0415 - loads pandas

    search, best = tuned.search, tuned.best
    shown = [t for t in tuned.complete if t.number in tuned.pareto or t.number == best.number]
    shown.sort(key=lambda trial: -trial.mean("accuracy"))
    heads = {"accuracy": "accuracy", "constant_accuracy": "constant classifier"}
    for metric in search.metrics:
        heads |= {metric: metric.replace("_", " "), f"floor_{metric}": "noise floor"}
    rows = [
        [
            f"{trial.number}{' *' if trial.number == best.number else ''}",
            *(_shown(trial.values[key]) for key in search.space),
            *(DECIMAL.one(trial.mean(name)) for name in heads),
        ]
        for trial in shown
    ]
    keys = [key.rpartition(".")[2] for key in search.space]
    columns = ["trial", *keys, *heads.values()]
    print_table(columns, rows, right=range(1, len(columns)))
    print_text(
        "The Pareto set: no trial is better than these in both accuracy and violation. Means "
        f"over {search.folds} folds of the train rows; test rows are not used."
    )
    print_text(f"* chosen: {tuned.chosen}: {tuned.reason}")
    running = [trial.number for trial in tuned.trials if trial.state == "running"]
    if running:
        typer.echo(
            f"warning: not finished: {', '.join(map(str, running))}; they run in another folder "
            "of this study, or were stopped: repeat the command there to resume"
        )
    typer.echo(f"files: {folder}/ (best.toml, trials.csv, trials.svg, trials.png)")
    typer.echo(f"next: mfairfl train {folder / 'best.toml'}")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _as_json(tuned: SearchResult, study: str) -> dict[str, Any]:
    metrics = tuned.search.metrics

    def plain(trial: SearchTrial) -> dict[str, Any]:
        means = {"accuracy": trial.mean("accuracy"), "violation": trial.violation}
        facts = {"trial": trial.number, "state": trial.state, "values": dict(trial.values)}
        folds = {"folds": [dict(fold) for fold in trial.folds]}
        return facts | (means if trial.state == "complete" else {}) | folds

    return {
        "study": study,
        "metrics": list(metrics),
        "tolerance": tuned.tolerance,
        "best": plain(tuned.best),
        "reason": tuned.reason,
        "pareto": list(tuned.pareto),
        "trials": [plain(trial) for trial in tuned.trials],
    }
