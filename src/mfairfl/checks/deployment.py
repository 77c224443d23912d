"""Checks of a silo's and of a coordinator's file; each yields findings."""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from cryptography import x509

from mfairfl.checks.facts import ColumnFacts, column_facts
from mfairfl.checks.features import examine_features
from mfairfl.checks.finding import Finding
from mfairfl.checks.outside import Outside, findings_about, without_outside
from mfairfl.checks.run import SMALL_GROUP
from mfairfl.checks.server import TRUST, configured_view
from mfairfl.data.agreement import Profile, agree, describe_columns
from mfairfl.data.columns import columns_of, lookalike, require_columns
from mfairfl.data.files import FileContent, read_file
from mfairfl.data.quality import traps_of
from mfairfl.data.table import table_from_content
from mfairfl.data.task import Task
from mfairfl.deployment.keys import require_private_key
from mfairfl.deployment.settings import load_federation
from mfairfl.errors import ConfigError, DataError
from mfairfl.files import load_toml, others_can_read, toml_text
from mfairfl.runs.config import make_config
from mfairfl.runs.consent import consent_of
from mfairfl.silo.policy import POLICY, Disclosure, Limits, load_policy
from mfairfl.silo.silo_file import SiloSettings, load_silo

_SOON = timedelta(days=30)


def examine_silo(file: Path) -> Iterator[Finding | ColumnFacts]:
    """Yield findings about a silo; an error is raised where it cannot take part."""
    silo, policy = load_silo(file), load_policy(file)
    yield TRUST
    yield Finding("ok", "settings", f"{file}: silo '{silo.name}'")
    yield from findings_about(
        [Outside("extensions", one) for one in silo.extensions],
        "the silo imports {} when it starts",
    )
    yield Finding("ok", "limits", _limits(policy.limits))
    yield from _disclosure(policy.disclosure)
    content = read_file(silo.csv, silo.format)
    task, crossing = None, list[Finding]()
    if silo.task is not None:
        known, outside = without_outside(load_toml(silo.task))
        config = make_config(known, str(silo.task))
        task = consent_of(config, str(silo.task)).task
        # What crosses is not known of a method whose code is not here.
        method_is_known = all(key != "strategy.name" for key, _ in outside)
        crossing = [
            *findings_about(outside, "the run imports {}"),
            *(configured_view(config) if method_is_known else ()),
        ]
    reading = silo if task is None else task.read_as(silo)
    columns = columns_of(content.frame, silo.csv.name, reading)
    found = f"{silo.csv.name}: {len(content.frame):,} rows, {len(columns)} columns"
    yield Finding("ok", "file", found)
    if task is None:
        yield Finding("warn", "task", "no 'task': whatever the coordinator asks for is accepted")
    else:
        profile = describe_columns(columns, task, silo.name)
        told = describe_columns(columns, task, silo.name, floor=policy.disclosure.min_rows)
        if agreed := (yield from _fit(profile, told, task)):
            agreed = agreed if told.floor == 1 else agreed.unnamed_as_unrecorded()
            yield from column_facts(content.frame, agreed, silo.csv.name, silo)
            yield from _features(silo, content, agreed)
    yield from crossing
    yield from _audit(silo, content, policy.disclosure)
    yield _state(silo)
    yield _key(silo)
    yield from _certificate(silo.ca, "ca")
    yield _reach(silo)


def _limits(limits: Limits) -> str:
    """Say which limits hold, and whether the silo or mfairfl chose them."""
    own = limits.model_fields_set
    parts = {f"of {POLICY}": own, "by default": type(limits).model_fields.keys() - own}
    texts = {
        where: [f"{key} {value:,}" for key, value in limits if key in keys]
        for where, keys in parts.items()
    }
    return "; ".join(f"{where}: {', '.join(found)}" for where, found in texts.items() if found)


def _disclosure(section: Disclosure) -> Iterator[Finding]:
    """Say what is kept back, key by key, with the meaning of each."""
    for key, field in type(section).model_fields.items():
        where = f"of {POLICY}" if key in section.model_fields_set else "by default"
        meaning = (field.description or "").rstrip(".")
        value = toml_text(getattr(section, key))
        yield Finding("ok", "disclosure", f"{key} = {value} ({where}): {meaning}")


def _audit(silo: SiloSettings, content: FileContent, disclosure: Disclosure) -> Iterator[Finding]:
    """Say what may be counted for an audit, and whether the file has the columns."""
    own = silo.audit
    if own is None:
        yield Finding("ok", "audit", "no [audit]: requests for counts are refused")
        return
    path = silo.csv if own.file is None else own.file
    if own.file is not None:
        content = read_file(path, own.format)
    named = [own.label, own.prediction, own.score, *own.sensitive]
    columns = [name for name in named if name is not None]
    require_columns(content.frame.columns, columns, path.name)
    said = f"{path.name}: {', '.join(columns)} may be counted, by no fewer than "
    yield Finding("ok", "audit", f"{said}{disclosure.min_rows} rows of a group and label")
    if own.models:
        yield Finding(
            "warn",
            "audit",
            "models = true: models that the coordinator sends are applied to these rows, and "
            "scores of one that is made for it tell values of single rows",
        )


def _features(silo: SiloSettings, content: FileContent, task: Task) -> list[Finding]:
    """Look at the features as training would read them."""
    table = table_from_content(content, task, name=silo.csv.name, reading=silo)
    warnings = [Finding("warn", "data", warning) for warning in table.warnings]
    return [*warnings, *examine_features(table, {}, traps_of(table))]


def _fit(profile: Profile, told: Profile, task: Task) -> Generator[Finding, None, Task | None]:
    """Compare the file, as it is told, with the task; return the resolved task."""
    names = [column.name for column in profile.columns]
    lacking = [s for s in task.sensitive if not lookalike(s.column, names)]
    for sensitive in lacking:
        said = f"{sensitive.name} is not recorded here: these rows are left out of its comparisons"
        yield Finding("warn", "groups", said)
    held = tuple(s for s in task.sensitive if s not in lacking)
    if not held:
        return None
    agreement = agree([told], task.model_copy(update={"sensitive": held}))
    why = agreement.refused.get(profile.client)
    if why:
        raise DataError(f"the file does not fit the task: {'; '.join(why)}")
    yield Finding("ok", "schema", f"fits the task: label '{task.label}'")
    for sensitive in held:
        column = profile.column(sensitive.column)
        if column is None or sensitive.bins:
            continue
        sizes = ", ".join(f"{level} ({n:,})" for level, n in column.levels.items())
        small = [level for level, n in column.levels.items() if n < SMALL_GROUP]
        said = f"{sensitive.name}: {sizes}"
        if small:
            said += f"; fewer than {SMALL_GROUP} rows of {', '.join(small)}: too few to judge"
        yield Finding("warn" if small else "ok", "groups", said)
    return agreement.task


def _state(silo: SiloSettings) -> Finding:
    folder = silo.state if silo.state.exists() else silo.state.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{silo.state}: cannot be written; choose another 'state'")
    return _state_privacy(silo.state)


def _state_privacy(folder: Path) -> Finding:
    """Say whether others can look into a folder of state."""
    if folder.exists() and others_can_read(folder):
        said = f"{folder}: others can read it; chmod 700 {folder}"
        return Finding("warn", "state", said)
    return Finding("ok", "state", f"{folder} is for you alone")


def _key(silo: SiloSettings) -> Finding:
    if silo.key is None:
        raise ConfigError("no 'key': create one with `mfairfl deploy key key`")
    require_private_key(silo.key)
    return _key_privacy(silo.key)


def _key_privacy(key: Path) -> Finding:
    if others_can_read(key):
        return Finding("warn", "key", f"{key}: others can read it; chmod 600 {key}")
    return Finding("ok", "key", f"{key} is a private key that only you can read")


def _certificate(path: Path | None, name: str) -> Iterator[Finding]:
    if path is None:
        raise ConfigError(f"no '{name}': ask the coordinator for its ca.crt")
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such certificate") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a certificate ({error})") from None
    ends = certificate.not_valid_after_utc
    said = f"{path.name} is valid until {ends:%Y-%m-%d}"
    if ends < datetime.now(UTC):
        raise ConfigError(f"{path}: expired on {ends:%Y-%m-%d}; create a new one")
    yield Finding("warn" if ends < datetime.now(UTC) + _SOON else "ok", "certificate", said)


def _reach(silo: SiloSettings) -> Finding:
    """Ask the coordinator for a sign of life, over TLS, and check its certificate."""
    if silo.server is None:
        raise ConfigError("no 'server': the coordinator's address, host:port")
    known = ssl.create_default_context(cafile=str(silo.ca))
    page = f"https://{silo.server}/health"
    try:
        reply = httpx.get(page, verify=known, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise ConfigError(
            f"{silo.server}: the coordinator cannot be reached ({' '.join(str(error).split())})"
        ) from None
    if not reply.is_success:
        raise ConfigError(f"{silo.server}: replies with code {reply.status_code}; is it mfairfl?")
    return Finding("ok", "server", f"{silo.server} replies, with a certificate signed by ca.crt")


def examine_federation(file: Path) -> Iterator[Finding]:
    """Yield findings about a coordinator's file; an error is raised where it cannot serve."""
    settings = load_federation(file)
    yield TRUST._replace(level="note")
    if settings.run is None:
        yield Finding("ok", "settings", f"{file}: no run, audits only")
    else:
        known, outside = without_outside(load_toml(settings.run))
        config, spellings = settings.config(known), dict(outside)
        yield from findings_about(outside, "the run imports {}")
        method = spellings.get("strategy.name", config.strategy.name)
        yield Finding("ok", "settings", f"{file}: strategy {method}")
        if not spellings:
            yield from configured_view(config)
    members = settings.members()
    yield Finding("ok", "silos", f"keys of {', '.join(sorted(members.values()))}")
    if gone := sorted(members[key] for key in settings.revoked_keys() & set(members)):
        yield Finding("warn", "silos", f"keys that were revoked, they stay out: {', '.join(gone)}")
    if settings.minimum < 2:
        yield Finding(
            "warn", "minimum", "a single silo may train alone: the model is then its update"
        )
    server = settings.server
    for name in ("ca.crt", "server.crt"):
        yield from _certificate(server.certificates / name, name)
    if not (server.certificates / "server.key").exists():
        raise ConfigError(f"{server.certificates / 'server.key'}: no such key")
    for name in ("server.key", "ca.key"):  # the authority's may well be kept elsewhere
        if (server.certificates / name).exists():
            yield _key_privacy(server.certificates / name)
    yield _state_privacy(server.state)
    yield Finding("ok", "ports", f"public {server.port}; loopback only {server.superlink_port}")
