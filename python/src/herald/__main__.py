"""Runs one handler behind Herald: `python3 -m herald --package P NAME`, or lists them."""

import argparse
import asyncio
import json
import sys
import traceback

from . import find
from .serve import serve


def main():
    parser = argparse.ArgumentParser(prog="herald")
    parser.add_argument("--package", action="append", default=[], help="where handlers are")
    parser.add_argument("--discover", action="store_true", help="print the handlers that are found, as JSON")
    parser.add_argument("--load", metavar="MODULE:CLASS", help="run this handler")
    parser.add_argument("--list", action="store_true", help="print the handlers as JSON")
    parser.add_argument("name", nargs="?", help="the handler to run")
    arguments = parser.parse_args()
    # Standard output is for the protocol, so output of handlers goes to standard error.
    out, sys.stdout = sys.stdout, sys.stderr
    find.serve_old_imports()
    try:
        if arguments.discover:
            found, skipped = find.discover()
            listed = [{**_entry(made), "load": spec} for made, spec in found]
            print(json.dumps({"handlers": listed, "skipped": skipped}), file=out)
            return
        if arguments.load:
            asyncio.run(serve(find.one(arguments.load), out))
            return
        found = find.handlers(arguments.package)
    except find.Unusable as fault:
        # For the author of the handler. Herald shows the last line.
        if fault.__cause__ is not None:
            traceback.print_exception(None, fault.__cause__, fault.__cause__.__traceback__)
        sys.exit(str(fault))
    if arguments.list:
        print(json.dumps([_entry(found[name]) for name in sorted(found)]), file=out)
        return
    if arguments.name not in found:
        known = ", ".join(sorted(found)) or "none"
        sys.exit(f"there is no handler {arguments.name!r}; there are: {known}")
    asyncio.run(serve(found[arguments.name], out))


def _entry(made):
    entry = {"name": made.name, "description": find.description(made), "place": find.place(made)}
    if getattr(made, "admission", False) is True:
        entry["admission"] = True
    return entry


if __name__ == "__main__":
    main()
