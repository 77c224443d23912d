"""The page of both suites: results/attacks.md, from the lines of results/attacks.csv."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from attacks.lies import ATTACKS
from attacks.suite import ROUNDS
from attacks.tables import AttackLine

FOLDER = Path(__file__).parent
MOST = 0.03  # accuracy lost, or violation gained, under an attack that is meant to be harmless
COST = {"accuracy": 0.005, "violation": 0.01, "worst": 0.01}  # without attack, upper limits
DATA = ("compas", "adult", "bank")
BOTH, PLAIN = ("fedavg", "mfairfl"), ("none", "auto")


def page(found: Sequence[AttackLine]) -> str:
    """Return the page's text."""
    core = [line for line in found if _is_core(line)]
    text = (FOLDER / "page_template.md").read_text(encoding="utf-8")
    return Template(text).substitute(
        rounds=ROUNDS,
        seeds=max(line.seeds for line in core),
        verdict=_verdict(core),
        cost=_cost(core),
        core="\n\n".join(_core(core, data, s) for data in DATA for s in BOTH),
        rules=_rules([*core, *found]),
        methods=_methods(found),
        numbers=_numbers(found),
        skewed=_skewed(found),
    )


def _is_core(line: AttackLine) -> bool:
    s = line.setting
    own = s.strategy in BOTH and s.robust in PLAIN
    return own and (s.liars, s.clients, s.split) == (2, 10, "high")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    shown = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in shown)


def _verdict(core: Sequence[AttackLine]) -> str:
    """Say which bounded attacks are harmless to mFairFL with `auto`, and which are not."""
    mine = [
        line
        for line in core
        if (line.setting.strategy, line.setting.robust) == ("mfairfl", "auto")
        and ATTACKS[line.attack].bounded
        and not ATTACKS[line.attack].honest
    ]
    winning = [f"{ATTACKS[x.attack].title} on {x.setting.data}" for x in mine if not x.harmless()]
    held = len(mine) - len(winning)
    said = f"{held} of {len(mine)} attacks (each on each data set) are\nharmless by this rule"
    said += f"; these are not: {', '.join(winning)}." if winning else "."
    worst = max(mine, key=lambda line: line.changes["violation"].mean)
    name = f"{ATTACKS[worst.attack].title} on {worst.setting.data}"
    return f"{said}\nThe largest rise of the violation is {worst.changes['violation']} ({name})."


def _cost(core: Sequence[AttackLine]) -> str:
    """Return what `auto` costs without attack: the upper limit of what is lost."""
    rows = []
    for line in core:
        s = line.setting
        if line.attack == "none" and s.robust == "auto":
            upper = {
                "accuracy": -line.changes["accuracy"].low,
                "violation": line.changes["violation"].high,
                "worst": -line.changes["worst"].low,
            }
            cells = [f"{upper[m] + 0.0:.4f} {_mark(upper[m] <= most)}" for m, most in COST.items()]
            rows.append([s.data, s.strategy, *cells, f"{line.honest_out:.1%}"])
    limits = [f"{name} (at most {most})" for name, most in COST.items()]
    return _table(["data", "method", *limits, "honest clients set aside"], rows)


def _mark(holds: bool) -> str:
    return "✓" if holds else "✗"


def _core(core: Sequence[AttackLine], data: str, strategy: str) -> str:
    """Return the table of one data set and method: each attack without and with defence."""
    own = {
        (line.attack, line.setting.robust): line
        for line in core
        if (line.setting.data, line.setting.strategy) == (data, strategy)
    }
    rows = []
    for name, attack in ATTACKS.items():
        if (name, "none") not in own:
            continue
        none, auto = own[name, "none"], own[name, "auto"]
        harmless = "" if attack.honest or not attack.bounded else _mark(auto.harmless(MOST))
        rows.append(
            [
                attack.title,
                _three(none),
                _three(auto),
                str(auto.changes["accuracy"]),
                str(auto.changes["violation"]),
                str(auto.changes["worst"]),
                f"{auto.liars_out:.0%} / {auto.honest_out:.0%}",
                harmless,
            ]
        )
    head = ["attack", "none", "auto", "Δ accuracy", "Δ violation", "Δ worst", "out", "harmless"]
    return f"### {data}, {strategy}\n\n{_table(head, rows)}"


def _three(line: AttackLine) -> str:
    if line.ended == line.seeds:
        return "ended"
    said = " / ".join(f"{line.means[name]:.3f}" for name in line.means)
    return said + (f" ({line.ended} ended)" if line.ended else "")


def _side_by_side(found: Sequence[AttackLine], columns: Sequence[str], key: str) -> str:
    """Return attacks as rows and settings as columns: accuracy / violation of the honest."""
    known = {(line.attack, getattr(line.setting, key)): line for line in found}
    rows = []
    for name, attack in ATTACKS.items():
        if any((name, column) in known for column in columns):
            cells = [
                _two(known[name, column]) if (name, column) in known else "" for column in columns
            ]
            rows.append([attack.title, *cells])
    return _table(["attack", *columns], rows)


def _two(line: AttackLine) -> str:
    if line.ended == line.seeds:
        return "ended"
    return f"{line.means['accuracy']:.3f} / {line.means['violation']:.3f}"


def _chosen(found: Sequence[AttackLine], **wanted: object) -> list[AttackLine]:
    usual = {"data": "compas", "liars": 2, "clients": 10, "split": "high"} | wanted
    return [line for line in found if all(getattr(line.setting, k) == v for k, v in usual.items())]


def _rules(found: Sequence[AttackLine]) -> str:
    rules = ("none", "clip", "nnm-gm", "multi-krum", "centred-clip", "auto")
    return "\n\n".join(
        f"**{s}**\n\n{_side_by_side(_chosen(found, strategy=s), rules, 'robust')}" for s in BOTH
    )


def _methods(found: Sequence[AttackLine]) -> str:
    return "\n\n".join(
        f"**{s}**\n\n{_side_by_side(_chosen(found, strategy=s), PLAIN, 'robust')}"
        for s in ("fpfl", "fedfb")
    )


def _numbers(found: Sequence[AttackLine]) -> str:
    parts = []
    for liars, clients in ((1, 5), (1, 10), (4, 10)):
        for strategy in BOTH:
            own = _chosen(found, strategy=strategy, liars=liars, clients=clients)
            title = f"**{strategy}, {liars} of {clients}**"
            parts.append(f"{title}\n\n{_side_by_side(own, PLAIN, 'robust')}")
    return "\n\n".join(parts)


def _skewed(found: Sequence[AttackLine]) -> str:
    return "\n\n".join(
        f"**{s}**\n\n"
        f"{_side_by_side(_chosen(found, strategy=s, split='dirichlet'), PLAIN, 'robust')}"
        for s in BOTH
    )
