"""An audit by the server app over an in-process Grid, and what is kept of it on disk."""

from __future__ import annotations

import json
from datetime import date

import pytest
import tomli_w

from audit_silos import CONSENT, SILOS, pooled, predictions
from grids import LocalGrid
from mfairfl.deployment.coordinator_app import carry_out_audit
from mfairfl.deployment.journal import read_journal
from mfairfl.deployment.keys import read_public_key
from mfairfl.deployment.local import write_federation
from mfairfl.deployment.settings import AuditRequest, load_federation
from mfairfl.deployment.silo_app import app
from mfairfl.deployment.superlink import REQUEST
from mfairfl.errors import ConfigError, FederationError
from mfairfl.flower.records import from_records
from mfairfl.report.audit_document import build_audit
from mfairfl.report.document import Document
from mfairfl.silo.policy import Disclosure, Policy

ASKED = AuditRequest(
    sensitive=("sex", "race"),
    label="hired",
    favourable="yes",
    prediction="decision",
    score="score",
)


@pytest.fixture
def frame():
    return predictions()


@pytest.fixture
def laid(tmp_path, frame):
    return lay(tmp_path, frame, ASKED)


def lay(tmp_path, frame, asked):
    """Return a federation of three silos with predictions, and the request of an audit."""
    files = {}
    for name, part in frame.groupby("silo"):
        files[name] = tmp_path / f"{name}.csv"
        part.drop(columns="silo").to_csv(files[name], index=False)
    file = write_federation(
        tmp_path / "run",
        files,
        silo={"audit": CONSENT},
        federation={"deadline": 5, "wait": 0.0},
        policy=Policy(disclosure=Disclosure(min_rows=10)),
    )
    out = tmp_path / "audit"
    out.mkdir()
    (out / REQUEST).write_text(asked.model_dump_json())
    return load_federation(file).model_copy(update={"minimum": 2}), file.parent, out / REQUEST


def grid(settings, folder, lose=lambda node, message: False):
    """Nodes with the silos' keys and files."""
    numbers = {name: 101 * (i + 3) for i, name in enumerate(SILOS)}
    silos = {n: {"silo": str(folder / "silos" / s / "silo.toml")} for s, n in numbers.items()}
    keys = {n: read_public_key(settings.silos[name]) for name, n in numbers.items()}
    return LocalGrid(app, silos, lose=lose, keys=keys), numbers


def content(document):
    """Everything but where the rows come from."""
    return document.model_dump(exclude={"sources"})


def of_all_rows(frame, asked=ASKED):
    return build_audit(pooled(frame, floor=10), asked.settings(asked.meaning()))


@pytest.mark.slow
def test_the_app_writes_the_audit_of_all_rows(laid, frame):
    settings, folder, request = laid
    carry_out_audit(grid(settings, folder)[0], settings, request, run="7")
    written = Document.read(request.parent)
    assert content(written) == content(of_all_rows(frame))
    assert [(source.name, source.notes) for source in written.sources] == [
        (name, ["released no count of fewer than 10 rows of a group and label"]) for name in SILOS
    ]
    events = [line["event"] for line in read_journal(request.parent / "journal.jsonl", "7")]
    assert events == ["waiting", "auditing", "finished"]
    (state,) = (folder / "silos" / "east" / "state").glob("audit-*")
    assert json.loads((state / "requests.json").read_text())["requests"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("good", "bad"), [("No", "Yes"), ("0", "1"), (">50K", "<=50K")])
def test_predictions_of_the_package_need_no_favourable_value(tmp_path, frame, good, bad):
    words = {"yes": good, "no": bad, "": ""}
    written = frame.assign(
        hired=frame["hired"].map(words),
        decision=frame["decision"].map(words),
        favourable=(frame["decision"] == "yes").astype(int),
    )
    asked = ASKED.model_copy(update={"favourable": None})
    settings, folder, request = lay(tmp_path, written, asked)
    carry_out_audit(grid(settings, folder)[0], settings, request, run="7")
    document = Document.read(request.parent)
    assert [source.name for source in document.sources] == list(SILOS)
    assert content(document)["overall"] == content(of_all_rows(frame))["overall"]
    assert document.counts == of_all_rows(frame).counts


def test_a_silo_that_does_not_answer_is_named_in_journal_and_result(laid, frame):
    settings, folder, request = laid

    def deaf(node, message):
        kind = json.loads(from_records(message.content)[1].text)["kind"]
        return node == numbers["north"] and kind == "audit"

    flaky, numbers = grid(settings, folder, lose=deaf)
    quick = settings.model_copy(update={"deadline": 0.3})
    carry_out_audit(flaky, quick, request, run="1")
    document = Document.read(request.parent)
    left_out = next(source for source in document.sources if source.name == "north")
    assert (left_out.rows, left_out.notes) == (0, ["left out: no answer before the deadline"])
    assert document.headline.warnings[-1] == "north is not counted: no answer before the deadline"
    assert document.counts == of_all_rows(frame[frame["silo"] != "north"]).counts
    lines = read_journal(request.parent / "journal.jsonl", "1")
    said = [line["message"] for line in lines if line["event"] == "warning"]
    assert said == ["north is left out: no answer before the deadline"]


def test_too_few_silos_fail_with_the_reasons_in_the_journal(laid):
    settings, folder, request = laid
    for name in SILOS[:2]:
        path = folder / "silos" / name / "silo.toml"
        path.write_text(path.read_text().partition("[audit]")[0])
    with pytest.raises(FederationError, match="1 of 3 clients take part, at least 2 must"):
        carry_out_audit(grid(settings, folder)[0], settings, request, run="1")
    *_, last = read_journal(request.parent / "journal.jsonl", "1")
    assert last["event"] == "failed"
    assert "no section [audit]" in last["message"]
    assert not (request.parent / "audit.json").exists()


def test_more_rows_than_any_silo_has_are_refused(laid):
    settings, folder, request = laid
    few = settings.model_copy(update={"most_rows": 399, "minimum": 1})
    with pytest.raises(FederationError, match="it claims more than 399 rows"):
        carry_out_audit(grid(settings, folder)[0], few, request, run="1")


@pytest.mark.slow
def test_an_audit_since_a_baseline_has_drift(laid):
    settings, folder, request = laid
    carry_out_audit(grid(settings, folder)[0], settings, request, run="1")
    (request.parent.parent / "june").mkdir()
    june = request.parent.parent / "june" / REQUEST
    june.write_text(ASKED.model_copy(update={"baseline": request.parent}).model_dump_json())
    carry_out_audit(grid(settings, folder)[0], settings, june, run="2")
    assert Document.read(request.parent).drift is None
    drift = Document.read(june.parent).drift
    assert (drift.rows_before, drift.rows_after) == (1200, 1200)
    assert not any(row.beyond_chance for row in drift.changes)


# ------------------------------------------------------------------ settings


def written(tmp_path, **audit):
    (tmp_path / "key.pub").touch()
    values = {"out": "out", "minimum": 1, "silos": {"a": "key.pub"}, "audit": audit}
    (tmp_path / "federation.toml").write_text(tomli_w.dumps(values))
    return tmp_path / "federation.toml"


def test_the_run_of_the_coordinator_s_file_is_relative_to_it(tmp_path):
    file = written(tmp_path, sensitive=["sex"], run="runs/a")
    assert load_federation(file).audit.run == tmp_path / "runs" / "a"


@pytest.mark.parametrize(
    ("audit", "message"),
    [
        ({"labels": "hired"}, "unknown key 'audit.labels': did you mean 'audit.label'"),
        ({"score_range": [0]}, "audit.score_range"),
        ({"facts": {"tols": "x"}}, "audit.facts.tols"),
        ({"tolerance": 2.0}, "federation.toml: audit.tolerance"),
        ({"notions": ["x"]}, "federation.toml: unknown notion 'x'"),
    ],
)
def test_error_of_the_audit_section_names_the_key(tmp_path, audit, message):
    with pytest.raises(ConfigError, match=message):
        load_federation(written(tmp_path, **audit))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"prediction": "d"}, "fair for whom"),
        ({"sensitive": ("sex",)}, "no decisions"),
        ({"sensitive": ("sex",), "score": "s"}, "no decisions"),
        ({"sensitive": ("sex",), "prediction": "d", "notions": ("eo",)}, "needs labels"),
        ({"prediction": "d", "sex": "sex", "race": "sex"}, "named as sex and as race"),
        ({"sensitive": ("sex",), "prediction": "d", "notions": ("x",)}, "unknown notion 'x'"),
        ({"run": "runs/a", "label": "hired"}, "audit.label: a run's model is audited on its own"),
        ({"sensitive": ("s",), "prediction": "d", "score_range": (1.0, 0.0)}, "score range 1"),
    ],
)
def test_invalid_requests_are_refused_in_one_line(keys, message):
    with pytest.raises(ConfigError, match=message) as caught:
        AuditRequest(**keys).check()
    assert "\n" not in str(caught.value)


def test_columns_of_sex_and_race_are_sensitive():
    asked = AuditRequest(sensitive=("age",), prediction="d", sex="sex", race="race")
    assert asked.columns().sensitive == ("age", "sex", "race")
    assert asked.settings(asked.meaning()).facts.audit_date == date.today().isoformat()


def test_a_run_needs_settings_and_an_audit_does_not(tmp_path):
    settings = load_federation(written(tmp_path))
    with pytest.raises(ConfigError, match=r"no 'run' in federation\.toml"):
        settings.config()
