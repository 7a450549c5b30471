"""The distribution installs as the README says, with pip alone and without a network."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests import jobapi


class Install(unittest.TestCase):
    def test_pip_alone_installs_both_packages(self):
        if importlib.util.find_spec("pip") is None:
            self.skipTest("this python has no pip")
        with tempfile.TemporaryDirectory() as folder:
            # A copy, so that the build leaves nothing in the source tree.
            source, target = Path(folder, "source"), Path(folder, "target")
            ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
            shutil.copytree(jobapi.LIBRARY, source, ignore=ignored)
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
