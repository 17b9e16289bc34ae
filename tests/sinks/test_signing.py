"""Signed releases: every change of a folder is named, and no stop of the owner's looks like one."""

from __future__ import annotations

import builtins
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_stream import dpstream, invoke, make, write_step
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from fault_harness import faulty, in_child, kill
from second_place import contents
from small_configs import new_key, rewrite
from small_streams import small_stream

import dpstream as dp
from dpstream.core import durable
from dpstream.core.errors import ConfigError, DpstreamError, StoreDamagedError
from dpstream.io.sinks import catalogue
from dpstream.io.sinks.release_reader import check_signed
from dpstream.io.sinks.signing import SIGNATURE, Signer, signed_folder
from dpstream.project import Config
from dpstream.tools.folder import explain

FOREIGN = "f" * 64


def checked(releases: Path, key: Any) -> int:
    return check_signed(signed_folder(releases, key))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a signed stream of five steps, and ``earlier``: its releases one step and a withdrawal before."""
    folder: Path = tmp_path_factory.mktemp("signed")
    new_key(folder, "key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "PART", 2)
        config = make(folder, 4)
        write_step(folder, 5)
        config.write_text(config.read_text() + 'sign = "key"\nrecords = "persistent"\npublish = "both"\n')
        dpstream("run", config)
        dpstream("errors", config, "--runs", 2, "--until", 4)
        shutil.copytree(folder / "releases", folder / "earlier")
        rewrite(config, "end = 4", "end = 5")
        dpstream("run", config)
        dpstream("withdraw", config, "--step", 2, "--reason", "a test")
    return folder


def flip(name: str) -> Callable[[Path, Path], None]:
    """Change a byte of a file."""

    def change(releases: Path, _earlier: Path) -> None:
        data = bytearray((releases / name).read_bytes())
        data[len(data) // 2] ^= 1
        (releases / name).write_bytes(data)

    return change


def remove(name: str) -> Callable[[Path, Path], None]:
    def change(releases: Path, _earlier: Path) -> None:
        path = releases / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def older(name: str) -> Callable[[Path, Path], None]:
    """Put back the owner's file of an earlier day."""

    def change(releases: Path, earlier: Path) -> None:
        assert (earlier / name).read_bytes() != (releases / name).read_bytes()
        shutil.copy(earlier / name, releases / name)

    return change


def swap(one: str, other: str) -> Callable[[Path, Path], None]:
    def change(releases: Path, _earlier: Path) -> None:
        (releases / one).rename(releases / "between")
        (releases / other).rename(releases / one)
        (releases / "between").rename(releases / other)

    return change


def rename(one: str, other: str) -> Callable[[Path, Path], None]:
    return lambda releases, _earlier: (releases / one).rename(releases / other) and None


def forge_table(releases: Path, _earlier: Path) -> None:
    """Change a table, and every hash that says so."""
    table, manifest = releases / "step-000005/table.csv", releases / "step-000005/manifest.json"
    was = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (table, manifest)]
    table.write_bytes(table.read_bytes() + b"\n")
    rewrite(manifest, was[0], hashlib.sha256(table.read_bytes()).hexdigest())
    rewrite(releases / "catalogue.json", was[1], hashlib.sha256(manifest.read_bytes()).hexdigest())


def unwithdraw(releases: Path, earlier: Path) -> None:
    """Bring a withdrawn table back, with the part of the catalogue that lists it."""
    shutil.copytree(earlier / "step-000002", releases / "step-000002", dirs_exist_ok=True)
    shutil.copy(earlier / "catalogue/000001-000002.json", releases / "catalogue/000001-000002.json")


def unlist(releases: Path, _earlier: Path) -> None:
    """Strike a file off the signature."""
    document = json.loads((releases / SIGNATURE).read_text())
    del document["files"]["codebook.json"]
    (releases / SIGNATURE).write_text(json.dumps(document, indent=1) + "\n")


def sign_anew(releases: Path, earlier: Path) -> None:
    """Sign with a key that the reader has not."""
    document = json.loads((releases / SIGNATURE).read_text())
    path = new_key(releases.parent, "foreign")
    (releases / SIGNATURE).write_bytes(Signer(path).sign(document["stream_id"], document["files"]))


def pretend(releases: Path, earlier: Path) -> None:
    """As before, under the reader's key."""
    ours = json.loads((releases / SIGNATURE).read_text())["key"]
    sign_anew(releases, earlier)
    document = json.loads((releases / SIGNATURE).read_text())
    (releases / SIGNATURE).write_text(json.dumps({**document, "key": ours}, indent=1) + "\n")


def of_another_stream(releases: Path, earlier: Path) -> None:
    """A true signature of the same owner for another stream."""
    with small_stream(releases.parent / "other", steps=1, output={"sign": str(earlier.parent / "key")}):
        shutil.copy(releases.parent / "other/releases" / SIGNATURE, releases / SIGNATURE)


def add(name: str) -> Callable[[Path, Path], None]:
    return lambda releases, _earlier: (releases / name).write_text("1") and None


def space(releases: Path, _earlier: Path) -> None:
    rewrite(releases / SIGNATURE, '"format": 1', '"format":  1')


#: What is done to a folder -> the file or step that the sentence names, and a part of it.
TAMPERING: dict[str, tuple[Callable[[Path, Path], None], str, str]] = {
    "a byte of a table": (flip("step-000003/table.csv"), "step-000003/table.csv", "published hash"),
    "a byte of the changes": (flip("step-000004/changes.csv"), "step-000004/changes.csv", "published hash"),
    "a byte of a manifest": (
        flip("step-000001/manifest.json"),
        "step-000001/manifest.json",
        "published hash",
    ),
    "a byte of measurements": (
        flip("step-000002/measurements.ndjson"),
        "step-000002/measurements.ndjson",
        "published hash",
    ),
    "a byte of the label": (
        flip("step-000003/table.csv-metadata.json"),
        "step-000003/table.csv-metadata.json",
        "published hash",
    ),
    "a byte of the codebook": (flip("codebook.json"), "codebook.json", "changed since"),
    "a byte of the catalogue": (flip("catalogue.json"), "catalogue.json", "changed since"),
    "a byte of a part": (
        flip("catalogue/000001-000002.json"),
        "catalogue/000001-000002.json",
        "changed since",
    ),
    "a byte of the notice": (
        flip("step-000002/withdrawn.json"),
        "step-000002/withdrawn.json",
        "changed since",
    ),
    "a byte of the text": (flip("README.txt"), "README.txt", "changed since"),
    "a byte of the page": (flip("index.html"), "index.html", "changed since"),
    "a byte of the counts": (flip("counts.csv"), "counts.csv", "changed since"),
    "a byte of simulated errors": (
        flip("errors/step-000004.parquet"),
        "errors/step-000004.parquet",
        "changed since",
    ),
    "a byte of the signature": (flip(SIGNATURE), SIGNATURE, ""),
    "a space in the signature": (space, SIGNATURE, "not valid"),
    "a missing table": (remove("step-000003/table.csv"), "step-000003/table.csv", "missing"),
    "a missing step": (remove("step-000004"), "step-000004/manifest.json", "missing"),
    "a missing part": (remove("catalogue/000003-000004.json"), "catalogue/000003-000004.json", "missing"),
    "a missing catalogue": (remove("catalogue.json"), "catalogue.json", "missing"),
    "missing simulated errors": (remove("errors/step-000004.json"), "errors/step-000004.json", "missing"),
    "a missing signature": (remove(SIGNATURE), SIGNATURE, "not signed"),
    "two swapped steps": (swap("step-000003", "step-000004"), "step-000003/manifest.json", "published hash"),
    "a renamed step": (rename("step-000005", "step-000006"), "step-000005/manifest.json", "missing"),
    "an older catalogue": (older("catalogue.json"), "catalogue.json", "of another day"),
    "an older part": (
        older("catalogue/000001-000002.json"),
        "catalogue/000001-000002.json",
        "of another day",
    ),
    "an older codebook": (older("codebook.json"), "codebook.json", "of another day"),
    "an older signature": (older(SIGNATURE), "catalogue.json", "of another day"),
    "a withdrawn table again": (unwithdraw, "catalogue/000001-000002.json", "of another day"),
    "a withdrawn table beside the notice": (
        add("step-000002/table.csv"),
        "step-000002/table.csv",
        "was withdrawn: a test",
    ),
    "a file more": (add("step-000003/correction.csv"), "step-000003/correction.csv", "not signed"),
    "a table with new hashes": (forge_table, "catalogue.json", "changed since"),
    "a file struck off": (unlist, SIGNATURE, "not valid"),
    "a foreign key": (sign_anew, SIGNATURE, "another key"),
    "a foreign key under our name": (pretend, SIGNATURE, "not valid"),
    "a signature of another stream": (of_another_stream, "catalogue.json", "of another stream"),
}


@pytest.mark.parametrize("kind", ["nothing", *TAMPERING])
def test_every_tampering_is_refused_by_name(signed: Path, tmp_path: Path, kind: str) -> None:
    releases = tmp_path / "releases"
    shutil.copytree(signed / "releases", releases)
    key = Signer(signed / "key").public
    if kind == "nothing":
        assert (
            checked(releases, [FOREIGN, key]) == len(list(releases.rglob("*.*"))) - 2
        )  # signature and witness
        release = dp.read(releases, key=Signer(signed / "key").public)
        assert (release.step, release.steps) == (5, (1, 3, 4, 5))
        assert release.table().equals(dp.read(releases).table())
        assert release.answer("paid").error_kind is not None
        assert f"Public key: {key}" in dpstream("statement", signed / "dpstream.toml").output
        told = dpstream("advisory", "check", releases, "--key", key).output
        assert f"{checked(releases, key)} files signed by {Signer(signed / 'key').public}" in told
        return
    change, name, words = TAMPERING[kind]
    change(releases, signed / "earlier")
    with pytest.raises(DpstreamError) as refused:
        checked(releases, key)
    assert name in str(refused.value)
    assert words in str(refused.value)
    told = invoke("advisory", "check", releases, "--key", key)
    assert told.exit_code in (2, 4)
    assert name in told.stderr
    if not name.startswith(("step-", "errors", "README", "index", "counts", "codebook")):
        with pytest.raises(DpstreamError, match=name):
            dp.read(releases, key=key)


def test_errors_that_nobody_signed_are_not_there(signed: Path, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    shutil.copytree(signed / "releases", releases)
    for ending in ("json", "parquet"):
        shutil.copy(releases / f"errors/step-000004.{ending}", releases / f"errors/step-000005.{ending}")
    honest = dp.read(signed / "releases", key=Signer(signed / "key").public).answer("paid and zip = 'a'")
    assert dp.read(releases, key=Signer(signed / "key").public).answer("paid and zip = 'a'") == honest


@pytest.mark.parametrize("work", ["publishing", "explaining"])
def test_no_stop_looks_like_tampering_and_the_next_run_mends_it(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """Stopped before every third call of ``durable`` that publishes, withdraws and explains."""
    monkeypatch.setattr(catalogue, "PART", 1 if work == "publishing" else 2)
    key, start = Signer(signed / "key").public, tmp_path / "start"
    options: dict[str, Any] = {"seed": 1, "output": {"sign": str(signed / "key")}}
    if work == "publishing":
        small_stream(start, steps=3, **options).close()
    else:
        shutil.copytree(signed, start)
        config = start / "dpstream.toml"
        config.write_text(config.read_text() + '[statement]\ntitle = "Another title"\n')

    def go_on(home: Path) -> None:
        if work == "explaining":
            assert explain(Config.load(home / "dpstream.toml")) is None
            return
        with small_stream(home, steps=4, **options) as stream:
            stream.withdraw(1, "a test")

    shutil.copytree(start, tmp_path / "whole")
    with faulty(None, lambda *_: None) as calls:
        go_on(tmp_path / "whole")
    files = checked(tmp_path / "whole/releases", key)
    for at in range(1, len(calls) + 1, 3):
        home = tmp_path / "stopped"
        shutil.copytree(start, home)

        def stopped(home: Path = home, at: int = at) -> None:
            with faulty(at, kill):
                go_on(home)

        assert in_child(stopped) == -9
        release = dp.read(home / "releases", key=key)
        for step in release.steps:
            assert release.table(step).num_rows
        try:
            checked(home / "releases", key)
        except StoreDamagedError as error:
            said = error
        else:
            said = None
        if said is not None:  # readers hear of a withdrawal before the table goes and the notice comes
            assert work == "publishing"
            assert "step-000001" in str(said)
            assert said.what in ("step 1 was withdrawn: a test", "signed file missing")
        go_on(home)
        assert checked(home / "releases", key) == files
        assert set(map(len, signed_folder(home / "releases", key).signature.files.values())) == {1}
        shutil.rmtree(home)


def test_a_lost_folder_comes_back_byte_by_byte(signed: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 1, "output": {"sign": str(signed / "key")}}
    with small_stream(tmp_path, steps=3, **options) as stream:
        stream.withdraw(2, "a test")
    before = contents(tmp_path / "releases")
    shutil.rmtree(tmp_path / "releases")
    with small_stream(tmp_path, **options) as stream:
        stream.publish_again()
    assert contents(tmp_path / "releases") == before
    (tmp_path / "releases" / SIGNATURE).unlink()
    small_stream(tmp_path, **options).close()
    assert contents(tmp_path / "releases") == before


def test_a_key_that_cannot_sign_is_refused_before_a_step_is_taken(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = new_key(tmp_path, "key")
    public = Signer(path).public
    (tmp_path / "open").write_bytes(path.read_bytes())
    (tmp_path / "open").chmod(0o644)
    locked = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    durable.write_file(tmp_path / "locked", locked, mode=0o600)
    durable.write_file(tmp_path / "empty", b"", mode=0o600)
    (tmp_path / "s/releases").mkdir(parents=True)
    shutil.copy(path, tmp_path / "s/releases/key")
    for name, words in {
        "none": "cannot be read",
        "open": "others may read the key",
        "locked": "Ed25519 private key",
        "empty": "expected an Ed25519 private key",
        "s/releases/key": "the key lies among the releases",
    }.items():
        with pytest.raises(ConfigError, match=words):
            small_stream(tmp_path / "s", output={"sign": str(tmp_path / name)})
    for given in (public[:-1], str(path), public.upper(), [public, ""]):
        with pytest.raises(ConfigError, match="expected a public key"):
            dp.read(signed / "releases", key=given)
    with pytest.raises(ConfigError, match="another key"):
        dp.read(signed / "releases", key=public)
    small_stream(tmp_path / "plain", steps=1).close()
    with pytest.raises(ConfigError, match=f"{SIGNATURE}: the folder is not signed"):
        dp.read(tmp_path / "plain/releases", key=public)
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    for asked in (
        lambda: dp.read(signed / "releases", key=public),
        lambda: small_stream(tmp_path / "new", output={"sign": str(path)}),
    ):
        with pytest.raises(ConfigError, match="signatures need the package cryptography"):
            asked()


def test_keys_are_changed_and_signing_ends_in_the_open(tmp_path: Path) -> None:
    old, new = new_key(tmp_path, "old"), new_key(tmp_path, "new")
    first, second = Signer(old).public, Signer(new).public
    releases = tmp_path / "releases"
    small_stream(tmp_path, steps=2, output={"sign": str(old)}).close()
    with pytest.raises(ConfigError, match=r"\[output\] sign"):
        small_stream(tmp_path)
    small_stream(tmp_path, steps=3, output={"sign": str(new)}).close()
    for keys in (second, [first, second]):
        assert dp.read(releases, key=keys).step == 3
    with pytest.raises(ConfigError, match=f"another key, {second}"):
        dp.read(releases, key=first)
    (releases / SIGNATURE).unlink()
    small_stream(tmp_path, steps=4).close()
    assert not (releases / SIGNATURE).exists()


def test_files_that_explain_are_made_anew_where_somebody_changed_them(signed: Path, tmp_path: Path) -> None:
    shutil.copytree(signed, tmp_path / "copy")
    readme = tmp_path / "copy/releases/README.txt"
    honest = readme.read_bytes()
    assert Signer(signed / "key").public.encode() in honest
    readme.write_bytes(honest.replace(b"never stack tables", b"always stack tables"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "PART", 2)
        assert explain(Config.load(tmp_path / "copy/dpstream.toml")) is None
    assert readme.read_bytes() == honest
    checked(tmp_path / "copy/releases", Signer(signed / "key").public)


@pytest.mark.parametrize(
    ("older_files", "words"),
    [
        ((), ""),
        ((SIGNATURE,), "signature.json is not of this catalogue.json"),
        ((SIGNATURE, "catalogue.json"), "catalogue.json lacks step 5, published"),
    ],
)
def test_files_of_an_earlier_day_are_not_signed_again(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older_files: tuple[str, ...], words: str
) -> None:
    """With them go the simulated errors of that day, which nothing else tells from today's."""
    monkeypatch.setattr(catalogue, "PART", 2)
    home, key = tmp_path / "home", Signer(signed / "key").public
    shutil.copytree(signed, home)
    releases, config = home / "releases", Config.load(home / "dpstream.toml")
    dpstream("errors", home / "dpstream.toml", "--runs", 3, "--until", 4)
    newest = (releases / "errors/step-000004.json").read_bytes()
    for name in (*older_files, *(f"errors/step-000004.{end}" for end in ("json", "parquet") if older_files)):
        older(name)(releases, signed / "earlier")
    if not older_files:
        list(dp.run(config))
        assert checked(releases, key)
        return
    with pytest.raises(StoreDamagedError, match=f"{words}.*remove signature.json and errors"):
        list(dp.run(config))
    for name in (SIGNATURE, "errors"):
        remove(name)(releases, Path())
    list(dp.run(config))
    dpstream("errors", home / "dpstream.toml", "--runs", 3, "--until", 4)
    assert checked(releases, key)
    assert (releases / "errors/step-000004.json").read_bytes() == newest
