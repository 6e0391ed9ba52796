//! HTML reports: self-contained pages without scripts, for light and dark, wide and narrow screens.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figures::Figure;
use crate::results::Report;
use crate::svg::plot::Plot;
use crate::svg::{self, DARK, LIGHT, plot};
use crate::table::Table;
use crate::units::{mebibytes, number};

mod lab;
mod load;
mod sweep;

pub(crate) use lab::lab;
pub(crate) use load::load;
pub(crate) use sweep::sweep;

const PAGE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--text:#1a1c1f;--soft:#5a626b;--line:#d9dde2;\
--panel:#f5f6f8}\
@media screen and (prefers-color-scheme:dark){:root{--ground:#14171a;--text:#e6e8ea;--soft:#9aa3ad;\
--line:#363c43;--panel:#1d2125}}\
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}\
main{max-width:62rem;margin:auto;padding:1.5rem 1rem 4rem}\
main.full{max-width:none;padding:1.5rem clamp(1rem,3vw,3rem) 4rem}\
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .3rem}\
p,li{max-width:46rem}.soft,figcaption{color:var(--soft)}\
figure{margin:0}.figures{display:grid;gap:0 2rem;\
grid-template-columns:repeat(auto-fit,minmax(min(100%,28rem),1fr))}.figures h3{min-height:3rem}\
.confirmed{color:#00795a}.refuted{color:#c04c00}.undecided,.not-run{color:var(--soft)}\
@media screen and (prefers-color-scheme:dark){.confirmed{color:#2bc79b}.refuted{color:#ff8a3d}}.wide{overflow-x:auto}.wide svg{display:block;width:100%;min-width:21rem;\
max-width:42rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap;\
font-size:.85rem}th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line)}\
th{color:var(--soft);font-weight:600}.left{text-align:left}tr.first td{border-top:2px solid \
var(--line)}\
.facts th{text-align:left;vertical-align:top}.facts td{text-align:left;white-space:normal;\
overflow-wrap:anywhere}\
.note{background:var(--panel);border-left:4px solid #d55e00;padding:.5rem .8rem;margin:.5rem 0;\
max-width:44rem}\
pre{background:var(--panel);padding:.8rem;overflow-x:auto;font-size:.9rem}\
summary{cursor:pointer;padding:.2rem 0}\
@page{margin:12mm}@media print{:root{color-scheme:light}h2{margin:.8rem 0 0}\
figcaption{font-size:.85rem}main,main.full{max-width:none;padding:0}\
figure,tr,.note{break-inside:avoid}h2{break-after:avoid}.note{print-color-adjust:exact}\
pre{white-space:pre-wrap}.wide{overflow:visible}}";

/// Renders a complete page.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    document(title, None, body)
}

/// Renders a complete page that is as wide as the window.
pub(crate) fn full_page(title: &str, body: &Markup) -> String {
    document(title, Some("full"), body)
}

fn document(title: &str, class: Option<&str>, body: &Markup) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { (title) }
                // Only constants of this crate, no text from a run.
                style { (PreEscaped(PAGE)) (PreEscaped(svg::stylesheet(&LIGHT)))
                    // Paper is white.
                    "@media screen and (prefers-color-scheme:dark){"
                    (PreEscaped(svg::stylesheet(&DARK))) "}" (PreEscaped(plot::page_rules())) }
            }
            body { main class=[class] { (body) } }
        }
    };
    markup.into_string()
}

/// Renders the figures with their captions, in the full width of the page.
pub(crate) fn wide_sections(figures: &[Figure<Plot>]) -> Markup {
    html! {
        @for figure in figures {
            h2 { (figure.title) }
            figure.plots {
                @for panel in &figure.panels { (panel.in_page(figure.title)) }
                figcaption { (figure.caption) }
            }
        }
    }
}

/// Renders the command line that repeats the experiment.
pub(crate) fn reproduction(report: &Report) -> Markup {
    html! {
        h2 { "How to reproduce" }
        pre { (shell_command(&report.command_line)) }
        p.soft { "results.json, in the same directory, contains every sample." }
    }
}

/// Renders a table.
pub(crate) fn render_table(table: &Table) -> Markup {
    let side = |column: usize| table.is_text(column).then_some("left");
    let grouped = table.is_grouped();
    let starts = |row: usize| grouped && row > 0 && table.rows[row][0] != table.rows[row - 1][0];
    html! {
        div.wide { table {
            thead { tr { @for (i, head) in table.head.iter().enumerate() {
                th class=[side(i)] scope="col" { (head) } } } }
            tbody { @for (r, row) in table.rows.iter().enumerate() {
                tr class=[starts(r).then_some("first")] {
                    @for (i, cell) in row.iter().enumerate() { td class=[side(i)] { (cell) } }
                } } }
        } }
    }
}

/// Renders the warnings and the unavailable counters.
pub(crate) fn warnings(report: &Report) -> Markup {
    html! {
        @if !report.warnings.is_empty() || !report.unavailable_counters.is_empty() {
            h2 { "Warnings" }
            @for warning in &report.warnings { div.note { (warning) } }
            @for counter in &report.unavailable_counters {
                div.note {
                    "Not counted: " strong { (counter.counter) } " (" (counter.call) "): "
                    (counter.error) ". " (counter.hint)
                }
            }
        }
    }
}

/// Renders the environment of the run.
pub(crate) fn environment(report: &Report) -> Markup {
    let machine = &report.machine;
    let emulator = report.emulator.as_deref();
    let placement = format!(
        "servers on processor {}; load generator and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    let memory = format!("{} GiB", number(mebibytes(machine.memory_bytes as f64) / 1024.0));
    let virtualised = machine.virtualisation.as_deref().unwrap_or("not detected");
    let duration = number(report.elapsed_s);
    let duration = match emulator {
        Some(_) => format!("{duration} s by the emulated clock"),
        None => format!("{duration} s"),
    };
    let rows: [(&str, &str); 10] = [
        ("Processor", &machine.cpu),
        ("Processors allowed", &machine.processors.to_string()),
        ("Placement", &placement),
        ("Memory", &memory),
        ("Kernel", &machine.kernel),
        ("Virtual machine", virtualised),
        ("Emulator", emulator.unwrap_or_default()),
        ("Start", &report.date),
        ("Duration", &duration),
        ("Seed", &report.seed.to_string()),
    ];
    property_table(&rows)
}

/// Renders names and values, without those that are empty.
pub(crate) fn property_table(rows: &[(&str, &str)]) -> Markup {
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    html! {
        table.facts { @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } } }
    }
}

/// Formats processor numbers.
pub(crate) fn cpus(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Formats a command line, quoted for a shell if necessary.
fn shell_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@%".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::shell_command;

    #[test]
    fn command_lines_are_quoted_for_a_shell() {
        let words = ["hearken", "lab", "--out", "it's here", ""].map(String::from);
        assert_eq!(shell_command(&words), r"hearken lab --out 'it'\''s here' ''");
    }
}
