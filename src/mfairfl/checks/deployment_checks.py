"""Checks of a silo's and of a coordinator's file."""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from cryptography import x509

from mfairfl.checks.column_checks import ColumnFacts, column_facts, feature_findings
from mfairfl.checks.findings import (
    TRUST,
    Finding,
    Level,
    NamedCode,
    code_findings,
    server_findings,
    without_code,
)
from mfairfl.checks.run_checks import SMALL_GROUP
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
from mfairfl.runs.silo_runs import consent_of
from mfairfl.silo.policy import POLICY, Disclosure, Limits, load_policy
from mfairfl.silo.silo_file import SiloSettings, load_silo

_SOON = timedelta(days=30)


def check_silo(file: Path) -> Iterator[Finding | ColumnFacts]:
    """Yield findings about a silo; raise an error where it cannot take part."""
    silo, policy = load_silo(file), load_policy(file)
    yield TRUST
    yield Finding("ok", "settings", f"{file}: silo '{silo.name}'")
    extensions = [NamedCode("extensions", name) for name in silo.extensions]
    yield from code_findings(extensions, "the silo imports {} when it starts")
    yield Finding("ok", "limits", _limits(policy.limits))
    yield from _disclosure(policy.disclosure)
    content = read_file(silo.csv, silo.format)
    task, crossing = None, list[Finding]()
    if silo.task is not None:
        values, code = without_code(load_toml(silo.task))
        config = make_config(values, str(silo.task))
        task = consent_of(config, str(silo.task)).task
        # What crosses is not known of a method whose code is not here.
        method_is_known = all(key != "strategy.name" for key, _ in code)
        crossing = [
            *code_findings(code, "the run imports {}"),
            *(server_findings(config) if method_is_known else ()),
        ]
    reading = silo if task is None else task.read_as(silo)
    columns = columns_of(content.frame, silo.csv.name, reading)
    size = f"{len(content.frame):,} rows, {len(columns)} columns"
    yield Finding("ok", "file", f"{silo.csv.name}: {size}")
    if task is None:
        yield Finding("warn", "task", "no 'task': whatever the coordinator asks for is accepted")
    else:
        profile = describe_columns(columns, task, silo.name)
        released = describe_columns(columns, task, silo.name, floor=policy.disclosure.min_rows)
        if agreed := (yield from _fit(profile, released, task)):
            agreed = agreed if released.floor == 1 else agreed.unnamed_as_unrecorded()
            yield from column_facts(content.frame, agreed, silo.csv.name, silo)
            table = table_from_content(content, agreed, name=silo.csv.name, reading=silo)
            yield from (Finding("warn", "data", warning) for warning in table.warnings)
            yield from feature_findings(table, {}, traps_of(table))
    yield from crossing
    yield from _audit(silo, content, policy.disclosure)
    yield _state(silo)
    yield _key(silo)
    yield _certificate(silo.ca, "ca")
    yield _reach(silo)


def _limits(limits: Limits) -> str:
    """List the limits, those that the silo chose and those that hold by default."""
    chosen = [f"{key} {value:,}" for key, value in limits if key in limits.model_fields_set]
    default = [f"{key} {value:,}" for key, value in limits if key not in limits.model_fields_set]
    sources = {f"of {POLICY}": chosen, "by default": default}
    return "; ".join(f"{source}: {', '.join(keys)}" for source, keys in sources.items() if keys)


def _disclosure(section: Disclosure) -> Iterator[Finding]:
    """Yield what is withheld, key by key, with the meaning of each."""
    for key, field in type(section).model_fields.items():
        where = f"of {POLICY}" if key in section.model_fields_set else "by default"
        meaning = (field.description or "").rstrip(".")
        value = toml_text(getattr(section, key))
        yield Finding("ok", "disclosure", f"{key} = {value} ({where}): {meaning}")


def _audit(silo: SiloSettings, content: FileContent, disclosure: Disclosure) -> Iterator[Finding]:
    """Yield what may be counted for an audit; refuse columns that the file lacks."""
    consent = silo.audit
    if consent is None:
        yield Finding("ok", "audit", "no [audit]: requests for counts are refused")
        return
    path = silo.csv if consent.file is None else consent.file
    if consent.file is not None:
        content = read_file(path, consent.format)
    names = (consent.label, consent.prediction, consent.score, *consent.sensitive)
    columns = [name for name in names if name is not None]
    require_columns(content.frame.columns, columns, path.name)
    yield Finding(
        "ok",
        "audit",
        f"{path.name}: {', '.join(columns)} may be counted, by no fewer than "
        f"{disclosure.min_rows} rows of a group and label",
    )
    if consent.models:
        yield Finding(
            "warn",
            "audit",
            "models = true: models that the coordinator sends are applied to these rows, and "
            "scores of one that is made for it tell values of single rows",
        )


def _fit(profile: Profile, released: Profile, task: Task) -> Generator[Finding, None, Task | None]:
    """Compare what is released about the file with the task; return the resolved task."""
    names = [column.name for column in profile.columns]
    recorded = tuple(s for s in task.sensitive if lookalike(s.column, names))
    for sensitive in task.sensitive:
        if sensitive not in recorded:
            yield Finding(
                "warn",
                "groups",
                f"{sensitive.name} is not recorded here: these rows are left out of its "
                "comparisons",
            )
    if not recorded:
        return None
    agreement = agree([released], task.model_copy(update={"sensitive": recorded}))
    if reasons := agreement.refused.get(profile.client):
        raise DataError(f"the file does not fit the task: {'; '.join(reasons)}")
    yield Finding("ok", "schema", f"fits the task: label '{task.label}'")
    for sensitive in recorded:
        column = profile.column(sensitive.column)
        if column is None or sensitive.bins:
            continue
        sizes = ", ".join(f"{level} ({n:,})" for level, n in column.levels.items())
        small = [level for level, n in column.levels.items() if n < SMALL_GROUP]
        message = f"{sensitive.name}: {sizes}"
        if small:
            message += f"; fewer than {SMALL_GROUP} rows of {', '.join(small)}: too few to judge"
        yield Finding("warn" if small else "ok", "groups", message)
    return agreement.task


def _state(silo: SiloSettings) -> Finding:
    folder = silo.state if silo.state.exists() else silo.state.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{silo.state}: cannot be written; choose another 'state'")
    return _privacy("state", silo.state)


def _privacy(check: str, path: Path) -> Finding:
    """Check that only this user can read a folder of state, which may not exist yet, or a key."""
    if path.exists() and others_can_read(path):
        mode = 700 if path.is_dir() else 600
        return Finding("warn", check, f"{path}: others can read it; chmod {mode} {path}")
    return Finding("ok", check, f"{path} is for you alone")


def _key(silo: SiloSettings) -> Finding:
    if silo.key is None:
        raise ConfigError("no 'key': create one with `mfairfl deploy key key`")
    require_private_key(silo.key)
    return _privacy("key", silo.key)


def _certificate(path: Path | None, name: str) -> Finding:
    if path is None:
        raise ConfigError(f"no '{name}': ask the coordinator for its ca.crt")
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


def _reach(silo: SiloSettings) -> Finding:
    """Check that the coordinator answers over TLS with the expected certificate."""
    if silo.server is None:
        raise ConfigError("no 'server': the coordinator's address, host:port")
    tls = ssl.create_default_context(cafile=str(silo.ca))
    page = f"https://{silo.server}/health"
    try:
        reply = httpx.get(page, verify=tls, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise ConfigError(
            f"{silo.server}: the coordinator cannot be reached ({' '.join(str(error).split())})"
        ) from None
    if not reply.is_success:
        raise ConfigError(f"{silo.server}: replies with code {reply.status_code}; is it mfairfl?")
    return Finding("ok", "server", f"{silo.server} replies, with a certificate signed by ca.crt")


def check_federation(file: Path) -> Iterator[Finding]:
    """Yield findings about a coordinator's file; raise an error where it cannot serve."""
    settings = load_federation(file)
    yield TRUST._replace(level="note")
    if settings.run is None:
        yield Finding("ok", "settings", f"{file}: no run, audits only")
    else:
        values, code = without_code(load_toml(settings.run))
        config = settings.config(values)
        yield from code_findings(code, "the run imports {}")
        method = dict(code).get("strategy.name", config.strategy.name)
        yield Finding("ok", "settings", f"{file}: strategy {method}")
        if not code:
            yield from server_findings(config)
    members = settings.members()
    yield Finding("ok", "silos", f"keys of {', '.join(sorted(members.values()))}")
    if revoked := sorted(members[key] for key in settings.revoked_keys() & set(members)):
        yield Finding("warn", "silos", f"revoked keys, which stay out: {', '.join(revoked)}")
    if settings.minimum < 2:
        yield Finding(
            "warn", "minimum", "a single silo may train alone: the model is then its update"
        )
    server = settings.server
    for name in ("ca.crt", "server.crt"):
        yield _certificate(server.certificates / name, name)
    if not (server.certificates / "server.key").exists():
        raise ConfigError(f"{server.certificates / 'server.key'}: no such key")
    for name in ("server.key", "ca.key"):  # the authority's may be stored elsewhere
        if (server.certificates / name).exists():
            yield _privacy("key", server.certificates / name)
    yield _privacy("state", server.state)
    yield Finding("ok", "ports", f"public {server.port}; loopback only {server.superlink_port}")
