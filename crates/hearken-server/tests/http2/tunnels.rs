//! CONNECT, and extended CONNECT for WebSockets (RFC 8441).

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use hearken_server::proxy::config::{Forward, ProxyMode, Rule};
use http::{Method, Request, Response};
use tungstenite::handshake::derive_accept_key;

use crate::client::{connect, exchange, request, run};
use crate::common::{Origin, Peer, Setup, Site};

/// Echoes all bytes of a tunnel in capitals.
fn echo(peer: &mut Peer) {
    loop {
        let bytes = peer.connection.read_raw(1);
        if bytes.is_empty() {
            return;
        }
        peer.connection.send(bytes.to_ascii_uppercase());
    }
}

/// Returns a request for a WebSocket.
fn websocket() -> Request<()> {
    let mut request = request("CONNECT", "/chat");
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
    request
}

/// Sends bytes through a tunnel, and closes it.
async fn use_tunnel(mut send: SendStream<Bytes>, response: Response<RecvStream>) {
    assert_eq!(response.status(), 200);
    let mut receive = response.into_body();
    for (sent, received) in [("hello", "HELLO"), ("again", "AGAIN")] {
        send.send_data(Bytes::from(sent), false).unwrap();
        let mut got = Vec::new();
        while got.len() < received.len() {
            let data = receive.data().await.unwrap().unwrap();
            receive.flow_control().release_capacity(data.len()).unwrap();
            got.extend_from_slice(&data);
        }
        assert_eq!(got, received.as_bytes());
    }
    send.send_data(Bytes::new(), true).unwrap();
    while let Some(data) = receive.data().await {
        assert!(data.unwrap().is_empty(), "only the end follows");
    }
}

/// Returns a response that accepts a WebSocket.
fn switching(accept: &str) -> String {
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ";
    format!("HTTP/1.1 101 Switching Protocols\r\n{fields}{accept}\r\n\r\n")
}

#[test]
fn require_proof_that_the_server_accepted_a_websocket() {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.connection.send(switching("x"));
    });
    let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |_| {});
    run(async {
        let mut send = connect(proxy.addr()).await;
        let mut options = request("OPTIONS", "/");
        options.headers_mut().insert("max-forwards", 0.into());
        exchange(&mut send, options, &[]).await.unwrap();
        send = send.ready().await.unwrap();
        let reply = exchange(&mut send, websocket(), &[]).await.unwrap();
        assert_eq!(reply.status, 502);
    });
}

#[test]
fn carry_websockets() {
    for setup in [Setup::named("epoll-edge"), Setup::tasks("epoll-edge")] {
        let origin = Origin::new(|mut peer| {
            let request = peer.request().unwrap();
            assert_eq!(request.start, "GET /chat HTTP/1.1");
            assert_eq!(request.field("upgrade").unwrap(), "websocket");
            assert_eq!(request.field("sec-websocket-key").unwrap().len(), 24);
            let accept = derive_accept_key(request.field("sec-websocket-key").unwrap().as_bytes());
            peer.connection.send(switching(&accept));
            echo(&mut peer);
        });
        let proxy = setup.proxy(&[origin.addr()], |_| {});
        run(async {
            let mut send = connect(proxy.addr()).await;
            // The settings arrive with the first response. The proxy gives this one itself.
            let mut options = request("OPTIONS", "/");
            options.headers_mut().insert("max-forwards", 0.into());
            exchange(&mut send, options, &[]).await.unwrap();
            send = send.ready().await.unwrap();
            assert!(send.is_extended_connect_protocol_enabled());
            let (response, body) = send.send_request(websocket(), false).unwrap();
            let response = response.await.unwrap();
            assert!(!response.headers().contains_key("sec-websocket-accept"));
            use_tunnel(body, response).await;
        });
    }
}

#[test]
fn are_refused_without_a_switch_of_protocols() {
    let origin = Origin::responding(|_| "no WebSocket".to_owned());
    let proxy = Setup::named("epoll-edge").proxy(&[origin.addr()], |_| {});
    run(async {
        let mut send = connect(proxy.addr()).await;
        exchange(&mut send, request("GET", "/"), &[]).await.unwrap();
        let reply = exchange(&mut send, websocket(), &[]).await.unwrap();
        assert_eq!((reply.status, reply.content.len()), (501, 0));
        exchange(&mut send, request("GET", "/"), &[]).await.unwrap();
    });
}

#[test]
fn are_not_offered_for_files() {
    let site = Site::new();
    let server = Setup::named("epoll-edge").serve(&site, |_| {});
    run(async {
        let mut send = connect(server.addr()).await;
        exchange(&mut send, request("GET", "/small"), &[]).await.unwrap();
        assert!(!send.is_extended_connect_protocol_enabled());
    });
}

#[test]
fn connect_through_a_forward_proxy() {
    let origin = Origin::new(|mut peer| echo(&mut peer));
    let forward = Forward {
        allow: vec![Rule::Network([127, 0, 0, 0].into(), 8)],
        connect_ports: vec![origin.addr().port()],
        ..Forward::default()
    };
    let proxy = Setup::named("epoll-edge").proxy_to(ProxyMode::Forward(forward), |_| {});
    run(async {
        let mut send = connect(proxy.addr()).await;
        let request = Request::builder().method(Method::CONNECT).uri(origin.addr().to_string());
        let (response, body) = send.send_request(request.body(()).unwrap(), false).unwrap();
        use_tunnel(body, response.await.unwrap()).await;
    });
}
