"""An extension for Visual Studio Code that says how this Python starts the adapter: the editor starts no other debugger without
one. It has no code of its own.

Visual Studio Code, "Debugger Extension"; the file is what `code --install-extension` takes.
"""

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr
from zipfile import ZIP_DEFLATED, ZipFile

from mmulator import __version__
from mmulator.base.files import replacing
from mmulator.observation.debug.dap.messages import TYPES, members

NAME = "mmulator-debug"
LANGUAGES = ("ptx", "python", "cuda-cpp", "cuda", "cpp", "toml")  # in whose files breakpoints can be set
_TYPES_OF: dict[str, dict[str, Any]] = {  # of the members of a launch, by their kinds in messages.py
    "text": {"type": "string"}, "[text]": {"type": "array", "items": {"type": "string"}}, "{text or null}": {"type": "object"},
    "int": {"type": "integer", "minimum": 0}, "bool": {"type": "boolean"},
}  # fmt: skip
_ABOUT = {
    "program": "A launch file (.toml), a Python script, a program, or a .cu file.",
    "args": "Arguments of the program.",
    "cwd": "The folder that the program starts in.",
    "env": "Variables of its environment; null removes one.",
    "device": "The chip that it finds: H100, sm_90.",
    "seed": "Seed of the scheduler's choices.",
    "order": "Seed of the order in which blocks begin.",
    "sanitize": "Look for undefined behaviour.",
    "stopOnEntry": "Stop before the first instruction of the first launch.",
    "stopAtEnd": "Stop when a launch is over, to go back from there.",
    "kernel": "A part of a kernel's name: other launches are not stopped.",
    "noDebug": "Run without the debugger.",
}
_CONFIGURATION = {
    "type": "mmulator", "request": "launch", "name": "Debug kernels", "program": "${file}", "cwd": "${workspaceFolder}",
}  # fmt: skip
_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension=".json"
ContentType="application/json"/><Default Extension=".vsixmanifest" ContentType="text/xml"/></Types>
"""
_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata>
<Identity Language="en-US" Id={name} Version={version} Publisher="mmulator"/>
<DisplayName>mmulator</DisplayName>
<Description xml:space="preserve">Debugs NVIDIA tensor-core kernels without the GPU, forwards and backwards.</Description>
<Categories>Debuggers</Categories>
<Properties>
<Property Id="Microsoft.VisualStudio.Code.Engine" Value="^1.80.0"/>
<Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="workspace"/>
</Properties>
</Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
<Dependencies/>
<Assets><Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/></Assets>
</PackageManifest>
"""


def package() -> dict[str, Any]:
    """The extension's package.json."""
    kinds = {name: kind for name, (kind, _) in members(TYPES["LAUNCH"]).items()}
    attributes = {name: {**_TYPES_OF[kinds[name]], "description": text} for name, text in _ABOUT.items()}
    return {
        "name": NAME, "publisher": "mmulator", "displayName": "mmulator", "version": __version__, "license": "Apache-2.0",
        "description": "Debugs NVIDIA tensor-core kernels without the GPU, forwards and backwards.",
        "engines": {"vscode": "^1.80.0"}, "categories": ["Debuggers"],
        "contributes": {
            "languages": [{"id": "ptx", "extensions": [".ptx"], "aliases": ["PTX"]}],
            "breakpoints": [{"language": name} for name in LANGUAGES],
            "debuggers": [{
                "type": "mmulator", "label": "mmulator", "languages": list(LANGUAGES),
                "program": sys.executable, "args": ["-m", "mmulator", "debug", "--dap"],
                "configurationAttributes": {"launch": {"required": ["program"], "properties": attributes}},
                "initialConfigurations": [_CONFIGURATION],
            }],
        },
    }  # fmt: skip


def write(file: Path) -> None:
    """Write the extension. Raises MmulatorError."""
    with replacing(file) as out, ZipFile(out, "w", ZIP_DEFLATED) as made:
        made.writestr("extension.vsixmanifest", _MANIFEST.format(name=quoteattr(NAME), version=quoteattr(__version__)))
        made.writestr("[Content_Types].xml", _TYPES)
        made.writestr("extension/package.json", json.dumps(package(), indent=2))
