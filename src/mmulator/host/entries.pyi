from mmulator.observation.debug.program import debugged as debugged
from mmulator.observation.record.names import AUTO as AUTO, question as question
from mmulator.observation.record.reference import Reference as Reference
from mmulator.observation.record.counts import Counting as Counting
from mmulator.observation.record.launches.answers import about_arrays as about_arrays
from mmulator.observation.record.launches.capture import CAPTURE as CAPTURE
from mmulator.observation.record.launches.notfinite import NOT_FINITE as NOT_FINITE, checked as checked
from mmulator.observation.record.launches.profiles import PROFILE as PROFILE
from mmulator.observation.record.launches.questions import WHY as WHY, device_arrays as device_arrays
from mmulator.observation.record.launches.rejections import KEEP as KEEP
from mmulator.observation.record.launches.replay import REPLAY as REPLAY
from mmulator.observation.record.launches.suite import SUITE as SUITE
from mmulator.observation.record.launches.traces import TRACE as TRACE
from mmulator.observation.record.trace import Moments as Moments
from mmulator.observation.record.names import DeviceArray as DeviceArray, DeviceNames as DeviceNames
from mmulator.observation.record.profile.launch import LaunchProfile as LaunchProfile, profile_of as profile_of
from mmulator.observation.strictness.needed import needed as needed
from mmulator.doors.launch_site import line_of_launch as line_of_launch
from mmulator.doors.triton.versions import assembler as assembler
from mmulator.evaluation.spread.launch import check_shared_out as check_shared_out, launch_on as launch_on
