"""What a submission says that its author leaves out: as if the command had been typed where the caller is."""

from __future__ import annotations

import base64
import os
import re
import secrets
from typing import Any, Dict, Mapping, Sequence, Union, cast

from switchyard.client._errors import Error
from switchyard.client._records import Spec

_OF_SHELL = re.compile(r"PATH$|VIRTUAL_ENV$|LANG$|CONDA_|LC_")


def new_id(name: str) -> str:
    """An id out of a job's name and 40 random bits."""
    clean = re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")[:40] or "job"
    return "%s-%s" % (clean, base64.b32encode(secrets.token_bytes(5)).decode().lower())


def submission(job: Union[Spec, Sequence[str]], keys: Mapping[str, Any], environ: Mapping[str, str]) -> Spec:
    """The body of a submission. A command runs in the caller's folder with the caller's PATH; a Spec stays as it is."""
    if isinstance(job, str):
        raise Error("the command %r is one text: want a list of its words, as ['python3', 'train.py']" % job)
    if isinstance(job, Mapping):
        return cast(Spec, dict(job, **keys))
    spec: Dict[str, Any] = {"name": _name(job), "command": [os.fspath(word) for word in job]}
    spec.update(keys)
    if "image" in spec:
        return cast(Spec, spec)  # an image brings its own folder and environment
    if "work_dir" not in spec and "custom_dir" not in spec:
        spec["work_dir"] = os.getcwd()
    env = {name: value for name, value in environ.items() if _OF_SHELL.match(name)}
    spec["env"] = {**env, **spec.get("env", {})}
    return cast(Spec, spec)


def _name(command: Sequence[str]) -> str:
    """A name for a command: that of its script, of its module (python -m), or of its program."""
    if not command:
        raise Error("the command is empty: want a list of words, as ['python3', 'train.py']")
    word = os.fspath(command[0])
    for i, argument in enumerate(command[1:], 1):
        stem, kind = os.path.splitext(os.fspath(argument))
        if kind in (".py", ".sh"):
            word = stem
            break
        if argument == "-m" and i + 1 < len(command):
            word = command[i + 1]
            break
    return "".join(letter for letter in os.path.basename(word) if letter.isprintable()).strip()[:63]
