"""Ask PyPI for known vulnerabilities of every version in constraints.txt: python tools/audit.py FOLDER.

pip-audit is installed into FOLDER, an environment of its own: what audits must not change what is audited. Exit with 0
where there are no vulnerabilities, with 1 and a line for each where there are some, and with 1 where the audit fails.
Only where PyPI cannot be reached it says so and exits with 0.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
PIP_AUDIT = "pip-audit>=2.9,<3"
#: What pip and pip-audit print where nothing answers them. They exit with 1 then, as after every other error.
UNREACHABLE = re.compile(
    r"NewConnectionError|NameResolutionError|ProxyError|ConnectTimeout|ReadTimeout|requests\.exceptions\.ConnectionError"
    r"|Network is unreachable|Could not connect to PyPI"
)


def main(folder: Path) -> int:
    """Install pip-audit if need be and run it; returns the exit code."""
    programs = folder / "bin"
    if not (programs / "pip-audit").exists():
        made = run([sys.executable, "-m", "venv", str(folder)])
        if made.returncode:
            return failure(f"{folder} cannot be made", made.stdout + made.stderr)
        installed = run([str(programs / "pip"), "install", "--quiet", PIP_AUDIT])
        if installed.returncode:
            return failure("pip-audit cannot be installed", installed.stderr)
    command = [str(programs / "pip-audit"), "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip"]
    return judge(run([*command, "--format", "json", "--progress-spinner", "off"]))


def run(command: list[str]) -> subprocess.CompletedProcess:
    """A command's end, with what it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def judge(audit: subprocess.CompletedProcess) -> int:
    """Print what pip-audit said; returns the exit code."""
    try:
        return verdict(json.loads(audit.stdout)["dependencies"])
    except (ValueError, KeyError, TypeError):
        return failure(f"pip-audit fails with exit code {audit.returncode}", audit.stderr)


def failure(what: str, errors: str) -> int:
    """Print why there is no audit; returns the exit code: PyPI that does not answer is no fault of ours."""
    if UNREACHABLE.search(errors):
        print(f"dependency audit skipped: PyPI cannot be reached from here ({what})")
        return 0
    last = "\n".join(errors.strip().splitlines()[-5:])
    print(f"error: dependency audit: {what}:\n{last}", file=sys.stderr)
    return 1


def verdict(dependencies: list[dict]) -> int:
    """Print what was found in pip-audit's list; returns the exit code.

    pip-audit leaves a package out where its data cannot be had, as behind a mirror, and calls that a success.
    """
    asked = [each for each in dependencies if "skip_reason" not in each]
    if not asked:
        print("dependency audit skipped: its list of advisories cannot be reached from here")
        return 0
    found = [(each, known) for each in asked for known in each["vulns"]]
    for each, known in found:
        fixed = f"; fixed in {', '.join(known['fix_versions'])}" if known["fix_versions"] else "; not fixed yet"
        print(f"{each['name']} {each['version']}: {known['id']}{fixed}")
    print(
        f"dependency audit: {len(asked)} of {len(dependencies)} packages asked for, {len(found)} known vulnerabilities"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
