"""Refuses arguments of another kind than their annotation says: a number for a text, a text for a
number.

Only kinds that can be told by looking are checked: texts, numbers, flags, paths, functions, lists
of these, dictionaries, and classes. What an annotation leaves open, such as what may become an
array, is for the function to check.

>>> @checked
... def repeated(word: str, times: int = 2) -> str:
...     return times * word
>>> repeated("a"), repeated("a", 3)
('aa', 'aaa')
>>> repeated(3)
Traceback (most recent call last):
hbench.core.errors.UsageError: word must be a text
  found:    3 (int)
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from hbench.core.errors import UsageError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

FLAGS = ("bool", "bool_")  # Python's and numpy's
MAX_FOUND = 60  # letters of what was found
MAX_NAME = 255  # bytes of a file's name
HUGE = 2**1023  # whole numbers from here on are refused: few more fit into a float
UNIONS = (typing.Union, types.UnionType)
ORDERED = (collections.abc.Sequence, list, tuple)
LISTS = (*ORDERED, collections.abc.Collection, collections.abc.Iterable)
MAPPINGS = (dict, collections.abc.Mapping)
WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    types.NoneType: "None",
}
ELEMENTS = {str: "texts", int: "whole numbers", float: "numbers", Path: "paths"}
OTHER_CLASSES = {  # of values that are as good
    int: (numbers.Integral,),
    float: (numbers.Real,),
    Path: (os.PathLike, str),
}


class ArgumentKind(NamedTuple):
    """A kind of values: what it is called, whether a value is one, and the value as functions
    expect it."""

    name: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], Any] = lambda value: value


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function raise UsageError for an argument that is not of a kind that its annotation
    names.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function with its arguments checked, and made what it expects."""
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # where Python says what is missing or unknown
        given.arguments |= fitted(function, given.arguments)
        return function(*given.args, **given.kwargs)

    return call


def fitted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for parameters of a function, by name, as it expects them: a number as a float,
    a text as a path. Raises UsageError for a value that is not of a kind that the annotation names.
    """
    plain = {}
    for name, value in values.items():
        # no kinds: the annotation leaves open what the value may be, and nothing is checked
        kinds = _kinds_of(function).get(name, ())
        kind = next((kind for kind in kinds if kind.fits(value)), None)
        if kinds and kind is None:
            raise _other_kind(name, value, " or ".join(kind.name for kind in kinds))
        if isinstance(value, str | os.PathLike) and name in _paths_of(function):
            _refuse_no_name(name, value)
        plain[name] = value if kind is None else kind.plain(value)
    return plain


def _other_kind(name: str, value: object, expected: str) -> UsageError:
    """The refusal of an argument of another kind; of a text in the place of a list, as one types
    it, it says how that is written."""
    # loads pydantic, which takes long, for a refusal alone
    from hbench.core.text import list_meant_by

    is_typed = expected.startswith("a list") and isinstance(value, str) and "," in value
    fix = f"write {name}={list_meant_by(str(value))}" if is_typed else None
    return UsageError(f"{name} must be {expected}", found=_described(value), fix=fix)


def _refuse_no_name(name: str, value: str | os.PathLike[str]) -> None:
    """Raise UsageError for a path that no file can have: with letters that no name has, or with a
    part that is too long."""
    parts = Path(os.fspath(value)).parts
    if "\0" in os.fspath(value) or not _can_be_encoded(parts):
        raise UsageError(
            f"{name} is no name of a file", expected="letters of UTF-8", found=ascii(value)
        )
    if any(len(os.fsencode(part)) > MAX_NAME for part in parts):
        raise UsageError(
            f"{name} is longer than the name of a file can be",
            expected=f"at most {MAX_NAME} bytes between two slashes",
            found=_described(value),
        )


def _can_be_encoded(texts: Sequence[str]) -> bool:
    """Whether the system can write the texts as bytes; half a surrogate pair it cannot."""
    try:
        for text in texts:
            os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


@functools.cache
def _paths_of(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters that take paths, also as one of several, such as `str | Path | Dataset`.

    They are found in the text of the annotation, since `_kinds_of` knows nothing of such unions.
    """
    parameters = inspect.signature(function).parameters
    # an annotation is a text under `from __future__ import annotations`, or prints as one
    return frozenset(name for name, each in parameters.items() if "Path" in str(each.annotation))


def checked_class(cls: type[T]) -> type[T]:
    """Let a class raise UsageError when it is made with an argument of another kind than its
    annotation names.
    """
    cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
    return cls


def as_array(given: Any, name: str) -> NDArray[Any]:
    """An argument as an array: of a torch tensor on any device, a column of a table, or nested
    lists, also of tensors.

    Raises UsageError for lists of different lengths, which are no array, and for masked values.
    """
    import numpy as np

    try:
        array = np.asanyarray(_without_gradient(given))  # which keeps a mask, to be refused below
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"{name} cannot be read as an array",
            expected="rows of one length",
            found=one_line(str(error)),
        ) from None
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise UsageError(
            f"{name} has masked values",
            expected="a value everywhere",
            found=f"{int(np.ma.getmaskarray(array).sum()):,} masked",
            fix="fill them, such as scores by .filled(-np.inf), which leaves an item out",
        )
    return np.asarray(np.ma.getdata(array))  # no matrix either, whose rows stay matrices


def _without_gradient(given: Any) -> Any:
    """Torch tensors, alone or in lists, as what numpy reads: without a gradient, on the processor,
    in a type that numpy has, as bfloat16 is not. Anything else is returned as it is."""
    # told by their methods, so that torch need not be imported
    if isinstance(given, list | tuple) and given and hasattr(given[0], "detach"):
        import numpy as np

        return np.stack([np.asarray(_without_gradient(each)) for each in given])
    detach = getattr(given, "detach", None)
    tensor = detach().cpu() if detach else given
    return tensor.float() if "bfloat16" in str(getattr(tensor, "dtype", "")) else tensor


def _described(value: object) -> str:
    """A value with its type, as an error shows what was found: "3 (int)"; a long one is cut off."""
    text = one_line(repr(value))
    shown = text if len(text) <= MAX_FOUND else f"{text[: MAX_FOUND - 1]}…"
    return shown if value is None else f"{shown} ({type(value).__name__})"


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> dict[str, tuple[ArgumentKind, ...]]:
    """The kinds of values that each parameter takes, by its name; parameters whose annotation
    leaves that open are not among them. Kept, for a function is called many times."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        # *args and **kwargs: the annotation is that of each of many values, which none has by name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kinds = _kinds(_resolved(parameter.annotation, function))
        if kinds:
            found[name] = kinds
    return found


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """An annotation of a function's parameter as a type, since source files hold them as texts; Any
    where it names what is imported for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    try:
        # of our own source, or of a plug-in that was imported
        return eval(annotation, vars(sys.modules[function.__module__]))
    except Exception:  # a name for type checkers alone, or anything else in a plug-in
        return Any


def _kinds(annotation: Any) -> tuple[ArgumentKind, ...]:
    """The kinds of values that an annotation takes; none, so that nothing is checked, where any
    member of a union cannot be told by looking."""
    if typing.get_origin(annotation) in UNIONS:
        members = typing.get_args(annotation)
        # `Report | Path` is left to the function, which knows better what to say of an array;
        # `Report | None` is checked here
        is_optional = len(members) == 2 and types.NoneType in members
        # WORDS are plain types (texts, numbers, paths, None), which can be told by looking
        has_class = any(isinstance(member, type) and member not in WORDS for member in members)
        if has_class and not is_optional:
            return ()
        kinds = [_kinds(member) for member in members]
        # () of a single member leaves the whole union open
        return tuple(kind for of_member in kinds for kind in of_member) if all(kinds) else ()
    kind = _kind(annotation)
    return (kind,) if kind else ()


def _kind(annotation: Any) -> ArgumentKind | None:
    """What values an annotation takes, or None where this cannot be told from the annotation alone:
    nothing is checked then."""
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _kind_of_many(origin, typing.get_args(annotation))
    if annotation is None:  # in annotations None stands for its own type
        annotation = types.NoneType
    if annotation in (object, Any, inspect.Parameter.empty) or not isinstance(annotation, type):
        return None
    return _kind_of_class(annotation)


def _kind_of_many(origin: Any, members: tuple[Any, ...]) -> ArgumentKind | None:
    """The kind of values of an annotation with parts, such as list[str] or Callable[…]: `origin` is
    list or Callable, `members` the parts. None where looking cannot tell it."""
    if origin is collections.abc.Callable:
        return ArgumentKind("a function", callable)
    if origin in MAPPINGS:
        return ArgumentKind(
            "a dictionary", lambda value: isinstance(value, collections.abc.Mapping)
        )
    if getattr(origin, "__name__", "") == "ndarray":
        return ArgumentKind("an array of numpy", lambda value: isinstance(value, origin))
    if origin in LISTS and members:
        return _list_of(members[0], in_order=origin in ORDERED)
    return None


def _kind_of_class(annotation: type) -> ArgumentKind:
    """The kind of arguments that an annotation by one class names: which values fit, and what they
    are converted to where functions expect another class than callers may give, as Path for str."""
    name = WORDS.get(annotation, f"a {annotation.__name__}")
    classes = OTHER_CLASSES.get(annotation, (annotation,))

    def is_number(value: Any) -> bool:
        """Whether a value is a number of the class: True, which Python counts as 1, is none."""
        is_huge = isinstance(value, int) and abs(value) >= HUGE  # no float could hold it
        return isinstance(value, classes) and not isinstance(value, bool) and not is_huge

    if annotation is bool:
        # by the name of the type: numpy, whose flags are as good, is not imported here
        return ArgumentKind(name, lambda value: type(value).__name__ in FLAGS)
    if annotation in (int, float):
        return ArgumentKind(name, is_number, annotation)
    if annotation is Path:
        return ArgumentKind(name, lambda value: isinstance(value, classes), Path)
    return ArgumentKind(name, lambda value: isinstance(value, classes))


def _list_of(member: Any, *, in_order: bool) -> ArgumentKind | None:
    """The kind of lists of texts or numbers; None where `member`, the annotation of an element, is
    of another kind.

    Tuples, arrays of one axis and the like are as good as lists. A text is none, although it can be
    gone through; a generator is none, since it can be gone through only once; and a set is none
    where the annotation names a sequence, whose order counts (`in_order`).
    """
    members = typing.get_args(member) if typing.get_origin(member) in UNIONS else (member,)
    if not all(isinstance(each, type) and each in ELEMENTS for each in members):
        return None
    # `member` may be a union, such as str | Path: one kind for each
    kinds = _kinds(member)
    names = " or ".join(ELEMENTS[each] for each in members)

    def is_member(value: Any) -> bool:
        """Whether a value may stand in the list, by one of the kinds of its members."""
        return any(kind.fits(value) for kind in kinds)

    def fits(value: Any) -> bool:
        """Whether a value is such a list, or as good as one: of a length, of one axis, in order if
        that counts, and of the right members alone."""
        if isinstance(value, str | bytes | dict | type):
            return False
        is_sized = isinstance(value, collections.abc.Sized)
        if not is_sized or not isinstance(value, collections.abc.Iterable):
            return False
        if getattr(value, "ndim", 1) != 1 or (in_order and isinstance(value, set | frozenset)):
            return False
        return all(map(is_member, value))

    return ArgumentKind(f"a list of {names}", fits, _plain_list)


def _plain_list(value: Any) -> Any:
    """The value as it is, but a list in place of what functions cannot use as one: of an array
    (`if values:` raises) and of keys of a dictionary (`values[0]` raises)."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if hasattr(value, "__getitem__") else list(value)
