from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chunks import codes, outline, taken

TALK = """\
WEBVTT - a talk

NOTE who speaks

intro
00:01.000 --> 00:04.000 align:start
<v Ada>Good morning.

00:05.500 --> 00:09.000
<v Bob>- And to you,
- of course!

1:00:10.000 --> 1:00:12.000
Bye
"""


def test_cues_are_packed_and_titled_with_their_time() -> None:
    extraction = taken(TALK, "media/talk.vtt").extraction
    assert outline(extraction) == [("media > talk.vtt", 1, 3), ("talk.vtt > 00:00:01–01:00:12", 5, 14)]
    assert [chunk.key for chunk in extraction.chunks] == ["media/talk.vtt", "media/talk.vtt#00:00:01"]
    assert "<v Ada>Good morning." in extraction.chunks[1].text


def test_a_full_chunk_ends_behind_a_sentence() -> None:
    words = ["one two three four five", "and so on.", "next thing we know"]
    cues = [
        f"{n + 1}\r\n00:{n // 60:02}:{n % 60:02},000 --> 00:{n // 60:02}:{n % 60:02},900\r\n{words[n % 3]}\r\n\r\n"
        for n in range(90)
    ]
    extraction = taken("".join(cues), "talk.srt").extraction
    assert len(extraction.chunks) > 3
    assert all(chunk.text.endswith("and so on.") for chunk in extraction.chunks[:-1])
    starts = [chunk.title.partition(" > ")[2][:8] for chunk in extraction.chunks]
    assert starts == sorted(starts)
    assert starts[0] == "00:00:00"


def test_the_form_of_a_video_platform_is_read_too() -> None:
    extraction = taken("0:00:01.000,0:00:02.000\nHello\n\n0:01:01.000,0:01:02.000\nworld\n", "talk.sbv").extraction
    assert outline(extraction) == [("talk.sbv > 00:00:01–00:01:02", 1, 5)]


@pytest.mark.parametrize("text", ["", "WEBVTT\n", "just words\n", "1\n00:00 -> 00:01\n"])
def test_captions_without_a_cue_are_text_and_say_so(text: str) -> None:
    assert codes(taken(text, "a.vtt").extraction) == ["not_parsed"]


def test_one_cue_over_the_budget_is_split() -> None:
    extraction = taken("00:01.000 --> 00:02.000\n" + "word " * 800 + "\n", "a.vtt").extraction
    assert [title for title, _, _ in outline(extraction)][:2] == [
        "a.vtt > 00:00:01–00:00:02 (part 1)",
        "a.vtt > 00:00:01–00:00:02 (part 2)",
    ]


_LINES = st.sampled_from(
    [
        *(
            "1\n",
            "00:01.000 --> 00:02.000\n",
            "00:00:01,000 --> 00:00:02,000\n",
            "0:0:1.0,0:00:02.0\n",
            "\n",
            "word.\n",
        ),
        *(
            "NOTE x\n",
            "<v A>b\n",
            "word " * 90 + "\n",
            "WEBVTT\n",
            "99999:99:99 --> 1:1\n",
            " --> \n",
            "12345:00:00 --> 00:00\n",
        ),
    ]
)


@settings(deadline=None)
@given(st.lists(_LINES, max_size=25).map("".join), st.sampled_from([32, 254]))
def test_any_lines_are_covered_once_within_the_budget(text: str, tokens: int) -> None:
    taken(text, "a.vtt", tokens=tokens)
