"""`mmulator explore`: layouts, descriptors, formats and sums in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from mmulator.cli.parser import Option
from mmulator.host.settings.readers import whole


def explore(
    port: Annotated[int, Option("0, the default, takes a free one.", "PORT", read=whole(0, 65535))] = 0,
    export: Annotated[Path | None, Option("Write the pages as files, which need no server, and stop.", "DIR")] = None,
    json: Annotated[bool, Option("Print the address, or what was written, as JSON.")] = False,
) -> None:
    """Show layouts, shared memory, tensor maps, sparse metadata, number formats and sums in a browser.

    The pages are served to this machine alone until Ctrl-C. They load nothing from elsewhere.

    Examples:
        mmulator explore
        mmulator explore --export site
    """
    if export is not None:
        _export(export, json)
        return
    from mmulator.base.errors import MmulatorError
    from mmulator.cli.output import print_json
    from mmulator.matrix.explore.server import Server

    try:
        server = Server(port)
    except OSError as error:
        raise MmulatorError(f"port {port} cannot be used: {error.strerror}", hint="--port 0 takes a free one") from None
    with server:
        try:
            if json:
                print_json("explore", {"ok": True, "url": server.url})
            else:
                print(f"{server.url}\nCtrl-C ends it")
            sys.stdout.flush()
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def _export(folder: Path, json: bool) -> None:
    from mmulator.base.errors import MmulatorError
    from mmulator.cli.output import print_json
    from mmulator.cli.progress import Progress
    from mmulator.matrix.explore.site import export

    try:
        with Progress(quiet=json) as progress:
            count, size = export(folder, progress.update)
    except OSError as error:
        raise MmulatorError(f"cannot write {error.filename}: {error.strerror}") from None
    if json:
        print_json("explore-export", {"ok": True, "folder": str(folder), "files": count, "bytes": size})
        return
    print(f"{folder / 'index.html'}: {count} files, {size / 1e6:.1f} MB; open it in a browser, or serve the folder")
