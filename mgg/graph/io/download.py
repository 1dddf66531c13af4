"""Download a file: resumed after cuts and kills, verified, tried again with patience, never half there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import requests
import urllib3
from urllib3.util.retry import Retry

from mgg.errors import InputError, MachineError, MggError
from mgg.files import sync, write_text
from mgg.graph.io.progress import progress
from mgg.graph.io.proxy import CheckedProxies

HTTP_VARIABLE = "MGG_ALLOW_HTTP"
CHUNK = 2**20
#: Seconds without a connection, without any byte, and in which at least STALL_BYTES must arrive.
TIMEOUT = 60.0
STALL_BYTES = 2**12
#: Attempts that bring nothing new before it gives up; waits of 0, 2, 4, ... seconds between, or what the server asks.
PATIENCE = Retry(total=5, backoff_factor=1, backoff_jitter=1, backoff_max=60)
LONGEST_WAIT = 600
#: Statuses that may pass: time-outs, too many requests, errors of the server.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Numbers of more digits are no number of bytes.
_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)")
#: The scheme of an address, a user and password, host and path, query and fragment.
_ADDRESS = re.compile(r"""(\b[a-z][a-z0-9+.-]*://)(?:[^/\s'"?#]*@)?([^\s'"?#]*)(?:[?#][^\s'"]*)?""", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
#: How files of these suffixes begin: what a server sends instead (a page, an error message) does not.
_MAGIC = {".gz": b"\x1f\x8b", ".tgz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zip": b"PK", ".npz": b"PK"}


class _PassingError(Exception):
    """An attempt failed in a way that may pass; ``response`` is the server's answer, which may say how long to wait."""

    def __init__(self, reason: str, response: urllib3.BaseHTTPResponse | None = None):
        super().__init__(reason)
        self.response = response


@dataclass(frozen=True)
class _Version:
    """What tells one version of a file on a server from another; kept beside a partial file."""

    url: str
    etag: str | None
    modified: str | None
    total: int | None

    @property
    def validator(self) -> str | None:
        """What ``If-Range`` takes: a strong entity tag, else the date."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified


def fetch(url: str, path: Path, *, sha256: str | None = None, size: int | None = None) -> None:
    """Make ``path`` the file at ``url``; a file that is there already and fits ``sha256`` and ``size`` is kept.

    Bytes arrive in ``PATH.part``, which a later call resumes (with HTTP ranges, if the server has them and its file is
    still the same one) and which takes the name ``path`` when it is whole and verified. Processes that want the same
    file at once wait for each other. Progress goes to standard error.

    Args:
        url: https; http too if the environment has MGG_ALLOW_HTTP=1.
        path: the file to make; its folder is made.
        sha256: hash that its bytes must have, if known.
        size: number of bytes that it must have, if known.

    Raises:
        InputError: the file at ``url`` is another one than expected, and not kept; or the proxy's address is none.
        MachineError: no network, no such file there, or the disk is full: what has arrived is kept for the next call.
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
    except OSError as error:  # those of the network are turned into MachineError where they happen
        raise MachineError(f"{path}: cannot be written: {error.strerror or error}") from None


def without_secrets(text: str) -> str:
    """``text`` with what may be secret taken out of its addresses: user and password, and all after the path."""
    return _ADDRESS.sub(lambda found: found[1] + found[2], text)


def fits(path: Path, sha256: str | None, size: int | None) -> bool:
    """Whether a file has the hash and the size that are given."""
    if size is not None and path.stat().st_size != size:
        return False
    if sha256 is None:
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file ``PATH.part``, which one process at a time has; a lock dies with its process."""
    while True:
        with Path(f"{path}.part").open("a+b") as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"{path.name}: another process downloads it; waiting", file=sys.stderr)
                fcntl.flock(part, fcntl.LOCK_EX)
            # Whoever had it may have renamed or removed it meanwhile: then the lock is one on another file.
            same = False
            with suppress(FileNotFoundError):
                same = os.path.samestat(os.fstat(part.fileno()), Path(f"{path}.part").stat())
            if same:
                yield part
                return


class _Transfer:
    """One file on its way: what has arrived, its hash so far, and which version of the file it belongs to."""

    def __init__(
        self, session: requests.Session, url: str, path: Path, part: IO[bytes], sha256: str | None, size: int | None
    ):
        self.session = session
        self.url, self.path, self.part = url, path, part
        self.sha256, self.size = sha256, size
        self.sidecar = Path(f"{path}.part.json")
        self.version = self._remembered()
        #: Whether all bytes came in one answer, so that they belong to one version for certain.
        self.whole = True
        self.begun_anew = False
        self.have = 0
        self.digest = hashlib.sha256()
        self._pick_up()

    def run(self) -> None:
        """Try until the file is whole; then give it its name."""
        best, patience = self.have, PATIENCE
        with self.session, progress(self.path.name) as self.show:
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
        """One request, its whole answer read; raises _PassingError when it ends early."""
        headers = {"Accept-Encoding": "identity"}  # a compressed answer could not be resumed
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
        except ValueError as error:  # of a redirect's address: some are exceptions of requests, too, and some are not
            said = without_secrets(" ".join(str(error).split()))
            raise self._hopeless(f"redirected to an address that cannot be understood: {said[:200]}") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _PassingError(_innermost(error)) from None
        if self.version and self.version.total is not None and self.have < self.version.total:
            raise _PassingError(f"the connection ended after {self.have} of {self.version.total} bytes")

    def _accept(self, response: requests.Response) -> bool:
        """Prepare for the body of an answer; False when there is nothing to read from it."""
        status = response.status_code
        if status == 416:
            return self._past_the_end(response)
        if status in PASSING:
            raise _PassingError(f"HTTP {status} {response.reason}", response.raw)
        if status not in (200, 206):
            raise self._hopeless(f"HTTP {status} {response.reason}")
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        # Some servers call a .gz file a compressed something; its bytes are the file all the same.
        if encoding != "identity" and not (self.path.suffix in (".gz", ".tgz") and encoding in ("gzip", "x-gzip")):
            raise self._hopeless(f"the server compresses it ({encoding}) though asked not to")
        first, version = self._described(response)
        if status == 206 and (first != self.have or not self._same(version)):
            self._restart(None)
            raise _PassingError("the file changed while it was downloaded")
        self.whole = status == 200
        if self.whole:
            self._restart(version)
        self._refuse_size(version.total)
        return True

    def _described(self, response: requests.Response) -> tuple[int, _Version]:
        """The first byte that an answer holds, and the version that it is of."""
        held = response.headers
        first, total = 0, held.get("Content-Length", "")
        if response.status_code == 206:
            found = _RANGE.fullmatch(held.get("Content-Range", ""))
            first, total = (int(found[1]), found[3]) if found and found[1] else (-1, "")
        length = int(total) if _LENGTH.fullmatch(total) else None
        return first, _Version(self.url, held.get("ETag"), held.get("Last-Modified"), length)

    def _resumable(self) -> bool:
        """Whether the server or the hash can tell if the bytes there go on with those here."""
        return self.version is not None and (self.version.validator is not None or self.sha256 is not None)

    def _same(self, version: _Version) -> bool:
        """Whether an answer to a range is of the version that is here, as far as the server says."""
        mine = self.version
        if mine is None:
            return False
        pairs = ((mine.etag, version.etag), (mine.modified, version.modified), (mine.total, version.total))
        return all(a == b for a, b in pairs if a is not None and b is not None)

    def _past_the_end(self, response: requests.Response) -> bool:
        """The server has no byte after those here: they are the file, or not of it."""
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
        """Append the body to the partial file, with an eye on its pace and on the bound of its size."""
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
        """One attempt less; sleeps as long as the server asks or as is the policy."""
        self.part.flush()
        try:
            patience = patience.increment(error=failure)
        except urllib3.exceptions.MaxRetryError:
            raise self._hopeless(str(failure)) from None
        print(f"{self.path.name}: {failure}; trying again", file=sys.stderr)
        patience.sleep(self._patient(failure, patience))
        return patience

    def _patient(self, failure: _PassingError, patience: Retry) -> urllib3.BaseHTTPResponse | None:
        """The answer that says how long to wait, if one does; raises MachineError when that is too long."""
        answer = failure.response
        # The others come from numbers of too many digits and dates beyond the calendar.
        with suppress(urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
            asked = None if answer is None else patience.get_retry_after(answer)
            if answer is not None and asked is not None and asked > LONGEST_WAIT:
                raise self._hopeless(f"{failure}; the server asks to wait: {answer.headers['Retry-After'][:40]}")
            return answer
        return None

    def _complete(self) -> bool:
        """Whether the bytes here are known to be the file, whatever a server says about its length."""
        return self.sha256 is not None and self.digest.hexdigest() == self.sha256 and self.size in (None, self.have)

    def _verified(self) -> bool:
        """True for the file as expected, False to begin anew; raises InputError for another file."""
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

    def _refuse_size(self, total: int | None) -> None:
        if self.size is not None and total is not None and total != self.size and self.sha256 is None:
            raise self._wrong(f"has {total} bytes, not {self.size}")

    def _wrong(self, problem: str) -> InputError:
        """The error for another file than expected, which is thrown away."""
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
        """Leave no trace; the lock on the partial file holds until it is closed."""
        self.sidecar.unlink(missing_ok=True)
        Path(f"{self.path}.part").unlink(missing_ok=True)

    def _remembered(self) -> _Version | None:
        try:
            version = _Version(**json.loads(self.sidecar.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return version if version.url == self.url else None

    def _pick_up(self) -> None:
        """Go on with the partial file of an earlier call, if it is known what it is part of."""
        if not self._resumable():
            self._restart(None)
            return
        self.part.seek(0)
        while block := self.part.read(CHUNK):
            self.digest.update(block)
            self.have += len(block)
        self.whole = not self.have

    def _restart(self, version: _Version | None) -> None:
        """Forget what has arrived; ``version`` is what arrives next, None before the next attempt says so."""
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
    """A session for ``url``; an address that is refused leaves no empty ``PATH.part``."""
    try:
        return _session(url)
    except InputError:
        part = Path(f"{path}.part")
        if not part.stat().st_size:
            part.unlink()
        raise


def _session(url: str) -> requests.Session:
    """A session that cannot leave https, not by a redirect either, unless the user allows http."""
    session = requests.Session()
    session.max_redirects = 10
    for scheme in tuple(session.adapters):
        session.mount(scheme, CheckedProxies())
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
    """What the first cause of a network error says: those around it say the same on half a page."""
    inner: object = error
    while isinstance(inner, BaseException):
        error = inner
        causes = (getattr(error, "reason", None), *error.args, error.__cause__)
        inner = next((cause for cause in causes if isinstance(cause, BaseException)), None)
    return getattr(error, "strerror", None) or type(error).__name__
