"""Finds translations that look wrong, and replaces them by a second search."""
