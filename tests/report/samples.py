"""Reports and audits: rich ones, poor ones without any value, hostile ones."""

from __future__ import annotations

import math
from functools import cache
from random import Random

import numpy as np

from mfairfl.fairness.audit_counts import AuditCounts
from mfairfl.fairness.results import Measured, Section, Slice
from mfairfl.fairness.worsened import Worsened
from mfairfl.report.audit_document import build_audit
from mfairfl.report.audit_settings import AuditFacts, AuditMeaning, AuditSettings, AuditSource
from mfairfl.report.document import (
    Change,
    ClientRows,
    ComparedModel,
    DataTreatment,
    Definition,
    Document,
    GroupUse,
    Headline,
    Judgement,
    Provenance,
    ServerView,
    TrainingHistory,
    Withheld,
)
from mfairfl.runs.manifest import manifest
from mfairfl.strategies import describe

NOTIONS = ("demographic_parity", "equalized_odds", "equal_opportunity", "accuracy_parity")
GOAL = "demographic_parity_violation"
SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    SCRIPT,
    "\"quoted\" & 'quoted'",
    "]]>",
    "--> <!--",
    "قسم الموارد \u202ereversed",
    "x" * 200,
    "<img src=https://example.invalid/a.png onerror=alert(2)>",
    "{{ 7 * 7 }} {% raw %}",
)

_MEANINGS = {
    "accuracy": ("accuracy", "The share of rows whose decision equals the recorded label."),
    "balanced_accuracy": (
        "balanced accuracy",
        "The mean of the accuracies on favourable and on unfavourable labels.",
    ),
    "roc_auc": (
        "ROC-AUC",
        "How often a row with the favourable label has the higher score of two; 0.5 is chance.",
    ),
    "selection_rate": ("selection rate", "The share of rows with the favourable decision."),
    "true_positive_rate": (
        "true positive rate",
        "Of the rows that earned the favourable label, the share that got the decision.",
    ),
    "false_positive_rate": (
        "false positive rate",
        "Of the rows that did not earn the favourable label, the share that got the decision.",
    ),
    "base_rate": ("base rate", "The share of rows with the favourable label in the data."),
    "expected_calibration_error": (
        "calibration error",
        "How far scores are from the shares that they promise, on average.",
    ),
    "client_accuracy_gap": (
        "gap between clients",
        "The accuracy of the best client minus that of the worst.",
    ),
    "worst_client_accuracy": ("worst client's accuracy", "The lowest accuracy of any client."),
}
_KINDS = {
    "violation": "The largest distance of a group's {} from that of everyone.",
    "difference": "The highest {} of any group minus the lowest.",
    "ratio": "The lowest {} of any group divided by the highest; 1 is equal.",
}
_RATES = {
    "demographic_parity": "selection rate",
    "equalized_odds": "true or false positive rate",
    "equal_opportunity": "true positive rate",
    "accuracy_parity": "error rate",
}


def definitions() -> list[Definition]:
    fixed = [
        Definition(name=name, label=label, meaning=meaning)
        for name, (label, meaning) in _MEANINGS.items()
    ]
    return fixed + [
        Definition(
            name=f"{notion}_{kind}",
            label=f"{notion.replace('_', ' ')} {kind}",
            meaning=words.format(_RATES[notion]),
            formula="max over s of |P(ŷ=1 | s) − P(ŷ=1)|" if kind == "violation" else "",
        )
        for notion in NOTIONS
        for kind, words in _KINDS.items()
    ]


def measured(name, value, width=0.01, floor=None):
    interval = None if width is None else (max(value - width, 0.0), min(value + width, 1.0))
    return Measured(name=name, value=value, interval=interval, noise_floor=floor)


def rate_slice(name, rows, rng):
    near = {
        "accuracy": 0.86,
        "selection_rate": 0.17,
        "true_positive_rate": 0.56,
        "false_positive_rate": 0.05,
        "base_rate": 0.24,
    }
    width = 1 / math.sqrt(rows)
    numbers = {
        key: measured(key, value + rng.uniform(-0.03, 0.03), width) for key, value in near.items()
    }
    numbers["expected_calibration_error"] = measured(
        "expected_calibration_error", rng.uniform(0.01, 0.1), None
    )
    return Slice(name=name, rows=rows, numbers=numbers)


def measures(rng):
    found = []
    for notion in NOTIONS:
        value = 0.0114 if notion == "demographic_parity" else rng.uniform(0.02, 0.2)
        found += [
            measured(f"{notion}_violation", value, 0.0102, 0.0042),
            measured(f"{notion}_difference", 1.5 * value, None),
            measured(f"{notion}_ratio", 1 - 3 * value, None),
        ]
    return found


def worsened():
    """A notion, and the true positive rate of four clients."""
    gap = Worsened(
        part="attribute", attribute="sex", number="equalized_odds_violation",
        before=0.042, after=0.268, p_holm=1e-9,
    )  # fmt: skip
    number = {"part": "client", "number": "true_positive_rate"}
    return [
        gap,
        *(
            Worsened(**number, whom=f"client-{k}", before=0.6, after=0.4 + k / 50, p_holm=0.01)
            for k in range(1, 5)
        ),
    ]


def section(attribute, groups, rng):
    return Section(
        attribute=attribute,
        groups=[rate_slice(name, rows, rng) for name, rows in groups.items()],
        measures=measures(rng),
    )


def client(name, rows, rng):
    found = rate_slice(name, rows, rng)
    own = measured(GOAL, rng.uniform(0.0, 0.03), 2 / math.sqrt(rows), 0.5 / math.sqrt(rows))
    return found.model_copy(update={"numbers": {**found.numbers, GOAL: own}})


def training_history(clients, rng, rounds=40):
    steps = range(rounds + 1)
    up = [0.86 - 0.1 * math.exp(-i / 5) for i in steps]
    down = [0.01 + 0.09 * math.exp(-i / 8) for i in steps]
    shake = lambda values, by: [value + rng.uniform(-by, by) for value in values]  # noqa: E731
    coefficients = {}
    for name in clients:
        share = 1 / len(clients)
        coefficients[name] = [None, *shake([share] * rounds, share / 3)]
    return TrainingHistory(
        rounds=list(steps),
        served=[33] if rounds > 33 else [rounds],
        curves={
            "test_accuracy": shake(up, 0.004),
            "train_accuracy": shake(up, 0.001),
            "test_violation": [abs(v) for v in shake(down, 0.004)],
            "train_violation": [abs(v) for v in shake(down, 0.001)],
        },
        multipliers={
            "demographic parity, sex = Female": [-0.01 * i for i in steps],
            "demographic parity, sex = Male": [0.005 * i for i in steps],
        },
        conflicts=[None, *(rng.randrange(4) for _ in range(rounds))],
        coefficients=coefficients,
        set_aside=[],
    )


def compared(rng):
    def model(name, kind, accuracy, violation, worst, **more):
        return ComparedModel(
            name=name,
            kind=kind,
            same_rows=more.get("same_rows", True),
            note=more.get("note", ""),
            numbers={
                "accuracy": measured("accuracy", accuracy, 0.007),
                GOAL: measured(GOAL, violation, 0.01, 0.0042),
                "worst_client_accuracy": measured("worst_client_accuracy", worst, 0.02),
                "roc_auc": measured("roc_auc", accuracy + 0.03, 0.008),
            },
        )

    return [
        model("mfairfl", "this", 0.858, 0.0114, 0.838),
        model("fedavg", "run", 0.866, 0.0981, 0.842),
        model("constant classifier", "constant", 0.761, 0.0, 0.717, note="Refuses everyone."),
        model("boosting on pooled rows", "reference", 0.873, 0.105, 0.85, same_rows=False),
    ]


def changes(clients):
    rows = [
        Change(part="all", whom="", number="accuracy", before=0.866, after=0.858, change=-0.008),
        Change(part="group", whom="sex: Female", number="selection_rate", before=0.074,
               after=0.16, change=0.086),
        Change(part="group", whom="sex: Male", number="selection_rate", before=0.252,
               after=0.177, change=-0.075),
    ]  # fmt: skip
    return rows + [
        Change(part="client", whom=name, number="accuracy", before=0.86 + 0.002 * i,
               after=0.855 + 0.001 * i, change=-0.005 - 0.001 * i)
        for i, name in enumerate(clients)
    ]  # fmt: skip


def treatment(clients):
    return DataTreatment(
        rows=48842,
        clients=[
            ClientRows(
                name=name, rows=rows * 5, train=rows * 4, validation=0, test=rows, base_rate=0.24
            )
            for name, rows in clients.items()
        ],
        dropped=["Columns without a role, left out: fnlwgt, education."],
        filled=["Column workclass: 2,799 of 48,842 values were missing, kept as the level '?'."],
        merged=["Column native-country: 12 values with fewer than 10 rows each became 'other'."],
        notes=["Read from the bundled files."],
        warnings=["Column capital-gain: 92 % of the values are 0."],
    )


def provenance(run="demo"):
    return Provenance(
        run=run,
        identity="7c43bebc38b72b5e237dbe8a1ff3f052bee3945aad63aacdd55a14c63102c8fe",
        strategy="mfairfl",
        settings={
            "seed": 0,
            "training.rounds": 40,
            "training.lr": 0.004,
            "model.hidden": [64, 64],
            "fairness.notion": ["demographic_parity"],
            "task": None,
        },
        seed=0,
        data={"name": "adult", "sha256": "4b73a16de3b9" * 5, "rows": 48842},
        files={"run.json": "ab" * 32, "model.safetensors": "cd" * 32, "encoder.json": "ef" * 32},
        versions={"python": "3.11.7", "mfairfl": "0.5.0", "torch": "2.13.0"},
        machine={"system": "Linux", "machine": "x86_64"},
    )


def judgement(outcome="too few rows to tell", tolerance=0.02, sentence=""):
    return Judgement(
        measure=measured(GOAL, 0.0114, 0.0102, 0.0042),
        tolerance=tolerance,
        outcome=outcome,
        sentence=sentence or f"Demographic parity on sex: {outcome}.",
    )


def rich_report(outcome="too few rows to tell", tolerance=0.02, rounds=40):
    """Two attributes, five clients, forty rounds, a baseline and references."""
    rng = Random(13)
    clients = {f"client-{i}": rows for i, rows in enumerate((2272, 2936, 2283, 1301, 977), 1)}
    races = {"Amer-Indian-Eskimo": 95, "Asian-Pac-Islander": 305, "Black": 940, "Other": 81,
             "White": 8348}  # fmt: skip
    return Document(
        kind="report",
        mfairfl="0.5.0",
        split="test",
        level=0.95,
        goal=[GOAL],
        headline=Headline(
            title="mfairfl on adult: who gets income >50K?",
            what="A model that decides who gets income = >50K was trained with mfairfl for 5 "
            "clients on 48,842 rows, so that women and men are selected equally often.",
            verdict="The largest acceptable violation was set to 2.00 percentage points before "
            "training; the interval from 0.12 to 2.16 points reaches beyond it, so there are too "
            "few rows to tell.",
            cost="Against FedAvg, accuracy fell by 0.8 points overall, most for client-5 (0.9 "
            "points), and by 2.2 points for men.",
            worse="5 numbers are worse than under fedavg by more than chance explains, most of "
            "all the equalized odds violation between groups of sex: 4.2 to 26.8 points.",
            worsened=worsened(),
            judgements=[judgement(outcome, tolerance)],
            warnings=[
                "The violation's interval reaches beyond the tolerance: 9,769 rows are too few.",
                "Group race: Other has 81 rows; its rates are uncertain by 10 points or more.",
            ],
        ),
        overall=[
            measured("accuracy", 0.8581, 0.007),
            measured("balanced_accuracy", 0.7563, 0.01),
            measured("roc_auc", 0.8824, 0.008),
            measured(GOAL, 0.0114, 0.0102, 0.0042),
            measured("client_accuracy_gap", 0.0468, 0.033, 0.0197),
            measured("worst_client_accuracy", 0.8384, 0.02),
            measured("expected_calibration_error", 0.0208, None),
        ],
        sections=[
            section("sex", {"Female": 3239, "Male": 6530}, rng),
            section("race", races, rng),
        ],
        clients=[client(name, rows, rng) for name, rows in clients.items()],
        compared=compared(rng),
        changes=changes(clients),
        baseline="fedavg",
        training=training_history(clients, rng, rounds),
        data=treatment(clients),
        group_use=GroupUse(
            reads_group=True,
            sentence="Decisions read the group: sex and race are inputs of the model.",
            details=["With sex swapped, 3.1 % of the decisions change."],
        ),
        server=ServerView(
            sentence="The rows stayed with the silos.",
            lines=list(manifest(describe("mfairfl"))),
        ),
        withheld=[
            Withheld(
                client=name,
                min_rows=10,
                sets=[f"train rows, race = {race}, favourable label" for race in list(races)[:i]],
                rows={"train": 3 * i, "test": i} if i else {},
                policy_sha256="5a" * 32,
            )
            for i, name in enumerate(clients)
        ],
        provenance=provenance(),
        definitions=definitions(),
    )


def poor_report():
    """One client, no group, no value: whatever can be missing is missing."""
    nothing = Measured(name="accuracy", value=None, undefined="no rows with a label")
    return Document(
        kind="report",
        mfairfl="0.5.0",
        split="train",
        level=0.95,
        goal=[],
        headline=Headline(
            title="fedavg on rows.csv",
            what="A model was trained for 1 client.",
            verdict="No tolerance was set before training, so there is no verdict.",
            cost="What fairness cost is not known: there is no baseline.",
            judgements=[],
            warnings=[],
        ),
        overall=[nothing],
        sections=[],
        clients=[Slice(name="only", rows=0, numbers={"accuracy": nothing})],
        compared=[
            ComparedModel(
                name="fedavg", kind="this", same_rows=True, numbers={"accuracy": nothing}
            )
        ],
        changes=[],
        training=TrainingHistory(
            rounds=[0], served=[], curves={"test_accuracy": [None]}, multipliers={},
            conflicts=[], coefficients={}, set_aside=[],
        ),
        data=DataTreatment(
            rows=0, clients=[], dropped=[], filled=[], merged=[], notes=[], warnings=[]
        ),
        group_use=GroupUse(reads_group=False, sentence="Decisions do not read it.", details=[]),
        server=ServerView(sentence="What crossed is not known."),
        provenance=provenance().model_copy(
            update={"settings": {}, "data": {}, "files": {}, "versions": {}, "machine": {}}
        ),
    )  # fmt: skip


def hostile_report(count=60, rounds=40):
    """Names that would break a page: markup, quotes, other directions, no spaces; 60 clients."""
    rng = Random(7)
    names = [*HOSTILE, *(f"silo {i:02d}" for i in range(count - len(HOSTILE)))]
    clients = {name: 40 + 31 * i for i, name in enumerate(names)}
    base = rich_report(rounds=rounds)
    headline = base.headline.model_copy(
        update={
            "title": f"{HOSTILE[0]} on {HOSTILE[5]}",
            "what": " ".join(HOSTILE),
            "warnings": list(HOSTILE),
            "judgements": [judgement(sentence=HOSTILE[0]), judgement("not met", 0.001)],
        }
    )
    training = training_history(clients, rng, rounds).model_copy(
        update={
            "multipliers": {name: [0.01 * i] * (rounds + 1) for i, name in enumerate(HOSTILE)},
            "set_aside": list(HOSTILE),
        }
    )
    return base.model_copy(
        update={
            "headline": headline,
            "sections": [
                section(HOSTILE[0], {name: 200 + i for i, name in enumerate(HOSTILE)}, rng)
            ],
            "clients": [client(name, rows, rng) for name, rows in clients.items()],
            "compared": [
                base.compared[0].model_copy(update={"name": name, "note": name})
                for name in HOSTILE
            ],
            "changes": changes(clients),
            "baseline": HOSTILE[0],
            "training": training,
            "data": treatment(clients).model_copy(update={"dropped": list(HOSTILE)}),
            "server": ServerView(sentence=HOSTILE[0], lines=base.server.lines),
            "withheld": [
                base.withheld[-1].model_copy(update={"client": name, "sets": list(HOSTILE)})
                for name in HOSTILE
            ],
            "provenance": provenance(HOSTILE[5]).model_copy(
                update={"settings": {name: name for name in HOSTILE}}
            ),
        }
    )


def audit_rows(count=4000, seed=3, favour=0.4):
    """Decisions on invented people: two attributes, three clients, scores, gaps in all of it."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["Female", "Male", "?"], count, p=[0.4, 0.57, 0.03])
    races = [
        "White",
        "Black",
        "Hispanic or Latino",
        "Asian",
        "Native Hawaiian or Pacific Islander",
    ]
    race = rng.choice([*races, "?"], count, p=[0.55, 0.18, 0.14, 0.08, 0.01, 0.04])
    merit = rng.normal(size=count)
    labels = (merit + rng.normal(size=count) > 0.5).astype(object)
    labels[rng.random(count) < 0.05] = None
    scores = 1 / (1 + np.exp(-(merit + favour * (sex == "Male") - 0.3 * (race == "Black") - 0.3)))
    return {
        "y_true": labels,
        "y_pred": (scores > 0.5).astype(int),
        "sensitive_features": {"sex": sex, "race": race},
        "clients": rng.choice(["north", "south", "west"], count),
        "scores": np.round(scores, 2),
    }


@cache
def rich_audit():
    """Tables for sex and race, a sweep, clients, unknown rows, and an earlier audit."""
    settings = AuditSettings(
        tolerance=0.05,
        notions=("demographic_parity", "equal_opportunity"),
        sex="sex",
        race="race",
        meaning=AuditMeaning(label="hired", favourable="yes", score="score", threshold=0.5),
        facts=AuditFacts(tool="ranker 2", audit_date="2026-01-31", data_kind="historical"),
        small_categories="Fewer than 100 people: the ratio would be noise.",
    )
    source = AuditSource(
        name="decisions.csv",
        rows=4100,
        sha256="ab" * 32,
        left_out={"no decision": 100},
        notes=["';' separates the columns"],
    )
    earlier = build_audit(AuditCounts.from_rows(**audit_rows(3000, seed=9, favour=1.2)), settings)
    counts = AuditCounts.from_rows(**audit_rows())
    return build_audit(counts, settings, sources=[source], baseline=earlier)


def poor_audit():
    """No label, no score, one group, one client, no tolerance."""
    counts = AuditCounts.from_rows(
        None, [1, 1, 0], sensitive_features={"group": ["all", "all", "all"]}
    )
    return build_audit(counts, AuditSettings())


@cache
def hostile_audit():
    """Names that would break a page."""
    names = [HOSTILE[i % len(HOSTILE)] for i in range(800)]
    counts = AuditCounts.from_rows(
        None,
        [int(i % 3 == 0) for i in range(800)],
        sensitive_features={SCRIPT: names, "sex": [f"{n} & co" for n in names]},
        clients=names[1:] + names[:1],
    )
    facts = AuditFacts(tool=SCRIPT, data_source=" ".join(HOSTILE))
    settings = AuditSettings(tolerance=0.01, sex="sex", race=SCRIPT, facts=facts)
    sources = [AuditSource(name=name, rows=1, notes=[name]) for name in HOSTILE]
    return build_audit(counts, settings, sources=sources)
