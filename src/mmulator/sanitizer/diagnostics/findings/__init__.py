"""Findings from the entries that native code wrote: a file of sentences for each topic of base/rules/."""
