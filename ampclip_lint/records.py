"""`dataclass` as in the standard library, made in a fraction of the time. Knows nothing of what the records hold.

A run that takes a quarter of a second defines more than a hundred kinds of records and uses half of them. The standard
library compiles up to ten methods for each kind. Here those that have to be quick are compiled when they are called for
the first time, and the others are shared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, order=False, eq=True):
        """Make a record of a class. To `dataclasses.fields`, `replace` and the like it is one of theirs."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, order=order, eq=eq)
        doc, cls.__doc__ = cls.__doc__, "there is one: else it would be made of the signature, which takes long"
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        cls.__doc__ = doc
        own = dict(cls.__dict__)
        if own.get("__hash__", 0) is None:
            del own["__hash__"]  # stands there because an `__eq__` does
        late = ["__init__", *(_SIGNS if order else ["__eq__"] if eq else ()), *(["__hash__"] if eq and frozen else ())]
        late = [name for name in late if name not in own]
        shared = {"__repr__": _repr, **({"__setattr__": _no_change, "__delattr__": _no_change} if frozen else {})}
        if eq and not frozen:
            shared["__hash__"] = None
        for name, method in shared.items():
            if name not in own:
                setattr(cls, name, method)
        for name in late:
            setattr(cls, name, _FIRST_CALLS[name])
        return cls


#: The text of a method of a class, and what it needs to know.
_Text = Callable[[type], tuple[str, dict[str, Any]]]

_SIGNS = {"__eq__": "==", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}


def _first_call(name: str, text_of: _Text) -> Any:
    """What stands for a method of a class until it is called; then it is compiled from its text."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        cls = next((cls for cls in type(self).__mro__ if cls.__dict__.get(name) is method), None)
        if cls is not None:
            text, known = text_of(cls)
            exec(text, known)
            compiled = known[name]
            compiled.__module__, compiled.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
            setattr(cls, name, compiled)
            return compiled(self, *args, **kwargs)
        return getattr(self, name)(*args, **kwargs)  # another thread was here

    return method


def _init(cls: type) -> tuple[str, dict[str, Any]]:
    frozen = cls.__setattr__ is _no_change
    known: dict[str, Any] = {"_set": object.__setattr__, "_new": object()}
    parameters = ["self"]
    steps = []
    for field in dataclasses.fields(cls):
        name = value = field.name
        if not field.init:
            continue  # its default is an attribute of the class
        if field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_new")
            value = f"_make_{name}() if {name} is _new else {name}"
        else:
            parameters.append(name)
        steps.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        steps.append("self.__post_init__()")
    return f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(steps or ["pass"]), known


def _hash(cls: type) -> tuple[str, dict[str, Any]]:
    return f"def __hash__(self):\n  return hash({_compared(cls, 'self')})", {}


def _comparison(cls: type, name: str) -> tuple[str, dict[str, Any]]:
    answer = f"{_compared(cls, 'self')} {_SIGNS[name]} {_compared(cls, 'other')}"
    return f"def {name}(self, other):\n  return {answer} if other.__class__ is self.__class__ else NotImplemented", {}


def _compared(cls: type, of: str) -> str:
    return f"({''.join(f'{of}.{field.name}, ' for field in dataclasses.fields(cls) if field.compare)})"


_FIRST_CALLS = {
    "__init__": _first_call("__init__", _init),
    "__hash__": _first_call("__hash__", _hash),
    **{name: _first_call(name, partial(_comparison, name=name)) for name in _SIGNS},
}


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _no_change(self: Any, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")
