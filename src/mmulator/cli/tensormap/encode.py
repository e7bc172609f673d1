"""`mmulator tensormap encode`: a tensor and a box to 128 bytes."""

from typing import Annotated

from mmulator.cli.tensormap import options as o

_File = Annotated[o.Text, o.out("Write the 128 bytes.", "FILE")]


def encode(
    said: o.Said,
    out: _File = None,
    json: o.Json = False,
) -> None:
    """Make the 128 bytes of a tensor map, as CUDA's driver does, and say what they mean.

    What the driver refuses is refused, with the rule; the exit code is then 1.

    Examples:
        mmulator tensormap encode --shape 4096,1024 --type bf16 --box 64,64 --swizzle 128B
        mmulator tensormap encode --shape 8,56,56,64 --lower -1,-1 --upper -1,-1 --channels 64 --pixels 128 --out map.bin
    """
    from mmulator.cli.tensormap.text import tell_map
    from mmulator.files import write
    from mmulator.inspect.tensormaps.fields import tensor_map_fields

    found = tensor_map_fields(o.map_of(None, said))
    if out is not None:
        write(out, found.data)
    tell_map(found, json)
