"""A release, but the upload: what must agree, what is built, how it is tried (docs/developers/release.md)."""
