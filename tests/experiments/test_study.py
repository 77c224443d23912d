"""Experiment files: what they ask for, and what they refuse."""

from __future__ import annotations

from collections import Counter

import pytest

import federations as fed
from mfairfl.errors import ConfigError
from mfairfl.experiments.study import Study, load_study, trials


def study(**changes):
    given = {
        "data": ["adult", "bank"],
        "splits": ["high", "low"],
        "strategies": ["fedavg", "mfairfl", "fedavg-threshold"],
        "notions": ["dp", "eo"],
        "protocols": ["10x20"],
        "seeds": 3,
    }
    return Study.model_validate(given | changes)


def test_every_combination_is_asked_for_and_methods_without_a_notion_once():
    work = trials(study())
    # per data set, split and seed: FedAvg once, the other two for each notion
    assert len(work) == 2 * 2 * 3 * (1 + 2 + 2)
    found = Counter((t.strategy, t.notion) for t in work)
    assert found["fedavg", ""] == found["mfairfl", "equalized_odds"] == 12
    one = next(t for t in work if (t.data, t.split, t.seed) == ("bank", "low", 2))
    assert (one.config.data.name, one.config.clients.scheme, one.config.seed) == ("bank", "low", 2)
    assert (one.config.training.rounds, one.config.training.local_epochs) == (10, 20)


def test_a_method_without_its_constraint_is_trained_for_no_notion():
    free = {"name": "mfairfl", "constraint": False}
    assert [t.notion for t in trials(study(strategies=[free], seeds=[7]))] == [""] * 4


def test_lists_of_hyper_parameters_are_grids():
    grid = {
        "name": "mfairfl",
        "label": "ours",
        "beta": [0.2, 1.0],
        "delta": [0.1, 0.01],
        "gamma": 2,
    }
    work = trials(
        study(data=["adult"], splits=["high"], seeds=1, notions=["dp"], strategies=[grid])
    )
    assert [t.strategy for t in work] == [
        "ours beta=0.2 delta=0.1",
        "ours beta=0.2 delta=0.01",
        "ours beta=1.0 delta=0.1",
        "ours beta=1.0 delta=0.01",
    ]
    extra = [t.config.strategy.model_extra for t in work]
    assert extra[1] == {"beta": 0.2, "delta": 0.01, "gamma": 2}


def test_locked_values_are_those_of_the_data_set_and_method(tmp_path):
    (tmp_path / "lock.toml").write_text(
        '[adult.mfairfl]\n"training.lr" = 0.01\n"strategy.beta" = 1.0\n'
    )
    (tmp_path / "s.toml").write_text(
        'data = ["adult", "bank"]\nsplits = ["high"]\nseeds = 1\nlock = "lock.toml"\n'
        'strategies = ["fedavg", "mfairfl", '
        '{name = "mfairfl-rnd", tuned_as = "mfairfl", beta = 0.5}]\n'
    )
    work = trials(load_study(tmp_path / "s.toml"))
    rate = {(t.data, t.strategy): t.config.training.lr for t in work}
    assert rate["adult", "mfairfl"] == rate["adult", "mfairfl-rnd"] == 0.01
    assert rate["adult", "fedavg"] == rate["bank", "mfairfl"] == 0.004
    beta = {(t.data, t.strategy): t.config.strategy.create() for t in work}
    assert beta["adult", "mfairfl"].beta == 1.0
    assert beta["adult", "mfairfl-rnd"].beta == 0.5  # the file's own word wins


def test_own_data_come_from_a_run_s_configuration(tmp_path):
    fed.people().to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text(
        '[data]\ncsv = "people.csv"\n[task]\nlabel = "hired"\nfavourable = "yes"\n'
        'sensitive = ["sex"]\nclient = "site"\n[training]\nbatch_size = 16\n'
    )
    (tmp_path / "s.toml").write_text(
        'data = ["people.toml"]\nstrategies = ["fedavg"]\nseeds = [4]\nprotocols = ["2x1"]\n'
        "[base.training]\nlr = 0.1\nbatch_size = 8\n"
    )
    (one,) = trials(load_study(tmp_path / "s.toml"))
    assert (one.data, one.split, one.config.data.csv) == (
        "people",
        "own",
        str(tmp_path / "people.csv"),
    )
    # the data's own file wins over what holds for all
    assert (one.config.training.lr, one.config.training.batch_size) == (0.1, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('data = ["adult"]', "strategies: Field required"),
        ('data = ["adult"]\nstrategies = ["fedavgg"]', "did you mean 'fedavg'"),
        ('data = ["adult"]\nstrategies = ["fedavg"]\nnotion = ["dp"]', "did you mean 'notions'"),
        ('data = ["adult"]\nstrategies = ["fedavg"]\nnotions = ["dpp"]', "notions"),
        ('data = ["adult"]\nstrategies = ["fedavg"]\nprotocols = ["10*20"]', "protocols.0"),
        ('data = ["adult", "adult"]\nstrategies = ["fedavg"]', "'adult' appears twice"),
        ('data = ["adult"]\nstrategies = ["fedavg", "fedavg"]', "'fedavg' appears twice"),
        ('data = ["adult"]\nstrategies = ["fedavg"]\nsplits = ["iid", "iid"]', "splits: 'iid' ap"),
        (
            'data = ["adult"]\nstrategies = ["fedavg"]\nnotions = ["dp", "demographic_parity"]',
            "once",
        ),
        (
            'data = ["adult"]\nstrategies = ["fedavg"]\nkind = "curves"\nsplits = ["iid", "high"]',
            "one split and one notion",
        ),
        ('data = [{label = "a"}]\nstrategies = ["fedavg"]', "either name"),
    ],
)
def test_mistakes_are_one_line_that_names_file_and_key(tmp_path, text, message):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_study(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_wrong_hyper_parameter_names_method_and_data():
    with pytest.raises(ConfigError, match=r"mfairfl on adult: .*did you mean 'beta'"):
        trials(study(strategies=[{"name": "mfairfl", "betta": 1.0}]))
