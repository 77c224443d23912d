"""What a coordinator and a silo decide, and what is refused."""

from __future__ import annotations

import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from mfairfl.deployment.keys import make_certificates, make_key, read_public_key
from mfairfl.deployment.processes import superlink_command
from mfairfl.deployment.settings import ServerSettings, load_federation
from mfairfl.errors import ConfigError

FEDERATION = """\
run = "run.toml"
out = "out"
minimum = 2
[silos]
a = "a.pub"
b = "b.pub"
"""
RUN = '[task]\nlabel = "y"\nfavourable = 1\nsensitive = ["s"]\n'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "federation.toml").write_text(FEDERATION)
    (tmp_path / "run.toml").write_text(RUN)
    for name in "ab":
        make_key(tmp_path / name)
    return tmp_path


def test_paths_are_relative_to_the_file(folder, monkeypatch):
    monkeypatch.chdir("/")
    settings = load_federation(folder / "federation.toml")
    assert settings.out == folder / "out"
    assert settings.server.ca == folder / "certificates" / "ca.crt"
    assert settings.federated().clients == ("a", "b")


def test_the_superlink_is_never_public(tmp_path):
    command = superlink_command(ServerSettings(host="0.0.0.0", state=tmp_path)).words  # noqa: S104
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert "--enable-supernode-auth" in command
    assert "--insecure" not in command


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minimum = 2", "minimum = 3", "minimum = 3, but only 2 silos"),
        ("minimum = 2", "minimun = 2", "unknown key 'minimun': did you mean 'minimum'"),
        ("minimum = 2", "deadline = 0", "deadline: Input should be greater than 0"),
        ("[silos]", "[server]\nhold = 26\n[silos]", "hold: Input should be less than or equal"),
        ("[silos]", "[server]\nhold = -1\n[silos]", "hold: Input should be greater than or eq"),
        ('b = "b.pub"', 'b = "a.pub"', "'a' and 'b' have the same key"),
        ('b = "b.pub"', 'b = "c.pub"', "no such key; ask the silo"),
        ('b = "b.pub"', 'b = "run.toml"', "not a public key in OpenSSH format"),
    ],
)
def test_invalid_settings_give_one_line(folder, old, new, message):
    path = folder / "federation.toml"
    path.write_text(FEDERATION.replace(old, new))
    with pytest.raises(ConfigError, match=message) as caught:
        load_federation(path).members()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no \[task\]"),
        (RUN + '[strategy]\nname = "cenfair"\n', "trains on the rows of all clients"),
    ],
)
def test_run_that_no_silo_can_join_is_refused_at_once(folder, text, message):
    (folder / "run.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_federation(folder / "federation.toml").federated()


def test_key_is_private_and_its_public_part_is_in_flower_s_form(tmp_path):
    public = make_key(tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    private = serialization.load_ssh_private_key((tmp_path / "key").read_bytes(), None)
    pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert read_public_key(public) == pem
    with pytest.raises(ConfigError, match="exists; remove it first"):
        make_key(tmp_path / "key")


def test_a_key_of_another_kind_is_refused(tmp_path):
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (tmp_path / "key.pub").write_bytes(line)
    with pytest.raises(ConfigError, match="not an elliptic-curve key"):
        read_public_key(tmp_path / "key.pub")


def test_the_certificate_names_the_host_and_the_loopback(tmp_path):
    make_certificates(tmp_path, ["fl.example.org", "10.0.0.5"])
    found = x509.load_pem_x509_certificate((tmp_path / "server.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "127.0.0.1"]
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    found.verify_directly_issued_by(authority)
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
