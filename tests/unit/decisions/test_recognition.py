"""What is a decision record, and what only lies beside them."""

from __future__ import annotations

import pytest

from services.decisions.mining import mine

NYGARD = "# Use X\n\n## Status\n\nAccepted\n\n## Context\n\nc\n\n## Decision\n\nd\n\n## Consequences\n\ne\n"
MADR = "# Use X\n\n## Context and Problem Statement\n\nc\n\n## Considered Options\n\n* a\n\n## Decision Outcome\n\nd\n"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/adr/0001-nearly-empty.md", "# 1. Nearly empty\n"),
        ("docs/decisions/0001-x.rst", "1. X\n====\n\nContext\n-------\n"),
        ("docs/adr/0039-use-velocity-as-template-engine.md", "# Use Velocity as template engine\n"),
        ("docs/adr/0012-licence.md", "# Use a licence\n"),
        ("architecture/adr-101-x.md", "# ADR 101: X\n"),
        ("records/ODH-ADR-Operator-0012-x.md", "# X\n"),
        ("architecture-decision-record/025-Domain-names.md", "# 25 Domain names\n"),
        ("docs/adr/0003-use-x/README.md", NYGARD),
        ("docs/adr/use-x/index.md", NYGARD),
        ("docs/adr/Some Weird_name.md", NYGARD),
        ("notes/why-x.md", NYGARD),
        ("notes/why-x.md", MADR),
        ("docs/adr/0036-empty.md", "# ADR 36: Empty Blocks\n\n## Status\n\n{Deprecated|Proposed|Accepted}\n"),
    ],
)
def test_records_are_recognised(path: str, text: str) -> None:
    assert mine(path, text) is not None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/adr/README.md", NYGARD),
        ("docs/adr/index.rst", "ADRs\n====\n\n.. toctree::\n\n   0001-x\n"),
        ("docs/adr/0000-TEMPLATE.md", NYGARD),
        ("docs/adr/adr-template.md", NYGARD),
        ("docs/adr/adr.template.md", NYGARD),
        ("docs/adr/ODH-ADR-0000-template.md", NYGARD),
        ("docs/adr/templates/0001-x.md", NYGARD),
        ("docs/adr/0000-new.md", MADR.replace("Use X", "{short title, representative of solved problem}")),
        ("docs/adr/0000-new.md", MADR.replace("Use X", "[short title of solved problem and solution]")),
        ("docs/adr/0000-new.md", NYGARD.replace("Use X", "ADR-NNN: [Short Decision Title]")),
        ("docs/adr/0000-new.md", NYGARD.replace("Use X", "ADR {ADR-NUMBER}: {TITLE}")),
        ("docs/adr/0000-new.md", NYGARD.replace("Use X", "NUMBER. TITLE")),
        ("docs/adr/writing-guide.md", "# How to write\n\n## Numbering\n\nUse the next one.\n"),
        ("docs/01-introduction.md", "# 1. Introduction\n\nA decision was made.\n"),
        ("README.md", MADR),
        ("CHANGELOG.md", "# Changelog\n\n## 2.0\n\n### Decisions\n\n- x\n"),
        ("docs/meeting.md", "# Meeting\n\n## Decisions\n\n- lunch\n"),
        ("docs/guide.md", "# Guide\n\nStatus: accepted\n\nA decision.\n"),
        ("docs/adr/0001-x.md", ""),
        ("docs/adr/0001-x.md", " \n\n"),
    ],
)
def test_templates_indexes_and_guides_are_not(path: str, text: str) -> None:
    assert mine(path, text) is None
