"""The documentation as a site: `python -m tools.site FOLDER` writes it as files, without network (docs/developers/release.md)."""
