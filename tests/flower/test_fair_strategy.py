"""mfairfl's strategies in apps of others, against Flower's FedAvg and the embedded engine."""

from __future__ import annotations

import math
import re

import fairlearn.metrics
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import federations as fed
from grids import LocalGrid
from mfairfl.engine.clients import MemorySlots, SoleClient
from mfairfl.engine.state import Measure, Train
from mfairfl.errors import ConfigError, DataError, FederationError, MessageError
from mfairfl.flower import (
    FairStrategy,
    Recipe,
    cells_of,
    fair_loss,
    make_optimizer,
    measurement_record,
    proximal_term,
    read_plan,
)
from mfairfl.flower.records import ModelLayout
from mfairfl.strategies import available
from mfairfl.training.batches import RowStore
from mfairfl.training.plan import Job, Optimizer, Plan
from mfairfl.training.trainer import Work, run_works

REFUSED = {
    "cenfair": "in one place",
    "constant": "no client trains",
    "ditto": "not a single global one",
    "fedavg-f": "keep something between rounds",
    "fedavg-threshold": "threshold for each group",
    "fpfl-paper": "gradients",
    "indfair": "not a single global one",
    "mfairfl-paper": "gradients",
    "scaffold": "keep something between rounds",
}
FITTING = [name for name in available() if name not in REFUSED]
SEX = {"sex": ["F", "M"]}
NODES = {911: {"at": 0}, 77: {"at": 1}, 503: {"at": 2}, 402: {"at": 3}}


def groups_of(federation):
    return {a.name: list(a.groups) for a in federation.attributes}


def in_pieces(flat):
    """Return a model's weights as two arrays."""
    parts = {"b": flat[:6].reshape(2, 3), "a": flat[6:]}
    return ArrayRecord({name: Array(part) for name, part in parts.items()})


def joined(arrays):
    return np.concatenate([arrays[name].numpy().reshape(-1) for name in ("b", "a")])


def reply(message, **records):
    return Message(RecordDict(records), reply_to=message)


def called(name):
    return ConfigRecord({"name": name})


# ------------------------------------------------------------------ the embedded engine


def silo_app(federation, setup):
    """Clients that train and measure as mfairfl's own do, and know nothing but messages."""
    silos = [
        SoleClient(client, fed.model_of(setup), federation.attributes, setup.seed, MemorySlots({}))
        for client in federation.clients
    ]

    def app(message, context):
        client = federation.clients[context.node_config["at"]]
        silo, flat = silos[context.node_config["at"]], joined(message.content["arrays"])
        if message.metadata.message_type == "evaluate":
            ((found,),) = (silo.answer(Measure((flat,), ("train",))),)
            sums = {
                name: getattr(found["train"], name).reshape(-1).tolist()
                for name in ("counts", "positives", "scores", "losses")
            }
            return reply(message, client=called(client.name), train=MetricRecord(sums))
        job = Job(client=client.name, plan=read_plan(message))
        round_ = message.content["config"]["server-round"] - 1
        (report,) = silo.answer(Train(round_, {client.name: flat}, (job,)))
        return reply(message, arrays=in_pieces(flat - report.update))

    return app


@pytest.mark.parametrize("name", FITTING)
def test_every_fitting_strategy_ends_where_the_embedded_engine_ends(name):
    federation = fed.people_federation()
    setup = fed.setup_for(federation, name, rounds=3, participation=0.75)
    _, watch = fed.run(setup, federation)
    fair = FairStrategy(
        name,
        sensitive=groups_of(federation),
        recipe=setup.recipe,
        fraction_train=0.75,
        min_available_nodes=4,
    )
    arrays = in_pieces(fed.first(setup).weights)
    result = fair.start(LocalGrid(silo_app(federation, setup), NODES), arrays, num_rounds=3)
    assert np.abs(joined(result.arrays) - watch.weights[-1]).max() < 1e-6
    assert np.abs(joined(result.arrays) - watch.weights[0]).max() > 1e-3
    for mine, theirs in zip(fair.history, watch.records, strict=True):
        assert mine.coefficients == pytest.approx(theirs.coefficients, abs=1e-4)


def torch_app(federation):
    """A client of somebody who uses PyTorch: automatic differentiation, torch's optimisers."""
    sensitive, app = groups_of(federation), ClientApp()

    def own(message, context):
        client = federation.clients[context.node_config["at"]]
        model = torch.nn.Linear(client.train.X.shape[1], 1)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return client, model, torch.tensor(client.train.X)

    @app.evaluate()
    def evaluate(message, context):
        client, model, X = own(message, context)
        shard = client.train
        measured = measurement_record(sensitive, model(X), shard.y, shard.cells)
        return reply(message, client=called(client.name), train=measured)

    @app.train()
    def run_works(message, context):
        client, model, X = own(message, context)
        plan, start = read_plan(message), [w.detach().clone() for w in model.parameters()]
        optimizer = make_optimizer(plan, model.parameters())
        for _ in range(plan.epochs):  # the batch is larger than any client: no order of rows
            optimizer.zero_grad()
            loss = fair_loss(plan, model(X), client.train.y, client.train.cells)
            (loss + proximal_term(plan, model.parameters(), start)).backward()
            optimizer.step()
        return reply(message, arrays=ArrayRecord(model.state_dict()))

    return app


@pytest.mark.parametrize(
    ("name", "own"),
    [("mfairfl", {"every": 7, "gamma": 2.0}), ("fedprox", {"mu": 1.0}), ("qffl", {"lr": 0.1})],
)
def test_torch_clients_end_where_the_embedded_engine_ends(name, own):
    federation = fed.people_federation()
    recipe = {"local_epochs": 7, "batch_size": 500, "optimizer": "sgd", "lr": 0.1}
    setup = fed.setup_for(federation, fed.create(name, **own), rounds=4, hidden=(), **recipe)
    _, watch = fed.run(setup, federation)
    given = {key: value for key, value in own.items() if key != "every"}  # found by itself
    fair = FairStrategy(
        name,
        sensitive=groups_of(federation),
        recipe=Recipe(**recipe),
        hyper_parameters=given,
        min_available_nodes=4,
    )
    flat = fed.first(setup).weights
    arrays = {"weight": Array(flat[None, :-1]), "bias": Array(flat[-1:])}
    result = fair.start(LocalGrid(torch_app(federation), NODES), ArrayRecord(arrays), num_rounds=4)
    found = np.append(result.arrays["weight"].numpy(), result.arrays["bias"].numpy())
    assert np.abs(found - watch.weights[-1]).max() < 1e-6
    if name == "mfairfl":
        logs = [record.log for record in fair.history[1:]]
        assert any(np.abs(log["multipliers"]).max() > 0.05 for log in logs)  # prices did act
        assert any(log["conflicts"] for log in logs)  # and the conflict step


# ------------------------------------------------------------------ Flower's own FedAvg


def shift_app(rows=(10, 30, 50, 5), arrays=None, silent=(), sums=None):
    """Clients that add their own constant to the weights, whatever they are asked."""

    def app(message, context):
        at, round_ = context.node_config["at"], message.content["config"]["server-round"]
        kind = message.metadata.message_type
        if (at, kind, round_) in silent:
            raise RuntimeError("x" * 300 + "no power\nat all" if at == 3 else "no power\nat all")
        sent = message.content["arrays"]
        if kind == "evaluate":
            counts = [0.0, float(rows[at]), 0.0, 0.0]
            found = {"counts": counts, "positives": counts, "scores": counts, "losses": counts}
            found |= {} if sums is None else sums(at, round_, counts)
            return reply(message, client=called("abcd"[at]), train=MetricRecord(found))
        shift = np.float32(at + round_)
        moved = {k: Array(np.asarray(v.numpy() * 0.5 + shift)) for k, v in sent.items()}
        changed = None if arrays is None else arrays(at, round_, moved)
        record = ArrayRecord(moved if changed is None else changed)
        return reply(message, arrays=record, metrics=MetricRecord({"num-examples": rows[at]}))

    return app


def first_arrays():
    rng = np.random.default_rng(4)
    shapes = {"w": (3, 2), "b": (2,), "s": ()}
    return ArrayRecord(
        {k: Array(rng.normal(size=s).astype(np.float32)) for k, s in shapes.items()}
    )


def run_fair(app, rounds=3, name="fedavg", lose=lambda node, message: False, **more):
    fair = FairStrategy(name, sensitive=SEX, **{"min_available_nodes": 4, **more})
    grid = LocalGrid(app, NODES, lose)
    return fair.start(grid, first_arrays(), num_rounds=rounds, timeout=1), fair


def flower_average(trained):
    """Return what Flower's FedAvg makes of rounds in which these clients answered."""
    arrays = first_arrays()
    for round_, present in enumerate(trained, start=1):
        app = shift_app()
        grid = LocalGrid(app, {node: c for node, c in NODES.items() if c["at"] in present})
        judge = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        config = ConfigRecord({})
        messages = list(judge.configure_train(round_, arrays, config, grid))
        arrays, _ = judge.aggregate_train(round_, grid.send_and_receive(messages))
    return arrays


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert found[name].dtype == "float32"
        np.testing.assert_allclose(found[name].numpy(), array.numpy(), rtol=2e-6, atol=2e-6)


def test_fedavg_is_flower_s_fedavg():
    result, fair = run_fair(shift_app())
    assert_same(result.arrays, flower_average([(0, 1, 2, 3)] * 3))
    assert fair.history[1].coefficients == pytest.approx(
        {"a": 10 / 95, "b": 30 / 95, "c": 50 / 95, "d": 5 / 95}
    )
    assert dict(result.train_metrics_clientapp[1]) == {"clients": 4, "left_out": 0}


def test_a_strategy_can_be_started_again():
    _, fair = run_fair(shift_app())
    again = fair.start(LocalGrid(shift_app(), NODES), first_arrays(), num_rounds=2)
    assert_same(again.arrays, flower_average([(0, 1, 2, 3)] * 2))
    assert [record.round for record in fair.history] == [0, 1, 2]


def test_what_a_subclass_makes_of_the_model_is_the_model():
    class Raised(FairStrategy):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return plus_one(arrays), metrics

    def idle(message, context):
        if message.metadata.message_type == "train":
            return reply(message, arrays=message.content["arrays"])
        return shift_app()(message, context)

    # q-FFL's coefficients do not add up to 1: measured from an older model, updates would show.
    fair = Raised("qffl", sensitive=SEX, min_available_nodes=4)
    result = fair.start(LocalGrid(idle, NODES), first_arrays(), num_rounds=3)
    assert_same(result.arrays, plus_one(plus_one(plus_one(first_arrays()))))


def plus_one(arrays):
    return ArrayRecord(
        {k: Array(np.asarray(v.numpy() + np.float32(1))) for k, v in arrays.items()}
    )


# ------------------------------------------------------------------ clients that fail


def test_a_client_that_raises_in_training_is_left_out_of_that_round(caplog):
    result, _ = run_fair(shift_app(silent={(1, "train", 2)}))
    assert "b is left out: it reported an error: no power at all" in caplog.text
    assert_same(result.arrays, flower_average([(0, 1, 2, 3), (0, 2, 3), (0, 1, 2, 3)]))
    assert dict(result.train_metrics_clientapp[2]) == {"clients": 3, "left_out": 1}


def test_a_client_that_misses_an_evaluation_is_left_out_of_the_next_round_and_returns(caplog):
    result, fair = run_fair(
        shift_app(),
        lose=lambda node, m: (
            node == 503
            and m.metadata.message_type == "evaluate"
            and m.content["config"]["server-round"] == 1
        ),
    )
    assert "c is left out: no answer before the deadline" in caplog.text
    assert_same(result.arrays, flower_average([(0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 3)]))
    assert [len(record.coefficients) for record in fair.history] == [0, 4, 3, 4]


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (lambda a: a | {"w": Array(np.full((3, 2), np.nan, np.float32))}, "'w' holds a number th"),
        (lambda a: a | {"w": Array(np.zeros((2, 3), np.float32))}, r"\(2, 3\); float32 \(3, 2\)"),
        (lambda a: a | {"w": Array(np.zeros((3, 2)))}, "float64"),
        (lambda a: a | {"x": a["w"]}, "'x' is not in the model"),
        (lambda a: {"w": a["w"]}, "'b' is missing"),
        (
            lambda a: a | {"w": Array("float32", (3, 2), "numpy.ndarray", b"x" * 150)},
            "'w' cannot be read",
        ),
        (
            lambda a: a | {"w": Array("float32", (3, 2), "numpy.ndarray", b"x" * 9999)},
            "'w' cannot be read",
        ),
        (
            lambda a: a | {"w": Array("float32", (3, 2), "numpy.ndarray", a["b"].data)},
            "not what it says",
        ),
    ],
)
def test_bad_arrays_are_set_aside_with_the_reason(spoilt, reason, caplog):
    def arrays(at, round_, moved):
        return spoilt(moved) if (at, round_) == (3, 1) else moved

    result, _ = run_fair(shift_app(arrays=arrays))
    assert_same(result.arrays, flower_average([(0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3)]))
    (line,) = [r.getMessage() for r in caplog.records if "left out" in r.getMessage()]
    assert line.startswith("d is left out: array ")
    assert re.search(reason, line)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"losses": [0.0, math.inf, 0.0, 0.0]},
            "'train' holds a number that is not finite",
        ),
        ({"counts": [1.0, 2.0]}, "'counts' is not a list of 4 numbers"),
        ({"positives": [1.0, 0.0, 0.0, 0.0]}, "impossible counts"),
        ({"counts": [0.0] * 4, "positives": [0.0] * 4}, "it has no training rows"),
    ],
)
def test_bad_measurements_leave_a_client_out_of_the_next_round(change, reason, caplog):
    def sums(at, round_, counts):
        return change if (at, round_) == (0, 1) else {}

    result, _ = run_fair(shift_app(sums=sums))
    assert reason in caplog.text
    assert_same(result.arrays, flower_average([(0, 1, 2, 3), (1, 2, 3), (0, 1, 2, 3)]))


def test_replies_that_say_too_little():
    def nameless(message, context):
        return reply(message, train=MetricRecord({}))

    def unmeasured(message, context):
        return reply(message, client=called("a"))

    for app in (nameless, unmeasured):
        with pytest.raises(FederationError, match="0 of 4 nodes measured the model"):
            run_fair(app)


def test_an_error_that_comes_from_the_server_itself_is_the_dead_node_s(caplog):
    class Dead(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            for one in replies:
                if one.has_error():
                    one.metadata.__dict__["_src_node_id"] = 1
            return replies

    fair = FairStrategy("fedavg", sensitive=SEX, min_available_nodes=4)
    grid = Dead(shift_app(silent={(2, "train", 1)}), NODES)
    fair.start(grid, first_arrays(), num_rounds=1)
    assert "c is left out: it reported an error: no power at all\n" in caplog.text


def test_a_reply_counts_once_and_only_if_it_was_asked_for():
    class Echo(LocalGrid):
        before = ()

        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            found, self.before = [*self.before, *replies, *replies], replies
            return found

    fair = FairStrategy("fedavg", sensitive=SEX, min_available_nodes=4)
    result = fair.start(Echo(shift_app(), NODES), first_arrays(), num_rounds=3)
    assert_same(result.arrays, flower_average([(0, 1, 2, 3)] * 3))
    assert dict(result.train_metrics_clientapp[3]) == {"clients": 4, "left_out": 0}


def test_a_long_reason_is_cut_to_its_end(caplog):
    run_fair(shift_app(silent={(3, "train", 1)}), rounds=1)
    assert f"d is left out: it reported an error: … {'x' * 185}no power at all\n" in caplog.text


def test_nobody_trains_in_a_round_and_the_model_stays():
    silent = {(at, "train", 2) for at in range(4)}
    result, fair = run_fair(shift_app(silent=silent))
    assert dict(result.train_metrics_clientapp[2]) == {"clients": 0, "left_out": 4}
    assert fair.history[2].coefficients == {}
    assert np.isfinite(result.arrays["w"].numpy()).all()


def test_an_evaluation_nobody_answers_is_asked_again(caplog):
    lost = []

    def lose(node, message):
        asked = message.metadata.message_type, message.content["config"]["server-round"]
        if asked != ("evaluate", 1) or len(lost) == len(NODES):
            return False
        lost.append(node)
        return True

    result, fair = run_fair(shift_app(), lose=lose)
    assert sorted(lost) == sorted(NODES)
    assert set(result.evaluate_metrics_clientapp) == {2, 3}
    assert_same(result.arrays, flower_average([(0, 1, 2, 3)] * 3))
    assert [record.round for record in fair.history] == [0, 1, 2, 3]


def test_all_gone_for_good_ends_the_run_in_one_line():
    silent = {(at, "evaluate", 1) for at in range(4)}
    with pytest.raises(FederationError, match="0 of 4 nodes measured the model and at least 1"):
        run_fair(shift_app(silent=silent))


def test_too_few_nodes_or_answers_to_begin():
    with pytest.raises(FederationError, match="4 nodes are online after 0 s; min_available"):
        FairStrategy("fedavg", sensitive=SEX, min_available_nodes=5).start(
            LocalGrid(shift_app(), NODES), first_arrays(), timeout=0
        )
    with pytest.raises(FederationError, match="3 of 4 nodes measured the model and at least 4"):
        run_fair(shift_app(silent={(1, "evaluate", 0)}))


def test_names_count_not_node_numbers(caplog):
    class Moving(LocalGrid):
        def get_node_ids(self):
            return list(self.nodes)

        def send_and_receive(self, messages, *, timeout=None):
            replies = super().send_and_receive(messages, timeout=timeout)
            if messages[0].metadata.message_type == "train" and 77 in self.nodes:
                self.nodes[5] = self.nodes.pop(77)  # b comes back under another number
                self.nodes[6] = {"at": 4}  # and somebody new arrives
            return replies

    def app(message, context):
        if context.node_config["at"] == 4:
            counts = [1.0, 1.0, 0.0, 0.0]
            sums = dict.fromkeys(("counts", "positives", "scores", "losses"), counts)
            return reply(message, client=called("new"), train=MetricRecord(sums))
        return shift_app()(message, context)

    fair = FairStrategy("fedavg", sensitive=SEX, min_available_nodes=4)
    result = fair.start(Moving(app, NODES), first_arrays(), num_rounds=3)
    assert_same(result.arrays, flower_average([(0, 1, 2, 3)] * 3))
    assert "new is left out: it was not there when the run began" in caplog.text


def test_a_name_counts_once(caplog):
    def app(message, context):
        context.node_config["at"] = min(context.node_config["at"], 2)
        return shift_app()(message, context)

    nodes = {node: dict(config) for node, config in NODES.items()}  # 402 and 503 are both c
    fair = FairStrategy("fedavg", sensitive=SEX, min_available_nodes=3)
    result = fair.start(LocalGrid(app, nodes), first_arrays(), num_rounds=2)
    assert "node 503 is left out: node 402 is 'c' already" in caplog.text
    assert_same(result.arrays, flower_average([(0, 1, 2)] * 2))


# ------------------------------------------------------------------ what is asked and told


def test_messages_hold_arrays_config_and_the_plan():
    seen = []

    def app(message, context):
        seen.append(message)
        return shift_app()(message, context)

    fair = FairStrategy(
        "fedprox",
        sensitive=SEX,
        recipe=Recipe(local_epochs=3, batch_size=8, lr=0.5, lr_final=0.1, weight_decay=0.25),
        hyper_parameters={"mu": 0.75},
        min_available_nodes=4,
    )
    fair.start(
        LocalGrid(app, NODES),
        first_arrays(),
        num_rounds=2,
        train_config=ConfigRecord({"lr": "mine"}),
        evaluate_config=ConfigRecord({"full": True}),
    )
    asked = [(m.metadata.message_type, m.content["config"]["server-round"]) for m in seen[::4]]
    assert asked == [("evaluate", 0), ("train", 1), ("evaluate", 1), ("train", 2), ("evaluate", 2)]
    assert all(m.content["config"]["full"] for m in seen if "plan" not in m.content)
    first, last = (m for m in (seen[4], seen[12]))
    assert first.content["config"]["lr"] == "mine"
    assert dict(first.content["plan"]) == {
        "epochs": 3,
        "batch-size": 8,
        "optimizer": "adamw",
        "lr": 0.5,
        "weight-decay": 0.25,
        "momentum": 0.0,
        "proximal": 0.75,
    }
    assert last.content["plan"]["lr"] == pytest.approx(0.1)  # the schedule's end
    assert read_plan(first) == Plan(
        epochs=3,
        batch_size=8,
        optimizer=Optimizer(name="adamw", lr=0.5, weight_decay=0.25),
        proximal=0.75,
    )


def test_configure_train_returns_a_list():
    fair = FairStrategy("fedavg", sensitive=SEX, min_available_nodes=4)
    kept = []

    class Grid(LocalGrid):
        def send_and_receive(self, messages, *, timeout=None):
            kept.append(messages)
            return super().send_and_receive(messages, timeout=timeout)

    fair.start(Grid(shift_app(), NODES), first_arrays(), num_rounds=1)
    assert [type(messages) for messages in kept] == [list, list, list]


def test_global_numbers_are_fairlearn_s():
    rng = np.random.default_rng(3)
    rows = [
        {
            "z": rng.normal(size=n),
            "y": rng.integers(0, 2, size=n),
            "sex": rng.choice(["F", "M"], size=n),
        }
        for n in (40, 30, 20, 25)
    ]

    def app(message, context):
        at = context.node_config["at"]
        if message.metadata.message_type == "train":
            return reply(message, arrays=message.content["arrays"])
        own = rows[at]
        cells = cells_of(SEX, {"sex": own["sex"]})
        record = measurement_record(SEX, own["z"], own["y"], cells)
        empty = measurement_record(SEX, own["z"][:0], own["y"][:0], cells[:0])
        tested = record if at < 2 else empty
        return reply(message, client=called(f"{at}"), train=record, test=tested)

    result, _ = run_fair(app, rounds=1, notion=["dp", "eo"])
    numbers = result.evaluate_metrics_clientapp[1]
    for split, count in (("train", 4), ("test", 2)):
        z, y, sex = (np.concatenate([r[key] for r in rows[:count]]) for key in ("z", "y", "sex"))
        both = [
            metric(y, z > 0, sensitive_features=sex, method="to_overall")
            for metric in (
                fairlearn.metrics.demographic_parity_difference,
                fairlearn.metrics.equalized_odds_difference,
            )
        ]
        right = [np.mean((r["z"] > 0) == r["y"]) for r in rows[:count]]
        loss = np.log1p(np.exp(-np.where(y == 1, z, -z))).mean()
        assert numbers[f"{split}_violation"] == pytest.approx(max(both), abs=1e-12)
        assert numbers[f"{split}_accuracy"] == pytest.approx(np.mean((z > 0) == y), abs=1e-12)
        assert numbers[f"{split}_worst_client_accuracy"] == pytest.approx(min(right), abs=1e-12)
        assert numbers[f"{split}_loss"] == pytest.approx(loss, abs=1e-12)


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_strategies_that_need_mfairfl_s_own_clients_are_refused(name):
    with pytest.raises(ConfigError, match=REFUSED[name]) as error:
        FairStrategy(name, sensitive=SEX)
    assert str(error.value).endswith(", ".join(FITTING))


@pytest.mark.parametrize(
    ("name", "own", "reason"),
    [
        ("mfairfl", {"every": 1}, "multipliers move inside a round"),
        ("mfairfl", {"scope": "local"}, "keep something between rounds"),
        ("qffl", {"update": "gradient"}, "gradients"),
        ("mfairfl", {"betta": 1}, "did you mean 'beta'"),
        ("mfairfle", {}, "did you mean 'mfairfl'"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, own, reason):
    with pytest.raises(ConfigError, match=reason):
        FairStrategy(name, sensitive=SEX, hyper_parameters=own)


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        ({"fraction_train": 0}, ConfigError, "fraction_train must lie"),
        ({"min_available_nodes": 0}, ConfigError, "min_available_nodes must be"),
        ({"notion": "parity"}, ConfigError, "unknown notion"),
        ({"sensitive": {}}, DataError, "name at least one attribute"),
        ({"sensitive": {"sex": ["F", "F"]}}, DataError, "a group occurs twice"),
        ({"recipe": Recipe(optimizer="gradient")}, ConfigError, "use 'adamw' or 'sgd'"),
    ],
)
def test_arguments_are_checked(arguments, error, reason):
    with pytest.raises(error, match=reason):
        FairStrategy("mfairfl", **({"sensitive": SEX} | arguments))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"w": np.zeros(2)}, "'w' is float64; give float32"),
        ({"n": np.zeros((), np.int64)}, "'n' is int64"),
        ({}, "the model has no arrays"),
    ],
)
def test_initial_arrays_are_checked(arrays, reason):
    with pytest.raises(ConfigError, match=reason):
        ModelLayout.of(ArrayRecord({name: Array(array) for name, array in arrays.items()}))


def test_it_is_run_by_start():
    fair = FairStrategy("fedavg", sensitive=SEX)
    grid = LocalGrid(shift_app(), NODES)
    with pytest.raises(ConfigError, match="call start"):
        fair.configure_train(1, first_arrays(), ConfigRecord({}), grid)
    with pytest.raises(ConfigError, match="configure_train comes first"):
        fair.aggregate_train(1, [])


# ------------------------------------------------------------------ the client's functions


def test_fair_loss_by_hand():
    """Rows (cell, label, z): (0, 1, ln 3), (1, 0, 0), (0, 0, −ln 3); σ = ¾, ½, ¼."""
    plan = Plan(
        epochs=1,
        batch_size=3,
        loss_table=((2.0, 3.0), (0.5, 7.0)),
        score_table=((0.4, -1.0), (2.0, 9.0)),
    )
    z = torch.tensor([math.log(3), 0.0, -math.log(3)], dtype=torch.float64, requires_grad=True)
    loss = fair_loss(plan, z, labels=[1, 0, 0], cells=[0, 1, 0])
    each = [
        3 * math.log(4 / 3) - 0.75,
        0.5 * math.log(2) + 2 * 0.5,
        2 * math.log(4 / 3) + 0.4 * 0.25,
    ]
    assert float(loss.detach()) == pytest.approx(sum(each) / 3, abs=1e-12)
    loss.backward()
    slopes = [3 * (0.75 - 1) - 0.75 * 0.25, 0.5 * 0.5 + 2 * 0.25, 2 * 0.25 + 0.4 * 0.25 * 0.75]
    assert z.grad.tolist() == pytest.approx([slope / 3 for slope in slopes], abs=1e-12)


def test_fair_loss_has_the_trainer_s_gradient():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(50, 3)).astype(np.float32)
    y, cells = rng.integers(0, 2, size=50), rng.integers(0, 3, size=50)
    tables = [tuple(map(tuple, rng.normal(size=(3, 2)).tolist())) for _ in range(2)]
    still = Optimizer(name="sgd", lr=1.0, weight_decay=0.0)
    plan = Plan(
        epochs=1, batch_size=50, optimizer=still, loss_table=tables[0], score_table=tables[1]
    )
    store, (rows,) = RowStore.from_arrays([(X, y, cells)], 3)
    start = rng.normal(size=4).astype(np.float32)
    model = fed.MLP(inputs=3, hidden=())
    (done,) = run_works([Work(plan=plan, start=start, rows=rows, rng=rng)], model, store)
    w = torch.tensor(start, requires_grad=True)
    fair_loss(plan, torch.from_numpy(X) @ w[:3] + w[3], y, cells).backward()
    assert np.abs(w.grad.numpy() - done).max() < 1e-6  # one step of rate 1


def test_without_tables_it_is_the_mean_cross_entropy():
    z = torch.tensor([[0.3], [-2.0]])
    found = fair_loss(Plan(epochs=1, batch_size=2), z, torch.tensor([1, 0]), np.array([0, 0]))
    expected = (math.log1p(math.exp(-0.3)) + math.log1p(math.exp(-2.0))) / 2
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_rows_that_do_not_fit_together_are_refused():
    plan = Plan(epochs=1, batch_size=2)
    with pytest.raises(DataError, match=r"shape \(2, 2\).*logits\[:, 1\] - logits\[:, 0\]"):
        fair_loss(plan, torch.zeros(2, 2), [0, 1], [0, 0])
    with pytest.raises(DataError, match="2 logits, 1 labels and 2 cells"):
        fair_loss(plan, torch.zeros(2), [0], [0, 0])
    with pytest.raises(DataError, match="2 logits and 1 cells"):
        measurement_record(SEX, torch.zeros(2), [0, 1], [0])
    with pytest.raises(DataError, match="label -1 is outside 0 … 1"):
        measurement_record(SEX, torch.zeros(2), [-1, 1], [0, 0])
    with pytest.raises(DataError, match="cell 2 is outside 0 … 1"):
        measurement_record(SEX, torch.zeros(2), [0, 1], [2, 0])


def test_cells_are_numbered_like_the_federation_s():
    frame = fed.people()
    table = fed.people_table(frame)
    sensitive = {a.name: a.groups for a in table.attributes}
    assert cells_of(sensitive, frame).tolist() == table.cells.tolist()
    with pytest.raises(DataError, match=r"'sex'.*'D'"):
        cells_of(SEX, {"sex": ["F", "D"]})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epochs": None}, "the plan lacks 'epochs'"),
        ({"epochs": "many"}, "the plan: epochs:"),
        ({"optimizer": "lion"}, "the plan: optimizer.name:"),
        ({"loss-table": [1.0, 2.0, 3.0]}, "loss-table is not a list of pairs"),
    ],
)
def test_plans_are_checked(change, reason):
    LocalGrid(None, {})  # messages need an identity
    good = {
        "epochs": 1,
        "batch-size": 2,
        "proximal": 0.0,
        "optimizer": "sgd",
        "lr": 0.1,
        "weight-decay": 0.0,
        "momentum": 0.0,
    }
    values = {key: value for key, value in (good | change).items() if value is not None}
    content = RecordDict({"plan": ConfigRecord(values)})
    with pytest.raises(MessageError, match=reason):
        read_plan(Message(content, dst_node_id=3, message_type="train"))
    with pytest.raises(MessageError, match="has no plan"):
        read_plan(Message(RecordDict({}), dst_node_id=3, message_type="train"))
