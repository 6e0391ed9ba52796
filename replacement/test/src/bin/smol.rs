//! Exercises smol and async-io: TCP, Unix sockets, timers, processes and threads.

use std::time::Duration;

use smol::future::FutureExt;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};
use smol::{Timer, future};

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
    }
}

async fn exercise() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    smol::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            smol::spawn(echo(stream)).detach();
        }
    })
    .detach();
    let clients: Vec<_> = (0..20).map(|seed| smol::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        for round in 0..20_u8 {
            let data = vec![seed ^ round; 1 + usize::from(round) * 500];
            stream.write_all(&data).await.unwrap();
            let mut back = vec![0; data.len()];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, data);
        }
        let data = vec![seed; 1 << 20];
        let (mut reader, mut writer) = (stream.clone(), stream);
        let mut back = vec![0; data.len()];
        let (sent, received) = future::zip(writer.write_all(&data), reader.read_exact(&mut back)).await;
        sent.unwrap();
        received.unwrap();
        assert_eq!(back, data);
    })).collect();
    for client in clients {
        client.await;
    }
    let output = smol::process::Command::new("echo").arg("hello").output().await.unwrap();
    assert_eq!(output.stdout, b"hello\n");
    let timeout = async {
        Timer::after(Duration::from_millis(5)).await;
        false
    };
    assert!(!future::pending::<bool>().or(timeout).await);
}

fn main() {
    smol::block_on(exercise());
    println!("ok");
}
