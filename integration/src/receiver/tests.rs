//! The receiver against a plain socket: what it keeps and how it answers.

use std::io::{Read as _, Write as _};

use super::*;

fn sent(receiver: &Receiver, text: &str) -> String {
    let mut stream = TcpStream::connect(receiver.address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\n{{}}")
}

#[test]
fn a_request_is_kept_as_it_came() {
    let receiver = Receiver::start().unwrap();
    assert!(sent(&receiver, &post("/a")).starts_with("HTTP/1.1 200"));
    let [request] = &receiver.deliveries("/a")[..] else { panic!("one request") };
    assert_eq!(request.lines("X-a"), [b"1", b"2"]);
    assert_eq!((request.text("x-a"), request.text("Host")), (None, Some("x")));
    assert_eq!((request.method.as_str(), request.body.as_slice()), ("POST", &b"{}"[..]));
}

#[test]
fn a_script_is_followed_request_by_request_and_its_last_line_goes_on() {
    let receiver = Receiver::start().unwrap();
    let elsewhere = Behaviour::Redirect("http://other/".into());
    receiver.script("/a", &[Behaviour::Answer(500), Behaviour::Close, elsewhere]);
    assert!(sent(&receiver, &post("/a")).starts_with("HTTP/1.1 500"));
    assert_eq!(sent(&receiver, &post("/a")), "");
    for _ in 0..2 {
        assert!(sent(&receiver, &post("/a")).contains("Location: http://other/"));
    }
    assert!(sent(&receiver, &post("/b")).starts_with("HTTP/1.1 200"));
}

#[test]
fn several_requests_of_one_connection_are_kept_apart() {
    let receiver = Receiver::start().unwrap();
    let answers = sent(&receiver, &(post("/a") + &post("/a?x=1")));
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2);
    assert_eq!(receiver.requests().len(), 2);
}

#[test]
fn a_delay_comes_before_its_answer_and_a_hang_ends_with_the_sender() {
    let receiver = Receiver::start().unwrap();
    let pause = Duration::from_millis(50);
    receiver.script("/a", &[Behaviour::After(pause, Box::new(Behaviour::Answer(204)))]);
    let began = wait::instant();
    let mut stream = TcpStream::connect(receiver.address).unwrap();
    stream.write_all(post("/a").as_bytes()).unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 204");
    assert!(began.elapsed() >= pause);
    receiver.script("/h", &[Behaviour::Hang]);
    assert_eq!(sent(&receiver, &post("/h")), "");
}
