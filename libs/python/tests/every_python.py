"""Installs the distribution in a fresh virtual environment of every Python that this machine has, in every way that users
install it, and runs a training and a client there: python3 libs/python/tests/every_python.py FOLDER-OF-WHEEL-AND-SDIST

Pythons are those of PATH, of pyenv and of PYTHONS, a list of programs.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent
TRY = """
import importlib.metadata, switchyard, switchyard.client, kubernetesdlprofile.kubeprofiler
assert importlib.metadata.version("switchyard-train") == switchyard.__version__
assert "site-packages" in switchyard.__file__ or %r, switchyard.__file__
with switchyard.job(epochs=2) as job:
    for epoch in job.epochs():
        for _ in job.steps(range(3)):
            job.report(loss=1.0)
        job.save({"epoch": epoch}, "model")
assert job.epochs_done == 2
"""


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, **options)
    if done.returncode != 0:
        sys.exit("%s: exit status %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stdout))
    return done.stdout


def pythons():
    """One program for each version from 3.8 on, the newest last."""
    found = os.environ.get("PYTHONS", "").split()
    for folder in os.environ["PATH"].split(os.pathsep) + [os.path.expanduser("~/.pyenv/versions/*/bin")]:
        found += glob.glob(folder + "/python3.[0-9]*")
    versions = {}
    for program in found:
        if re.search(r"python3(\.\d+)?$", program):
            asked = subprocess.run([program, "-c", "import sys, venv, ensurepip; print(*sys.version_info[:2])"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)  # fmt: skip
            version = tuple(map(int, asked.stdout.split()))
            if version >= (3, 8):
                versions.setdefault(version, program)
    return sorted(versions.items())


def main(built):
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    found = pythons()
    if not found:
        sys.exit("no Python from 3.8 on with venv and pip: name one by PYTHONS=/path/to/python3")
    ways = {
        "folder": [str(LIBRARY)],
        "folder, no index": ["--no-index", str(LIBRARY)],
        "folder, editable": ["--no-index", "--editable", str(LIBRARY)],
        "wheel": ["--no-index", str(wheel)],
        "sdist": ["--no-index", str(sdist)],
    }
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_"))}
    clean["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    for version, program in found:
        with tempfile.TemporaryDirectory() as folder:
            run(program, "-m", "venv", folder + "/venv")
            python = folder + "/venv/bin/python"
            for way, arguments in ways.items():
                run(python, "-m", "pip", "install", *arguments, cwd=folder, env=clean)
                run(python, "-c", TRY % ("editable" in way), cwd=folder, env=clean)
                run(python, "-m", "pip", "uninstall", "--yes", "switchyard-train", env=clean)
            run(python, "-c", "import importlib.util as u; assert not u.find_spec('switchyard')", cwd=folder, env=clean)
        print("Python %d.%d (%s): %s" % (version[0], version[1], program, "; ".join(ways)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
