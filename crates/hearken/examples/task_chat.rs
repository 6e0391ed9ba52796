//! A chat server: each line of a client goes to all others. Each client has a task that reads and one
//! that writes, with a channel between them.
//!
//! `cargo run --example task_chat -- [IO [ADDR:PORT]]`

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use hearken::task::{self, Receiver, Sender, TcpListener, TcpStream, bounded};

/// Maximum number of lines that wait for a client.
const MAX_WAITING: usize = 64;
/// Maximum length of a line in bytes.
const MAX_LINE: usize = 1024;

/// The clients, by number.
type Room = Rc<RefCell<BTreeMap<usize, Sender<Rc<[u8]>>>>>;

async fn write_lines(stream: TcpStream, mut lines: Receiver<Rc<[u8]>>) -> io::Result<()> {
    while let Some(line) = lines.receive().await {
        stream.write_all(&line).await?;
    }
    stream.shutdown().await
}

async fn read_lines(stream: TcpStream, room: &Room, number: usize) -> io::Result<()> {
    let mut pending = Vec::new();
    loop {
        let bytes = stream.receive().await?;
        if bytes.is_empty() {
            return Ok(());
        }
        pending.extend_from_slice(&bytes);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let line: Rc<[u8]> = [format!("{number}: ").as_bytes(), &line].concat().into();
            // A client that does not read its lines is dropped, rather than holding up the others.
            room.borrow_mut().retain(|other, client| {
                *other == number || client.try_send(Rc::clone(&line)).is_ok()
            });
        }
        if pending.len() > MAX_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

/// Serves until accepting fails.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let room = Room::default();
    for number in 1.. {
        let stream = listener.accept().await?;
        let (sender, lines) = bounded(MAX_WAITING);
        room.borrow_mut().insert(number, sender);
        task::spawn(write_lines(stream.clone(), lines));
        let room = Rc::clone(&room);
        task::spawn(async move {
            let result = read_lines(stream, &room, number).await;
            room.borrow_mut().remove(&number);
            result
        });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let io = args.next().unwrap_or_else(|| "auto".to_owned());
    let address: SocketAddr = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    task::block_on(&io, async move {
        let listener = TcpListener::bind(address)?;
        writeln!(io::stdout(), "listening on {}", listener.local_addr()?)?;
        serve(listener).await
    })??;
    Ok(())
}
