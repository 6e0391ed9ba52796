//! x
use hearken_server::proxy::config::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let servers = a[3..].iter().map(|s| Server::new(Address::Inet(s.parse().unwrap()))).collect();
    let mut c = Config::new(To::Upstreams(Upstreams::new(servers)));
    c.listen = a[1].parse().unwrap();
    c.events = a[2].clone();
    if let Ok(l) = std::env::var("LOG") {
        c.access_log = Some("-".into());
        c.log_format = if l == "json" { LogFormat::Json } else { LogFormat::Combined };
    }
    if std::env::var("NOKEEP").is_ok() {
        if let To::Upstreams(u) = &mut c.to {
            u.keep = 0;
        }
    }
    c.on_limit = |m| eprintln!("{m}");
    let s = hearken_server::proxy::start(&c).unwrap();
    eprintln!("on {} {}", s.addr(), s.events());
    s.wait().unwrap();
}
