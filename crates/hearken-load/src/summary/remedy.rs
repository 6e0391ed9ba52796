//! The remedy for the bottleneck of a load.

use crate::bottleneck::Bottleneck;
use crate::report::Report;
use crate::summary::Grouped;

/// Returns a sentence about the bottleneck and its remedy, or `None` without a bottleneck.
pub(super) fn remedy(report: &Report) -> Option<String> {
    let connections = Grouped(report.connections);
    Some(match report.bottleneck {
        Bottleneck::None => return None,
        Bottleneck::Server => "the server; it failed or delayed requests at this rate".to_owned(),
        Bottleneck::Connections => format!(
            "all {connections} connections were busy; raise --connections if the server can serve more \
             requests at once"
        ),
        Bottleneck::Generator => {
            "the CPU of the generator; use more threads (--threads) or a lower rate".to_owned()
        }
        Bottleneck::Ports => {
            "local ports; use persistent connections or more source addresses (--sources)"
                .to_owned()
        }
        Bottleneck::Descriptors => {
            format!("open files allow {connections} connections; raise the limit (ulimit -n)")
        }
        Bottleneck::Memory => {
            format!("memory allows {connections} connections; use a machine with more memory")
        }
    })
}
