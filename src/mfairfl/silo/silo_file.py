"""A silo's own settings: silo.toml."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from mfairfl.data import FileFormat, Reading
from mfairfl.data.values import StrictModel, Text
from mfairfl.fairness.notions import REGISTRY, Notion, follow_notion, is_built_in, register_notion
from mfairfl.files import RelativePath, load_settings
from mfairfl.plugins import MODELS, imported, is_import_string
from mfairfl.wire.packing import SILO_NAME, require

_EXTENSION = r"^([^\W\d][\w.]*:[^\W\d][\w.]*|\w[\w.+-]*)$"


class _Written(StrictModel):
    """How a file is written, as far as that is stated."""

    delimiter: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None

    @property
    def format(self) -> FileFormat:
        """How the file is written, as far as it is stated."""
        return FileFormat(self.delimiter, self.encoding, self.header, self.sheet)


class AuditConsent(_Written):
    """``[audit]`` of silo.toml: what a silo agrees to have counted in audits.

    Parameters
    ----------
    file : Path, optional
        The rows, with the predictions to be audited; by default the silo's ``csv``.
    delimiter, encoding, header, sheet
        How the file is written, as in `FileFormat`.
    label, prediction, score, sensitive
        The columns that may be counted, as in `PredictionColumns`.
    favourable, selected
        How good labels and decisions are written in this file.
    threshold : float, optional
        The score above which a decision is good, if an audit may decide by scores: a coordinator
        that chose it freely could find out every score.
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
    label: str | None = None
    favourable: Text | None = None
    prediction: str | None = None
    selected: Text | None = None
    score: str | None = None
    threshold: float | None = None
    score_range: tuple[float, float] = (0.0, 1.0)
    sensitive: tuple[str, ...] = Field(min_length=1)
    models: bool = False


class SiloSettings(_Written, Reading):
    """A silo's own settings; those of `Reading` say how its own file is written.

    Parameters
    ----------
    name : str
        The name it is enrolled under.
    csv : Path
        Its file.
    delimiter, encoding, header, sheet
        How the file is written, as in `FileFormat`.
    state : Path
        Its folder for what it stores between messages.
    task : Path, optional
        Its own copy of the run.toml that was agreed on: a request for another task, model,
        training or method is refused (`mfairfl.silo.refusals`).
    extensions : tuple of str
        Notions and models from outside mfairfl that this silo agreed to, each as
        ``package.module:Name`` or by the name that an installed distribution announces. Nothing
        else is ever imported on behalf of a message.
    server, ca, key
        Address of the coordinator (``host:port``), the certificate that identifies it, and this
        silo's private key.
    port : int
        Port of Flower's own processes at this silo, on loopback only.
    audit : AuditConsent, optional
        Which columns of which file may be counted for an audit; without it none is answered.
    """

    # Its fields are described above: nothing is read from the source.
    model_config = ConfigDict(use_attribute_docstrings=False)

    name: str = Field(pattern=SILO_NAME)
    csv: RelativePath
    state: RelativePath
    task: RelativePath | None = None
    extensions: tuple[Annotated[str, Field(pattern=_EXTENSION)], ...] = ()
    server: str | None = Field(default=None, pattern=r"^[^\s:/]+:\d{1,5}$")
    ca: RelativePath | None = None
    key: RelativePath | None = None
    port: int = Field(default=9094, ge=1, le=65535)
    audit: AuditConsent | None = None


def load_silo(file: Path) -> SiloSettings:
    """Read a silo's file; paths in it are relative to its folder."""
    return load_settings(file, SiloSettings)


def follow_extensions(settings: SiloSettings) -> frozenset[str]:
    """Import what this silo's own file lists; return the names that messages may then use."""
    names: set[str] = set()
    for listed in settings.extensions:
        if is_import_string(listed):
            thing = imported(listed)
            is_notion = isinstance(thing, Notion)
            names.add(register_notion(thing) if is_notion else MODELS.add(listed, thing))
        elif listed in REGISTRY.names():
            names.add(follow_notion(listed).name)
        else:
            MODELS.get(listed)
            names.add(listed)
    return frozenset(names)


def require_listed(listed: Collection[str], fields: Mapping[str, Any]) -> None:
    """Refuse a message that names a notion or model neither built in nor listed by this silo.

    Parameters
    ----------
    fields : mapping
        Those of the message, before any of them is looked at.
    """
    outside = [("notion", n) for n in _notions(fields.get("jobs")) if not is_built_in(n)]
    model = fields.get("model")
    if isinstance(model, Mapping):  # of a run, or of an audit
        for terms in (model, model.get("terms")):
            kind = terms.get("kind") if isinstance(terms, Mapping) else None
            if isinstance(kind, str) and not MODELS.is_builtin(kind):
                outside.append(("model", kind))
    for what, name in outside:
        why = "which is not built in and not listed in extensions of silo.toml"
        require(name in listed, f"the coordinator asks for {what} '{name}', {why}")


def _notions(value: Any) -> Iterator[str]:
    """Yield the notions of every goal inside a value read from JSON."""
    if isinstance(value, list):
        for item in value:
            yield from _notions(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "notions" and isinstance(item, list):
                yield from (name for name in item if isinstance(name, str))
            else:
                yield from _notions(item)
