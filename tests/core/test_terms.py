"""What a policy says of a tool's schema: places that stay open, and patterns that only the tool itself checks."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core import Guard, InvalidPayload, InvalidPolicy, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_core.policy.file import dump_policy, parse_policy
from guarded_core.tools.schema.terms import CLOSED, OPEN, Terms, terms_of
from guarded_core.tools.spec import ToolSpec

LOOKAHEAD = r"^(?!\.)(?!.*\.\.)[^@]+@[^@]+$"


def spec_of(terms: Terms = CLOSED, /, **properties: Any) -> ToolSpec:
    """A tool with these parameters; ``defs`` are its definitions."""
    defs = properties.pop("defs", {})
    schema = {"type": "object", "properties": properties, "$defs": defs}
    return ToolSpec.of(name="t", description="", schema=schema, terms=terms)


def opening(*places: str) -> Terms:
    """Terms that keep those places open."""
    return terms_of(places, (), False)


FREE: dict[str, Any] = {"type": "object", "additionalProperties": True}
BARE: dict[str, Any] = {"type": "object"}


class TestOpen:
    """A free-form place that the policy names stays open, and no other does."""

    @pytest.mark.parametrize(
        ("declared", "value"),
        [
            (FREE, {"a": {"b": [1, {"c": None}]}}),
            (BARE, {"a": {"b": 1}}),
            ({}, {"a": 1}),
            (True, {"a": 1}),
            ({"anyOf": [FREE, {"type": "null"}]}, {"a": {"b": 1}}),
            ({"type": "array", "items": FREE}, [{"a": 1}, {"b": {"c": 1}}]),
            ({"type": "array"}, [{"a": 1}]),
            ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}),
            ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, {"x1": 1}),
            ({"$ref": "#/$defs/Free"}, {"a": {"b": 1}}),
            ({"$ref": "#/$defs/Holder"}, {"inner": {"a": {"b": 1}}}),
        ],
    )
    def test_the_place_with_all_that_is_below(self, declared: Any, value: Any) -> None:
        """Maps, free objects and values, lists of them, alternatives and references."""
        defs = {"Free": FREE, "Holder": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Free"}}}}
        spec = spec_of(filters=declared, other=declared, defs=defs)
        opened = spec.validator(terms=opening("/filters"))
        assert opened.check({"filters": value}) is None
        assert opened.check({"other": value}) is not None
        assert spec.validator().check({"filters": value}) is not None
        assert spec.validator(terms=OPEN).check({"filters": value, "other": value}) is None

    def test_only_what_the_schema_leaves_open(self) -> None:
        """What it declares is still checked, and an object that it spells out has no more properties than those."""
        spec = spec_of(
            filters={"type": "object", "additionalProperties": {"type": "integer"}},
            spelled={"type": "object", "properties": {"a": {"type": "integer"}}},
        )
        opened = spec.validator(terms=opening("filters", "spelled"))
        assert opened.check({"filters": {"x": 1}, "spelled": {"a": 1}}) is None
        assert opened.check({"filters": {"x": "1"}}) == "at /filters/*: wrong type, expected integer"
        assert opened.check({"spelled": {"b": 1}}) == "at /spelled: a property that the schema does not declare"

    def test_a_place_inside(self) -> None:
        """``*`` stands for each item; what is beside it stays closed."""
        item = {"type": "object", "properties": {"meta": FREE, "other": FREE}}
        opened = spec_of(items={"type": "array", "items": item}).validator(terms=opening("/items/*/meta"))
        assert opened.check({"items": [{"meta": {"a": 1}}, {"meta": {"b": {"c": 2}}}]}) is None
        assert opened.check({"items": [{"other": {"a": 1}}]}) is not None

    def test_a_definition_is_open_only_where_it_is_named(self) -> None:
        """Also one that refers to itself."""
        tree = {
            "type": "object",
            "properties": {"data": FREE, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        }
        spec = spec_of(one={"$ref": "#/$defs/Tree"}, two={"$ref": "#/$defs/Tree"}, defs={"Tree": tree})
        opened = spec.validator(terms=opening("/one"))
        deep = {"data": {"a": 1}, "kids": [{"data": {"b": 2}, "kids": [{"data": {"c": 3}}]}]}
        assert opened.check({"one": deep}) is None
        assert opened.check({"two": {"kids": [{"data": {"b": 2}}]}}) is not None
        assert opened.check({"two": {"kids": [{"data": {}}]}}) is None

    def test_what_is_free_form_is_listed(self) -> None:
        """As JSON Pointers, without what is open, and without what stands in a free place."""
        spec = spec_of(a=FREE, b={"type": "array", "items": BARE}, c={"type": "string"}, d={}, e={"$ref": "#/$defs/F"},
                       defs={"F": FREE})  # fmt: skip
        assert spec.free_form() == ["/a", "/b/*", "/d", "/e"]
        assert spec.free_form(opening("a", "/b/*")) == ["/d", "/e"]
        assert spec.free_form(OPEN) == []

    def test_what_is_shown_is_what_is_accepted(self) -> None:
        """A free-form place is shown closed until the policy opens it; a tool without one is shown as it declares."""
        spec = spec_of(filters=FREE, name={"type": "string"})
        shown = spec.shown_schema()
        assert shown["properties"]["filters"] == {"type": "object", "additionalProperties": False}
        assert spec.shown_schema(opening("/filters")) == spec.schema
        assert spec_of(name={"type": "string"}).shown_schema() == spec_of(name={"type": "string"}).schema


class TestPatterns:
    """A pattern that runs on no linear-time engine is refused, unless the policy leaves it to the tool."""

    def test_the_refusal_names_tool_parameter_and_way_out(self) -> None:
        """Ready to paste."""
        with pytest.raises(InvalidTool) as refused:
            spec_of(to={"type": "string", "pattern": LOOKAHEAD})
        assert "tool 't'" in str(refused.value)
        assert '[tools.t] opaque_patterns = ["/to"]' in str(refused.value)

    def test_it_is_then_not_checked_here(self) -> None:
        """All else of the parameter is, and the tool's fingerprint is the same."""
        to = {"type": "string", "pattern": LOOKAHEAD, "maxLength": 9}
        spec = spec_of(terms_of((), ("/to",), False), to=to)
        judged = spec.validator(terms=terms_of((), ("to",), False))
        assert judged.check({"to": "no mail"}) is None
        assert judged.check({"to": "x" * 10}) == "at /to: longer than 9 characters"
        assert spec.schema["properties"]["to"] == to
        with pytest.raises(InvalidTool):
            spec.validator()

    def test_a_linear_pattern_is_checked_all_the_same(self) -> None:
        """The policy leaves to the tool only what cannot be checked here."""
        spec = spec_of(code={"type": "string", "pattern": "^[a-z]+$"})
        assert spec.validator(terms=terms_of((), ("code",), False)).check({"code": "A"}) is not None

    @pytest.mark.parametrize(
        ("declared", "place"),
        [
            ({"anyOf": [{"type": "string", "pattern": LOOKAHEAD}, {"type": "null"}]}, "/to"),
            ({"type": "array", "items": {"type": "string", "pattern": LOOKAHEAD}}, "/to/*"),
            ({"type": "object", "properties": {"mail": {"type": "string", "pattern": LOOKAHEAD}}}, "/to/mail"),
            ({"$ref": "#/$defs/Mail"}, "/to"),
        ],
    )
    def test_wherever_it_stands(self, declared: Any, place: str) -> None:
        """Alternatives, items, properties and references."""
        defs = {"Mail": {"type": "string", "pattern": LOOKAHEAD}} if "$ref" in declared else {}
        with pytest.raises(InvalidTool, match="opaque_patterns"):
            spec_of(to=declared, defs=defs)
        assert spec_of(terms_of((), (place,), False), to=declared, defs=defs).opaque_patterns() == [place]

    def test_a_definition_is_left_to_the_tool_only_with_all_its_places(self) -> None:
        """One word of the policy does not speak for another parameter."""
        mail = {"Mail": {"type": "string", "pattern": LOOKAHEAD}}
        both = {"to": {"$ref": "#/$defs/Mail"}, "cc": {"$ref": "#/$defs/Mail"}}
        with pytest.raises(InvalidTool, match="Parameter /cc:"):
            spec_of(terms_of((), ("to",), False), **both, defs=mail)
        terms = terms_of((), ("to", "/cc"), False)
        assert spec_of(terms, **both, defs=mail).validator(terms=terms).check({"to": "a", "cc": "b"}) is None


class TestPolicy:
    """The settings in a policy, and after a reload."""

    TEXT = '[tools.t]\nrisk = "read_only"\nopen = ["/filters", "items"]\nopaque_patterns = ["/to"]\nopaque = ["tags"]\n'

    def test_they_are_read_and_written(self) -> None:
        """From TOML and to TOML."""
        policy = parse_policy("version = 1\n\n" + self.TEXT)
        assert parse_policy(dump_policy(policy)).hash == policy.hash
        assert policy.terms("t") == terms_of(("filters", "/items"), ("to",), False)
        assert policy.terms("unknown") == CLOSED

    @pytest.mark.parametrize(
        ("setting", "value"), [("open", ["/a~2"]), ("open", [""]), ("opaque_patterns", ["a*"]), ("opaque", ["/a/b"])]
    )
    def test_what_is_no_place_is_refused(self, setting: str, value: list[str]) -> None:
        """With the setting's name."""
        with pytest.raises(InvalidPolicy, match=setting):
            ToolSettings(risk="read_only", **{setting: tuple(value)})

    def test_a_reload_counts_at_the_next_call(self) -> None:
        """What it opens is accepted and shown; what it no longer leaves to the tool is refused, and not shown."""
        opened = ToolSettings(risk="read_only", open=("filters",), opaque_patterns=("to",))
        guard = Guard(ToolExecutionPolicy({"t": opened}))

        @guard.tool
        def t(filters: dict[str, int]) -> str:
            """Look."""
            return str(filters)

        guard.register(spec_of(guard.policy.terms("t"), to={"pattern": LOOKAHEAD}, filters=FREE))
        with guard.session("u", tools=["t"]):
            assert t({"a": 1}) == "{'a': 1}"
            assert guard.visible_tools()[0].schema["properties"]["filters"] == FREE
            assert guard.decide("t", {"filters": {"a": 1}}).outcome == "allow"
            guard.reload(ToolExecutionPolicy({"t": "read_only"}))
            with pytest.raises(InvalidPayload, match="does not declare"):
                t({"a": 1})
            assert guard.visible_tools() == []
            assert guard.coverage().tools[0].why == ("its schema cannot be checked as the policy has it",)
