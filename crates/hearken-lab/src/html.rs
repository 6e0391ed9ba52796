//! The report as one page: no script, nothing from outside, light and dark, wide and narrow.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::figures::figures;
use crate::results::Report;
use crate::svg::{self, ON_DARK, ON_WHITE};
use crate::table::{is_text, table};
use crate::units::{count, mebibytes, number};

const PAGE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--text:#1a1c1f;--soft:#5a626b;--line:#d9dde2;\
--panel:#f5f6f8}\
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--text:#e6e8ea;--soft:#9aa3ad;\
--line:#363c43;--panel:#1d2125}}\
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}\
main{max-width:62rem;margin:auto;padding:1.5rem 1rem 4rem}\
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}\
p,li{max-width:46rem}.soft,figcaption{color:var(--soft)}\
figure{margin:0}.wide{overflow-x:auto}.wide svg{display:block;width:100%;min-width:21rem;\
max-width:42rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap;\
font-size:.85rem}th,td{padding:.25rem .45rem;text-align:right;border-bottom:1px solid var(--line)}\
th{color:var(--soft);font-weight:600}.left{text-align:left}tr.first td{border-top:2px solid \
var(--line)}\
.facts th{text-align:left;vertical-align:top}.facts td{text-align:left;white-space:normal;\
overflow-wrap:anywhere}\
.note{background:var(--panel);border-left:4px solid #d55e00;padding:.5rem .8rem;margin:.5rem 0;\
max-width:44rem}\
pre{background:var(--panel);padding:.8rem;overflow-x:auto;font-size:.9rem}";

/// The whole page.
pub(crate) fn page(report: &Report) -> String {
    let light = svg::style(&ON_WHITE, "#1a1c1f", "#d9dde2", "#fff");
    let dark = svg::style(&ON_DARK, "#e6e8ea", "#363c43", "#14171a");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                title { "Hearken lab: event mechanisms compared" }
                // Constants of this crate only; no text of a run is among them.
                style { (PreEscaped(PAGE)) (PreEscaped(light))
                    "@media(prefers-color-scheme:dark){" (PreEscaped(dark)) "}" }
            }
            body { main { (body(report)) } }
        }
    };
    markup.into_string()
}

fn body(report: &Report) -> Markup {
    let settings = &report.settings;
    html! {
        h1 { "Event mechanisms under the same load" }
        p.soft {
            "Hearken " (report.version) ", " (report.date) ". " (number(settings.rate))
            " requests a second on " (count(settings.connections)) " connections, "
            (settings.repetitions) " repetitions in shuffled order."
        }
        @if !report.complete {
            div.note { strong { "This run is not complete. " }
                (report.samples.len()) " of " (settings.planned()) " measurements were made." }
        }
        (in_short(report))
        @for figure in figures(report) {
            h2 { (figure.title) }
            figure {
                div.wide { (svg::figure(figure.title, &figure.panels, None)) }
                figcaption { (figure.caption) }
            }
        }
        h2 { "Table" }
        (numbers(report))
        p.soft { "± is the 95 % confidence interval of the mean, × a ratio of CPU time; ~ marks a \
            ratio whose interval holds 1." }
        (caveats(report))
        h2 { "Where and when" }
        (facts(report))
        h2 { "How it was measured" }
        (method(report))
        h2 { "Again" }
        pre { (command(&report.command_line)) }
        p.soft { "Every sample is in results.json beside this page." }
    }
}

/// The comparison with most idle connections, in sentences.
fn in_short(report: &Report) -> Markup {
    let most = report.summary.iter().map(|c| c.idle).max().unwrap_or(0);
    let reference = &report.settings.reference;
    let lines = report.summary.iter().filter(|c| c.idle == most && &c.mechanism != reference);
    let compared: Vec<_> = lines.filter_map(|c| c.cpu_to_reference.map(|r| (c, r))).collect();
    html! {
        @if !compared.is_empty() {
            h2 { "In short" }
            p { "With " (count(most)) " idle connections, a request cost the server" }
            ul {
                @for (cell, ratio) in compared {
                    li {
                        "with " strong { (cell.mechanism) } " "
                        strong { (number(ratio.ratio)) " times" } " the CPU time of " (reference)
                        @if let (Some(low), Some(high)) = (ratio.low, ratio.high) {
                            span.soft { " (" (number(low)) " to " (number(high)) " times)" }
                            @if !ratio.differs() { "; this run cannot tell them apart" }
                        }
                        @if cell.saturated > 0 { "; it was saturated" }
                    }
                }
            }
        }
    }
}

fn numbers(report: &Report) -> Markup {
    let table = table(report);
    let side = |column: usize| is_text(&table.head[column]).then_some("left");
    let starts = |row: usize| row > 0 && table.rows[row][0] != table.rows[row - 1][0];
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

fn caveats(report: &Report) -> Markup {
    html! {
        @if !report.warnings.is_empty() || !report.refusals.is_empty() {
            h2 { "Read with care" }
            @for warning in &report.warnings { div.note { (warning) } }
            @for refusal in &report.refusals {
                div.note {
                    "Not counted: " strong { (refusal.what) } ". " (refusal.call) ": "
                    (refusal.error) ". " (refusal.advice)
                }
            }
        }
    }
}

fn facts(report: &Report) -> Markup {
    let machine = &report.machine;
    let cpus = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let memory = format!("{} GiB", number(mebibytes(machine.memory_bytes as f64) / 1024.0));
    let placed = format!(
        "server on processor {}; load and lab on {}",
        cpus(&report.placement.server),
        cpus(&report.placement.others)
    );
    let virtualised = machine.virtualisation.as_deref().unwrap_or("no sign of it");
    let rows: [(&str, &str); 9] = [
        ("Processor", &machine.cpu),
        ("Processors allowed", &machine.processors.to_string()),
        ("Placement", &placed),
        ("Memory", &memory),
        ("Kernel", &machine.kernel),
        ("Virtual machine", virtualised),
        ("Began", &report.date),
        ("Took", &format!("{} s", number(report.elapsed_s))),
        ("Seed", &report.settings.seed.to_string()),
    ];
    html! {
        table.facts { @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } } }
    }
}

fn method(report: &Report) -> Markup {
    let settings = &report.settings;
    html! {
        ul {
            li { "Each measurement starts a server of its own with one worker, alone on its \
                processor where there is another for the rest, and then opens the idle \
                connections." }
            li { "The load is open: requests for /" (settings.document) " leave when they are due, \
                however slow the replies are." }
            li { "A first pass of " (settings.counters_s) " s warms the server up and counts \
                instructions and system calls. A second, as long, makes a connection for each \
                request: what is per connection is from it. A third of " (settings.duration_s) " s \
                has no counter attached; CPU time per request and latency are from it." }
            li { "CPU time is the scheduler's own account of the server's threads \
                (/proc/PID/task/*/schedstat). Per request means per reply received." }
            li { "A server is called saturated if fewer than 95 % of the requests were answered, or \
                it used more than 95 % of its processor." }
            li { (report.method) }
            li { "The order of all measurements was shuffled with the seed. Numbers of different \
                runs are not to be compared." }
        }
    }
}

/// What was typed, quoted where a shell would need it.
fn command(words: &[String]) -> String {
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
    use super::command;

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["hearken", "lab", "--out", "it's here", ""].map(String::from);
        assert_eq!(command(&words), r"hearken lab --out 'it'\''s here' ''");
    }
}
