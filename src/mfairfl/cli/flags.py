"""The flags that describe a run, from the table of `mfairfl.runs.options`, and what they set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import reduce, wraps
from inspect import Parameter, Signature, getdoc, signature
from itertools import chain
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from mfairfl.errors import ConfigError
from mfairfl.runs.options import OPTIONS, Option, comma_list, settings, toml_value

if TYPE_CHECKING:
    from mfairfl.data.files import FileFormat
    from mfairfl.runs.config import Config

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Command = Callable[..., None]
_PARAMETER = re.compile(r"^(\w+)(?: : (.+))?\n((?: {4}.+\n?)+)", re.MULTILINE)

_FILE_HELP = {
    n: OPTIONS[n].help.removeprefix("With --csv: ")
    for n in ("delimiter", "encoding", "header", "sheet")
}
FILE_OPTIONS = {
    name: OPTIONS[name]._replace(help=text[0].upper() + text[1:], panel="Options")
    for name, text in _FILE_HELP.items()
}
"""How the file of a command that reads one is to be read; see `file_format`."""


def examples(*lines: str) -> str:
    """Return the end of a help text; blank lines keep the examples apart when it is wrapped."""
    return "\n\n".join(["Examples:", *lines])


def command(app: typer.Typer, name: str | None = None) -> Callable[[Command], Command]:
    """Add a command; its docstring is its help, with a text for each parameter, and examples.

    A parameter without an annotation for Typer is an argument, or a flag if it is keyword-only.
    After its name, the docstring may state what the help shows in place of a value
    (``silo : NAME=FILE``). Further sections with parameters are panels of the help.
    """

    def add(function: Command) -> Command:
        text, *sections = re.split(r"\n\n(\w+)\n-+\n", getdoc(function) or "")
        section = dict(zip(sections[::2], sections[1::2], strict=True))
        shown: dict[str, dict[str, str]] = {}
        for heading, body in section.items():
            panel = {} if heading == "Parameters" else {"rich_help_panel": heading}
            for parameter, metavar, lines in _PARAMETER.findall(body):
                shown[parameter] = {"metavar": metavar, "help": " ".join(lines.split()), **panel}
        parameters = signature(function, eval_str=True).parameters.values()
        described = [_described(item, shown.get(item.name, {})) for item in parameters]
        function.__signature__ = Signature(described)  # type: ignore[attr-defined] # read by Typer
        epilog = examples(*section.get("Examples", "").splitlines())
        return app.command(name, help=text, epilog=epilog)(function)

    return add


def _described(parameter: Parameter, shown: Mapping[str, str]) -> Parameter:
    """Return a parameter with what the help shows of it, as Typer reads it."""
    kind, info = parameter.annotation, typer.Argument()
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    elif parameter.kind is Parameter.KEYWORD_ONLY:
        switch = [f"--{parameter.name.replace('_', '-')}"] * (kind is bool)  # without a --no-...
        info = typer.Option(*switch)
    info = copy(info)
    for key, value in shown.items():
        if value:
            setattr(info, key, value)
    return parameter.replace(annotation=Annotated[kind, info])


def run_flags(*, but: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Put the flags of a run in place of a command's parameter `flags`.

    Parameters
    ----------
    but : sequence of str
        Options left out, because the command has a flag of the same name.
    """
    any_key = "Any other key, for example strategy.beta=0.6; may be repeated."
    sets = typer.Option(metavar="KEY=VALUE", help=any_key, rich_help_panel="Run")
    options = {name: option for name, option in OPTIONS.items() if name not in but}
    return option_flags(options, _parameter("set", list[str], sets))


def option_flags(
    options: Mapping[str, Option], *others: Parameter
) -> Callable[[Command], Command]:
    """Put flags in place of a command's parameter `flags`, which gets the values that are set."""
    flags = [*(_flag(name, option) for name, option in options.items()), *others]

    def add(function: Command) -> Command:
        @wraps(function)
        def call(**arguments: Any) -> None:
            values = {flag.name: arguments.pop(flag.name) for flag in flags}
            function(**arguments, flags={k: v for k, v in values.items() if v is not None})

        parameters = signature(function, eval_str=True).parameters.values()
        expanded = [q for p in parameters for q in (flags if p.name == "flags" else [p])]
        call.__signature__ = Signature(expanded)  # type: ignore[attr-defined] # read by Typer
        return call

    return add


def _flag(name: str, option: Option) -> Parameter:
    flag = name.replace("_", "-")
    shown: dict[str, Any] = {"help": option.help, "rich_help_panel": option.panel}
    if option.kind == "switch":  # without a name for what holds anyway
        return _parameter(name, bool, typer.Option(f" /--no-{flag}", **shown))
    if option.kind == "flag":
        return _parameter(name, bool, typer.Option(f"--{flag}", **shown))
    kind = list[str] if option.repeated else str
    return _parameter(name, kind, typer.Option(f"--{flag}", metavar=option.metavar, **shown))


def _parameter(name: str, kind: Any, option: Any) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def parsed(flags: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Read the values of those flags that are among the options; errors name the flag.

    Examples
    --------
    >>> parsed({"rounds": "3", "sensitive": "sex,age"}, OPTIONS)
    {'rounds': 3, 'sensitive': ['sex', 'age']}
    """
    return {
        name: _parsed(name, value, options[name])
        for name, value in flags.items()
        if name in options
    }


def _parsed(name: str, value: Any, option: Option) -> Any:
    if isinstance(value, bool):
        return value
    if not option.repeated:
        return _parsed_text(name, value, option)
    values = [_parsed_text(name, text, option) for text in value]
    if option.kind == "cuts":
        return reduce(or_, values)
    return list(chain.from_iterable(values)) if option.kind == "names" else values


def _parsed_text(name: str, text: str, option: Option) -> Any:
    try:
        return option.parse(text)
    except ConfigError as error:
        raise ConfigError(f"--{name.replace('_', '-')} {text}: {error}") from None


def file_format(flags: Mapping[str, Any]) -> FileFormat:
    """Return how a file is to be read, from the flags of `FILE_OPTIONS`."""
    from mfairfl.data.files import FileFormat  # noqa: PLC0415 - loads pandas

    return FileFormat(**parsed(flags, FILE_OPTIONS))


def parse_sets(pairs: Sequence[str]) -> dict[str, Any]:
    """Read the values of --set.

    Examples
    --------
    >>> parse_sets(["strategy.beta=0.6", "model.kind=logistic"])
    {'strategy.beta': 0.6, 'model.kind': 'logistic'}
    """
    named = key_values("set", pairs, "key=value, for example strategy.beta=0.6")
    return {key: toml_value(value) for key, value in named}


def key_values(flag: str, pairs: Sequence[str], form: str) -> Iterator[tuple[str, str]]:
    """Yield the two sides of each value of a flag; `form` says what such a value looks like."""
    for pair in pairs:
        key, _, value = map(str.strip, pair.partition("="))
        if not key or not value:
            raise ConfigError(f"--{flag} {pair}: write {form}")
        yield key, value


def split_names(names: Sequence[str], columns: Collection[str]) -> list[str]:
    """Split lists of names at their commas, except those that are the name of a column.

    Examples
    --------
    >>> split_names(["id,name", "a,b"], ["id", "name", "a,b"])
    ['id', 'name', 'a,b']
    """
    return [part for name in names for part in ([name] if name in columns else comma_list(name))]


def configuration(
    file: Path | None, flags: Mapping[str, Any], *, needs_data: bool = True
) -> Config:
    """Lay flags (by the names of `OPTIONS`, and `set`) over a TOML file and validate.

    An unknown data set, a missing file or a folder is refused before PyTorch is loaded.
    """
    merged = settings(file, parsed(flags, OPTIONS) | parse_sets(flags.get("set", ())))
    if "csv" in flags:
        task = merged.get("task", {})
        missing = [f"--{key}" for key in ("label", "favourable", "sensitive") if key not in task]
        if missing:
            raise ConfigError(
                f"--csv needs {', '.join(missing)} as well, or a TOML file from `mfairfl init`"
            )
    from mfairfl.runs.config import make_config  # noqa: PLC0415 - a missing file needs no more

    source = " and ".join([str(file)] * (file is not None) + ["flags"] * bool(flags))
    config = make_config(merged, source or "flags")
    if not needs_data:
        return config
    from mfairfl.data import DATASETS, read_frame  # noqa: PLC0415 - only when called

    name, csv = config.data.name, config.data.csv
    if name is not None:
        DATASETS.follow(name)
    elif csv is None:
        raise ConfigError("no data: give --data (see `mfairfl data list`), --csv or a TOML file")
    elif not Path(csv).is_file():
        read_frame(Path(csv))  # its error names a similar file
    return config


def check_target(path: Path, fix: str, *, replace: bool = False) -> None:
    """Refuse an output file that exists or cannot be made; `fix` says what to do if it exists."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; give a file name with --out")
    if path.exists() and not replace:
        raise ConfigError(f"{path}: exists; {fix}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}; create it first")


def default_folder(config: Config) -> Path:
    """Return runs/<data>-<strategy>-<scheme>-s<seed>.

    Examples
    --------
    >>> from mfairfl.runs.config import make_config
    >>> default_folder(make_config({"data": {"name": "adult"}, "seed": 3})).as_posix()
    'runs/adult-mfairfl-iid-s3'
    """
    from mfairfl.data import DATASETS  # noqa: PLC0415 - only when called

    name, task = config.data.name, config.task
    if task is None and name in DATASETS.names():
        task = DATASETS.get(name).task
    data = name or Path(config.data.csv or "data").stem
    scheme = config.clients.scheme or ("column" if task and task.client else "iid")
    return Path("runs") / f"{data}-{config.strategy.name}-{scheme}-s{config.seed}"
