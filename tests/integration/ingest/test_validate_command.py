"""``validate`` and ``chunks`` show what a run would make of files, with no service and no database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.appliance import undercroft


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    files = {
        ".git/HEAD": "ref: refs/heads/main\n",
        ".gitignore": "*.log\n",
        ".env": "SECRET=1\n",
        "debug.log": "x\n",
        "logo.png": "x",
        "README.md": "# Shop\n\nSells things.\n\n## Returns\n\nThirty days.\n",
        "src/shop/__init__.py": "",
        "src/shop/cart.py": 'def add_item(cart):\n    """Add."""\n    pass\n\n\ndef total(cart):\n    return 0\n',
    }
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (root / "old.txt").write_bytes("Größe überall möglich, außer nachts und über Öfen.\n".encode("latin-1") * 9)
    return root


def run(tmp_path: Path, *arguments: str) -> str:
    return undercroft(*arguments, home=tmp_path / "home").stdout


def test_validate_tells_what_is_indexed_and_what_is_not(tmp_path: Path, folder: Path) -> None:
    seen = json.loads(run(tmp_path, "validate", str(folder), "--json"))
    files = {file["path"]: file for file in seen["files"]}
    assert set(files) == {".gitignore", "README.md", "old.txt", "src/shop/__init__.py", "src/shop/cart.py"}
    assert {one["path"]: one["reason"] for one in seen["skipped"]} == {
        ".env": "secret",
        ".git/": "excluded",
        "debug.log": "ignored",
        "logo.png": "binary",
    }
    cart = files["src/shop/cart.py"]
    assert [chunk["title"] for chunk in cart["chunks"]] == ["shop.cart > add_item", "shop.cart > total"]
    assert [(chunk["start_line"], chunk["end_line"]) for chunk in cart["chunks"]] == [(1, 3), (6, 7)]
    assert all(0 < chunk["tokens"] <= seen["budget_tokens"] for file in files.values() for chunk in file["chunks"])
    assert [note["code"] for note in files["old.txt"]["notes"]] == ["encoding_guessed"]
    told = run(tmp_path, "validate", str(folder), "--skipped")
    assert "5 files to index" in told
    assert "debug.log" in told
    assert "encoding_guessed" in told
    assert not (tmp_path / "home").exists()


def test_a_manifest_that_cannot_be_read_is_listed_and_indexed_as_runs_do(tmp_path: Path, folder: Path) -> None:
    (folder / ".undercroft.yaml").write_text("version: 1\nmetadata: {x: {y: z}}\nteam: core\n")
    seen = json.loads(run(tmp_path, "validate", str(folder), "--json"))
    assert ".undercroft.yaml" in {file["path"] for file in seen["files"]}
    (problem,) = [one for one in seen["skipped"] if one["path"] == ".undercroft.yaml"]
    assert problem["reason"] == "manifest_invalid"
    assert problem["detail"].startswith("metadata.x: ")


def test_chunks_shows_the_chunks_of_a_file_as_a_run_would_name_them(tmp_path: Path, folder: Path) -> None:
    told = run(tmp_path, "chunks", str(folder / "src" / "shop" / "cart.py"))
    assert "shop.cart > add_item" in told
    assert "def total(cart):" in told
    one = json.loads(run(tmp_path, "chunks", str(folder / "README.md"), "--json"))
    assert [chunk["title"] for chunk in one["chunks"]] == ["Shop", "Shop > Returns"]
    for path, why in (("debug.log", "ignored"), (".env", "secret"), ("nowhere.md", "is no file")):
        refused = undercroft("chunks", str(folder / path), home=tmp_path / "home", check=False)
        assert refused.returncode == 1
        assert why in refused.stderr


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    refused = undercroft("validate", str(tmp_path / "nowhere"), home=tmp_path / "home", check=False)
    assert refused.returncode == 1
    assert "does not exist" in refused.stderr


def test_validate_tells_which_rules_of_manifests_fit_nothing(tmp_path: Path, folder: Path) -> None:
    manifest = "version: 1\nmetadata: {team: shop}\noverrides:\n- {files: old/**}\n- {files: '*.md', chunk_by: file}\n"
    (folder / ".undercroft.yaml").write_text(manifest)
    (folder / "src" / ".undercroft.yaml").write_text("version: 9\n")
    seen = json.loads(run(tmp_path, "validate", str(folder), "--json"))
    assert seen["unused_rules"] == [{"manifest": ".undercroft.yaml", "files": "old/**"}]
    readme = next(file for file in seen["files"] if file["path"] == "README.md")
    assert readme["metadata"] == {"team": ["shop"]}
    assert [chunk["title"] for chunk in readme["chunks"]] == ["README.md"]
    assert {one["path"] for one in seen["skipped"] if one["reason"] == "manifest_invalid"} == {"src/.undercroft.yaml"}
