"""The error family, for programs that catch errors: the classes of base/errors.py under their public name."""

from mmulator.base.errors import *  # noqa: F403
