"""One verdict on a kernel or a program that somebody else wrote: it runs in a child process, within limits."""
