//! The table of settings of `hearken serve` and `hearken proxy`.

use hearken_server::Model;

use super::Options;
use super::formats as f;
use crate::settings::{
    Applies, EXPERIMENTS, Kind, SWITCH, Section, Setting, list, setting, text_of,
};

pub(super) const SERVE: u8 = 1;
pub(super) const PROXY: u8 = 2;

const BOTH: u8 = SERVE | PROXY;

const fn section(
    name: &'static str,
    heading: &'static str,
    summary: &'static str,
    commands: u8,
    applies: Applies<Options>,
) -> Section<Options> {
    Section { name, heading, summary, commands, applies }
}

pub(super) const SECTIONS: &[Section<Options>] = &[
    section("", "", "General settings", BOTH, always),
    section("static", "", "Static files", SERVE, always),
    section("tls", "TLS", "Encryption of client connections", BOTH, tls),
    section("upstreams", "Upstream servers", "Upstream servers", PROXY, reverse),
    section("health", "Upstream servers", "Health checks of upstream servers", PROXY, health),
    section("upstream-tls", "Upstream servers", "TLS to upstream servers", PROXY, upstream_tls),
    section(
        "forward",
        "Forward proxy",
        "Forward proxy, instead of upstream servers",
        PROXY,
        forward,
    ),
    section("timeouts", "Timeouts and limits", "Timeouts", BOTH, always),
    section("limits", "Timeouts and limits", "Limits", BOTH, always),
    section(
        "headers",
        "Header fields",
        "Header fields added or changed by the proxy",
        PROXY,
        always,
    ),
    section("log", "Logs and metrics", "Access log", BOTH, always),
    section("admin", "Logs and metrics", "Metrics and control of upstream servers", BOTH, always),
    section(EXPERIMENTS, "", "Settings for experiments", BOTH, always),
];

fn always(_: &Options) -> Result<(), &'static str> {
    Ok(())
}

fn hybrid(options: &Options) -> Result<(), &'static str> {
    match options.server.event_loops.model {
        Model::Hybrid => Ok(()),
        _ => Err("has no effect without --model hybrid; add it, or remove this"),
    }
}

fn tls(options: &Options) -> Result<(), &'static str> {
    match options.tls.certs.is_empty() {
        false => Ok(()),
        true => Err("has no effect without '--tls-cert' or 'tls.cert'"),
    }
}

fn client_certificates(options: &Options) -> Result<(), &'static str> {
    match options.tls.client_ca {
        Some(_) => Ok(()),
        None => Err("has no effect without '--tls-client-ca' or 'tls.client-ca'"),
    }
}

fn reverse(options: &Options) -> Result<(), &'static str> {
    match options.is_forward {
        true => Err("has no effect in a forward proxy; remove it"),
        false => Ok(()),
    }
}

fn upstream_tls(options: &Options) -> Result<(), &'static str> {
    match options.has_secure_upstream() {
        true => Ok(()),
        false => Err("has no effect without an upstream server with https://"),
    }
}

fn forward(options: &Options) -> Result<(), &'static str> {
    match options.is_forward {
        true => Ok(()),
        false => Err("has no effect without '--forward' or [forward]"),
    }
}

fn health(options: &Options) -> Result<(), &'static str> {
    reverse(options)?;
    match options.health_path {
        Some(_) => Ok(()),
        None => Err("has no effect without '--health-path' or 'health.path'"),
    }
}

pub(super) const SETTINGS: &[Setting<Options>] = &[
    Setting {
        positional: true,
        is_path: true,
        ..Setting::new(
            "static.root",
            "Directory to serve",
            ("DIR", &[], Kind::Value),
            |c: &mut Options, text| {
                c.root = Some(f::directory(text)?);
                Ok(())
            },
            |c| c.root.iter().map(Into::into).collect(),
        )
    }
    .unset("", "\"public\"")
    .details("Files outside the directory are never served, even through symbolic links."),
    Setting {
        clear: |c: &mut Options| {
            c.upstreams.servers.clear();
            c.is_forward = false;
        },
        ..list! { Options, "upstreams.server", f::SERVERS,
        |c| c.upstreams.servers,
        "Upstream server (repeatable)" }
    }
    .first_flag("to")
    .details(
        "http://HOST[:PORT], https://HOST[:PORT], h2c://HOST[:PORT] (HTTP/2 without TLS), HOST:PORT or \
         unix:/PATH. Append ';weight=N' for a share of N requests (default 1), and ';backup' for a server that is used only if \
         all others are down.",
    ),
    Setting::new(
        "forward",
        "Forward proxy: connect to the servers that requests name",
        ("", &[], Kind::Section),
        |c: &mut Options, _| {
            c.is_forward = true;
            c.upstreams.servers.clear();
            Ok(())
        },
        |c| if c.is_forward { vec!["yes".into()] } else { Vec::new() },
    )
    .first_flag("forward")
    .requires(always),
    // Before the settings that it changes: the command line applies them in this order.
    Setting {
        set: |c: &mut Options, text| {
            let preset = (f::PRESET.parse)(text_of(text)?)?;
            c.preset = preset;
            preset.into_iter().for_each(|preset| preset.apply(c));
            Ok(())
        },
        ..setting! { Options, "as", f::PRESET, |c| c.preset,
        "Server of the literature whose policies to use" }
    }
    .flag("as")
    .unset("none", "\"userver\"")
    .details(
        "Sets model, I/O order, interest, accepts, events per wait, close, replies and timeouts as in its \
         paper. Other settings override it; --print-config prints the result. 'events' selects the \
         mechanism.",
    ),
    setting! { Options, "listen", f::ADDRESS, |c| c.server.event_loops.listen, "Address to listen on" }
        .common_flag("listen")
        .details("Port 0 selects a free port."),
    setting! { Options, "workers", f::IF_SET, |c| c.server.event_loops.workers,
    "Number of worker threads" }
    .common_flag("workers")
    .unset("by model: 1; hybrid: processors; pool: 64; threads: 1024", "2")
    .details(
        "Each worker has an event loop, a listening socket and a table of descriptors. The models \
         threads, pool and hybrid use one table, and so at most a tenth of the limit of open files \
         as threads.",
    ),
    setting! { Options, "events", f::NAME, |c| c.server.event_loops.events,
    "Event mechanism; 'hearken mechanisms' lists them" }
    .common_flag("events")
    .details("A name, with options as NAME:OPTION=VALUE."),
    setting! { Options, "model", f::MODEL, |c| c.server.event_loops.model,
    "Server model" }
    .flag("model")
    .only(SERVE)
    .details(
        "events: independent event loops. tasks: the same loops with a user-level thread per \
         connection. threads: a thread per connection, up to the number of workers; a thread ends \
         after 10 seconds without a connection. pool: a fixed number of threads, each with one \
         connection at a time. hybrid: event loops that distribute connections. A panic in a task or \
         thread closes only its own connection. At limits.connections, or when all threads have a \
         connection, the server closes the connection that has been idle longest for a new one. If \
         none is idle, new connections wait in the accept queue.",
    ),
    setting! { Options, "distribution", f::DISTRIBUTION, |c| c.server.event_loops.distribution,
    "Distribution of connections over the event loops of model hybrid" }
    .flag("distribution")
    .only(SERVE)
    .requires(hybrid)
    .details(
        "reuse-port: each loop has a listening socket, and the kernel selects one. hand-over: a \
         thread accepts and hands connections to the loop with the fewest. shared: all loops accept \
         from one socket. migrate: like reuse-port, and a loop with more than its share hands \
         connections over. hand-over and migrate move connections, which io_uring cannot do after \
         it has received from them.",
    ),
    list! { Options, "proxy-protocol", f::NETWORKS, |c| c.proxy_protocol,
    "Networks whose connections begin with a PROXY protocol header" }
    .flag("proxy-protocol")
    .unset("none", "[\"10.0.0.0/8\"]")
    .details(
        "ADDR, ADDR/BITS, all or none; separate several with commas. List only \
         proxies that you trust: the header sets the client address. Connections from \
         there without a header are closed.",
    ),
    setting! { Options, "http2", SWITCH, |c| c.server.http2,
    "HTTP/2 for clients that support it" }
    .details("Negotiated over TLS. Without TLS, clients begin with the preface of HTTP/2."),
    setting! { Options, "half-close", f::HALF_CLOSE, |c| c.server.half_close,
    "Action when a client half-closes the connection during its request" }
    .details("continue: send the response. abort: treat the client as disconnected."),
    setting! { Options, "static.cache", f::CACHE_BYTES, |c| c.site.max_cache_bytes,
    "Memory for cached files, per worker" }
    .common_flag("cache"),
    setting! { Options, "static.dotfiles", SWITCH, |c| c.site.dotfiles,
    "Serve files whose names begin with a dot" }
    .common_flag("dotfiles")
    .details("/.well-known/ is always served."),
    setting! { Options, "upstreams.balance", f::BALANCE, |c| c.upstreams.balance,
    "Load balancing method" }
    .common_flag("balance")
    .details("random-two uses the better of two random servers; hash is consistent hashing."),
    setting! { Options, "upstreams.keepalive", f::COUNT, |c| c.keepalive,
    "Idle connections kept open per upstream server" }
    .flag("keepalive")
    .details(
        "With --forward, the total of all servers. 0 opens a connection for each \
         request.",
    )
    .requires(always),
    setting! { Options, "upstreams.max-requests", f::OPTIONAL_POSITIVE,
    |c| c.upstreams.max_requests,
    "Maximum number of concurrent requests per upstream server" }
    .flag("max-requests")
    .details("Further requests wait in the queue (upstreams.queue)."),
    setting! { Options, "upstreams.queue", f::COUNT, |c| c.upstreams.max_queue,
    "Maximum number of queued requests (503)" }
    .details("Requests wait in the queue while all servers have their maximum of requests."),
    setting! { Options, "upstreams.max-attempts", f::POSITIVE32, |c| c.upstreams.max_attempts,
    "Maximum number of upstream servers to try per request" }
    .flag("max-attempts")
    .details("A request goes to another server only if no server can have received it."),
    setting! { Options, "upstreams.max-fails", f::COUNT32, |c| c.max_fails,
    "Consecutive failures that make a server unavailable; 0 turns this off" }
    .details(
        "Connection errors, timeouts, and responses with status 502, 503 or 504 are \
         failures.",
    ),
    setting! { Options, "upstreams.fail-timeout", f::TIMEOUT, |c| c.fail_timeout,
    "Time for which a failed server is unavailable" }
    .details("Afterwards the proxy tries the server with one request."),
    setting! { Options, "upstreams.slow-start", f::DURATION, |c| c.upstreams.slow_start,
    "Time in which a recovered server reaches its full weight" },
    setting! { Options, "upstreams.resolve-interval", f::DURATION, |c| c.upstreams.resolve_interval,
    "Interval of DNS lookups for server names; 0 turns repeated lookups off" },
    setting! { Options, "upstreams.send-proxy-protocol", f::SEND_PROXY_PROTOCOL,
    |c| c.upstreams.send_proxy_protocol,
    "PROXY protocol version sent to upstream servers" }
    .flag("send-proxy-protocol"),
    setting! { Options, "health.path", f::HEALTH_PATH, |c| c.health_path,
    "Path of health checks" }
    .common_flag("health-path")
    .requires(reverse)
    .details(
        "The proxy sends GET requests for this path to each server. With none, it \
         sends none.",
    ),
    setting! { Options, "health.interval", f::TIMEOUT, |c| c.health.interval,
    "Interval of health checks" }
    .common_flag("health-interval"),
    setting! { Options, "health.timeout", f::TIMEOUT, |c| c.health.timeout,
    "Timeout for a complete response to a health check" },
    setting! { Options, "health.host", f::HEALTH_HOST, |c| c.health.host,
    "Host of health checks" }
    .details("With none, the address of the server."),
    setting! { Options, "health.fall", f::POSITIVE32, |c| c.health.fall,
    "Consecutive failed checks that mark a server as down" },
    setting! { Options, "health.rise", f::POSITIVE32, |c| c.health.rise,
    "Consecutive successful checks that mark a server as up" },
    setting! { Options, "health.status", f::HEALTH_STATUS, |c| c.health.status,
    "Status code of a successful check" },
    Setting {
        is_path: true,
        ..setting! { Options, "upstream-tls.ca", f::OPTIONAL_FILE, |c| c.upstream_tls.ca,
        "PEM file with the authorities of upstream servers" }
    }
    .flag("upstream-ca")
    .unset("the authorities that the system trusts", "\"ca.pem\""),
    setting! { Options, "upstream-tls.name", f::HEALTH_HOST, |c| c.upstreams.tls_name,
    "Name of upstream servers that is sent (SNI) and verified" }
    .flag("upstream-name")
    .unset("the host of each server", "\"origin.example.org\""),
    Setting {
        is_path: true,
        ..setting! { Options, "upstream-tls.cert", f::OPTIONAL_FILE, |c| c.upstream_tls.cert,
        "PEM file with the certificate of the proxy for upstream servers" }
    }
    .flag("upstream-cert"),
    Setting {
        is_path: true,
        ..setting! { Options, "upstream-tls.key", f::OPTIONAL_FILE, |c| c.upstream_tls.key,
        "PEM file with the private key of that certificate" }
    }
    .flag("upstream-key")
    .unset("the file of the certificate", "\"key.pem\""),
    setting! { Options, "upstream-tls.min-version", f::TLS_VERSION, |c| c.upstream_tls.min_version,
    "Lowest version of TLS to upstream servers" },
    setting! { Options, "upstream-tls.http2", SWITCH, |c| c.upstreams.http2,
    "Offer HTTP/2 to upstream servers (ALPN)" },
    setting! { Options, "upstream-tls.insecure", SWITCH, |c| c.upstream_tls.insecure,
    "Skip certificate verification of upstream servers" }
    .flag("upstream-insecure"),
    list! { Options, "forward.allow", f::RULES, |c| c.forward.allow,
    "Servers that clients may connect to (repeatable)" }
    .flag("allow")
    .unset("all public addresses", "[\".example.org\", \"10.1.0.0/16\"]")
    .details(
        "ADDR, ADDR/BITS, NAME, or .DOMAIN for a domain and its subdomains. Addresses \
         of this host and of private networks must be allowed by address.",
    ),
    list! { Options, "forward.deny", f::RULES, |c| c.forward.deny,
    "Servers that clients may not connect to (repeatable)" }
    .flag("deny")
    .unset("none", "[\"secret.example.org\"]")
    .details("Same form as --allow, which it overrides."),
    list! { Options, "forward.connect-ports", f::PORTS,
    |c| c.forward.connect_ports,
    "Ports that CONNECT requests may use" }
    .unset("443", "[443]"),
    setting! { Options, "timeouts.header", f::TIMEOUT, |c| c.server.timeouts.header,
    "Request header timeout (408)" }
    .common_flag("header-timeout"),
    setting! { Options, "timeouts.body", f::TIMEOUT, |c| c.server.timeouts.body,
    "Period in which a request body must reach limits.min-rate (408)" },
    setting! { Options, "timeouts.upload", f::TIMEOUT, |c| c.server.timeouts.upload,
    "Timeout for a complete request body (408)" },
    setting! { Options, "timeouts.idle", f::TIMEOUT, |c| c.server.timeouts.keepalive,
    "Idle client connection timeout" }
    .common_flag("idle-timeout"),
    setting! { Options, "timeouts.send", f::TIMEOUT, |c| c.server.timeouts.send,
    "Period in which a client must receive at limits.min-rate" },
    setting! { Options, "timeouts.queue", f::TIMEOUT, |c| c.proxy.timeouts.queue,
    "Timeout for a request in the queue (503)" }
    .only(PROXY),
    setting! { Options, "timeouts.connect", f::TIMEOUT, |c| c.proxy.timeouts.connect,
    "Upstream connect timeout (504)" }
    .common_flag("connect-timeout")
    .only(PROXY)
    .details("Includes the DNS lookup."),
    setting! { Options, "timeouts.upstream-send", f::TIMEOUT, |c| c.proxy.timeouts.send,
    "Timeout between two writes of a request to an upstream server (504)" }
    .only(PROXY),
    setting! { Options, "timeouts.response", f::TIMEOUT, |c| c.proxy.timeouts.response_header,
    "Upstream response header timeout (504)" }
    .common_flag("response-timeout")
    .only(PROXY)
    .details("Measured from the end of the request."),
    setting! { Options, "timeouts.response-body", f::TIMEOUT, |c| c.proxy.timeouts.response_body,
    "Timeout between two reads of a response body" }
    .only(PROXY)
    .details("The proxy then closes the client connection."),
    setting! { Options, "timeouts.request", f::DURATION, |c| c.proxy.timeouts.request,
    "Total request timeout (504); 0 for none" }
    .flag("request-timeout")
    .only(PROXY)
    .details(
        "Includes the response. If the response has begun, the proxy closes the \
         client connection instead.",
    ),
    setting! { Options, "timeouts.tunnel", f::TIMEOUT, |c| c.proxy.timeouts.tunnel,
    "Timeout of idle tunnels" }
    .only(PROXY),
    setting! { Options, "timeouts.keepalive", f::TIMEOUT, |c| c.proxy.timeouts.keepalive,
    "Timeout of idle connections to upstream servers" }
    .only(PROXY),
    setting! { Options, "timeouts.shutdown", f::DURATION, |c| c.server.event_loops.shutdown_timeout,
    "Time for requests in progress after SIGTERM" },
    setting! { Options, "limits.connections", f::IF_SET, |c| c.server.event_loops.max_connections,
    "Maximum client connections" }
    .common_flag("max-connections")
    .unset("limit of open files", "10000"),
    setting! { Options, "limits.body", f::OPTIONAL_BYTES, |c| c.proxy.max_body_bytes,
    "Maximum size of a request body (413)" }
    .common_flag("max-body")
    .only(PROXY),
    setting! { Options, "limits.header", f::HEADER_BYTES, |c| c.server.limits.max_head_bytes,
    "Maximum size of a message header (431)" },
    setting! { Options, "limits.fields", f::FIELDS, |c| c.server.limits.max_fields,
    "Maximum number of header fields (431)" },
    setting! { Options, "limits.target", f::TARGET_BYTES, |c| c.server.limits.max_target_bytes,
    "Maximum size of a request target (414)" },
    setting! { Options, "limits.min-rate", f::BYTES, |c| c.server.min_rate,
    "Minimum transfer rate of a client, in bytes per second" }
    .details(
        "Applies to request bodies over timeouts.body, and to responses over \
         timeouts.send. With 0, one byte in that time is enough.",
    ),
    setting! { Options, "headers.via", f::VIA, |c| c.via, "Name of the proxy in Via, or none" }
        .flag("via")
        .unset("hearken- and 8 random hex digits", "\"edge-1\"")
        .details("Requests whose Via has this name are answered with 508 (Loop Detected)."),
    setting! { Options, "headers.x-forwarded", f::FORWARDING, |c| c.proxy.fields.x_forwarded,
    "X-Forwarded-For, -Proto and -Host sent to upstream servers" }
    .flag("x-forwarded")
    .details(
        "replace: discard the client's fields, set new ones. append: add to the \
         client's fields. keep: forward them unchanged. remove: forward none.",
    ),
    setting! { Options, "headers.forwarded", f::FORWARDING, |c| c.proxy.fields.forwarded,
    "Forwarded (RFC 7239) sent to upstream servers" },
    setting! { Options, "headers.host", f::KEEP_HOST, |c| c.proxy.fields.preserve_host,
    "Host sent to upstream servers" }
    .details("keep: the client's Host. upstream: the address of the server."),
    setting! { Options, "headers.client-subject", f::OPTIONAL_FIELD, |c| c.proxy.fields.client_subject,
    "Field for the subject of the client's certificate" }
    .requires(client_certificates)
    .details(
        "The subject in the form of RFC 4514. The proxy removes fields of clients with this name, \
         also from trailer sections.",
    ),
    Setting {
        is_path: true,
        ..setting! { Options, "log.file", f::OPTIONAL_FILE, |c| c.server.access_log,
        "Access log; - is standard output" }
    }
    .common_flag("access-log"),
    setting! { Options, "log.format", f::LOG_FORMAT, |c| c.server.log_format,
    "Access log format" }
    .flag("log-format"),
    Setting {
        is_path: true,
        ..list! { Options, "tls.cert", f::FILES, |c| c.tls.certs,
        "Serve over TLS, with the certificate in this PEM file (repeatable)" }
    }
    .flag("tls-cert")
    .unset("none: plain HTTP", "[\"cert.pem\"]")
    .details(
        "The certificates of its issuers follow the certificate. The name that a client requests \
         selects among several; the first is the default. SIGHUP reads the files again; if they are \
         invalid, the previous ones stay in use.",
    ),
    Setting {
        is_path: true,
        ..list! { Options, "tls.key", f::FILES, |c| c.tls.keys,
        "PEM file with the private key of a certificate (repeatable)" }
    }
    .flag("tls-key")
    .unset("the files of the certificates", "[\"key.pem\"]")
    .details("One for each certificate, in the same order."),
    setting! { Options, "tls.min-version", f::TLS_VERSION, |c| c.tls.min_version,
    "Lowest version of TLS" }
    .flag("tls-min-version"),
    Setting {
        is_path: true,
        ..list! { Options, "tls.ocsp", f::OPTIONAL_FILES, |c| c.tls.ocsp,
        "Files with OCSP responses to staple, in DER" }
    }
    .unset("none", "[\"none\", \"response.der\"]")
    .details("One for each certificate, in the same order, or none."),
    Setting {
        is_path: true,
        ..setting! { Options, "tls.client-ca", f::OPTIONAL_FILE, |c| c.tls.client_ca,
        "PEM file with the authorities that issue client certificates" }
    }
    .flag("tls-client-ca"),
    setting! { Options, "tls.client-auth", f::CLIENT_AUTH, |c| c.tls.client_auth,
    "Whether clients must have a certificate, with tls.client-ca" },
    Setting {
        is_path: true,
        ..setting! { Options, "tls.ticket-keys", f::OPTIONAL_FILE, |c| c.tls.ticket_keys,
        "File with keys of session tickets that several servers share" }
    }
    .flag("tls-ticket-keys")
    .unset("random keys", "\"ticket.keys\"")
    .details(
        "Lines of 32 or 80 bytes in Base64, or these bytes one after another. The first key encrypts, \
         all decrypt. Change the file to rotate them. Random keys rotate every 12 hours.",
    ),
    setting! { Options, "tls.redirect", f::OPTIONAL_ADDRESS, |c| c.server.redirect,
    "Address without TLS that redirects clients to the one with TLS" }
    .flag("redirect-to-https")
    .details("Answers all requests with 308. The admin address and health checks are not affected."),
    setting! { Options, "tls.hsts", f::OPTIONAL_DURATION, |c| c.server.hsts,
    "Time for which browsers must use TLS (Strict-Transport-Security)" }
    .flag("hsts")
    .unset("none", "\"8760h\"")
    .details("In all responses over TLS, except those of an upstream server that have the field."),
    setting! { Options, "admin.listen", f::OPTIONAL_ADDRESS, |c| c.server.admin,
    "Address for metrics and control over HTTP" }
    .common_flag("admin")
    .details("This address has no access control."),
    setting! { Options, "experiments.io", f::ORDER, |c| c.server.event_loops.order,
    "Try a system call first, or wait for readiness first" }
    .placeholder("try-first|wait-first|wait-to-receive"),
    setting! { Options, "experiments.interest", f::INTEREST, |c| c.server.event_loops.interest,
    "Policy for changing the interest in a connection" }
    .placeholder("when-needed|every-state|once"),
    setting! { Options, "experiments.accept-limit", f::ACCEPT_LIMIT,
    |c| c.server.event_loops.accept_limit,
    "Connections accepted per event" },
    setting! { Options, "experiments.batch", f::POSITIVE, |c| c.server.event_loops.batch,
    "Maximum number of events per wait" },
    setting! { Options, "experiments.close", f::CLOSE, |c| c.server.event_loops.close,
    "Revoke interest by closing a connection, or explicitly before" }
    .placeholder("implicit|explicit"),
    setting! { Options, "experiments.memory-file", f::CACHE_BYTES, |c| c.site.max_cached_file_bytes,
    "Maximum size of a file that is sent from memory; others use sendfile(2)" }
    .only(SERVE),
    setting! { Options, "experiments.cork", SWITCH, |c| c.server.event_loops.cork,
    "Set TCP_CORK around a header and sendfile(2)" }
    .only(SERVE),
    setting! { Options, "experiments.timeouts", f::TIMERS, |c| c.server.event_loops.timers,
    "Find expired timeouts by a timing wheel, or by a scan of all connections" }
    .placeholder("wheel|scan"),
    setting! { Options, "experiments.rt-queue", f::SIGNALS, |c| c.rt_queue,
    "Maximum number of queued signals (RLIMIT_SIGPENDING)" }
    .unset("unchanged", "1024"),
    setting! { Options, "experiments.defer-accept", f::DURATION, |c| c.server.event_loops.defer_accept,
    "Time to wait for data before a connection is accepted (TCP_DEFER_ACCEPT)" }
    .details("Rounded to seconds by the kernel."),
    setting! { Options, "experiments.meter-waits", SWITCH, |c| c.server.event_loops.measure_waits,
    "Measure waits for events, and print statistics at exit" }
    .details(
        "CPU time, useful waits, events per wait and accepts per wait. The metrics at admin.listen \
         contain them.",
    ),
    setting! { Options, "experiments.splice", SWITCH, |c| c.proxy.splice,
    "Move bodies and tunnels within the kernel (splice)" }
    .only(PROXY),
];
