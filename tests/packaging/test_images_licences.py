"""A licence is declared where it is one that SPDX names, and never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.images.licences import debian_expression, debian_licences, spdx_expression


@pytest.mark.parametrize(
    ("stated", "expression"),
    [
        ("MIT", "MIT"),
        ("apache-2.0", "Apache-2.0"),
        ("BSD-3-Clause AND MIT", "BSD-3-Clause AND MIT"),
        ("Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception"),
        ("MIT License", ""),
        ("MIT/Apache-2.0", ""),
        ("BSD-3-Clause, Apache-2.0, dependency licenses", ""),
        ("", ""),
    ],
)
def test_only_a_valid_expression_is_one(stated: str, expression: str) -> None:
    assert spdx_expression(stated) == expression


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(["MIT", "AND", "OR", "WITH", "(", ")"])).map(" ".join)))
def test_no_text_is_too_odd_and_an_expression_stays_one(text: str) -> None:
    expression = spdx_expression(text)
    assert spdx_expression(expression) == expression


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (("Expat",), "MIT"),
        (("GPL-2+", "LGPL-2.1"), "GPL-2.0-or-later AND LGPL-2.1-only"),
        (("Artistic or GPL-1+", "Zlib"), "(Artistic-1.0 OR GPL-1.0-or-later) AND Zlib"),
        (("GPL-2+ with Autoconf exception",), ""),
        (("Zlib", "public-domain"), ""),
        ((), ""),
    ],
)
def test_debian_s_names_are_declared_where_spdx_has_all_of_them(names: tuple[str, ...], expression: str) -> None:
    assert debian_expression(names) == expression


def test_only_a_machine_readable_copyright_file_is_read() -> None:
    stanzas = "Files: *\nCopyright: 2020 Somebody\nLicense: Expat\n text\n .\n License: not this one\n"
    assert debian_licences(f"Format: https://www.debian.org/doc/copyright-format/1.0/\n\n{stanzas}") == ("Expat",)
    assert debian_licences(f"This package was made by somebody.\n\n{stanzas}") == ()
