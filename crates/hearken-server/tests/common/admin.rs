//! The admin address of a proxy and its metrics.

use super::TEST_TIMEOUT;
use super::connection::Connection;
use super::server::RunningServer;
use super::wire::Kind;

/// Sends a request to the admin address. Returns the content of the response.
pub(crate) fn admin(proxy: &RunningServer, method: &str, target: &str) -> String {
    let addr = proxy.admin_addr().expect("admin address is disabled");
    let mut connection = Connection::connect(addr, Kind::Response);
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    connection.send(format!("{method} {target} HTTP/1.1\r\nHost: {addr}\r\n{length}\r\n"));
    let response = connection.expect_response();
    assert!(matches!(response.status(), 200..=299), "{response:?}");
    response.text()
}

/// Returns the sum of all samples of a metric whose labels contain `label`.
pub(crate) fn metric_sum(page: &str, name: &str, label: &str) -> f64 {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let named = labels.is_empty() || labels.starts_with('{');
        (named && labels.contains(label)).then(|| value.parse::<f64>().unwrap())
    };
    page.lines().filter_map(of).sum()
}

/// Waits until a metric without labels other than the worker has this value.
#[track_caller]
pub(crate) fn wait_for_metric(server: &RunningServer, name: &str, value: f64) {
    super::wait_until(&format!("{name} is {value}"), || {
        let mut page = String::new();
        server.metrics().render(&[], &mut page);
        metric_sum(&page, name, "") == value
    });
}

/// Waits until no connection is open and no request is in flight.
pub(crate) fn wait_idle(proxy: &RunningServer) -> Result<(), String> {
    const NOTHING: &[&str] = &[
        "hearken_connections_open",
        "hearken_requests_in_flight",
        "hearken_requests_queued",
        "hearken_tunnels_open",
        "hearken_upstream_requests_in_flight",
    ];
    let since = std::time::Instant::now();
    loop {
        let page = admin(proxy, "GET", "/metrics");
        let of = |name: &&&str| metric_sum(&page, name, "") != 0.0;
        let left: Vec<String> = NOTHING
            .iter()
            .filter(of)
            .map(|name| format!("{name} {}", metric_sum(&page, name, "")))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        if since.elapsed() > TEST_TIMEOUT {
            return Err(format!("the proxy is not idle: {left:?}"));
        }
        std::thread::sleep(super::ms(5));
    }
}
