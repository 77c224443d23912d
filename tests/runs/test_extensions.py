"""Things of one's own by name, in this process and in workers; and what is told what to pass."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from torch import nn

import federations as fed
import mfairfl
from answers import one_line
from mfairfl.data import DATASETS, list_datasets
from mfairfl.errors import ConfigError, MfairflError
from mfairfl.fairness import Event, Notion, available_notions
from mfairfl.fairness.notions import REGISTRY as NOTIONS
from mfairfl.plugins import MODELS, imported
from mfairfl.runs.config import make_config
from mfairfl.runs.extensions import exported, restore
from mfairfl.runs.workers import run_many
from mfairfl.strategies import Card, Step, Strategy, available, create
from mfairfl.strategies.fedavg import FedAvg
from mfairfl.strategies.registry import METHODS

pytestmark = pytest.mark.usefixtures("new_names")

QUICK = {"rounds": 2, "hidden": (4,), "batch_size": 20, "local_epochs": 1, "lr": 0.03}
OWN = Notion("predictive_equality", (Event("y=0", (0,)),), "selection")
# A federated average in other words: n_k over the rows of those who reported, to a power.
SOURCE = """
from dataclasses import dataclass
import numpy as np
import pandas as pd
from torch import nn
from mfairfl.data import Dataset, Task
from mfairfl.strategies import Card, Step, Strategy

@dataclass(frozen=True)
class Averaging(Strategy):
    power: float = 1.0
    card = Card(title="Averaging")

    def combine(self, state, round, reports, gram):
        rows = [round.summary.counts[report.client].sum() ** self.power for report in reports]
        return Step(np.array(rows) / sum(rows))

def narrow(inputs):
    return nn.Sequential(nn.Linear(inputs, 3), nn.ReLU(), nn.Linear(3, 1), nn.Flatten(0))

def read(path):
    rng = np.random.default_rng(4)
    return pd.DataFrame({
        "x": rng.normal(size=80).round(3),
        "sex": rng.choice(["f", "m"], 80),
        "y": rng.integers(0, 2, 80),
    })

people = Dataset("eighty", read, Task(label="y", favourable=1, sensitive=("sex",)))
"""


@pytest.fixture
def outside(write_module):
    """Import things of a module that is not part of the package; also its name."""
    module = write_module(SOURCE)
    return module, lambda name: imported(f"{module}:{name}")


def served(run):
    return run.predictor.predict_proba(fed.people())


# ------------------------------------------------------------------ a name


def test_every_kind_of_thing_gets_a_name(outside):
    _, thing = outside
    assert mfairfl.register(thing("Averaging")) == "averaging"
    assert mfairfl.register(thing("Averaging"), "mean") == "mean"
    assert mfairfl.register(thing("narrow")) == "narrow"
    assert mfairfl.register(thing("narrow"), name="slim") == "slim"
    assert mfairfl.register(OWN) == "predictive_equality"
    assert mfairfl.register(OWN, "predictive_equality") == "predictive_equality"
    assert mfairfl.register(thing("people")) == "eighty"
    assert {"averaging", "mean"} < set(available())
    assert {"narrow", "slim"} < set(MODELS.names())
    assert OWN in available_notions()
    assert "eighty" in [one["name"] for one in list_datasets()]


def test_a_strategy_trains_by_name_as_an_object_and_as_an_import_string(outside):
    module, thing = outside
    table = fed.people_table()
    expected = served(mfairfl.train(table, strategy="fedavg", **QUICK))
    mfairfl.register(thing("Averaging"), "mean")
    for strategy, name in (
        ("mean", "mean"),
        (thing("Averaging")(), "mean"),
        (f"{module}:Averaging", f"{module}:Averaging"),
    ):
        run = mfairfl.train(table, strategy=strategy, **QUICK)
        assert np.array_equal(served(run), expected)
        assert run.record.config["strategy"]["name"] == name


def test_hyper_parameters_of_ones_own_are_set_and_checked(outside):
    _, thing = outside
    mfairfl.register(thing("Averaging"), "mean")
    options = QUICK | {"strategy": "mean"}
    uniform = mfairfl.train(fed.people_table(), **options, **{"strategy.power": 0.0})
    plain = mfairfl.train(fed.people_table(), strategy="fedavg", weights="uniform", **QUICK)
    assert np.array_equal(served(uniform), served(plain))
    with pytest.raises(ConfigError, match=r"did you mean 'power'\?"):
        mfairfl.train(fed.people_table(), **options, **{"strategy.powr": 0.0})
    with pytest.raises(ConfigError, match=r"strategy\.power: .*\(got 'high'\)"):
        mfairfl.train(fed.people_table(), **options, **{"strategy.power": "high"})


def test_a_model_trains_by_name_as_a_function_and_as_an_import_string(outside):
    module, thing = outside
    mfairfl.register(thing("narrow"))
    options = {name: value for name, value in QUICK.items() if name != "hidden"}
    found = [
        served(mfairfl.train(fed.people_table(), model=model, **options))
        for model in ("narrow", thing("narrow"), f"{module}:narrow")
    ]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.ptp(found[0]) > 0


def test_a_data_set_trains_by_name_as_an_object_and_as_an_import_string(outside):
    module, thing = outside
    options = QUICK | {"clients": 2, "heterogeneity": "iid"}
    runs = [mfairfl.train(data, **options) for data in (thing("people"), f"{module}:people")]
    runs.append(mfairfl.train("eighty", **options))  # an object is known by its name from then on
    assert [run.record.data.rows for run in runs] == [80, 80, 80]
    assert runs[0].metrics == runs[1].metrics == runs[2].metrics


def test_a_notion_trains_by_name_and_as_an_object():
    runs = [mfairfl.train(fed.people_table(), notion=OWN, strategy="mfairfl", **QUICK)]
    runs.append(mfairfl.train(fed.people_table(), notion=OWN.name, strategy="mfairfl", **QUICK))
    assert runs[0].metrics == runs[1].metrics
    assert "predictive_equality_violation" in runs[0].metrics["test"]


class Bare(Strategy):
    """Derived, but no dataclass."""

    card = Card(title="Bare")

    def combine(self, state, round, reports, gram):
        return Step(round.shares(reports))


@dataclass(frozen=True)
class LastGoodState(Bare):
    pass


@pytest.mark.parametrize(
    ("thing", "name", "message"),
    [
        (Bare, None, "is not a strategy: pass a frozen dataclass derived from"),
        (LastGoodState(), None, "register the class LastGoodState, not an object of it"),
        (LastGoodState, "fedavg", "strategy 'fedavg' is built in; register under another name"),
        (LastGoodState, "so/und", "strategy 'so/und': not a valid name"),
        (OWN, "parity", "'predictive_equality' is known by its own name, not as 'parity'"),
        (Notion("dp", OWN.events, "selection"), None, "'dp' is already registered with another"),
        (3, "three", "cannot register 3: pass a strategy class, a Notion, a Dataset, or a"),
        (None, None, "cannot register None: pass"),
        (lambda inputs: nn.Linear(inputs, 1), None, "model '<lambda>': not a valid name"),
        (lambda inputs: nn.Linear(inputs, 1), "mlp", "model 'mlp' is built in"),
    ],
)
def test_what_cannot_have_this_name_is_refused_in_one_line(thing, name, message):
    before = [r.added() for r in (METHODS, NOTIONS, DATASETS, MODELS)]
    with pytest.raises(ConfigError) as caught:
        mfairfl.register(thing, name)
    assert message in one_line(caught)
    assert [r.added() for r in (METHODS, NOTIONS, DATASETS, MODELS)] == before


# ------------------------------------------------------------------ workers


def config_of(strategy="fedavg", *, notion="dp", model="mlp", data=None, csv=None):
    rows = {"name": data} if csv is None else {"csv": str(csv)}
    return make_config(
        {
            "data": rows,
            "strategy": {"name": strategy},
            "fairness": {"notion": [notion]},
            "model": {"kind": model},
            **({} if csv is None else {"task": fed.TASK.model_dump(mode="json")}),
            "training": {"rounds": 2, "local_epochs": 1, "batch_size": 20},
        }
    )


def test_what_is_built_in_or_spelled_needs_nothing(outside):
    module, thing = outside
    mfairfl.register(thing("Averaging"))  # registered, but no run asks for it
    assert exported([config_of(data="adult"), config_of(f"{module}:Averaging", data="bank")]) == []


def test_what_runs_need_crosses_as_plain_data_and_is_the_same_afterwards(outside):
    module, thing = outside
    mfairfl.register(thing("Averaging"), "mean")
    mfairfl.register(thing("narrow"))
    mfairfl.register(thing("people"))
    mfairfl.register(OWN)
    config = config_of("mean", model="narrow", data="eighty")
    plain = json.loads(json.dumps(exported([config, config])))
    assert len(plain) == 4
    (notion,) = [item["notion"] for item in plain if "notion" in item]
    events = [{"name": "y=0", "labels": [0]}]
    own = {"name": "predictive_equality", "events": events, "statistic": "selection"}
    assert notion.items() >= own.items()  # measured in every run, whatever its goal
    assert [item["import"] for item in plain if "notion" not in item] == [
        f"{module}:Averaging",
        f"{module}:people",
        f"{module}:narrow",
    ]
    for registry, name in ((METHODS, "mean"), (MODELS, "narrow"), (DATASETS, "eighty")):
        registry.remove(name)
    NOTIONS.remove(OWN.name)
    restore(plain)
    assert create("mean", power=2.0) == thing("Averaging")(2.0)
    assert MODELS.get("narrow") is thing("narrow")
    assert DATASETS.get("eighty") is thing("people")
    assert NOTIONS.get(OWN.name) == OWN


def test_what_no_other_process_could_import_is_refused_before_one_is_started(tmp_path):
    @dataclass(frozen=True)
    class Local(Bare):
        pass

    class Script(Local):
        __module__ = "__main__"

    Script.__qualname__ = "Script"
    for kind in (Local, Script):
        name = mfairfl.register(kind)
        with pytest.raises(ConfigError) as caught:
            run_many([(config_of(name, data="adult"), tmp_path / name)], processes=1)
        assert str(caught.value) == (
            f"strategy '{name}' cannot be imported by worker processes: define it in a module of "
            "its own"
        )
        assert not (tmp_path / name).exists()


@pytest.mark.slow
def test_workers_train_what_was_registered_here_to_the_same_bits(outside, tmp_path):
    _, thing = outside
    csv = tmp_path / "people.csv"
    fed.people().to_csv(csv, index=False)
    mfairfl.register(thing("Averaging"), "mean")
    mfairfl.register(thing("narrow"))
    mfairfl.register(OWN)
    config = config_of("mean", notion=OWN.name, model="narrow", csv=csv)
    (record,) = run_many([(config, tmp_path / "worker")], processes=1)
    here = mfairfl.train(config=config.model_dump(mode="json"), out=tmp_path / "here")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("worker", "here")]
    assert files[0] == files[1]
    assert record.metrics == here.record.metrics
    assert "predictive_equality_violation" in here.metrics["test"]


# ------------------------------------------------------------------ wrong types


FRAME = fed.people()
LABELLED = {"label": "hired", "sensitive": "sex"}


def refusal(data, **options):
    with pytest.raises(MfairflError) as caught:
        mfairfl.train(data, **options)
    return one_line(caught)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (FRAME, {}, "Pass label= (columns: skill, years, job, sex, age, site, hired)"),
        (FRAME, {"label": "hired"}, "Pass sensitive= (columns: skill, years, job, sex, age, "),
        (FRAME, LABELLED, "Pass favourable= (values: 'no', 'yes')"),
        (FRAME, LABELLED | {"label": "hird"}, "unknown column 'hird': did you mean 'hired'?"),
        ("people.csv", {}, "looks like a file: pass csv='people.csv' with label= and sensitive="),
        (Path("a/b.parquet"), {}, "looks like a file: pass csv='a/b.parquet' with label= and"),
        ("run.toml", {}, "looks like a file: "),
        ("run.toml", {}, "or config= for a TOML file"),
        ("adlt", {}, "unknown data set 'adlt': did you mean 'adult'?"),
        (FRAME.to_numpy(), {}, "data: cannot train on an object of type ndarray; pass"),
        ({"x": [1]}, {}, "data: cannot train on an object of type dict; pass"),
        (42, {}, "data: cannot train on an object of type int; pass"),
    ],
)
def test_wrong_data_is_told_what_to_pass(data, options, message):
    assert message in refusal(data, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": nn.Linear(3, 1)}, "a Linear object is not a factory; pass a function or class"),
        ({"model": LogisticRegression}, "LogisticRegression is a scikit-learn estimator"),
        ({"model": LogisticRegression()}, "pass a factory of torch.nn.Module, or hidden=() for l"),
        ({"model": 3}, "model: a int object is not a factory; pass"),
        ({"model": "mpl"}, "model.kind: unknown model 'mpl': did you mean 'mlp'?"),
        ({"model": "nowhere:Net"}, "model.kind: 'nowhere:Net' cannot be imported"),
        ({"strategy": FedAvg}, "FedAvg'> is not a strategy; pass a name of mfairfl.strategies.a"),
        ({"strategy": 3}, "strategy: 3 is not a strategy; pass a name"),
        ({"strategy": "fedavgg"}, "unknown strategy 'fedavgg': did you mean 'fedavg'?"),
        ({"strategy": "json:loads"}, "is not a strategy: pass a frozen dataclass derived from"),
        (
            {"notion": 3},
            "notion: 3 is not a notion; pass a name (dp, eo, eopp, ap) or a mfairfl",
        ),
        ({"notion": Notion}, "Notion'> is not a notion; pass a name"),
        ({"notion": ["dp", 3]}, "notion: 3 is not a notion; pass a name"),
        ({"notion": "json:loads"}, "is not a notion: pass a mfairfl.fairness.Notion"),
        ({"rounds": "many"}, "training.rounds: "),
        ({"hidden": 3}, "model.hidden: "),
        ({"epochs": 3}, "unknown option 'epochs': did you mean 'local_epochs'?"),
        ({"label": 3}, "label: pass a column's name, not 3"),
        ({"sensitive": 3}, "sensitive: pass one or several columns' names, not 3"),
        ({"config": 3}, "config: pass a TOML file or a mapping, not 3"),
        ({"out": 3}, "out: pass a folder, not 3"),
        ({"callbacks": print}, "callbacks: pass a list of objects with on_start and on_round"),
        ({"model": nn.Linear}, "model: the factory cannot be called with the number of inputs"),
        ({"model": lambda inputs: inputs}, "the factory returned a int, not a torch.nn.Module"),
    ],
)
def test_a_wrong_keyword_is_told_what_to_pass(options, message):
    assert message in refusal(fed.people_table(), **options)


def test_frames_are_taken_as_they_are():
    pl = pytest.importorskip("polars")
    roles = {"label": "hired", "favourable": "yes", "sensitive": ["sex", "age"], "client": "site"}
    found = [
        mfairfl.train(frame, **roles, **QUICK).metrics for frame in (FRAME, pl.from_pandas(FRAME))
    ]
    expected = mfairfl.train(fed.people_table(), **QUICK).metrics
    assert found[0] == found[1] == expected
