"""Checks of a silo's and of a coordinator's file."""

import os
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography import x509

from mfairfl.checks import (
    Finding,
    Level,
    code_findings,
    server_findings,
    settings_findings,
    without_code,
)
from mfairfl.checks.column_checks import ColumnFacts, column_facts, feature_findings
from mfairfl.checks.run_checks import SMALL_GROUP
from mfairfl.data.agreement import agree, describe_columns
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
from mfairfl.runs.silo_runs import consent_of
from mfairfl.silo.policy import POLICY, Policy, load_policy
from mfairfl.silo.silo_file import SiloSettings, load_silo

TRUST = Finding(
    "warn",
    "trust",
    "the coordinator must be trusted as with pseudonymised rows; it can read them "
    "(docs/what-leaves.md)",
)
"""What a silo's operator must know first."""

_SOON = timedelta(days=30)
T = TypeVar("T")


def check_silo(file: Path) -> Iterator[Finding | ColumnFacts]:
    """Yield findings about a silo; raise an error where it cannot take part."""
    silo, policy = load_silo(file), load_policy(file)
    min_rows = policy.disclosure.min_rows
    yield TRUST
    yield Finding("ok", "settings", f"{file}: silo '{silo.name}'")
    yield from code_findings({"extensions": silo.extensions}, "the silo imports {} when it starts")
    yield from _policy(policy)
    content, task, crossing = read_file(silo.csv, silo.format), None, list[Finding]()
    if silo.task is not None:
        values, code = without_code(load_toml(silo.task))
        config = make_config(values, str(silo.task))
        task = consent_of(config, str(silo.task)).task
        crossing += code_findings(code, "the run imports {}")
        if "strategy.name" not in code:  # else the method is not here, nor what it lets cross
            crossing += server_findings(config)
    size = f"{len(content.frame):,} rows, {len(content.frame.columns)} columns"
    yield Finding("ok", "file", f"{silo.csv.name}: {size}")
    if task is None:
        yield Finding("warn", "task", "no 'task': whatever the coordinator asks for is accepted")
    else:
        yield from _fit(silo, content, task, min_rows)
    yield from crossing
    yield from _audit(silo, content, min_rows)
    yield from _connection(silo)


def _policy(policy: Policy) -> Iterator[Finding]:
    """Yield the limits, and what is withheld, key by key, with the meaning of each."""
    limits, disclosure = policy.limits, policy.disclosure
    source = {True: f"of {POLICY}", False: "by default"}
    listed: dict[str, list[str]] = {where: [] for where in source.values()}
    for key, value in limits:
        listed[source[key in limits.model_fields_set]].append(f"{key} {value:,}")
    values = [f"{where}: {', '.join(keys)}" for where, keys in listed.items() if keys]
    yield Finding("ok", "limits", "; ".join(values))
    for key, field in type(disclosure).model_fields.items():
        where, meaning = source[key in disclosure.model_fields_set], str(field.description)
        value = toml_text(getattr(disclosure, key))
        yield Finding("ok", "disclosure", f"{key} = {value} ({where}): {meaning.rstrip('.')}")


def _fit(
    silo: SiloSettings, content: FileContent, task: Task, min_rows: int
) -> Iterator[Finding | ColumnFacts]:
    """Compare what is released about the file with the task, and check it as the run reads it."""
    columns = columns_of(content.frame, silo.csv.name, task.read_as(silo))
    released = describe_columns(columns, task, silo.name, floor=min_rows)
    names = [column.name for column in released.columns]
    recorded = tuple(s for s in task.sensitive if lookalike(s.column, names))
    for sensitive in task.sensitive:
        if sensitive not in recorded:
            message = "is not recorded here: these rows are left out of its comparisons"
            yield Finding("warn", "groups", f"{sensitive.name} {message}")
    if not recorded:
        return
    agreement = agree([released], task.model_copy(update={"sensitive": recorded}))
    if reasons := agreement.refused.get(silo.name):
        raise DataError(f"the file does not fit the task: {'; '.join(reasons)}")
    yield Finding("ok", "schema", f"fits the task: label '{task.label}'")
    for sensitive in recorded:
        if not sensitive.bins and sensitive.column in columns:
            yield _group_sizes(sensitive.name, columns[sensitive.column].levels)
    agreed = agreement.task if min_rows == 1 else agreement.task.unnamed_as_unrecorded()
    yield from column_facts(content.frame, agreed, silo.csv.name, silo)
    table = table_from_content(content, agreed, name=silo.csv.name, reading=silo)
    yield from (Finding("warn", "data", warning) for warning in table.warnings)
    yield from feature_findings(table, {}, traps_of(table))


def _group_sizes(name: str, levels: Mapping[str, int]) -> Finding:
    message = f"{name}: {', '.join(f'{level} ({n:,})' for level, n in levels.items())}"
    small = [level for level, n in levels.items() if n < SMALL_GROUP]
    if not small:
        return Finding("ok", "groups", message)
    few = f"fewer than {SMALL_GROUP} rows of {', '.join(small)}: too few to judge"
    return Finding("warn", "groups", f"{message}; {few}")


def _audit(silo: SiloSettings, content: FileContent, min_rows: int) -> Iterator[Finding]:
    """Yield what may be counted for an audit; refuse columns that the file lacks."""
    consent, path = silo.audit, silo.csv
    if consent is None:
        yield Finding("ok", "audit", "no [audit]: requests for counts are refused")
        return
    if consent.file is not None:
        path = consent.file
        content = read_file(path, consent.format)
    names = (consent.label, consent.prediction, consent.score, *consent.sensitive)
    columns = [name for name in names if name is not None]
    require_columns(content.frame.columns, columns, path.name)
    counted = f"{path.name}: {', '.join(columns)} may be counted"
    floor = f"by no fewer than {min_rows} rows of a group and label"
    yield Finding("ok", "audit", f"{counted}, {floor}")
    if consent.models:
        message = (
            "models = true: models that the coordinator sends are applied to these rows; the "
            "scores of a crafted model reveal values of single rows"
        )
        yield Finding("warn", "audit", message)


def _connection(silo: SiloSettings) -> Iterator[Finding]:
    """Check the state folder, the key, and that the coordinator answers with its certificate."""
    folder = silo.state if silo.state.exists() else silo.state.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{silo.state}: cannot be written; choose another 'state'")
    yield _privacy("state", silo.state)
    key = _stated(silo.key, "'key': create one with `mfairfl deploy key key`")
    require_private_key(key)
    yield _privacy("key", key)
    ca = _stated(silo.ca, "'ca': ask the coordinator for its ca.crt")
    yield _certificate(ca)
    server = _stated(silo.server, "'server': the coordinator's address, host:port")
    tls = ssl.create_default_context(cafile=str(ca))
    try:
        reply = httpx.get(f"https://{server}/health", verify=tls, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{server}: the coordinator cannot be reached ({reason})") from None
    if not reply.is_success:
        raise ConfigError(f"{server}: replies with code {reply.status_code}; is it mfairfl?")
    message = f"{server} replies, with a certificate signed by ca.crt"
    yield Finding("ok", "server", message)


def _stated(value: T | None, key: str) -> T:
    """Return a setting; without it, name its key and the remedy."""
    if value is None:
        raise ConfigError(f"no {key}")
    return value


def _privacy(check: str, path: Path) -> Finding:
    """Check that only this user can read a folder of state, which may not exist yet, or a key."""
    if path.exists() and others_can_read(path):
        mode = 700 if path.is_dir() else 600
        return Finding("warn", check, f"{path}: others can read it; chmod {mode} {path}")
    return Finding("ok", check, f"{path}: only you can read it")


def _certificate(path: Path) -> Finding:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such certificate") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not a certificate ({error})") from None
    ends = certificate.not_valid_after_utc
    if ends < datetime.now(UTC):
        raise ConfigError(f"{path}: expired on {ends:%Y-%m-%d}; create a new one")
    level: Level = "warn" if ends < datetime.now(UTC) + _SOON else "ok"
    return Finding(level, "certificate", f"{path.name} is valid until {ends:%Y-%m-%d}")


def check_federation(file: Path) -> Iterator[Finding]:
    """Yield findings about a coordinator's file; raise an error where it cannot serve."""
    settings = load_federation(file)
    yield TRUST._replace(level="note")
    if settings.run is None:
        yield Finding("ok", "settings", f"{file}: no run, audits only")
    else:
        values, code = without_code(load_toml(settings.run))
        config = settings.config(values)
        yield from settings_findings(config, str(file), code, "the run imports {}")
        if not code:
            yield from server_findings(config)
    members = settings.members()
    yield Finding("ok", "silos", f"keys of {', '.join(sorted(members.values()))}")
    if revoked := sorted(members[key] for key in settings.revoked_keys() & set(members)):
        yield Finding("warn", "silos", f"revoked keys, which stay out: {', '.join(revoked)}")
    if settings.minimum < 2:
        message = "a single silo may train alone: the model is then its update"
        yield Finding("warn", "minimum", message)
    server = settings.server
    yield _certificate(server.ca)
    yield _certificate(server.certificates / "server.crt")
    key, authority = (server.certificates / name for name in ("server.key", "ca.key"))
    if not key.exists():
        raise ConfigError(f"{key}: no such key")
    yield _privacy("key", key)
    if authority.exists():  # it may be stored elsewhere
        yield _privacy("key", authority)
    yield _privacy("state", server.state)
    yield Finding("ok", "ports", f"public {server.port}; loopback only {server.superlink_port}")
