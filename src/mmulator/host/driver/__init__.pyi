from mmulator.host.driver.driver import Driver as Driver, current as current, use as use
from mmulator.host.driver.functions import Function as Function, LoadedModule as LoadedModule
from mmulator.host.driver.memory import Allocation as Allocation, Memory as Memory
from mmulator.host.settings import Settings as Settings
from mmulator.host.driver.streams import Event as Event, Stream as Stream
from mmulator.runtime.launch.regions import Region as Region
