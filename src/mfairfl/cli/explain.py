"""`mfairfl explain` and `mfairfl strategies`: what a word of the results means, and a method."""

from dataclasses import asdict
from inspect import getdoc, getmodule

import typer

from mfairfl.cli.flags import Json
from mfairfl.cli.show import print_json, print_rows, print_text, say
from mfairfl.errors import ConfigError
from mfairfl.runs.options import dotted


def explain(
    word: list[str] | None = None,
    *,
    json: Json = False,
) -> None:
    """Explain a word in plain terms: violation, noise floor, conflicts, select, a method ...

    Without a word, all of them are listed with a one-sentence meaning. Capitals, spaces,
    hyphens and underscores do not matter.

    Parameters
    ----------
    word
        A word of the results, a number's name, a notion or a method.

    Examples
    --------
    mfairfl explain noise-floor
    mfairfl explain equalized_odds_ratio
    mfairfl explain
    """
    from mfairfl import glossary  # noqa: PLC0415 - only when called

    if word:
        entry = glossary.explain(" ".join(word))
        if json:
            print_json(asdict(entry))
            return
        typer.echo(f"{entry.name}\n")
        print_text(entry.short)
        typer.echo()
        print_text(entry.text)
        typer.echo()
        print_text(f"see: {', '.join(entry.see)}")
        return
    entries = glossary.entries()
    if json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = [[entry.name, entry.short] for entry in entries]
    print_rows(["word", "meaning"], rows, wrap=[1])


def strategies(name: str | None = None, *, json: Json = False) -> None:
    """List the methods: paper, what each protects, what the server sees; or explain one.

    Methods of other installed packages are listed too.

    Parameters
    ----------
    name
        Explain one method in full; also package.module:Name.

    Examples
    --------
    mfairfl strategies
    mfairfl strategies --json
    """
    if name is None:
        _list_strategies(as_json=json)
    else:
        _explain_strategy(name, as_json=json)


def _list_strategies(*, as_json: bool) -> None:
    from mfairfl.strategies import available, describe  # noqa: PLC0415

    cards = {}
    for name in available():
        try:
            cards[name] = describe(name)
        except ConfigError as error:  # another package's method, which does not load
            say(f"warning: {name} is left out: {error}")
    if as_json:
        print_json([{"name": name, **asdict(card)} for name, card in cards.items()])
        return
    updates = {"sums": "sums", "individual": "updates"}
    rows = []
    for name, card in cards.items():
        seen = "rows" if card.trains_on == "pooled" else updates[card.reveals]
        rows.append([name, card.title, card.paper, card.protects, seen])
    heads = ["name", "method", "paper", "protects", "sees"]
    print_rows(heads, rows, wrap=[1, 2, 3])
    print_text(
        "sees: what the server must see; for sums, a secure sum of the updates is enough. "
        "`mfairfl strategies NAME` explains a method."
    )


def _explain_strategy(name: str, *, as_json: bool) -> None:
    """Print a method's rule, its hyper-parameters, and what the server sees."""
    from mfairfl.runs.manifest import manifest  # noqa: PLC0415
    from mfairfl.strategies import create, describe, grids  # noqa: PLC0415

    strategy, card, tuned = create(name), describe(name), grids(name)
    values = {
        key: {"default": value, "grid": list(tuned.get(key, ()))}
        for key, value in dotted(asdict(strategy)).items()  # type: ignore[call-overload]
    }
    seen = manifest(card)
    if as_json:
        lines = [line.model_dump(mode="json") for line in seen]
        plain = {"name": name, **asdict(card), "server_sees": lines}
        print_json(plain | {"hyper_parameters": values})
        return
    typer.echo(f"{name}: {card.title} ({card.paper})\n\n{getdoc(getmodule(strategy))}\n")
    typer.echo(f"{getdoc(type(strategy))}\n")
    rows = [
        [f"strategy.{key}", str(value["default"]), ", ".join(map(str, value["grid"]))]
        for key, value in values.items()
    ]
    print_rows(["hyper-parameter", "default", "tuned over"], rows, wrap=[2])
    typer.echo("What the server sees of each client, with the usual settings:")
    for line in seen:
        print_text(f"- {line.sentence}")
