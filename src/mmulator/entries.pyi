from mmulator.debug.program import debugged as debugged
from mmulator.record.names import AUTO as AUTO, question as question
from mmulator.record.reference import Reference as Reference
from mmulator.record.counts import Counting as Counting
from mmulator.record.launches.answers import about_arrays as about_arrays
from mmulator.record.launches.capture import CAPTURE as CAPTURE
from mmulator.record.launches.notfinite import NOT_FINITE as NOT_FINITE, checked as checked
from mmulator.record.launches.profiles import PROFILE as PROFILE
from mmulator.record.launches.questions import WHY as WHY, device_arrays as device_arrays
from mmulator.record.launches.rejections import KEEP as KEEP
from mmulator.record.launches.replay import REPLAY as REPLAY
from mmulator.record.launches.traces import TRACE as TRACE
from mmulator.record.trace import Moments as Moments
from mmulator.record.names import DeviceArray as DeviceArray, DeviceNames as DeviceNames
from mmulator.record.profile.launch import LaunchProfile as LaunchProfile, profile_of as profile_of
from mmulator.spread.launch import check_shared_out as check_shared_out, launch_on as launch_on
