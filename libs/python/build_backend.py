"""Builds wheel and sdist with the standard library alone: pip needs neither setuptools nor a network for it (PEP 517).

The same sources make the same bytes, whoever builds them and when.
"""

import ast
import base64
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = ("switchyard", "kubernetesdlprofile")
# The first moment that a zip file can name.
MOMENT = (1980, 1, 1, 0, 0, 0)
MOMENT_UNIX = 315532800


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {path.relative_to(HERE).as_posix(): path.read_bytes() for path in _modules()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {"switchyard_train.pth": ("%s\n" % HERE).encode()})


def build_sdist(sdist_directory, config_settings=None):
    project = _project()
    top = "%s-%s" % (project["name"].replace("-", "_"), project["version"])
    own = [HERE / name for name in ("LICENSE", "README.md", "build_backend.py", "pyproject.toml")]
    files = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in own + _modules()}
    files["PKG-INFO"] = _metadata(project)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo("%s/%s" % (top, name))
            entry.size, entry.mode, entry.mtime = len(data), 0o644, MOMENT_UNIX
            out.addfile(entry, io.BytesIO(data))
    sdist = top + ".tar.gz"
    with open(str(Path(sdist_directory, sdist)), "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as out:
        out.write(packed.getvalue())
    return sdist


def _modules():
    found = (path for package in PACKAGES for path in sorted((HERE / package).rglob("*")))
    return [path for path in found if path.suffix == ".py" or path.name == "py.typed"]


def _wheel(folder, files):
    project = _project()
    name = "%s-%s" % (project["name"].replace("-", "_"), project["version"])
    info = name + ".dist-info/"
    files[info + "licenses/LICENSE"] = (HERE / "LICENSE").read_bytes()
    files[info + "METADATA"] = _metadata(project)
    files[info + "WHEEL"] = b"Wheel-Version: 1.0\nGenerator: switchyard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join("%s,sha256=%s,%d\n" % (path, _digest(data), len(data)) for path, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    wheel = name + "-py3-none-any.whl"
    with zipfile.ZipFile(str(Path(folder, wheel)), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, MOMENT)
            entry.create_system, entry.external_attr, entry.compress_type = 3, 0o100644 << 16, zipfile.ZIP_DEFLATED
            out.writestr(entry, data)
    return wheel


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _project():
    """The table [project], whose values here are TOML and Python alike: Python has no reader of TOML before 3.11."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8").split("[project]\n")[1]
    own, _, urls = text.partition("\n[project.urls]\n")
    version = re.search(r'^__version__ = "(.+)"$', (HERE / "switchyard/__init__.py").read_text(encoding="utf-8"), re.M)
    return dict(_table(own), urls=_table(urls), version=version.group(1))


def _table(text):
    # A value goes on in lines that begin with a space or a closing bracket.
    return {key: ast.literal_eval(value) for key, value in re.findall(r"^([\w-]+) = ((?:.|\n[ \]])+)", text, re.M)}


def _metadata(project):
    home = project["urls"]["Homepage"]
    # The links of the README are those of the repository.
    about = (HERE / project["readme"]).read_text(encoding="utf-8").replace("](../../", "](%s/blob/main/" % home)
    lines = [
        "Metadata-Version: 2.4",
        "Name: " + project["name"],
        "Version: " + project["version"],
        "Summary: " + project["description"],
        "License-Expression: " + project["license"],
        "License-File: LICENSE",
        "Requires-Python: " + project["requires-python"],
        "Keywords: " + ",".join(project["keywords"]),
    ]
    lines += ["Classifier: " + classifier for classifier in project["classifiers"]]
    lines += ["Project-URL: %s, %s" % url for url in project["urls"].items()]
    lines += ["Description-Content-Type: text/markdown", "", about]
    return "\n".join(lines).encode()
