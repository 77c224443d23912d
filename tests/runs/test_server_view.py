"""What the server sees: the manifest names what really crosses between silos and server, no more.

The oracle knows nothing of cards and manifests: it looks at the messages of a federation, at when
they were sent, and at what lies on the silos' disks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

import federations as fed
from mfairfl.data import SPLITS
from mfairfl.engine.checkpoint import read_sealed
from mfairfl.runs.config import make_config
from mfairfl.runs.manifest import Protocol, manifest, protocol_of, server_view
from mfairfl.runs.silo_runs import FederatedRequest, run_federated, run_name
from mfairfl.silo.responder import Responder
from mfairfl.silo.silo_file import SiloSettings
from mfairfl.strategies import Card, available, create

ROUNDS, CADENCE = 6, 4  # after rounds 0, 4 and 6 all is measured; 4, 5 and 6 may be served
CELLS = 2  # by sex
SLOTS = {
    "personal": "personal models",
    "control": "control variates",
    "multipliers": "own multipliers",
}
FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]
OF_EACH_KIND = ("ditto", "fairfed", "fedavg", "fedavg-threshold", "mfairfl", "scaffold")


@dataclass
class Recorder:
    """Carries messages within this process, remembers the answers, and watches the run.

    A message that is sent when r rounds are complete, and one of them is the model before
    training, is about the weights after round r.
    """

    responders: dict
    run: str
    told: int = 0
    answers: list = field(default_factory=list)

    def exchange(self, asks):
        found = {name: self.responders[name].handle(self.run, ask) for name, ask in asks.items()}
        for name, ask in asks.items():
            kind = json.loads(ask.text)["kind"]
            self.answers.append((kind, self.told, name, found[name]))
        return found

    def on_start(self, setup, state):
        self.size = setup.size

    def on_round(self, setup, state, record):
        self.told += 1
        self.last = state.round


def crossed(seen, rows):
    """Return (what, kind, when, rows, by) of all that crossed."""
    found, measured, trained = set(), {}, {}
    for kind, told, name, answer in seen.answers:
        said = json.loads(answer.text)
        forms = {key: array.shape for key, array in answer.arrays.items()}
        if kind == "profile":
            assert said["profile"]["rows"] == sum(rows[name].values())
            assert any(column["levels"] for column in said["profile"]["columns"])
            found.add(("file description", kind, "once", whole(rows), "column and value"))
        elif kind == "sums":
            numeric = {part: said[part]["numeric"] for part in ("train", "others")}
            sums = {part: next(iter(columns.values())) for part, columns in numeric.items()}
            counted = {part: one["count"] + one["missing"] for part, one in sums.items()}
            others = sum(rows[name].values()) - rows[name]["train"]
            assert counted == {"train": rows[name]["train"], "others": others}
            assert any(said["train"]["categorical"].values())
            found.add(("encoder sums", kind, "once", whole(rows), "column and value"))
        elif kind == "cuts":
            counts = [array for key, array in answer.arrays.items() if key.startswith("counts/")]
            assert {array.sum() for array in counts} == {rows[name]["train"]}
            found.add(("histogram counts", kind, "once", ("train",), "column and interval"))
        elif kind == "encode":
            withheld = {f"hidden/{part}": (CELLS, 2) for part in SPLITS}
            assert forms == dict.fromkeys(SPLITS, (CELLS, 2)) | withheld | {"withheld": (3,)}
            assert not any(answer.arrays[key].any() for key in (*withheld, "withheld"))
            parts = tuple(key for key, array in answer.arrays.items() if array.any())
            found.add(("counts", kind, "once", parts, "group and label"))
        elif kind == "measure":
            assert set(forms.values()) == {(4, CELLS, 2)}
            for key in forms:
                measured.setdefault(key.rpartition("/")[2], set()).add(told)
        elif kind == "score":
            assert told == seen.last + 1  # all rounds are complete
            assert {f"scores/{part}/histogram" for part in whole(rows)} >= {
                key for key, form in forms.items() if form == (CELLS, 2, 2048)
            }
            by = "group, label and score"
            found.add(("score histograms", kind, "at the end", whole(rows), by))
        else:
            assert kind == "train"
            for what in sent(said, forms, seen.size):
                trained.setdefault(what, set()).add(told)
    for (what, by), rounds in trained.items():
        assert rounds == set(range(1, seen.last + 1))
        found.add((what, "train", "every round", ("train",), by))
    return found | moments(measured, seen.last)


def whole(rows):
    parts = next(iter(rows.values()))
    return tuple(part for part in parts if parts[part])


def sent(said, forms, size):
    """What reports hold; an array that nobody expects is an error."""
    for key, form in forms.items():
        assert form == (size,)
        what = {"update": "updates", "control": "control changes"}[key.partition("/")[0]]
        yield what, "client"
    for report in said["reports"]:
        assert bool(report["multipliers"]) == bool(report["gaps"])
        if report["multipliers"]:
            yield "multipliers and gaps", "constraint"


def moments(measured, last):
    """Group splits by when they were measured: after which rounds, and at the end."""
    every = set(range(last + 1))
    scheduled = {r for r in every if r % CADENCE == 0 or r == last}
    names = {
        frozenset(every): "every round",
        frozenset(scheduled): "regularly",
        frozenset(scheduled | {r for r in every if 2 * r > last}): "from half-way on",
    }
    assert len(names) == 3
    by_moment = {}
    for split, told in measured.items():
        assert last + 1 in told  # the served model
        by_moment.setdefault(names[frozenset(told - {last + 1})], []).append(split)
    by_moment["at the end"] = list(measured)
    order = ("train", "validation", "test")
    return {
        (
            "measurements",
            "measure",
            when,
            tuple(sorted(splits, key=order.index)),
            "group and label",
        )
        for when, splits in by_moment.items()
    }


def kept(silos, run):
    """The names of what silos hold between rounds, and the vectors."""
    vectors = {}
    for silo in silos.values():
        for path in (silo.state / run / "slots").glob("round-*"):
            for slot, vector in read_sealed(path, remedy="")[0].items():
                vectors.setdefault(slot, []).append(vector)
    return vectors


def federate(folder, strategy, **changes):
    """Run a federation of silos; return its configuration, its messages and its disks."""
    frame, silos = fed.people(), {}
    for site in fed.SITES:
        path = folder / f"{site}.csv"
        frame[frame["site"] == site].drop(columns="site").to_csv(path, index=False)
        silos[site] = SiloSettings(name=site, csv=path, state=folder / "state" / site)
    settings = {
        "model": {"hidden": [4]},
        "task": {"label": "hired", "favourable": "yes", "sensitive": ["sex"]},
        "training": {"rounds": ROUNDS, "local_epochs": 1, "evaluate_every": CADENCE},
    }
    for section, values in changes.items():
        own = settings.get(section, {})
        settings[section] = own | values if isinstance(values, dict) else values
    config = make_config(settings | {"strategy": strategy})
    responders = {name: Responder(one, fed.policy()) for name, one in silos.items()}
    seen = Recorder(responders, run_name(config))
    asked = FederatedRequest(config=config, clients=tuple(silos), minimum=4, out=folder / "run")
    record = run_federated(asked, seen, [seen])
    rows = {
        one.name: {part: getattr(one, part) for part in ("train", "validation", "test")}
        for one in record.federation.clients
    }
    return config, seen, rows, kept(silos, seen.run)


def assert_named(config, seen, rows, vectors):
    lines = server_view(config)
    told = {(x.what, x.kind, x.when, x.rows, x.by) for x in lines if x.seen != "never"}
    assert told == crossed(seen, rows)
    assert all(x.seen == "singly" for x in lines if x.seen != "never")
    assert {x.what for x in lines if x.seen == "never"} == {SLOTS[slot] for slot in vectors}
    assert len(lines) == len({(x.what, x.when) for x in lines})
    sent = [array for *_, answer in seen.answers for array in answer.arrays.values()]
    for slot, held in vectors.items():
        assert not any(np.array_equal(one, own) for one in sent for own in held), slot


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in OF_EACH_KIND else pytest.mark.slow)
        for name in FEDERATED
    ],
)
def test_the_manifest_of_every_method_names_exactly_what_crosses(name, tmp_path):
    assert_named(*federate(tmp_path, {"name": name}))


LONG_ROUNDS = {"training": {"local_epochs": 2}}


@pytest.mark.parametrize(
    ("strategy", "changes", "expected"),
    [
        ({"name": "mfairfl", "every": 1}, LONG_ROUNDS, "multipliers and gaps"),
        ({"name": "mfairfl", "every": 2}, LONG_ROUNDS, None),
        ({"name": "mfairfl", "every": 1, "constraint": False}, LONG_ROUNDS, None),
        ({"name": "mfairfl", "every": 1, "multiplier": "paper"}, LONG_ROUNDS, None),
        ({"name": "mfairfl", "scope": "local"}, LONG_ROUNDS, "own multipliers"),
        ({"name": "fedavg"}, {"encoder": {"numeric": "standard"}}, None),
        ({"name": "fedavg"}, {"encoder": {"numeric": "bins"}}, "histogram counts"),
        ({"name": "fedavg"}, {"output": {"rule": "select"}}, None),
        ({"name": "fedavg"}, {"output": {"rule": "average"}}, None),
        ({"name": "fedavg"}, {"output": {"rule": "mixture"}}, None),
        ({"name": "fedavg"}, {"output": {"rule": "thresholds"}}, None),
        ({"name": "mfairfl"}, {"output": {"rule": "last"}}, None),
        ({"name": "fedavg"}, {"clients": {"validation": 0.2}}, None),
        ({"name": "mfairfl"}, {"clients": {"validation": 0.2}}, None),
        ({"name": "fedavg"}, {"clients": {"test": 0.0}}, None),
        ({"name": "fedavg"}, {"training": {"patience": 100}}, None),
        ({"name": "ditto"}, {"training": {"patience": 100}}, "personal models"),
        ({"name": "fedavg"}, {"robust": "auto"}, None),
    ],
)
def test_it_follows_settings_too(strategy, changes, expected, tmp_path):
    found = federate(tmp_path, strategy, **changes)
    assert_named(*found)
    conditional = {"multipliers and gaps", "own multipliers", "personal models"}
    if "encoder" in changes:
        conditional = {"histogram counts"}
    named = {line.what for line in server_view(found[0])} & conditional
    assert named == ({expected} if expected else set())


def test_the_oracle_sees_what_a_manifest_leaves_out(tmp_path):
    """Otherwise the tests above would say nothing."""
    config, seen, rows, vectors = federate(tmp_path, {"name": "scaffold"})
    for other in ("fedavg", "mfairfl", "constant", "ditto"):
        strategy = config.strategy.model_copy(update={"name": other})
        wrong = config.model_copy(update={"strategy": strategy})
        with pytest.raises(AssertionError):
            assert_named(wrong, seen, rows, vectors)


# ------------------------------------------------------------------ words


def test_a_reference_on_pooled_rows_shows_them():
    (line,) = manifest(create("cenfair").card)
    assert (line.what, line.seen, line.by) == ("rows", "singly", "row")


def test_a_condition_is_told_where_the_epochs_of_a_round_are_not_known():
    (line,) = [x for x in manifest(create("mfairfl").card) if x.what == "multipliers and gaps"]
    assert line.holds.endswith(", where a round has more than 5 epochs")
    known = manifest(create("mfairfl").card, Protocol(epochs=6))
    (line,) = [x for x in known if x.what == "multipliers and gaps"]
    assert "epochs" not in line.holds


def test_a_line_in_words_says_what_whose_when_of_which_rows_and_why():
    lines = manifest(Card(title="A method"), Protocol(splits=("train", "validation", "test")))
    told = {line.what: line.sentence for line in lines}
    assert told["counts"] == (
        "counts: rows, and which groups and labels are withheld; each client's own, once, of "
        "train, validation and test rows, by group and label; clients count by their rows, and "
        "later answers are held against them"
    )
    assert told["updates"] == (
        "updates: the change of every weight by training, and the number of steps; each client's "
        "own, every round, of train rows, by client; the method needs only their sum"
    )


@pytest.mark.parametrize(("evaluate_every", "moment"), [(1, "every round"), (10, "regularly")])
def test_the_schedule_is_that_of_the_settings_in_a_record(evaluate_every, moment):
    settings = make_config({"training": {"evaluate_every": evaluate_every}}).model_dump(
        mode="json"
    )
    protocol = protocol_of(settings, rule="last", splits=["test", "train"])
    assert protocol == Protocol(splits=("train", "test"), epochs=2, evaluate_every=evaluate_every)
    lines = manifest(create("fedavg").card, protocol)
    assert {x.when for x in lines if x.what == "measurements"} == {moment, "at the end"}
