"""Profiles of launches: sectors, bank conflicts and lanes of each line, as data, text and page."""
