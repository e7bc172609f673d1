import mmulator.doors.triton as triton
import mmulator.errors as errors
import mmulator.inspect as inspect
import mmulator.layouts.sparse as sparse
from mmulator.findings import Finding as Finding
from mmulator.host.module import Kernel as Kernel, Module as Module
from mmulator.host.report import Report as Report
from mmulator.inspect.explanation.arithmetic import devices as devices
from mmulator.instruction.instruction import Instruction as Instruction
from mmulator.instruction.matmul import matmul as matmul
from mmulator.instruction.why import compare as compare, why as why
from mmulator.judging.child import Limits as Limits
from mmulator.judging.judge import judge as judge
from mmulator.launch.values import struct as struct
from mmulator.layouts.descriptors import MatrixDescriptor as MatrixDescriptor
from mmulator.layouts.tensormap.tensor_map import TensorMap as TensorMap

__version__: str
