"""Ask PyPI for known vulnerabilities of every version in constraints.txt: python tools/audit.py PIP_AUDIT.

Exit with 0 where there are none, with 1 and a line for each where there are some. Without a network it says so
and exits with 0.
"""

import json
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def main(pip_audit: str) -> int:
    """Run pip-audit; returns the exit code."""
    command = [pip_audit, "--requirement", str(CONSTRAINTS), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        run = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
        dependencies = json.loads(run.stdout)["dependencies"]
    except (OSError, ValueError) as error:
        print(f"dependency audit skipped: pip-audit does not run here ({error})")
        return 0
    return verdict(dependencies)


def verdict(dependencies: list[dict]) -> int:
    """Print what was found in pip-audit's list; returns the exit code.

    pip-audit leaves a package out where its data cannot be had, and calls that a success.
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
    sys.exit(main(sys.argv[1]))
