"""Both packages say their types, and keep to them."""

import importlib.util
import subprocess
import sys
import tempfile
import unittest

from tests import jobapi


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("this python has no mypy (Debian: apt-get install mypy)")
        with tempfile.TemporaryDirectory() as cache:
            checked = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, "switchyard", "kubernetesdlprofile"],
                cwd=str(jobapi.LIBRARY), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            )  # fmt: skip
            self.assertEqual(0, checked.returncode, checked.stdout)


if __name__ == "__main__":
    unittest.main()
