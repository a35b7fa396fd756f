"""Unpacking: what tar can say about files and directories is understood, all else is refused."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from potato_training.worker.agent_untar import BadArchive, untar

part = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="/\\\0"), min_size=1, max_size=60
).filter(lambda text: text not in (".", "..") and len(text.encode()) <= 200)
names = st.lists(part, min_size=1, max_size=4).map("/".join)
files = st.dictionaries(names, st.binary(max_size=2000), max_size=6)
formats = st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])


def tar_of(entries, kind=tarfile.PAX_FORMAT):
    """The bytes of a tar of (name, data or TarInfo)."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=kind) as archive:
        for name, data in entries:
            member = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.name = name
            if isinstance(data, bytes):
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data) if isinstance(data, bytes) else None)
    return target.getvalue()


def unpack(data, target, **options):
    options.setdefault("most_bytes", 1 << 30)
    target.mkdir()
    return untar(io.BytesIO(data).read, str(target), **options)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def clash_free(entries):
    return not any(other.startswith(name + "/") for name in entries for other in entries)


@given(files.filter(clash_free), formats)
def test_files_come_out_as_they_went_in(tmp_path_factory, entries, kind):
    target = tmp_path_factory.mktemp("untar") / "out"
    size = unpack(tar_of(entries.items(), kind), target)
    assert contents(target) == entries
    assert size == sum(map(len, entries.values()))


@given(st.data())
def test_a_damaged_archive_never_reaches_outside(tmp_path_factory, data):
    """Any bytes changed, anything cut off or put in: refused or unpacked, and always inside."""
    folder = tmp_path_factory.mktemp("untar")
    whole = bytearray(tar_of([("a.txt", b"x" * 600), ("media/b", b"y"), ("ü" * 80, b"z")]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, min(len(whole), 6000) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    with contextlib.suppress(BadArchive, OSError):
        unpack(bytes(whole[:cut]), folder / "out")
    assert [p.name for p in folder.iterdir()] == ["out"]


def link(name, target, kind=tarfile.SYMTYPE):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def special(name, kind):
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


@pytest.mark.parametrize(("entries", "why"), [
    ([("../x", b"")], "not a name inside"),
    ([("a/../../x", b"")], "not a name inside"),
    ([("/x", b"")], "not a name inside"),
    ([("a//x", b"")], "not a name inside"),
    ([("./x", b"")], "not a name inside"),
    ([("a\\..\\x", b"")], "not a name inside"),
    ([("a\nb", b"")], "not a name inside"),
    ([("d", link("d", "/tmp")), ("d/x", b"")], "neither a file"),
    ([("h", link("h", "x", tarfile.LNKTYPE))], "neither a file"),
    ([("p", special("p", tarfile.FIFOTYPE))], "neither a file"),
    ([("p", special("p", tarfile.CHRTYPE))], "neither a file"),
    ([("p", special("p", tarfile.CONTTYPE))], "neither a file"),
    ([("a", b"1"), ("a", b"2")], "twice"),
    ([("a", b"1"), ("a/b", b"2")], "twice"),
    ([("a/b", b"1"), ("a", b"2")], "twice"),
    ([("/".join("a" * 40), b"1")], "too long"),
])
def test_what_is_not_allowed_is_refused(tmp_path, entries, why):
    with pytest.raises(BadArchive, match=why):
        unpack(tar_of(entries), tmp_path / "out")


@pytest.mark.parametrize("cut", [0, 100, 512, 700, 1024])
def test_an_archive_that_is_cut_short_is_refused(tmp_path, cut):
    whole = tar_of([("a", b"x" * 600)])
    with pytest.raises(BadArchive):
        unpack(whole[:cut], tmp_path / "out")


def test_bytes_after_the_end_are_refused(tmp_path):
    with pytest.raises(BadArchive, match="something follows"):
        unpack(tar_of([("a", b"x")]) + b"more", tmp_path / "out")


def test_sizes_are_bounded_by_what_comes_and_not_by_what_is_said(tmp_path):
    with pytest.raises(BadArchive, match="more than is allowed"):
        unpack(tar_of([("a", b"x" * 500), ("b", b"x" * 600)]), tmp_path / "one", most_bytes=1000)
    with pytest.raises(BadArchive, match="too many members"):
        unpack(tar_of([("a", b""), ("b", b"")]), tmp_path / "two", most_members=1)
    claims = tarfile.TarInfo("a")
    claims.size = 1 << 50
    with pytest.raises(BadArchive, match="more than is allowed"):
        unpack(claims.tobuf(tarfile.GNU_FORMAT) + b"x" * 512, tmp_path / "three")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_no_header_can_make_it_hold_much(tmp_path, kind):
    header = special("x", kind)
    header.size = 1 << 30
    taken = []

    def read(size):
        taken.append(size)
        return header.tobuf() if len(taken) == 1 else b"\0" * size

    (tmp_path / "out").mkdir()
    with pytest.raises(BadArchive, match="too long"):
        untar(read, str(tmp_path / "out"), most_bytes=1 << 40)
    assert sum(taken) <= 512


def test_modes_in_the_archive_mean_nothing(tmp_path):
    member = tarfile.TarInfo("setuid")
    member.mode, member.uid = 0o6777, 0
    directory = tarfile.TarInfo("d")
    directory.type, directory.mode = tarfile.DIRTYPE, 0o777
    old = os.umask(0)
    try:
        unpack(tar_of([("setuid", member), ("d", directory), ("d/x", b"")]), tmp_path / "out")
    finally:
        os.umask(old)
    modes = {p.name: p.stat().st_mode & 0o7777 for p in Path(tmp_path / "out").rglob("*")}
    assert modes == {"setuid": 0o600, "d": 0o700, "x": 0o600}
