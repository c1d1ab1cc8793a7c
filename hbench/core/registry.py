"""Registers functions or classes of one kind, such as metrics, by name. Other packages add theirs
through entry points.

>>> shapes = Registry("shape")
>>> @shapes.register("disc")
... def disc(radius):
...     return 3.14159 * radius**2
>>> shapes["disc"](1)
3.14159
"""

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from hbench.core.errors import UnknownName, lines_through, one_line, shorten

T = TypeVar("T")


class Registry(Generic[T]):
    """A mapping from names to entries of one kind. An unknown name raises UnknownName, with
    suggestions.

    Other packages add entries through the entry-point group `group`, such as "hbench.metrics". The
    group is read when a name is not found, or when all names are listed. An entry that fails to
    load, or that is not of the class `type`, is left out with a PluginWarning.
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        type: type = Callable,  # type: ignore[assignment]
    ) -> None:
        """Make an empty registry.

        Args:
            kind: what messages call an entry, such as "metric".
            group: the entry-point group of other packages; None: they cannot add entries.
            type: the class that an entry of another package must be an instance of.
        """
        self.kind = kind
        self.group = group
        self.type = type
        self._entries: dict[str, T] = {}
        self._plugins_loaded = group is None

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds an entry under this name. Raises ValueError if the name is
        taken."""

        def add(entry: T) -> T:
            """Add the entry, and return it unchanged."""
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        """Return the entry of this name. Raises UnknownName. Other packages are loaded only if the
        name is not known yet, since loading them takes long."""
        if not isinstance(name, str):  # such as a list, which is no key of a dictionary
            raise UnknownName(self.kind, repr(name), sorted(self._entries))
        if name not in self._entries:
            self._load_plugins()
        if name not in self._entries:
            own = f"a {self.kind} of your own is registered by a package: docs/plugins.md"
            # `otherwise`: the advice if no known name is close. Without a `group`, other packages
            # cannot add entries
            raise UnknownName(
                self.kind, name, sorted(self._entries), otherwise=own if self.group else None
            )
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        """Whether there is an entry of this name, here or in another package."""
        self._load_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all entries, also of other packages, in alphabetical order."""
        self._load_plugins()
        return iter(sorted(self._entries))

    def package_of(self, name: str) -> str | None:
        """The name of the package that adds this entry by an entry point; None for an entry of
        hbench."""
        points = entry_points(group=self.group, name=name) if self.group else ()
        return next((point.dist.name for point in points if point.dist), None)

    def _load_plugins(self) -> None:
        """Add the entries of other packages, at the first call only. Warn of entries that cannot
        be used."""
        if self._plugins_loaded or self.group is None:
            return

        # set before loading: a plug-in that looks up a name must not start the loading again
        self._plugins_loaded = True
        for point in entry_points(group=self.group):
            try:
                entry: Any = point.load()
            except KeyboardInterrupt:
                raise
            # another package's module may raise anything, even SystemExit or a Rust panic
            except BaseException as error:
                why = f"{type(error).__name__}: {error}{_line_in(point, error)}"
            else:
                if point.name in self._entries:  # its module registered the entry on import
                    continue
                if isinstance(entry, self.type):
                    self._entries[point.name] = cast("T", entry)
                    continue
                why = f"{point.value} is a {type(entry).__name__}, not a {self.type.__name__}"

            package = point.dist.name if point.dist else point.module
            text = f"the {self.kind} {point.name!r} of the package {package} is left out: {why}"
            warnings.warn(shorten(one_line(text), 300), PluginWarning, stacklevel=3)


def _line_in(point: EntryPoint, error: BaseException) -> str:
    """Return the innermost line of an entry point's package that an error passed through, as text
    to append to the error's; "" if it passed through none."""
    package = point.module.partition(".")[0]
    lines = [line for module, line in lines_through(error) if module.partition(".")[0] == package]
    return f", in {lines[-1]}" if lines else ""


class PluginWarning(UserWarning):
    """Warns that an entry of another package cannot be used."""
