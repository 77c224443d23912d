"""Which rows of a file a run was trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mfairfl.data import SPLITS, partition
from mfairfl.data.files import FileContent
from mfairfl.data.table import table_from_content
from mfairfl.errors import DataError, MfairflError
from mfairfl.runs.record import FederationFacts, RunRecord

_SHOWN = 300  # characters of a reason, which may quote the file


def splits_of_rows(
    record: RunRecord, content: FileContent, *, name: str
) -> NDArray[np.object_] | None:
    """Return the split that each row of a file was in when a run was trained on it.

    The file is known by its SHA-256. Its rows are divided once more, which gives the same splits:
    they follow from the rows, the seed and the scheme.

    Parameters
    ----------
    record
        The run's.
    content
        The file (`read_file`).
    name
        What messages call it.

    Returns
    -------
    ndarray (n,) of str, or None
        ``train``, ``validation``, ``test``, or nothing for a row that was in none of them. None if
        the run was trained on other bytes, on rows in memory, or over silos.

    Raises
    ------
    DataError
        If these are the bytes, but the rows cannot be divided as the record says: read by another
        sheet or delimiter, or from a data set with a reader of its own.

    Examples
    --------
    >>> from mfairfl.data.files import read_file
    >>> record = RunRecord.read("runs/people")  # doctest: +SKIP
    >>> splits_of_rows(record, read_file("people.csv"), name="people.csv")  # doctest: +SKIP
    array(['train', 'test', 'train', ''], dtype=object)
    """
    facts = record.federation
    if content.sha256 != facts.sha256:
        return None
    options = {key: value for key, value in facts.options.items() if key != "encoder"}
    try:
        table = table_from_content(content, record.task, name=name)
        federation = partition(table, facts.scheme, seed=facts.seed, **options)
    except (MfairflError, TypeError, ValueError) as error:
        raise _not_told(name, str(error)) from None
    if FederationFacts.model_validate(federation.summary()).clients != facts.clients:
        raise _not_told(name, "divided once more, clients hold other rows than run.json says")
    places = np.arange(len(table)) if table.places is None else table.places
    found = np.full(len(content.frame), "", dtype=object)
    for split in SPLITS:
        found[places[federation.pooled(split).rows]] = split
    return found


def _not_told(name: str, reason: str) -> DataError:
    return DataError(
        f"{name}: the run was trained on this file, but on which of its rows cannot be told "
        f"({' '.join(reason.split())[:_SHOWN]})"
    )
