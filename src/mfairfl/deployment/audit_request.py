"""What an audit over silos is about: ``[audit]`` of federation.toml, flags, and request.json."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from mfairfl.errors import ConfigError, first_problem
from mfairfl.files import RelativePath
from mfairfl.report.audit_settings import AuditMeaning, AuditOptions

REQUEST = "request.json"
"""Name of the file in which the server app finds it."""

_AS_WRITTEN = "as each silo says"
_READ = ("label", "favourable", "prediction", "selected", "score", "threshold")


class AuditRequest(AuditOptions):
    """Whose decisions are audited, and what the numbers are held against.

    Where `favourable` and `selected` are not given, each silo states them itself.

    Examples
    --------
    >>> AuditRequest(sensitive="sex", label="hired", prediction="decision").meaning().client
    'silos'
    """

    run: RelativePath | None = None
    """Run folder whose model silos are sent, instead of predictions in their files."""

    def check(self) -> None:
        """Refuse what cannot be asked of silos."""
        self.grid()
        if self.run is None:
            self.columns()
        elif given := [key for key in _READ if getattr(self, key) is not None]:
            raise ConfigError(
                f"audit.{given[0]}: a run's model is audited on its own label and scores; leave "
                f"{given[0]} or run out"
            )

    def meaning(self) -> AuditMeaning:
        """Return what the columns and their values stand for."""
        stated = {key: getattr(self, key) or "" for key in _READ if key != "threshold"}
        if self.label is not None:
            stated["favourable"] = self.favourable or _AS_WRITTEN
        if self.prediction is not None:
            stated["selected"] = self.selected or self.favourable or _AS_WRITTEN
        return AuditMeaning(**stated, threshold=self.threshold, client="silos")


def load_request(path: Path) -> AuditRequest:
    """Read the file that an audit was asked with."""
    try:
        return AuditRequest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else error.strerror
        raise ConfigError(f"{path}: not a request for an audit ({why})") from None
