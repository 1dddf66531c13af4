"""Ask PyPI for known vulnerabilities of every version in constraints.txt: python tools/audit.py FOLDER.

pip-audit is installed into FOLDER, an environment of its own, so that it does not change the audited one. Exit code 0:
no vulnerabilities, or PyPI cannot be reached, which is printed. Exit code 1: vulnerabilities, a line each, or the audit
failed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PIP_AUDIT = "pip-audit>=2.9,<3"
#: Errors of pip and pip-audit when PyPI does not answer. Their exit code is then 1, as for every other error.
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ProxyError|ConnectTimeout|ReadTimeout|requests\.exceptions\.ConnectionError"
    r"|Network is unreachable|Could not connect to PyPI"
)


def main(folder: Path) -> int:
    """Install pip-audit if need be and run it; returns the exit code."""
    programs = folder / "bin"
    if not (programs / "pip-audit").exists():
        created = run([sys.executable, "-m", "venv", str(folder)])
        if created.returncode:
            return failure(f"{folder} cannot be made", created.stdout + created.stderr)
        installed = run([str(programs / "pip"), "install", "--quiet", PIP_AUDIT])
        if installed.returncode:
            return failure("pip-audit cannot be installed", installed.stderr)
    command = [str(programs / "pip-audit"), "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip"]
    return judge(run([*command, "--format", "json", "--progress-spinner", "off"]))


def run(command: list[str]) -> subprocess.CompletedProcess:
    """Run a command to its end, and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def judge(audit: subprocess.CompletedProcess) -> int:
    """Print the result of pip-audit; returns the exit code."""
    try:
        return verdict(json.loads(audit.stdout)["dependencies"])
    except (ValueError, KeyError, TypeError):
        return failure(f"pip-audit fails with exit code {audit.returncode}", audit.stderr)


def failure(what: str, errors: str) -> int:
    """Print why the audit failed; returns the exit code, 0 if PyPI does not answer."""
    if UNREACHABLE.search(errors):
        print(f"dependency audit skipped: PyPI cannot be reached from here ({what})")
        return 0
    last = "\n".join(errors.strip().splitlines()[-5:])
    print(f"error: dependency audit: {what}:\n{last}", file=sys.stderr)
    return 1


def verdict(dependencies: list[dict]) -> int:
    """Print the vulnerabilities in pip-audit's list; returns the exit code.

    pip-audit skips packages without data, as behind a mirror, and counts that as success.
    """
    audited = [each for each in dependencies if "skip_reason" not in each]
    if not audited:
        print("dependency audit skipped: its list of advisories cannot be reached from here")
        return 0
    found = [(package, advisory) for package in audited for advisory in package["vulns"]]
    for package, advisory in found:
        fixed = f"; fixed in {', '.join(advisory['fix_versions'])}" if advisory["fix_versions"] else "; not fixed yet"
        print(f"{package['name']} {package['version']}: {advisory['id']}{fixed}")
    print(
        f"dependency audit: {len(audited)} of {len(dependencies)} packages audited, {len(found)} known vulnerabilities"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
