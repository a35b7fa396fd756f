"""Walks a document along a JSON Schema: findings on one side, plain values with defaults on the other.

It knows the part of draft 2020-12 that our schemas use (KEYWORDS; a test refuses any other in them, and
jsonschema itself is held against it). jsonschema is not used for this: importing it alone takes
longer than `potato validate` may, it knows no positions, and it cannot read a text as the type a key wants.
"""

from __future__ import annotations

import re

from .findings import ERROR, MAX_ERRORS, Finding
from .near import nearest
from .nodes import SCALAR, SEQUENCE, Node, guessed_value
from .scalars import NotThat, as_boolean, as_integer, as_number
from .words import article, below, shown, type_names, without_quotes

KEYWORDS = frozenset({
    "$ref", "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "minItems", "maxItems", "items", "properties", "additionalProperties",
    "required", "propertyNames", "allOf", "if", "then",
})
#: Keywords that say nothing about validity.
ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "$comment", "title", "description", "default", "examples",
                         "patternErrorMessage"})

#: Control characters, newlines of any kind, and characters that turn the direction of a line, so
#: that a reader sees another script than the shell.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class TooManyErrors(Exception):
    """The rest of the file is not looked at."""


class _Bad:
    """Stands for a value that is wrong, in what walk returns."""

    def __repr__(self) -> str:
        return "BAD"


BAD = _Bad()
_patterns: dict[str, re.Pattern[str]] = {}


class Walker:
    """``findings`` grows with each walk. ``root`` is the schema that $ref looks into."""

    def __init__(self, root: dict):
        self.root = root
        self.findings: list[Finding] = []
        self.errors = 0
        #: Whether keys that the schema leaves open are of interest.
        self.guesses = True

    def say(self, node: Node, path: str, message: str, hint: str = "", level: str = ERROR) -> None:
        self.findings.append(Finding(level, path, node.line, node.column, message, hint))
        self.errors += level == ERROR
        if self.errors >= MAX_ERRORS:
            raise TooManyErrors

    def resolve(self, schema: dict) -> dict:
        while "$ref" in schema:
            target = self.root
            for part in schema["$ref"][2:].split("/"):
                target = target[part]
            schema = target
        return schema

    def walk(self, node: Node, schema: dict, path: str, key: str = ""):
        """The node's value as ``schema`` wants it, BAD where it cannot be had. ``key`` names it in messages."""
        schema = self.resolve(schema)
        types = schema.get("type")
        if types is None:
            if "allOf" not in schema and "properties" not in schema:
                value = guessed_value(node)
                return self.checked_enum(value, node, schema, path, key)
            types = "object"
        if node.kind == SCALAR:
            return self.scalar(node, schema, types, path, key)
        wanted = "array" if node.kind == SEQUENCE else "object"
        if wanted != types and wanted not in types:
            what = "a list" if wanted == "array" else "a mapping"
            hint = ""
            if types != "object" and wanted == "array" and len(node.value) == 1 and " " not in key:
                hint = f"write {key}: {shown(node.value[0])}" if node.value[0].kind == SCALAR else ""
            hint = hint or schema.get("x-hint", "")
            self.say(node, path, f"{key} is {what}, where {type_names(types)} is expected", hint)
            return BAD
        return self.array(node, schema, path, key) if wanted == "array" else self.object(node, schema, path)

    # --- scalars ------------------------------------------------------------------------------

    def scalar(self, node: Node, schema: dict, types, path: str, key: str):
        text = node.value
        if node.plain:
            if "null" in types and node.is_null:
                return None
            if node.is_null:
                # `remote_dir: ~` is null to YAML, and the home directory to whoever wrote it.
                what = schema.get("x-tilde") if text == "~" else None
                self.say(node, path, f"{key} is empty; {what or 'give it a value or remove it'}")
                return BAD
            value = self.from_plain(node, schema, types, path, key)
            if value is BAD:
                return BAD
        elif "string" in types:
            value = text
        else:
            self.say(node, path, f"{key} is the text {shown(node)}, where {type_names(types)} is expected",
                     without_quotes(text, types, key))
            return BAD
        if type(value) is str:
            return self.string(value, node, schema, path, key)
        return self.number(value, node, schema, path, key)

    def from_plain(self, node: Node, schema: dict, types, path: str, key: str):
        text = node.value
        if "string" in types:
            return text
        why = ""
        for name, read in (("boolean", as_boolean), ("integer", as_integer), ("number", as_number)):
            if name == types or (types.__class__ is list and name in types):
                try:
                    return read(text)
                except NotThat as problem:
                    why = why or str(problem)
        if why:
            self.say(node, path, f"{key} is {shown(node)}, which {why}", f"{type_names(types)} is expected")
        else:
            hint = ""
            wants_number = "number" in types or "integer" in types
            if "array" in types and " " not in key:
                hint = f"write {key}: [{shown(node)}]"
            elif wants_number and text.lower() in ("none", "never", "unlimited", "infinite", "no"):
                hint = "leave the key out for no limit"
            elif wants_number and text[:1].isdigit() and key.endswith(("_mb", "_s", "_seconds")):
                hint = f"write the number of {'MB' if key.endswith('_mb') else 'seconds'} alone"
            self.say(node, path, f"{key} is {shown(node)}, where {type_names(types)} is expected",
                     hint or schema.get("x-hint", ""))
        return BAD

    def string(self, value: str, node: Node, schema: dict, path: str, key: str):
        found = _CONTROL.search(value)
        if found and not ("x-lines" in schema and not _CONTROL.search(value.replace("\n", ""))):
            char = found.group()
            name = {"\n": "a line break", "\r": "a carriage return (Windows line ending)", "\t": "a tab"}.get(
                char, f"the control character U+{ord(char):04X}")
            self.say(node, path, f"{key} holds {name}", "write it on one line, without control characters")
            return BAD
        if len(value) < schema.get("minLength", 0):
            self.say(node, path, f"{key} is empty" if not value else f"{key} is too short",
                     "give it a value or remove it" if not value else "")
            return BAD
        if len(value) > schema.get("maxLength", len(value)):
            self.say(node, path, f"{key} is longer than {schema['maxLength']} characters")
            return BAD
        pattern = schema.get("pattern")
        if pattern and not matches(pattern, value):
            self.say(node, path, f"{key} is {shown(node)}" if value else f"{key} is an empty text",
                     schema.get("patternErrorMessage", f"it must match {pattern}"))
            return BAD
        return self.checked_enum(value, node, schema, path, key)

    def number(self, value, node: Node, schema: dict, path: str, key: str):
        if value is not None and value.__class__ is not bool:
            for keyword, wrong, words in (
                ("minimum", lambda v, b: v < b, "at least"), ("maximum", lambda v, b: v > b, "at most"),
                ("exclusiveMinimum", lambda v, b: v <= b, "more than"),
                ("exclusiveMaximum", lambda v, b: v >= b, "less than"),
            ):
                if keyword in schema and wrong(value, schema[keyword]):
                    self.say(node, path, f"{key} is {shown(node)}; it must be {words} {schema[keyword]}",
                             schema.get("x-hint", ""))
                    return BAD
        return self.checked_enum(value, node, schema, path, key)

    def checked_enum(self, value, node: Node, schema: dict, path: str, key: str):
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if allowed is None or any(value == a and (value.__class__ is bool) == (a.__class__ is bool) for a in allowed):
            return value
        words = [str(a) for a in allowed]
        near = nearest(value, words) if isinstance(value, str) else None
        one_of = ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]
        self.say(node, path, f"{key} is {shown(node)}; it must be {one_of}",
                 f"did you mean {near}?" if near else schema.get("x-hint", ""))
        return BAD

    # --- lists and mappings ---------------------------------------------------------------------

    def array(self, node: Node, schema: dict, path: str, key: str):
        items = schema.get("items", {})
        count = len(node.value)
        if count < schema.get("minItems", 0):
            self.say(node, path, f"{key} has {count} entries; at least {schema['minItems']} are needed")
        if count > schema.get("maxItems", count):
            self.say(node, path, f"{key} has {count} entries; at most {schema['maxItems']} are allowed")
        return [self.walk(child, items, f"{path}[{i}]", f"entry {i + 1} of {key}")
                for i, child in enumerate(node.value)]

    def object(self, node: Node, schema: dict, path: str) -> dict:
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        names = schema.get("propertyNames")
        values: dict = {}
        for key, (key_node, child) in node.value.items():
            place = below(path, key)
            if names is not None:
                self.string(key, key_node, self.resolve(names), place, "this name")
            if key in properties:
                values[key] = self.walk(child, properties[key], place, key)
            elif extra is False:
                self.unknown(key, key_node, child, schema, place)
            elif extra is not True:
                values[key] = self.walk(child, extra, place, key)
            elif self.guesses and "allOf" not in schema:
                values[key] = guessed_value(child)
        for part in schema.get("allOf", ()):
            if "if" not in part:
                values.update(self.object(node, self.resolve(part), path))
            elif self.fits(node, part["if"]):
                values.update(self.object(node, self.resolve(part["then"]), path))
        for key in schema.get("required", ()):
            if key not in node.value:
                self.missing(key, node, schema, path)
        return values

    def fits(self, node: Node, schema: dict) -> bool:
        quiet = Walker(self.root)
        quiet.guesses = False
        quiet.object(node, schema, "")
        return not quiet.findings

    def missing(self, key: str, node: Node, schema: dict, path: str) -> None:
        whose = f" for {article(schema['title'])} backend" if "title" in schema else ""
        prop = self.resolve(schema.get("properties", {}).get(key, {}))
        example = prop.get("examples", [""])[0]
        self.say(node, below(path, key), f"{key} is missing; it is required{whose}",
                 f"for instance {key}: {example}" if example else "")

    def unknown(self, key: str, key_node: Node, child: Node, schema: dict, path: str) -> None:
        from .misplaced import unknown_key

        message, hint = unknown_key(key, schema, self)
        self.say(key_node, path, message, hint)

    # --- defaults -----------------------------------------------------------------------------

    def filled(self, values: dict, schema: dict) -> dict:
        """``values`` in the schema's order with every key: the default, or None, where it is absent or BAD."""
        out: dict = {}
        for key, prop in self.resolve(schema).get("properties", {}).items():
            prop = self.resolve(prop)
            value = values.get(key, BAD)
            if prop.get("type") == "object" and "properties" in prop:
                value = self.filled(value if isinstance(value, dict) else prop.get("default", {}), prop)
            elif value is BAD:
                value = prop.get("default")
                value = list(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value
            out[key] = value
        return out


def matches(pattern: str, value: str) -> bool:
    """Whether ``pattern`` is found in ``value``; its final $ means the very end, as in other languages."""
    compiled = _patterns.get(pattern)
    if compiled is None:
        strict = pattern[:-1] + r"\Z" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern
        compiled = _patterns[pattern] = re.compile(strict)
    return compiled.search(value) is not None
