"""Errors are one line, name the nearest known name, and share one base."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mfairfl import errors
from mfairfl.errors import ConfigError, MfairflError, first_problem, require_extra, unknown


@pytest.mark.parametrize(
    "name", ["CheckpointError", "ConfigError", "DataError", "RunDirectoryError"]
)
def test_one_except_clause_catches_every_user_error(name):
    assert issubclass(getattr(errors, name), MfairflError)
    assert not issubclass(MfairflError, (ValueError, OSError))


def test_unknown_names_the_nearest_and_sorts_the_known():
    assert (
        unknown("notion", "equalised_odds", ["equalized_odds", "accuracy_parity"])
        == "unknown notion 'equalised_odds': did you mean 'equalized_odds'? "
        "(known: accuracy_parity, equalized_odds)"
    )


def test_unknown_gives_no_hint_when_nothing_is_near():
    assert unknown("strategy", "zzz", ["fedavg"]) == "unknown strategy 'zzz' (known: fedavg)"


def test_unknown_accepts_any_iterable_once():
    assert "(known: a, b)" in unknown("key", "c", iter(["b", "a"]))


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=1, ge=1)
    text: str = ""

    @field_validator("text")
    @classmethod
    def _lower_case(cls, value: str) -> str:
        if not value.islower() and value:
            raise ValueError("write it in lower case")
        return value


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")

    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()
    by_name: dict[str, Leaf] = Field(default_factory=dict)
    wanted: int = 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"leaf": {"count": 0}},
            "leaf.count: Input should be greater than or equal to 1 (got 0)",
        ),
        ({"leaf": {"text": "A"}}, "leaf.text: write it in lower case (got 'A')"),
        ({"leaf": {"text": None}}, "leaf.text: Input should be a valid string (got None)"),
        ({"leaf": {"text": "A" * 99}}, "leaf.text: write it in lower case"),
        (
            {"leaves": [{}, {"cuont": 2, "text": "A"}]},
            "unknown key 'leaves.1.cuont': did you mean 'leaves.1.count'? "
            "(known: leaves.1.count, leaves.1.text)",
        ),
        (
            {"wnted": 1},
            "unknown key 'wnted': did you mean 'wanted'? (known: by_name, leaf, leaves, wanted)",
        ),
        ({"by_name": {"a": {"count": 0}}}, "greater than or equal to 1 (got 0)"),
        ([], "Input should be a valid dictionary or instance of Tree"),
    ],
)
def test_first_problem_names_key_reason_and_value(values, said):
    with pytest.raises(ValidationError) as caught:
        Tree.model_validate(values)
    found = first_problem(caught.value, Tree)
    assert found.endswith(said)
    assert "\n" not in found
    inside = first_problem(caught.value, Tree, prefix="tree")
    assert inside.startswith(("tree", "unknown key 'tree."))


def test_a_user_error_does_not_cost_an_import_of_pydantic():
    code = "import sys, mfairfl.errors; print('pydantic' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_a_missing_extra_says_how_to_install_it():
    require_extra("json", "nothing")
    with pytest.raises(ConfigError, match=r"no_such_module is not .*'mfairfl\[tune\]'"):
        require_extra("no_such_module", "tune")
