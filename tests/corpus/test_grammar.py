"""The stream of the built-in corpus: its examples, their dependencies and their scores."""

import os
import random
import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.corpus import (
    Example,
    example,
    examples,
    pronoun_accuracy,
    write_corpus,
    write_treebank,
)
from regard.corpus.lexicon import COMPARATIVES, NOUNS, VERBS
from regard.corpus.sentences import _FORMS, _OFTEN
from regard.errors import DataError

TRAIN, TEST = 20_000, 2_000
CASES = ("nominative", "accusative", "dative", "genitive")
BY_ENGLISH = {noun.english: noun for noun in NOUNS}


@pytest.fixture(scope="module")
def corpus(stream: list[Example]) -> list[Example]:
    return stream[:TRAIN]


def test_separated_verbs(corpus: list[Example]):
    english = {v.german.infinitive: v.english for verbs in VERBS.values() for v in verbs}
    found = 0
    for one in corpus:
        for verb in one.separable:
            particle = one.target_tokens[verb.target_particle]
            assert verb.infinitive.startswith(particle)
            assert verb.target_index < verb.target_particle
            # The particle closes its clause.
            assert one.target_tokens[verb.target_particle + 1] in (",", ".", "und"), one
            forms = english[verb.infinitive]
            said = one.source_tokens[verb.source_index]
            assert said in (forms.base, forms.third, forms.past), one
            found += 1
    assert found > 1500


def test_make_and_what_follows_more(corpus: list[Example]):
    german = {
        adjective.english: adjective.german
        for adjectives in COMPARATIVES.values()
        for adjective in adjectives
    }
    made = ("macht", "mache", "machen", "machte", "machten", "gemacht")
    distances = []
    for one in corpus:
        for link in one.comparatives:
            assert one.source_tokens[link.source_index] in ("make", "makes", "made"), one
            assert one.source_tokens[link.source_adjective - 1] == "more", one
            adjective = one.source_tokens[link.source_adjective]
            assert one.target_tokens[link.target_adjective] == german[adjective], one
            assert one.target_tokens[link.target_index] in made, one
            distances.append(link.source_adjective - link.source_index)
        assert one.source_tokens.count("more") == len(one.comparatives)
    assert len(distances) > 600
    assert min(distances) >= 4 and sum(distances) / len(distances) > 5


def test_the_adjective_alone_tells_machen_from_herstellen(corpus: list[Example]):
    """So a translator has to look from `make` past its object, which may be the same."""
    objects: dict[bool, set[str]] = {True: set(), False: set()}
    for one in corpus:
        if found := re.search(r"^.*?\bma[kd]es? (?:the|this|my) (\w+)( more\b|\.$)", one.source):
            more = found[2] != "."
            produced = re.search(r"her(ge)?stell|stell\w* [^,]* her\b", one.target)
            assert bool(produced) != more, one
            objects[more].add(found[1])
    assert len(objects[True] & objects[False]) > 5


def test_other_sentences_are_those_of_a_grammar_without_make():
    """One sentence in 20 is drawn anew; the forms of all others follow from the same number."""
    forms = Counter(form.__name__ for form in _OFTEN)
    assert forms.pop("_made") * 20 == len(_OFTEN)
    assert [form for form in _OFTEN if form.__name__ != "_made"][::19] == list(_FORMS)
    rolls = [random.Random(f"1/{i}").random() for i in range(2000)]
    for roll in rolls:
        form = _OFTEN[int(roll * len(_OFTEN))]
        assert form.__name__ == "_made" or form is _FORMS[int(roll * len(_FORMS))]


def test_pronouns_point_at_their_antecedents(corpus: list[Example]):
    genders = {noun.english: noun.gender for noun in NOUNS}
    forms = {
        "masculine": r"(er|ihn|ihm|sein\w*)$",
        "feminine": r"(sie|ihr\w*)$",
        "neuter": r"(es|ihm|sein\w*)$",
    }
    for one in corpus:
        for link in one.pronouns:
            assert one.source_tokens[link.source_index].lower() in ("it", "its")
            assert genders[one.source_tokens[link.source_antecedent].lower()] == link.gender
            noun = BY_ENGLISH[one.source_tokens[link.source_antecedent].lower()]
            assert one.target_tokens[link.target_antecedent] in {noun.form(c, False) for c in CASES}
            assert re.match(forms[link.gender], one.target_tokens[link.target_index], re.I), one
            assert link.source_antecedent < link.source_index


def test_every_it_has_an_antecedent(corpus: list[Example]):
    for one in corpus:
        said = [i for i, word in enumerate(one.source_tokens) if word.lower() in ("it", "its")]
        assert sorted(link.source_index for link in one.pronouns) == said, one.source


def test_it_means_the_subject_before_or_the_object_of_a_person(corpus: list[Example]):
    """Sentences that begin with `The N` show it by their first noun alone."""
    persons = {noun.english for noun in NOUNS if noun.kind in ("male", "female", "child")}
    checked = 0
    for one in corpus:
        found = re.match(r"(?:The|This|Every|A) (\w+) [^,]*\b(?:because|although) it\b", one.source)
        if found and found[1] in BY_ENGLISH:
            first = one.pronouns[-1].source_antecedent
            assert (first > 1) == (found[1] in persons), one.source
            checked += 1
    assert checked > 300


TAGS = {
    *(
        "CC",
        "CD",
        "DT",
        "IN",
        "JJ",
        "MD",
        "NN",
        "NNP",
        "NNS",
        "PRP",
        "PRP$",
        "RB",
        "RBR",
        "RP",
        "TO",
        "VB",
    ),
    *("VBD", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB", ",", "."),
}
LABELS = {"S", "NP", "VP", "PP", "SBAR", "ADJP", "ADVP", "PRT", "QP", "WHNP", "WHPP", "WHADVP"}


def leaves(tree: str) -> list[tuple[str, str]]:
    """The tag and word of every leaf; fails if brackets are not well formed or labels unknown."""
    depth, found, position = 0, [], 0
    for token in re.finditer(r"\((\S+) ([^()\s]+)\)|\((\S+) |\)| ", tree):
        assert token.start() == position
        position = token.end()
        if token[1]:
            assert token[1] in TAGS and depth > 0
            found.append((token[1], token[2]))
        elif token[3]:
            assert token[3] in LABELS, tree
            depth += 1
        elif token[0] == ")":
            depth -= 1
            assert depth > 0 or token.end() == len(tree)
    assert position == len(tree) and depth == 0
    return found


def test_trees_are_well_formed_and_their_leaves_are_the_tokens(corpus: list[Example]):
    for one in corpus:
        assert one.tree.startswith("(S ")
        assert tuple(word for _, word in leaves(one.tree)) == one.source_tokens


def test_texts_are_the_tokens_written_as_people_write(corpus: list[Example]):
    for one in corpus:
        for written, tokens in ((one.source, one.source_tokens), (one.target, one.target_tokens)):
            assert re.findall(r"[\w-]+|[,.]", written) == list(tokens)
            assert (
                re.match("[A-ZÄÖÜ0-9]", written)
                and written.endswith(".")
                and written.count(".") == 1
            )
            assert not re.search(r" [,.]|,[,.]|, ,|  ", written)


def test_an_index_gives_the_same_example_in_any_order_and_process():
    there = [example(7, i) for i in (5, 3, 1000003)]
    assert [example(7, i) for i in (1000003, 3, 5)] == there[::-1]
    assert next(examples(7, start=5)) == there[0]
    code = "from regard.corpus import example; print([example(7, i) for i in (5, 3, 1000003)])"
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True, encoding="utf-8", check=True,
        )  # fmt: skip
        assert run.stdout.strip() == str(there)


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**63 - 1), index=st.integers(0, 10**12))
def test_any_place_of_any_stream_holds_a_sentence(seed: int, index: int):
    one = example(seed, index)
    assert 2 <= len(one.source_tokens) <= 40
    assert tuple(word for _, word in leaves(one.tree)) == one.source_tokens


def test_an_english_sentence_has_one_translation_and_one_tree(corpus: list[Example]):
    known: dict[str, tuple[str, str]] = {}
    for one in corpus:
        assert known.setdefault(one.source, (one.target, one.tree)) == (one.target, one.tree)


def test_unseen_sentences_are_unseen(corpus: list[Example]):
    training = {one.source for one in corpus}
    unseen = [example(2, i).source for i in range(TEST)]
    assert sum(source in training for source in unseen) / TEST < 0.002


def test_lengths(corpus: list[Example]):
    words = [sum(token.isalnum() or "-" in token for token in e.source_tokens) for e in corpus]
    assert 9 < sum(words) / TRAIN < 14
    assert max(words) <= 35


@pytest.mark.parametrize(
    ("phenomenon", "pattern", "least"),
    [
        ("subordinate clause", r"\(SBAR ", 0.4),
        ("relative clause", r"\(WH(NP|PP) ", 0.08),
        ("possessive relative", r"\(WP\$ ", 0.008),
        ("relative in a preposition", r"\(WHPP ", 0.002),
        ("coordinated clauses", r"\(S \(S ", 0.08),
        ("two verbs", r"\) \(CC and\) \(VP ", 0.06),
        ("two noun phrases", r"\) \(CC and\) \(NP ", 0.02),
        ("modal", r"\(MD ", 0.08),
        ("want and have to", r"\(TO to\) \(VP", 0.02),
        ("perfect", r"\(VB[PZ] ha(s|ve)\) (\(RB not\) )?(\(ADVP \S+ \S+\)\) )?\(VP \(VBN", 0.04),
        ("passive", r"\((VBD w\w+|VB be)\) (\(RB not\) )?\(VP \(VBN", 0.04),
        ("negation", r"\(RB not\)", 0.08),
        ("numeral", r"\(CD ", 0.04),
        ("preposition", r"\(PP ", 0.3),
        ("two adjectives", r"\(JJ \w+\) \(JJ", 0.08),
        ("comparative", r"\(ADJP \(RBR more\) \(JJ \w+\)\)\)", 0.03),
        ("fronted time", r"^\(S \(\w+ \(\w+ (Yesterday|Today|Last|Now|On|In)\)", 0.06),
    ],
)  # fmt: skip
def test_every_phenomenon_is_frequent(corpus: list[Example], phenomenon, pattern, least):
    assert sum(bool(re.search(pattern, e.tree)) for e in corpus) / TRAIN > least, phenomenon


def test_half_of_the_sentences_need_a_gender_and_all_genders_are_needed(corpus: list[Example]):
    assert 0.4 < sum(bool(e.pronouns) for e in corpus) / TRAIN < 0.6
    assert sum(bool(e.separable) for e in corpus) / TRAIN > 0.1
    genders = Counter(link.gender for e in corpus for link in e.pronouns)
    assert min(genders.values()) / sum(genders.values()) > 0.25
    assert max(genders.values()) / sum(genders.values()) < 0.45


def test_every_word_is_frequent_enough_to_be_learned(corpus: list[Example]):
    counts = Counter(token.lower() for e in corpus for token in e.source_tokens)
    for noun in NOUNS:
        assert counts[noun.english] + counts[noun.english_plural] >= 60, noun
    for verb in (v.english for verbs in VERBS.values() for v in verbs):
        forms = {verb.base, verb.third, verb.past, verb.participle}
        assert sum(counts[form] for form in forms) >= 60, verb


def wrong(one: Example) -> str:
    """The reference with every gendered pronoun in another gender."""
    other = {"er": "sie", "ihn": "sie", "es": "er", "sie": "es", "ihm": "ihr", "ihr": "ihm"}
    tokens = list(one.target_tokens)
    for link in one.pronouns:
        word = tokens[link.target_index].lower()
        is_its = one.source_tokens[link.source_index].lower() == "its"
        swapped = (
            {"s": "ihr" + word[4:], "i": "sein" + word[3:]}[word[0]] if is_its else other[word]
        )
        tokens[link.target_index] = swapped
    return " ".join(tokens)


def missing(one: Example) -> str:
    dropped = {link.target_index for link in one.pronouns}
    return " ".join(t for i, t in enumerate(one.target_tokens) if i not in dropped)


def test_pronoun_accuracy_is_one_for_the_reference_and_none_for_the_wrong_genders(corpus):
    some = corpus[:1000]
    assert pronoun_accuracy(some, [e.target for e in some]) == 1
    assert pronoun_accuracy(some, [e.target.upper() for e in some]) == 1
    assert pronoun_accuracy(some, [wrong(e) for e in some]) == 0
    assert pronoun_accuracy(some, [""] * len(some)) == 0


def test_a_missing_pronoun_is_wrong(corpus: list[Example]):
    others = re.compile(r"\b(he|she|they|him|her|them|his|their)\b", re.I)
    single = [e for e in corpus if len(e.pronouns) == 1 and not others.search(e.source)][:200]
    assert pronoun_accuracy(single, [missing(e) for e in single]) == 0


def test_half_of_the_pronouns_right_is_a_half(corpus: list[Example]):
    some = [e for e in corpus if len(e.pronouns) == 1][:100]
    mixed = [e.target if i % 2 else wrong(e) for i, e in enumerate(some)]
    assert pronoun_accuracy(some, mixed) == 0.5


@pytest.mark.parametrize(
    ("stem", "forms"),
    [
        ("sein", {"er": "es", "sie": "es", "ihn": "es", "ihr": "ihm"}),
        ("ihr", {"er": "sie", "es": "sie", "ihn": "sie", "ihm": "ihr"}),
    ],
)
def test_one_gender_for_all_is_far_from_enough(corpus: list[Example], stem: str, forms):
    guesses = []
    for one in corpus[:4000]:
        tokens = [token.lower() for token in one.target_tokens]
        for link in one.pronouns:
            word = tokens[link.target_index]
            is_its = one.source_tokens[link.source_index].lower() == "its"
            ending = re.sub("^(ihr|sein)", "", word)
            tokens[link.target_index] = stem + ending if is_its else forms.get(word, word)
        guesses.append(" ".join(tokens))
    assert 0.25 < pronoun_accuracy(corpus[:4000], guesses) < 0.5


def test_pronoun_accuracy_refuses_what_it_cannot_judge(corpus: list[Example]):
    without = [e for e in corpus if not e.pronouns][:3]
    with pytest.raises(DataError, match="2 translations for 3 examples"):
        pronoun_accuracy(without, ["", ""])
    with pytest.raises(DataError, match="none of the 3 examples has a gendered pronoun"):
        pronoun_accuracy(without, ["", "", ""])


def test_there_is_nothing_before_the_beginning():
    with pytest.raises(DataError, match="begins at 0"):
        example(1, -1)


def test_a_corpus_on_disk_is_the_stream(tmp_path):
    write_corpus(tmp_path / "new" / "train", seed=11, sentences=13)
    there = [example(11, i) for i in range(13)]
    for suffix, expected in (("en", [e.source for e in there]), ("de", [e.target for e in there])):
        written = (tmp_path / "new" / f"train.{suffix}").read_text(encoding="utf-8")
        assert written == "".join(f"{line}\n" for line in expected)
    assert len(list((tmp_path / "new").iterdir())) == 2
    write_treebank(tmp_path / "trees" / "train.mrg", seed=11, trees=13)
    written = (tmp_path / "trees" / "train.mrg").read_text(encoding="utf-8")
    assert written == "".join(f"( {e.tree})\n" for e in there)


@pytest.mark.parametrize("count", [0, -1])
def test_a_corpus_without_sentences_is_refused(tmp_path, count):
    with pytest.raises(DataError, match="sentences is empty: ask for at least 1"):
        write_corpus(tmp_path / "new" / "train", 11, count)
    with pytest.raises(DataError, match="trees is empty: ask for at least 1"):
        write_treebank(tmp_path / "new" / "train.mrg", 11, count)
    assert not (tmp_path / "new").exists()
