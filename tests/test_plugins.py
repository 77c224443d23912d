"""Names of others' things: what is listed, what is imported when, and what is refused."""

from __future__ import annotations

import sys

import pytest

from answers import one_line
from mfairfl.errors import ConfigError
from mfairfl.plugins import MODELS, Registry, import_string, imported, is_import_string


def corners(thing):
    """Accept whole numbers only."""
    if not isinstance(thing, int):
        raise ConfigError(f"{thing!r} is not a shape: pass its number of corners")
    return thing


@pytest.fixture
def shapes():
    return Registry("shape", "tests.shapes", {"circle": 0, "square": 4}, corners)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a distribution that announces these entry points."""

    def install(**values):
        folder = tmp_path / "site" / "shapes-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: shapes\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in values.items())
        (folder / "entry_points.txt").write_text(f"[tests.shapes]\n{lines}")
        monkeypatch.syspath_prepend(str(folder.parent))

    return install


def refusal(call, *arguments):
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    return one_line(caught)


# ------------------------------------------------------------------ import strings


@pytest.mark.parametrize("text", ["a:b", "a.b.c:D", "_a._b:C.d", "päckchen.modul:Name", "a1:b2"])
def test_what_spells_an_object_of_a_module(text):
    assert is_import_string(text)


NOT_SPELLED = (
    "a a: :b a.b a:b:c a.:b .a:b a..b:c 1a:b a:1b a:b. ../a:b a/b:c a;b:c a:b() http://x:y"
)


@pytest.mark.parametrize("text", ["", "a b:c", "a:b\n", "a\n:b", *NOT_SPELLED.split()])
def test_what_does_not(text):
    assert not is_import_string(text)


def test_an_object_is_imported_with_the_attributes_on_its_way(write_module):
    name = write_module("class Box:\n    class Lid:\n        corners = 4\nfive = 5\n")
    assert imported(f"{name}:five") == 5
    assert imported(f"{name}:Box.Lid.corners") == 4


def test_modules_of_the_current_folder_are_found_and_the_path_is_left_as_it_was(
    tmp_path, monkeypatch
):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "module_of_this_folder.py").write_text("six = 6\n")
    monkeypatch.chdir(folder)
    for path in (list(sys.path), [str(folder), *sys.path]):
        monkeypatch.setattr(sys, "path", list(path))
        monkeypatch.delitem(sys.modules, "module_of_this_folder", raising=False)
        assert imported("module_of_this_folder:six") == 6
        assert sys.path == path


def test_an_installed_module_comes_before_one_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("loads = None\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "json")
    assert callable(imported("json:loads"))


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        ("", "Missing", "AttributeError: "),
        ("1 / 0", "Thing", "ZeroDivisionError: division by zero"),
        ("raise ValueError('two\\nlines')", "Thing", "ValueError: two lines"),
        ("import nowhere_to_be_found", "Thing", "ModuleNotFoundError: No module named 'nowhere"),
        ("def broken(:", "Thing", "SyntaxError: "),
    ],
)
def test_what_cannot_be_imported_is_said_in_refusal(write_module, source, name, reason):
    spelling = f"{write_module(source)}:{name}"
    message = refusal(imported, spelling)
    assert message.startswith(f"'{spelling}' cannot be imported ({reason}")


def test_classes_functions_and_objects_of_modules_are_spelled(write_module):
    module = write_module("class Box:\n    class Lid: pass\ndef make(): pass\nthing = object()\n")
    for path in ("Box", "Box.Lid", "make", "thing"):
        assert import_string(imported(f"{module}:{path}")) == f"{module}:{path}"


def test_what_a_function_made_has_no_spelling():
    class Local:
        pass

    assert import_string(Local) is None
    assert import_string(lambda: 0) is None
    assert import_string(object()) is None


def test_an_object_is_spelled_by_its_module_though_the_main_script_has_it_too(
    write_module, monkeypatch
):
    """``from outside import thing`` in a script: other processes find it in `outside` alone."""
    module = write_module("thing = object()\n")
    thing = imported(f"{module}:thing")
    monkeypatch.setattr(sys.modules["__main__"], "thing", thing, raising=False)
    assert import_string(thing) == f"{module}:thing"


# ------------------------------------------------------------------ names


def test_names_are_sorted_and_import_strings_are_not_among_them(shapes, write_module):
    shapes.add("triangle", 3)
    shapes.add("arrow", 7)
    spelling = f"{write_module('five = 5')}:five"
    assert shapes.follow(spelling) == 5
    assert shapes.names() == ["arrow", "circle", "square", "triangle"]
    assert shapes.added() == {"triangle": 3, "arrow": 7, spelling: 5}
    assert shapes.is_builtin("square")
    assert not shapes.is_builtin("triangle")


def test_a_name_added_again_has_its_new_meaning_and_one_removed_has_none(shapes):
    assert shapes.add("star", 10) == "star"
    shapes.add("star", 12)
    assert shapes.get("star") == 12
    shapes.remove("star")
    shapes.remove("star")  # nothing to forget
    with pytest.raises(ConfigError, match=r"^unknown shape 'star'"):
        shapes.get("star")


def test_what_was_added_is_a_copy(shapes):
    shapes.added()["square"] = 5
    assert shapes.get("square") == 4
    assert shapes.added() == {}


def test_an_unknown_name_is_answered_with_the_nearest(shapes):
    message = refusal(shapes.get, "sqare")
    assert message == "unknown shape 'sqare': did you mean 'square'? (known: circle, square)"


def test_a_built_in_name_is_never_replaced(shapes):
    assert refusal(shapes.add, "circle", 1) == (
        "shape 'circle' is built in; register under another name"
    )
    shapes.remove("circle")
    assert shapes.get("circle") == 0


@pytest.mark.parametrize("name", ["", " x", "-x", "a/b", "a:b:c", "a\nb", "x" * 61, "../x:y"])
def test_names_that_could_be_something_else_are_refused(shapes, name):
    with pytest.raises(ConfigError, match="not a valid name; use letters, digits"):
        shapes.add(name, 3)
    assert shapes.added() == {}


@pytest.mark.parametrize("name", ["x", "x-y_z.1", "fedmgda+", "Größe", "two words", "x" * 60])
def test_names_of_letters_digits_and_a_few_signs_are_taken(shapes, name):
    assert shapes.get(shapes.add(name, 3)) == 3


def test_what_is_not_a_shape_is_refused_whichever_way_it_comes(shapes, write_module, installed):
    module = write_module("wrong = 'square'\n")
    installed(odd=f"{module}:wrong")
    for call, arguments in (
        (shapes.add, ("odd", "square")),
        (shapes.follow, (f"{module}:wrong",)),
        (shapes.get, ("odd",)),
    ):
        assert refusal(call, *arguments) == ("'square' is not a shape: pass its number of corners")
    assert shapes.added() == {}


# ------------------------------------------------------------------ code that is yet to run


def test_an_import_string_is_followed_only_where_that_is_asked_for(shapes, write_module):
    module = write_module("three = 3\n")
    message = refusal(shapes.get, f"{module}:three")
    assert message.startswith(f"unknown shape '{module}:three'")
    assert module not in sys.modules
    assert shapes.follow(f"{module}:three") == 3
    assert shapes.get(f"{module}:three") == 3  # now that the user named it
    assert shapes.follow("square") == 4


def test_an_import_string_is_followed_once(shapes, write_module):
    module = write_module("three = 3\n")
    assert shapes.follow(f"{module}:three") == 3
    sys.modules[module].three = 4
    assert shapes.follow(f"{module}:three") == 3


def test_announced_names_are_listed_without_importing_anything(shapes, write_module, installed):
    module = write_module("six = 6\n")
    installed(hexagon=f"{module}:six", circle=f"{module}:six", gone="nowhere_at_all:thing")
    assert shapes.names() == ["circle", "gone", "hexagon", "square"]
    assert not shapes.is_builtin("hexagon")
    assert module not in sys.modules
    assert shapes.get("hexagon") == 6
    assert shapes.get("circle") == 0  # a distribution cannot take over a built-in name
    message = refusal(shapes.get, "gone")
    assert message.startswith("'nowhere_at_all:thing' cannot be imported (ModuleNotFoundError")


def test_what_was_registered_here_comes_before_what_is_announced(shapes, write_module, installed):
    module = write_module("six = 6\n")
    installed(hexagon=f"{module}:six")
    shapes.add("hexagon", 600)
    assert shapes.get("hexagon") == 600
    assert shapes.names().count("hexagon") == 1


# ------------------------------------------------------------------ models


def test_a_model_is_a_factory():
    with pytest.raises(ConfigError, match=r"^3 is not a model: pass a function or class that"):
        MODELS.add("three", 3)
    assert MODELS.get("mlp") is None
    assert {"logistic", "mlp"} <= set(MODELS.names())
