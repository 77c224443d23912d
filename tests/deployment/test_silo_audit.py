"""The document of an audit over silos, beside that of all rows in one table."""

from __future__ import annotations

import numpy as np
import pytest

import mfairfl
from audit_silos import CONSENT, SILOS, Silos, policy, pooled, predictions, write_silos
from mfairfl.coordinator.audit import gather_counts
from mfairfl.deployment.coordinator_app import build_silo_audit
from mfairfl.deployment.settings import AuditRequest
from mfairfl.report.audit_document import build_audit

REQUEST = AuditRequest(
    sensitive=("sex", "race"),
    label="hired",
    favourable="yes",
    prediction="decision",
    score="score",
    notions=("demographic_parity", "equalized_odds"),
    tolerance=0.05,
    sex="sex",
    race="race",
)


def over_silos(folder, frame, *, min_rows=10, without=()):
    settings = write_silos(folder, frame)
    for name in without:
        settings[name] = settings[name].model_copy(update={"audit": None})
    silos = Silos(settings, policy(min_rows=min_rows))
    found = gather_counts(silos, SILOS, REQUEST.terms())
    return build_silo_audit(REQUEST, found)


def of_all_rows(frame, floor=1):
    return build_audit(
        pooled(frame, REQUEST.columns(), floor=floor), REQUEST.settings(REQUEST.meaning())
    )


def content(document):
    """Everything but where the rows come from."""
    return document.model_dump(mode="json", exclude={"sources"})


@pytest.mark.slow
@pytest.mark.parametrize("floor", [1, 10])
def test_the_audit_over_silos_is_that_of_all_rows(tmp_path, floor):
    frame = predictions()
    found = over_silos(tmp_path, frame, min_rows=floor)
    assert content(found) == content(of_all_rows(frame, floor))
    assert found.rows.withheld == {}
    assert [one.name for one in found.sources] == list(SILOS)
    assert [one.rows for one in found.sources] == [400, 400, 400]
    assert len({one.sha256 for one in found.sources}) == 3
    assert found.settings.meaning.client == "silos"


@pytest.mark.slow
def test_the_audit_over_silos_is_that_of_mfairfl_audit_on_the_joined_file(tmp_path):
    frame = predictions()
    frame["age"] = np.where(np.arange(len(frame)) % 3, "9", "10")  # numbers in their order
    frame.loc[::7, "race"] = ""
    frame.to_csv(tmp_path / "all.csv", index=False)
    asked = AuditRequest(
        sensitive=("sex", "race", "age"),
        label="hired",
        favourable="yes",
        prediction="decision",
        score="score",
        tolerance=0.05,
    )
    consent = CONSENT | {"sensitive": asked.sensitive}
    silos = Silos(write_silos(tmp_path, frame, consent), policy(min_rows=1))
    found = build_silo_audit(asked, gather_counts(silos, SILOS, asked.terms()))
    named = {key: getattr(asked, key) for key in ("sensitive", "label", "prediction", "score")}
    every = mfairfl.audit(
        tmp_path / "all.csv", **named, favourable="yes", client="silo", tolerance=0.05
    )
    same = {"sources", "settings"}
    assert found.model_dump(exclude=same) == every.model_dump(exclude=same)
    assert found.settings.model_copy(update={"meaning": every.settings.meaning}) == every.settings
    assert [one.groups for one in found.counts.attributes] == [
        ("F", "M"),
        ("Black", "White", "?"),
        ("9", "10"),
    ]


def numbers(document):
    """Yield every number with its place in the document."""
    for one in document.overall:
        yield ("overall", one.name), one
    for section in document.sections:
        for one in section.measures:
            yield (section.attribute, one.name), one
        for group in section.groups:
            for name, one in group.numbers.items():
                yield (section.attribute, group.name, name), one
    for client in document.clients:
        for name, one in client.numbers.items():
            yield ("client", client.name, name), one


# Of scores, not of decisions; and a number of rows, which may be larger by those withheld.
WITHOUT_BOUNDS = {
    "roc_auc",
    "loss",
    "expected_calibration_error",
    "accuracy_parity_loss_violation",
    "labelled_rows",
}


@pytest.mark.slow
@pytest.mark.parametrize("kept", [1, 3, 12])
@pytest.mark.parametrize("rows", [150, 400])
def test_where_the_floor_bites_the_bounds_contain_the_number_of_all_rows(tmp_path, rows, kept):
    frame = predictions(rows)
    few = (frame["silo"] == "west") & (frame["sex"] == "F") & (frame["race"] == "Black")
    frame = frame[~few | (few.cumsum() <= kept)].reset_index(drop=True)
    found, every = over_silos(tmp_path, frame), of_all_rows(frame)
    hidden = {(row.client, row.groups) for row in found.counts.rows if row.hidden}
    assert ("west", ("F", "Black")) in hidden
    assert found.rows.withheld["west"] >= 10
    true, bounded = dict(numbers(every)), 0
    for place, one in numbers(found):
        value = true[place].value
        if one.bounds is None:
            assert one.value == value or place[-1] in WITHOUT_BOUNDS, place
        elif value is not None:
            low, high = one.bounds
            assert low - 1e-12 <= value <= high + 1e-12, place
            bounded += 1
    assert bounded > 50
    assert any(one.value != true[place].value for place, one in numbers(found))


@pytest.mark.slow
def test_a_silo_that_is_left_out_is_named_first(tmp_path):
    frame = predictions()
    found = over_silos(tmp_path, frame, without=["west"])
    first, why = found.headline.warnings[0].split(": ", 1)
    assert first == "west is not counted"
    assert "no section [audit]" in why
    (west,) = [one for one in found.sources if one.name == "west"]
    assert (west.rows, west.notes) == (0, [f"left out: {why}"])
    rest = frame[frame["silo"] != "west"]
    assert found.counts == of_all_rows(rest, floor=10).counts
    assert np.isclose(sum(one.rows for one in found.sources), len(rest))
