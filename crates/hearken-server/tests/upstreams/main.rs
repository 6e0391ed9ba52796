//! The servers behind a reverse proxy: which gets a request, who is left out, what their names are.

mod fairness;
mod health;
mod passive;
mod resolver;
mod sharing;
mod states;
mod support;
