"""The required part of the official JSON-Schema-Test-Suite, draft 2020-12.

Each group of cases is either refused at registration, and then listed here with the reason, or judged: by the guard's
validator, by `jsonschema` as the oracle, and by the suite itself. Where the three do not agree, it is listed too. A
listed refusal or difference that is no longer there fails as well.

The schemas are judged as they are, unclosed, since the suite's instances are not all arguments.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema import Validator, lint

VARIABLE = "JSON_SCHEMA_TEST_SUITE"
FOLDER = Path(os.environ[VARIABLE], "draft2020-12") if os.environ.get(VARIABLE) else None
FILES = sorted(path.name for path in FOLDER.glob("*.json")) if FOLDER else ["not there"]

pytestmark = pytest.mark.skipif(FOLDER is None, reason=f"{VARIABLE} does not name the folder of the suite")

# Why a schema is refused: a part of the error's text.
REFERENCE = "only references inside the schema"  # to another document, or by an anchor or an $id
ID = "$id is not supported"
ANCHOR = "$anchor is not supported"
DYNAMIC = ("$dynamicRef is not supported", "$dynamicAnchor is not supported")
DRAFT = "not a supported draft"  # a metaschema of its own
DEFAULT = "the default does not fit"  # the suite has defaults as annotations; here they are filled in
BOOLEAN = "a tool's schema is a JSON object"

# ruff: noqa: E501 -- the suite's own titles
REFUSED: dict[str, dict[str, str | tuple[str, ...]]] = {
    "anchor.json": {
        "Location-independent identifier": REFERENCE,
        "Location-independent identifier with absolute URI": REFERENCE,
        "Location-independent identifier with base URI change in subschema": REFERENCE,
        "same $anchor with different base uri": REFERENCE,
    },
    "boolean_schema.json": {
        "boolean schema 'true'": BOOLEAN,
        "boolean schema 'false'": BOOLEAN,
    },
    "default.json": {
        "invalid type for default": DEFAULT,
        "invalid string value for default": DEFAULT,
        "the default keyword does not do anything if the property is missing": DEFAULT,
    },
    "defs.json": {
        "validate definition against metaschema": REFERENCE,
    },
    "dynamicRef.json": {
        "A $dynamicRef to a $dynamicAnchor in the same schema resource behaves like a normal $ref to an $anchor": DYNAMIC,
        "A $dynamicRef to an $anchor in the same schema resource behaves like a normal $ref to an $anchor": ANCHOR,
        "A $ref to a $dynamicAnchor in the same schema resource behaves like a normal $ref to an $anchor": DYNAMIC,
        "A $dynamicRef resolves to the first $dynamicAnchor still in scope that is encountered when the schema is evaluated": REFERENCE,
        "A $dynamicRef without anchor in fragment behaves identical to $ref": REFERENCE,
        "A $dynamicRef with intermediate scopes that don't include a matching $dynamicAnchor does not affect dynamic scope resolution": REFERENCE,
        "An $anchor with the same name as a $dynamicAnchor is not used for dynamic scope resolution": REFERENCE,
        "A $dynamicRef without a matching $dynamicAnchor in the same schema resource behaves like a normal $ref to $anchor": REFERENCE,
        "A $dynamicRef with a non-matching $dynamicAnchor in the same schema resource behaves like a normal $ref to $anchor": REFERENCE,
        "A $dynamicRef that initially resolves to a schema with a matching $dynamicAnchor resolves to the first $dynamicAnchor in the dynamic scope": DYNAMIC,
        "A $dynamicRef that initially resolves to a schema without a matching $dynamicAnchor behaves like a normal $ref to $anchor": DYNAMIC,
        "multiple dynamic paths to the $dynamicRef keyword": ID,
        "after leaving a dynamic scope, it is not used by a $dynamicRef": ID,
        "strict-tree schema, guards against misspelled properties": DYNAMIC,
        "tests for implementation dynamic anchor and reference link": REFERENCE,
        "$ref and $dynamicAnchor are independent of order - $defs first": DYNAMIC,
        "$ref and $dynamicAnchor are independent of order - $ref first": REFERENCE,
        "$ref to $dynamicRef finds detached $dynamicAnchor": REFERENCE,
        "$dynamicRef points to a boolean schema": DYNAMIC,
        "$dynamicRef skips over intermediate resources - direct reference": ID,
        "$dynamicRef avoids the root of each schema, but scopes are still registered": REFERENCE,
    },
    "ref.json": {
        "remote ref, containing refs itself": REFERENCE,
        "Recursive references between schemas": ID,
        "refs with relative uris and defs": REFERENCE,
        "relative refs with absolute uris and defs": REFERENCE,
        "$id must be resolved against nearest parent, not just immediate parent": REFERENCE,
        "order of evaluation: $id and $ref": REFERENCE,
        "order of evaluation: $id and $anchor and $ref": REFERENCE,
        "order of evaluation: $id and $ref on nested schema": REFERENCE,
        "simple URN base URI with $ref via the URN": REFERENCE,
        "URN base URI with URN and JSON pointer ref": REFERENCE,
        "URN base URI with URN and anchor ref": ANCHOR,
        "URN ref with nested pointer ref": REFERENCE,
        "ref to if": REFERENCE,
        "ref to then": REFERENCE,
        "ref to else": REFERENCE,
        "ref with absolute-path-reference": REFERENCE,
    },
    "refRemote.json": {
        "remote ref": REFERENCE,
        "fragment within remote ref": REFERENCE,
        "anchor within remote ref": REFERENCE,
        "ref within remote ref": REFERENCE,
        "base URI change": ID,
        "base URI change - change folder": ID,
        "base URI change - change folder in subschema": ID,
        "root ref in remote ref": REFERENCE,
        "remote ref with ref to defs": REFERENCE,
        "Location-independent identifier in remote ref": REFERENCE,
        "retrieved nested refs resolve relative to their URI not $id": REFERENCE,
        "remote HTTP ref with different $id": REFERENCE,
        "remote HTTP ref with different URN $id": REFERENCE,
        "remote HTTP ref with nested absolute ref": REFERENCE,
        "$ref to $ref finds detached $anchor": REFERENCE,
    },
    "unevaluatedItems.json": {
        "unevaluatedItems with $dynamicRef": REFERENCE,
    },
    "unevaluatedProperties.json": {
        "unevaluatedProperties with $dynamicRef": REFERENCE,
    },
    "vocabulary.json": {
        "schema that uses custom metaschema with with no validation vocabulary": DRAFT,
        "ignore unrecognized optional vocabulary": DRAFT,
    },
}

# Whether each case is valid: (in the suite, for the guard, for jsonschema); None where jsonschema cannot say, because
# Python's `re` does not know the Unicode property escapes of ECMA-262.
DIFFERENCES: dict[str, dict[tuple[str, str], tuple[bool, bool, bool | None]]] = {
    "pattern.json": {
        ("pattern with Unicode property escape requires unicode mode", "ASCII letters match"): (True, True, None),
        ("pattern with Unicode property escape requires unicode mode", "Non-ASCII letters match"): (True, True, None),
        ("pattern with Unicode property escape requires unicode mode", "Digits do not match"): (False, False, None),
    },
    "patternProperties.json": {
        ("patternProperties with Unicode property escape", "Unicode letter property name matches"): (True, True, None),
        ("patternProperties with Unicode property escape", "Non-letter property name does not match pattern"): (
            True,
            True,
            None,
        ),
    },
}


def groups(file: str) -> list[dict[str, Any]]:
    """The groups of a file: a schema and its cases each."""
    assert FOLDER is not None
    found: list[dict[str, Any]] = json.loads((FOLDER / file).read_text())
    return found


def refusal(schema: Any) -> str | None:
    """Why the lint refuses a schema; None where it does not."""
    try:
        lint(schema, root_object=False)
    except InvalidTool as error:
        return str(error)
    return None


def oracle(schema: Any, instance: Any) -> bool | None:
    """What `jsonschema` says; None where it fails."""
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(instance))
    except Exception:
        return None


def test_the_suite_is_complete() -> None:
    """The folder holds the whole required part, and every file that is listed here."""
    assert len(FILES) == 46
    assert sum(len(groups(file)) for file in FILES) == 383
    assert REFUSED.keys() | DIFFERENCES.keys() <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_what_is_refused_is_listed_with_its_reason(file: str) -> None:
    """The lint refuses exactly the listed schemas, each for the listed reason."""
    refused = {group["description"]: reason for group in groups(file) if (reason := refusal(group["schema"]))}
    listed = REFUSED.get(file, {})
    assert refused.keys() == listed.keys()
    for description, reason in listed.items():
        assert any(part in refused[description] for part in ([reason] if isinstance(reason, str) else reason))


@pytest.mark.parametrize("file", FILES)
def test_every_other_schema_judges_as_the_suite_and_the_oracle_do(file: str) -> None:
    """Suite, oracle and validator agree on every case of an accepted schema, except for the listed differences."""
    different = {}
    for group in groups(file):
        if group["description"] in REFUSED.get(file, {}):
            continue
        validator = Validator(group["schema"])
        for case in group["tests"]:
            reason = validator.check(case["data"])
            verdicts = (case["valid"], reason is None, oracle(group["schema"], case["data"]))
            if len(set(verdicts)) > 1:
                different[group["description"], case["description"]] = verdicts
            assert reason is None or reason.startswith("at /"), "an explained refusal"
    assert different == DIFFERENCES.get(file, {})
