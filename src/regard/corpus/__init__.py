"""The built-in corpus: endless English sentences and their German translations, made from a seed.

One grammar makes both languages at once, and nothing is downloaded. An example is an English
sentence with its tree, its only German translation, and the dependencies between distant words. The
grammar records these dependencies; attention has to find them. In this list, a module uses only
modules before it:

    wordlist, morphology -> lexicon, derivation -> phrases -> tenses -> complements -> predicates
    -> clauses -> sentences -> corpus

The English sentence determines the German one. Where German allows a choice, a fixed rule decides:

- The verb is second in main clauses, and last in subordinate ones. After an adverbial or a clause
  that comes first, the subject follows the verb.
- The words between the two parts of the verb come in this order: the subject, pronouns (accusative
  first), time or frequency, dative, accusative, `nicht`, manner, place. If a negated verb has an
  indefinite object, the object takes `kein`, and there is no `nicht`.
- A relative clause about the subject follows the subject; a relative clause about the object
  follows the clause.
- The simple past becomes the preterite, and the present perfect the perfect; `when` is `wenn` in
  the present and `als` in the past. Preposition and article contract where they can: im, zum.
- `it` refers to the subject of the previous clause or, if that subject is a person, to the object
  of the previous clause. In the subject of a second clause, `its` refers to the noun that `it`
  would refer to; elsewhere, `its` refers to the subject of the clause that contains it. The choice
  between er, sie, es, ihn, ihm, sein and ihr thus depends on the gender of a noun, the antecedent,
  which stands 6 words earlier on average. For 31 % of these pronouns, a noun of another gender, or
  in the plural, stands between antecedent and pronoun.
- `make` becomes `machen` if `more` and an adjective follow its object, and `herstellen` if not:
  `makes the old box of the king more beautiful` is `macht die alte Kiste des Königs schöner`. The
  adjective that decides this stands 6 words after the verb on average, and 14 at most.

In 20,000 examples of seed 1, English sentences have 11.9 words on average and 31 at most. 48 % of
the sentences have a pronoun for `it` or `its`, 14 % a separated verb, and 4 % `make` with `more`.
None (0.0 %) of the English sentences in 2,000 examples of seed 2 is among these 20,000.
"""

from regard.corpus.corpus import (
    Comparative,
    Example,
    Pronoun,
    Separable,
    example,
    examples,
    pronoun_accuracy,
    write_corpus,
    write_treebank,
)

__all__ = [
    "Comparative",
    "Example",
    "Pronoun",
    "Separable",
    "example",
    "examples",
    "pronoun_accuracy",
    "write_corpus",
    "write_treebank",
]
