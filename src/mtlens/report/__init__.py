"""Tables, figures, and pages: data in, text out."""

from mtlens.report.charts import Bars as Bars
from mtlens.report.charts import HeatMap as HeatMap
from mtlens.report.charts import LineChart as LineChart
from mtlens.report.charts import Scatter as Scatter
from mtlens.report.charts import Series as Series
from mtlens.report.charts import draw as draw
from mtlens.report.charts import figure as figure
from mtlens.report.export import write_report as write_report
from mtlens.report.forest import Forest as Forest
from mtlens.report.forest import ForestRow as ForestRow
from mtlens.report.page import write_page as write_page
from mtlens.report.svg import CHART_CSS as CHART_CSS
from mtlens.report.svg import CHART_SCRIPT as CHART_SCRIPT
from mtlens.report.svg import standalone as standalone
