"""The document of a report says what the files of runs say, whatever the run."""

from __future__ import annotations

import json
import shutil

import pytest

import federations as fed
import mfairfl
from counted_runs import decided, write_counted
from mfairfl.data import partition, table_from_frame
from mfairfl.errors import ConfigError, RunDirectoryError
from mfairfl.fairness import Event, Notion
from mfairfl.fairness.notions import REGISTRY
from mfairfl.report import build_report, model_card
from mfairfl.report.document import Document
from mfairfl.report.page import render
from mfairfl.strategies import available

QUICK = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.02}


def recorded(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def train(folder, strategy, federation=None, **changes):
    federation = federation or fed.people_federation()
    mfairfl.train(federation, out=folder, strategy=strategy, **(QUICK | changes))
    return folder


def readable(report):
    """Every way to read a report works, and the document survives its own file."""
    assert "<html" in render(report)
    assert model_card(report).startswith("# Model card: ")
    assert Document.model_validate_json(report.to_json()) == report


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [train(folder / name, name, tolerance=0.1) for name in ("mfairfl", "fedavg")]


@pytest.mark.parametrize("strategy", available())
def test_the_report_of_every_strategy_has_the_numbers_of_its_record(strategy, tmp_path):
    folder = train(tmp_path / "run", strategy, notion="eo")
    report, record = build_report([folder]), recorded(folder)
    readable(report)
    test = record["metrics"]["test"]
    assert {one.name: one.value for one in report.overall} == {
        name: value for name, value in test.items() if not isinstance(value, dict)
    }
    assert [s.attribute for s in report.sections] == ["sex", "age", "sex × age"]
    for section in report.sections:
        groups = test["by_group"][section.attribute]
        assert {one.name: one.rows for one in section.groups} == {
            name: cell["n"] for name, cell in groups.items()
        }
        found = {one.name: one for one in section.measures}
        own = test["by_attribute"][section.attribute]
        assert {name: one.value for name, one in found.items()} == own
        assert section.measures[0].name == "equalized_odds_violation"  # the goal comes first
        limits = record["intervals"]["test"]["by_attribute"][section.attribute]
        for name, pair in limits.items():
            assert found[name].interval == (pair and tuple(pair))
    assert [one.name for one in report.clients] == list(fed.SITES)
    for one in report.clients:
        own = test["by_client"][one.name]
        assert {name: number.value for name, number in one.numbers.items()} == {
            name: value for name, value in own.items() if name != "n"
        }
    assert report.training.rounds == list(range(record["rounds"] + 1))
    assert set(report.training.served) <= set(report.training.rounds)
    assert report.training.curves["test_accuracy"][-1] is not None
    names = [one.name for one in report.definitions]
    assert {one.name for one in report.overall} <= set(names)
    assert len(names) == len(set(names))
    assert all(one.meaning and one.label for one in report.definitions)


def test_multipliers_and_conflicts_are_there_where_a_method_has_them(two):
    training = build_report(two).training
    assert list(training.multipliers) == ["sex F", "sex M", "age old", "age young"]
    assert all(len(values) == 3 for values in training.multipliers.values())
    assert len(training.conflicts) == 3
    assert set(training.coefficients) == set(fed.SITES)
    log = json.loads(
        (two[0] / "rounds.csv").read_text().splitlines()[-1].split(',"', 1)[1][:-1]
        .replace('""', '"')
    )  # fmt: skip
    assert [values[-1] for values in training.multipliers.values()] == log["multipliers"]
    assert training.conflicts[-1] == log["conflicts"]
    plain = build_report(two[1:]).training
    assert (plain.multipliers, plain.conflicts) == ({}, [])


def test_constraints_of_several_notions_and_labels_are_told_apart_in_words(tmp_path):
    folder = train(tmp_path / "run", "mfairfl", notion=["dp", "eo"])
    report = build_report([folder])
    readable(report)
    assert len(report.headline.judgements) == 2
    names = list(report.training.multipliers)
    assert len(names) == 4 + 8
    assert names[0] == "sex F, demographic parity"
    assert "age old, among people whose true label is favourable, equalized odds" in names


def test_the_cost_is_the_difference_to_fedavg_on_the_same_rows(two):
    report = build_report(two)
    ours, theirs = (recorded(folder)["metrics"]["test"] for folder in two)
    assert report.baseline == "fedavg"
    assert [(one.name, one.kind, one.same_rows) for one in report.compared] == [
        ("mfairfl", "this", True),
        ("fedavg", "run", True),
        ("constant classifier", "constant", True),
    ]
    found = {(one.part, one.whom, one.number): one for one in report.changes}
    whole = found["all", "everyone", "accuracy"]
    assert (whole.before, whole.after) == (theirs["accuracy"], ours["accuracy"])
    assert whole.change == pytest.approx(ours["accuracy"] - theirs["accuracy"])
    group = found["group", "sex F", "selection_rate"]
    assert group.after == ours["by_group"]["sex"]["F"]["selection_rate"]
    client = found["client", "south", "demographic_parity_violation"]
    assert client.before == theirs["by_client"]["south"]["demographic_parity_violation"]
    assert report.headline.cost.startswith("Against fedavg on the same 52 test rows, ")


def test_the_baseline_in_a_runs_own_folder_is_found(tmp_path):
    cells = [decided(100, 30, of=40), decided(100, 30, of=40)]
    fair = write_counted(tmp_path / "fair", cells)
    write_counted(fair / "baseline", cells, strategy="fedavg", rule="last")
    report = build_report([fair])
    assert [one.name for one in report.compared] == ["mfairfl", "fedavg", "constant classifier"]
    assert report.headline.worse == (
        "Nothing got worse than under fedavg by more than chance explains: no violation of a "
        "notion, no group's and no client's accuracy or true positive rate. Of groups with few "
        "rows little can be shown."
    )
    other = write_counted(tmp_path / "other", cells, strategy="fedavg", rule="last")
    assert len(build_report([fair, other]).compared) == 3  # the one that was given is enough


def test_a_baseline_on_which_other_rows_were_measured_in_the_end_is_no_measure(tmp_path):
    fair = write_counted(tmp_path / "fair", [decided(100, 30), decided(100, 30)])
    plain = write_counted(
        tmp_path / "plain", [decided(90, 30), decided(100, 30)], strategy="fedavg", rule="last"
    )
    headline = build_report([fair, plain]).headline
    assert "cannot be told: in the end other rows were measured" in headline.worse
    assert headline.worsened == []


def test_who_lost_and_what_it_bought_is_said(tmp_path):
    # At both clients: of 1,000 women 100 were selected, 300 now; of 1,000 men 500, now 340. Of the
    # 200 women who deserve it 90 were among them, 190 now; of the 400 men 380, now 290.
    before = [decided(1000, 100, 90, of=200), decided(1000, 500, 380, of=400)]
    after = [decided(1000, 300, 190, of=200), decided(1000, 340, 290, of=400)]
    plain = write_counted(tmp_path / "plain", before, strategy="fedavg", rule="last")
    fair = write_counted(tmp_path / "fair", after)
    report = build_report([fair, plain])
    # 520 of 4,000 decisions were wrong, 560 are now.
    assert report.headline.cost.startswith(
        "Against fedavg on the same 4,000 test rows, accuracy went from 87.0 % to 86.0 %, which "
        "cannot be told apart from chance (95 % interval −2.5 to 0.5, cautious), hardest on sex M "
        "(−2.0 points) and north (−1.0 points); favourable decisions rose for sex F from 10.0 % "
        "to 30.0 % and fell for sex M from 50.0 % to 34.0 %."
    )
    assert report.headline.worse == (
        "One number is worse than under fedavg by more than chance explains, the true positive "
        "rate of sex M: 95.0 to 72.5 %."
    )
    (found,) = report.headline.worsened
    assert (found.part, found.whom, found.before, found.after) == ("group", "M", 0.95, 0.725)
    back = build_report([plain, fair]).headline
    assert (back.worse, back.worsened) == ("", [])  # the other run has a constraint
    assert build_report([fair]).headline.worsened == []
    assert build_report([fair]).headline.worse == ""
    alone = build_report([fair]).headline.cost
    assert alone.startswith("What fairness cost is not known: repeat the training command with")
    assert build_report([plain]).headline.cost.startswith("Fairness between groups cost nothing")


def test_a_change_beyond_chance_is_said_as_such(tmp_path):
    right, worse = decided(1000, 500), [[400, 100], [0, 500]]
    plain = write_counted(tmp_path / "plain", [right, right], strategy="fedavg", rule="last")
    fair = write_counted(tmp_path / "fair", [right, worse])
    said = build_report([fair, plain]).headline.cost
    assert (
        "accuracy fell by 5.0 percentage points, from 100.0 % to 95.0 % (95 % interval −" in said
    )


def test_fedavg_is_the_baseline_wherever_it_stands_and_other_rows_never_are(tmp_path):
    cells = [decided(100, 50), decided(100, 40)]
    runs = {
        "fair": write_counted(tmp_path / "fair", cells),
        "prox": write_counted(tmp_path / "prox", cells, strategy="fedprox", rule="last"),
        "threshold": write_counted(
            tmp_path / "threshold", cells, strategy="fedavg-threshold", rule="thresholds"
        ),
        "avg": write_counted(tmp_path / "avg", cells, strategy="fedavg", rule="last"),
    }
    assert build_report(runs.values()).baseline == "fedavg"
    assert build_report([runs["fair"], runs["threshold"], runs["prox"]]).baseline == "fedprox"
    assert build_report([runs["fair"], runs["threshold"]]).baseline == ""
    other = write_counted(
        tmp_path / "seed", cells, strategy="fedavg", rule="last", federation={"seed": 9}
    )
    report = build_report([runs["fair"], other])
    assert (report.baseline, report.changes) == ("", [])
    assert report.compared[1].same_rows is False
    assert report.compared[1].note == "measured on other rows (seed differs)"
    readable(report)


def test_a_run_of_the_same_strategy_is_named_by_its_folder(tmp_path):
    cells = [decided(100, 50), decided(100, 40)]
    runs = [write_counted(tmp_path / name, cells) for name in ("one", "two")]
    assert [one.name for one in build_report(runs).compared[:2]] == ["one", "two"]
    with pytest.raises(ConfigError, match=r"one: given twice; give each run once"):
        build_report([runs[0], runs[0] / "run.json"])


def test_a_run_without_test_rows_says_what_its_numbers_are_worth(tmp_path):
    table = fed.people_table()
    folder = tmp_path / "run"
    config = {"clients": {"test": 0.0}}
    mfairfl.train(table, config=config, out=folder, tolerance=0.5, **QUICK)
    report = build_report([folder])
    readable(report)
    assert report.split == "train"
    assert report.headline.judgements[0].outcome == "no verdict"
    assert any("there are no test rows: every number is of train" in w for w in
               report.headline.warnings)  # fmt: skip


def test_one_client_and_clients_that_lack_a_group(tmp_path):
    alone = fed.people_federation(fed.people(sites={"east": 90}))
    report = build_report([train(tmp_path / "one", "mfairfl", alone)])
    readable(report)
    assert "on 90 rows of one client (east)" in report.headline.what
    frame = fed.people()
    frame = frame[(frame["site"] != "south") | (frame["sex"] == "M")]
    report = build_report([train(tmp_path / "lacking", "fedavg", fed.people_federation(frame))])
    readable(report)
    south = next(one for one in report.clients if one.name == "south")
    assert south.numbers["demographic_parity_violation"].value is None
    assert south.numbers["demographic_parity_violation"].undefined == (
        "group 'F' of 'sex' has no rows"
    )
    assert "2 clients have no train row of sex F: north, south" in report.headline.warnings


def test_a_notion_of_one_s_own_is_defined_from_itself_or_said_to_be_unknown(tmp_path):
    own = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
    mfairfl.register(own)
    try:
        folder = train(tmp_path / "run", "mfairfl", notion="predictive_equality")
        report = build_report([folder])
        defined = {one.name: one for one in report.definitions}
        name = "predictive_equality_violation"
        assert report.goal == [name]
        assert defined[name].formula == own.formula
        assert "among people whose true label is unfavourable" in defined[name].meaning
        assert "among people whose true label is unfavourable" in report.headline.verdict
    finally:
        REGISTRY.remove("predictive_equality")
    report = build_report([folder])  # in a process that has never heard of it
    readable(report)
    defined = {one.name: one for one in report.definitions}
    assert defined[name].meaning == (
        "The violation of 'predictive equality', a notion that is not registered here."
    )
    assert "what 'predictive equality' compares" in report.headline.what


def test_a_record_names_code_and_none_is_imported(tmp_path):
    folder = write_counted(tmp_path / "run", [decided(9, 4)] * 2, strategy="antigravity:Nothing")
    plain = recorded(folder)
    plain["config"]["fairness"]["notion"] = ["antigravity:Nothing"]
    (folder / "run.json").write_text(json.dumps(plain))
    report = build_report([folder])
    assert "antigravity:Nothing trained a model on" in report.headline.what


def test_altered_and_missing_files_are_said_first(two, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two[0], folder)
    assert not any("SHA-256" in line for line in build_report([folder]).headline.warnings)
    (folder / "model.safetensors").write_bytes(b"another model")
    report = build_report([folder])
    assert report.headline.warnings[0].startswith(
        "model.safetensors is not the file that was measured: its SHA-256 begins with "
    )
    (folder / "encoder.json").unlink()
    report = build_report([folder])
    assert any(line.startswith("encoder.json is missing") for line in report.headline.warnings)
    assert set(report.provenance.files) == {"run.json", "model.safetensors", "scores.safetensors"}
    (folder / "scores.safetensors").unlink()
    warnings = build_report([folder]).headline.warnings
    assert any(line.startswith("scores.safetensors: not found") for line in warnings)


def test_a_run_that_kept_no_history_is_reported_without_one(two, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two[0], folder)
    for name in ("rounds.csv", "clients.csv"):
        (folder / name).unlink()
    report = build_report([folder])
    readable(report)
    assert report.training.rounds == []
    assert report.headline.warnings[0] == (
        "rounds.csv and clients.csv are missing: how training went is not known"
    )


def test_provenance_is_that_of_the_record(two):
    found, record = build_report(two).provenance, recorded(two[0])
    assert (found.run, found.strategy, found.identity) == (
        "mfairfl", "mfairfl", record["identity"]
    )  # fmt: skip
    assert found.settings["training.rounds"] == 2
    assert found.settings["fairness.tolerance"] == 0.1
    assert found.data == record["data"]
    assert found.files.items() >= record["files"].items()


def test_what_was_done_to_the_data_is_listed_by_kind(tmp_path):
    frame = fed.people()
    frame.loc[frame.index[:8], "hired"] = None
    frame.loc[frame.index[20:30], "skill"] = None
    frame.loc[frame.index[40:43], "job"] = "astronaut"
    frame["fax"] = range(len(frame))
    task = {
        "label": "hired", "favourable": "yes", "client": "site", "ignore": ["fax"],
        "sensitive": [{"column": "years", "bins": [{"name": "few", "max": 5}], "rest": "many"}],
    }  # fmt: skip
    table = table_from_frame(frame, mfairfl.data.Task.model_validate(task), name="people")
    report = build_report([train(tmp_path / "run", "fedavg", partition(table))])
    readable(report)
    data = report.data
    assert any("8 of 260 rows left out, missing values (hired 8)" in one for one in data.dropped)
    assert "columns left out on request: fax" in data.dropped
    assert any("10 of 260 values missing, filled with the mean" in one for one in data.filled)
    mean = frame["skill"][8:]  # of the train rows alone: somewhere near
    (said,) = [one for one in data.filled if "a missing number becomes" in one]
    assert float(said.split("becomes ")[1].split(",")[0]) == pytest.approx(mean.mean(), abs=0.3)
    assert "column 'job': values in few rows are treated as one: 'astronaut'" in data.merged
    assert (
        "sensitive attribute 'years': 'few' is up to 5; 'many' is every other value" in data.merged
    )
    assert not {*data.dropped, *data.filled, *data.merged} & set(data.notes)
    assert [one.name for one in data.clients] == list(fed.SITES)


@pytest.mark.parametrize(
    ("as_features", "strategy", "reads", "said"),
    [
        (True, "fedavg", True, "Decisions read sex: the model reads it like any other column."),
        (False, "fedavg", False, "Decisions do not read sex: neither the model nor the decision"),
        (False, "fedavg-threshold", True, "the threshold depends on the group, though the model"),
        (True, "fedavg-threshold", True, "the model reads it, and the threshold depends on the"),
    ],
)
def test_whether_decisions_read_the_group(tmp_path, as_features, strategy, reads, said):
    frame = fed.people().drop(columns="age")
    frame["title"] = frame["sex"].map({"F": "Ms", "M": "Mr"})
    task = mfairfl.data.Task(
        label="hired", favourable="yes", sensitive=("sex",), client="site",
        sensitive_as_features=as_features,
    )  # fmt: skip
    table = table_from_frame(frame, task, name="people")
    folder = tmp_path / "run"
    mfairfl.train(table, out=folder, strategy=strategy, **QUICK)
    report = build_report([folder])
    assert report.group_use.reads_group is reads
    assert said in report.group_use.sentence
    proxy = [one for one in report.group_use.details if "'title' repeats a sensitive col" in one]
    assert bool(proxy) is not as_features  # as a feature, sex itself says it


def test_pooled_references_stand_beside_the_run(tmp_path):
    path = fed.write_people(tmp_path)
    folder = tmp_path / "run"
    mfairfl.train(config=path, out=folder, rounds=1, local_epochs=1)
    report = build_report([folder], references=["logistic", "logistic"])
    readable(report)
    assert [(one.name, one.kind) for one in report.compared[-2:]] == [
        ("constant classifier", "constant"), ("logistic (pooled)", "reference")
    ]  # fmt: skip
    assert report.compared[-1].numbers["accuracy"].value > 0.5
    with pytest.raises(ConfigError, match="unknown reference 'forest'"):
        build_report([folder], references=["forest"])


def test_what_is_no_finished_run_is_refused_in_one_line(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"run\.json: not found; give the --out folder"):
        build_report([tmp_path])
    with pytest.raises(ConfigError, match="report: needs a run"):
        build_report([])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "verdict_tolerance",
            "much",
            "config.fairness: verdict_tolerance: Input should be a vali",
        ),
        ("notion", [3], "config.fairness: notion.0: Input should be a valid string"),
        ("sensitive", {"a": 1}, "config.fairness: sensitive: "),
    ],
)
def test_an_altered_configuration_is_refused_in_one_line(tmp_path, key, value, message):
    folder = write_counted(tmp_path / "run", [decided(9, 4)] * 2)
    plain = recorded(folder)
    plain["config"]["fairness"][key] = value
    (folder / "run.json").write_text(json.dumps(plain))
    with pytest.raises(RunDirectoryError) as caught:
        build_report([folder])
    assert f"run.json: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_record_without_its_numbers_is_refused(tmp_path):
    folder = write_counted(tmp_path / "run", [decided(9, 4)] * 2)
    whole = recorded(folder)
    for part, value in (("noise_floor", {}), ("intervals", {})):
        (folder / "run.json").write_text(json.dumps(whole | {part: value}))
        with pytest.raises(RunDirectoryError, match="lacks the numbers of a split that it names"):
            build_report([folder])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rounds.csv", ""),
        ("rounds.csv", "round,log\n1,{\n"),
        ("rounds.csv", "round,log\n1,[]\n"),
        ("rounds.csv", "round,log\nx,\n"),
        ("rounds.csv", "round,test_accuracy\n1,much\n"),
        ("rounds.csv", "round\n1,2,3\n"),
        ("rounds.csv", 'round,log\n1,"' + "[" * 100_000 + '"\n'),
        ("clients.csv", "round,coefficient\n1,0.5\n"),
        ("clients.csv", "round,client,coefficient\n1,a,half\n"),
    ],
)
def test_a_history_that_no_run_wrote_is_refused_in_one_line(tmp_path, name, content):
    folder = write_counted(tmp_path / "run", [decided(9, 4)] * 2)
    (folder / name).write_text(content)
    with pytest.raises(RunDirectoryError) as caught:
        build_report([folder])
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 600


def test_answers_that_were_set_aside_are_told_with_their_rounds(tmp_path):
    folder = write_counted(tmp_path / "run", [decided(9, 4)] * 2)
    rows = [(1, "late"), (2, "late"), (3, ""), (5, "late"), (6, "not finite")]
    (folder / "clients.csv").write_text(
        "round,client,coefficient,set_aside\n"
        + "".join(f"{number},north,0.5,{why}\n" for number, why in rows)
    )
    assert build_report([folder]).training.set_aside == [
        "north: late (rounds 1 to 2, 5)", "north: not finite (round 6)"
    ]  # fmt: skip


def test_names_with_line_breaks_and_control_characters_become_printable(tmp_path):
    odd = ("a\x1b[2Jb", "a?[2Jb", "two\nlines")
    folder = write_counted(tmp_path / "run", [decided(20, 9)] * 2, clients=odd)
    rows = "".join(f'1,"{name}",0.5\n' for name in odd)
    (folder / "clients.csv").write_text(f"round,client,coefficient\n{rows}", newline="")
    report = build_report([folder])
    readable(report)
    assert [one.name for one in report.clients] == ["a?[2Jb", "a?[2Jb", "two lines"]
    # Nobody is lost, though two of them look alike now.
    assert set(report.training.coefficients) == {"a?[2Jb", "a?[2Jb (2)", "two lines"}
    assert all(character >= " " for character in report.headline.what)
