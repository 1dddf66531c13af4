"""Downloads files: resumes after interruptions, retries, verifies, and never leaves a partial file under the name."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import requests
import urllib3
from requests.utils import prepend_scheme_if_needed, select_proxy
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from urllib3.util import parse_url
from urllib3.util.retry import Retry

from mgg.errors import InputError, MachineError, MggError
from mgg.files import lock, sync, write_text

HTTP_VARIABLE = "MGG_ALLOW_HTTP"
CHUNK = 2**20
#: Maximum seconds without a connection or without any byte, and the time in which STALL_BYTES must arrive.
TIMEOUT = 60.0
STALL_BYTES = 2**12
#: Attempts without new bytes before giving up; waits of 0, 2, 4, ... seconds between, or as the server asks.
PATIENCE = Retry(total=5, backoff_factor=1, backoff_jitter=1, backoff_max=60)
LONGEST_WAIT = 600
#: Temporary HTTP statuses: time-outs, too many requests, errors of the server.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Seconds between lines of progress if standard error is no terminal, or a terminal that cannot overwrite a line.
REPORT_EVERY = 10.0
_SOCKS = ("socks4", "socks4a", "socks5", "socks5h")
#: A Content-Range header; no number of bytes has more than 18 digits.
_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
#: The scheme of an address, a user and password, host and path, query and fragment.
_ADDRESS = re.compile(r"""(\b[a-z][a-z0-9+.-]*://)(?:[^/\s'"?#]*@)?([^\s'"?#]*)(?:[?#][^\s'"]*)?""", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
#: First bytes of files with these suffixes; a web page or error message that a server sends instead begins otherwise.
_MAGIC = {".gz": b"\x1f\x8b", ".tgz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zip": b"PK", ".npz": b"PK"}


class _PassingError(Exception):
    """A temporary failure of an attempt; ``response`` is the server's answer, which may say how long to wait."""

    def __init__(self, reason: str, response: urllib3.BaseHTTPResponse | None = None):
        super().__init__(reason)
        self.response = response


@dataclass(frozen=True)
class _Version:
    """The version of a file on a server (entity tag, date), stored next to a partial file."""

    url: str
    etag: str | None
    modified: str | None
    total: int | None

    @property
    def validator(self) -> str | None:
        """Return the value for ``If-Range``: a strong entity tag, else the date."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


def fetch(url: str, path: Path, *, sha256: str | None = None, size: int | None = None) -> None:
    """Download ``url`` to ``path``, unless ``path`` exists and fits ``sha256`` and ``size``.

    Bytes arrive in ``PATH.part``. A later call resumes it, with HTTP ranges if the server supports them and its file
    has not changed. The complete and verified file is renamed to ``path``. Processes that download the same file wait
    for each other. Progress goes to standard error.

    Args:
        url: an https address; also http if the environment has MGG_ALLOW_HTTP=1.
        path: the target file; its folder is created.
        sha256: expected hash of its bytes, if known.
        size: expected number of bytes, if known.

    Raises:
        InputError: the file at ``url`` is not the expected one, and is deleted; or the proxy's address is invalid.
        MachineError: no network, no such file, or the disk is full; the next call resumes from the bytes received.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as file:
            if path.is_file():
                if fits(path, sha256, size):
                    Path(f"{path}.part").unlink()
                    return
                path.unlink()
            _Transfer(_allowed(url, path), url, path, file, sha256, size).run()
    except OSError as error:  # network errors are already MachineErrors here
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}") from None


def without_secrets(text: str) -> str:
    """Return ``text`` without secrets in its addresses: user and password, query and fragment."""
    return _ADDRESS.sub(lambda found: found[1] + found[2], text)


def fits(path: Path, sha256: str | None, size: int | None) -> bool:
    """Return whether a file has the given hash and size."""
    if size is not None and path.stat().st_size != size:
        return False
    if sha256 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """Open ``PATH.part`` with a lock for one process at a time; the lock ends with its process."""
    while True:
        with Path(f"{path}.part").open("a+b") as part:
            if not lock(part):
                print(f"{path.name}: another process downloads it; waiting", file=sys.stderr)
                lock(part, wait=True)
            # The last owner may have renamed or removed the file: then this lock is on another file.
            same = False
            with suppress(FileNotFoundError):
                same = os.path.samestat(os.fstat(part.fileno()), Path(f"{path}.part").stat())
            if same:
                yield part
                return


class _Transfer:
    """A download in progress: the bytes received, their hash so far, and the version of the file."""

    def __init__(
        self, session: requests.Session, url: str, path: Path, part: IO[bytes], sha256: str | None, size: int | None
    ):
        self.session = session
        self.url, self.path, self.part = url, path, part
        self.sha256, self.size = sha256, size
        self.sidecar = Path(f"{path}.part.json")
        self.version = self._remembered()
        #: Whether all bytes came in one response, so that they certainly belong to one version.
        self.whole = True
        self.begun_anew = False
        self.have = 0
        self.digest = hashlib.sha256()
        self._pick_up()

    def run(self) -> None:
        best, patience = self.have, PATIENCE
        with self.session, _progress(self.path.name) as self.show:
            while not self._complete():
                try:
                    self._attempt()
                    if self._verified():
                        break
                    best = 0
                except _PassingError as failure:
                    if self.have > best:
                        best, patience = self.have, PATIENCE
                    if not self._complete():
                        patience = self._wait(patience, failure)
        self._finish()

    def _attempt(self) -> None:
        """Send one request and read its whole response; raises _PassingError if it ends early."""
        headers = {"Accept-Encoding": "identity"}  # a compressed response could not be resumed
        if self.have and not self._resumable():
            self._restart(None)
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
            if self.version and self.version.validator:
                headers["If-Range"] = self.version.validator
        try:
            with self.session.get(self.url, headers=headers, stream=True, timeout=TIMEOUT) as response:
                if self._accept(response):
                    self._read(response.raw)
        except MggError:
            if not self.have:
                self._discard()
            raise
        except (requests.exceptions.InvalidSchema, requests.exceptions.TooManyRedirects) as error:
            said = " ".join(str(error).split())
            raise self._hopeless(f"redirected to where it must not go: {without_secrets(said)}") from None
        except ValueError as error:  # a redirect's address is invalid; only some of these are requests' own exceptions
            said = without_secrets(" ".join(str(error).split()))
            raise self._hopeless(f"redirected to an address that cannot be understood: {said[:200]}") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _PassingError(_innermost(error)) from None
        if self.version and self.version.total is not None and self.have < self.version.total:
            raise _PassingError(f"the connection ended after {self.have} of {self.version.total} bytes")

    def _accept(self, response: requests.Response) -> bool:
        """Prepare for the body of a response; return False if there is nothing to read."""
        status = response.status_code
        if status == 416:
            return self._past_the_end(response)
        if status in PASSING:
            raise _PassingError(f"HTTP {status} {response.reason}", response.raw)
        if status not in (200, 206):
            raise self._hopeless(f"HTTP {status} {response.reason}")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        # Some servers declare a .gz file as a gzip-encoded response; its bytes are still the file.
        if encoding != "identity" and not (self.path.suffix in (".gz", ".tgz") and encoding in ("gzip", "x-gzip")):
            raise self._hopeless(f"the server compresses it ({encoding}) though asked not to")
        first, version = self._described(response)
        if status == 206 and (first != self.have or not self._same(version)):
            self._restart(None)
            raise _PassingError("the file changed while it was downloaded")
        self.whole = status == 200
        if self.whole:
            self._restart(version)
        if self.sha256 is None and self.size is not None and version.total not in (None, self.size):
            raise self._wrong(f"has {version.total} bytes, not {self.size}")
        return True

    def _described(self, response: requests.Response) -> tuple[int, _Version]:
        """Return the position of a response's first byte, and the version of its file."""
        held = response.headers
        first, total = 0, held.get("Content-Length", "")
        if response.status_code == 206:
            found = _RANGE.fullmatch(held.get("Content-Range", ""))
            first, total = (int(found[1]), found[3]) if found and found[1] else (-1, "")
        length = int(total) if _LENGTH.fullmatch(total) else None
        return first, _Version(self.url, held.get("ETag"), held.get("Last-Modified"), length)

    def _resumable(self) -> bool:
        """Return whether the server or the hash can verify that the server's bytes continue those here."""
        return self.version is not None and (self.version.validator is not None or self.sha256 is not None)

    def _same(self, version: _Version) -> bool:
        """Return whether a response to a range has the version of the bytes here, as far as the server states it."""
        mine = self.version
        if mine is None:
            return False
        pairs = ((mine.etag, version.etag), (mine.modified, version.modified), (mine.total, version.total))
        return all(a == b for a, b in pairs if a is not None and b is not None)

    def _past_the_end(self, response: requests.Response) -> bool:
        """Handle a server without further bytes: the bytes here are the complete file, or do not belong to it."""
        if not self.have:
            raise self._hopeless(f"HTTP {response.status_code} {response.reason}")
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found and found[3] == str(self.have) and self.version and self.version.validator:
            self.version = _Version(self.url, self.version.etag, self.version.modified, self.have)
            return False
        if not self._complete():
            self._restart(None)
            raise _PassingError("the server has fewer bytes than have arrived")
        return False

    def _read(self, raw: Any) -> None:
        """Append the body to the partial file, while checking its speed and the size limit."""
        since, mark = time.monotonic(), self.have
        while block := raw.read1(CHUNK, decode_content=False):
            self.part.write(block)
            self.digest.update(block)
            self.have += len(block)
            if self.size is not None and self.have > self.size:
                raise self._wrong(f"has more than {self.size} bytes")
            self.show(self.have, self.version.total if self.version else None)
            if (now := time.monotonic()) - since > TIMEOUT:
                if self.have - mark < STALL_BYTES:
                    raise _PassingError(f"stalled after {self.have} bytes")
                since, mark = now, self.have
        self.part.flush()

    def _wait(self, patience: Retry, failure: _PassingError) -> Retry:
        """Use up one attempt, and sleep as long as the server asks or the policy says."""
        self.part.flush()
        try:
            patience = patience.increment(error=failure)
        except urllib3.exceptions.MaxRetryError:
            raise self._hopeless(str(failure)) from None
        print(f"{self.path.name}: {failure}; trying again", file=sys.stderr)
        patience.sleep(self._patient(failure, patience))
        return patience

    def _patient(self, failure: _PassingError, patience: Retry) -> urllib3.BaseHTTPResponse | None:
        """Return the response that says how long to wait, if there is one; raises MachineError if that is too long."""
        answer = failure.response
        # ValueError and OverflowError come from numbers with too many digits and dates beyond the calendar.
        with suppress(urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
            asked = None if answer is None else patience.get_retry_after(answer)
            if answer is not None and asked is not None and asked > LONGEST_WAIT:
                raise self._hopeless(f"{failure}; the server asks to wait: {answer.headers['Retry-After'][:40]}")
            return answer
        return None

    def _complete(self) -> bool:
        """Return whether the bytes here are known to be the complete file, whatever length a server states."""
        return self.sha256 is not None and self.digest.hexdigest() == self.sha256 and self.size in (None, self.have)

    def _verified(self) -> bool:
        """Return True for the expected file, False to start over; raises InputError for another file."""
        problem = self._problem()
        if problem is None:
            return True
        if self.whole or self.begun_anew:
            raise self._wrong(problem)
        self.begun_anew = True
        self._restart(None)  # perhaps the parts are of two versions
        return False

    def _problem(self) -> str | None:
        if self.size is not None and self.have != self.size:
            return f"has {self.have} bytes, not {self.size}"
        if self.sha256 is not None:
            return None if self.digest.hexdigest() == self.sha256 else f"does not have sha256 {self.sha256}"
        self.part.seek(0)
        expected = _MAGIC.get(self.path.suffix, b"")
        return None if self.part.read(len(expected)) == expected else f"is no {self.path.suffix} file"

    def _wrong(self, problem: str) -> InputError:
        """Delete an unexpected file and return its error."""
        self.part.flush()
        self.part.seek(0)
        page = re.match(rb"\s*<(!doctype|html)", self.part.read(200), re.IGNORECASE)
        self._discard()
        return InputError(
            f"{without_secrets(self.url)}: the file there {problem}{' (it is a web page)' if page else ''}"
        )

    def _hopeless(self, reason: str) -> MachineError:
        if not self.have:
            self._discard()
        kept = f"; {self.have} bytes are kept for the next attempt" if self.have else ""
        return MachineError(f"{without_secrets(self.url)}: cannot be downloaded ({reason}){kept}")

    def _discard(self) -> None:
        """Delete the partial file; its lock holds until it is closed."""
        self.sidecar.unlink(missing_ok=True)
        Path(f"{self.path}.part").unlink(missing_ok=True)

    def _remembered(self) -> _Version | None:
        try:
            version = _Version(**json.loads(self.sidecar.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return version if version.url == self.url else None

    def _pick_up(self) -> None:
        """Resume the partial file of an earlier call, if its version is known."""
        if not self._resumable():
            self._restart(None)
            return
        self.part.seek(0)
        while block := self.part.read(CHUNK):
            self.digest.update(block)
            self.have += len(block)
        self.whole = not self.have

    def _restart(self, version: _Version | None) -> None:
        """Discard the bytes received; ``version`` is the version of the next bytes, None if not known yet."""
        self.part.seek(0)
        self.part.truncate()
        self.have, self.digest, self.version, self.whole = 0, hashlib.sha256(), version, True
        if version is None:
            self.sidecar.unlink(missing_ok=True)
        else:
            write_text(self.sidecar, json.dumps(asdict(version)))

    def _finish(self) -> None:
        self.part.flush()
        os.fsync(self.part.fileno())
        self.sidecar.unlink(missing_ok=True)
        Path(f"{self.path}.part").rename(self.path)
        sync(self.path.parent)


def _allowed(url: str, path: Path) -> requests.Session:
    """Return a session for ``url``; a refused address leaves no empty ``PATH.part``."""
    try:
        return _session(url)
    except InputError:
        part = Path(f"{path}.part")
        if not part.stat().st_size:
            part.unlink()
        raise


def _session(url: str) -> requests.Session:
    """Return a session that allows only https, also in redirects, unless the user allows http."""
    session = requests.Session()
    session.max_redirects = 10
    for scheme in tuple(session.adapters):
        session.mount(scheme, _CheckedProxies())
    if os.environ.get(HTTP_VARIABLE) != "1":
        del session.adapters["http://"]
        if not url.lower().startswith("https://"):
            raise InputError(f"{without_secrets(url)}: only https is safe; set {HTTP_VARIABLE}=1 to allow http")
    try:
        requests.Request("GET", url).prepare()
    except ValueError as error:
        raise InputError(f"{without_secrets(url)}: is no address of a file ({without_secrets(str(error))})") from None
    return session


def _innermost(error: BaseException) -> str:
    """Return the message of a network error's first cause; the errors around it repeat it at length."""
    inner: object = error
    while isinstance(inner, BaseException):
        error = inner
        causes = (getattr(error, "reason", None), *error.args, error.__cause__)
        inner = next((cause for cause in causes if isinstance(cause, BaseException)), None)
    return getattr(error, "strerror", None) or type(error).__name__


class _CheckedProxies(requests.adapters.HTTPAdapter):
    """The adapter of a session, which checks proxies, those of redirects too, before anything is sent.

    Requests itself reports some wrong settings as network errors.
    """

    def send(self, request: requests.PreparedRequest, *rest: Any, **options: Any) -> requests.Response:
        """Send a request; raises InputError or MachineError if its proxy's settings cannot work."""
        proxy = select_proxy(str(request.url), options.get("proxies"))
        if proxy:
            _check_proxy(proxy)
        return super().send(request, *rest, **options)


def _check_proxy(proxy: str) -> None:
    """Check a proxy's address; messages leave it out, as it may contain a password."""
    name = next(
        (name for name, value in os.environ.items() if name.lower().endswith("_proxy") and value == proxy), "the proxy"
    )
    try:
        found = parse_url(prepend_scheme_if_needed(proxy, "http"))
    except (urllib3.exceptions.HTTPError, ValueError, TypeError):
        found = None
    if found is None or not found.host:
        raise InputError(
            f"{name}: is not the address of a proxy: write http://host:port or http://user:password@host:port, special"
            " characters of the password as %XX"
        )
    if found.scheme in _SOCKS:
        if importlib.util.find_spec("socks") is None:
            raise MachineError(f"{name}: {found.scheme} needs the package PySocks: pip install 'requests[socks]'")
    elif found.scheme not in ("http", "https"):
        raise InputError(f"{name}: scheme {found.scheme} is none of proxies: {', '.join(('http', 'https', *_SOCKS))}")


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that shows the bytes of ``name`` received so far and their total (None: unknown).

    On a terminal it shows a bar, elsewhere lines; a download that takes less than REPORT_EVERY prints none.
    """
    console, last = Console(stderr=True), time.monotonic()
    if not console.is_terminal or console.is_dumb_terminal:

        def line(have: int, total: int | None) -> None:
            nonlocal last
            if time.monotonic() - last >= REPORT_EVERY:
                last = time.monotonic()
                share = f" of {total / 1e6:.1f} MB ({have / total:.0%})" if total else " MB"
                print(f"{name}: {have / 1e6:.1f}{share}", file=sys.stderr, flush=True)

        yield line
        return
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(name, total=None)
        yield lambda have, total: bar.update(task, completed=have, total=total)
