"""`mfairfl compare`: methods side by side on one's own data, or finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import Annotated

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, say, terminal
from mfairfl.errors import ConfigError


def compare(
    what: Annotated[
        list[Path],
        typer.Argument(
            metavar="STUDY.toml | RUN RUN...",
            help="A study file (data, strategies, seeds, ...), or two or more run folders.",
        ),
    ],
    *,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; overrides the study file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="For a study: folder for tables, figures and runs, by default runs/STUDY. For "
            "runs: a figure to write (.svg, .png or .pdf)."
        ),
    ] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(
            help="For runs: also fit boosting, boosting-threshold or logistic on all their rows, "
            "pooled; repeat it for several."
        ),
    ] = None,
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

    Examples
    --------
    mfairfl compare study.toml
    mfairfl compare runs/fedavg runs/mfairfl --references boosting
    mfairfl compare study.toml --seeds 10 --out results/study
    """
    is_study = len(what) == 1 and not what[0].is_dir()
    if seeds is not None and not is_study:
        raise ConfigError("--seeds: only with a study file; runs are already trained")
    if references:
        _check_references(references, what[0] if is_study else None)
    if is_study:
        _carry_out(what[0], seeds, out, as_json=json)
    else:
        _side_by_side(what, references or (), out, as_json=json)


def _side_by_side(
    runs: Sequence[Path], references: Sequence[str], out: Path | None, *, as_json: bool
) -> None:
    from mfairfl.experiments.study_run import compare  # noqa: PLC0415 - loads PyTorch

    comparison = compare(runs, references=references)
    if as_json:
        print_json(comparison.model_dump(mode="json"))
    else:
        typer.echo(str(comparison))
    if out is not None:
        comparison.plot(out)
        say(f"written: {out}")


def _carry_out(file: Path, seeds: int | None, out: Path | None, *, as_json: bool) -> None:
    from mfairfl.experiments.study import load_study  # noqa: PLC0415

    load_study(file)  # refused, if it must be, before PyTorch is loaded
    from mfairfl.cli.progress import ManyRuns, stoppable  # noqa: PLC0415

    with stoppable(), ManyRuns(terminal(stderr=True)) as watcher:
        watcher.loading(file.stem, checked=True)
        from mfairfl.experiments.study_run import compare  # noqa: PLC0415 - takes seconds

        result = compare(file, out=out, seeds=seeds, watcher=watcher)
    if as_json:
        print_json(loads(result.table.to_json(orient="records")))
    else:
        typer.echo(str(result))
    say(f"written: {result.folder}/{file.stem}.md and the files beside it")


def _check_references(names: list[str], study: Path | None) -> None:
    """Refuse names that could have no effect, before PyTorch is loaded."""
    from mfairfl.references import known_reference  # noqa: PLC0415 - loads pandas

    if study is not None:
        raise ConfigError(
            f'--references: only with runs; write references = ["{names[0]}"] in {study}'
        )
    for name in names:
        known_reference(name)
