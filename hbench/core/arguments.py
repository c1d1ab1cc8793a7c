"""Checks the arguments of public functions against their annotations: a number that was passed for
a text is refused, for example.

Only simple kinds are checked: texts, numbers, flags, paths, functions, lists of these,
dictionaries, and instances of classes. Arguments with other annotations, such as values that may
become an array, are checked by the functions themselves.

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
OTHER_CLASSES = {  # values of these classes are accepted for an annotation, too
    int: (numbers.Integral,),
    float: (numbers.Real,),
    Path: (os.PathLike, str),
}


class ArgumentKind(NamedTuple):
    """A kind of values that a parameter accepts.

    `name`: what messages call it. `fits(value)`: whether a value is of this kind. `plain(value)`:
    the value converted to what the function expects, such as a text to a Path.
    """

    name: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], Any] = lambda value: value


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it raises UsageError for an argument that does not fit its
    annotation.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        """Check and convert the arguments, then call the function."""
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            # call it all the same: Python's own error says which argument is missing or unknown
            return function(*args, **kwargs)
        given.arguments |= fitted(function, given.arguments)
        return function(*given.args, **given.kwargs)

    return call


def fitted(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Check values {parameter: value} for a function, and return them converted to what it expects:
    a number to a float, a text to a Path. Raises UsageError for a value that is of none of the
    kinds that its parameter accepts, and for a path that no file can have.
    """
    plain = {}
    for name, value in values.items():
        # a parameter without kinds cannot be checked: any value is accepted, unconverted
        kinds = _kinds_of(function).get(name, ())
        kind = next((kind for kind in kinds if kind.fits(value)), None)
        if kinds and kind is None:
            raise _other_kind(name, value, " or ".join(kind.name for kind in kinds))
        if isinstance(value, str | os.PathLike) and name in _paths_of(function):
            _refuse_no_name(name, value)  # such as one with a NUL, or with too long a part
        plain[name] = value if kind is None else kind.plain(value)
    return plain


def _other_kind(name: str, value: object, expected: str) -> UsageError:
    """The error for an argument that does not fit. `expected`: the accepted kinds in words. For a
    text such as "1,2" in place of a list, the error says how the list is written."""
    # imported here since it loads pydantic, which is slow and needed for an error only
    from hbench.core.text import list_meant_by

    is_typed = expected.startswith("a list") and isinstance(value, str) and "," in value
    fix = f"write {name}={list_meant_by(str(value))}" if is_typed else None
    return UsageError(f"{name} must be {expected}", found=_described(value), fix=fix)


def _refuse_no_name(name: str, value: str | os.PathLike[str]) -> None:
    """Raise UsageError if `value` cannot be the path of a file: it has characters that are not
    allowed, or a part that is too long. `name`: the parameter, for the message."""
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
    """Whether the texts can be encoded for the file system; a lone surrogate cannot."""
    try:
        for text in texts:
            os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


@functools.cache
def _paths_of(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the parameters that accept paths, alone or in a union such as
    `str | Path | Dataset`.

    Their values are checked for being possible names of files. They are found in the text of the
    annotation, since `_kinds_of` leaves out unions with a class, such as `Dataset`.
    """
    parameters = inspect.signature(function).parameters
    # an annotation is a text under `from __future__ import annotations`, or prints as one
    return frozenset(name for name, each in parameters.items() if "Path" in str(each.annotation))


def checked_class(cls: type[T]) -> type[T]:
    """Decorate a class so that its constructor raises UsageError for an argument that does not fit
    its annotation.
    """
    cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
    return cls


def as_array(given: Any, name: str) -> NDArray[Any]:
    """Convert an argument to a numpy array: a torch tensor on any device, a column of a table, or
    nested lists, also of tensors. `name`: the parameter, for messages.

    Raises UsageError for rows of different lengths and for masked values.
    """
    import numpy as np

    try:
        # unlike asarray this keeps a mask, so that masked values can be refused below
        array = np.asanyarray(_without_gradient(given))
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
    # asarray also turns an np.matrix, whose rows would stay two-dimensional, into a plain array
    return np.asarray(np.ma.getdata(array))


def _without_gradient(given: Any) -> Any:
    """Convert torch tensors, alone or in lists, to what numpy can read: without gradients, on the
    CPU, and as float32 if they are bfloat16, which numpy lacks. Anything else is returned
    unchanged."""
    # tensors are recognised by their methods, so that torch need not be imported
    if isinstance(given, list | tuple) and given and hasattr(given[0], "detach"):
        import numpy as np

        return np.stack([np.asarray(_without_gradient(each)) for each in given])
    detach = getattr(given, "detach", None)
    tensor = detach().cpu() if detach else given
    return tensor.float() if "bfloat16" in str(getattr(tensor, "dtype", "")) else tensor


def _described(value: object) -> str:
    """Describe a value with its type for an error message, as in "3 (int)"; long values are cut."""
    text = one_line(repr(value))
    shown = text if len(text) <= MAX_FOUND else f"{text[: MAX_FOUND - 1]}…"
    return shown if value is None else f"{shown} ({type(value).__name__})"


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> dict[str, tuple[ArgumentKind, ...]]:
    """The kinds of values that each parameter of a function accepts: {parameter: kinds}. Parameters
    whose annotations cannot be checked are left out. Cached, since a function is called many
    times."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        # the annotation of *args or **kwargs is that of each of their values, not of the whole
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kinds = _kinds(_resolved(parameter.annotation, function))
        if kinds:
            found[name] = kinds
    return found


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    """Evaluate an annotation, which is a text under `from __future__ import annotations`. Returns
    Any if it uses a name that is imported for type checkers only."""
    if not isinstance(annotation, str):
        return annotation
    try:
        # safe: the text is hbench's own code, or that of a plug-in that runs already
        return eval(annotation, vars(sys.modules[function.__module__]))
    except Exception:  # a name for type checkers only; a plug-in's annotation may raise anything
        return Any


def _kinds(annotation: Any) -> tuple[ArgumentKind, ...]:
    """The kinds of values that an annotation accepts. Empty, so that nothing is checked, if the
    annotation or any member of its union cannot be checked."""
    if typing.get_origin(annotation) in UNIONS:
        members = typing.get_args(annotation)
        # a union with a class, such as `Report | Path`, is left to the function, which has a better
        # message for a wrong value, such as an array; `Report | None` is checked here
        is_optional = len(members) == 2 and types.NoneType in members
        # WORDS has the plain types: texts, numbers, paths, None
        has_class = any(isinstance(member, type) and member not in WORDS for member in members)
        if has_class and not is_optional:
            return ()
        kinds_of_members = [_kinds(member) for member in members]
        # one member that cannot be checked, (), makes the whole union uncheckable
        if not all(kinds_of_members):
            return ()
        return tuple(kind for kinds in kinds_of_members for kind in kinds)
    kind = _kind(annotation)
    return (kind,) if kind else ()


def _kind(annotation: Any) -> ArgumentKind | None:
    """The kind of values that an annotation other than a union accepts; None if values cannot be
    checked against it."""
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _kind_of_many(origin, typing.get_args(annotation))
    if annotation is None:  # in annotations None stands for its own type
        annotation = types.NoneType
    if annotation in (object, Any, inspect.Parameter.empty) or not isinstance(annotation, type):
        return None
    return _kind_of_class(annotation)


def _kind_of_many(origin: Any, members: tuple[Any, ...]) -> ArgumentKind | None:
    """The kind of values of a generic annotation, such as list[str] or Callable[…]. `origin`: the
    class before the brackets, such as list; `members`: the parts in brackets. None if values cannot
    be checked."""
    if origin is collections.abc.Callable:
        return ArgumentKind("a function", callable)
    if origin in MAPPINGS:
        return ArgumentKind(
            "a dictionary", lambda value: isinstance(value, collections.abc.Mapping)
        )
    # by its name, so that numpy need not be imported
    if getattr(origin, "__name__", "") == "ndarray":
        return ArgumentKind("an array of numpy", lambda value: isinstance(value, origin))
    # the order of elements counts for a list, a tuple and a Sequence, not for an Iterable
    if origin in LISTS and members:
        return _list_of(members[0], in_order=origin in ORDERED)
    return None


def _kind_of_class(annotation: type) -> ArgumentKind:
    """The kind of values that an annotation by a single class accepts. Where callers may pass
    another class, such as str for Path, the kind also converts the value (`plain`)."""
    name = WORDS.get(annotation, f"a {annotation.__name__}")
    classes = OTHER_CLASSES.get(annotation, (annotation,))

    def is_number(value: Any) -> bool:
        """Whether a value is a number of the annotated class. True and False are refused, although
        they are ints in Python."""
        # few whole numbers from HUGE on fit into a float
        is_huge = isinstance(value, int) and abs(value) >= HUGE
        return isinstance(value, classes) and not isinstance(value, bool) and not is_huge

    if annotation is bool:
        # by the type's name, which accepts numpy's flags without importing numpy
        return ArgumentKind(name, lambda value: type(value).__name__ in FLAGS)
    if annotation in (int, float):
        return ArgumentKind(name=name, fits=is_number, plain=annotation)
    if annotation is Path:
        return ArgumentKind(name=name, fits=lambda value: isinstance(value, classes), plain=Path)
    return ArgumentKind(name, lambda value: isinstance(value, classes))


def _list_of(member: Any, *, in_order: bool) -> ArgumentKind | None:
    """The kind of lists whose elements are texts, numbers or paths; None if `member`, the
    annotation of an element, is something else.

    Tuples, arrays of one axis and the like are accepted as lists. A text is refused, although it
    can be iterated. So is a generator, since it can be iterated only once, and so is a set if the
    order of the elements counts (`in_order`).
    """
    members = typing.get_args(member) if typing.get_origin(member) in UNIONS else (member,)
    if not all(isinstance(each, type) and each in ELEMENTS for each in members):
        return None
    # `member` may be a union, such as str | Path: one kind for each
    kinds = _kinds(member)
    names = " or ".join(ELEMENTS[each] for each in members)

    def is_member(value: Any) -> bool:
        """Whether a value may be an element of the list."""
        return any(kind.fits(value) for kind in kinds)

    def fits(value: Any) -> bool:
        """Whether a value is accepted as a list of such elements: it has a length, one axis, an
        order if that counts (`in_order`), and only elements that fit."""
        # some classes, such as an Enum, can be iterated, too, as can texts and dictionaries
        if isinstance(value, str | bytes | dict | type):
            return False
        is_sized = isinstance(value, collections.abc.Sized)
        if not is_sized or not isinstance(value, collections.abc.Iterable):
            return False
        if getattr(value, "ndim", 1) != 1 or (in_order and isinstance(value, set | frozenset)):
            return False
        return all(map(is_member, value))

    return ArgumentKind(name=f"a list of {names}", fits=fits, plain=_plain_list)


def _plain_list(value: Any) -> Any:
    """Convert a value that functions cannot use as a list to one: an array, since `if values:`
    raises for it, and the keys of a dictionary, since `values[0]` does. Others are unchanged."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if hasattr(value, "__getitem__") else list(value)
