"""The two values of a label, however a file spells them."""

from __future__ import annotations

from collections.abc import Iterable

from mfairfl.data.task import Task

__all__ = ["ORDERED_LABELS", "label_codes", "spelling"]

ORDERED_LABELS = (["0", "1"], ["-1", "1"], ["False", "True"], ["false", "true"])
"""Labels whose second value is the favourable one, whatever they are about."""

_TRUE = frozenset({"true", "yes", "y", "t", "1"})
_FALSE = frozenset({"false", "no", "n", "f", "0"})


def spelling(text: str) -> str:
    """Return what a label says, whatever its case: true, True, yes and 1 are one answer.

    Examples
    --------
    >>> spelling("Yes"), spelling("1"), spelling(">50K")
    ('true', 'true', '>50k')
    """
    plain = text.casefold()
    return "true" if plain in _TRUE else "false" if plain in _FALSE else plain


def label_codes(found: Iterable[str], task: Task) -> dict[str, int]:
    """Return 1 for every text that is the favourable label and 0 for every other that is known.

    Texts are compared as they are. Where that does not make two values of them, spellings of one
    answer are taken together: true, True, 1 and yes are told apart only where they differ. Texts
    that are neither value have no code.

    Examples
    --------
    >>> task = Task(label="hired", favourable="true", sensitive=("sex",))
    >>> label_codes(["1", "False", "True", "no"], task)
    {'1': 1, 'False': 0, 'True': 1, 'no': 0}
    >>> label_codes(["1", "yes"], task.model_copy(update={"favourable": "yes"}))
    {'1': 0, 'yes': 1}
    """
    texts = sorted(set(found))
    exact = _codes({text: text for text in texts}, task.favourable, task.unfavourable, task)
    folded = {text: spelling(text) for text in texts}
    other = None if task.unfavourable is None else spelling(task.unfavourable)
    if len(exact) == len(texts) or other == spelling(task.favourable):
        return exact
    alike = _codes(folded, spelling(task.favourable), other, task)
    return alike if len(alike) == len(texts) else exact


def _codes(
    said: dict[str, str], favourable: str, unfavourable: str | None, task: Task
) -> dict[str, int]:
    """Code each text by what it says, as long as there are two values in all."""
    others = {what for what in said.values() if what != favourable}
    if favourable not in said.values() and unfavourable is None:
        return {}
    if task.others_unfavourable:
        known = others
    elif unfavourable is not None:
        known = others & {unfavourable}
    else:
        known = others if len(others) == 1 else set()
    return {
        text: int(what == favourable)
        for text, what in said.items()
        if what == favourable or what in known
    }
