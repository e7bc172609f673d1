"""What is done later: copies, tensor copies, mbarriers, the queue of what is pending, who waits."""
