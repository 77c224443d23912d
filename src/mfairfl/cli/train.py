"""`mfairfl train`: a federated model from a file, flags, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from mfairfl.cli.flags import (
    ConfigFile,
    RunJson,
    configuration,
    default_folder,
    run_flags,
    run_option,
)
from mfairfl.cli.progress import RoundProgress, stoppable
from mfairfl.cli.show import say, terminal
from mfairfl.errors import ConfigError


@run_flags()
def train(
    file: ConfigFile = None,
    *,
    flags: Mapping[str, Any],
    config: Annotated[Path | None, run_option()] = None,
    out: Annotated[Path | None, run_option()] = None,
    plots: Annotated[bool, run_option("--plots")] = False,
    workers: Annotated[int | None, run_option(min=1)] = None,
    policy: Annotated[Path | None, run_option()] = None,
    json: RunJson = False,
) -> None:
    """Train a federated model, measure it, and write a run folder.

    Repeat the command to resume an interrupted run.

    Parameters
    ----------
    config
        The same as the argument.
    out
        Run folder; by default runs/DATA-STRATEGY-SCHEME-sSEED.
    plots
        Draw rounds.svg and clients.svg into the run folder.
    workers
        Threads for the clients (same result for any number); default: all processors.
    policy
        A policy.toml: clients release what it allows, as silos with this policy do.

    Examples
    --------
    mfairfl train --data adult --heterogeneity high
    mfairfl train my.toml --rounds 2 --set strategy.weights=uniform
    mfairfl train --csv people.csv --label hired --favourable yes --sensitive sex
    mfairfl train --data adult --policy policy.toml
    """
    if file is not None and config is not None:
        raise ConfigError(f"{file} and --config {config}: give one of them")
    settings = configuration(file or config, flags)
    folder = default_folder(settings) if out is None else out
    from mfairfl.runs.directory import RunDirectory  # noqa: PLC0415 - loads PyTorch
    from mfairfl.runs.execute import RunRequest, run_requests  # noqa: PLC0415
    from mfairfl.runs.silo_runs import run_under_policy  # noqa: PLC0415
    from mfairfl.silo.policy import read_policy  # noqa: PLC0415

    def stopped() -> str:
        done = RunDirectory(folder).committed()
        if done is None:
            return "stopped before the first round; repeat the command to start"
        return f"stopped after round {done}; repeat the command to resume"

    with stoppable(stopped), RoundProgress(terminal(stderr=True), folder, quiet=json) as progress:
        request = RunRequest(config=settings, out=folder, callbacks=(progress,))
        if policy is None:
            (run,) = run_requests([request], workers=workers)
        else:
            run = run_under_policy(request, read_policy(policy))
    if not progress.started:
        say(f"{folder}: already complete; this is its result")
    from mfairfl.cli.run_result import print_run  # noqa: PLC0415 - loads pandas

    print_run(run.record, folder, as_json=json)
    if plots:
        from mfairfl.report.figures import draw_training  # noqa: PLC0415

        say(f"figures: {', '.join(map(str, draw_training(folder)))}")
