"""The distribution installs as the README says, with pip alone and without a network, and its bytes follow from its sources."""

import email
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

from tests import jobapi


def backend(folder: Path) -> Any:
    """The build back end of a copy of the distribution."""
    spec = importlib.util.spec_from_file_location("build_backend", str(folder / "build_backend.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy(folder: str) -> Path:
    """A copy of the sources, so that a build leaves nothing in the source tree."""
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    return Path(shutil.copytree(jobapi.LIBRARY, Path(folder, "source"), ignore=ignored))


class Build(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    def out(self, name: str) -> Path:
        path = Path(self.folder, name)
        path.mkdir()
        return path

    def test_the_same_sources_make_the_same_bytes(self):
        source = copy(self.folder)
        wheel, sdist = (self.out("first"), self.out("second")), (self.out("third"), self.out("fourth"))
        names = backend(source).build_wheel(wheel[0]), backend(source).build_sdist(sdist[0])
        for path in source.rglob("*"):
            os.utime(str(path), (1, 1))
            path.chmod(0o700)
        backend(source).build_wheel(wheel[1]), backend(source).build_sdist(sdist[1])
        self.assertEqual((wheel[0] / names[0]).read_bytes(), (wheel[1] / names[0]).read_bytes())
        self.assertEqual((sdist[0] / names[1]).read_bytes(), (sdist[1] / names[1]).read_bytes())

    def test_the_sdist_makes_the_wheel_of_the_tree(self):
        out, unpacked = self.out("out"), self.out("unpacked")
        with tarfile.open(str(out / backend(jobapi.LIBRARY).build_sdist(out))) as sdist:
            sdist.extractall(str(unpacked))
        [source] = unpacked.iterdir()
        want, got = self.out("want"), self.out("got")
        wheel = backend(jobapi.LIBRARY).build_wheel(want)
        self.assertEqual(wheel, backend(source).build_wheel(got))
        self.assertEqual((want / wheel).read_bytes(), (got / wheel).read_bytes())

    def test_the_metadata_are_those_of_pyproject(self):
        if importlib.util.find_spec("tomllib") is None:
            self.skipTest("this python has no reader of TOML (3.11 and later)")
        import tomllib

        project = tomllib.loads((jobapi.LIBRARY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        out = self.out("out")
        with zipfile.ZipFile(out / backend(jobapi.LIBRARY).build_wheel(out)) as wheel:
            [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
            got = email.message_from_bytes(wheel.read(metadata))
            self.assertIn(metadata.replace("METADATA", "licenses/LICENSE"), wheel.namelist())
        for key, header in {
            "name": "Name", "description": "Summary", "license": "License-Expression", "requires-python": "Requires-Python",
        }.items():  # fmt: skip
            self.assertEqual(project[key], got[header])
        self.assertEqual(project["classifiers"], got.get_all("Classifier"))
        self.assertEqual(["%s, %s" % url for url in project["urls"].items()], got.get_all("Project-URL"))
        self.assertEqual(project["dependencies"], got.get_all("Requires-Dist", []))
        self.assertNotIn("](../", got.get_payload())


class Install(unittest.TestCase):
    def test_pip_alone_installs_both_packages(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("this python has no pip")
        with tempfile.TemporaryDirectory() as folder:
            source, target = copy(folder), Path(folder, "target")
            installed = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps",
                 "--disable-pip-version-check", "--target", str(target), str(source)],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            )  # fmt: skip
            self.assertEqual(0, installed.returncode, installed.stdout)
            code = (
                "import switchyard, switchyard.client, kubernetesdlprofile.kubeprofiler as k, importlib.metadata as m;"
                "print(switchyard.__file__, k.__file__, m.version('switchyard-train') == switchyard.__version__)"
            )
            shown = subprocess.run(
                [sys.executable, "-c", code],
                cwd=folder, env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(target)},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            )  # fmt: skip
            want = "%s %s True\n" % (target / "switchyard/__init__.py", target / "kubernetesdlprofile/kubeprofiler.py")
            self.assertEqual(want, shown.stdout)
            self.assertTrue((target / "switchyard/py.typed").exists())


if __name__ == "__main__":
    unittest.main()
