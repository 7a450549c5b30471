"""Builds the wheel with the standard library alone: pip needs neither setuptools nor a network for it (PEP 517)."""

import base64
import hashlib
import re
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("switchyard", "kubernetesdlprofile")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    found = (path for package in PACKAGES for path in sorted((HERE / package).rglob("*")))
    sources = (path for path in found if path.suffix == ".py" or path.name == "py.typed")
    return _write(wheel_directory, {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sources})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write(wheel_directory, {"switchyard_train.pth": ("%s\n" % HERE).encode()})


def _write(folder, files):
    text = (HERE / "switchyard/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)
    name = "switchyard_train-%s" % version
    info = name + ".dist-info/"
    about = "Metadata-Version: 2.1\nName: switchyard-train\nVersion: %s\nRequires-Python: >=3.8\n" % version
    files[info + "METADATA"] = about.encode()
    files[info + "WHEEL"] = b"Wheel-Version: 1.0\nGenerator: switchyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join("%s,sha256=%s,%d\n" % (path, _digest(data), len(data)) for path, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    wheel = name + "-py3-none-any.whl"
    with zipfile.ZipFile(str(Path(folder, wheel)), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in files.items():
            out.writestr(path, data)
    return wheel


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
