"""What a coordinator decides: federation.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ConfigDict, Field, model_validator

from mfairfl.data.values import StrictModel
from mfairfl.deployment.keys import read_public_key, read_revocations
from mfairfl.errors import ConfigError
from mfairfl.files import RelativePath, load_settings, load_toml
from mfairfl.report.audit_settings import AuditMeaning, AuditOptions
from mfairfl.runs.config import Config, make_config

if TYPE_CHECKING:
    from mfairfl.coordinator.audit import AuditTerms
    from mfairfl.runs.silo_runs import FederatedRequest

_STRICT = ConfigDict(
    validate_default=True,  # default paths are relative to the file as well
    revalidate_instances="always",
)
_AS_WRITTEN = "as each silo says"
_READ = ("label", "favourable", "prediction", "selected", "score", "threshold")


class ServerSettings(StrictModel):
    """Where the coordinator listens, and where it keeps its files.

    Parameters
    ----------
    host, port
        The only public address; only what silos need is answered there.
    superlink_port : int
        Flower's SuperLink, on loopback only: any process that reaches it can start code.
    certificates : Path
        Folder with ca.crt, server.crt and server.key.
    state : Path
        Folder for the SuperLink's database and logs.
    allowance : int
        Megabytes that one silo may send in ten minutes; further requests are refused.
    hold : float
        Seconds that a silo's request for a message is held until there is one. With 0 it is
        answered at once, and silos ask every three seconds.
    """

    model_config = _STRICT

    host: str = "0.0.0.0"  # noqa: S104 - the public port of a coordinator
    port: int = Field(default=9443, ge=1, le=65535)
    superlink_port: int = Field(default=9444, ge=1, le=65535)
    certificates: RelativePath = Path("certificates")
    state: RelativePath = Path("state")
    allowance: int = Field(default=256, ge=1)
    hold: float = Field(default=20, ge=0, le=25)  # a SuperNode gives up after 30

    @property
    def registered(self) -> Path:
        """The keys that the SuperLink knows."""
        return self.state / "registered.json"

    @property
    def signals(self) -> Path:
        """Signals between the gate and the coordinator's app."""
        return self.state / "signals"

    @property
    def ca(self) -> Path:
        """The certificate that identifies the coordinator to silos."""
        return self.certificates / "ca.crt"


class AuditRequest(AuditOptions):
    """What an audit over silos is about: ``[audit]`` of federation.toml, flags, and request.json.

    Where `favourable` and `selected` are not given, each silo states them itself.

    Examples
    --------
    >>> AuditRequest(sensitive="sex", label="hired", prediction="decision").meaning().client
    'silos'
    """

    run: RelativePath | None = None
    """Run folder whose model silos are sent, instead of predictions in their files."""
    baseline: RelativePath | None = None
    """Folder of an earlier audit, to report what changed since."""

    def check(self) -> None:
        """Refuse what cannot be asked of silos, and a baseline that cannot be read."""
        from mfairfl.report.document import Document  # noqa: PLC0415 - only for audits

        self.grid()
        if self.baseline is not None:
            Document.read(self.baseline)
        if self.run is None:
            self.columns()
        elif columns := [key for key in _READ if getattr(self, key) is not None]:
            raise ConfigError(
                f"audit.{columns[0]}: a run's model is audited on its own label and scores; leave "
                f"{columns[0]} or run out"
            )

    def terms(self, most_rows: int | None = None) -> AuditTerms:
        """Return what silos are asked; the model of a run is read."""
        from mfairfl.coordinator.audit import AuditTerms  # noqa: PLC0415 - loads PyTorch
        from mfairfl.runs.predictor import model_to_send  # noqa: PLC0415

        self.check()
        if self.run is None:
            return AuditTerms(subject=self.columns(), grid=self.grid(), most_rows=most_rows)
        return AuditTerms(subject=model_to_send(self.run, self.compared), most_rows=most_rows)

    def meaning(self) -> AuditMeaning:
        """Return what the columns and their values stand for."""
        stated = {key: getattr(self, key) or "" for key in _READ if key != "threshold"}
        if self.label is not None:
            stated["favourable"] = self.favourable or _AS_WRITTEN
        if self.prediction is not None:
            stated["selected"] = self.selected or self.favourable or _AS_WRITTEN
        return AuditMeaning(**stated, threshold=self.threshold, client="silos")


class FederationSettings(StrictModel):
    """What a coordinator decides.

    Parameters
    ----------
    run : Path, optional
        Settings of the run, as for `mfairfl train`, with a ``[task]``; audits need none.
    out : Path
        The run folder.
    minimum : int
        Clients that must answer each request; below it the run stops, and can be resumed.
    deadline : float
        Seconds a request waits for answers.
    wait : float
        Seconds the run waits for all clients to come online; then it starts without the others.
    most_rows : int, optional
        Rows that no silo exceeds: one that claims more is refused, since rows are weight.
    silos : dict of str to Path
        The public key that each silo is enrolled with, by the silo's name.
    revoked : Path
        Keys that no longer count, even if `silos` lists them; written by `mfairfl deploy revoke`.
    audit : AuditRequest
        What `mfairfl deploy audit` asks silos for, where no flag says otherwise.
    """

    model_config = _STRICT

    run: RelativePath | None = None
    out: RelativePath
    minimum: int = Field(default=2, ge=1)
    deadline: float = Field(default=600, gt=0)
    wait: float = Field(default=600, ge=0)
    most_rows: int | None = Field(default=None, ge=1)
    server: ServerSettings = Field(default_factory=ServerSettings)
    silos: dict[str, RelativePath] = Field(min_length=1)
    revoked: RelativePath = Path("revoked.json")
    audit: AuditRequest = Field(default_factory=AuditRequest)

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.minimum > len(self.silos):
            raise ValueError(f"minimum = {self.minimum}, but only {len(self.silos)} silos")
        return self

    def config(self, values: Mapping[str, Any] | None = None) -> Config:
        """Read the settings of the run, unless they are given."""
        if self.run is None:
            raise ConfigError("no 'run' in federation.toml: name the settings of the run")
        config = make_config(load_toml(self.run) if values is None else values, str(self.run))
        if config.task is None:
            raise ConfigError(f"{self.run}: no [task]; silos with files of their own need one")
        if config.strategy.create().card.trains_on == "pooled":
            raise ConfigError(
                f"{self.run}: strategy.name: '{config.strategy.name}' trains on the rows of all "
                "clients in one place; choose one that leaves them where they are"
            )
        return config

    def federated(self) -> FederatedRequest:
        """Return the run and its clients."""
        from mfairfl.runs.silo_runs import FederatedRequest  # noqa: PLC0415 - loads PyTorch

        return FederatedRequest(
            config=self.config(),
            clients=tuple(sorted(self.silos)),
            minimum=self.minimum,
            out=self.out,
            most_rows=self.most_rows,
        )

    def members(self) -> dict[bytes, str]:
        """Return the name for each enrolled key, those that were revoked under it included."""
        names: dict[bytes, str] = {}
        revoked = read_revocations(self.revoked)
        for name, path in sorted(self.silos.items()):
            key = read_public_key(path)
            if key in names:
                raise ConfigError(f"{path}: '{names[key]}' and '{name}' have the same key")
            if key in revoked and revoked[key].silo != name:
                raise ConfigError(
                    f"{path}: this key was revoked, as that of '{revoked[key].silo}'; ask "
                    f"'{name}' for a new one (`mfairfl deploy key`)"
                )
            names[key] = name
        return names

    def revoked_keys(self) -> frozenset[bytes]:
        """Return the keys that no longer count, as the file says now."""
        return frozenset(read_revocations(self.revoked))


def load_federation(file: Path) -> FederationSettings:
    """Read a coordinator's file; paths in it are relative to its folder."""
    return load_settings(file, FederationSettings)
