"""Maps names to the functions or classes of one kind; other packages add theirs through entry
points.

>>> shapes = Registry("shape")
>>> @shapes.register("disc")
... def disc(radius):
...     return 3.14159 * radius**2
>>> shapes["disc"](1)
3.14159
"""

import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from hbench.core.errors import UnknownName, one_line, shorten

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind; an unknown one raises UnknownName with suggestions.

    `group` is the entry-point group that outside packages add to ("hbench.metrics"); it is read on
    the first miss or listing. An entry that fails to load or is not a `type` is left out, with a
    PluginWarning.
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        type: type = Callable,  # type: ignore[assignment]
    ) -> None:
        """`kind`: what messages call the entries, such as "metric"; `group`: the entry-point group
        of other packages, None for none; `type`: what an entry from there must be."""
        self.kind = kind
        self.group = group
        self.type = type
        self._entries: dict[str, T] = {}
        self._plugins_loaded = group is None

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that adds an entry under this name; ValueError for a name that is taken."""

        def add(entry: T) -> T:
            """Add the entry, and return it unchanged."""
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        """The entry of this name. Other packages are asked only where it is not known already:
        loading them takes long. Raises UnknownName."""
        if not isinstance(name, str):  # as a list, which cannot be looked up
            raise UnknownName(self.kind, repr(name), sorted(self._entries))
        if name not in self._entries:
            self._load_plugins()
        if name not in self._entries:
            own = f"a {self.kind} of your own is registered by a package: docs/plugins.md"
            raise UnknownName(
                self.kind, name, sorted(self._entries), otherwise=own if self.group else None
            )
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        """Whether there is an entry of this name, also in other packages."""
        self._load_plugins()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """The names of all entries, also those of other packages, in order of the alphabet."""
        self._load_plugins()
        return iter(sorted(self._entries))

    def package_of(self, name: str) -> str | None:
        """The package that adds the entry of this name by an entry point; None where none does."""
        points = entry_points(group=self.group, name=name) if self.group else ()
        return next((point.dist.name for point in points if point.dist), None)

    def _load_plugins(self) -> None:
        """Take what other packages register, once, and warn of what cannot be taken."""
        if self._plugins_loaded or self.group is None:
            return

        self._plugins_loaded = True  # before: a plug-in that looks up a name must not begin anew
        for point in entry_points(group=self.group):
            try:
                entry: Any = point.load()
            except KeyboardInterrupt:
                raise
            # somebody else's module raises whatever it likes: SystemExit, a Rust panic
            except BaseException as error:
                why = f"{type(error).__name__}: {error}"
            else:
                if point.name in self._entries:  # registered by its module as it was imported
                    continue
                if isinstance(entry, self.type):
                    self._entries[point.name] = cast("T", entry)
                    continue
                why = f"{point.value} is a {type(entry).__name__}, not a {self.type.__name__}"

            package = point.dist.name if point.dist else point.module
            text = f"the {self.kind} {point.name!r} of the package {package} is left out: {why}"
            warnings.warn(shorten(one_line(text), 300), PluginWarning, stacklevel=3)


class PluginWarning(UserWarning):
    """Says that what another package adds cannot be used."""
