"""For scripts that record what other libraries give: runs them again where these are installed."""

import os
import pathlib
import subprocess
import sys
import tempfile
import venv

INSIDE = "LOCKSTEP_RECORDING"  # set in the throw-away environment


def main(script, help_text, packages, inside, environment={}):
    """Ends with the status of inside(is_check), which runs in an environment with `packages`."""
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        sys.exit(help_text)
    if INSIDE in os.environ:
        sys.exit(inside(arguments == ["--check"]))
    with tempfile.TemporaryDirectory(prefix="lockstep-recording-") as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps",
                        "--disable-pip-version-check", *packages], check=True)
        own = {INSIDE: "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
        sys.exit(subprocess.run([python, script, *arguments], env={**os.environ, **own}).returncode)
