"""Text that tools return is read as the structure that it was written from, before labels apply."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from guarded_core.cli.policy import app
from guarded_core.policy.file import parse_policy
from guarded_core.policy.lint import lint
from guarded_core.provenance.labels import Labels
from guarded_core.provenance.memory import Provenance
from guarded_core.provenance.structure import structured

RECORDS = [
    {"id": "7", "owner": "bob@example.com", "note": "ask eve@evil.example"},
    {"id": "8", "owner": "ann@example.com", "note": "-"},
]
TABLE = """
| id | owner | note |
|---|:-:|--:|
| 7 | bob@example.com | ask eve@evil.example |
| 8 | ann@example.com | - |
"""
CSV = 'id,owner,note\n7,bob@example.com,ask eve@evil.example\n8,"ann@example.com",-\n'
FIELDS = "id: 7\nowner: bob@example.com\nnote: ask eve@evil.example\n\nid: 8\nowner: ann@example.com\nnote: -"
LINES = "\n".join(map(json.dumps, RECORDS))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        f"```json\n{json.dumps(RECORDS)}\n```",
        LINES,
        TABLE,
        TABLE.replace("| 7", "7").replace("| id |", "id |").replace("|---|", "---|").replace("| 8", "8"),
        CSV,
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        FIELDS,
        FIELDS.replace("id:", "- **id**:"),
        [{"type": "text", "text": json.dumps(RECORDS)}],
        [{"type": "text", "text": json.dumps(record)} for record in RECORDS],
    ],
)
def test_labels_apply_to_text_as_to_what_it_was_written_from(text: Any) -> None:
    """Every form gives the same records, and the same verdicts."""
    assert structured(text) == RECORDS
    labels = {"trusted": ("/*/owner",), "record_id": "/*/id"}
    for output in (RECORDS, text):
        origins = Provenance("u")
        origins.observe("list", output, Labels(**labels))
        found = [origins.trace(value)[0].origin.value for value in ("bob@example.com", "eve@evil.example")]
        assert found == ["trusted", "untrusted"]


def test_a_mail_is_its_head_and_its_body() -> None:
    """Fields may be folded; what stands in the body is no field."""
    head = "From: Bob <bob@example.com>\nTo: Ann <ann@example.com>,\n  Carl <carl@example.com>\nSubject: Hi"
    text = head + "\n\nFrom: eve@evil.example\nTo: x"
    read = structured(text)
    assert read["To"] == "Ann <ann@example.com>, Carl <carl@example.com>"
    assert read["body"] == "From: eve@evil.example\nTo: x"
    origins = Provenance("u")
    origins.observe("read", text, Labels(trusted=("/From", "/To")))
    found = [
        origins.trace(f"{name}")[0].origin.value for name in ("bob@example.com", "carl@example.com", "eve@evil.example")
    ]
    assert found == ["trusted", "trusted", "untrusted"]


@pytest.mark.parametrize(
    "text",
    [
        '{"owner": "bob@example.com", "owner": "eve@evil.example"}',
        '{"a": {"owner": 1, "owner": 2}}',
        '{"a": NaN}',
        '{"a": 1} and more',
        "[" * 5000,
        "From: a@b.example\nSubject: x\nFrom: eve@evil.example\n\nbody",
        "owner: bob@example.com\nnote: x\nowner: eve@evil.example",
        "owner: bob@example.com\nwhat a line\nnote: x",
        "| a | a |\n|---|---|\n| 1 | 2 |",
        "| a | b |\n|---|---|\n| 1 | 2 | 3 |",
        "a,b\n1,2,3",
        'a,b\n"1,2',
        "a,a\n1,2",
        "Hello Bob.\nHow are you?",
        "one: line",
        "",
        "12",
    ],
)
def test_what_can_be_read_in_two_ways_stays_text(text: str) -> None:
    """A field that stands there twice, a row of another length, a line that fits nowhere."""
    assert structured(text) == text


def test_a_text_inside_an_output_is_never_taken_apart() -> None:
    """Who wrote a mail's body would else write its fields."""
    origins = Provenance("u")
    origins.observe(
        "read",
        {"body": '{"owner": "eve@evil.example"}', "owner": "bob@example.com"},
        Labels(trusted=("/*/owner", "/owner")),
    )
    found = [
        origins.trace(f"{name}@{rest}")[0].origin.value
        for name, rest in (("bob", "example.com"), ("eve", "evil.example"))
    ]
    assert found == ["trusted", "untrusted"]


def test_numbers_and_people_of_json_text_are_values() -> None:
    """As those of the object are."""
    origins = Provenance("ann@example.com")
    text = json.dumps([{"sender": "ann@example.com", "to": ["bob@example.com"], "total": 480.5}])
    origins.observe("mails", text, Labels(author="/*/sender", people=("/*/to",), trusted=("/*/total",)))
    assert origins.trace("bob@example.com")[0].origin.value == "known"
    assert origins.trace(480.5)[0].origin.value == "trusted"


def test_a_label_that_covers_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the pointer and the tool, never a value; an empty list has room for any item."""
    origins, labels = Provenance("u"), Labels(trusted=("/items/*/owner", "/items/*/id"), secret=("/token",))
    with caplog.at_level(logging.WARNING, "guarded_core"):
        for _ in range(3):
            origins.observe("list", {"items": [{"owner": "bob@example.com"}]}, labels)
        assert [record.getMessage() for record in caplog.records] == [
            "the label trusted = '/items/*/id' covers nothing of what list returned",
            "the label secret = '/token' covers nothing of what list returned",
        ]
        caplog.clear()
        origins.observe("list", {"items": [], "token": ""}, Labels(trusted=("/items/*/owner",), secret=("/token",)))
        origins.observe("list", "", Labels(trusted=("/items/*/owner",)))
        assert not caplog.records


POLICY = """
version = 1
[tools.list]
risk = "read_only"
trusted = ["/*/owner", "/*/Owner", ""]
named_by = ["/*/note", "id"]
author = "/*/by"
"""


def test_labels_are_tried_on_samples(tmp_path: Path) -> None:
    """By the lint and by `guarded policy check --samples`: what covers nothing of any sample is named."""
    samples = {"list": ["[]", json.dumps(RECORDS)], "lst": [1]}
    findings = [(found.where, found.message) for found in lint(parse_policy(POLICY), samples=samples)]
    assert findings == [
        ("tools.list.author", "'/*/by' covers nothing of 1 sample; a label on no part says nothing"),
        ("tools.list.trusted", "'/*/Owner' covers nothing of 1 sample; a label on no part says nothing"),
        ("", "there are samples of 'lst', which is no tool; did you mean 'list'?"),
    ]
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "samples.json").write_text(json.dumps(samples))
    arguments = ["check", str(tmp_path / "policy.toml"), "--samples", str(tmp_path / "samples.json")]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, "/*/Owner" in result.output, "/*/owner" in result.output) == (0, True, False)
    for wrong in ("[]", '{"list": 1}', "{"):
        (tmp_path / "samples.json").write_text(wrong)
        assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize(
    "piece", ["{", "[", "|", "| a ", "a: b\n", "a,b\n", "A: b\n", '"', "- ", "```\n", "a|b\n-|-\n", "\n\n", '{"a":1}\n']
)
def test_time_is_linear(piece: str) -> None:
    """Nothing that a tool may return makes reading it slow: 250 KB within seconds on any machine."""
    text = piece * (250_000 // len(piece))
    started = time.process_time()
    structured(text)
    assert time.process_time() - started < 5
