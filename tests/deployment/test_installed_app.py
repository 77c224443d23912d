"""A silo runs the installed client app, and fails shut where it cannot."""

from __future__ import annotations

import json
import socket
import subprocess
from types import ModuleType

import pytest
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supernode.runtime import run_clientapp

from mfairfl.deployment.installed_app import SOCKET, use_installed_app, write_launchers
from mfairfl.deployment.silo_process import listen, receive_command
from mfairfl.errors import ConfigError


def test_the_server_s_app_is_neither_unpacked_nor_loaded(monkeypatch):
    for name in ("install_from_fab", "get_load_client_app_fn"):
        monkeypatch.setattr(run_clientapp, name, getattr(run_clientapp, name))  # put back later
    use_installed_app(run_clientapp, "ours")
    assert run_clientapp.install_from_fab(b"anything", skip_prompt=True) is None
    load = run_clientapp.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
    assert load("evil/app", "1.0.0", "hash") == "ours"
    used = run_clientapp.run_clientapp.__code__.co_names
    assert {"install_from_fab", "get_load_client_app_fn"} <= set(used)  # looked up when called


def test_a_flower_that_loads_apps_otherwise_is_refused():
    with pytest.raises(ConfigError, match="has no 'install_from_fab'"):
        use_installed_app(ModuleType("another"), "ours")


def test_every_program_a_node_may_start_has_a_launcher(tmp_path):
    folder = write_launchers(tmp_path / "bin")
    assert {path.name for path in folder.glob("flwr-*")} == set(TASK_TYPE_TO_COMMAND.values())


@pytest.mark.parametrize("name", sorted(TASK_TYPE_TO_COMMAND.values()))
def test_only_client_work_is_accepted(tmp_path, name, caplog):
    folder = write_launchers(tmp_path / "a folder" / "bin")
    with listen(folder) as listener:
        launched = subprocess.Popen([folder / name, "--token", "a b"], stdin=subprocess.DEVNULL)
        words = None
        while words is None and launched.poll() is None:
            words = receive_command(listener)
        assert launched.wait() == 0
    if name == "flwr-clientapp":
        assert words == [name, "--token", "a b"]
    else:
        assert words is None
        assert f"asked for ['{name}']" in caplog.text


@pytest.mark.parametrize("line", [b"\n", b"{]\n", json.dumps("flwr-clientapp").encode() + b"\n"])
def test_nonsense_is_not_a_command(tmp_path, line, monkeypatch):
    folder = write_launchers(tmp_path / "bin")
    with listen(folder) as listener, socket.socket(socket.AF_UNIX) as connection:
        monkeypatch.chdir(folder)  # the path of a socket must be short
        connection.connect(SOCKET)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        assert receive_command(listener) is None
