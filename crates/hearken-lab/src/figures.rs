//! Figures of a run, as the experiments define them.

use maud::Markup;

use crate::experiment::{self, Experiment, Metric};
use crate::results::{AxisReport, ExperimentReport};
use crate::stats::Estimate;
use crate::summary::CellSummary;
use crate::svg::dot_plot::{DotPlot, Mark, Row};
use crate::svg::{Chart, Panel, Point, Series};
use crate::units::number;

/// A figure: one or more panels with a common title.
#[derive(Clone, Debug)]
pub(crate) struct Figure<P, T = &'static str> {
    /// Name of the figure and of its file.
    pub(crate) name: T,
    pub(crate) title: T,
    pub(crate) caption: T,
    pub(crate) panels: Vec<P>,
}

/// A panel of a figure of an experiment.
#[derive(Clone, Debug)]
pub(crate) enum LabPanel {
    /// A line for each server.
    Lines(Panel),
    /// A row for each server.
    Dots(DotPlot),
}

impl Chart for LabPanel {
    fn height(&self) -> f64 {
        match self {
            LabPanel::Lines(panel) => panel.height(),
            LabPanel::Dots(panel) => panel.height(),
        }
    }

    fn draw(&self) -> Markup {
        match self {
            LabPanel::Lines(panel) => panel.draw(),
            LabPanel::Dots(panel) => panel.draw(),
        }
    }
}

/// Returns the figures of an experiment that have data.
pub(crate) fn figures(report: &ExperimentReport, by_clock: bool) -> Vec<Figure<LabPanel, String>> {
    let Some(experiment) = report.experiment() else { return Vec::new() };
    let figure = |rule: &experiment::Chart| {
        let drawing = Drawing { report, rule, by_clock };
        Figure {
            name: format!("{}-{}", report.name, rule.name),
            title: rule.title.clone(),
            caption: rule.caption.clone(),
            panels: drawing.panels(&experiment),
        }
    };
    let all = experiment.figures.iter().map(figure);
    all.filter(|figure| !figure.panels.is_empty()).collect()
}

/// Returns the data of a figure as CSV: a line for each value, with half its confidence interval.
pub(crate) fn csv(figure: &Figure<LabPanel, String>) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut text = "panel,server,x,value,margin\n".to_owned();
    let mut line = |panel: &str, server: &str, x: String, value: f64, margin: f64| {
        let (panel, server) = (quoted(panel), quoted(server));
        text += &format!("{panel},{server},{x},{value},{margin}\n");
    };
    for panel in &figure.panels {
        match panel {
            LabPanel::Lines(panel) => {
                for series in &panel.series {
                    for point in &series.points {
                        let x = point.x.to_string();
                        line(&panel.title, &series.name, x, point.y, point.margin);
                    }
                }
            }
            LabPanel::Dots(plot) => {
                for row in &plot.rows {
                    for (level, mark) in plot.levels.iter().zip(&row.marks) {
                        let Some(mark) = mark else { continue };
                        line(&plot.title, &row.name, quoted(level), mark.value, mark.margin);
                    }
                }
            }
        }
    }
    text
}

/// A figure in the making.
#[derive(Clone, Copy)]
struct Drawing<'a> {
    report: &'a ExperimentReport,
    rule: &'a experiment::Chart,
    by_clock: bool,
}

impl Drawing<'_> {
    fn panels(&self, experiment: &Experiment) -> Vec<LabPanel> {
        let has_values = |metric: &&Metric| {
            self.report.summary.iter().any(|cell| cell.metrics.contains_key(&metric.name))
        };
        let metrics = self.rule.metrics.iter().filter_map(|name| experiment.metric(name));
        let metrics = metrics.filter(has_values);
        let number = if self.rule.first { 1 } else { usize::MAX };
        metrics.take(number).flat_map(|metric| self.panels_of(metric)).collect()
    }

    /// Returns a panel for each combination of the axes that have neither lines nor marks.
    fn panels_of(&self, metric: &Metric) -> Vec<LabPanel> {
        let drawn = [&self.rule.x, &self.rule.levels, &self.rule.panels];
        let drawn: Vec<&str> = drawn.into_iter().flatten().map(String::as_str).collect();
        let others = self.report.varied_axes().filter(|axis| !drawn.contains(&axis.name.as_str()));
        let separate = self.rule.panels.iter().filter_map(|name| self.report.axis(name));
        let mut combinations: Vec<Vec<(&AxisReport, &str)>> = vec![Vec::new()];
        for axis in separate.chain(others) {
            let extend = |fixed: Vec<(_, _)>| {
                let with = move |value| [fixed.clone(), vec![(axis, value)]].concat();
                let only_first = self.rule.first_of.contains(&axis.name);
                let values = axis.values.iter().filter(move |value| self.shows(&axis.name, value));
                let values = values.take(if only_first { 1 } else { usize::MAX });
                values.map(String::as_str).map(with).collect::<Vec<_>>()
            };
            combinations = combinations.into_iter().flat_map(extend).collect();
        }
        combinations.iter().filter_map(|fixed| self.panel(metric, fixed)).collect()
    }

    fn panel(&self, metric: &Metric, fixed: &[(&AxisReport, &str)]) -> Option<LabPanel> {
        let name = |(axis, value): &(&AxisReport, &str)| match value.parse::<f64>() {
            Ok(value) if axis.values.len() > 1 => format!("{} {}", number(value), axis.title),
            _ => (*value).to_owned(),
        };
        let is_shown = |axis: &AxisReport| {
            let values = axis.values.iter().filter(|value| self.shows(&axis.name, value));
            values.count() > 1 && !self.rule.first_of.contains(&axis.name)
        };
        let varied = fixed.iter().filter(|(axis, _)| is_shown(axis)).map(name);
        let mut title: Vec<String> = varied.collect();
        let emulated = if self.by_clock { ", emulated" } else { "" };
        title.push(format!("{}{emulated}", metric.title));
        let title = title.join(": ");
        match self.rule.x.as_ref().and_then(|name| self.report.axis(name)) {
            Some(x) => self.lines(metric, fixed, x, title).map(LabPanel::Lines),
            None => self.dots(metric, fixed, title).map(LabPanel::Dots),
        }
    }

    /// Returns whether a value of an axis is part of the figure.
    fn shows(&self, axis: &str, value: &str) -> bool {
        let values = self.rule.at.get(axis);
        values.is_none_or(|values| values.iter().any(|shown| shown.as_str() == value))
    }

    /// Returns the servers of the figure, with the index of their style.
    fn servers(&self) -> impl Iterator<Item = (usize, &crate::results::Participant)> {
        let is_shown =
            |name: &String| self.rule.servers.is_empty() || self.rule.servers.contains(name);
        self.report.servers.iter().enumerate().filter(move |(_, server)| is_shown(&server.name))
    }

    fn find(
        &self,
        server: &str,
        fixed: &[(&AxisReport, &str)],
        varied: Option<(&AxisReport, &str)>,
    ) -> Option<&CellSummary> {
        let values = fixed.iter().chain(&varied);
        self.report.summary.iter().find(|cell| {
            let matches = |(axis, value): &(&AxisReport, &str)| {
                cell.values.get(&axis.name).is_some_and(|own| own == value)
            };
            cell.server == server && values.clone().all(matches)
        })
    }

    fn lines(
        &self,
        metric: &Metric,
        fixed: &[(&AxisReport, &str)],
        x: &AxisReport,
        title: String,
    ) -> Option<Panel> {
        let factor = if self.rule.x_rate { self.report.saturation.unwrap_or(1.0) } else { 1.0 };
        let series = self.servers().map(|(style, server)| {
            let point = |value: &String| {
                let cell = self.find(&server.name, fixed, Some((x, value)))?;
                let estimate = estimate(cell, metric)?;
                Some(Point {
                    x: value.parse::<f64>().ok()? * factor,
                    y: estimate.mean * metric.scale,
                    margin: estimate.margin.unwrap_or(0.0) * metric.scale,
                    hollow: cell.saturated > 0,
                })
            };
            let values = x.values.iter().filter(|value| self.shows(&x.name, value));
            let points = values.filter_map(point).collect();
            Series { name: server.name.clone(), style, points }
        });
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        let x_title = self.rule.x_title.as_ref().unwrap_or(&x.title).clone();
        (!series.is_empty()).then_some(Panel { title, x_title, series })
    }

    fn dots(
        &self,
        metric: &Metric,
        fixed: &[(&AxisReport, &str)],
        title: String,
    ) -> Option<DotPlot> {
        let levels = self.rule.levels.as_ref().and_then(|name| self.report.axis(name));
        let mark = |server: &str, level: Option<(&AxisReport, &str)>| {
            let estimate = estimate(self.find(server, fixed, level)?, metric)?;
            let margin = estimate.margin.unwrap_or(0.0) * metric.scale;
            Some(Mark { value: estimate.mean * metric.scale, margin })
        };
        let values: Vec<Option<(&AxisReport, &str)>> = match levels {
            Some(axis) => {
                let shown = axis.values.iter().filter(|value| self.shows(&axis.name, value));
                shown.map(|value| Some((axis, value.as_str()))).collect()
            }
            None => vec![None],
        };
        // A level without a mark, such as the memory per idle connection without any, is not shown.
        let is_used = |level: &Option<_>| {
            self.servers().any(|(_, server)| mark(&server.name, *level).is_some())
        };
        let values: Vec<_> = values.into_iter().filter(is_used).collect();
        let name = |level: &Option<(&AxisReport, &str)>| match level {
            Some((axis, value)) => match value.parse() {
                Ok(value) => format!("{} {}", number(value), axis.title),
                Err(_) => (*value).to_owned(),
            },
            None => String::new(),
        };
        let row = |(_, server): (usize, &crate::results::Participant)| Row {
            name: server.name.clone(),
            marks: values.iter().map(|&level| mark(&server.name, level)).collect(),
        };
        let rows = self.servers().map(row);
        let rows: Vec<Row> = rows.filter(|row| row.marks.iter().any(Option::is_some)).collect();
        let levels = values.iter().map(name).collect();
        (!rows.is_empty()).then_some(DotPlot { title, levels, rows })
    }
}

fn estimate(cell: &CellSummary, metric: &Metric) -> Option<Estimate> {
    cell.metrics.get(&metric.name).map(|summary| summary.estimate)
}
