"""Certificates and keys of a federation: made, enrolled, revoked.

Certificates identify the coordinator, keys the silos, both in the formats that Flower reads. Two
files beside federation.toml list keys by their PEM text: those that the SuperLink has registered,
and those that were revoked, which the gate and every run refuse.
"""

import datetime
import functools
import ipaddress
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from mfairfl.data.values import StrictModel
from mfairfl.errors import ConfigError, first_problem
from mfairfl.files import write_atomically

_DAYS = 730
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_PEM = serialization.Encoding.PEM
_OTHER_KIND = "not an elliptic-curve key; make one: `mfairfl deploy key`"
_LOCAL = ("localhost", "127.0.0.1")  # the coordinator's own processes


def make_certificates(folder: Path, hosts: Sequence[str]) -> None:
    """Write an authority (ca.crt, ca.key) and a server certificate for these names or addresses.

    Nothing that exists is overwritten.
    """
    files = ("ca.crt", "ca.key", "server.crt", "server.key")
    _refuse_existing([folder / name for name in files])
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _named("mfairfl federation")
    authority = (
        _builder(issuer, issuer, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [_name(host) for host in dict.fromkeys((*hosts, *_LOCAL))]
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _builder(_named(hosts[0] if hosts else "localhost"), issuer, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    for name, signed, signed_key in (("ca", authority, ca_key), ("server", certificate, key)):
        _write(folder / f"{name}.crt", signed.public_bytes(_PEM), secret=False)
        private = _private(signed_key, serialization.PrivateFormat.PKCS8)
        _write(folder / f"{name}.key", private, secret=True)


def make_key(path: Path) -> Path:
    """Write a silo's private key, and beside it the public one (``.pub``), which is returned."""
    public = path.with_name(path.name + ".pub")
    _refuse_existing([path, public])
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, _private(key, serialization.PrivateFormat.OpenSSH), secret=True)
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _write(public, line + b"\n", secret=False)
    return public


def read_public_key(path: Path) -> bytes:
    """Return a silo's public key as Flower's server holds it."""
    read = serialization.load_ssh_public_key
    key = _load(path, "public", read, "ask the silo for its .pub file")
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"{path}: {_OTHER_KIND}")
    return key.public_bytes(_PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def require_private_key(path: Path) -> None:
    """Refuse a file that is not a silo's private key."""
    read = functools.partial(serialization.load_ssh_private_key, password=None)
    key = _load(path, "private", read, "make one: `mfairfl deploy key`")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{path}: {_OTHER_KIND}")


def _load(path: Path, kind: str, read: Callable[[bytes], object], remedy: str) -> object:
    try:
        return read(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such key; {remedy}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: not a {kind} key in OpenSSH format ({error})") from None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    uses = {"digital_signature": not signs, "key_cert_sign": signs, "crl_sign": signs}
    return x509.KeyUsage(**dict.fromkeys(_USES, False) | uses)


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(_PEM, form, serialization.NoEncryption())


def _refuse_existing(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path}: exists; remove it first if it is no longer in use")


def _write(path: Path, data: bytes, *, secret: bool) -> None:
    # Created with mode 600: not readable by others even for a moment.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    if not secret:
        path.chmod(0o644)


# ------------------------------------------------------------------ which keys count


def read_registered(path: Path) -> list[bytes]:
    """Return the keys (PEM) that the SuperLink has registered; none without the file."""
    try:
        keys = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ConfigError(f"{path}: damaged ({error}); delete it and start again") from None
    return [str(key).encode() for key in keys]


class Revocation(StrictModel):
    """A key that was revoked.

    Parameters
    ----------
    silo : str
        The name it was enrolled under.
    key : str
        The public key (PEM), as Flower holds it.
    since : datetime
        When it was revoked.
    """

    silo: str
    key: str
    since: datetime.datetime


_REVOCATIONS = TypeAdapter(list[Revocation])


def read_revocations(path: Path) -> dict[bytes, Revocation]:
    """Return the revoked keys; none without the file."""
    try:
        revocations = _REVOCATIONS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise ConfigError(
            f"{path}: damaged ({first_problem(error)}); restore it, or revoke the keys again"
        ) from None
    return {revocation.key.encode(): revocation for revocation in revocations}


def add_revocation(path: Path, silo: str, key: bytes) -> Revocation:
    """Record that a key is revoked, and return the record; an earlier one is kept."""
    with FileLock(path.with_name(f".{path.name}.lock")):
        revoked = read_revocations(path)
        if key not in revoked:
            now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
            revoked[key] = Revocation(silo=silo, key=key.decode(), since=now)
            records = list(revoked.values())
            write_atomically(path, _REVOCATIONS.dump_json(records, indent=1) + b"\n")
    return revoked[key]
