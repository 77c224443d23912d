"""``[audit]`` of silo.toml: which of its columns a silo lets others count, and from which file."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from mfairfl.data import FileFormat, Task
from mfairfl.data.predictions import PredictionColumns
from mfairfl.data.values import StrictModel, Text
from mfairfl.errors import MessageError
from mfairfl.fairness.audit_counts import ScoreGrid
from mfairfl.files import RelativePath


class AuditConsent(StrictModel):
    """What a silo agrees to have counted; without this section it answers no audit.

    Parameters
    ----------
    file : Path, optional
        The rows, with the predictions to be audited; by default the silo's ``csv``.
    delimiter, encoding, header, sheet
        What is to be known about the file, as in `FileFormat`.
    label, prediction, score, sensitive
        The columns that may be counted, as in `PredictionColumns`.
    favourable, selected
        How good labels and decisions are written in this file.
    threshold : float, optional
        The score above which a decision is good, if an audit may decide by scores: whoever chose
        it freely could find out every score.
    score_range : pair of float
        The lowest and the highest possible score.
    models : bool
        Whether a model that the coordinator sends is applied to these rows, and its decisions are
        counted. The file then needs the columns that the model reads.

    Examples
    --------
    >>> AuditConsent(sensitive=("sex",), label="hired", prediction="decision").models
    False
    """

    # Its fields are described above: nothing is read from the source.
    model_config = ConfigDict(use_attribute_docstrings=False)

    file: RelativePath | None = None
    delimiter: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None
    label: str | None = None
    favourable: Text | None = None
    prediction: str | None = None
    selected: Text | None = None
    score: str | None = None
    threshold: float | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    sensitive: tuple[str, ...] = Field(min_length=1)
    models: bool = False

    @property
    def format(self) -> FileFormat:
        """What is said about the file."""
        return FileFormat(self.delimiter, self.encoding, self.header, self.sheet)


def require_columns_agreed(own: AuditConsent, asked: PredictionColumns) -> PredictionColumns:
    """Refuse a request for other columns than the silo agreed to; return how to read its file."""
    for key in ("label", "prediction", "score"):
        wanted, named = getattr(asked, key), getattr(own, key)
        if wanted is not None and wanted != named:
            raise _refusal(key, wanted, named)
    if asked.client is not None:
        raise MessageError("an audit over silos has no column of clients: a silo is one client")
    _require_sensitive(own, asked.sensitive)
    values = {}
    for key in ("favourable", "selected"):
        wanted, named = getattr(asked, key), getattr(own, key)
        if wanted is not None and named is not None and wanted != named:
            raise _refusal(key, wanted, named)
        values[key] = named if wanted is None else wanted
    return asked.model_copy(update=values)


def require_scores_agreed(
    own: AuditConsent, threshold: float | None, grid: ScoreGrid | None
) -> None:
    """Refuse to decide by another threshold, or to count scores between other limits."""
    if threshold is not None and threshold != own.threshold:
        agreed = None if own.threshold is None else f"{own.threshold:g}"
        raise _refusal("threshold", f"{threshold:g}", agreed)
    if grid is not None and (grid.lowest, grid.highest) != own.score_range:
        asked, agreed = (
            f"{low:g} to {high:g}" for low, high in ((grid.lowest, grid.highest), own.score_range)
        )
        raise _refusal("score_range", asked, agreed)


def require_model_agreed(own: AuditConsent, task: Task, audited: tuple[str, ...]) -> None:
    """Refuse to apply a model unless the silo agreed to that, and to the columns it is about."""
    if not own.models:
        raise MessageError(
            "it applies no model that it is sent (models = true under [audit] of its silo.toml "
            "would allow it)"
        )
    if task.label != own.label:
        raise _refusal("label", task.label, own.label)
    if own.favourable is not None and task.favourable != own.favourable:
        raise _refusal("favourable", task.favourable, own.favourable)
    _require_sensitive(own, tuple(s.column for s in task.sensitive if s.name in audited))


def _require_sensitive(own: AuditConsent, asked: tuple[str, ...]) -> None:
    for column in asked:
        if column not in own.sensitive:
            raise MessageError(
                f"the audit asks for sensitive = '{column}'; agreed to: "
                f"{', '.join(own.sensitive)} (sensitive under [audit] of its silo.toml)"
            )


def _refusal(key: str, asked: str, own: str | None) -> MessageError:
    said = "none" if own is None else f"'{own}'"
    return MessageError(
        f"the audit asks for {key} = '{asked}'; agreed to: {said} ({key} under [audit] of its "
        "silo.toml)"
    )
