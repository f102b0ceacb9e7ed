"""What can be configured, read from the models themselves: for the command line's help and docs/configuration.md."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from resources.config import PIPELINES, Document, config_path, configuration_of


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """One key: its pipeline (empty: of every one), its section (`products` and `products.masks` are lists of tables), what it
    takes, its default and its meaning.
    """

    pipeline: str
    section: str
    name: str
    allowed: str
    default: str
    meaning: str


def configuration_keys() -> Iterator[KeyFacts]:
    """Every key: those of every pipeline, then what each has beside them or takes another default for.

    The top level's own first, then section by section in the order of the models.
    """
    shared = list(_keys(Document, pipeline=""))
    yield from shared
    known = {replace(key, pipeline="") for key in shared}
    for name in PIPELINES:
        mine = configuration_of(config_path(), name).document
        yield from (key for key in _keys(mine, pipeline=name) if replace(key, pipeline="") not in known)


def _keys(model: type[BaseModel], *, pipeline: str, section: str = "") -> Iterator[KeyFacts]:
    nested = []
    for name, item in model.model_fields.items():
        inner = _model_in(item.annotation)
        if inner is not None:
            nested.append((name, inner))
        if inner is None or section:
            default = "required" if item.default is PydanticUndefined else _shown(item.default)
            yield KeyFacts(pipeline, section, name, _allowed(item.annotation, item.metadata), default, item.description or "")
    for name, inner in nested:
        yield from _keys(inner, pipeline=pipeline, section=f"{section}.{name}" if section else name)


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
    place = None
    for key in configuration_keys():
        if (key.pipeline, key.section) != place:
            place = (key.pipeline, key.section)
            title = {"": "Top level", "products": "[[products]]", "products.masks": "[[products.masks]]"}.get(
                key.section, f"[{key.section}]"
            )
            of = f" of {key.pipeline}" if key.pipeline else ""
            lines += ["", f"### {title}{of}", "", "| key | takes | default | meaning |", "| --- | --- | --- | --- |"]
        cells = (f"`{key.name}`", key.allowed, f"`{key.default}`" if key.default != "required" else "required", key.meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines).strip() + "\n"
