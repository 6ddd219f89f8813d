//! Networking.
use std::collections::{HashMap, hash_map::Entry as E};
use crate::config::Config;
use super::util::*;

mod socket;

/// How many.
pub const MAX: usize = 10;

/// A client. It talks.
#[derive(Debug, Clone)]
pub struct Client<T> {
    map: HashMap<String, T>,
}

pub trait Send: Clone + fmt::Debug {
    /// Sends.
    fn send(&self, x: u8) -> Result<()>;
    fn twice(&self) { self.send(1); }
}

impl<T> Client<T> {
    /// Makes one.
    #[inline]
    pub fn new(config: Config) -> Self {
        let c = Config::load();
        Self::helper();
        connect(c)
    }

    fn helper() {}
}

impl<T> Send for Client<T> {
    fn send(&self, x: u8) -> Result<()> { self.map.get(x); Ok(()) }
}

fn connect(c: Config) -> Client<u8> {
    crate::log::info!("x");
    Client::new(c)
}

macro_rules! square {
    ($x:expr) => { $x * $x };
}

enum State { Open, Closed }
type Alias = Client<u8>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works() { connect(Config::load()); }
}
