//! The servers of the literature, as values of settings.

use std::num::{NonZeroU32, NonZeroUsize};

use hearken::io::readiness::{ClosePolicy, InterestPolicy, Order};
use hearken::timer::TimerPolicy;
use hearken_server::Model;

use super::Options;

/// A server of the literature, without its mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Preset {
    /// The server of Gammo, Brecht, Shukla and Pariag (OLS 2004).
    Userver,
    /// The server of Chandra and Mosberger (USENIX 2001).
    Microserver,
    /// The server of Liu and Chen (2004).
    Dphttpd,
    /// The proxy of Banga, Mogul and Druschel (USENIX 1999).
    BmdProxy,
}

impl Preset {
    /// Sets the policies that the paper states. Other settings keep their values.
    pub(super) fn apply(self, options: &mut Options) {
        let loops = &mut options.server.event_loops;
        loops.interest = InterestPolicy::EveryState;
        match self {
            // Section 4: sendfile and TCP_CORK, accept-limit Inf. Section 5 and Table 1: epoll_ctl
            // once for each accepted and once for each closed connection.
            Preset::Userver => {
                loops.order = Order::WaitToReceive;
                loops.accept_limit = None;
                loops.close = ClosePolicy::Explicit;
                loops.cork = true;
                options.site.max_cached_file_bytes = 0;
            }
            // Section 3: one accept per event. With accept-limit=all, it is the server with
            // multi-accept (Section 4.2).
            Preset::Microserver => {
                loops.order = Order::WaitFirst;
                loops.accept_limit = Some(NonZeroU32::MIN);
            }
            // Section 5: event threads, replies from memory, multi-accept, time stamps of all
            // connections. Its threads make a call, and wait if it would block.
            Preset::Dphttpd => {
                loops.model = Model::Tasks;
                loops.order = Order::TryFirst;
                loops.accept_limit = None;
                loops.timers = TimerPolicy::Scan;
            }
            // Section 7: a connection to the origin for each request. Section 7.2: at most 10
            // events per call.
            Preset::BmdProxy => {
                loops.order = Order::WaitFirst;
                loops.batch = const { NonZeroUsize::new(10).unwrap() };
                options.keepalive = 0;
                options.proxy.splice = false;
            }
        }
    }
}
