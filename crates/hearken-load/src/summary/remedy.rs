//! What to change about the bottleneck of a load.

use crate::bottleneck::Bottleneck;
use crate::report::{ConnectionLimit, Report};
use crate::summary::Grouped;

/// Returns a sentence about the bottleneck and its remedy, or `None` without a bottleneck.
pub(super) fn remedy(report: &Report) -> Option<String> {
    let connections = Grouped(report.connections);
    Some(match report.bottleneck {
        Bottleneck::None => return None,
        Bottleneck::Server => {
            "the server; it needs more capacity to answer this rate in time".to_owned()
        }
        Bottleneck::Connections => {
            let remedy = match report.connections_limited_by {
                ConnectionLimit::Settings => {
                    "raise --connections if the server can serve more requests at once"
                }
                ConnectionLimit::Descriptors => {
                    "raise the limit of open files (ulimit -n) for more connections"
                }
                ConnectionLimit::Ports => "use more source addresses (--sources) for more",
                ConnectionLimit::Memory => "more need more memory or several machines",
            };
            format!("all {connections} connections were busy; {remedy}")
        }
        Bottleneck::Generator => {
            "the CPU of the generator; use more threads (--threads) or a lower rate".to_owned()
        }
        Bottleneck::Ports => {
            "local ports; use persistent connections or more source addresses (--sources)"
                .to_owned()
        }
        Bottleneck::Descriptors => {
            "open files; raise the limit (ulimit -n) or use fewer connections".to_owned()
        }
    })
}
