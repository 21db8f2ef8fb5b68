"""Put back a quotation mark that is left out of one tree but not of the other.

EVALB leaves words out by their tags, and the trees may tag a mark differently. QUOTE_LABEL, a key
of parameter files such as EVALB's new.prm, lists the tags of the marks that may be put back.
"""

from regard.score.evalb.parameters import EvalbParameters
from regard.score.evalb.reading import EvalbSentence


def put_back(gold: EvalbSentence, test: EvalbSentence, parameters: EvalbParameters) -> None:
    """Put a deleted quotation mark back if the other sentence keeps a mark at the same place."""
    deleted = parameters.deleted
    for number, mark in enumerate(test.quotes):
        place = mark.place  # EVALB, too, uses the position before `_insert` moves the mark
        for other_number, other in enumerate(gold.quotes):
            if other.place != place or other.tag == mark.tag:
                continue
            if other.tag in deleted and mark.tag not in deleted:
                _insert(gold, other_number)
            elif mark.tag in deleted and other.tag not in deleted:
                _insert(test, number)


def _insert(sentence: EvalbSentence, number: int) -> None:
    mark = sentence.quotes[number]
    sentence.words.insert(mark.place, mark.word)
    sentence.tags.insert(mark.place, mark.tag)
    for bracket in range(mark.brackets, len(sentence.starts)):
        sentence.starts[bracket] += 1
        sentence.ends[bracket] += 1
    for bracket in mark.around:
        sentence.ends[bracket] += 1
    for moved in sentence.quotes[number:]:
        moved.place += 1
