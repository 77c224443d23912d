"""The options of an audit, stated once.

They are the flags of `mfairfl audit` and `mfairfl deploy audit` (with hyphens), and short names of
the keys of `RowOptions` and `AuditRequest`, which the keywords of `mfairfl.audit` and the section
``[audit]`` of federation.toml use. `mfairfl.report.audit_settings` checks their values.
"""

from __future__ import annotations

from mfairfl.runs.options import Option

_COLUMNS = "Columns"
_STANDARD = "Audit"
_TABLES = "Tables in the form of 6 RCNY §5-301"

AUDIT_OPTIONS = {
    "prediction": Option("prediction", "text", "Column of decisions.", _COLUMNS),
    "label": Option("label", "text", "Column of true outcomes, where known.", _COLUMNS),
    "score": Option("score", "text", "Column of scores.", _COLUMNS),
    "sensitive": Option(
        "sensitive", "names", "Columns of groups; may be repeated.", _COLUMNS, repeated=True
    ),
    "favourable": Option(
        "favourable",
        "text",
        "Label (and decision) that is good for a person; detected if 0/1.",
        _COLUMNS,
    ),
    "selected": Option(
        "selected", "text", "Decision that is good, if written differently from labels.", _COLUMNS
    ),
    "threshold": Option(
        "threshold",
        "number",
        "Without --prediction: scores above it are favourable decisions.",
        _COLUMNS,
    ),
    "score_range": Option(
        "score_range", "range", "Lowest and highest possible score; 0,1 if omitted.", _COLUMNS
    ),
    "notion": Option(
        "notions",
        "names",
        "Notions for the verdict: dp, eo, eopp, ap; may be repeated.",
        _STANDARD,
        repeated=True,
    ),
    "tolerance": Option(
        "tolerance", "number", "Largest acceptable violation; without it no verdict.", _STANDARD
    ),
    "level": Option(
        "level", "number", "Confidence level of intervals; 0.95 if omitted.", _STANDARD
    ),
    "sex": Option("sex", "text", "Column of the sex.", _TABLES),
    "race": Option("race", "text", "Column of race and ethnicity.", _TABLES),
    "small_categories": Option(
        "small_categories",
        "text",
        "Why categories under 2 % of the rows are left out of ratios; without it none is.",
        _TABLES,
    ),
    "tool": Option("facts.tool", "text", "Name of the tool that made the decisions.", _TABLES),
    "data_source": Option(
        "facts.data_source", "text", "Where the data come from, and why these.", _TABLES
    ),
    "data_kind": Option(
        "facts.data_kind",
        "text",
        "historical, of people the tool was used on, or test.",
        _TABLES,
    ),
    "distribution_date": Option(
        "facts.distribution_date", "text", "Since when the tool has been in use.", _TABLES
    ),
    "audit_date": Option(
        "facts.audit_date", "text", "Date of the audit; today if omitted.", _TABLES
    ),
}
"""Of any audit, by the flag's name with underscores."""

ROW_OPTIONS = {
    "client": Option("client", "text", "Column of the client or site of each row.", _COLUMNS),
    "bins": Option(
        "bins", "cuts", "Groups of a column of numbers: age=40,60.", _COLUMNS, repeated=True
    ),
    "unknown": Option(
        "unknown",
        "text",
        "Value that means `not known`; repeatable.",
        _COLUMNS,
        repeated=True,
    ),
    "split": Option(
        "split",
        "text",
        "Rows to audit, by the column split that `mfairfl predict` writes: test, validation, "
        "train or all; without it train rows are refused.",
        _COLUMNS,
    ),
}
"""Of an audit of rows on this machine, in addition."""
