"""Tables, figures, and pages: data in, text out."""

from mtlens.report.charts import Bars as Bars
from mtlens.report.charts import HeatMap as HeatMap
from mtlens.report.charts import LineChart as LineChart
from mtlens.report.charts import Scatter as Scatter
from mtlens.report.charts import Series as Series
from mtlens.report.charts import draw as draw
from mtlens.report.charts import figure as figure
from mtlens.report.svg import CHART_CSS as CHART_CSS
from mtlens.report.svg import CHART_SCRIPT as CHART_SCRIPT
from mtlens.report.svg import standalone as standalone
