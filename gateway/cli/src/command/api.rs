//! `zgate api`: one request to the HTTP API of a running gateway.

use clap::{Args, ValueEnum};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zgate_gateway::admin::connect;

/// Time limit of an answer. The gateway's own is shorter.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer, in bytes: a page has at most a thousand items.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Longest body read from standard input, in bytes.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Method {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Arguments of `zgate api`.
#[derive(Args, Debug)]
pub(crate) struct ApiArgs {
    /// Method of the request
    #[arg(value_enum, ignore_case = true)]
    method: Method,
    /// Path below /api/v1, such as volumes or /api/v1/volumes; an id in it is
    /// percent-encoded (tank%2Fk8s%2Fa)
    path: String,
    /// Body of the request as JSON; "-" reads it from standard input
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
    /// The gateway's API socket
    #[arg(long, value_name = "PATH", default_value = "/run/zgate/api.sock")]
    socket: PathBuf,
}

/// Sends the request and prints the answer. False: the gateway answered with an
/// error, which is printed.
///
/// # Errors
/// The socket and the next step, or an answer that is not HTTP.
pub(crate) fn run(args: &ApiArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let path = match args.path.starts_with('/') {
        true => args.path.clone(),
        false => format!("/api/v1/{}", args.path),
    };
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{path}: encode what is not a visible ASCII character as %XX").into());
    }
    let mut body = args.data.clone().unwrap_or_default();
    if body == "-" {
        body.clear();
        io::stdin().take(MAX_BODY_BYTES).read_to_string(&mut body)?;
    }
    let answer = send(&args.socket, args.method, &path, &body)?;
    let text = String::from_utf8_lossy(&answer.body);
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(value) => println!("{}", serde_json::to_string_pretty(&value)?),
        Err(_) if text.is_empty() => {}
        Err(_) => println!("{}", text.trim_end()),
    }
    Ok(answer.status < 400)
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    body: Vec<u8>,
}

fn send(socket: &Path, method: Method, path: &str, body: &str) -> io::Result<Answer> {
    let mut stream = connect(socket).map_err(|error| {
        let reason = format!(
            "cannot reach the API at {}: {error}; start a gateway as root, or pass its api.socket \
             with --socket",
            socket.display()
        );
        io::Error::new(error.kind(), reason)
    })?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let head = format!(
        "{} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        method.name(),
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    parse(&answer).ok_or_else(|| {
        io::Error::other(format!(
            "the answer of {} is not HTTP, or was cut off; pass the gateway's api.socket with \
             --socket",
            socket.display()
        ))
    })
}

/// Splits an answer; none if it is not a whole one.
fn parse(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = answer[end + 4..].to_vec();
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())
    });
    match length {
        Some(length) if length != Some(body.len()) => None,
        _ => Some(Answer { status, body }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_none() {
        let text = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(text), Some(Answer { status: 201, body: b"{}".to_vec() }));
        assert_eq!(parse(&text[..text.len() - 1]), None);
        assert_eq!(parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().status, 204);
        assert_eq!(parse(b"SSH-2.0\r\n\r\n"), None);
    }
}
