//! Listening sockets: one public address shared by all shards, and with `--shard-ports` one more per shard.
//!
//! All are bound before any shard accepts, so that the kernel spreads connections over all of them from the first.
//! `SO_REUSEPORT` alone would let a second server of the same user share the port silently: so the first socket is bound
//! without it, which fails when anyone listens there, and only then lets the others join.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::node::exit::{Exit, Failure};

/// Connections that wait to be accepted, per socket.
const BACKLOG: i32 = 4096;
/// How often a free port is looked for that has free ports for the shards after it (`--listen HOST:0 --shard-ports`).
const PORT_ATTEMPTS: usize = 32;

/// Bound and listening sockets.
pub struct Listeners {
    /// The public address, with the port that was chosen if 0 was asked for.
    pub address: SocketAddr,
    /// For each shard the public socket, then its own, if any.
    pub by_shard: Vec<Vec<TcpListener>>,
}

/// Binds everything for `shards` shards.
pub fn listen(address: SocketAddr, shards: usize, shard_ports: bool) -> Result<Listeners, Failure> {
    let own_ports = if shard_ports { shards } else { 0 };
    if usize::from(address.port()) + own_ports > usize::from(u16::MAX) {
        let message =
            format!("--shard-ports: port {} leaves no room for {shards} ports after it", address.port());
        return Err(Failure::new(Exit::Usage, message));
    }
    let attempts = if address.port() == 0 && shard_ports { PORT_ATTEMPTS } else { 1 };
    for attempt in 1.. {
        match try_listen(address, shards, own_ports) {
            Err(failure) if attempt >= attempts => return Err(failure),
            Err(_) => {}
            done => return done,
        }
    }
    unreachable!("the loop returns at the last attempt")
}

fn try_listen(address: SocketAddr, shards: usize, own_ports: usize) -> Result<Listeners, Failure> {
    let public = |address| public_sockets(address, shards).map_err(|error| refused(address, &error));
    let sockets = public(address)?;
    let bound = sockets[0].local_addr().ok().and_then(|bound| bound.as_socket());
    let bound = bound.expect("a bound TCP socket has an address");
    let mut by_shard: Vec<Vec<TcpListener>> = sockets.into_iter().map(|socket| vec![socket.into()]).collect();
    for (shard, listeners) in by_shard.iter_mut().enumerate().take(own_ports) {
        let mut own = bound;
        let port = usize::from(bound.port()) + 1 + shard;
        own.set_port(
            u16::try_from(port).map_err(|_| refused(bound, &io::ErrorKind::AddrNotAvailable.into()))?,
        );
        let socket = exclusive(own).and_then(|socket| socket.listen(BACKLOG).map(|()| socket));
        listeners.push(socket.map_err(|error| refused(own, &error))?.into());
    }
    Ok(Listeners { address: bound, by_shard })
}

/// One socket per shard on the same address.
fn public_sockets(address: SocketAddr, shards: usize) -> io::Result<Vec<Socket>> {
    let first = exclusive(address)?;
    let bound = first.local_addr()?;
    first.set_reuse_port(true)?;
    let mut sockets = vec![first];
    for _ in 1..shards {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&bound)?;
        sockets.push(socket);
    }
    // Only now: until the last one is bound, a second server would still be refused at its own first bind.
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok(sockets)
}

/// A socket bound to an address that nobody listens on.
fn exclusive(address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A non-blocking socket, closed on exec. `SO_REUSEADDR` only means that old connections do not block the port.
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn refused(address: SocketAddr, error: &io::Error) -> Failure {
    let message = match error.kind() {
        io::ErrorKind::AddrInUse => format!("{address} is in use: another process listens there"),
        io::ErrorKind::AddrNotAvailable => format!("{address} is not an address of this machine"),
        io::ErrorKind::PermissionDenied => format!("{address}: this user may not listen on that port"),
        _ => format!("cannot listen on {address}: {error}"),
    };
    Failure::new(Exit::Address, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpStream;

    use super::*;

    const ANY: &str = "127.0.0.1:0";

    #[test]
    fn all_shards_share_one_address_and_connections_spread() {
        let listeners = listen(ANY.parse().unwrap(), 4, false).unwrap();
        assert_ne!(listeners.address.port(), 0);
        let mut open = Vec::new();
        let mut reached = BTreeSet::new();
        while reached.len() < 4 {
            assert!(open.len() < 1000, "1000 connections reached {reached:?} only");
            open.push(TcpStream::connect(listeners.address).unwrap());
            for (shard, sockets) in listeners.by_shard.iter().enumerate() {
                assert_eq!(sockets.len(), 1);
                if let Ok((stream, _)) = sockets[0].accept() {
                    reached.insert(shard);
                    open.push(stream);
                }
            }
        }
    }

    #[test]
    fn a_second_server_is_refused() {
        for shards in [1, 2] {
            let listeners = listen(ANY.parse().unwrap(), shards, false).unwrap();
            for others in [1, 2] {
                let refused = listen(listeners.address, others, false).err().expect("the port is in use");
                assert_eq!(refused.code, Exit::Address.code());
                assert!(refused.message.contains("is in use"), "{refused}");
            }
            drop(listeners.by_shard);
            listen(listeners.address, shards, false).unwrap();
        }
    }

    #[test]
    fn each_shard_has_its_own_port_when_asked() {
        let listeners = listen(ANY.parse().unwrap(), 3, true).unwrap();
        for (shard, sockets) in listeners.by_shard.iter().enumerate() {
            let port = |socket: &TcpListener| usize::from(socket.local_addr().unwrap().port());
            assert_eq!(port(&sockets[0]), usize::from(listeners.address.port()));
            assert_eq!(port(&sockets[1]), usize::from(listeners.address.port()) + 1 + shard);
        }
        let own = listeners.by_shard[1][1].local_addr().unwrap();
        assert_eq!(listen(own, 1, false).err().expect("in use").code, Exit::Address.code());
    }

    #[test]
    fn addresses_that_cannot_be_bound() {
        let table =
            [("127.0.0.1:65530", 8, true, Exit::Usage), ("203.0.113.1:4437", 1, false, Exit::Address)];
        for (address, shards, shard_ports, exit) in table {
            let refused = listen(address.parse().unwrap(), shards, shard_ports).err().expect(address);
            assert_eq!(refused.code, exit.code(), "{refused}");
        }
    }
}
