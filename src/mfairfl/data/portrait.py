"""Show a federation's summary: a text table and a figure that survives a black-and-white print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mfairfl.errors import DataError

__all__ = ["draw", "write_text"]


def write_text(summary: dict[str, Any]) -> str:
    """Write one line a client: sizes, favourable share, and for each group share and base rate.

    Examples
    --------
    >>> group = {"rows": 4, "share": 1.0, "favourable": 1, "base_rate": 0.25}
    >>> client = {"name": "a", "train": 3, "validation": 0, "test": 1, **group}
    >>> client["attributes"] = {"sex": {"Female": group}}
    >>> facts = {"table": "t", "scheme": "iid", "seed": 0, "features": 2}
    >>> facts |= {"notes": [], "warnings": []}
    >>> print(write_text({**facts, "clients": [client]}))
    t: 4 rows, 2 features, 1 clients, scheme iid, seed 0
    share of the client's rows (base rate in brackets), '-' where undefined
    client  train  validation  test  favourable  sex Female
    a           3           0     1      25.0 %  100.0 % (25.0 %)
    """
    clients = summary["clients"]
    groups = [(a, g) for a, of in clients[0]["attributes"].items() for g in of]
    head = ["client", "train", "validation", "test", "favourable"]
    lines = [head + [f"{attribute} {group}" for attribute, group in groups]]
    for client in clients:
        line = [client["name"], *(f"{client[p]:,}" for p in ("train", "validation", "test"))]
        line.append(_percent(client["base_rate"]))
        for attribute, group in groups:
            cell = client["attributes"][attribute][group]
            line.append(f"{_percent(cell['share'])} ({_percent(cell['base_rate'])})")
        lines.append(line)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = sum(client["rows"] for client in clients)
    text = [
        f"{summary['table']}: {rows:,} rows, {summary['features']} features, "
        f"{len(clients)} clients, scheme {summary['scheme']}, seed {summary['seed']}",
        "share of the client's rows (base rate in brackets), '-' where undefined",
    ]
    for line in lines:
        left = range(len(line))
        cells = [
            line[i].rjust(widths[i]) if 0 < i < len(head) else line[i].ljust(widths[i])
            for i in left
        ]
        text.append("  ".join(cells).rstrip())
    text += [f"note: {note}" for note in summary["notes"]]
    return "\n".join([*text, *(f"warning: {warning}" for warning in summary["warnings"])])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def draw(summary: dict[str, Any], path: Path) -> None:
    """Draw each client's rows by group, one panel an attribute; hatched = favourable label."""
    # Loaded here: drawing is rare, and the library takes longer to load than the whole package.
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    clients = summary["clients"]
    names = [client["name"] for client in clients]
    attributes = list(clients[0]["attributes"])
    size = (3 + 4.0 * len(attributes), 1.8 + 0.35 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(attributes), squeeze=False)[0]
    for panel, attribute in zip(panels, attributes, strict=True):
        groups = list(clients[0]["attributes"][attribute])
        greys = [str(0.95 - 0.6 * i / max(len(groups) - 1, 1)) for i in range(len(groups))]
        left = [0] * len(names)
        for group, grey in zip(groups, greys, strict=True):
            cells = [client["attributes"][attribute][group] for client in clients]
            good = [cell["favourable"] for cell in cells]
            other = [cell["rows"] - cell["favourable"] for cell in cells]
            for count, hatch in ((good, "////"), (other, "")):
                panel.barh(names, count, left=left, color=grey, edgecolor="black", hatch=hatch)
                left = [a + b for a, b in zip(left, count, strict=True)]
        keys = [Patch(facecolor=grey, edgecolor="black") for grey in greys]
        keys.append(Patch(facecolor="white", edgecolor="black", hatch="////"))
        panel.legend(keys, [*groups, "favourable label"], fontsize="small")
        panel.set_title(f"{summary['table']}, {summary['scheme']}: {attribute}")
        panel.set_xlabel("rows")
        panel.invert_yaxis()
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot draw into {path}: {str(error).splitlines()[0]}") from error
