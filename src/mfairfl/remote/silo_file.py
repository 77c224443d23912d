"""A silo's own settings: silo.toml."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator

from mfairfl.data import MISSING, FileFormat, Reading, Task
from mfairfl.errors import ConfigError, MessageError, MfairflError, first_problem
from mfairfl.fairness.notions import REGISTRY, Notion, follow_notion, is_built_in, register_notion
from mfairfl.files import RelativePath, load_settings, load_toml
from mfairfl.plugins import MODELS, imported, is_import_string
from mfairfl.remote.audit_consent import AuditConsent
from mfairfl.remote.policy import POLICY

__all__ = [
    "SILO_NAME",
    "SiloSettings",
    "consented",
    "follow_extensions",
    "load_silo",
    "require_consent",
    "require_listed",
    "require_reading",
]


SILO_NAME = r"^\w[\w. -]{0,59}$"
"""The names that a silo may have."""

_AS_IT_IS = {
    key: Task.model_fields[key].get_default(call_default_factory=True)
    for key in (*Reading.model_fields, "missing", "unknown_category")
}
_EXTENSION = r"^([^\W\d][\w.]*:[^\W\d][\w.]*|\w[\w.+-]*)$"


class SiloSettings(Reading):
    """A silo's own settings; those of `Reading` say how its own file is written.

    Parameters
    ----------
    name : str
        The name it is enrolled under.
    csv : Path
        Its file.
    delimiter, encoding, header, sheet
        What is to be known about the file, as in `FileFormat`.
    state : Path
        Its folder for what it stores between messages.
    task : Path, optional
        A file with the ``[task]`` this silo agreed to: a request for another label, other
        sensitive columns or a column that it ignores is refused.
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
    delimiter: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None
    task: RelativePath | None = None
    extensions: tuple[Annotated[str, Field(pattern=_EXTENSION)], ...] = ()
    server: str | None = Field(default=None, pattern=r"^[^\s:/]+:\d{1,5}$")
    ca: RelativePath | None = None
    key: RelativePath | None = None
    port: int = Field(default=9094, ge=1, le=65535)
    audit: AuditConsent | None = None

    @model_validator(mode="before")
    @classmethod
    def _limits_elsewhere(cls, values: Any) -> Any:
        if isinstance(values, dict) and "min_count" in values:
            raise ValueError(f"min_count is min_rows in {POLICY} beside this file: [disclosure]")
        return values

    @property
    def format(self) -> FileFormat:
        """What is said about the file."""
        return FileFormat(self.delimiter, self.encoding, self.header, self.sheet)


def load_silo(file: Path) -> SiloSettings:
    """Read a silo's file; paths in it are relative to its folder."""
    return load_settings(file, SiloSettings)


def consented(settings: SiloSettings) -> Task | None:
    """Return the task that a silo agreed to, if its file names one."""
    if settings.task is None:
        return None
    values = load_toml(settings.task)
    try:
        return Task.model_validate(values["task"])
    except KeyError:
        raise ConfigError(f"{settings.task}: no [task]; copy the one that was agreed on") from None
    except ValidationError as error:
        raise ConfigError(
            f"{settings.task}: {first_problem(error, Task, prefix='task')}"
        ) from None
    except MfairflError as error:
        raise ConfigError(f"{settings.task}: task: {error}") from None


def require_consent(settings: SiloSettings, asked: Task) -> None:
    """Refuse a task other than the one agreed to; it may be more detailed."""
    own = consented(settings)
    if own is None:
        return
    for key in ("label", "favourable", "ignore", "sensitive_as_features"):
        if getattr(asked, key) != getattr(own, key):
            raise MessageError(
                f"the coordinator's task has {key} = {getattr(asked, key)!r}; "
                f"'{settings.name}' agreed to {getattr(own, key)!r}"
            )
    mine, theirs = (
        # Rows without a value may get a group of their own when all files are known.
        [(s.column, [b for b in s.bins if b.name != MISSING]) for s in task.sensitive]
        for task in (own, asked)
    )
    if mine != theirs:
        raise MessageError(
            f"the coordinator's task has sensitive columns {[c for c, _ in theirs]}; "
            f"'{settings.name}' agreed to {[c for c, _ in mine]}, with its own bins"
        )


def require_reading(settings: SiloSettings, asked: Task) -> None:
    """Refuse a task that reads cells otherwise than agreed to, or than by default.

    Whoever says which values are missing, or how numbers are written, learns from every answer,
    and from every refusal, whether some row holds one.
    """
    own = consented(settings) or asked.model_copy(update=_AS_IT_IS)
    for key in _AS_IT_IS:
        if getattr(asked, key) != getattr(own, key):
            raise MessageError(
                f"the coordinator's task has another {key} than '{settings.name}' agreed to (task "
                "of its silo.toml): how cells are read is agreed beforehand"
            )


def follow_extensions(settings: SiloSettings) -> frozenset[str]:
    """Import what this silo's own file lists; return the names that messages may then use."""
    names: set[str] = set()
    for listed in settings.extensions:
        if is_import_string(listed):
            thing = imported(listed)
            own = register_notion(thing) if isinstance(thing, Notion) else None
            names |= {own} if own else {MODELS.add(listed, thing)}
        elif listed in REGISTRY.names():
            names.add(follow_notion(listed).name)
        else:
            MODELS.get(listed)
            names.add(listed)
    return frozenset(names)


def require_listed(listed: Collection[str], header: Mapping[str, Any]) -> None:
    """Refuse a message that names a notion or model neither built in nor listed by this silo."""
    model = header.get("model")
    kind = model.get("kind") if isinstance(model, Mapping) else None
    outside = [("notion", n) for n in _notions(header.get("jobs")) if not is_built_in(n)]
    if isinstance(kind, str) and not MODELS.is_builtin(kind):
        outside.append(("model", kind))
    for what, name in outside:
        if name not in listed:
            raise MessageError(
                f"the coordinator asks for {what} '{name}', which is not built in and not listed "
                "in extensions of silo.toml"
            )


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
