"""Prints the descriptors of a generated protobuf module as JSON, all that is seen on the wire.

Runs in a peer's environment (`descriptors.py MODULE`); our tests call `dump` with descriptors of
our own.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def field(found: Any) -> dict[str, Any]:
    kind = found.message_type or found.enum_type
    oneof = found.containing_oneof
    return {
        "number": found.number,
        "type": found.type,
        "repeated": found.is_repeated,
        "of": kind.full_name if kind else "",
        "json": found.json_name,
        # An optional field stands in a oneof of its own, which is no more than how it is spelled.
        "oneof": oneof.name if oneof and not oneof.name.startswith("_") else "",
        "presence": found.has_presence,
    }


def message(found: Any) -> dict[str, Any]:
    return {
        "fields": {each.name: field(each) for each in found.fields},
        "nested": {each.name: message(each) for each in found.nested_types},
        "map": found.GetOptions().map_entry,
    }


def dump(file: Any) -> dict[str, Any]:
    return {
        "package": file.package,
        "messages": {name: message(each) for name, each in file.message_types_by_name.items()},
        "enums": {
            name: {value.name: value.number for value in each.values}
            for name, each in file.enum_types_by_name.items()
        },
        "services": {
            name: {
                method.name: [
                    method.input_type.full_name,
                    method.output_type.full_name,
                    method.client_streaming,
                    method.server_streaming,
                ]
                for method in each.methods
            }
            for name, each in file.services_by_name.items()
        },
    }


if __name__ == "__main__":
    print(json.dumps(dump(importlib.import_module(sys.argv[1]).DESCRIPTOR)))
