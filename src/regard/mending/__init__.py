"""Translations that look wrong: how they are found, and searched for again."""
