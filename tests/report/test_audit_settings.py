"""The options of an audit are the same as flags, keywords and keys of a file."""

from __future__ import annotations

from inspect import signature

import pytest

import mfairfl
from mfairfl.deployment.settings import AuditRequest
from mfairfl.errors import ConfigError
from mfairfl.report.audit_options import AUDIT_OPTIONS, ROW_OPTIONS
from mfairfl.report.audit_settings import AuditFacts, RowOptions, validated


def keys(model):
    facts = {f"facts.{name}" for name in AuditFacts.model_fields}
    return {name for name in model.model_fields if name != "facts"} | facts


def test_every_key_of_an_audit_has_a_flag():
    assert {o.key for o in (AUDIT_OPTIONS | ROW_OPTIONS).values()} == keys(RowOptions)
    assert {o.key for o in AUDIT_OPTIONS.values()} == keys(AuditRequest) - {"run", "baseline"}


def test_the_keywords_of_an_audit_are_its_keys_with_their_defaults():
    parameters = signature(mfairfl.audit).parameters
    for name, field in RowOptions.model_fields.items():
        default = field.get_default(call_default_factory=True)
        given = parameters[name].default
        assert given == default or given is None, name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tolerance": 2}, r"audit\.tolerance: .*less than 1.*got 2"),
        ({"tolerence": 0.1}, r"unknown key 'audit\.tolerence': did you mean 'audit\.tolerance'"),
        ({"facts": {"data_kind": "old"}}, r"audit\.facts\.data_kind: .*'historical'"),
        ({"bins": {"age": [float("inf")]}}, r"audit\.bins\.age\.0: .*finite"),
        ({"notions": ["eqodds"]}, "unknown notion 'eqodds'"),
        ({"unknown": [["a", "b"]]}, "is not a single value"),
    ],
)
def test_errors_name_the_key(values, message):
    with pytest.raises(ConfigError, match=message):
        validated(RowOptions, values)
