"""policy.toml: what it may hold, and that honest requests of every method stay within it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import federations as fed
from mfairfl.engine.output import Output
from mfairfl.engine.state import Train
from mfairfl.errors import ConfigError
from mfairfl.silo.policy import KINDS, Disclosure, Limits, Policy, load_policy, policy_text
from mfairfl.silo.refusals import refuse_absurd, refuse_excess
from mfairfl.silo.silo_file import load_silo
from mfairfl.strategies import available, create
from mfairfl.training.plan import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
PEOPLE = fed.people_federation()


def written(tmp_path, text):
    (tmp_path / "policy.toml").write_text(text)
    return tmp_path / "silo.toml"


def test_a_file_beside_the_silo_s_own_sets_limits(tmp_path):
    found = load_policy(written(tmp_path, "[limits]\nepochs = 3\nseconds = 60\n")).limits
    assert (found.epochs, found.seconds, found.jobs) == (3, 60, Limits().jobs)


def test_without_a_file_the_defaults_hold(tmp_path):
    assert load_policy(tmp_path / "silo.toml") == Policy()
    assert load_policy(written(tmp_path, "")) == Policy()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[limits]\nepoch = 3\n", "unknown key 'limits.epoch': did you mean 'limits.epochs'?"),
        ("[limit]\nepochs = 3\n", "unknown key 'limit': did you mean 'limits'?"),
        ("epochs = 3\n", "unknown key 'epochs'"),
        ('[limits]\nepochs = "3"\n', "limits.epochs: Input should be a valid integer (got '3')"),
        ("[limits]\nepochs = 2.5\n", "limits.epochs: Input should be a valid integer (got 2.5)"),
        ("[limits]\njobs = true\n", "limits.jobs: Input should be a valid integer (got True)"),
        ("[limits]\nsteps = 0\n", "limits.steps: Input should be greater than or equal to 1"),
        ("[limits]\nseconds = inf\n", "limits.seconds: Input should be a valid integer (got inf)"),
        ("[limits]\nmegabytes = -1\n", "limits.megabytes: Input should be greater than or equal"),
        (
            "[limits]\nmin_count = 3\n",
            "limits.min_count: it is min_rows under [disclosure] of policy.toml",
        ),
        ("[limits]\nmodels = 3\n", "limits.models: it is models under [disclosure]"),
        ('[disclosure]\nkinds = ["shell"]\n', "disclosure.kinds.0: Input should be 'profile'"),
        ("[disclosure]\nprice = 0\n", "disclosure.price: Input should be greater than 0"),
        ("[disclosure]\nversions = 0\n", "disclosure.versions: Input should be greater than"),
        ("[disclosure]\nsplit_seed = -1\n", "disclosure.split_seed: Input should be greater"),
        ("[disclosure]\nmasks = 1\n", "unknown key 'disclosure.masks'"),
        ("limits = 3\n", "limits: Input should be a valid dictionary or instance of Limits"),
        ("[limits\n", "(at line 1, column 8)"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_file_and_key(tmp_path, text, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        load_policy(written(tmp_path, text))
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'policy.toml'}: ")
    assert "\n" not in said


def test_min_count_in_a_silo_s_own_file_is_sent_to_the_policy(tmp_path):
    path = tmp_path / "silo.toml"
    path.write_text('name = "a"\ncsv = "a.csv"\nstate = "s"\nmin_count = 1\n')
    with pytest.raises(ConfigError) as caught:
        load_silo(path)
    assert str(caught.value) == (
        f"{path}: min_count: it is min_rows under [disclosure] of policy.toml"
    )


def test_a_written_policy_is_read_as_it_was_and_explains_every_key(tmp_path):
    policy = fed.policy(epochs=7, seconds=5, min_rows=3, kinds=("profile", "audit"), price=2.5)
    text = policy_text(policy)
    assert load_policy(written(tmp_path, text)) == policy
    assert tomllib.loads(text) == policy.model_dump(mode="json")
    lines = text.splitlines()
    for key in (*Limits.model_fields, *Disclosure.model_fields):
        (at,) = [i for i, line in enumerate(lines) if line.startswith(f"{key} = ")]
        assert lines[at - 1].startswith("# ")


def test_the_page_lists_every_key_with_its_default():
    rows = re.findall(r"^\| `(\w+)` \| ([\w,]+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    expected = [
        (key, shown(getattr(section, key)), field.description)
        for section in (Limits(), Disclosure())
        for key, field in type(section).model_fields.items()
    ]
    assert rows == expected


def shown(value):
    """A default as a reader finds it in a table."""
    if value == KINDS:
        return "all"
    return value if isinstance(value, str) else f"{value:,g}" if value < 10**5 else f"{value:,}"


@pytest.mark.parametrize("rows", ["0", "-1", '"10"', "2.5", "true"])
def test_a_floor_is_a_whole_number_from_1(tmp_path, rows):
    with pytest.raises(ConfigError, match=r"disclosure\.min_rows: Input should be"):
        load_policy(written(tmp_path, f"[disclosure]\nmin_rows = {rows}\n"))


# ------------------------------------------------------------------ honest requests


FEDERATED = [name for name in available() if create(name).card.trains_on == "clients"]
ROWS = 1_000_000  # of one silo: a large one


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("epochs", [2, 20])
def test_no_method_asks_for_more_than_the_defaults_allow(name, epochs):
    recipe = Recipe(local_epochs=epochs)
    setup = fed.setup_for(
        PEOPLE,
        name,
        rounds=4,
        output=Output(rule=create(name).card.output or "last"),
        **{key: getattr(recipe, key) for key in ("local_epochs", "batch_size", "lr")},
    )
    asked = 0
    for ask in fed.honest_asks(PEOPLE, setup):
        refuse_absurd(ask, fed.shape_of(PEOPLE, setup), PEOPLE.attributes)
        refuse_excess(ask, Policy(), ROWS)
        asked += 1
    assert asked >= 4 * len(fed.SITES)


@pytest.mark.parametrize("rule", ["mixture", "select", "thresholds"])
def test_no_output_rule_asks_for_more_than_the_defaults_allow(rule):
    output = Output(rule=rule, tolerance=0.02)
    batch = Recipe().batch_size
    setup = fed.setup_for(PEOPLE, "mfairfl", rounds=8, output=output, batch_size=batch)
    for ask in fed.honest_asks(PEOPLE, setup):
        refuse_absurd(ask, fed.shape_of(PEOPLE, setup), PEOPLE.attributes)
        refuse_excess(ask, Policy(), ROWS)


def test_a_schedule_that_ends_at_rate_0_is_honest():
    setup = fed.setup_for(PEOPLE, "fedavg", rounds=2, lr_final=0.0)
    trained = [ask for ask in fed.honest_asks(PEOPLE, setup) if isinstance(ask, Train)]
    assert min(ask.jobs[0].plan.optimizer.lr for ask in trained) == 0
    for ask in fed.honest_asks(PEOPLE, setup):
        refuse_absurd(ask, fed.shape_of(PEOPLE, setup), PEOPLE.attributes)


def test_the_longest_recipe_stays_within_the_requests_of_a_run():
    # 10 rounds × 20 epochs, each a server step of two requests; enrolment asks at most seven
    # times, and the end three times. Twenty restarts ask for one measurement each.
    assert Limits().requests >= 2 * 10 * 20 + 7 + 3 + 20
