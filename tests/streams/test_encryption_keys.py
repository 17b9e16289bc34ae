"""The cipher of encrypted stores, and its keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpstream.core.errors import ConfigError, StoreDamagedError
from dpstream.stream import StateKey
from dpstream.stream.store.encryption import Cipher, write_key
from dpstream.stream.store.sealed_history import POSITION

KEY, OTHER = StateKey.generate(), StateKey.generate()


@given(data=st.binary(max_size=3000), kind=st.sampled_from(["kind", POSITION]), number=st.integers(0, 2**40))
def test_values_come_back_and_look_different_every_time(data: bytes, kind: str, number: int) -> None:
    cipher = Cipher(KEY, b"stream", "here")
    sealed = cipher.seal(data, kind, number, "name")
    assert Cipher(KEY, b"stream", "here").open(sealed, kind, number, "name") == data
    assert cipher.seal(data, kind, number, "name") != sealed
    inside = len(sealed) - 48
    size = max(len(data) + 1, 1024 if kind == POSITION else 0)
    assert size <= inside <= max(1.12 * size, size + 1)
    if len(data) > 8:
        assert data not in sealed


def test_lengths_have_few_significant_bits() -> None:
    """20,000 lengths of values become fewer than 200 of sealed ones."""
    cipher = Cipher(KEY, b"stream", "here")
    sizes = {len(cipher.seal(bytes(n), "kind")) for n in range(0, 20_000, 7)}
    assert len(sizes) < 200
    assert len(cipher.seal(b"1", POSITION)) == len(cipher.seal(b"1" * 900, POSITION))


@given(at=st.integers(0, 87), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found(at: int, bit: int) -> None:
    cipher = Cipher(KEY, b"stream", "here")
    sealed = bytearray(cipher.seal(bytes(range(39)), "kind", 3))
    assert len(sealed) == 88
    assert cipher.open(bytes(sealed), "kind", 3) == bytes(range(39))
    sealed[at] ^= 1 << bit
    with pytest.raises(StoreDamagedError):
        cipher.open(bytes(sealed), "kind", 3)


@pytest.mark.parametrize(
    "other",
    [
        (KEY, b"stream2", "kind", (3, b"x")),
        (OTHER, b"stream", "kind", (3, b"x")),
        (KEY, b"stream", "kin", (3, b"x")),
        (KEY, b"stream", "kind", (4, b"x")),
        (KEY, b"stream", "kind", (3, b"")),
        (KEY, b"stream", "kind", (3,)),
        (KEY, b"stream", "kind3", (b"x",)),
    ],
)
def test_a_value_belongs_to_its_place(other: tuple[StateKey, bytes, str, tuple[int | bytes, ...]]) -> None:
    key, stream_id, kind, place = other
    sealed = Cipher(KEY, b"stream", "here").seal(b"value", "kind", 3, b"x")
    assert Cipher(KEY, b"stream", "here").open(sealed, "kind", 3, b"x") == b"value"
    with pytest.raises(StoreDamagedError, match="changed, or belongs to another place"):
        Cipher(key, stream_id, "here").open(sealed, kind, *place)


def test_nonces_do_not_repeat_and_salts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstream.stream.store.encryption._VALUES", 100)
    monkeypatch.setattr("dpstream.stream.store.encryption._KEPT", 5)
    cipher = Cipher(KEY, b"stream", "here")
    sealed = [cipher.seal(b"x", "kind", n) for n in range(1000)]
    assert len({one[4:20] for one in sealed}) == 10
    assert len({one[20:32] for one in sealed}) == 1000
    order = np.random.default_rng(1).permutation(1000)
    assert all(cipher.open(sealed[n], "kind", n) == b"x" for n in order.tolist())


def test_keys_are_read_from_files_that_nobody_else_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "the.key"
    made_key = write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert StateKey.from_file(path) == made_key
    assert made_key.text not in repr(made_key)
    with pytest.raises(ConfigError, match="a file already"):
        write_key(path)
    monkeypatch.setenv("THE_KEY", path.read_text())
    assert StateKey.from_environment("THE_KEY") == made_key
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"others may read the key .mode {mode:04o}"):
            StateKey.from_file(path)
    path.chmod(0o600)
    for wrong in ("", "S3cret-phrase", made_key.text[:-5], made_key.text.replace("1:", "2:"), "\xff" * 40):
        path.write_text(wrong, encoding="latin-1")
        with pytest.raises(ConfigError, match="this is no key") as caught:
            StateKey.from_file(path)
        assert not wrong or wrong not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        StateKey.from_file(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="is not set"):
        StateKey.from_environment("NOT_SET_ANYWHERE")
