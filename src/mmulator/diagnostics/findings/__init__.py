"""What native code wrote down, as findings: entries to sentences, a file a topic of rules/."""
