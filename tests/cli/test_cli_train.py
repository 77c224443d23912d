"""`mfairfl train`: what is written, what is shown, what wins."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import federations as fed
from mfairfl import load


def record_of(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def test_own_csv_from_flags(cli, csv, flags, tmp_path):
    answer = cli("train", "--csv", csv, *flags, "--out", "r")
    assert answer.code == 0
    record = record_of(tmp_path / "r")
    assert record["status"] == "complete"
    assert record["data"]["rows"] == 240
    assert [one["name"] for one in record["federation"]["clients"]] == ["north", "south", "west"]
    assert record["task"]["favourable"] == "yes"
    test = record["metrics"]["test"]
    rows = sum(client["n"] for client in test["by_client"].values())
    groups = ", ".join(f"{g} ({cell['n']})" for g, cell in test["by_group"]["Gender"].items())
    assert f"measured on {rows} test rows of 3 clients (Gender: {groups})" in answer.out
    low, high = record["intervals"]["test"]["accuracy"]
    shown = next(line for line in answer.out.splitlines() if line.startswith("accuracy "))
    assert shown.split()[1:] == [
        f"{test['accuracy']:.4f}",
        f"{low:.4f}",
        "to",
        f"{high:.4f}",
        "-",
        f"{record['constant_classifier']['test']['accuracy']:.4f}",
    ]
    goal = [
        line.split() for line in answer.out.splitlines() if line.startswith("demographic_parity_")
    ]
    values = [f"{test[f'demographic_parity_{kind}']:.4f}" for kind in ("difference", "ratio")]
    assert goal[0][:2] == ["demographic_parity_violation", "*"]
    assert goal[0][2] == f"{test['demographic_parity_violation']:.4f}"
    assert [line[:2] for line in goal[1:]] == [
        ["demographic_parity_difference", values[0]],
        ["demographic_parity_ratio", values[1]],
    ]
    files, report, hint = answer.out.splitlines()[-3:]
    assert files.startswith("files: r/")
    assert report == "next, the report: mfairfl report r"
    assert hint.startswith("see: mfairfl explain noise-floor")
    assert answer.err.splitlines()[0] == "run folder: r"
    assert [line.split()[1] for line in answer.err.splitlines()[1:]] == ["0/2", "1/2", "2/2"]


def test_json_prints_the_file_and_nothing_else(cli, csv, flags, tmp_path):
    answer = cli("train", "--csv", csv, *flags, "--out", "r", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (tmp_path / "r" / "run.json").read_text(encoding="utf-8")


def test_a_finished_run_is_shown_again(cli, csv, flags, tmp_path):
    first = cli("train", "--csv", csv, *flags, "--out", "r")
    before = (tmp_path / "r" / "model.safetensors").stat().st_mtime_ns
    again = cli("train", "--csv", csv, *flags, "--out", "r")
    assert again.code == 0
    assert again.out == first.out
    assert again.err == "r: already complete; this is its result\n"
    assert (tmp_path / "r" / "model.safetensors").stat().st_mtime_ns == before


def test_default_folder_names_data_strategy_scheme_seed(cli, csv, flags, tmp_path):
    assert cli("train", "--csv", csv, *flags, "--seed", "3").code == 0
    assert (tmp_path / "runs" / "people-mfairfl-column-s3" / "run.json").is_file()


def test_flags_win_over_the_file_and_set_reaches_every_key(cli, csv, tmp_path):
    folder = tmp_path / "settings"
    folder.mkdir()
    csv.rename(folder / "people.csv")
    (folder / "my.toml").write_text(
        'seed = 9\n[data]\ncsv = "people.csv"\n'
        '[task]\nlabel = "Hired"\nfavourable = "yes"\nsensitive = ["Gender", "Job"]\n'
        "[training]\nrounds = 7\nlocal_epochs = 1\n[model]\nhidden = [4]\n",
        encoding="utf-8",
    )
    answer = cli(
        *("train", "settings/my.toml", "--rounds", "1", "--sensitive", "Gender", "--clients", "2"),
        *(
            "--notion",
            "dp,eo",
            "--hidden",
            "3,2",
            "--out",
            "r",
            "--set",
            "strategy.weights=uniform",
        ),
        *("--set", "training.momentum=0.5", "--heterogeneity", "iid"),
    )
    assert answer.code == 0, answer.err
    config = record_of(tmp_path / "r")["config"]
    assert (config["seed"], config["training"]["rounds"]) == (9, 1)
    assert config["training"]["momentum"] == 0.5
    assert config["training"]["local_epochs"] == 1
    assert config["strategy"] == {"name": "mfairfl", "weights": "uniform"}
    assert config["fairness"]["notion"] == ["demographic_parity", "equalized_odds"]
    assert config["model"]["hidden"] == [3, 2]
    assert list(record_of(tmp_path / "r")["metrics"]["test"]["by_group"]) == ["Gender"]


def test_a_blind_run_measures_the_groups_that_it_does_not_see(cli, csv, flags, tmp_path):
    for folder, more in (("seen", ()), ("blind", ("--blind",))):
        answer = cli("train", "--csv", csv, *flags, "--rounds", "0", "--out", folder, *more)
        assert answer.code == 0, answer.err
    seen, blind = (record_of(tmp_path / folder) for folder in ("seen", "blind"))
    assert "Gender" in seen["task"]["numeric"] + seen["task"]["categorical"]
    assert "Gender" not in blind["task"]["numeric"] + blind["task"]["categorical"]
    groups = [record["metrics"]["test"]["by_group"]["Gender"].keys() for record in (seen, blind)]
    assert groups[0] == groups[1]


def test_config_flag_is_the_argument(cli, csv, tmp_path):
    text = (
        '[data]\ncsv = "people.csv"\n[task]\nlabel = "Hired"\nfavourable = "yes"\n'
        'sensitive = ["Gender"]\n'
    )
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    assert cli("train", "--config", "my.toml", "--rounds", "0", "--out", "r").code == 0
    both = cli("train", "my.toml", "--config", "my.toml")
    assert (both.code, both.err) == (2, "error: my.toml and --config my.toml: give one of them\n")


def test_empty_hidden_is_a_logistic_model(cli, csv, flags, tmp_path):
    assert cli("train", "--csv", csv, *flags, "--hidden", "", "--out", "r").code == 0
    record = record_of(tmp_path / "r")
    assert record["model"]["hidden"] == []
    assert load(tmp_path / "r").model.size == record["model"]["inputs"] + 1


def test_an_undefined_number_says_why(cli, people, flags, tmp_path):
    people.loc[people["Gender"] == "d", "Hired"] = "yes"
    people.to_csv(tmp_path / "sure.csv", index=False)
    answer = cli("train", "--csv", "sure.csv", *flags, "--out", "r")
    assert answer.code == 0
    assert (
        "equalized_odds_violation: undefined (group 'd' of 'Gender' has no rows with y=0)"
    ) in answer.out.splitlines()
    number = next(line for line in answer.out.splitlines() if "equalized_odds_viol" in line)
    assert number.split()[1:3] == ["undefined", "-"]


def test_set_needs_key_and_value(cli):
    answer = cli("train", "--data", "adult", "--set", "rounds")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == ("error: --set rounds: write key=value, for example strategy.beta=0.6\n")


@pytest.mark.parametrize("left_out", ["--label", "--favourable", "--sensitive"])
def test_csv_needs_its_meaning(cli, csv, task_flags, left_out):
    given = list(task_flags)
    at = given.index(left_out)
    del given[at : at + 2]
    answer = cli("train", "--csv", csv, *given)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: --csv needs {left_out} as well")


def test_rounds_without_terminal_come_in_tenths(cli, csv, flags):
    answer = cli("train", "--csv", csv, *flags, "--rounds", "30", "--out", "r")
    shown = [line.split()[1] for line in answer.err.splitlines()[1:]]
    assert shown == [f"{n}/30" for n in range(0, 31, 3)]


def test_progress_shows_the_recorded_train_numbers(cli, csv, flags, tmp_path):
    answer = cli("train", "--csv", csv, *flags, "--strategy", "fedavg", "--out", "r")
    last = pd.read_csv(tmp_path / "r" / "rounds.csv").iloc[-1]
    assert answer.err.splitlines()[-1] == (
        f"round 2/2  loss {last.train_loss:.3f}  accuracy {last.train_accuracy:.3f}  "
        f"violation {last.train_demographic_parity_violation:.3f}  "
        f"client gap {last.train_client_accuracy_gap:.3f}"
    )


def test_progress_shows_conflicting_pairs_where_the_method_counts_them(
    cli, people, flags, tmp_path
):
    # West decides the other way round, so its update contradicts the others'.
    west = people["Site"] == "west"
    people.loc[west, "Hired"] = people.loc[west, "Hired"].map({"yes": "no", "no": "yes"})
    people.to_csv(tmp_path / "odd.csv", index=False)
    more = ("--rounds", "6", "--strategy", "mfairfl", "--out", "r")
    answer = cli("train", "--csv", "odd.csv", *flags, *more)
    before, *rounds = answer.err.splitlines()[1:]
    assert "conflicts" not in before  # nothing was trained before round 1
    logs = pd.read_csv(tmp_path / "r" / "rounds.csv")["log"][1:]
    counted = [
        sum(cosines[i][k] < 0 for i in range(3) for k in range(i))
        for cosines in (json.loads(text)["cosines"] for text in logs)
    ]
    assert max(counted) > 0
    assert [line.rpartition("  ")[2] for line in rounds] == [f"conflicts {n}" for n in counted]


def test_plots_are_drawn_beside_the_record_when_asked(cli, csv, flags, tmp_path):
    without = cli("train", "--csv", csv, *flags, "--out", "r")
    assert list((tmp_path / "r").glob("*.svg")) == []
    answer = cli("train", "--csv", csv, *flags, "--out", "r", "--plots")
    assert (answer.code, answer.out) == (0, without.out)
    assert answer.err.splitlines()[-1] == "figures: r/rounds.svg, r/clients.svg"
    for name in ("rounds.svg", "clients.svg"):
        assert (tmp_path / "r" / name).read_bytes().startswith(b"<?xml")


def test_plots_leave_json_alone(cli, csv, flags, tmp_path):
    answer = cli("train", "--csv", csv, *flags, "--out", "r", "--json", "--plots")
    assert answer.code == 0
    assert answer.out == (tmp_path / "r" / "run.json").read_text(encoding="utf-8")
    assert (tmp_path / "r" / "clients.svg").is_file()


def test_clients_withhold_what_their_policy_requires(cli, tmp_path):
    rows = fed.people(sites={"east": 160, "north": 140, "west": 150})
    rows.to_csv("people.csv", index=False)
    Path("policy.toml").write_text("[disclosure]\nmin_rows = 11\n")
    words = ["train", "--csv", "people.csv", "--label", "hired", "--favourable", "yes"]
    words += ["--sensitive", "sex", "--client", "site", "--rounds", "2", "--json"]
    first = cli(*words, "--policy", "policy.toml", "--out", "r")
    assert first.code == 0, first.err
    said = json.loads(Path("r", "run.json").read_text())["federation"]["disclosure"]
    assert sorted(said) == ["east", "north", "west"]
    assert {own["min_rows"] for own in said.values()} == {11}
    again = cli(*words, "--policy", "policy.toml", "--out", "r")
    assert again.code == 0
    assert "already complete" in again.err
    assert again.out == first.out


def test_invalid_policy_is_refused_before_anything_is_written(cli, csv, flags):
    Path("policy.toml").write_text("[disclosure]\nmin_row = 11\n")
    answer = cli("train", "--csv", csv, *flags, "--policy", "policy.toml", "--out", "other")
    assert answer.code != 0
    assert "unknown key 'disclosure.min_row': did you mean 'disclosure.min_rows'?" in answer.err
    assert "Traceback" not in answer.err
    assert not Path("other").exists()


def test_what_fairness_cost_on_ones_own_file_is_said(cli, csv, flags, tmp_path):
    answer = cli("train", "--csv", csv, *flags, "--rounds", "6", "--out", "r")
    ours, theirs = (record_of(tmp_path / folder) for folder in ("r", "r/baseline"))
    assert (ours["config"]["strategy"]["name"], theirs["config"]["strategy"]["name"]) == (
        "mfairfl",
        "fedavg",
    )
    told = " ".join(answer.out.split())
    before, after = (100 * r["metrics"]["test"]["accuracy"] for r in (theirs, ours))
    assert f"Against fedavg on the same {measured_rows(ours)} test rows, accuracy" in told
    assert f"from {before:.1f} % to {after:.1f} %" in told
    assert "worse than under fedavg by more than chance explains" in told
    assert "baseline: r/baseline/" in answer.out
    report = cli("report", "r")
    assert f"Against fedavg on the same {measured_rows(ours)} test rows" in " ".join(
        report.out.split()
    )

    silent = cli("train", "--csv", csv, *flags, "--rounds", "6", "--out", "s", "--no-baseline")
    assert not (tmp_path / "s" / "baseline").exists()
    assert "fedavg" not in silent.out
    fedavg = cli("train", "--csv", csv, *flags, "--strategy", "fedavg", "--baseline")
    assert (fedavg.code, fedavg.err.count("\n")) == (2, 1)
    assert "leave baseline out" in fedavg.err


def measured_rows(record):
    return sum(client["n"] for client in record["metrics"]["test"]["by_client"].values())
