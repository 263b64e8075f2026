"""`dataclass` as in the standard library, made in a fraction of the time. Knows nothing of what the records hold.

A run that takes a quarter of a second defines more than a hundred kinds of records and uses half of them. The standard
library compiles each of up to ten methods of each kind. Here those that have to be quick are compiled together, when
one of them is called for the first time, and the others are shared.
"""

from __future__ import annotations

import dataclasses
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
        _unfinished[cls] = (late, frozen)
        return cls


_SIGNS = {"__eq__": "==", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}

#: The methods of a class that are still to be compiled, and whether it is frozen.
_unfinished: dict[type, tuple[list[str], bool]] = {}


def _first_call(name: str) -> Any:
    """What stands for a method until it is called."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for cls in type(self).__mro__:
            names, frozen = _unfinished.get(cls, ([], False))
            if name in names:
                for compiled in _compiled(cls, names, frozen):
                    setattr(cls, compiled.__name__, compiled)
                _unfinished.pop(cls, None)  # last: another thread may be here, too
                return cls.__dict__[name](self, *args, **kwargs)
        return getattr(self, name)(*args, **kwargs)

    return method


_FIRST_CALLS = {name: _first_call(name) for name in ("__init__", "__hash__", *_SIGNS)}


def _compiled(cls: type, wanted: list[str], frozen: bool) -> list[Any]:
    """The methods whose text depends on the fields."""
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
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    mine, others = (f"({''.join(f'{of}.{name}, ' for name in compared)})" for of in ("self", "other"))
    texts = {
        "__init__": f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(steps or ["pass"]),
        "__hash__": f"def __hash__(self):\n  return hash({mine})",
        **{
            name: f"def {name}(self, other):\n  if other.__class__ is self.__class__:\n"
            f"    return {mine} {sign} {others}\n  return NotImplemented"
            for name, sign in _SIGNS.items()
        },
    }
    methods: dict[str, Any] = {}
    exec("\n".join(texts[name] for name in wanted), known, methods)
    for method in methods.values():
        method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{method.__name__}"
    return list(methods.values())


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _no_change(self: Any, name: str, *_value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")
