"""Python in another process."""

import os
import subprocess
import sys


def output(*arguments, **environment):
    """Run Python with these arguments, and the path of this process; return what it prints."""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    return done.stdout
