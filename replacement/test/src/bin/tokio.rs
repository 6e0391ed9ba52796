//! Exercises tokio: TCP, UDP, Unix sockets, timers, processes, signals and threads.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
    }
}

async fn exercise() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(echo(stream));
        }
    });
    let clients: Vec<_> = (0..20).map(|seed| tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        for round in 0..20_u8 {
            let data = vec![seed ^ round; 1 + usize::from(round) * 500];
            stream.write_all(&data).await.unwrap();
            let mut back = vec![0; data.len()];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, data);
        }
        let data = vec![seed; 1 << 20];
        let (mut reader, mut writer) = stream.split();
        let mut back = vec![0; data.len()];
        let (sent, received) = tokio::join!(writer.write_all(&data), reader.read_exact(&mut back));
        sent.unwrap();
        received.unwrap();
        assert_eq!(back, data);
        writer.shutdown().await.unwrap();
        assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 0);
    })).collect();
    for client in clients {
        client.await.unwrap();
    }
    assert!(TcpStream::connect("127.0.0.1:1").await.is_err());

    let (one, two) = (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
    one.send_to(b"datagram", two.local_addr().unwrap()).await.unwrap();
    assert_eq!(two.recv(&mut [0; 16]).await.unwrap(), 8);

    let (mut one, mut two) = UnixStream::pair().unwrap();
    let reading = tokio::spawn(async move { two.read_u32().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(5)).await;
    one.write_u32(7).await.unwrap();
    assert_eq!(reading.await.unwrap(), 7);

    let output = Command::new("echo").arg("hello").output().await.unwrap();
    assert_eq!(output.stdout, b"hello\n");

    let mut signals = signal(SignalKind::user_defined1()).unwrap();
    let status = Command::new("kill").arg("-USR1").arg(std::process::id().to_string()).status();
    assert!(status.await.unwrap().success());
    signals.recv().await.unwrap();

    let waiting = tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>());
    assert!(waiting.await.is_err());
}

fn main() {
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(exercise());
    }
    println!("ok");
}
