from mmulator.matrix.inspect.explanation.arithmetic import Device as Device
from mmulator.matrix.inspect.descriptors.answer import (
    DescriptorAnswer as DescriptorAnswer,
    DescriptorFields as DescriptorFields,
    OffsetMeaning as OffsetMeaning,
)
from mmulator.matrix.inspect.descriptors.banks import (
    BankConflicts as BankConflicts,
    WarpAccess as WarpAccess,
    address_accesses as address_accesses,
    bank_conflicts as bank_conflicts,
)
from mmulator.matrix.inspect.descriptors.checks import Diagnostic as Diagnostic
from mmulator.matrix.layouts.cute_layout import CuteLayout as CuteLayout, tile_to_shape as tile_to_shape
from mmulator.matrix.inspect.descriptors.describe import (
    describe_descriptor as describe_descriptor,
    descriptor_fields as descriptor_fields,
    make_tile as make_tile,
)
from mmulator.matrix.inspect.descriptors.from_cute import CuteAnswer as CuteAnswer, descriptor_from_cute as descriptor_from_cute
from mmulator.matrix.inspect.descriptors.tile import Tile as Tile
from mmulator.matrix.inspect.explanation.answer import Explanation as Explanation
from mmulator.matrix.inspect.explanation.explain import explain as explain
from mmulator.matrix.inspect.layouts.answer import Layout as Layout
from mmulator.matrix.inspect.layouts.layout import layout as layout
from mmulator.matrix.inspect.listing import FormGroup as FormGroup, group as group
from mmulator.isa.names.words import find_forms as find_forms
from mmulator.matrix.inspect.sparse import (
    MetadataWord as MetadataWord,
    PatternReport as PatternReport,
    metadata_word as metadata_word,
    metadata_words as metadata_words,
    pattern_report as pattern_report,
)
from mmulator.matrix.inspect.tensormaps.box import TensorBox as TensorBox, tensor_box as tensor_box
from mmulator.matrix.inspect.tensormaps.checks import check_copy as check_copy
from mmulator.matrix.inspect.tensormaps.checks import parse_copy as parse_copy
from mmulator.matrix.inspect.tensormaps.fields import TensorMapFields as TensorMapFields, tensor_map_fields as tensor_map_fields
