from mmulator.driver.driver import Driver as Driver, current as current, use as use
from mmulator.driver.functions import Function as Function, LoadedModule as LoadedModule
from mmulator.driver.memory import Allocation as Allocation, Memory as Memory
from mmulator.settings import Settings as Settings
from mmulator.driver.streams import Event as Event, Stream as Stream
from mmulator.launch.regions import Region as Region
