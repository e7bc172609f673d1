import mmulator.doors.triton as triton
import mmulator.errors as errors
import mmulator.inspect as inspect
import mmulator.matrix.layouts.sparse as sparse
from mmulator.base.findings import Finding as Finding
from mmulator.host.module import Kernel as Kernel, Module as Module
from mmulator.host.report import Report as Report
from mmulator.matrix.inspect.explanation.arithmetic import devices as devices
from mmulator.matrix.instruction.instruction import Instruction as Instruction
from mmulator.matrix.instruction.matmul import matmul as matmul
from mmulator.matrix.instruction.why import compare as compare, why as why
from mmulator.evaluation.judging.child import Limits as Limits
from mmulator.evaluation.judging.judge import judge as judge
from mmulator.observation.same.comparison import same as same
from mmulator.observation.tolerance.tolerance import tolerance as tolerance
from mmulator.runtime.launch.values import struct as struct
from mmulator.matrix.layouts.descriptors import MatrixDescriptor as MatrixDescriptor
from mmulator.matrix.layouts.tensormap.tensor_map import TensorMap as TensorMap

__version__: str
