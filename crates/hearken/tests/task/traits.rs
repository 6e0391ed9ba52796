//! The traits of other crates.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hearken::io::Relay;
use hearken::task::hyper::{TaskExecutor, TaskTimer};
use hearken::task::{self, TcpListener, TcpStream};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::Case;
use crate::net::{loopback, pair, receive_all, run};

/// Checks reads, writes and the close by futures-io.
pub(crate) fn futures_io_traits_work<I: Relay + 'static>(case: &Case<'_, I>) {
    use futures_io::{AsyncRead, AsyncWrite};
    run(case, async {
        let (mut client, mut server) = pair().await;
        let written = poll_fn(|cx| {
            let client = Pin::new(&mut client);
            AsyncWrite::poll_write_vectored(client, cx, &[std::io::IoSlice::new(b"bytes")])
        });
        assert_eq!(written.await.unwrap(), 5);
        poll_fn(|cx| AsyncWrite::poll_flush(Pin::new(&mut client), cx)).await.unwrap();
        poll_fn(|cx| AsyncWrite::poll_close(Pin::new(&mut client), cx)).await.unwrap();
        let mut all = Vec::new();
        let mut buffer = [0; 3];
        loop {
            let read = poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut server), cx, &mut buffer));
            match read.await.unwrap() {
                0 => break,
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
        assert_eq!(all, b"bytes");
    });
}

/// Checks reads, writes and the shutdown by tokio's traits.
pub(crate) fn tokio_traits_work<I: Relay + 'static>(case: &Case<'_, I>) {
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    run(case, async {
        let (mut client, mut server) = pair().await;
        let written =
            poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut client), cx, b"bytes")).await;
        assert_eq!(written.unwrap(), 5);
        poll_fn(|cx| AsyncWrite::poll_shutdown(Pin::new(&mut client), cx)).await.unwrap();
        let mut memory = [0; 16];
        let mut buffer = ReadBuf::new(&mut memory);
        let mut before = usize::MAX;
        while buffer.filled().len() != before {
            before = buffer.filled().len();
            poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut server), cx, &mut buffer))
                .await
                .unwrap();
        }
        assert_eq!(buffer.filled(), b"bytes");
    });
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    task::sleep(Duration::from_millis(1)).await;
    Ok(Response::new(Full::new(Bytes::from_static(b"Hello, World!"))))
}

/// Checks a server of hyper, with its timers and tasks.
pub(crate) fn hyper_serves_requests<I: Relay + 'static>(case: &Case<'_, I>) {
    run(case, async {
        let listener = TcpListener::bind(loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        TaskExecutor.execute(async move {
            let stream = listener.accept().await.unwrap();
            http1::Builder::new()
                .timer(TaskTimer)
                .header_read_timeout(Duration::from_millis(50))
                .serve_connection(stream, service_fn(hello))
                .await
                .unwrap_err();
        });
        let stream = TcpStream::connect(address).await.unwrap();
        for _ in 0..3 {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
        }
        // The timeout of the next head ends the connection.
        let text = String::from_utf8(receive_all(&stream).await).unwrap();
        assert_eq!(text.matches("Hello, World!").count(), 3, "{text}");
    });
}
