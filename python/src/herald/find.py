"""Finds handlers: in packages, in the modules of herald.handlers, and by the entry points of installed packages."""

import importlib
import inspect
import pkgutil
import sys
import traceback
from importlib import metadata
from types import ModuleType

from . import events, handler
from . import handlers as built_in

GROUP = "a2a.task_handlers"

#: The name of all entry points in place of a package.
ENTRY_POINTS = "entry-points"

#: The package whose modules are found without being named.
BUILT_IN = "herald.handlers"


class Unusable(Exception):
    """A package without a usable handler, with the reason."""


def serve_old_imports():
    """Aliases the import paths of a2a-server to this package.

    Only for a process that runs handlers and nothing else: an installed `a2a` would be hidden.
    """
    names = {
        "a2a": {},
        "a2a.server": {},
        "a2a.server.tasks": {},
        "a2a.server.tasks.task_handler": {"TaskHandler": handler.TaskHandler},
        "a2a.server.tasks.handlers": {"__path__": list(built_in.__path__)},
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
        kinds = list(_installed() if source == ENTRY_POINTS else _package(source))
        if not any(map(_is_handler, kinds)):
            raise Unusable(_missing(source, kinds))
        for kind in filter(_is_handler, kinds):
            made = _make(kind)
            if made.name in found and type(found[made.name]) is not kind:
                raise Unusable(f"two handlers are called {made.name!r}: {place(found[made.name])}"
                               f" and {place(made)}")
            found[made.name] = made
    return found


def discover():
    """The handlers that need not be named: (handler, `module:Class`) for each, and the reasons why others are skipped."""
    found, skipped = [], []
    for load, spec in [*_built_in(), *_points()]:
        try:
            for kind in load():
                # The same class may have several entry points, and modules have base classes of handlers.
                if any(type(made) is kind for made, _ in found) or not (spec or _is_handler(kind)):
                    continue
                if not _is_handler(kind):
                    raise Unusable(f"{spec} is not a handler: it is not a complete subclass of TaskHandler")
                found.append((_make(kind), spec or f"{kind.__module__}:{kind.__qualname__}"))
        except Unusable as fault:
            skipped.append(str(fault))
    return found, skipped


def one(spec):
    """The handler of `module:Class`."""
    point = metadata.EntryPoint(name=spec, value=spec, group=GROUP)
    kind = _do(f"load {spec}", point.load)
    if not _is_handler(kind):
        raise Unusable(f"{spec} is not a handler: it is not a complete subclass of TaskHandler")
    return _make(kind)


def description(made):
    """The docstring of a handler's own class, for its card."""
    return inspect.cleandoc(type(made).__doc__ or "").strip()


def place(made):
    """The class of a handler and its file, for messages."""
    kind = type(made)
    try:
        return f"{kind.__module__}.{kind.__qualname__} in {inspect.getfile(kind)}"
    except (OSError, TypeError):
        return f"{kind.__module__}.{kind.__qualname__}"


def _built_in():
    for inner in pkgutil.iter_modules(built_in.__path__, BUILT_IN + "."):
        yield lambda name=inner.name: list(_package(name)), None


def _points():
    for point in _entry_points():
        work = f"load the entry point {point.name} of {GROUP}"
        # An entry point may name extras after its class.
        spec = point.value.split("[")[0].replace(" ", "")
        yield lambda point=point, work=work: [_do(work, point.load)], spec


def _make(kind):
    made = _do(f"make the handler {kind.__module__}.{kind.__qualname__}", kind)
    name = _do(f"read the name of {place(made)}", lambda: made.name)
    if not isinstance(name, str):
        raise Unusable(f"the name of {place(made)} is {name!r}; it must be a text")
    return made


def _missing(source, kinds):
    if source == ENTRY_POINTS:
        return f"no installed package names a handler in the group {GROUP}"
    for kind in kinds:
        lacks = ", ".join(sorted(kind.__abstractmethods__))
        return f"{kind.__module__}.{kind.__qualname__} is no handler yet: it lacks {lacks}"
    return f"there is no handler in {source}: a handler is a subclass of herald.TaskHandler"


def _do(what, work, *arguments):
    """Runs code of a package. An exception is reported with its line."""
    try:
        return work(*arguments)
    except (Exception, SystemExit) as fault:
        said = f"{type(fault).__name__}: {fault}".replace("\n", " ")
        frames = traceback.extract_tb(fault.__traceback__)
        # A missing module or a syntax error has no line of its own in the traceback.
        if not isinstance(fault, SyntaxError) and len(frames) > 1 and not frames[-1].filename.startswith("<"):
            said += f" ({frames[-1].filename}, line {frames[-1].lineno})"
        raise Unusable(f"cannot {what}: {said}") from fault


def _package(name):
    module = _load(name)
    modules = [module]
    # A package that cannot be loaded is reported when it is imported below.
    for inner in pkgutil.walk_packages(getattr(module, "__path__", []), name + ".", lambda _: None):
        modules.append(_load(inner.name))
    for module in modules:
        for kind in vars(module).values():
            # Classes that a module imports are not its own handlers.
            if _is_kind(kind) and kind.__module__ == module.__name__:
                yield kind


def _load(name):
    if "/" in name or name.endswith(".py"):
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        raise Unusable(f"{name!r} is no name of a module; write it as `import` does, such as {meant}")
    return _do(f"load the module {name}", importlib.import_module, name)


def _entry_points():
    points = metadata.entry_points()
    if hasattr(points, "select"):
        return points.select(group=GROUP)
    return points.get(GROUP, [])


def _installed():
    for point in _entry_points():
        kind = _do(f"load the entry point {point.name} of {GROUP}", point.load)
        if not _is_handler(kind):
            raise Unusable(f"the entry point {point.name} of {GROUP} is no TaskHandler")
        yield kind


def _is_kind(kind):
    return inspect.isclass(kind) and issubclass(kind, handler.TaskHandler)


def _is_handler(kind):
    return _is_kind(kind) and not inspect.isabstract(kind)
