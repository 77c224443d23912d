"""Texts of somebody who is not trusted, against the standard library's reader."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import one_line
from mfairfl.strict_json import JsonLimits, parse_json

LIMITS = JsonLimits(characters=10**6, values=10**5)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN, st.booleans())
def test_plain_json_is_read_as_it_is(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text, LIMITS) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 40 + "]" * 40, "nested more than 32 deep"),
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 90_000, "nested more than 32 deep"),
        ("[NaN]", "NaN, which is not a number"),
        ("[-Infinity]", "-Infinity, which is not a number"),
        ("[1e400]", "too large"),
        ("[-1e400]", "too large"),
        (f"[{'1' * 5000}]", "a number of 5000 digits"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "names a key twice"),
        ("[" + "0," * 100_000 + "0]", "a text of 100001 values; at most 100000"),
        (" " * 10**6 + "1", "a text of 1000001 characters; at most 1000000"),
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1] 2", "not JSON"),
        ('"open', "not JSON"),
        ("\ufeff1", "not JSON"),
    ],
)
def test_anything_else_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_json(text, LIMITS)
    one_line(caught)


def test_brackets_and_commas_within_texts_do_not_count():
    said = {"[" * 50: "{" * 50, 'quote " and \\': ",[{" * 20}
    assert parse_json(json.dumps(said), JsonLimits(1000, 5)) == said


@pytest.mark.parametrize("unit", ['\\"', '"', "\\", '"a', '\\"\\'])
def test_the_time_goes_by_the_length(unit):
    """Quotes that never close must not be searched for again and again."""
    text = ('"' + unit * 10**6)[: 10**6]
    began = time.process_time()
    with pytest.raises(ValueError, match="a text"):
        parse_json(text, LIMITS)
    assert time.process_time() - began < 2  # a quadratic reader takes an hour
