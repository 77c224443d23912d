"""Masks cancel over a roster and hide all else; a silo answers no roster that is not sound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from answers import one_line
from members import exchange, publics, roster_of, signer, write_members
from mfairfl.errors import ConfigError, MessageError
from mfairfl.remote.masking import (
    Offer,
    Roster,
    check_roster,
    load_members,
    load_signer,
    make_key,
    masked,
    opened,
)

WORDS = st.integers(0, 2**64 - 1)


def sent_by(keys, plain, quantity=b"q"):
    roster = roster_of(keys)
    return [masked(words, roster, key, quantity) for key, words in zip(keys, plain, strict=True)]


@given(
    st.integers(3, 6).flatmap(
        lambda k: st.lists(st.lists(WORDS, min_size=4, max_size=4), min_size=k, max_size=k)
    )
)
@settings(max_examples=25, deadline=None)
def test_masks_cancel_in_the_sum_over_the_roster(plain):
    numbers = [np.array(own, np.uint64) for own in plain]
    found = opened(sent_by(exchange("abcdef"[: len(plain)]), numbers))
    assert found.tolist() == [sum(column) % 2**64 for column in zip(*plain, strict=True)]


def drawn(plain, draws=60):
    """What the first silo sends for these numbers, under fresh keys every time."""
    found = []
    for _ in range(draws):
        keys = exchange("abc")
        found.append(masked(plain, roster_of(keys), keys[0], b"q"))
    return np.array(found)


def test_what_one_silo_sends_is_uniform_whatever_it_holds():
    zeros = np.zeros(64, np.uint64)
    large = np.full(64, 2**63 + 12345, np.uint64)
    sent = [drawn(plain) for plain in (zeros, large)]
    for found in sent:
        for shift in (0, 8, 32, 56):  # low, middle and high bytes
            counts = np.bincount(
                ((found >> np.uint64(shift)) & np.uint64(255)).reshape(-1), minlength=256
            )
            assert stats.chisquare(counts).pvalue > 1e-6
        assert stats.kstest(found.reshape(-1) / 2.0**64, "uniform").pvalue > 1e-6
    assert stats.ks_2samp(*(found.reshape(-1) / 2.0**64 for found in sent)).pvalue > 1e-6
    # The same place is as good as independent of itself under the next keys, and of its neighbour.
    flat = sent[0] / 2.0**64
    assert abs(np.corrcoef(flat[:-1].reshape(-1), flat[1:].reshape(-1))[0, 1]) < 0.1
    assert abs(np.corrcoef(flat[:, :-1].reshape(-1), flat[:, 1:].reshape(-1))[0, 1]) < 0.1


def test_all_but_one_of_the_answers_say_nothing_about_the_sum():
    sums = []
    for _ in range(200):
        sent = sent_by(exchange("abcd"), [np.full(8, 7, np.uint64)] * 4)
        sums.append(opened(sent[:-1]) / 2.0**64)
    assert stats.kstest(np.concatenate(sums), "uniform").pvalue > 1e-6


def test_silos_that_were_asked_different_things_have_masks_that_do_not_cancel():
    keys, plain = exchange("abc"), np.zeros(16, np.uint64)
    roster = roster_of(keys)
    asked = [b"one", b"other", b"other"]
    sent = [masked(plain, roster, key, q) for key, q in zip(keys, asked, strict=True)]
    assert np.count_nonzero(opened(sent)) == 16


def test_silos_that_were_shown_different_rosters_have_masks_that_do_not_cancel():
    keys, plain = exchange("abcd"), np.zeros(16, np.uint64)
    shown = [roster_of(keys), roster_of(keys[:3]), roster_of(keys[:3])]
    sent = [masked(plain, roster, key, b"q") for roster, key in zip(shown, keys, strict=False)]
    assert np.count_nonzero(opened(sent)) == 16


def test_no_two_exchanges_have_a_stream_in_common():
    plain = np.zeros(32, np.uint64)
    found = np.concatenate(
        [sent for _ in range(20) for sent in sent_by(exchange("abc"), [plain] * 3)]
    )
    assert len(np.unique(found)) == len(found)


# ------------------------------------------------------------------ rosters that are refused


def refusal(roster, own, run="run-1", known="abcd"):
    with pytest.raises(MessageError) as caught:
        check_roster(roster, run, own, publics(known))
    return one_line(caught)


def test_a_sound_roster_is_accepted():
    keys = exchange("abc")
    for own in keys:
        check_roster(roster_of(keys), "run-1", own, publics("abcd"))


def test_a_roster_of_another_run_or_exchange_is_refused():
    keys = exchange("abc")
    roster = roster_of(keys)
    assert refusal(replace(roster, run="run-2"), keys[0]) == (
        "the roster is that of exchange 0 of run 'run-2'; this is exchange 0 of run 'run-1'"
    )
    assert refusal(replace(roster, exchange=4), keys[0]) == (
        "the roster is that of exchange 4 of run 'run-1'; this is exchange 0 of run 'run-1'"
    )


def test_keys_that_were_signed_for_another_run_or_exchange_are_refused():
    (a, b, c), others = exchange("abc"), exchange("c", run="run-2") + exchange("c", number=5)
    for other in others:
        roster = Roster("run-1", 0, (a.offer, b.offer, other.offer))
        assert refusal(roster, a) == (
            "the roster's key of 'c' is not signed by 'c' for exchange 0 of this run"
        )
    check_roster(Roster("run-1", 0, (a.offer, b.offer, c.offer)), "run-1", a, publics("abc"))


@pytest.mark.parametrize(
    "forge",
    [
        lambda offer: replace(offer, signature=bytes(96)),
        lambda offer: replace(offer, signature=offer.signature[::-1]),
        lambda offer: replace(offer, key=bytes([offer.key[0] ^ 1]) + offer.key[1:]),
        lambda offer: make_key(signer("d"), "run-1", 0, "c").offer,  # d signs as c
        lambda offer: replace(offer, signature=b""),
    ],
)
def test_a_forged_signature_is_refused(forge):
    a, b, c = exchange("abc")
    roster = Roster("run-1", 0, (a.offer, b.offer, forge(c.offer)))
    assert refusal(roster, a) == (
        "the roster's key of 'c' is not signed by 'c' for exchange 0 of this run"
    )


def test_a_roster_that_names_a_silo_twice_is_refused():
    a, b, c = exchange("abc")
    again = exchange("b")[0]
    for offers in ((a, b, again, c), (b, a, c)):
        roster = Roster("run-1", 0, tuple(key.offer for key in offers))
        assert refusal(roster, a) == (
            "the roster names a silo twice, or not in the order of names"
        )


def test_a_roster_of_two_silos_is_refused():
    keys = exchange("ab")
    assert refusal(roster_of(keys), keys[0]) == ("a roster of 2 silos: sums are over at least 3")


def test_silos_that_this_one_does_not_know_are_refused():
    keys = exchange(["a", "b", "invented"])
    assert refusal(roster_of(keys), keys[0]) == (
        "the roster names 'invented', whose public key is not in this silo's folder of members"
    )


def test_a_roster_without_the_silo_s_own_key_is_refused():
    keys, other = exchange("abc"), exchange("a")[0]
    for own in (other, exchange("d")[0]):
        assert refusal(roster_of(keys), own) == (
            "the roster lacks the key that this silo made for the exchange"
        )


def test_two_silos_with_one_key_are_refused():
    a, b, _ = exchange("abc")
    roster = Roster("run-1", 0, (a.offer, b.offer, Offer("c", b.offer.key, bytes(96))))
    assert refusal(roster, a) == "the roster gives two silos the same key"


def test_a_key_that_shares_no_secret_is_refused():
    a, b, c = exchange("abc")
    zero = replace(c.offer, key=bytes(32))
    with pytest.raises(MessageError, match="the roster's key of 'c' is none"):
        masked(np.zeros(1, np.uint64), Roster("run-1", 0, (a.offer, b.offer, zero)), a, b"q")


# ------------------------------------------------------------------ files of keys


def test_keys_are_those_that_deploy_key_writes(tmp_path):
    files = write_members(tmp_path, ["north", "south", "west"])
    members = load_members(tmp_path / "members")
    assert sorted(members) == ["north", "south", "west"]
    keys = [make_key(load_signer(path), "run-1", 0, name) for name, path in files.items()]
    check_roster(roster_of(keys), "run-1", keys[0], members)


def test_unusable_files_of_keys_are_refused_in_one_line(tmp_path):
    files = write_members(tmp_path, ["north", "south", "west"])
    folder = tmp_path / "members"
    with pytest.raises(ConfigError) as caught:
        load_signer(folder / "north.pub")
    assert one_line(caught).startswith(f"{folder / 'north.pub'}: not a key in OpenSSH format")
    with pytest.raises(ConfigError) as caught:
        load_signer(tmp_path / "none")
    assert one_line(caught) == (
        f"{tmp_path / 'none'}: cannot be read (No such file or directory); `mfairfl deploy key` "
        "makes one"
    )
    (folder / "west.pub").write_bytes((folder / "south.pub").read_bytes())
    with pytest.raises(ConfigError) as caught:
        load_members(folder)
    assert one_line(caught) == (
        f"{folder / 'west.pub'}: 'south' has the same key; ask 'west' for its own"
    )
    (folder / "west.pub").unlink()
    with pytest.raises(ConfigError) as caught:
        load_members(folder)
    assert one_line(caught) == (
        f"{folder}: 2 public keys of members (NAME.pub); masks need at least 3, this silo's own "
        "included"
    )
    assert files
