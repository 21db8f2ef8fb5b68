"""Tests of the tables; a package, since other folders have modules of the same names."""
