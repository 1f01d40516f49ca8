"""The chain: its format, its keys, its heads, and what verifying finds."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.audit.chain import AuditKeys, Head, keyed_seal, plain_seal
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.frames import Header, encode_event, encode_frame, is_frame
from guarded_core.audit.verify import read, unsettled, verify
from guarded_core.ground.errors import ToolAuditTrailError

OLD, NEW = b"old-secret-of-32-bytes-xxxxxxxxxx", b"new-secret-of-32-bytes-yyyyyyyyyy"
KEYS = AuditKeys({"2026": NEW, "2025": OLD})


def event(number: int, outcome: Outcome = Outcome.DENIED) -> AuditEvent:
    """A small event."""
    return AuditEvent(outcome=outcome, time_ns=number, call_id=f"call-{number}", tool="search")


def code_of(action: Callable[[], object]) -> str:
    """The code that the action fails with; "intact" where it does not fail."""
    try:
        action()
    except ToolAuditTrailError as error:
        return error.code
    return "intact"


@pytest.fixture(params=[None, KEYS], ids=["plain", "keyed"])
def keys(request: pytest.FixtureRequest) -> AuditKeys | None:
    """Without keys and with."""
    found: AuditKeys | None = request.param
    return found


@pytest.fixture
def path(tmp_path: Path, keys: AuditKeys | None) -> Path:
    """A closed trail of two segments."""
    return written(tmp_path / "audit.log", keys)


def written(path: Path, keys: AuditKeys | None) -> Path:
    """Write a trail, and close it: records 1 to 3 in a closed segment, 4 to 6 in the next."""
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        for number in range(1, 7):
            trail.append(event(number))
            if number == 3:
                trail.rotate()
    return path


def edit_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change a file by its lines, each with its newline."""
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


# Format


def test_frame_bytes_are_pinned() -> None:
    """A record's line is count, length, key id, sorted JSON and the seal of all that behind the digest before."""
    body = encode_event(event(7))
    line, digest = encode_frame(7, b"-", body, b"0" * 64, plain_seal)
    text = b'7:0008f:-:{"call_id":"call-7","outcome":"denied","time_ns":7,"tool":"search"}:'
    expected = hashlib.sha256(b"0" * 64 + text).hexdigest().encode()
    assert (line, digest, len(line)) == (text + expected + b"\n", expected, 0x8F)
    assert is_frame(line[:-1])


def test_header_bytes_are_pinned() -> None:
    """A segment begins with its place in the trail, sealed like a record behind the segment before."""
    header = Header(trail="ab", segment=2, count=3, previous="1" * 64, created_ns=5)
    line, digest = header.encode(b"k1", keyed_seal(b"secret"))
    text = b'guarded-audit:1:k1:{"trail":"ab","segment":2,"count":3,"previous":"' + b"1" * 64 + b'","created_ns":5}:'
    expected = hmac.digest(b"secret", b"1" * 64 + text, "sha256").hex().encode()
    assert (line, digest) == (text + expected + b"\n", expected)


@given(st.binary(max_size=64), st.binary())
def test_keyed_seal_is_hmac_sha256(secret: bytes, data: bytes) -> None:
    """The seal under a key is HMAC-SHA256 in hex."""
    assert keyed_seal(secret)(data) == hmac.digest(secret, data, "sha256").hex().encode()


# Keys


def test_keys_in_every_form(tmp_path: Path) -> None:
    """One secret, a list, a mapping, a file: the first seals; ids of bare secrets come from the secrets."""
    (tmp_path / "keys").write_text(f"# newest first\n\n2026 = {NEW.hex()}\n2025={OLD.hex()}  # until 2027\n")
    assert AuditKeys.from_file(tmp_path / "keys").ids == ("2026", "2025")
    one, both = AuditKeys.of(NEW), AuditKeys.of([NEW, OLD])
    assert one is not None
    assert both is not None
    assert one.ids == both.ids[:1]
    assert len(set(both.ids)) == 2
    assert AuditKeys.of(None) is None
    assert AuditKeys.of(KEYS) is KEYS


@pytest.mark.parametrize("wrong", [[], {}, b"short", [b"x" * 15], {"-": NEW}, {"a b": NEW}, {"": NEW}, ["text"]])
def test_keys_that_cannot_seal_are_refused(wrong: object) -> None:
    """No key at all, a short one, a bad id: an error, and never a trail without keys."""
    assert code_of(lambda: AuditKeys.of(wrong)) == "invalid_keys"  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "k1", "k1 = zz", "k1 =", "= 00", f"k = {NEW.hex()}\nk = {OLD.hex()}"])
def test_key_files_that_cannot_be_read_are_refused(text: str) -> None:
    """Anything but new ids with hex digits is an error."""
    assert code_of(lambda: AuditKeys.from_text(text)) == "invalid_keys"


def test_keys_never_show_their_secrets() -> None:
    """A repr has ids only."""
    assert repr(KEYS) == "<AuditKeys 2026, 2025>"


def test_keys_derive_by_purpose() -> None:
    """Each purpose has a key of its own, from the first secret."""
    assert KEYS.derive("digests") == hmac.digest(NEW, b"guarded-tools digests", "sha256")
    assert KEYS.derive("digests") != KEYS.derive("audit-chain")


def test_keys_rotate_within_a_segment(tmp_path: Path) -> None:
    """A trail goes on under a new first key; all its keys verify it, and one alone does not."""
    path = tmp_path / "audit.log"
    for number, keys in enumerate((AuditKeys({"2025": OLD}), KEYS)):
        with DurableToolAuditTrail.open(path, keys=keys) as trail:
            trail.append(event(number))
    assert verify(path, KEYS).records == 2
    assert code_of(lambda: verify(path, {"2026": NEW})) == "unknown_key"
    assert code_of(lambda: verify(path, {"2025": OLD})) == "unknown_key"
    assert code_of(lambda: verify(path, {"2026": NEW, "2025": b"another secret, the same id"})) == "corrupt"


@pytest.mark.parametrize("attempt", [verify, lambda path, keys: DurableToolAuditTrail.open(path, keys=keys)])
def test_keys_are_neither_forgotten_nor_added(tmp_path: Path, attempt: Callable[..., object]) -> None:
    """A keyed trail does not open or verify without keys, nor one without keys with them."""
    keyed, plain = written(tmp_path / "keyed", KEYS), written(tmp_path / "plain", None)
    assert code_of(lambda: attempt(keyed, None)) == "unknown_key"
    assert code_of(lambda: attempt(plain, KEYS)) == "unkeyed"


# What verifying finds


def test_intact_trail_verifies(path: Path, keys: AuditKeys | None) -> None:
    """Verifying counts records and segments, and gives the head that the writer closed with."""
    found = verify(path, keys)
    assert (found.records, found.segments, found.closed, found.seen) == (6, 2, True, 6)
    beside = Head.parse(path.with_name("audit.log.head").read_bytes())
    assert (found.head.count, found.head.digest, found.head.trail) == (6, beside.digest, beside.trail)
    assert [number for number, _ in read(path, keys)] == [1, 2, 3, 4, 5, 6]
    assert [e for _, e in read(path, keys)] == [event(n) for n in range(1, 7)]


@pytest.mark.parametrize("name", ["audit.log", "audit.log.000001", "audit.log.head"])
def test_any_changed_byte_is_found(path: Path, keys: AuditKeys | None, name: str) -> None:
    """Each byte of each file, changed alone, makes verifying fail; the last newline of the head carries nothing."""
    file = path.with_name(name)
    whole = file.read_bytes()
    for at in range(len(whole.rstrip() if name.endswith("head") else whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert code_of(lambda: verify(path, keys)) != "intact", at
        file.write_bytes(whole[:at] + whole[at + 1 :])
        assert code_of(lambda: verify(path, keys)) != "intact", at


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "corrupt"),
        (lambda lines: [lines[0], *lines[2:]], "corrupt"),
        (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "corrupt"),
        (lambda lines: [*lines[:2], *lines[1:]], "corrupt"),
        (lambda lines: [*lines, lines[-1]], "corrupt"),
        (lambda lines: lines[:-1], "truncated"),
        (lambda lines: lines[:1], "truncated"),
        (lambda lines: [*lines[:-1], lines[-1][:-9]], "torn_tail"),
        (lambda lines: [*lines, b"garbage"], "torn_tail"),
        (lambda lines: [*lines[:2], b"\0" * 99 + b"\n", *lines[2:]], "corrupt"),
        (lambda lines: lines[1:], "not_a_trail"),
        (lambda lines: [], "not_a_trail"),
        (lambda lines: [lines[0].replace(b"audit:1:", b"audit:2:"), *lines[1:]], "unsupported_version"),
        (lambda lines: [b"x" * 100_000], "not_a_trail"),
        (lambda lines: [lines[0], b"x" * 100_000, *lines[1:]], "corrupt"),
    ],
    ids=[
        "removed", "first removed", "swapped", "duplicated", "last duplicated", "last cut", "all cut", "torn",
        "garbage", "zeros inside", "header removed", "emptied", "version", "no line", "long line",
    ],
)  # fmt: skip
def test_changed_lines_are_found(
    path: Path, keys: AuditKeys | None, change: Callable[[list[bytes]], list[bytes]], code: str
) -> None:
    """Removing, reordering, duplicating, cutting whole lines: each has its code, in verifying and in opening."""
    edit_lines(path, change)
    assert code_of(lambda: verify(path, keys)) == code
    assert code_of(lambda: DurableToolAuditTrail.open(path, keys=keys)) == code


def test_removed_files_are_found(path: Path, keys: AuditKeys | None) -> None:
    """A missing segment or head is an error; so is a trail that is not there at all."""
    closed, head = path.with_name("audit.log.000001"), path.with_name("audit.log.head")
    for file, code in ((closed, "segment_missing"), (head, "head_missing"), (path, "truncated")):
        kept = file.read_bytes()
        file.unlink()
        assert code_of(lambda: verify(path, keys)) == code
        file.write_bytes(kept)
    assert code_of(lambda: verify(path.with_name("other"), keys)) == "no_trail"


def test_a_cut_is_found_without_the_head(path: Path, keys: AuditKeys | None) -> None:
    """Cutting the end and deleting the head along with it is no way out, neither to verify nor to open."""
    edit_lines(path, lambda lines: lines[:-1])
    path.with_name("audit.log.head").unlink()
    assert code_of(lambda: verify(path, keys)) == "head_missing"
    assert code_of(lambda: DurableToolAuditTrail.open(path, keys=keys)) == "head_missing"


def test_a_removed_last_segment_is_found(path: Path, keys: AuditKeys | None) -> None:
    """The segment that was written last cannot vanish, nor the one before be passed off as it."""
    path.unlink()
    assert code_of(lambda: DurableToolAuditTrail.open(path, keys=keys)) == "segment_missing"
    path.with_name("audit.log.000001").rename(path)
    assert code_of(lambda: verify(path, keys)) == "truncated"


def test_swapped_segments_are_found(path: Path, keys: AuditKeys | None) -> None:
    """A segment stands for its own number only."""
    closed = path.with_name("audit.log.000001")
    first, second = closed.read_bytes(), path.read_bytes()
    closed.write_bytes(second)
    path.write_bytes(first)
    assert code_of(lambda: verify(path, keys)) == "segment_missing"


def test_segments_of_another_trail_are_found(path: Path, keys: AuditKeys | None, tmp_path: Path) -> None:
    """A segment of another trail under the same keys does not fit, nor does its head."""
    other = written(tmp_path / "other.log", keys)
    for suffix in ("", ".000001", ".head"):
        file = Path(f"{path}{suffix}")
        kept = file.read_bytes()
        shutil.copy(f"{other}{suffix}", file)
        assert code_of(lambda: verify(path, keys)) in ("corrupt", "head_mismatch")
        file.write_bytes(kept)


def test_records_behind_a_closed_head_are_found(path: Path, keys: AuditKeys | None) -> None:
    """An older closed head does not let later records stand, since a writer says that it goes on before it does."""
    head = path.with_name("audit.log.head")
    old = head.read_bytes()
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        trail.append(event(7))
    head.write_bytes(old)
    assert code_of(lambda: verify(path, keys)) == "beyond_head"


def rewrite(path: Path, body: bytes) -> None:
    """What somebody without a key can do: write a chain of their own, with its head."""
    header, _ = path.read_bytes().splitlines()[:2]
    line, digest = encode_frame(1, b"-", body, header[-64:], plain_seal)
    path.write_bytes(header + b"\n" + line)
    old = Head.parse(path.with_name(f"{path.name}.head").read_bytes())
    new = Head.sealed(None, trail=old.trail, segment=1, count=1, digest=digest.decode(), closed=True)
    path.with_name(f"{path.name}.head").write_text(str(new))


def test_without_a_key_only_an_anchor_finds_a_rewritten_trail(tmp_path: Path) -> None:
    """Whoever can write all files can rewrite a plain trail; a head kept elsewhere shows it. With a key they cannot."""
    anchors = {}
    for name, keys in (("plain", None), ("keyed", KEYS)):
        with DurableToolAuditTrail.open(tmp_path / name, keys=keys) as trail:
            trail.append(event(1))
            anchors[name] = trail.head()
        rewrite(tmp_path / name, encode_event(event(999)))
    assert code_of(lambda: verify(tmp_path / "plain")) == "intact"
    assert code_of(lambda: verify(tmp_path / "plain", anchor=anchors["plain"])) == "head_mismatch"
    assert code_of(lambda: verify(tmp_path / "keyed", KEYS)) == "unkeyed"


def test_anchor_finds_the_cut_that_a_crash_would_hide(tmp_path: Path, keys: AuditKeys | None) -> None:
    """Behind the last head, the end of a trail whose writer died can be cut unseen; not below an anchor."""
    path = tmp_path / "audit.log"
    trail = DurableToolAuditTrail.open(path, keys=keys)
    for number in range(1, 5):
        trail.append(event(number))
    anchor = trail.head()
    copy = tmp_path / "copy" / "audit.log"
    copy.parent.mkdir()
    for name in ("audit.log", "audit.log.head"):  # as a crash would leave them
        shutil.copy(tmp_path / name, copy.parent / name)
    edit_lines(copy, lambda lines: lines[:-1])
    found = verify(copy, keys)
    assert (found.records, found.closed, found.seen) == (3, False, 0)
    assert code_of(lambda: verify(copy, keys, anchor=anchor)) == "truncated"
    assert verify(path, keys, anchor=Head.parse(str(anchor))).records == 4
    trail.close()


def test_anchor_that_was_changed_is_refused(path: Path) -> None:
    """An anchor is checked like the head beside the trail."""
    fields = orjson.loads(path.with_name("audit.log.head").read_bytes()) | {"count": 5}
    anchor = Head.parse(orjson.dumps(fields))
    keys = None if fields["key"] == "-" else KEYS
    assert code_of(lambda: verify(path, keys, anchor=anchor)) == "head_invalid"


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "1", '{"trail":"x"}'])
def test_unreadable_heads_are_refused(path: Path, keys: AuditKeys | None, text: str) -> None:
    """A head that is no head is an error, not a missing one."""
    path.with_name("audit.log.head").write_text(text)
    assert code_of(lambda: verify(path, keys)) == "head_invalid"


def test_archived_segments(path: Path, keys: AuditKeys | None) -> None:
    """Verifying and reading may begin at a later segment, where the earlier ones are kept elsewhere."""
    path.with_name("audit.log.000001").unlink()
    found = verify(path, keys, first_segment=2)
    assert (found.records, found.segments, found.head.count) == (3, 1, 6)
    assert [number for number, _ in read(path, keys, first_segment=2)] == [4, 5, 6]


def test_progress_reaches_the_whole(path: Path, keys: AuditKeys | None) -> None:
    """Progress counts the bytes of all segments, and ends at their sum."""
    steps: list[tuple[int, int]] = []
    verify(path, keys, progress=lambda done, total: steps.append((done, total)))
    total = path.stat().st_size + path.with_name("audit.log.000001").stat().st_size
    assert {t for _, t in steps} == {total}
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1] == (total, total)


def test_an_event_that_is_none_is_found_in_reading(tmp_path: Path) -> None:
    """A line sealed rightly around something else than an event: reading and opening refuse it."""
    path = tmp_path / "audit.log"
    with DurableToolAuditTrail.open(path) as trail:
        trail.append(event(1))
    rewrite(path, b'{"outcome":"approved by nobody"}')
    assert code_of(lambda: list(read(path))) == "corrupt"
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "corrupt"


def test_a_line_being_written_is_no_fault(path: Path, keys: AuditKeys | None) -> None:
    """While a writer has the trail, an unfinished last line ends the reading; without a writer it is torn."""
    with path.open("ab") as writer:
        writer.write(b"7:000")
        writer.flush()
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert verify(path, keys).records == 6
    assert code_of(lambda: verify(path, keys)) == "torn_tail"


def test_a_rotation_cut_off_between_its_renames_is_whole(path: Path, keys: AuditKeys | None) -> None:
    """A crash between the two renames leaves the last segment closed and none to write: it verifies, and opens."""
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        trail.append(event(7))
    path.rename(path.with_name("audit.log.000002"))
    assert verify(path, keys).records == 7
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        trail.append(event(8))
    assert [number for number, _ in read(path, keys)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_rotation_cut_off_before_its_head_is_whole(path: Path, keys: AuditKeys | None) -> None:
    """A crash before the new head is in place leaves the old one, a segment behind: it verifies, and opens."""
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        old = path.with_name("audit.log.head").read_bytes()
        trail.append(event(7))
        trail.rotate()
    path.with_name("audit.log.head").write_bytes(old)
    assert verify(path, keys).records == 7
    with DurableToolAuditTrail.open(path, keys=keys) as trail:
        trail.append(event(8))
    assert verify(path, keys).records == 8


def test_unsettled_are_the_authorized_without_an_outcome(tmp_path: Path) -> None:
    """Authorized events that nothing final follows, across segments; asked, suspended and denied ones are none."""
    path = tmp_path / "audit.log"
    with DurableToolAuditTrail.open(path) as trail:
        for number, outcome in [
            (1, Outcome.AUTHORIZED), (2, Outcome.AUTHORIZED), (3, Outcome.DENIED), (4, Outcome.AUTHORIZED),
            (4, Outcome.SUSPENDED), (5, Outcome.AUTHORIZED), (1, Outcome.FAILED),
        ]:  # fmt: skip
            trail.append(event(number, outcome))
        trail.rotate()
        trail.append(event(5, Outcome.UNKNOWN))
        trail.append(event(6, Outcome.ASKED))
        assert trail.unsettled() == unsettled(path)
    assert [e.call_id for e in unsettled(path)] == ["call-2", "call-4"]


@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo"])
def test_only_regular_files_are_read(path: Path, keys: AuditKeys | None, kind: str) -> None:
    """No segment or head is read through a symlink, or from what is no file."""
    for file in (path, path.with_name("audit.log.000001"), path.with_name("audit.log.head")):
        aside = file.rename(file.with_name("aside"))
        if kind == "symlink":
            file.symlink_to(aside)
        elif kind == "folder":
            file.mkdir()
        else:
            os.mkfifo(file)
        assert code_of(lambda: verify(path, keys)) == "unsafe_file_type"
        file.rmdir() if kind == "folder" else file.unlink()
        aside.rename(file)
