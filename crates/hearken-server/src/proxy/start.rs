//! Starting a proxy: its workers, and what runs beside them.

use std::net::SocketAddr;

/// What runs beside the workers, and ends after them.
#[derive(Debug)]
pub(crate) struct Beside {
    admin: Option<SocketAddr>,
}

impl Beside {
    pub(crate) fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }
}
