"""`mfairfl compare`, `mfairfl reproduce` and `mfairfl tune`: many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mfairfl.cli.flags import (
    Json,
    configuration,
    default_folder,
    key_values,
    run_flags,
)
from mfairfl.cli.progress import ManyRuns, TrialProgress, stoppable
from mfairfl.cli.show import print_json, print_rows, print_text, say, terminal
from mfairfl.errors import ConfigError, require_extra
from mfairfl.runs.options import OPTIONS, comma_list, toml_value

if TYPE_CHECKING:
    from mfairfl.experiments.search.space import Choices, Range
    from mfairfl.experiments.search.trials import SearchResult, SearchTrial

_FORMS = "key=a,b,c or key=low:high or key=low:high:log"
Seeds = Annotated[int | None, typer.Option(min=1)]


def compare(
    what: list[Path],
    *,
    seeds: Seeds = None,
    out: Path | None = None,
    references: list[str] | None = None,
    json: Json = False,
) -> None:
    """Compare methods over data sets, splits, notions and seeds, with significance tests.

    A study file lists them: data = ["adult", "mine.toml"] (from the catalogue, or a configuration
    as `mfairfl init` writes it), splits = ["high"], strategies = ["fedavg", "mfairfl"],
    notions = ["dp", "eo"], seeds = 5, protocols = ["40x2"]. A list of values for a hyper-parameter
    is a grid: { name = "mfairfl", beta = [0.2, 0.8] }. references = ["boosting",
    "boosting-threshold", "logistic"] adds models of scikit-learn that see all rows in one place.
    Repeat the command to resume.

    With run folders, finished runs are shown side by side.

    Parameters
    ----------
    what : STUDY.toml | RUN RUN...
        A study file (data, strategies, seeds, ...), or two or more run folders.
    seeds
        Number of seeds; overrides the study file.
    out
        For a study: folder for tables, figures and runs, by default runs/STUDY. For runs: a
        figure to write (.svg, .png or .pdf).
    references
        For runs: also fit boosting, boosting-threshold or logistic on all their rows, pooled; may
        be repeated.

    Examples
    --------
    mfairfl compare study.toml
    mfairfl compare runs/fedavg runs/mfairfl --references boosting
    mfairfl compare study.toml --seeds 10 --out results/study
    """
    if len(what) == 1 and not what[0].is_dir():
        if references:
            fix = f'write references = ["{references[0]}"] in {what[0]}'
            raise ConfigError(f"--references: only with runs; {fix}")
        _carry_out(what[0], seeds, out, as_json=json)
        return
    if seeds is not None:
        raise ConfigError("--seeds: only with a study file; runs are already trained")
    from mfairfl.references import known_reference  # noqa: PLC0415 - loads pandas

    for name in references or ():  # refused, if it must be, before PyTorch is loaded
        known_reference(name)
    from mfairfl.experiments.study_run import compare as compare_runs  # noqa: PLC0415

    comparison = compare_runs(what, references=references or ())
    if json:
        print_json(comparison.model_dump(mode="json"))
    else:
        typer.echo(str(comparison))
    if out is not None:
        comparison.plot(out)
        say(f"written: {out}")


def _carry_out(file: Path, seeds: int | None, out: Path | None, *, as_json: bool) -> None:
    from mfairfl.experiments.study import load_study  # noqa: PLC0415

    load_study(file)  # refused, if it must be, before PyTorch is loaded
    with stoppable(), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.loading(file.stem, checked=True)
        from mfairfl.experiments.study_run import compare  # noqa: PLC0415 - takes seconds

        result = compare(file, out=out, seeds=seeds, watcher=watcher)
    if as_json:
        print_json(loads(result.table.to_json(orient="records")))
    else:
        typer.echo(str(result))
    say(f"written: {result.folder}/{file.stem}.md and the files beside it")


def reproduce(
    what: list[str],
    *,
    quick: bool = False,
    seeds: Seeds = None,
    protocol: list[str] | None = None,
    lock: Path | None = None,
    out: Path = Path("reproduction"),
) -> None:
    """Reproduce tables and figures of the paper, with our numbers beside the published ones.

    Repeat the command to resume; finished runs are not repeated.

    Parameters
    ----------
    what
        table-1, table-2, table-3, table-s2, table-s3, figure-s1, all of them (all), or the search
        for the locked hyper-parameters (tuning).
    quick
        One seed and the paper's budget only: minutes.
    seeds
        Number of seeds; by default 5 (1 with --quick).
    protocol
        Rounds x local epochs: 10x20 (the paper's), 40x5; by default both.
    lock
        Hyper-parameters, instead of the published lock file.
    out
        Folder for tables, figures and runs.

    Examples
    --------
    mfairfl reproduce table-1 --quick
    mfairfl reproduce all --seeds 5 --protocol 10x20 --out results/reproduction
    mfairfl reproduce tuning --out tuned
    """
    from mfairfl.paper import experiment_names  # noqa: PLC0415 - only when called

    tuning = "tuning" in what
    if tuning and len(what) > 1:
        raise ConfigError("tuning: give it alone; its lock file is for the others (--lock)")
    names = () if tuning else experiment_names(what)
    if quick:
        seeds, protocol = seeds or 1, protocol or ["10x20"]
    with stoppable(), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.loading(", ".join(names) or "tuning")
        from mfairfl.experiments.search.halving import make_lock  # noqa: PLC0415 - takes seconds
        from mfairfl.paper import reproduce as paper  # noqa: PLC0415

        if tuning:
            make_lock(paper.studies_folder() / "tune.toml", out, watcher=watcher)
            typer.echo(f"{out}/lock.toml, {out}/tuning.csv")
            return
        results = paper.reproduce(
            names, out, seeds=seeds, protocols=protocol, lock=lock, watcher=watcher
        )
    for result in results.values():
        typer.echo(str(result))
    for name in results:
        say(f"written: {out}/{name}.md and the files beside it")


# ------------------------------------------------------------------ a search


@run_flags(but=["tolerance"])
def tune(
    file: Path | None = None,
    *,
    flags: Mapping[str, Any],
    trials: Annotated[int, typer.Option(min=1)] = 30,
    folds: Annotated[int, typer.Option(min=2)] = 3,
    search: list[str] | None = None,
    metric: str | None = None,
    tolerance: Annotated[float, typer.Option(min=0, max=1)] = 0.01,
    study: str | None = None,
    storage: str | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Search hyper-parameters by cross-validation; test rows are not used.

    The most accurate trial whose violation is acceptable is chosen. Repeat the command to resume a
    stopped search.

    Parameters
    ----------
    file : CONFIG.toml
        Settings; flags override them.

    Search
    ------
    trials
        Complete trials wanted in total.
    folds
        Folds of the train rows.
    search : KEY=VALUES
        Replace or add a key: strategy.beta=0.4,0.8, training.lr=0.001:0.1:log,
        training.local_epochs=1:10
    metric
        What counts as violation, by its name in run.json; by default that of the notion, or
        client_accuracy_std for methods that protect clients only.
    tolerance
        Largest acceptable violation.

    Study
    -----
    study
        Name of the study; by default DATA-STRATEGY-SCHEME-sSEED.
    storage : URL
        Database to share a study: postgresql://... or sqlite:///...; by default a file in the
        --out folder.
    out
        Folder of this process; by default runs/tune-STUDY.
    json
        Print JSON instead of text.

    Examples
    --------
    mfairfl tune my.toml --trials 30
    mfairfl tune --data adult --heterogeneity high --strategy fedfb --notion eo
    mfairfl tune my.toml --search strategy.beta=0.4,0.8 --search lr=0.001:0.1:log
    """
    require_extra("optuna", "tune")
    config = configuration(file, flags)
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
        print_json(_search_json(tuned, name))
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
    for key, text in key_values("search", pairs, _FORMS):
        try:
            space[OPTIONS[key].key if key in OPTIONS else key] = _values(text)
        except ConfigError as error:
            raise ConfigError(f"--search {key}={text}: {error}") from None
    return space


def _values(text: str) -> Choices | Range:
    from mfairfl.experiments.search.space import Choices, Range  # noqa: PLC0415

    bounds = list(map(toml_value, text.removesuffix(":log").split(":")))
    if len(bounds) == 2 and {*map(type, bounds)} <= {int, float}:
        return Range(bounds[0], bounds[1], log=text.endswith(":log"))
    values = toml_value(f"[{text}]")  # lists have commas of their own
    if not isinstance(values, list):
        values = list(map(toml_value, comma_list(text)))
    if any(values.count(value) > 1 for value in values):
        raise ConfigError("a value appears twice; give it once")
    return Choices(tuple(values))


def _print_choice(tuned: SearchResult, folder: Path) -> None:
    """Print the Pareto set and the choice, best accuracy first."""
    from mfairfl.display.numbers import DECIMAL  # noqa: PLC0415 - loads pandas

    search, best = tuned.search, tuned.best
    heads = {"accuracy": "accuracy", "constant_accuracy": "constant classifier"}
    for metric in search.metrics:
        heads |= {metric: metric.replace("_", " "), f"floor_{metric}": "noise floor"}

    def row(trial: SearchTrial) -> list[str]:
        values = trial.values.values()
        settings = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in values]
        means = [DECIMAL.one(trial.mean(name)) for name in heads]
        return [f"{trial.number}" + " *" * (trial.number == best.number), *settings, *means]

    shown = [trial for trial in tuned.complete if trial.number in (*tuned.pareto, best.number)]
    rows = [row(trial) for trial in sorted(shown, key=lambda trial: -trial.mean("accuracy"))]
    columns = ["trial", *(key.rpartition(".")[2] for key in search.space), *heads.values()]
    print_rows(columns, rows, numeric=range(1, len(columns)))
    print_text(
        "The Pareto set: no trial is better than these in both accuracy and violation. Means "
        f"over {search.folds} folds of the train rows; test rows are not used."
    )
    print_text(f"* chosen: {tuned.chosen}: {tuned.reason}")
    running = [str(trial.number) for trial in tuned.trials if trial.state == "running"]
    if running:
        typer.echo(
            f"warning: not finished: {', '.join(running)}; they run in another folder of this "
            "study, or were stopped: repeat the command there to resume"
        )
    typer.echo(f"files: {folder}/ (best.toml, trials.csv, trials.svg, trials.png)")
    typer.echo(f"next: mfairfl train {folder / 'best.toml'}")


def _search_json(tuned: SearchResult, study: str) -> dict[str, Any]:
    def plain(trial: SearchTrial) -> dict[str, Any]:
        means = {"accuracy": trial.mean("accuracy"), "violation": trial.violation}
        facts = {"trial": trial.number, "state": trial.state, "values": dict(trial.values)}
        folds = {"folds": [dict(fold) for fold in trial.folds]}
        return facts | (means if trial.state == "complete" else {}) | folds

    return {
        "study": study,
        "metrics": list(tuned.search.metrics),
        "tolerance": tuned.tolerance,
        "best": plain(tuned.best),
        "reason": tuned.reason,
        "pareto": list(tuned.pareto),
        "trials": [plain(trial) for trial in tuned.trials],
    }
