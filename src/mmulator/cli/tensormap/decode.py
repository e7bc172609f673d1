"""`mmulator tensormap decode`: what 128 bytes say."""

from mmulator.cli.tensormap import options as o


def decode(map: o.Map, json: o.Json = False) -> None:
    """Take the 128 bytes of a tensor map apart.

    The exit code is 1 if CUDA's driver would refuse such a map.

    Examples:
        mmulator tensormap decode map.bin
        mmulator tensormap encode --shape 64,64 --box 8,64 --out map.bin; mmulator tensormap decode - < map.bin
    """
    from mmulator.cli.tensormap.text import tell_map
    from mmulator.inspect.tensormaps.fields import tensor_map_fields

    tell_map(tensor_map_fields(o.read(map).fields.encode()), json)
