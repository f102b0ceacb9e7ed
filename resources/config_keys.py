"""What can be configured, read from the models themselves: for the command line's help and docs/configuration.md."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from resources.config import Document


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key: its section (`products` and `products.masks` are lists of tables), what it takes, its default and its meaning."""

    section: str
    name: str
    allowed: str
    default: str
    meaning: str


def configuration_keys(model: type[BaseModel] = Document, section: str = "") -> Iterator[KeyFacts]:
    """Every key, the top level's own first, then section by section in the order of the models."""
    nested = []
    for name, item in model.model_fields.items():
        inner = _model_in(item.annotation)
        if inner is not None:
            nested.append((name, inner))
        if inner is None or section:
            default = "required" if item.default is PydanticUndefined else _shown(item.default)
            yield KeyFacts(section, name, _allowed(item.annotation, item.metadata), default, item.description or "")
    for name, inner in nested:
        yield from configuration_keys(inner, f"{section}.{name}" if section else name)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _allowed(annotation: Any, metadata: list[Any]) -> str:
    words = _type_words(annotation)
    bounds = []
    for item in metadata:
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"), ("multiple_of", "multiple of")):
            if getattr(item, name, None) is not None:
                bounds.append(f"{sign} {getattr(item, name)}")
    return ", ".join([words, *bounds])


def _type_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{item}"' for item in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_words(item) for item in arguments if item is not type(None))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {_type_words(arguments[0])}"
        return f"list of {len(arguments)} {_type_words(arguments[0])}s"
    if arguments and getattr(annotation, "__metadata__", None):
        return _type_words(arguments[0])
    names = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "tables"
    return names.get(annotation, "time" if getattr(annotation, "__name__", "") == "datetime" else str(annotation))


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def as_markdown() -> str:
    """Tables of all keys, one a section, for docs/configuration.md."""
    lines: list[str] = []
    section = None
    for key in configuration_keys():
        if key.section != section:
            section = key.section
            title = {"": "Top level", "products": "[[products]]", "products.masks": "[[products.masks]]"}.get(
                section, f"[{section}]"
            )
            lines += ["", f"### {title}", "", "| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
        cells = (f"`{key.name}`", key.allowed, f"`{key.default}`" if key.default != "required" else "required", key.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines).strip() + "\n"
