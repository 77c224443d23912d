"""Things of others by name: registered objects, installed distributions, import strings.

Every kind of thing that has a name (strategy, notion, data set, model) has one `Registry`. A name
is looked up among what is built in, what `mfairfl.register` added in this process, and the entry
points that installed distributions announce. ``package.module:Name`` is code that is yet to be
imported: `Registry.follow` imports it, and is called only with words from the user's own command,
Python or TOML file; `Registry.get`, which files and messages may reach, never does.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from mfairfl.errors import ConfigError, unknown

T = TypeVar("T")

_NAME = re.compile(r"\w[\w.+ -]{0,59}")
_IMPORT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_import_string(name: str) -> bool:
    """Return whether a name spells an object of a module.

    Examples
    --------
    >>> is_import_string("package.module:Name"), is_import_string("fedavg")
    (True, False)
    """
    return _IMPORT.fullmatch(name) is not None


def imported(spelling: str) -> Any:
    """Import the object that ``package.module:Name`` spells.

    Modules of the current folder are found as well, as by ``python -m``.

    Examples
    --------
    >>> imported("math:pi")
    3.141592653589793
    """
    module, _, path = spelling.partition(":")
    try:
        with _current_folder():
            thing: Any = import_module(module)
        for part in path.split("."):
            thing = getattr(thing, part)
    except Exception as error:  # the module is the user's and may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"'{spelling}' cannot be imported ({reason})") from error
    return thing


@contextmanager
def _current_folder() -> Iterator[None]:
    here = str(Path.cwd())
    added = [] if here in sys.path else [here]
    sys.path.extend(added)
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def import_string(thing: Any) -> str | None:
    """Return ``package.module:Name`` of a class, function or module-level object, if it has one.

    Examples
    --------
    >>> import_string(Path)
    'pathlib:Path'
    """
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(path, str) and "<" not in path:
        return f"{module}:{path}"
    script = sys.modules.get("__main__")  # comes last: no other process can import it
    for name, candidate in sorted(sys.modules.items(), key=lambda m: (m[1] is script, m[0])):
        for variable, value in list(getattr(candidate, "__dict__", {}).items()):
            if value is thing and is_import_string(f"{name}:{variable}"):
                return f"{name}:{variable}"
    return None


class Registry(Generic[T]):
    """Named things of one kind.

    Parameters
    ----------
    kind : str
        What messages call such a thing, such as "strategy".
    group : str
        The entry-point group in which distributions announce theirs.
    builtin : mapping of str to T
        What comes with the package.
    accept : callable
        Turns what a stranger hands in into a T, or raises `ConfigError` with what to pass.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        builtin: Mapping[str, T],
        accept: Callable[[Any], T],
    ) -> None:
        self.kind, self.group = kind, group
        self._builtin, self._accept = builtin, accept
        self._added: dict[str, T] = {}

    def names(self) -> list[str]:
        """Return all names, sorted; nothing is imported for it."""
        added = (name for name in self._added if not is_import_string(name))
        return sorted({*self._builtin, *added, *self._announced()})

    def is_builtin(self, name: str) -> bool:
        """Return whether a name comes with the package."""
        return name in self._builtin

    def get(self, name: str) -> T:
        """Return what has this name; an import string is not followed."""
        if name in self._builtin:
            return self._builtin[name]
        if name not in self._added:
            announced = self._announced().get(name)
            if announced is None:
                raise ConfigError(unknown(self.kind, name, self.names()))
            self._added[name] = self._accept(imported(announced.value))
        return self._added[name]

    def follow(self, name: str) -> T:
        """Return what has this name, or import it: only for the user's own words."""
        if is_import_string(name) and name not in self._added:
            self._added[name] = self._accept(imported(name))
        return self.get(name)

    def add(self, name: str, thing: Any) -> str:
        """Give a thing a name in this process; a built-in name is never replaced.

        Returns the name.
        """
        if not (_NAME.fullmatch(name) or is_import_string(name)):
            raise ConfigError(
                f"{self.kind} '{name}': not a valid name; use letters, digits, '-', '_' or '.'"
            )
        if name in self._builtin:
            raise ConfigError(f"{self.kind} '{name}' is built in; register under another name")
        self._added[name] = self._accept(thing)
        return name

    def added(self) -> dict[str, T]:
        """Return what was registered or imported in this process, by name."""
        return dict(self._added)

    def remove(self, name: str) -> None:
        """Forget what was registered under a name."""
        self._added.pop(name, None)

    def _announced(self) -> Mapping[str, EntryPoint]:
        return _announced_in(self.group, tuple(sys.path))


@cache
def _announced_in(group: str, _search_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return a group's entry points by name; reading them takes long, so once per `sys.path`."""
    return {entry.name: entry for entry in entry_points(group=group)}


ModuleFactory = Callable[[int], Any]
"""Takes the number of inputs and returns a `torch.nn.Module` with one logit."""


def _as_factory(thing: Any) -> ModuleFactory:
    if not callable(thing):
        raise ConfigError(
            f"{thing!r} is not a model: pass a function or class that takes the number of inputs "
            "and returns a torch.nn.Module with one logit"
        )
    factory: ModuleFactory = thing
    return factory


MODELS: Registry[ModuleFactory | None] = Registry(
    "model", "mfairfl.models", {"mlp": None, "logistic": None}, _as_factory
)
"""Models by name: here, because what they are built with takes seconds to import.

`factory(inputs)` returns a `torch.nn.Module`; None stands for the built-in perceptrons.
"""
