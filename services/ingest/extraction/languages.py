"""The language of a file, by its name and, where that says little, its text."""

from __future__ import annotations

import re

from services.ingest.modules import PYTHON_SUFFIXES

# Those whose definitions are found (``services.ingest.extraction.grammars``), besides Python.
CODE_LANGUAGES = frozenset(
    {
        "javascript", "typescript", "go", "java", "rust", "c", "cpp", "csharp", "ruby", "php", "kotlin", "shell", "sql",
        "hcl", "proto",
    }
)  # fmt: skip
_CPP_HEADER = re.compile(
    r"^[ \t]*(?:namespace\b|template[ \t]*<|class[ \t]+\w[^;]*$|using[ \t]|(?:public|private|protected)[ \t]*:)"
    r"|\bstd::",
    re.MULTILINE,
)
# What reStructuredText has and other text hardly: a directive or a target, and an underlined title.
_RST_MARKUP = re.compile(r"^\.\. (?:[A-Za-z][\w:+.-]*::|_[^:\n]+:)", re.MULTILINE)
_RST_TITLE = re.compile(r"^(?=\S)[^\n]{1,200}\n([=~^\"*#+-])\1{3,}[ \t]*$", re.MULTILINE)
_HEAD_CHARACTERS = 100_000
_BY_SUFFIX = {
    **{suffix.lstrip("."): "python" for suffix in PYTHON_SUFFIXES},
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mdx"), "markdown"),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx"), "javascript"),
    **dict.fromkeys(("ts", "tsx", "mts", "cts"), "typescript"),
    **dict.fromkeys(("c", "h"), "c"),
    **dict.fromkeys(("cc", "cpp", "cxx", "hh", "hpp", "hxx", "inl", "ipp", "tpp"), "cpp"),
    **dict.fromkeys(("sh", "bash", "zsh", "ksh", "bats"), "shell"),
    **dict.fromkeys(("yaml", "yml"), "yaml"),
    **dict.fromkeys(("json", "jsonc", "json5", "jsonl", "ndjson", "geojson", "ipynb"), "json"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(("jinja", "jinja2", "j2", "mako", "tmpl", "tpl"), "template"),
    **dict.fromkeys(
        ("ini", "cfg", "conf", "properties", "editorconfig", "service", "timer", "socket", "desktop"), "ini"
    ),
    **dict.fromkeys(("rst", "rest"), "rst"),
    **dict.fromkeys(("srt", "vtt", "sbv"), "captions"),
    **dict.fromkeys(("txt", "text", "log"), "text"),
    **dict.fromkeys(("tf", "hcl", "tfvars"), "hcl"),
    **dict.fromkeys(("php", "phtml"), "php"),
    **dict.fromkeys(("rb", "rake", "gemspec"), "ruby"),
    **dict.fromkeys(("kt", "kts"), "kotlin"),
    **dict.fromkeys(("ex", "exs"), "elixir"),
    **dict.fromkeys(("pyx", "pxd", "pxi"), "cython"),
    **dict.fromkeys(("pl", "pm"), "perl"),
    **dict.fromkeys(("ml", "mli"), "ocaml"),
    **dict.fromkeys(("css", "scss", "sass", "less"), "css"),
    **dict.fromkeys(("xml", "xsd", "xsl", "svg", "plist"), "xml"),
    **dict.fromkeys(("adoc", "asciidoc"), "asciidoc"),
    **dict.fromkeys(("ps1", "psm1"), "powershell"),
    **dict.fromkeys(("csv", "tsv"), "csv"),
    **dict.fromkeys(("proto", "toml", "sql", "go", "java", "scala", "swift", "lua", "dart", "zig", "nix"), ""),
    **dict.fromkeys(("graphql", "vue", "svelte", "tex", "org", "diff", "cmake", "gradle", "groovy", "r", "jl"), ""),
    "rs": "rust",
    "cs": "csharp",
    "hs": "haskell",
    "clj": "clojure",
    "erl": "erlang",
    "vb": "visualbasic",
    "mk": "make",
    "patch": "diff",
}
_BY_NAME = {
    # Of Python packages: fields, then a description, which is Markdown or close to it.
    "metadata": "markdown",
    "pkg-info": "markdown",
    "makefile": "make",
    "gnumakefile": "make",
    "dockerfile": "dockerfile",
    "containerfile": "dockerfile",
    "cmakelists.txt": "cmake",
    "jenkinsfile": "groovy",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "sconstruct": "python",
    "sconscript": "python",
    "wscript": "python",
    "go.mod": "gomod",
    ".gitignore": "ignore",
    ".dockerignore": "ignore",
    ".helmignore": "ignore",
}
_INTERPRETERS = {
    "python": "python",
    "pypy": "python",
    "sh": "shell",
    "bash": "shell",
    "zsh": "shell",
    "node": "javascript",
    "ruby": "ruby",
    "perl": "perl",
}


def language_of(path: str, text: str = "") -> str:
    """Name the language of a file; "text" where neither its name nor its beginning tells.

    A header of C that only C++ can read is C++.
    """
    name = path.rpartition("/")[2].lower()
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.startswith(("dockerfile.", "makefile.")):
        return _BY_NAME[name.partition(".")[0]]
    stem, _, suffix = name.rpartition(".")
    if suffix == "txt" and stem and _is_rst(text):
        return "rst"
    if suffix in _BY_SUFFIX and (stem or name.startswith(".")):
        if suffix == "h" and _CPP_HEADER.search(text):
            return "cpp"
        return _BY_SUFFIX[suffix] or suffix
    if text.startswith("#!"):
        interpreter = text[2:200].partition("\n")[0].strip()
        words = interpreter.split()
        if words and words[0].endswith("/env"):
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if words:
            program = words[0].rpartition("/")[2].rstrip("0123456789.")
            return _INTERPRETERS.get(program, "text")
    return "text"


def _is_rst(text: str) -> bool:
    """Whether a text is written in reStructuredText, as the documents of Django and many a README.txt are."""
    head = text[:_HEAD_CHARACTERS]
    return _RST_MARKUP.search(head) is not None and _RST_TITLE.search(head) is not None


def has_known_suffix(path: str) -> bool:
    """Whether a name ends like that of a file: ``app.py`` does, ``requests.sessions`` does not."""
    return path.rpartition(".")[2].lower() in _BY_SUFFIX
