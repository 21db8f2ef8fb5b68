"""Finds translations that look wrong, and searches a second time for better ones."""
