//! The native part of the Python package `hearken`.

use pyo3::prelude::*;

mod convert;
mod driver;
mod owned;
mod poller;
mod transport;

#[pymodule(gil_used = true)]
mod _hearken {
    #[pymodule_export]
    use crate::driver::{Driver, after_fork};
    #[pymodule_export]
    use crate::poller::{Poller, mechanisms};
    #[pymodule_export]
    use crate::transport::Transport;
}
