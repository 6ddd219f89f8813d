"""Corpora of any size, the same for the same number: Python modules of six definitions, and now and then a README.

Words are made up and as uneven as those of real code (Zipf), so that an index of N files has a vocabulary that grows
with N. Every definition holds a number of its own: no two chunks are equal, and nothing is saved by what repeats.
"""

# ruff: noqa: SIM905 - word lists are for reading

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

FOLDER_FILES = 50
_FOLDERS_PER_AREA = 40
_MARKDOWN_EVERY = 20
_NOUNS = 12_000

_VERBS = (
    "add apply build check clear close collect convert count create decode drop encode expand fetch filter find flush"
    " format get group index join list load lock make map mark match merge move normalize open pack parse pick prepare"
    " put read rebuild reduce register release remove render replace reset resolve save scan schedule select send set"
    " sort split start stop store sum swap sync take trim unpack update validate verify wait walk watch write"
).split()
_GLUE = (
    "the a of in to for with from and or when that is are not before after each all only once by which as if then its"
    " this one two more than without between until while"
).split()
_TYPES = "int str float bool bytes list[str] list[int] dict[str,int] tuple[int,...] object".split()
_SYLLABLES = [
    first + second
    for first in "b br c ch d dr f g gl h j k l m n p pr qu r s sh st t tr v w z".split()
    for second in "a ai e ea i o ou u".split()
]


def write_corpus(root: Path, files: int) -> list[Path]:
    """Write ``files`` files below ``root``, about 50 to a folder, and return the Python modules among them."""
    words = _Words()
    modules = []
    for number in range(files):
        folder = _folder(root, number // FOLDER_FILES)
        if number % FOLDER_FILES == 0:
            folder.mkdir(parents=True)
            for parent in (folder, folder.parent):
                # The area is a package too; its own file does not count among the files, and is empty.
                if not (parent / "__init__.py").exists():
                    (parent / "__init__.py").write_text("")
            path, text = folder / "__init__.py", f'"""{words.sentence(number, 0)}"""\n'
        elif number % _MARKDOWN_EVERY == 1:
            path, text = folder / f"notes_{number}.md", "\n".join(_markdown(words, number))
        else:
            path = folder / f"{words.noun(number, 0)}_{number}.py"
            text = "\n".join(_module(words, number, files))
            modules.append(path)
        path.write_text(text)
    return modules


def change(module: Path, word: str) -> None:
    """Give the first function of a module another body that holds ``word``."""
    before, mark, after = module.read_text().partition("    state = ")
    line, newline, rest = after.partition("\n")
    module.write_text(f'{before}{mark}{line.partition(" or ")[0]} or "{word}"{newline}{rest}')


class _Words:
    """Words by a number and a place, so that no file's words depend on those of another."""

    def __init__(self) -> None:
        source = random.Random(20)
        made = ("".join(source.choices(_SYLLABLES, k=source.choice((2, 2, 3, 3, 4)))) for _ in itertools.count())
        self._nouns = list(itertools.islice(dict.fromkeys(itertools.islice(made, 3 * _NOUNS)), _NOUNS))
        self._weights = list(itertools.accumulate(1 / (rank + 2) for rank in range(_NOUNS)))

    def source(self, number: int, place: int) -> random.Random:
        return random.Random(number * 1_000 + place)

    def noun(self, number: int, place: int) -> str:
        return self.nouns(self.source(number, place), 1)[0]

    def nouns(self, source: random.Random, count: int) -> list[str]:
        return source.choices(self._nouns, cum_weights=self._weights, k=count)

    def name(self, source: random.Random) -> str:
        return "_".join((source.choice(_VERBS), *self.nouns(source, 2)))

    def sentence(self, number: int, place: int) -> str:
        source = self.source(number, 500 + place)
        words = [source.choice(_VERBS).capitalize()]
        for noun in self.nouns(source, source.randint(5, 8)):
            words += [source.choice(_GLUE), noun] if source.random() < 0.6 else [source.choice(_GLUE)]
        return f"{' '.join(words)}."


def _folder(root: Path, number: int) -> Path:
    return root / f"area_{number // _FOLDERS_PER_AREA:02d}" / f"part_{number:04d}"


def _module(words: _Words, number: int, files: int) -> Iterator[str]:
    """Yield the lines of a module: a class of three methods, and three functions, which call each other."""
    source = words.source(number, 1)
    other = source.randrange(files)
    other -= other % FOLDER_FILES
    area, part = _folder(Path(), other // FOLDER_FILES).parts
    kind = "".join(noun.capitalize() for noun in words.nouns(source, 2))
    names = [words.name(source) for _ in range(6)]
    yield f'"""{words.sentence(number, 1)}"""\n\nfrom __future__ import annotations\n'
    yield f"import {source.choice(('json', 'logging', 'math', 'os', 're', 'time'))}"
    yield f"from {area} import {part}\n\nLIMIT = {number}\n\n"
    yield f'class {kind}:\n    """{words.sentence(number, 2)}"""\n'
    for place in range(3):
        one, two, three = words.nouns(source, 3)
        yield f"    def {names[place]}(self, {one}: {source.choice(_TYPES)}) -> None:"
        yield f'        """{words.sentence(number, 3 + place)}"""'
        yield f"        self.{two} = {number * 10 + place}"
        yield f"        if {one}:\n            self.{three} = {names[3 + place]}({one}, self.{two})\n"
    for place in range(3, 6):
        one, two, three = words.nouns(source, 3)
        yield f"\ndef {names[place]}({one}: {source.choice(_TYPES)}, {two}: int = {number * 10 + place}) -> object:"
        yield f'    """{words.sentence(number, 3 + place)}\n\n    {words.sentence(number, 20 + place)}\n    """'
        yield f"    state = {part}.{names[place - 1]}({one})"
        yield f'    for {three} in range({two}):\n        state = {kind}().{names[place - 3]}({three}) or "{one} {two}"'
        yield "    return state\n"


def _markdown(words: _Words, number: int) -> Iterator[str]:
    source = words.source(number, 1)
    yield f"# {' '.join(words.nouns(source, 3)).capitalize()} {number}\n"
    for section in range(4):
        yield f"## {words.name(source).replace('_', ' ').capitalize()}\n"
        for paragraph in range(2):
            sentences = (words.sentence(number, 10 * section + 3 * paragraph + n) for n in range(3))
            yield f"{' '.join(sentences)} See `{words.name(source)}`.\n"
