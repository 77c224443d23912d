"""What a silo does for a coordinator at most, and lets it count: policy.toml, beside silo.toml.

Only the silo reads it, for every message anew; nothing in a message can change it. Without the
file the defaults hold: every method's default recipe and the paper's protocol stay within them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ConfigDict, Field

from mfairfl.data.values import DocumentedModel
from mfairfl.files import load_settings, toml_text

__all__ = [
    "POLICY",
    "Disclosure",
    "Limits",
    "Policy",
    "load_policy",
    "policy_sha256",
    "policy_text",
]

POLICY = "policy.toml"
"""Name of the file."""

_FIRST_LINE = (
    f"# {POLICY}: what this silo does for the coordinator at most. Nothing else sets it.\n"
)


class Limits(DocumentedModel):
    """Beyond these a silo refuses a request, with the reason, and the run goes on without it.

    Examples
    --------
    >>> Limits(epochs=50).epochs, Limits().jobs
    (50, 4)
    """

    model_config = ConfigDict(strict=True)

    epochs: int = Field(default=200, ge=1)
    """Epochs of a job."""
    steps: int = Field(default=100_000, ge=1)
    """Optimiser steps of a job: epochs × batches."""
    seconds: int = Field(default=600, ge=1)
    """Seconds of computing for a request; the next one waits as long at most."""
    jobs: int = Field(default=4, ge=1)
    """Jobs of a request for training."""
    models: int = Field(default=64, ge=1)
    """Models of a request for a measurement; each member of an ensemble or a mixture is one."""
    weights: int = Field(default=10_000_000, ge=1)
    """Weights of a model."""
    requests: int = Field(default=10_000, ge=1)
    """Requests of a run; a round makes two."""
    runs_a_day: int = Field(default=50, ge=1)
    """Runs that begin within 24 hours; one that is resumed has begun already."""
    megabytes: int = Field(default=10_000, ge=1)
    """Megabytes in the state folder, all runs together."""
    min_count: int = Field(default=5, ge=1)
    """Rows that hold a category, or a number, before the coordinator is told it by name."""


class Disclosure(DocumentedModel):
    """What a silo keeps to itself because too few rows are behind it.

    Examples
    --------
    >>> Disclosure().min_rows
    10
    """

    model_config = ConfigDict(strict=True)

    min_rows: int = Field(default=10, ge=1)
    """Rows of one group and label before an audit counts them; smaller counts are withheld."""


class Policy(DocumentedModel):
    """A silo's policy.toml, one section after the other."""

    limits: Limits = Field(default_factory=Limits)
    """How much is done for a coordinator."""
    disclosure: Disclosure = Field(default_factory=Disclosure)
    """How few rows are never counted for one."""


def load_policy(silo_file: Path) -> Policy:
    """Read the policy.toml beside a silo's file; without one the defaults hold."""
    path = silo_file.parent / POLICY
    return load_settings(path, Policy) if path.exists() else Policy()


def policy_sha256(policy: Policy) -> str:
    """Return the SHA-256 of what a policy says about disclosure, in force or by default.

    It is that of the section as JSON, its keys in alphabetical order and no space between them:
    equal for equal settings, whether a file names them or not.

    Examples
    --------
    >>> policy_sha256(Policy()) == policy_sha256(Policy(limits=Limits(epochs=3)))
    True
    """
    plain = policy.disclosure.model_dump(mode="json")
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def policy_text(policy: Policy) -> str:
    """Write a policy as TOML, each key with its meaning.

    Examples
    --------
    >>> print(policy_text(Policy()))  # doctest: +ELLIPSIS
    # policy.toml: what this silo does for the coordinator at most. Nothing else sets it.
    <BLANKLINE>
    [limits]
    # Epochs of a job.
    epochs = 200
    ...
    """
    sections = []
    for section in Policy.model_fields:
        values = getattr(policy, section)
        lines = [f"[{section}]"]
        for key, field in type(values).model_fields.items():
            lines += [f"# {field.description}", f"{key} = {toml_text(getattr(values, key))}"]
        sections.append("\n".join(lines))
    return _FIRST_LINE + "\n" + "\n\n".join(sections) + "\n"
