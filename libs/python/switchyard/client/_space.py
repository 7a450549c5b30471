"""Parameters of a search, and their values as texts: in a command and in the environment of a job."""

from __future__ import annotations

from typing import Dict, List, Mapping, Union, cast

from switchyard.client._records import Parameter

Value = Union[int, float, str]
Params = Dict[str, Value]
_VARIABLE = "SWITCHYARD_PARAM_"


def choice(*values: Value) -> Parameter:
    """One of the values."""
    return cast(Parameter, {"kind": "choice", "values": list(values)})


def uniform(low: float, high: float) -> Parameter:
    """Any number from low to high."""
    return cast(Parameter, {"kind": "uniform", "low": low, "high": high})


def log_uniform(low: float, high: float) -> Parameter:
    """Any number from low to high, each decade as likely as another."""
    return cast(Parameter, {"kind": "log_uniform", "low": low, "high": high})


def integer(low: int, high: int) -> Parameter:
    """A whole number from low to high."""
    return cast(Parameter, {"kind": "int", "low": low, "high": high})


def log_integer(low: int, high: int) -> Parameter:
    """A whole number from low to high, each decade as likely as another."""
    return cast(Parameter, {"kind": "log_int", "low": low, "high": high})


class Space:
    """The parameters by name."""

    def __init__(self, parameters: Mapping[str, Parameter]):
        self.parameters: List[Parameter] = [cast(Parameter, dict(p, name=name)) for name, p in parameters.items()]

    def typed(self, params: Mapping[str, Value]) -> Params:
        """Values as their kinds have them: numbers that JSON has written short stay of their type."""
        return {p["name"]: _typed(p, params[p["name"]]) for p in self.parameters if p["name"] in params}

    def variables(self, params: Params) -> Dict[str, str]:
        """The environment of a trial."""
        return {_VARIABLE + name.upper(): str(value) for name, value in params.items()}

    def read(self, environ: Mapping[str, str]) -> Params:
        """The inverse of variables."""
        texts = {p["name"]: environ.get(_VARIABLE + p["name"].upper()) for p in self.parameters}
        return self.typed({name: text for name, text in texts.items() if text is not None})


def _typed(parameter: Parameter, value: Value) -> Value:
    if parameter["kind"] == "choice":
        same = [v for v in parameter["values"] if v == value or str(v) == str(value)]
        return same[0] if same else value
    return int(float(value)) if parameter["kind"] in ("int", "log_int") else float(value)


def filled(word: str, params: Params) -> str:
    """A word of a command, with the value of each ${name}."""
    for name, value in params.items():
        word = word.replace("${%s}" % name, str(value))
    return word
