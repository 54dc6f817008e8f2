"""Finds handlers in packages and by the entry points of installed ones."""

import importlib
import inspect
import pkgutil
import sys
from importlib import metadata
from types import ModuleType

from . import events, handler

GROUP = "a2a.task_handlers"

#: What stands for all entry points where a package is named.
ENTRY_POINTS = "entry-points"


def serve_old_imports():
    """Lets handlers import what they imported from the server they were written for.

    Only for a process that runs handlers and nothing else: an installed `a2a` would be hidden.
    """
    names = {
        "a2a": {},
        "a2a.server": {},
        "a2a.server.tasks": {},
        "a2a.server.tasks.task_handler": {"TaskHandler": handler.TaskHandler},
        "a2a.json_rpc": {},
        "a2a.json_rpc.spec": {
            name: value for name, value in vars(events).items() if inspect.isclass(value)
        },
    }
    for name, members in names.items():
        module = ModuleType(name)
        module.__path__ = []
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)


def handlers(sources):
    """All handlers of these packages, by name."""
    found = {}
    for source in sources:
        for kind in _entry_points() if source == ENTRY_POINTS else _package(source):
            made = kind()
            if made.name in found and type(found[made.name]) is not kind:
                raise ValueError(f"two handlers are called {made.name!r}: {_where(found[made.name])}"
                                 f" and {_where(made)}")
            found[made.name] = made
    return found


def _where(made):
    return f"{type(made).__module__}.{type(made).__qualname__}"


def _package(name):
    module = importlib.import_module(name)
    modules = [module]
    for inner in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        modules.append(importlib.import_module(inner.name))
    for module in modules:
        for kind in vars(module).values():
            # What a module imports from elsewhere is not its own.
            if _is_handler(kind) and kind.__module__ == module.__name__:
                yield kind


def _entry_points():
    points = metadata.entry_points()
    if hasattr(points, "select"):
        chosen = points.select(group=GROUP)
    else:
        chosen = points.get(GROUP, [])
    for point in chosen:
        kind = point.load()
        if not _is_handler(kind):
            raise TypeError(f"the entry point {point.name} of {GROUP} is no TaskHandler")
        yield kind


def _is_handler(kind):
    return (
        inspect.isclass(kind)
        and issubclass(kind, handler.TaskHandler)
        and not inspect.isabstract(kind)
    )
