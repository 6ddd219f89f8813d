from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.skips import Skipped
from services.ingest.sniffing import TextFile, sniff, split_lines


def text_of(data: bytes, path: str = "a.py") -> TextFile:
    file = sniff(data, path)
    assert isinstance(file, TextFile), file
    return file


def reason_of(data: bytes, path: str) -> str:
    skipped = sniff(data, path)
    assert isinstance(skipped, Skipped), skipped
    assert skipped.path == path
    return str(skipped.reason)


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"", "utf-8", ""),
        ("café".encode(), "utf-8", "café"),
        (b"\xef\xbb\xbfx = 1", "utf-8-sig", "x = 1"),
        ("x = 'é'".encode("utf-16"), "utf-16", "x = 'é'"),
        (b"\xfe\xff\x00x", "utf-16", "x"),
        ("é".encode("utf-32"), "utf-32", "é"),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'", "iso8859-1", "# -*- coding: latin-1 -*-\nx = 'é'"),
        (b"#!/bin/x\n# vim: fileencoding=cp1251\n\xcf", "cp1251", "#!/bin/x\n# vim: fileencoding=cp1251\nП"),
        (b"# coding: euc-jp\n\xc6\xfc", "euc_jp", "# coding: euc-jp\n日"),
        (b"# coding: utf8\n\xc3\xa9", "utf-8", "# coding: utf8\né"),
    ],
)
def test_text_is_decoded_as_its_author_meant(data: bytes, encoding: str, text: str) -> None:
    file = text_of(data)
    assert (file.encoding, file.text, file.notes) == (encoding, text, ())


def test_latin_1_without_a_word_about_it_is_guessed_and_says_so() -> None:
    file = text_of(b"def f():\n    return 'caf\xe9'\n")
    assert file.text == "def f():\n    return 'café'\n"
    assert file.notes == ("encoding_guessed",)


# Of the kind that comments and documents are made of.
PROSE = {
    "ru": "Программа читает файл настроек и пишет журнал. Если файла нет, она создаёт его сама.",
    "uk": "Програма читає файл налаштувань і пише журнал. Якщо його немає, вона створює його сама.",
    "bg": "Програмата чете файла с настройки и пише дневник. Ако го няма, тя го създава сама.",
    "zh": "程序读取配置文件并写入日志。如果文件不存在，它会自己创建。这是一个简单的说明。",
    "tw": "程式讀取設定檔並寫入記錄。如果檔案不存在，它會自己建立。這是一個簡單的說明。",
    "ja": "プログラムは設定ファイルを読み、ログを書きます。ファイルがなければ自分で作ります。",
    "ko": "프로그램은 설정 파일을 읽고 로그를 씁니다. 파일이 없으면 스스로 만듭니다.",
    "pl": "Program czyta plik ustawień i zapisuje dziennik. Jeżeli pliku nie ma, stworzy go sam, żeby działać dalej.",
    "cs": "Program čte soubor s nastavením a zapisuje deník. Když soubor není, vytvoří jej sám, aby mohl běžet dál.",
    "hu": "A program beolvassa a beállításokat és naplót ír. Ha nincs ilyen fájl, ő hozza létre, hogy működjön, majd.",
    "de": "Das Programm liest die Datei mit den Einstellungen für später. Fehlt sie, läuft es über Vorgaben.",
    "fr": "Le programme lit le fichier de réglages et écrit un journal. S'il n'existe pas, il le crée lui-même à côté.",
    "el": "Το πρόγραμμα διαβάζει το αρχείο ρυθμίσεων και γράφει ημερολόγιο. Αν λείπει, το δημιουργεί μόνο του.",
    "he": "התוכנית קוראת את קובץ ההגדרות וכותבת יומן. אם הקובץ חסר, היא יוצרת אותו בעצמה.",
    "tr": "Program ayar dosyasını okur ve günlük yazar. Dosya yoksa, çalışmaya devam etmek için onu kendisi oluşturur.",
}
LEGACY = [
    *(("cp1251", "ru"), ("cp1251", "uk"), ("cp1251", "bg"), ("koi8-r", "ru"), ("cp866", "ru"), ("gb18030", "zh")),
    *(("big5", "tw"), ("shift_jis", "ja"), ("euc-jp", "ja"), ("euc-kr", "ko"), ("iso-8859-2", "pl"), ("cp1250", "pl")),
    *(("iso-8859-2", "cs"), ("cp1250", "cs"), ("cp1250", "hu"), ("cp1252", "de"), ("cp1252", "fr"), ("cp1253", "el")),
    *(("iso-8859-7", "el"), ("cp1255", "he"), ("cp1254", "tr"), ("iso2022-jp", "ja")),
    *(("utf-16-le", "de"), ("utf-16-be", "ru"), ("utf-16-le", "ja"), ("utf-16-be", "zh")),
]


@pytest.mark.parametrize(
    "form", ["{}\n", "int main(void) {{\n    return 0; // {}\n}}\n", "x = 1\r\n" * 5000 + "# {}\r\n"]
)
@pytest.mark.parametrize(("encoding", "language"), LEGACY)
def test_legacy_text_is_decoded_by_a_guess_that_says_so(encoding: str, language: str, form: str) -> None:
    text = form.format(PROSE[language]) if language not in ("zh", "ja") else form.format(PROSE[language] + " ok")
    file = text_of(text.encode(encoding), "main.c")
    assert file.text == text.replace("\r\n", "\n")
    assert file.notes == ("encoding_guessed",)


@pytest.mark.parametrize(
    "head",
    [
        b'<?xml version="1.0" encoding="windows-1251"?>',
        b'<html><meta charset="cp1251">',
        b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">',
        b'"Content-Type: text/plain; charset=cp1251\\n"',
    ],
)
def test_markup_that_names_its_encoding_is_believed(head: bytes) -> None:
    file = text_of(head + "\nёж ть".encode("cp1251"), "a.xml")
    assert file.text.endswith("ёж ть")
    assert (file.encoding, file.notes) == ("cp1251", ())


def test_a_few_bytes_that_are_no_characters_do_not_cost_the_rest() -> None:
    file = text_of((PROSE["ja"] + "\n").encode("euc-jp") * 2000 + b"\xff.", "a.txt")
    assert file.text == (PROSE["ja"] + "\n") * 2000 + "\ufffd."
    assert file.notes == ("encoding_guessed", "bytes_replaced")


def test_guessing_looks_at_a_bounded_part() -> None:
    began = time.process_time()
    for data in (b"caf\xe9 " * 400_000, b"x" * 2_000_000 + b"\xe9", b"x \xe9\n" * 400_000, b"\xe9" * 2_000_000):
        sniff(data, "a.txt")
    assert time.process_time() - began < 3


@pytest.mark.parametrize("cookie", [b"nonsense", b"rot13", b"hex", b"unicode_escape", b"utf-7", b"idna", b"ascii"])
def test_a_cookie_that_cannot_be_obeyed_falls_back_and_says_so(cookie: bytes) -> None:
    file = text_of(b"# coding: " + cookie + b"\nx = '\xc3\xa9'\n")
    assert "é" in file.text
    assert file.notes == ("encoding_cookie_unknown",)


def test_a_cookie_in_the_third_line_is_no_cookie() -> None:
    assert text_of(b"\n\n# coding: latin-1\n\xc3\xa9").encoding == "utf-8"


def test_a_stray_nul_is_replaced_because_no_store_can_hold_it() -> None:
    file = text_of(b"x = 1\0\ny = 2\n")
    assert file.text == "x = 1\ufffd\ny = 2\n"
    assert file.notes == ("nul_replaced",)


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (bytes(range(256)) * 4, "a.dat", "binary"),
        (b"\x7fELF\x02\x01", "tool", "binary"),
        (b"PK\x03\x04rest", "archive", "binary"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "a.txt", "lfs_pointer"),
        (b"a\0\0bc\0\0d", "a.txt", "binary"),
        (b"\xff\xfeabc", "a.txt", "undecodable"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nxyz", "notes.txt", "secret"),
        (b"x", "config/.env", "secret"),
        (b"x", "home/.kube/config", "secret"),
        (b"x", "yarn.lock", "generated"),
        (b"// Code generated by protoc-gen-go. DO NOT EDIT.\npackage a\n", "a.go", "generated"),
        (b"# @generated by codegen\nx = 1\n", "a.py", "generated"),
        (b"/*\n * This file is auto-generated.\n * Do not modify.\n */\n", "a.js", "generated"),
        (b"!function(){" + b"var a=1;" * 2000 + b"}()", "app.js", "minified"),
        (b"[" + b"1," * 200_000 + b"1]", "table.dat", "minified"),
    ],
)
def test_what_is_not_for_reading_is_skipped_with_its_reason(data: bytes, path: str, reason: str) -> None:
    assert reason_of(data, path) == reason


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"# WARNING: this file is auto-generated by 'async_to_sync.py'\nclass Connection: ...\n", "connection.py"),
        (b"# Generated by Django 4.2 on 2024-01-01\n", "migrations/0001_initial.py"),
        (b"MARKERS = ['generated by', 'DO NOT EDIT']\n", "markers.py"),
        (b"Files say 'generated by x, DO NOT EDIT'.\n", "guide.md"),
        (b"#" + b"x" * 3000, "a.py"),
        (b"\x1b[31mred\x1b[0m\x0cnext page\n", "log.txt"),
        ("中文字符\n".encode() * 50, "a.txt"),
    ],
)
def test_what_people_maintain_is_kept(data: bytes, path: str) -> None:
    text_of(data, path)


@pytest.mark.parametrize(
    ("data", "newline", "lines"),
    [
        (b"a\nb\n", "lf", ["a", "b"]),
        (b"a\r\nb", "crlf", ["a", "b"]),
        (b"a\rb\r", "cr", ["a", "b"]),
        (b"a\r\n\rb\n", "mixed", ["a", "", "b"]),
        (b"a", "", ["a"]),
        ("a\u2028b\x0cc\x0bd\x85e\n".encode(), "lf", ["a\u2028b\x0cc\x0bd\x85e"]),
    ],
)
def test_lines_end_at_lf_crlf_and_cr_alone(data: bytes, newline: str, lines: list[str]) -> None:
    file = text_of(data)
    assert (file.newline, split_lines(file.text)) == (newline, lines)


@given(st.binary(max_size=400), st.sampled_from(["a.py", "b.md", "c.txt", "d"]))
def test_any_bytes_become_storable_text_or_a_reason(data: bytes, path: str) -> None:
    file = sniff(data, path)
    if isinstance(file, TextFile):
        assert "\0" not in file.text
        assert "\r" not in file.text
        file.text.encode("utf-8")


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Z"]), max_size=80))
def test_utf8_text_keeps_every_line_where_it_is(text: str) -> None:
    lines = text.split("\n")
    for end in ("\n", "\r\n", "\r"):
        assert split_lines(text_of(end.join(lines).encode()).text) == split_lines(text)
