from mgg.api import aggregate as aggregate
from mgg.api import graph as graph
from mgg.api import report as report
from mgg.api import train as train

__version__: str
