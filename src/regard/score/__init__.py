"""Scores (§6.1): BLEU and its kin, which compare a translation with references."""
