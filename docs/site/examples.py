"""Docstrings for the reference: `Example:` is a section; a method without a text has that of the one it overrides."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Before a docstring is parsed: griffe knows a section of doctests as `Examples:`."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M
            )

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """When all of it has been read, so that bases are known."""
        _inherit(pkg)


def _inherit(parent: griffe.Module | griffe.Class) -> None:
    for member in parent.members.values():
        if member.is_alias:
            continue
        if isinstance(member, (griffe.Module, griffe.Class)):
            _inherit(member)
        elif isinstance(parent, griffe.Class) and not member.docstring:
            bases = (base.members.get(member.name) for base in parent.mro())
            member.docstring = next(
                (base.docstring for base in bases if base is not None and base.docstring), None
            )
