"""Matches a query in the command palette with a name and its sentence.

Textual's own matcher accepts single letters anywhere in a text, so nearly every long title fits nearly every word.
"""

import re
from dataclasses import dataclass

_WORDS = re.compile(r"[a-z0-9]+")
_ALL, _WHOLE, _START, _WORD, _INSIDE, _SPREAD = 1.0, 0.95, 0.9, 0.8, 0.6, 0.4
"""Scores for: the whole name, one of its words, its beginning, a word's beginning, part of a word, letters in order."""
_SENTENCE = 0.6
"""Factor on the score of a match in the sentence instead of the name."""
_SPAN = 3.0
"""Maximum length of the part of a name that contains the letters in order, as a multiple of their number."""


@dataclass(frozen=True)
class NameFit:
    """How well a query fits; 0 is not at all."""

    score: float
    in_name: bool
    """Whether every word of the query is found in the name."""


def fit(query: str, name: str, sentence: str = "") -> NameFit:
    """Scores a query between 0 and 1. Every word of it must be found in the name or the sentence.

    Words of a sentence count only from their beginning, and letters that are spread over a name only from a word's beginning.
    """
    asked = query.lower().split()
    if not asked:
        return NameFit(0.0, False)
    name, sentence = name.lower(), sentence.lower()
    if (whole := _in_name(" ".join(asked), name)) >= _INSIDE:
        return NameFit(whole, True)
    in_name = [_in_name(word, name) for word in asked]
    found = [max(own, _in_sentence(word, sentence)) for word, own in zip(asked, in_name, strict=True)]
    if not all(found):
        return NameFit(0.0, False)
    return NameFit(sum(found) / len(found) * 0.95, all(in_name))  # less than for the same words in one piece


def _in_name(asked: str, name: str) -> float:
    if asked == name:
        return _ALL
    if asked in name.split():
        return _WHOLE
    if name.startswith(asked):
        return _START
    begins = [match.start() for match in _WORDS.finditer(name)]
    if any(name.startswith(asked, at) for at in begins):
        return _WORD
    if asked in name:
        return _INSIDE if len(asked) > 1 else 0.0
    return _SPREAD if len(asked) > 1 and any(_spread(asked, name, at) for at in begins) else 0.0


def _in_sentence(asked: str, sentence: str) -> float:
    begins = [match.start() for match in _WORDS.finditer(sentence)]
    return _SENTENCE * _WORD if any(sentence.startswith(asked, at) for at in begins) else 0.0


def _spread(asked: str, name: str, at: int) -> bool:
    """Whether the letters follow each other from `at` on, not too far apart."""
    end = at - 1
    for letter in asked:
        end = name.find(letter, end + 1)
        if end < 0:
            return False
    return name[at] == asked[0] and end + 1 - at <= _SPAN * len(asked)
