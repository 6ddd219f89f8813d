from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from structlog.testing import capture_logs

from services.ingest.dependencies import poetry
from services.ingest.dependencies.findings import MAX_MANIFEST_BYTES
from services.ingest.dependencies.manifests import Declared, declared, is_current

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def write(root: Path, **files: str) -> Path:
    """Write files; ``__`` stands for ``/`` and ``_`` before a suffix for the dot, as in ``pyproject_toml``."""
    for name, text in files.items():
        stem, _, suffix = name.replace("__", "/").rpartition("_")
        target = root / f"{stem}.{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def versions(result: Declared) -> dict[str, str]:
    return {dependency.name: str(dependency.specifier) for dependency in result.dependencies}


def details(result: Declared) -> list[str]:
    return [f"{problem.path}: {problem.detail}" for problem in result.problems]


def test_a_folder_without_manifests_declares_nothing(tmp_path: Path) -> None:
    assert declared(tmp_path) == Declared((), (), ())


def test_a_root_that_cannot_be_listed_is_a_problem_and_no_error(tmp_path: Path) -> None:
    result = declared(tmp_path / "gone")
    assert result.dependencies == ()
    assert details(result) == [": cannot be listed: No such file or directory"]


def test_pyproject_declares_by_every_table_that_tools_use(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_toml="""
        [project]
        name = "My.Project"
        dependencies = ["Requests[socks] >= 2.31", "my-project[extra]", "zope.interface"]
        [project.optional-dependencies]
        docs = ["sphinx>=7; extra == 'docs'"]
        [dependency-groups]
        test = ["pytest>8", {include-group = "Lint_ing"}]
        lint-ing = ["ruff"]
        [tool.uv]
        dev-dependencies = ["ipython"]
        [tool.pdm.dev-dependencies]
        dev = ["tox"]
        [tool.poetry.dependencies]
        python = "^3.9"
        httpx = "^0.27.1"
        rich = {version = "~13.1", extras = ["jupyter"], optional = true}
        [tool.poetry.group.dev.dependencies]
        black = "24.*"
        [tool.poetry.dev-dependencies]
        isort = "*"
        """,
    )
    result = declared(tmp_path)
    assert versions(result) == {
        "black": "==24.*",
        "httpx": "<0.28,>=0.27.1",
        "ipython": "",
        "isort": "",
        "pytest": ">8",
        "requests": ">=2.31",
        "rich": "<13.2,>=13.1",
        "ruff": "",
        "sphinx": ">=7",
        "tox": "",
        "zope-interface": "",
    }
    assert details(result) == []
    assert {dependency.declared_in for dependency in result.dependencies} == {("pyproject.toml",)}


def test_markers_count_for_cpython_on_linux_x86_64_and_the_running_python(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt=f"""
        here; sys_platform == "linux" and platform_machine == "x86_64" and implementation_name == "cpython"
        here-too; python_version >= "{RUNNING}"
        windows; sys_platform == "win32"
        old; python_version < "3"
        arm; platform_machine == "aarch64"
        pypy; platform_python_implementation == "PyPy"
        odd; platform_release >= "no version"
        """,
        pyproject_toml="""
        [tool.poetry.dependencies]
        mac = {version = "*", platform = "darwin"}
        older = {version = "*", python = "<3.0"}
        newer = [{version = "^1", python = "<3.0"}, {version = "^2", python = ">=3.0"}]
        """,
    )
    assert versions(declared(tmp_path)) == {"here": "", "here-too": "", "newer": "<3,>=2"}


def test_requirements_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt="""\ufeff# a comment
        --index-url https://user:secret@mirror.example/simple
        -i https://mirror.example/simple
        --find-links ./wheels
        flask==3.0.0 \\
            --hash=sha256:0123 \\
            --hash=sha256:4567   # why
        Django[argon2]>=4.2,<5 ; python_version > "3"  # the framework
        num\\
py
        name#not-a-comment
        """.replace("        ", ""),
    )
    result = declared(tmp_path)
    assert versions(result) == {"django": "<5,>=4.2", "flask": "==3.0.0", "numpy": ""}
    assert details(result) == ["requirements.txt: line 11: name#not-a-comment is no requirement"]


def test_requirements_files_are_found_by_their_names(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "requirements_in": "a",
            "requirements-dev_txt": "b",
            "requirements__base_txt": "c",
            "requirements__docs_in": "d",
            "dev-requirements_txt": "e",
            "requirements__notes_md": "not-this",
            "other_txt": "not-this",
            "sub__requirements_txt": "not-this",
        },
    )
    assert versions(declared(tmp_path)) == dict.fromkeys("abcde", "")


def test_includes_stay_in_the_root_and_never_cycle(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path, outside_txt="stolen")
    write(
        root,
        requirements_txt="-r requirements/base.txt\n--requirement=gone.txt\n-r ../outside.txt\n-r /etc/hostname\n",
        requirements__base_txt="a\n-r ../requirements.txt\n-r base.txt\n-c ../limits.txt\n-r../deep/more.txt\n",
        deep__more_txt="b\n-r https://example.com/requirements.txt\n",
        limits_txt="a<2\nnever-asked-for==1\n",
    )
    result = declared(root)
    assert versions(result) == {"a": "<2", "b": ""}
    assert details(result) == [
        "deep/more.txt: line 2: includes an address, which is not followed",
        "gone.txt: cannot be read: there is no such file",
        "requirements.txt: line 3: ../outside.txt is outside of the source and is not read",
        "requirements.txt: line 4: /etc/hostname is outside of the source and is not read",
    ]


def test_a_file_may_be_a_requirement_here_and_a_constraint_there(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="-c requirements-pins.txt\na>=1\n")
    (tmp_path / "requirements-pins.txt").write_text("a==1.5\nb==2\n")
    assert versions(declared(tmp_path)) == {"a": "==1.5,>=1", "b": "==2"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path, secret_txt="stolen", elsewhere__a_txt="stolen")
    root.mkdir()
    (root / "requirements.txt").symlink_to(tmp_path / "secret.txt")
    (root / "requirements").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pyproject.toml")
    result = declared(root)
    assert result.dependencies == ()
    assert details(result) == [
        "pyproject.toml: cannot be read: not a regular file",
        "requirements: is a link, and links are not followed",
        "requirements.txt: cannot be read: it is a link, and links are not followed",
    ]


def test_addresses_are_reported_and_only_their_file_names_used(tmp_path: Path) -> None:
    write(
        tmp_path,
        requirements_txt="""
git+https://token@git.example/team/repo.git@v1#egg=thing
-e ./lib
--editable=git+ssh://git@git.example/other.git
-e .[dev]
.
../sibling
tool @ git+https://git.example/tool.git
lib @ https://mirror.example/files/lib-1.2-py3-none-any.whl#sha256=00
https://mirror.example/some%2Done/big_lib-3.0.tar.gz
./wheels/local_one-0.1-py3-none-any.whl ; python_version > "3"
plain_name-2.0-py3-none-any.whl
nothing @ https://mirror.example/x.whl ; sys_platform == "win32"
""",
    )
    result = declared(tmp_path)
    assert versions(result) == {"big-lib": "==3.0", "lib": "==1.2", "local-one": "==0.1", "plain-name": "==2.0"}
    assert [detail.removeprefix("requirements.txt: ") for detail in details(result)] == [
        "line 10: an address (https) is not followed, big-lib 3.0 is looked for in the wheel directory",
        "line 11: a local path is not followed, local-one 0.1 is looked for in the wheel directory",
        "line 12: a local path is not followed, plain-name 2.0 is looked for in the wheel directory",
        "line 2: an address (git+https) is not followed",
        "line 3: a local path is not followed",
        "line 4: an address (git+ssh) is not followed",
        "line 7: a local path is not followed",
        "line 8: tool: an address (git+https) is not followed",
        "line 9: lib: an address (https) is not followed, lib 1.2 is looked for in the wheel directory",
    ]


def test_problems_show_no_credentials(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="what is https://user:hunter2@host/x this\n-r //user:hunter2@host/y\n")
    result = declared(tmp_path)
    assert len(result.problems) == 2
    assert "hunter2" not in str(result.problems)


def test_prose_with_the_name_of_a_requirements_file_is_summed_up(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="\n".join(f"The system must do {number} things." for number in range(40)))
    assert len(declared(tmp_path).problems) == 6
    assert details(declared(tmp_path))[-1] == "requirements.txt: line 5: The system must do 4 things. is no requirement"
    assert "requirements.txt: 35 more lines are no requirements" in details(declared(tmp_path))


def test_a_file_that_is_given_up_as_a_whole_leaves_the_answer_incomplete(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="a\nnot a requirement\n-r gone.txt\n-e ./lib\n", uv_lock="")
    assert declared(tmp_path).is_complete
    write(tmp_path, uv_lock="<<<<<<< ours\n")
    assert not declared(tmp_path).is_complete
    assert versions(declared(tmp_path)) == {"a": ""}
    assert not declared(tmp_path / "gone").is_complete


def test_a_file_in_utf_16_as_windows_shells_write_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes("requests==2.31.0\r\nidna\r\n".encode("utf-16"))
    assert versions(declared(tmp_path)) == {"idna": "", "requests": "==2.31.0"}


@pytest.mark.parametrize(
    ("name", "data", "detail"),
    [
        ("pyproject.toml", b"[project", "is no TOML: "),
        ("pyproject.toml", b"x = " + b"[" * 20_000, "is nested too deeply"),
        ("pyproject.toml", b"\xff\xfe\x00", "is no utf-16 text: "),
        ("requirements.txt", b"caf\xe9\n", "is no utf-8 text: "),
        ("requirements.txt", b"#" * (MAX_MANIFEST_BYTES + 1), "cannot be read: 1,048,577 bytes, the cap is 1,048,576"),
        ("pyproject.toml", b"[project]\ndependencies = 'requests'", "project.dependencies is no list of requirements"),
        ("pyproject.toml", b"[project]\ndependencies = ['a b', 3]", "project.dependencies: 3 is no requirement"),
        ("pyproject.toml", b"[dependency-groups]\na = [{include-group = 'b'}]", "dependency-groups.a: "),
        ("pyproject.toml", b"[tool.poetry.dependencies]\na = '^x'", "the dependency a is not understood: "),
        ("pyproject.toml", b"[project]\ndynamic = ['dependencies']", "project.dependencies are computed by the build"),
        ("poetry.lock", b"package = 1", "has no list of packages"),
        ("uv.lock", b"[[package]]\nname = '../x'\nversion = '1'", "the package ../x is not understood: "),
        ("pdm.lock", b"[[package]]\nname = 'x'\nversion = 'one'", "x one is no name with a version"),
        ("pylock.toml", b"lock-version = '1.0'", "is no lock file of PEP 751: Missing required value"),
        ("pylock.toml", b"lock-version = '9'\ncreated-by = 'x'\npackages = []", "is no lock file of PEP 751: "),
        ("Pipfile.lock", b"{", "is no JSON: "),
        ("Pipfile.lock", b"[" * 100_000, "is no JSON: "),
        ("Pipfile.lock", b'{"default": {"x": {"git": "https://e/x"}}}', "x comes from an address or a local path"),
    ],
)
def test_a_file_that_is_not_understood_is_a_problem_and_never_an_error(
    tmp_path: Path, name: str, data: bytes, detail: str
) -> None:
    (tmp_path / name).write_bytes(data)
    (tmp_path / "requirements-good.txt").write_text("good")
    result = declared(tmp_path)
    assert versions(result) == {"good": ""}
    assert any(problem.path == name and problem.detail.startswith(detail) for problem in result.problems), result


UV_LOCK = """
version = 1
[[package]]
name = "app"
source = { editable = "." }
dependencies = [
    { name = "direct" },
    { name = "for-windows", marker = "sys_platform == 'win32'" },
    { name = "forked", version = "1.0", marker = "python_version < '3'" },
    { name = "forked", version = "2.0", marker = "python_version >= '3'" },
    { name = "sibling" },
]
[package.optional-dependencies]
gpu = [{ name = "cuda", marker = "extra == 'extra-3-app-gpu' and extra != 'extra-3-app-cpu'" }]
cpu = [{ name = "blas", marker = "extra == 'extra-3-app-cpu' and extra != 'extra-3-app-gpu'" }]
[package.dev-dependencies]
dev = [{ name = "linter" }]
[[package]]
name = "direct"
version = "1.2.3"
dependencies = [{ name = "transitive", extra = ["fast"] }]
[[package]]
name = "transitive"
version = "0.1"
[package.optional-dependencies]
fast = [{ name = "accelerator" }]
[[package]]
name = "accelerator"
version = "7"
[[package]]
name = "for-windows"
version = "1"
dependencies = [{ name = "only-through-windows" }]
[[package]]
name = "only-through-windows"
version = "1"
[[package]]
name = "forked"
version = "1.0"
[[package]]
name = "forked"
version = "2.0"
[[package]]
name = "sibling"
version = "0.1"
source = { editable = "packages/sibling" }
dependencies = [{ name = "outsider" }]
[[package]]
name = "outsider"
version = "0.1"
source = { directory = "../outsider" }
[[package]]
name = "cuda"
version = "12"
[[package]]
name = "blas"
version = "3"
[[package]]
name = "linter"
version = "9"
"""


def test_a_lock_of_uv_counts_as_far_as_its_markers_lead(tmp_path: Path) -> None:
    write(tmp_path, uv_lock=UV_LOCK)
    result = declared(tmp_path)
    assert versions(result) == {
        "accelerator": "==7",
        "blas": "==3",
        "cuda": "==12",
        "direct": "==1.2.3",
        "forked": "==2.0",
        "linter": "==9",
        "transitive": "==0.1",
    }
    assert details(result) == ["uv.lock: outsider is a folder outside of the source and is not read"]


def test_a_lock_of_poetry_counts_with_and_without_markers_of_its_packages(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_toml="""
        [tool.poetry]
        name = "app"
        [tool.poetry.dependencies]
        direct = "^1.0"
        pywin32 = {version = "*", markers = "sys_platform == 'win32'"}
        """,
        poetry_lock="""
        [[package]]
        name = "direct"
        version = "1.9"
        python-versions = ">=3.8"
        [package.dependencies]
        Through = {version = ">=1", markers = "sys_platform == 'linux'"}
        colorama = {version = "*", markers = "sys_platform == 'win32'"}
        many = [{version = "<2", markers = "python_version < '3'"}, {version = ">=2", markers = "python_version > '3'"}]
        [[package]]
        name = "through"
        version = "1.1"
        [[package]]
        name = "colorama"
        version = "0.4"
        [[package]]
        name = "pywin32"
        version = "300"
        [[package]]
        name = "many"
        version = "1.5"
        [[package]]
        name = "many"
        version = "2.5"
        [[package]]
        name = "grouped"
        version = "3"
        markers = {main = "os_name == 'nt'", dev = "os_name == 'posix'"}
        [[package]]
        name = "elsewhere"
        version = "3"
        markers = "sys_platform == 'darwin'"
        [[package]]
        name = "two-pythons"
        version = "2"
        python-versions = "<3.0"
        [[package]]
        name = "two-pythons"
        version = "1"
        python-versions = ">=3.0"
        [[package]]
        name = "circle-a"
        version = "1"
        dependencies = {circle-b = "*"}
        [[package]]
        name = "circle-b"
        version = "1"
        dependencies = {circle-a = "*"}
        """,
    )
    result = declared(tmp_path)
    assert versions(result) == {
        "circle-a": "==1",
        "circle-b": "==1",
        "direct": "==1.9",
        "grouped": "==3",
        "many": "==2.5",
        "through": "==1.1",
        "two-pythons": "==1",
    }
    assert details(result) == []
    assert result.dependencies[2].version == Version("1.9")
    assert result.dependencies[2].declared_in == ("poetry.lock", "pyproject.toml")


def test_locks_of_pdm_pipenv_and_pep_751_count(tmp_path: Path) -> None:
    pdm, pipenv, pep_751 = tmp_path / "pdm", tmp_path / "pipenv", tmp_path / "pep_751"
    write(
        pdm,
        pdm_lock="""
        [[package]]
        name = "a"
        version = "1"
        requires_python = ">=3.8"
        dependencies = ["b>=1", "c; sys_platform == 'win32'"]
        [[package]]
        name = "b"
        version = "1.5"
        marker = "sys_platform == 'linux'"
        [[package]]
        name = "c"
        version = "1"
        [[package]]
        name = "mine"
        version = "1"
        path = "./packages/mine"
        """,
    )
    write(
        pipenv,
        Pipfile_lock=json.dumps(
            {
                "_meta": {"hash": {}, "requires": {"python_version": "3"}},
                "default": {"A": {"version": "==1.0"}, "w": {"version": "==1", "markers": "os_name == 'nt'"}},
                "develop": {"b": {"version": "==2.0.post1", "markers": "python_version >= '3'"}},
            }
        ),
    )
    sdist = 'sdist = {name = "%s-%s.tar.gz", url = "https://e/x", hashes = {sha256 = "0"}}'
    write(
        pep_751,
        pylock_toml=f"""
        lock-version = "1.0"
        created-by = "somebody"
        extras = ["x"]
        dependency-groups = ["dev"]
        [[packages]]
        name = "a"
        version = "1.0"
        marker = "'x' in extras"
        {sdist % ("a", "1.0")}
        [[packages]]
        name = "b"
        version = "2"
        marker = "'dev' in dependency_groups and sys_platform == 'linux'"
        {sdist % ("b", "2")}
        [[packages]]
        name = "c"
        version = "3"
        marker = "sys_platform == 'win32'"
        {sdist % ("c", "3")}
        [[packages]]
        name = "app"
        directory = {{path = "."}}
        """,
    )
    (pep_751 / "pylock.dev.toml").write_text(
        (pep_751 / "pylock.toml").read_text().replace('"2"', '"1"').replace("b-2", "b-1")
    )
    assert versions(declared(pdm)) == {"a": "==1", "b": "==1.5"}
    assert versions(declared(pipenv)) == {"a": "==1.0", "b": "==2.0.post1"}
    assert versions(declared(pep_751)) == {"a": "==1.0", "b": "==2"}
    assert details(declared(pep_751)) == ["pylock.dev.toml: b is 1 here and 2 in pylock.toml, which counts"]


def test_the_version_of_a_lock_wins_and_ranges_add_up(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_toml='[project]\nname = "x"\ndependencies = ["locked>=1", "ranged>=1", "late"]',
        requirements_txt="ranged<3\nlocked==1.0\nranged!=2\n",
        uv_lock='[[package]]\nname = "locked"\nversion = "1.4"\n',
    )
    result = declared(tmp_path)
    assert versions(result) == {"late": "", "locked": "==1.4", "ranged": "!=2,<3,>=1"}
    assert [dependency.version for dependency in result.dependencies] == [None, Version("1.4"), None]
    assert result.dependencies[1].declared_in == ("pyproject.toml", "requirements.txt", "uv.lock")


def test_ranges_that_nothing_satisfies_are_said_and_the_highest_exact_version_counts(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="a==1.0\nb<1\n")
    write(tmp_path, pyproject_toml='[project]\ndependencies = ["a==1.1", "a>=2", "b>2"]')
    result = declared(tmp_path)
    assert versions(result) == {"a": "==1.1", "b": "<1,>2"}
    assert details(result) == [
        "pyproject.toml: a is wanted as ==1.0,==1.1,>=2 (pyproject.toml, requirements.txt): "
        "nothing satisfies that, ==1.1 counts",
        "pyproject.toml: b is wanted as <1,>2 (pyproject.toml, requirements.txt): "
        "nothing satisfies that, so no file can be found",
    ]


def test_requirements_files_that_setuptools_takes_dependencies_from_are_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        pyproject_toml="""
        [project]
        name = "app"
        dynamic = ["dependencies"]
        [tool.setuptools.dynamic]
        dependencies = {file = ["deps/base.txt"]}
        optional-dependencies.dev = {file = "./deps/dev.txt"}
        optional-dependencies.bad = {file = "../outside.txt"}
        """,
        deps__base_txt="a",
        deps__dev_txt="b",
    )
    result = declared(tmp_path)
    assert versions(result) == {"a": "", "b": ""}
    assert details(result) == ["pyproject.toml: tool.setuptools.dynamic: ../outside.txt is not read"]


def test_setup_cfg_is_read_and_setup_py_is_not_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        setup_py="raise SystemExit('executed')",
        setup_cfg="""
[metadata]
name = app
version = 1%
[options]
install_requires =
    requests>=2 ; python_version > "3"
    # a comment
    app
    not a requirement
[options.extras_require]
dev = file: dev/all.txt, ../outside.txt
docs = sphinx
""",
        dev__all_txt="tox",
    )
    result = declared(tmp_path)
    assert versions(result) == {"requests": ">=2", "sphinx": "", "tox": ""}
    assert details(result) == [
        "setup.cfg: extras_require.dev: ../outside.txt is not read",
        "setup.cfg: install_requires: not a requirement is no requirement",
    ]
    (tmp_path / "setup.cfg").write_text("install_requires = requests")
    assert [detail.split(": ")[0] for detail in details(declared(tmp_path))] == ["setup.cfg", "setup.py"]
    assert is_current(tmp_path, declared(tmp_path).files)


def test_what_was_looked_at_tells_whether_anything_changed(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="-r deep/more.txt\n-r later.txt\n", deep__more_txt="a\n", unrelated_md="x")
    files = declared(tmp_path).files
    assert [file.path for file in files] == ["deep/more.txt", "later.txt", "requirements.txt"]
    assert is_current(tmp_path, files)
    write(tmp_path, unrelated_md="changed")
    assert is_current(tmp_path, files)

    write(tmp_path, deep__more_txt="a\nb\n")
    assert not is_current(tmp_path, files)
    files = declared(tmp_path).files
    assert is_current(tmp_path, files)
    write(tmp_path, later_txt="")
    assert not is_current(tmp_path, files)
    files = declared(tmp_path).files
    write(tmp_path, uv_lock="")
    assert not is_current(tmp_path, files)
    files = declared(tmp_path).files
    (tmp_path / "uv.lock").unlink()
    assert not is_current(tmp_path, files)


@pytest.mark.parametrize(
    ("constraint", "pep_440"),
    [
        ("*", ""),
        ("1.2.3", "==1.2.3"),
        ("=1.2.3", "==1.2.3"),
        ("1.2.*", "==1.2.*"),
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^0", ">=0,<1"),
        ("^2.0a1", ">=2.0a1,<3"),
        ("^1!1.2", ">=1!1.2,<1!2"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("~=1.4.2", "~=1.4.2"),
        (">=1.0 <2.0", ">=1.0,<2.0"),
        (">= 1.0, < 2.0,", ">=1.0,<2.0"),
        ("^1.0 || ^2.0", "<3,>=1.0"),
        ("<1 || >=2", ""),
        ("1.* || 2.*", ">=1.dev0,<3.dev0"),
    ],
)
def test_constraints_of_poetry_mean_what_poetry_means(constraint: str, pep_440: str) -> None:
    mine, theirs = poetry.specifier(constraint), SpecifierSet(pep_440)
    for version in (
        "0",
        "0.0.3",
        "0.0.9",
        "0.2.3",
        "0.3",
        "1",
        "1.2",
        "1.2.3",
        "1.2.9",
        "1.4.5",
        "2.0a2",
        "2.5",
        "3",
        "1!1.9",
    ):
        assert mine.contains(version, prereleases=True) == theirs.contains(version, prereleases=True), version


@given(st.tuples(*[st.integers(0, 3)] * 3), st.tuples(*[st.integers(0, 4)] * 3))
def test_a_caret_allows_what_keeps_the_first_digit_that_is_not_zero(
    lower: tuple[int, int, int], version: tuple[int, int, int]
) -> None:
    place = next((index for index, digit in enumerate(lower) if digit), 2)
    allowed = version >= lower and version[: place + 1] == lower[: place + 1]
    assert poetry.specifier("^" + ".".join(map(str, lower))).contains(".".join(map(str, version))) == allowed


NAMES = [
    "setup.cfg",
    "pyproject.toml",
    "requirements.txt",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "pylock.toml",
    "Pipfile.lock",
]
SCRAPS = st.sampled_from(
    [
        "[[package]]\n", "name = 'a'\n", "version = '1'\n", "version = 1\n", "[project]\n", "dependencies = ['a>1']\n",
        "dependencies = [{name = 'a'}]\n", "[tool.poetry.dependencies]\n", "[options]\n", "a = '^1 || x'\n",
        "markers = 'os_name'\n",
        "[dependency-groups]\n", "-r requirements.txt\n", "-c ../x\n", "a==" + "9" * 5000 + "\n", "((" * 600 + "\n",
        "a; " + "(" * 3000 + "\n", "b @ file:///x\n", "-e \n", "\\\n", "\x00", "{\"default\": {\"a\": {}}}",
        "source = {}\n", "a[b]==1,!=1\n", "http://[\n", "c @ http://[x\n", "source = {editable = '/x'}\n",
        "path = '..'\n", "[tool]\npdm = 1\n",
    ]
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from(NAMES), st.lists(SCRAPS | st.text(max_size=20), max_size=8).map("".join)))
def test_whatever_manifests_hold_nothing_is_raised_and_the_answer_is_ordered(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        result = declared(Path(folder))
        assert result == declared(Path(folder))
        assert is_current(Path(folder), result.files)
    assert [one.name for one in result.dependencies] == sorted({one.name for one in result.dependencies})
    assert set(files) <= {file.path for file in result.files}
    for problem in result.problems:
        assert problem.detail.isprintable()


@given(st.permutations(["a>=1", "a<3", "b==2", "c", "a!=2", "d[x]~=1.0"]))
def test_the_order_of_lines_changes_nothing(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "requirements.txt").write_text("\n".join(lines))
        result = declared(Path(folder))
    assert versions(result) == {"a": "!=2,<3,>=1", "b": "==2", "c": "", "d": "~=1.0"}


ENDLESS = "1" * 5000  # int() takes no more than 4,300 digits


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", f"a{' ' * 100_000}b\n"),
        ("requirements.txt", f"a{' ' * 100_000}{' ' * 100_000}b\n-r{' ' * 100_000}\n{' ' * 100_000}--hash"),
        ("requirements.txt", f"foo>{ENDLESS}\n"),
        ("requirements.txt", f"foo>{'1' * 4000}\n"),
        ("requirements.txt", f"foo{','.join(f'!=1.{number}' for number in range(400))}\n"),
        ("requirements.txt", f"a-1-{'.'.join('a' * 600)}-{'.'.join('a' * 600)}-{'.'.join('a' * 600)}.whl\n"),
        ("pyproject.toml", ".".join("a" * 8000) + " = 1\n"),
        ("pyproject.toml", " . ".join(["'a'", '"b"'] * 4000) + " = 1\n"),
        ("pyproject.toml", "[" + ".".join("a" * 8000) + "]\n"),
        ("pyproject.toml", "x = {y = 1, " + ".".join("a" * 8000) + " = 1}\n"),
        ("pyproject.toml", 'x = {y = """\\""""", ' + ".".join("a" * 8000) + ' = """"""}\n'),
        ("pyproject.toml", "x = {y = '''\"''''', " + ".".join("a" * 8000) + " = '\"'}\n"),
        ("pyproject.toml", 'a = 1 # "\n' + ".".join("a" * 8000) + ' = 1 # "\n'),
        ("pyproject.toml", f"a = '{'x' * (256 * 1024)}'\n"),
        ("pyproject.toml", f'[tool.poetry.dependencies]\nfoo = "{"||".join("1" * 100_000)}"\n'),
        ("pyproject.toml", f'[tool.poetry.dependencies]\nfoo = "^{"9" * 4300}"\nbar = "=={ENDLESS}"\n'),
        ("setup.cfg", f"[options]\na{' ' * 200_000}b\n"),
        ("setup.cfg", "[options]\n" + "a\n" * 100_000),
        ("uv.lock", f'[[package]]\nname = "foo"\nversion = "{ENDLESS}"\n'),
        ("uv.lock", f'[[package]]\nname = 0x{"f" * 5000}\nversion = "1"\n'),
        ("uv.lock", "".join(f'[[package]]\nname = "foo"\nversion = "{number}"\n' for number in range(40))),
        ("uv.lock", ".".join("a" * 8000) + " = 1\n"),
        ("poetry.lock", 2 * f'[[package]]\nname = "foo"\nversion = "{ENDLESS}"\n'),
        ("pdm.lock", 2 * f'[[package]]\nname = "foo"\nversion = "{ENDLESS}"\ndependencies = ["foo>1"]\n'),
        ("pylock.toml", f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "foo"\nversion = "{ENDLESS}"\n'),
        ("Pipfile.lock", json.dumps({"default": {"foo": {"version": f"=={ENDLESS}"}}})),
        ("Pipfile.lock", f'{{"default": {ENDLESS}}}'),
    ],
    ids=lambda text: text[:16],
)
def test_a_file_made_to_take_for_ever_or_to_fail_is_a_problem_of_its_own(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    write(tmp_path, other_requirements_txt="")
    (tmp_path / "dev-requirements.txt").write_text("good>=1\n")
    result = declared(tmp_path)
    assert versions(result)["good"] == ">=1"
    assert {problem.path for problem in result.problems} == {name}
    assert all(len(problem.detail) < 1000 for problem in result.problems)
    for dependency in result.dependencies:
        dependency.specifier.contains(Version("1"))
        assert len(str(dependency.specifier)) < 5000


def test_a_fault_that_no_reader_expects_makes_the_result_incomplete(tmp_path: Path) -> None:
    write(tmp_path, uv_lock=f"[[package]]\nname = 0x{'f' * 5000}\n", pyproject_toml="[project]\ndependencies = ['a']")
    with capture_logs() as logs:
        result = declared(tmp_path)
    assert details(result) == ["uv.lock: cannot be understood (ValueError)"]
    assert versions(result) == {"a": ""}
    assert not result.is_complete
    assert [one["path"] for one in logs] == ["uv.lock"]


def test_dots_in_texts_and_comments_are_no_long_keys(tmp_path: Path) -> None:
    dots = ".".join("a" * 100)
    write(
        tmp_path,
        pyproject_toml=f"""
        # {dots}
        [tool."{dots}".'{dots}'.x]
        y = ["{dots}", '{dots}', "\\"{dots}", 1.5, 2.5]
        z = '''
        {dots} "
        '''
        [project]
        dependencies = ["a>={".".join("1" * 40)}"]
        """,
    )
    result = declared(tmp_path)
    assert list(versions(result)) == ["a"]
    assert result.problems == ()


def test_no_file_is_read_without_end(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="".join(f"a{number}\n" for number in range(10_005)))
    result = declared(tmp_path)
    assert len(result.dependencies) == 10_000
    assert details(result) == ["requirements.txt: line 10001: more than 10,000 requirements, the rest is not read"]
    assert not result.is_complete
    write(tmp_path, requirements_txt="".join(f"-r a{number}.txt\n" for number in range(1_500)))
    result = declared(tmp_path)
    assert len(result.files) == 1_000
    assert not result.is_complete


def test_of_many_problems_the_first_are_told(tmp_path: Path) -> None:
    write(tmp_path, pyproject_toml=f"[project]\ndependencies = [{', '.join(f'{number}' for number in range(500))}]")
    result = declared(tmp_path)
    assert len(result.problems) == 101
    assert any(problem.detail == "there is more that does not count" for problem in result.problems)


def test_of_very_many_ranges_the_first_count(tmp_path: Path) -> None:
    write(tmp_path, requirements_txt="".join(f"a!=1.{number}\n" for number in range(3_000)))
    result = declared(tmp_path)
    assert len(result.dependencies[0].specifier) == 256
    assert details(result) == ["requirements.txt: a is wanted in 3,000 ranges: the first 256 count"]
