"""`mfairfl compare` and `reproduce` as a user meets them."""

from __future__ import annotations

import json

import pytest

STUDY = """
title = "Hiring"
data = ["people.toml"]
strategies = ["fedavg", "mfairfl"]
notions = ["dp"]
protocols = ["2x1"]
seeds = 2
[base.model]
hidden = [4]
"""


@pytest.fixture
def study(cli, csv, tmp_path):
    answer = cli(
        "init", "--csv", csv, "--label", "Hired", "--favourable", "yes", "--sensitive", "Gender",
        "--client", "Site", "--out", "people.toml",
    )  # fmt: skip
    assert answer.code == 0, answer.err
    path = tmp_path / "hiring.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.slow
def test_a_file_that_init_wrote_can_be_compared_on(cli, study, one_process, tmp_path):
    answer = cli("compare", study)
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0] == "Hiring"
    assert [line.split()[0] for line in lines[4:6]] == ["fedavg", "mfairfl"]
    assert "written: runs/hiring/hiring.md and the files beside it" in answer.err
    assert (tmp_path / "runs" / "hiring" / "hiring.tex").exists()
    assert len(list((tmp_path / "runs" / "hiring" / "runs").iterdir())) == 4
    listed = json.loads(cli("compare", study, "--json").out)
    assert {row["strategy"] for row in listed} == {"fedavg", "mfairfl"}
    again = cli("compare", study, "--seeds", "1")  # finished runs are not repeated
    assert again.code == 0, again.err
    assert "±" not in again.out.split("Mean ±")[0]


def test_finished_runs_side_by_side(cli, csv, flags, tmp_path):
    for name, strategy in (("plain", "fedavg"), ("fair", "mfairfl")):
        answer = cli("train", "--csv", csv, *flags, "--strategy", strategy, "--out", name)
        assert answer.code == 0, answer.err
    answer = cli("compare", "plain", "fair", "--out", "both.svg")
    assert answer.code == 0, answer.err
    assert "demographic_parity_violation" in answer.out
    records = [json.loads((tmp_path / n / "run.json").read_text()) for n in ("plain", "fair")]
    for record in records:
        assert f"{record['metrics']['test']['accuracy']:.4f}" in answer.out
    found = json.loads(cli("compare", "plain", "fair", "--json").out)
    accuracy = next(one for one in found["lines"] if one["metric"] == "accuracy")
    assert [number["value"] for number in accuracy["numbers"]] == [
        record["metrics"]["test"]["accuracy"] for record in records
    ]
    assert (tmp_path / "both.svg").read_text().startswith("<?xml")
    assert "--seeds" in cli("compare", "plain", "fair", "--seeds", "2").err
    assert cli("compare", "plain").code == 2


@pytest.mark.slow
def test_runs_beside_pooled_references(cli, csv, flags, tmp_path):
    for strategy in ("fedavg", "mfairfl"):
        answer = cli("train", "--csv", csv, *flags, "--strategy", strategy, "--out", strategy)
        assert answer.code == 0, answer.err
    wanted = ("--references", "boosting", "--references", "boosting-threshold")
    answer = cli("compare", "fedavg", "mfairfl", *wanted, "--out", "four.svg")
    assert answer.code == 0, answer.err
    head = next(line for line in answer.out.splitlines() if "change" in line and "†" in line)
    assert "boosting-threshold †" in head
    assert "† pooled: sees all rows; a reference, not federated." in answer.out
    found = json.loads(cli("compare", "fedavg", *wanted, "--json").out)
    assert found["runs"] == ["fedavg", "boosting †", "boosting-threshold †"]
    accuracy = next(one for one in found["lines"] if one["metric"] == "accuracy")
    run = json.loads((tmp_path / "fedavg" / "run.json").read_text())["metrics"]["test"]
    values = [number["value"] for number in accuracy["numbers"]]
    assert values[0] == run["accuracy"]
    assert values[1] > 0.7 > values[0]  # one round of a small network
    assert all(low < value < high for value, (low, high) in
               zip(values, (n["interval"] for n in accuracy["numbers"]), strict=True))  # fmt: skip
    assert "did you mean 'boosting'" in cli("compare", "fedavg", "--references", "boostin").err
    csv.write_text(csv.read_text().replace("cook", "chef"))
    changed = cli("compare", "fedavg", *wanted)
    assert changed.code == 2
    assert "the first run and its file today: measured on different rows" in changed.err


@pytest.mark.slow
def test_a_study_shows_what_pooled_models_reach(cli, study, one_process):
    study.write_text('references = ["boosting", "logistic"]\n' + STUDY)
    answer = cli("compare", study, "--seeds", "1")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[6:9] == [
        lines[6],
        *(line for line in lines if line.startswith(("boost", "logi"))),
    ]
    assert lines[6].strip() == "pooled references †"
    assert "† pooled: sees all rows; a reference, not federated" in answer.out
    answer = cli("compare", study, "--references", "boosting")
    assert answer.code == 2
    assert 'write references = ["boosting"] in' in answer.err
    study.write_text('references = ["xgboost"]\n' + STUDY)
    refused = cli("compare", study)
    assert refused.code == 2
    assert "references.0: Input should be 'boosting'" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "absent.toml"), "absent.toml: no such file"),
        (("reproduce", "table1"), "did you mean 'table-1'"),
        (("reproduce", "tuning", "table-1"), "tuning: give it alone"),
        (("reproduce", "table-1", "--protocol", "10*20"), "protocol"),
    ],
)
def test_mistakes_are_one_line(cli, arguments, message):
    answer = cli(*arguments)
    assert answer.code == 2
    (line,) = answer.err.strip().splitlines()
    assert message in line


def test_an_unknown_reference_is_named_before_anything_runs(cli, study, tmp_path):
    study.write_text('reference = "fedavgg"\n' + STUDY)
    answer = cli("compare", study)
    assert answer.code == 2
    assert "did you mean 'fedavg'" in answer.err
    assert not (tmp_path / "runs").exists()
