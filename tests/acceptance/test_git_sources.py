"""Repositories as sources: a commit's files, by a git program that is kept from everything but them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import psutil
import pytest
from google.longrunning import operations_pb2
from undercroft.client import explain
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2

from tests.support.appliance import Appliance, undercroft
from tests.support.waiting import until

_ENVIRONMENT = {
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "A"), ("EMAIL", "a@b"))
    },
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], env=_ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        git(folder, "init", "--quiet", "-b", "main")

    def commit(self, files: dict[str, str], message: str = "change") -> str:
        for path, text in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        git(self.folder, "add", "--all", "--force")
        git(self.folder, "commit", "--quiet", "-m", message)
        return git(self.folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "shop")
    made.commit(
        {
            "src/shop/__init__.py": "",
            "src/shop/cart.py": 'def add_item(cart, item):\n    """Put an item in."""\n    cart.append(item)\n',
            "README.md": "# Shop\n\nSells umbrellas.\n",
            ".gitignore": "*.log\n",
        }
    )
    return made


def add(
    appliance: Appliance, project: str, url: Path | str, revision: str = "", source: str = "shop"
) -> project_pb2.Source:
    return appliance.client.projects.CreateSource(
        project_service_pb2.CreateSourceRequest(
            parent=f"projects/{project}",
            source_id=source,
            source=project_pb2.Source(git=project_pb2.GitOrigin(url=str(url), revision=revision)),
        )
    )


def point(appliance: Appliance, project: str, url: Path | str, revision: str) -> None:
    appliance.client.projects.UpdateSource(
        project_service_pb2.UpdateSourceRequest(
            source=project_pb2.Source(
                name=f"projects/{project}/sources/shop", git=project_pb2.GitOrigin(url=str(url), revision=revision)
            )
        )
    )


def commit_of(appliance: Appliance, project: str) -> str:
    name = f"projects/{project}/sources/shop"
    return appliance.client.projects.GetSource(project_service_pb2.GetSourceRequest(name=name)).git.commit


def texts(appliance: Appliance, project: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for chunk in appliance.export(project):
        found[chunk.place.path] = found.get(chunk.place.path, "") + chunk.text
    return found


def skipped(appliance: Appliance, project: str) -> dict[str, str]:
    request = index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{project}")
    return {one.path: one.reason for one in appliance.client.index.ListSkippedFiles(request).skipped_files}


def bundled(repository: Repository, *refs: str) -> Path:
    bundle = repository.folder.parent / "shop.bundle"
    git(repository.folder, "bundle", "create", "--quiet", str(bundle), *(refs or ("--all",)))
    return bundle


def bare(repository: Repository) -> Path:
    target = repository.folder.parent / "shop.git"
    git(repository.folder, "clone", "--quiet", "--bare", str(repository.folder), str(target))
    return target


@pytest.mark.parametrize("form", ["work-tree", "bare", "bundle", "bundle-of-a-branch"])
def test_a_commit_is_indexed_and_the_next_one_renews_what_differs(
    appliance: Appliance, repository: Repository, form: str
) -> None:
    project = f"git-{form}"
    url = {
        "work-tree": lambda: repository.folder,
        "bare": lambda: bare(repository),
        "bundle": lambda: bundled(repository),
        "bundle-of-a-branch": lambda: bundled(repository, "main"),
    }[form]()
    # What is not committed is not of the commit.
    (repository.folder / "draft.md").write_text("# Draft\n")
    appliance.create_project(project, [])
    add(appliance, project, url)
    assert appliance.index(project).published
    assert set(texts(appliance, project)) == {"src/shop/cart.py", "README.md", ".gitignore"}
    assert appliance.search("add_item", project).hits[0].qualified_name == "shop.cart.add_item"
    assert commit_of(appliance, project) == git(repository.folder, "rev-parse", "HEAD")

    again = appliance.index(project)
    assert (again.published, again.files.read, again.embeddings.calls) == (False, 0, 0)

    (repository.folder / "draft.md").unlink()
    commit = repository.commit({"README.md": "# Shop\n\nSells raincoats.\n", "debug.log": "forced in\n"})
    if form == "bare":
        git(repository.folder, "push", "--quiet", str(url), "main")
    elif form.startswith("bundle"):
        bundled(repository, *(("main",) if form.endswith("branch") else ()))
    report = appliance.index(project)
    assert (report.files.new, report.files.changed, report.files.deleted) == (1, 1, 0)
    assert "raincoats" in texts(appliance, project)["README.md"]
    assert "forced in" in texts(appliance, project)["debug.log"]
    assert commit_of(appliance, project) == commit


def test_branch_tag_and_commit_are_told_apart(appliance: Appliance, repository: Repository) -> None:
    first = git(repository.folder, "rev-parse", "HEAD")
    git(repository.folder, "tag", "-a", "v1", "-m", "one")
    git(repository.folder, "switch", "--quiet", "-c", "next")
    repository.commit({"README.md": "# Shop\n\nSells kayaks.\n"})
    git(repository.folder, "switch", "--quiet", "main")
    appliance.create_project("revisions", [])
    add(appliance, "revisions", repository.folder, "next")
    appliance.index("revisions")
    assert "kayaks" in texts(appliance, "revisions")["README.md"]
    for revision in ("v1", first, "main", ""):
        point(appliance, "revisions", repository.folder, "next")
        appliance.index("revisions")
        point(appliance, "revisions", repository.folder, revision)
        assert appliance.status("revisions").snapshot.stale
        appliance.index("revisions")
        assert "umbrellas" in texts(appliance, "revisions")["README.md"], revision
        assert commit_of(appliance, "revisions") == first
    # Two branches of one repository are two sources.
    add(appliance, "revisions", repository.folder, "next", source="shop-next")
    appliance.index("revisions")


def test_what_a_repository_only_names_is_listed(appliance: Appliance, repository: Repository) -> None:
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
    repository.commit({"model.txt": lfs})
    (repository.folder / "passwd.md").symlink_to("/etc/passwd")
    git(repository.folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendor/other")
    git(repository.folder, "add", "passwd.md")
    git(repository.folder, "commit", "--quiet", "-m", "named")
    appliance.create_project("named", [])
    add(appliance, "named", repository.folder)
    appliance.index("named")
    assert skipped(appliance, "named") == {
        "model.txt": "lfs_pointer",
        "passwd.md": "link",
        "vendor/other": "submodule",
    }


def test_bytes_are_those_of_the_commit(appliance: Appliance, repository: Repository) -> None:
    """Attributes ask for other line ends, keywords and filters, and for files to be left out of archives."""
    repository.commit(
        {
            ".gitattributes": "*.md text eol=crlf ident\n*.txt export-ignore filter=evil\nREADME.md export-subst\n",
            "README.md": "# Shop $Id$ $Format:%H$\n",
            "kept.txt": "kept\n",
        }
    )
    git(repository.folder, "config", "filter.evil.smudge", "touch /tmp/undercroft-evil")
    appliance.create_project("raw", [])
    add(appliance, "raw", repository.folder)
    appliance.index("raw")
    found = texts(appliance, "raw")
    assert found["README.md"] == "# Shop $Id$ $Format:%H$"
    assert found["kept.txt"] == "kept"
    assert not Path("/tmp/undercroft-evil").exists()


def test_a_shallow_clone_says_that_it_is_one(appliance: Appliance, repository: Repository) -> None:
    repository.commit({"NEWS.md": "# News\n"})
    clone = repository.folder.parent / "shallow"
    git(repository.folder, "clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(clone))
    appliance.create_project("shallow", [])
    add(appliance, "shallow", clone)
    report = appliance.index("shallow")
    assert any("shallow" in one for one in report.warnings)
    assert "NEWS.md" in texts(appliance, "shallow")


def test_a_repository_of_another_user_is_read(appliance: Appliance, repository: Repository) -> None:
    try:
        for path in [repository.folder, *repository.folder.rglob("*")]:
            os.lchown(path, 12345, 12345)
    except OSError:
        pytest.skip("only root can give a folder away, and not where a namespace has no user but root")
    appliance.create_project("foreign-owner", [])
    add(appliance, "foreign-owner", repository.folder)
    assert appliance.index("foreign-owner").published


@pytest.mark.parametrize(
    ("url", "code", "reason"),
    [
        ("https://git.example/team/repo.git", "PERMISSION_DENIED", "GIT_HOST_NOT_CONFIGURED"),
        ("ssh://git@git.example/repo.git", "PERMISSION_DENIED", "GIT_HOST_NOT_CONFIGURED"),
        ("https://user:secret@git.example/repo.git", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("git@git.example:team/repo.git", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("ext::sh -c touch% /tmp/undercroft-evil", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("--upload-pack=touch /tmp/undercroft-evil", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("file:///etc", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("relative/path", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("", "INVALID_ARGUMENT", "GIT_URL_INVALID"),
        ("/etc", "NOT_FOUND", "GIT_REPOSITORY_NOT_FOUND"),
        ("/etc/passwd", "NOT_FOUND", "GIT_REPOSITORY_NOT_FOUND"),
        ("/nowhere/at/all", "NOT_FOUND", "NOT_FOUND"),
    ],
)
def test_what_is_no_repository_within_reach_is_refused_at_once(
    appliance: Appliance, url: str, code: str, reason: str
) -> None:
    project = f"refused-{abs(hash(url)) % 10**9}"
    appliance.create_project(project, [])
    with pytest.raises(grpc.RpcError) as refused:
        add(appliance, project, url)
    problem = explain(refused.value)
    assert (problem.code, problem.reason) == (code, reason)
    assert problem.remedy
    assert not Path("/tmp/undercroft-evil").exists()


@pytest.mark.parametrize("revision", ["--output=/tmp/undercroft-evil", "a..b", "main~1", "a b", "x@{1}", "-x", "a\nb"])
def test_a_revision_is_a_name_and_nothing_else(appliance: Appliance, repository: Repository, revision: str) -> None:
    project = f"revision-{abs(hash(revision)) % 10**9}"
    appliance.create_project(project, [])
    with pytest.raises(grpc.RpcError) as refused:
        add(appliance, project, repository.folder, revision)
    assert explain(refused.value).reason == "GIT_REVISION_INVALID"


def test_a_repository_that_fails_keeps_what_is_indexed(appliance: Appliance, repository: Repository) -> None:
    appliance.create_project("failing", [])
    add(appliance, "failing", repository.folder, "main")
    appliance.index("failing")
    repository.commit({"NEWS.md": "# News\n"})
    for blob in (repository.folder / ".git" / "objects").rglob("*"):
        # Every object of the new commit and the old ones is damaged.
        if blob.is_file() and len(blob.name) == 38:
            blob.chmod(0o644)
            blob.write_bytes(b"damaged")
    with pytest.raises(AssertionError, match="GIT_|git|no branch"):
        appliance.index("failing")
    assert "umbrellas" in texts(appliance, "failing")["README.md"]


def test_what_is_listed_of_a_repository_stays_while_it_is_away(
    appliance: Appliance, repository: Repository, tmp_path: Path
) -> None:
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
    repository.commit({"model.txt": lfs})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Notes\n")
    appliance.create_project("away", [tmp_path / "notes"], model="")
    add(appliance, "away", repository.folder)
    appliance.index("away")
    assert skipped(appliance, "away") == {"model.txt": "lfs_pointer"}
    repository.folder.rename(tmp_path / "elsewhere")
    for _ in range(2):
        appliance.index("away")
        assert skipped(appliance, "away") == {"model.txt": "lfs_pointer", "./": "unreadable"}
        assert "README.md" in texts(appliance, "away")
    (tmp_path / "elsewhere").rename(repository.folder)
    appliance.index("away")
    assert skipped(appliance, "away") == {"model.txt": "lfs_pointer"}


def test_what_is_left_out_of_a_commit_is_named_up_to_a_number(appliance: Appliance, repository: Repository) -> None:
    blob = git(repository.folder, "rev-parse", "HEAD:README.md")
    links = "".join(f"120000 {blob}\tlinks/{number}.md\n" for number in range(10_050))
    subprocess.run(
        ["git", "-C", str(repository.folder), "update-index", "--add", "--index-info"],
        input=links,
        env=_ENVIRONMENT,
        text=True,
        check=True,
    )
    git(repository.folder, "commit", "--quiet", "-m", "links")
    appliance.create_project("links", [], model="")
    add(appliance, "links", repository.folder)
    assert appliance.index("links").files.skipped == 10_001
    request = index_service_pb2.ListSkippedFilesRequest(parent="projects/links", page_size=1000)
    details = []
    while True:
        page = appliance.client.index.ListSkippedFiles(request)
        details += [one.detail for one in page.skipped_files]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert len(details) == 10_001
    assert "50 more entries that are left out" in details


def test_a_repository_that_lacks_a_file_says_so(appliance: Appliance, repository: Repository) -> None:
    appliance.create_project("lacking", [], model="")
    add(appliance, "lacking", repository.folder)
    blob = git(repository.folder, "rev-parse", "HEAD:README.md")
    (repository.folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(AssertionError, match="missing or damaged"):
        appliance.index("lacking")


def test_what_a_repository_says_of_itself_is_told_and_not_that_a_branch_is_missing(
    appliance: Appliance, repository: Repository
) -> None:
    appliance.create_project("misconfigured", [], model="")
    add(appliance, "misconfigured", repository.folder, "main")
    (repository.folder / ".git" / "config").write_text("[core\n")
    with pytest.raises(AssertionError, match="bad config"):
        appliance.index("misconfigured")


def test_a_commit_that_lists_more_than_anybody_has_memory_for_is_refused(
    appliance: Appliance, repository: Repository
) -> None:
    """Thirty trees, each of which holds the one below twice: a milliard of files in a few kilobytes."""
    blob = git(repository.folder, "rev-parse", "HEAD:README.md")

    def tree(entries: str) -> str:
        made = subprocess.run(
            ["git", "-C", str(repository.folder), "mktree"],
            input=entries,
            env=_ENVIRONMENT,
            text=True,
            capture_output=True,
            check=True,
        )
        return made.stdout.strip()

    deepest = tree(f"100644 blob {blob}\ta.md\n")
    for _ in range(30):
        deepest = tree(f"040000 tree {deepest}\ta\n040000 tree {deepest}\tb\n")
    commit = git(repository.folder, "commit-tree", deepest, "-m", "bomb")
    git(repository.folder, "update-ref", "refs/heads/bomb", commit)
    appliance.create_project("bomb", [], model="")
    add(appliance, "bomb", repository.folder, "bomb")
    with pytest.raises(AssertionError, match="GIT_TOO_LARGE"):
        appliance.index("bomb")


def test_what_was_fetched_for_a_source_is_no_repository_of_another(
    appliance: Appliance, repository: Repository, daemon: str
) -> None:
    appliance.create_project("secret", [], model="")
    add(appliance, "secret", daemon)
    appliance.index("secret")
    (mirror,) = (appliance.home / "local" / "git").glob("*-*")
    number = mirror.name.partition("-")[0]
    thief = Repository(repository.folder.parent / "thief")
    thief.commit({"a.md": "# Mine\n"})
    for pointer in (f"gitdir: {appliance.home}/local/git/{number}\n", f"gitdir: {appliance.home}/local/git\n"):
        shutil.rmtree(thief.folder / ".git", ignore_errors=True)
        (thief.folder / ".git").write_text(pointer)
        project = f"thief-{len(pointer)}"
        appliance.create_project(project, [], model="")
        add(appliance, project, thief.folder, "main")
        with pytest.raises(AssertionError, match="GIT_"):
            appliance.index(project)
        (thief.folder / ".git").unlink()


def test_a_missing_revision_is_told(appliance: Appliance, repository: Repository) -> None:
    appliance.create_project("absent", [])
    add(appliance, "absent", repository.folder, "no-such-branch")
    with pytest.raises(AssertionError, match="no-such-branch"):
        appliance.index("absent")


@pytest.fixture
def daemon(repository: Repository) -> Iterator[str]:
    """A git server on this machine with the repository, as a URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    base = bare(repository).parent
    process = subprocess.Popen(
        ["git", "daemon", "--export-all", "--listen=127.0.0.1", f"--port={port}", f"--base-path={base}", str(base)],
        env=_ENVIRONMENT,
        start_new_session=True,
    )
    until(lambda: _answers(port))
    yield f"git://127.0.0.1:{port}/shop.git"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_server_is_fetched_from(appliance: Appliance, repository: Repository, daemon: str) -> None:
    first = git(repository.folder, "rev-parse", "HEAD")
    appliance.create_project("served", [])
    add(appliance, "served", daemon)
    assert appliance.index("served").published
    assert "umbrellas" in texts(appliance, "served")["README.md"]
    again = appliance.index("served")
    assert (again.published, again.files.read) == (False, 0)
    repository.commit({"README.md": "# Shop\n\nSells kayaks.\n"})
    git(repository.folder, "push", "--quiet", "--force", str(repository.folder.parent / "shop.git"), "main")
    assert appliance.index("served").files.changed == 1
    # An old commit, which is of no branch's end.
    point(appliance, "served", daemon, first)
    appliance.index("served")
    assert "umbrellas" in texts(appliance, "served")["README.md"]


def test_a_fetch_that_breaks_off_is_not_tried_in_other_ways(
    appliance: Appliance, repository: Repository, daemon: str
) -> None:
    """Only a server that answers that it does not give a commit is asked for more than that."""
    port = int(daemon.split(":")[2].partition("/")[0])
    calls: list[int] = []

    def relay(caller: socket.socket) -> None:
        calls.append(1)
        if len(calls) > 1:  # the first tells the refs
            caller.recv(64)
            caller.close()
            return
        with caller, socket.create_connection(("127.0.0.1", port)) as server:
            back = threading.Thread(target=pump, args=(server, caller), daemon=True)
            back.start()
            pump(caller, server)
            back.join()

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=relay, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        appliance.create_project("broken-off", [], model="")
        add(appliance, "broken-off", f"git://127.0.0.1:{listener.getsockname()[1]}/shop.git")
        with pytest.raises(AssertionError, match="be reached"):
            appliance.index("broken-off")
        listener.shutdown(socket.SHUT_RDWR)
    assert len(calls) == 2


def test_a_server_that_says_nothing_holds_no_run_that_is_cancelled(appliance: Appliance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        appliance.create_project("silent", [])
        add(appliance, "silent", f"git://127.0.0.1:{server.getsockname()[1]}/x.git")
        operation = appliance.start_index("silent")
        until(lambda: _git_processes(appliance))
        appliance.client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=operation))
        request = operations_pb2.WaitOperationRequest(name=operation)
        ended = appliance.client.operations.WaitOperation(request, timeout=20)
        assert ended.done
        assert ended.error.code == grpc.StatusCode.CANCELLED.value[0]
        until(lambda: not _git_processes(appliance))


def test_a_service_that_is_killed_leaves_no_git_behind(appliance: Appliance) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        appliance.create_project("orphaned", [])
        add(appliance, "orphaned", f"git://127.0.0.1:{server.getsockname()[1]}/x.git")
        operation = appliance.start_index("orphaned")
        until(lambda: _git_processes(appliance))
        left = _git_processes(appliance)
        appliance.kill("ingest")
        until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in left))
        appliance.wait_ready("ingest")
        appliance.wait_serving("ingest")
        until(lambda: _git_processes(appliance))
        appliance.client.operations.CancelOperation(operations_pb2.CancelOperationRequest(name=operation))
        appliance.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=20)


def _git_processes(appliance: Appliance) -> list[psutil.Process]:
    ingest = psutil.Process(appliance.pid("ingest"))
    return [one for one in ingest.children(recursive=True) if one.name() in ("git", "git-remote-git")]


def test_the_command_takes_repositories_and_revisions(appliance: Appliance, repository: Repository) -> None:
    def index(*arguments: str, check: bool = True) -> str:
        done = undercroft("index", *arguments, "-p", "git-by-command", home=appliance.home, check=check)
        return done.stdout + done.stderr

    git(repository.folder, "switch", "--quiet", "-c", "next")
    repository.commit({"NEWS.md": "# News\n"})
    git(repository.folder, "switch", "--quiet", "main")
    assert "published" in index(str(repository.folder), "--revision", "main", "--model", "")
    assert "NEWS.md" not in texts(appliance, "git-by-command")
    assert "published" in index(str(repository.folder), "--revision", "next")
    assert "NEWS.md" in texts(appliance, "git-by-command")
    listed = undercroft("projects", "sources", "git-by-command", home=appliance.home).stdout
    assert f"next at {git(repository.folder, 'rev-parse', 'next')[:12]}" in " ".join(listed.split())
    assert "published" in index(str(bare(repository)), "--source", "bare")
    assert "not configured to reach" in index("https://git.example/x.git", check=False)
    assert "is no interval" in index("--every", "often", check=False)
    assert "nothing changed" in index("--every", "1h", "--watch")
    # Named again, a repository is the source that it was, at its revision; another one of that name is another source.
    assert "nothing changed" in index(str(repository.folder))
    assert "NEWS.md" in texts(appliance, "git-by-command")
    other = repository.folder.parent / "other" / "shop.git"
    git(repository.folder, "clone", "--quiet", "--bare", str(repository.folder), str(other))
    assert "published" in index(str(other))
    request = project_service_pb2.ListSourcesRequest(parent="projects/git-by-command")
    sources = {one.name.rpartition("/")[2]: one for one in appliance.client.projects.ListSources(request).sources}
    assert sources.keys() == {"shop", "bare", "shop-2"}
    assert sources["shop-2"].git.url == str(other)
    shown = undercroft("projects", "status", "git-by-command", home=appliance.home).stdout
    assert "indexed by itself: every 3600 s and on edits" in shown
    assert "nothing to watch" in index("--watch")
    project = appliance.update_project("git-by-command", watch=False)
    assert project.sync_interval.seconds == 3600


def test_a_mounted_checkout_says_what_it_lacks(appliance: Appliance, repository: Repository) -> None:
    """A folder with a checkout in it is a folder: what its repository only names is listed all the same."""
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
    repository.commit({"model.txt": lfs})
    repository.commit({".gitmodules": '[submodule "other"]\n\tpath = vendor/other\n\turl = ../other\n'})
    clone = repository.folder.parent / "clone"
    git(repository.folder, "clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(clone))
    (clone / "vendor" / "other").mkdir(parents=True)
    appliance.create_project("incomplete", [clone], model="")
    report = appliance.index("incomplete")
    assert any("shallow" in one for one in report.warnings)
    assert skipped(appliance, "incomplete") == {
        ".git/": "excluded",
        "model.txt": "lfs_pointer",
        "vendor/other/": "submodule",
    }
    assert not appliance.index("incomplete").published
    # A linked worktree has a file where others have the folder .git.
    git(clone, "worktree", "add", "--quiet", str(clone.parent / "linked"))
    appliance.create_project("incomplete-worktree", [clone.parent / "linked"], model="")
    assert any("shallow" in one for one in appliance.index("incomplete-worktree").warnings)


def test_a_server_cannot_send_git_elsewhere(appliance: Appliance) -> None:
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere{self.path}")  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        appliance.create_project("redirected", [])
        add(appliance, "redirected", f"http://127.0.0.1:{server.server_port}/x.git")
        with pytest.raises(AssertionError, match="302"):
            appliance.index("redirected")
        server.shutdown()
        thread.join()
    assert asked
    assert not any(path.startswith("/elsewhere") for path in asked)


def plant(repository: Repository, names: list[bytes]) -> None:
    """Commit a tree with entries that no git would make of a folder."""

    def stored(kind: str, data: bytes) -> bytes:
        command = ["git", "-C", str(repository.folder), "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        done = subprocess.run(command, input=data, env=_ENVIRONMENT, capture_output=True, check=True)
        return bytes.fromhex(done.stdout.decode().strip())

    blob = stored("blob", b"# Evil\n\nPlanted.\n")
    inner = stored("tree", b"100644 evil.md\0" + blob)
    entries = [(b"40000 " if name == b".." else b"100644 ") + name for name in names]
    tree = b"".join(entry + b"\0" + (inner if entry.endswith(b" ..") else blob) for entry in sorted(entries))
    root = stored("tree", tree).hex()
    commit = git(repository.folder, "commit-tree", root, "-m", "planted")
    git(repository.folder, "update-ref", "refs/heads/main", commit)


def test_a_commit_writes_nothing_outside(appliance: Appliance, repository: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    plant(repository, [b"..", b"fine.md", os.fsencode(str(outside))])
    appliance.create_project("planted", [])
    add(appliance, "planted", repository.folder)
    appliance.index("planted")
    assert set(texts(appliance, "planted")) == {"fine.md"}
    assert {reason for path, reason in skipped(appliance, "planted").items() if path != ".git/"} == {"excluded"}
    assert not outside.exists()
    assert not list((appliance.home / "local").rglob("evil.md"))
    appliance.create_project("planted-bundle", [])
    add(appliance, "planted-bundle", bundled(repository, "main"))
    appliance.index("planted-bundle")
    assert set(texts(appliance, "planted-bundle")) == {"fine.md"}
    assert not outside.exists()


def test_a_fetch_that_was_killed_leaves_no_lock(appliance: Appliance, repository: Repository, daemon: str) -> None:
    appliance.create_project("locked", [])
    source = add(appliance, "locked", daemon)
    appliance.index("locked")
    assert source.name
    mirrors = [path.parent for path in (appliance.home / "local" / "git").glob("*/HEAD")]
    assert mirrors
    for mirror in mirrors:
        (mirror / "shallow.lock").touch()
        (mirror / "objects" / "pack").mkdir(exist_ok=True)
        (mirror / "objects" / "pack" / "tmp_pack_left").touch()
    repository.commit({"README.md": "# Shop\n\nSells kayaks.\n"})
    git(repository.folder, "push", "--quiet", "--force", str(repository.folder.parent / "shop.git"), "main")
    assert appliance.index("locked").files.changed == 1


def test_another_branch_is_stale_until_it_is_indexed(appliance: Appliance, repository: Repository) -> None:
    git(repository.folder, "branch", "other")
    appliance.create_project("pointed", [])
    add(appliance, "pointed", repository.folder, "main")
    appliance.index("pointed")
    point(appliance, "pointed", repository.folder, "other")
    request = index_service_pb2.ObserveProjectRequest(project="projects/pointed")
    assert appliance.client.index.ObserveProject(request).snapshot.stale
    # It is the same commit: nothing is read, and the project is fresh.
    report = appliance.index("pointed")
    assert (report.published, report.files.read) == (False, 0)
    assert not appliance.client.index.ObserveProject(request).snapshot.stale


def test_the_appliances_own_state_is_no_repository(appliance: Appliance, repository: Repository, daemon: str) -> None:
    appliance.create_project("own-state", [])
    add(appliance, "own-state", daemon)
    appliance.index("own-state")
    mirror = next((appliance.home / "local" / "git").glob("*/HEAD")).parent
    with pytest.raises(grpc.RpcError) as refused:
        add(appliance, "own-state", mirror, source="other")
    assert "own data directory" in explain(refused.value).message
