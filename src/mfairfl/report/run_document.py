"""The report of a run as a typed document, from the files of run folders alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mfairfl import __version__
from mfairfl.references import known_reference
from mfairfl.report import run_facts
from mfairfl.report.changes import changes_between
from mfairfl.report.compared import baseline_of, compared_models
from mfairfl.report.definitions import defined
from mfairfl.report.document import Document
from mfairfl.report.headline import run_headline
from mfairfl.report.reported_run import read_runs
from mfairfl.report.training_history import training_history
from mfairfl.runs.reference_records import fit_on_rows_of
from mfairfl.text import one_line

_LONGEST = 2000  # characters of a text


def build_report(runs: Sequence[str | Path], *, references: Sequence[str] = ()) -> Document:
    """Collect everything that the report of a run says.

    Parameters
    ----------
    runs : sequence of path
        Folders of finished runs. The first is judged, the others are compared with it; the first
        of them on the same rows that has no constraint on groups (FedAvg, if there is one) is the
        baseline.
    references : sequence of str
        Pooled references (`mfairfl.references.REFERENCES`) to fit on the rows of the first run,
        which must be on file.

    Raises
    ------
    RunDirectoryError
        If a folder holds no finished run, or its files cannot be read.
    ConfigError
        If a run is given twice, a reference is unknown, or the rows for it are not there.

    Examples
    --------
    >>> report = build_report(["runs/mfairfl", "runs/fedavg"])  # doctest: +SKIP
    >>> print(report.headline.verdict)  # doctest: +SKIP
    """
    wanted = [known_reference(name) for name in dict.fromkeys(references)]
    subjects = read_runs(runs)
    run, baseline = subjects[0], baseline_of(subjects)
    table, aim = run.table, run.aim
    compared = compared_models(subjects, fit_on_rows_of(run.record, wanted))
    changes = [] if baseline is None else changes_between(baseline, run)
    report = Document(
        kind="report",
        mfairfl=__version__,
        split=run.split,
        level=table.level,
        goal=list(aim.measures),
        headline=run_headline(run, baseline, changes, run_facts.altered_files(run)),
        overall=[*table.overall.values()],
        sections=[section.led_by(aim.notions) for section in table.sections],
        clients=table.clients,
        compared=compared,
        changes=changes,
        baseline="" if baseline is None else baseline.name,
        training=training_history(run),
        data=run_facts.data_treatment(run),
        group_use=run_facts.group_use(run),
        server=run_facts.server_view(run),
        withheld=run_facts.withheld_by_silos(run),
        provenance=run_facts.provenance(run),
    )
    return Document.model_validate(_printable(defined(report).model_dump()))


def _printable(value: Any) -> Any:
    """Return plain data in which every text is one line without control characters.

    Names and values are those of files and of silos.
    """
    if isinstance(value, str):
        return one_line(value, _LONGEST)
    if isinstance(value, Mapping):
        return _by_printable_name(value)
    if isinstance(value, list | tuple):
        return [_printable(entry) for entry in value]
    return value


def _by_printable_name(table: Mapping[str, Any]) -> dict[str, Any]:
    printable: dict[str, Any] = {}
    for key, value in table.items():
        name = shown = one_line(key, _LONGEST)
        copies = 1
        while name in printable:  # two names may look alike once they are printable
            copies += 1
            name = f"{shown} ({copies})"
        printable[name] = _printable(value)
    return printable
