//! A headless Chromium, driven over the pipes of its DevTools protocol.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Headless, and without requests of the browser's own.
const OPTIONS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one page.
pub(super) struct Chromium {
    child: Child,
    calls: File,
    messages: Receiver<Value>,
    /// Events of the page so far.
    pub(super) events: Vec<Value>,
    session: Option<String>,
    count: u64,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts it with an empty profile.
    ///
    /// # Errors
    /// If it does not start or answer.
    pub(super) fn start(log: &Path) -> io::Result<Self> {
        let profile = tempfile::tempdir()?;
        let pipe = |name: &str| {
            let path = profile.path().join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // For both directions: opening does not wait for the other end.
            File::options().read(true).write(true).open(&path).map(|file| (path, file))
        };
        let ((calls_at, calls), (answers_at, answers)) = (pipe("calls")?, pipe("answers")?);
        let log = File::create(log)?;
        // It takes calls from descriptor 3 and answers at 4.
        let child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<\"$0\" 4>\"$ANSWERS\""])
            .arg(&calls_at)
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .env("ANSWERS", &answers_at)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            calls,
            messages,
            events: Vec::new(),
            session: None,
            count: 0,
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method; returns its result.
    ///
    /// # Errors
    /// The method's error, or its name if there is no answer.
    pub(super) fn call(&mut self, method: &str, params: Value) -> io::Result<Value> {
        self.count += 1;
        let id = self.count;
        let mut call = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        self.calls.write_all(call.to_string().as_bytes())?;
        self.calls.write_all(&[0])?;
        let silent = || io::Error::other(format!("chromium does not answer {method}"));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).map_err(|_| silent())?;
            if message["id"] != id {
                self.events.push(message);
                continue;
            }
            if let Some(error) = message.get("error") {
                return Err(io::Error::other(format!("{method}: {error}")));
            }
            return Ok(message["result"].clone());
        }
    }

    /// Returns the value of an expression in the page.
    ///
    /// # Errors
    /// If it throws.
    pub(super) fn value(&mut self, expression: &str) -> io::Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params)?;
        if let Some(thrown) = result.get("exceptionDetails") {
            return Err(io::Error::other(format!("{expression}: {thrown}")));
        }
        Ok(result["result"]["value"].clone())
    }

    /// Waits until a condition holds in the page.
    ///
    /// # Errors
    /// If it does not in time.
    pub(super) fn wait(&mut self, condition: &str) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.value(condition)? != true {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("never: {condition}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.call("Browser.close", json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
