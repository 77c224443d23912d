"""Masks that cancel in a sum over silos: the server reads the sum, and nothing of a single silo.

For every exchange each silo makes an X25519 key and signs it with the key that it is enrolled
with. The server passes all of them on as a roster. Each pair of silos derives a stream from its
shared secret (HKDF-SHA256, ChaCha20); the one whose name comes first adds it to its numbers, the
other subtracts it, modulo 2⁶⁴. What a silo sends is uniform to whoever lacks the secrets, and all
streams cancel in the sum over the whole roster.

The streams depend on the roster and on what was asked. Silos that were shown different rosters,
or asked different questions, have streams that do not cancel: such a sum says nothing.

What masks do not hide: the sum itself, who takes part, and what is told beside the masked numbers.
Against silos that collude with the server they protect the sum of the others only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mfairfl.errors import ConfigError, MessageError
from mfairfl.guard.modular import Words
from mfairfl.guard.rosters import FEWEST

__all__ = [
    "KEY",
    "SIGNATURE",
    "MaskKey",
    "Offer",
    "Roster",
    "check_roster",
    "load_members",
    "load_signer",
    "make_key",
    "masked",
    "opened",
]

KEY, SIGNATURE = 32, 96
"""Bytes of an exchange's public key, and of a signature (r and s of SECP384R1)."""

_HASH = ec.ECDSA(hashes.SHA384())
_MAKE = "`mfairfl deploy key` makes one"


@dataclass(frozen=True, slots=True)
class Offer:
    """A silo's public key for one exchange, signed with the key that it is enrolled with."""

    name: str
    key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class MaskKey:
    """A key for one exchange as its silo keeps it: `private` never leaves it."""

    exchange: int
    private: bytes
    offer: Offer


@dataclass(frozen=True, slots=True)
class Roster:
    """Who takes part in an exchange, and the key of each.

    Parameters
    ----------
    run : str
        The run that it belongs to.
    exchange : int
        Its number in the run.
    offers : tuple of Offer
        In the order of names.
    """

    run: str
    exchange: int
    offers: tuple[Offer, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The silos."""
        return tuple(offer.name for offer in self.offers)

    @property
    def digest(self) -> bytes:
        """A hash of all of it but the signatures."""
        keys = [[offer.name, offer.key.hex()] for offer in self.offers]
        return _hash("roster", [self.run, self.exchange, keys])


def _hash(what: str, content: object) -> bytes:
    return hashlib.sha256(_text(what, content)).digest()


def _text(what: str, content: object) -> bytes:
    return f"mfairfl masks 1 {what}\n{json.dumps(content)}".encode()


def _signed(run: str, exchange: int, name: str, key: bytes) -> bytes:
    return _text("key", [run, exchange, name, key.hex()])


# ------------------------------------------------------------------ keys


def make_key(signer: ec.EllipticCurvePrivateKey, run: str, exchange: int, name: str) -> MaskKey:
    """Return a fresh key for one exchange of a run, signed as `name`'s.

    Examples
    --------
    >>> signer = ec.generate_private_key(ec.SECP384R1())
    >>> made = make_key(signer, "run-1", 7, "north")
    >>> made.exchange, made.offer.name, len(made.offer.key), len(made.offer.signature)
    (7, 'north', 32, 96)
    """
    own = X25519PrivateKey.generate()
    key = own.public_key().public_bytes_raw()
    r, s = utils.decode_dss_signature(signer.sign(_signed(run, exchange, name, key), _HASH))
    half = SIGNATURE // 2
    signature = r.to_bytes(half, "big") + s.to_bytes(half, "big")
    return MaskKey(exchange, own.private_bytes_raw(), Offer(name, key, signature))


def load_signer(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a silo's private key."""
    key = _load(path, lambda data: serialization.load_ssh_private_key(data, password=None))
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ConfigError(f"{path}: not a silo's key (SECP384R1); {_MAKE}")
    return key


def load_members(folder: Path) -> dict[str, ec.EllipticCurvePublicKey]:
    """Read the public keys of a consortium's members, one file NAME.pub each."""
    found: dict[str, ec.EllipticCurvePublicKey] = {}
    owner: dict[bytes, str] = {}
    for path in sorted(folder.glob("*.pub")):
        name, key = path.name.removesuffix(".pub"), _load(path, serialization.load_ssh_public_key)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
            key.curve, ec.SECP384R1
        ):
            raise ConfigError(f"{path}: not a silo's public key (SECP384R1); {_MAKE}")
        raw = key.public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
        )
        if raw in owner:
            raise ConfigError(f"{path}: '{owner[raw]}' has the same key; ask '{name}' for its own")
        found[name], owner[raw] = key, name
    if len(found) < FEWEST:
        raise ConfigError(
            f"{folder}: {len(found)} public keys of members (NAME.pub); masks need at least "
            f"{FEWEST}, this silo's own included"
        )
    return found


def _load(path: Path, read: Callable[[bytes], object]) -> object:
    try:
        return read(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {_MAKE}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: not a key in OpenSSH format ({error}); {_MAKE}") from None


# ------------------------------------------------------------------ rosters


def check_roster(
    roster: Roster, run: str, own: MaskKey, members: Mapping[str, ec.EllipticCurvePublicKey]
) -> None:
    """Refuse a roster that a silo must not answer, with the reason.

    Parameters
    ----------
    run : str
        The run whose message it came with.
    own : MaskKey
        The key that this silo made for the exchange.
    members : mapping of str to public key
        Whom this silo knows: a server cannot invent silos.
    """
    names, keys = roster.names, [offer.key for offer in roster.offers]
    if roster.run != run or roster.exchange != own.exchange:
        raise MessageError(
            f"the roster is that of exchange {roster.exchange} of run '{roster.run}'; this is "
            f"exchange {own.exchange} of run '{run}'"
        )
    if len(set(names)) < len(names) or list(names) != sorted(names):
        raise MessageError("the roster names a silo twice, or not in the order of names")
    if len(names) < FEWEST:
        raise MessageError(f"a roster of {len(names)} silos: sums are over at least {FEWEST}")
    if len(set(keys)) < len(keys):
        raise MessageError("the roster gives two silos the same key")
    if own.offer not in roster.offers:
        raise MessageError("the roster lacks the key that this silo made for the exchange")
    for offer in roster.offers:
        if offer.name not in members:
            raise MessageError(
                f"the roster names '{offer.name}', whose public key is not in this silo's folder "
                "of members"
            )
        if offer != own.offer:
            _check_signature(offer, roster, members[offer.name])


def _check_signature(offer: Offer, roster: Roster, member: ec.EllipticCurvePublicKey) -> None:
    half = SIGNATURE // 2
    r, s = (
        int.from_bytes(part, "big") for part in (offer.signature[:half], offer.signature[half:])
    )
    try:
        member.verify(
            utils.encode_dss_signature(r, s),
            _signed(roster.run, roster.exchange, offer.name, offer.key),
            _HASH,
        )
    except InvalidSignature:
        raise MessageError(
            f"the roster's key of '{offer.name}' is not signed by '{offer.name}' for exchange "
            f"{roster.exchange} of this run"
        ) from None


# ------------------------------------------------------------------ masks


def masked(words: Words, roster: Roster, own: MaskKey, quantity: bytes) -> Words:
    """Return numbers with this silo's masks added, modulo 2⁶⁴.

    Parameters
    ----------
    quantity : bytes
        A hash of what was asked: the masks of silos that were asked different things do not
        cancel.

    Examples
    --------
    >>> signer = ec.generate_private_key(ec.SECP384R1())
    >>> keys = [make_key(signer, "run-1", 0, name) for name in "abc"]
    >>> roster = Roster("run-1", 0, tuple(key.offer for key in keys))
    >>> sent = [masked(np.array([n], np.uint64), roster, key, b"q") for n, key in enumerate(keys)]
    >>> opened(sent).tolist()
    [3]
    """
    total = words.copy()
    private = X25519PrivateKey.from_private_bytes(own.private)
    context = _hash("stream", [roster.digest.hex(), quantity.hex()])
    for other in roster.offers:
        if other.name == own.offer.name:
            continue
        stream = _stream(_shared(private, other), context, len(words))
        total = total + stream if own.offer.name < other.name else total - stream
    return total


def _shared(private: X25519PrivateKey, other: Offer) -> bytes:
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(other.key))
    except ValueError:  # a point of small order: the secret would be none
        raise MessageError(f"the roster's key of '{other.name}' is none") from None


def _stream(secret: bytes, context: bytes, length: int) -> Words:
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=context).derive(secret)
    # The key serves this stream alone, so the nonce may be constant.
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def opened(sent: Sequence[Words]) -> Words:
    """Return the sum of what all silos of a roster sent, modulo 2⁶⁴: the masks cancel in it."""
    return np.asarray(np.sum(np.stack(sent), axis=0, dtype=np.uint64))
