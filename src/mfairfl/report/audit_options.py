"""The options of an audit, stated once.

They are the flags of `mfairfl audit` and `mfairfl deploy audit` (with hyphens), and short names of
the keys of `RowOptions` and `AuditRequest`, which the keywords of `mfairfl.audit` and the section
``[audit]`` of federation.toml use. `mfairfl.report.audit_settings` checks their values.
"""

from collections.abc import Mapping

from mfairfl.runs.options import Kind, Option

_FACTS = ("tool", "data_source", "data_kind", "distribution_date", "audit_date")
_KEYS = {"notion": "notions"} | {name: f"facts.{name}" for name in _FACTS}  # else the flag's name
_REPEATED = ("sensitive", "notion", "bins", "unknown")
_AUDIT: dict[str, dict[str, tuple[Kind, str]]] = {
    "Columns": {
        "prediction": ("text", "Column of decisions."),
        "label": ("text", "Column of true outcomes, where known."),
        "score": ("text", "Column of scores."),
        "sensitive": ("names", "Columns of groups; may be repeated."),
        "favourable": ("text", "Label (and decision) that benefits a person; detected if 0/1."),
        "selected": ("text", "Favourable decision, if written differently from the label."),
        "threshold": ("number", "Without --prediction: scores above it are favourable decisions."),
        "score_range": ("range", "Lowest and highest possible score; 0,1 if omitted."),
    },
    "Audit": {
        "notion": ("names", "Notions for the verdict: dp, eo, eopp, ap; may be repeated."),
        "tolerance": ("number", "Largest acceptable violation; without it there is no verdict."),
        "level": ("number", "Confidence level of intervals; 0.95 if omitted."),
    },
    "Tables in the form of 6 RCNY §5-301": {
        "sex": ("text", "Column of the sex."),
        "race": ("text", "Column of race and ethnicity."),
        "small_categories": (
            "text",
            "Why categories under 2 % of the rows are left out of ratios; by default none are.",
        ),
        "tool": ("text", "Name of the tool that made the decisions."),
        "data_source": ("text", "Where the data come from, and why they were chosen."),
        "data_kind": ("text", "historical, of people the tool was used on, or test."),
        "distribution_date": ("text", "Since when the tool has been in use."),
        "audit_date": ("text", "Date of the audit; today if omitted."),
    },
}
_ROWS: dict[str, dict[str, tuple[Kind, str]]] = {
    "Columns": {
        "client": ("text", "Column of the client or site of each row."),
        "bins": ("cuts", "Groups of a column of numbers: age=40,60."),
        "unknown": ("text", "Value that means `not known`; may be repeated."),
        "split": (
            "text",
            "Rows to audit, by the column split that `mfairfl predict` writes: test, validation, "
            "train or all; without it train rows are refused.",
        ),
    }
}


def _options(panels: Mapping[str, Mapping[str, tuple[Kind, str]]]) -> dict[str, Option]:
    return {
        name: Option(_KEYS.get(name, name), kind, text, panel, name in _REPEATED)
        for panel, options in panels.items()
        for name, (kind, text) in options.items()
    }


AUDIT_OPTIONS = _options(_AUDIT)
"""Of any audit, by the flag's name with underscores."""

ROW_OPTIONS = _options(_ROWS)
"""Of an audit of rows on this machine, in addition."""
