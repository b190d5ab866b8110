"""Tasks of developers, one word each: `nox -s lint`, `types`, `tests`, `docs`, `bench`."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True


@nox.session(python="3.11")  # the version that mypy checks for, and its NumPy
def lint(session: nox.Session) -> None:
    """Check style and spelling."""
    session.install("-e", ".[test]", "pre-commit")
    session.run("pre-commit", "run", "--all-files", *session.posargs)


@nox.session(python="3.11")  # the version that mypy checks for, and its NumPy
def types(session: nox.Session) -> None:
    """Check types, those of results as users see them too."""
    session.install("-e", ".[test]")
    session.run("mypy")
    session.run("mypy", "tests/typing_cases.py")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the tests: `nox -s tests-3.13 -- tests/models -x` runs some on one Python."""
    session.install("-e", ".[test]")
    session.run("pytest", *(session.posargs or ["-n", "auto", "--dist", "worksteal"]))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site, whose examples run on few rows."""
    session.install("-e", ".[docs]")
    build = ("sphinx-build", "-q", "-W", "--keep-going", "docs", "docs/_build/html")
    session.run(*build, env={"STREAMGDA_EXAMPLES": "small"})


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time the package beside its peers."""
    session.install("-e", ".[test,bench]")
    session.run("python", "-m", "bench", *session.posargs)
