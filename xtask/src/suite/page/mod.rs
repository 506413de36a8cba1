//! The web page in a headless Chromium, with pictures for people to look at; the
//! API against its OpenAPI document, judged by an independent validator; and the
//! dashboard and the alert rules, evaluated by Prometheus.

mod chromium;

use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, ServerProcess, zgate};
use crate::totals::Outcome;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use chromium::Chromium;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use zgate_test_initiator::{LoginScript, Lun, Session, read16, write16};

const TARGET: &str = "iqn.2026-11.io.zgate:page";
const HOST: &str = "iqn.2026-11.test:host";
const DISK: Lun = Lun(0);
const BLOCK: u32 = 512;
/// Name of an export: markup that must stay text.
const MARKUP: &str = "/<img src=x onerror=alert(1)>";

/// A way of looking at the page.
struct Look {
    name: &'static str,
    width: u32,
    height: u32,
    mobile: bool,
    scheme: &'static str,
    /// Colour of the ground in the style sheet.
    ground: &'static str,
}

const LOOKS: [Look; 4] = [
    Look { name: "wide", width: 1400, height: 900, mobile: false, scheme: "light", ground: LIGHT },
    Look { name: "dark", width: 1400, height: 900, mobile: false, scheme: "dark", ground: DARK },
    Look { name: "narrow", width: 390, height: 844, mobile: true, scheme: "light", ground: LIGHT },
    Look {
        name: "narrow-dark",
        width: 320,
        height: 700,
        mobile: true,
        scheme: "dark",
        ground: DARK,
    },
];
const LIGHT: &str = "rgb(246, 247, 249)";
const DARK: &str = "rgb(16, 20, 24)";

/// The doctor has found the absent export.
const DOCTOR: &str = "[...document.querySelectorAll('section')].some(one => \
    one.querySelector('h2').textContent.startsWith('Doctor') && one.textContent.includes('/absent'))";

/// Runs all checks; pictures and logs are left in `target/page`.
///
/// # Errors
/// If the gateway or the browser does not start.
pub(crate) fn run(binary: &Path, outcome: &mut Outcome) -> io::Result<()> {
    let shots = PathBuf::from("target/page");
    fs::create_dir_all(&shots)?;
    let scratch = Scratch::new(64 << 20)?;
    let (http, portal) = (zgate::free_port()?, zgate::free_port()?);
    let server = start(binary, &scratch, http, portal)?;
    let site = format!("http://127.0.0.1:{http}");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load(portal, &stop));
        let checked = (|| {
            outcome.check(
                "OpenAPI document and answers",
                say(validate(&site, &scratch.path().join("api.sock"))),
            );
            outcome.check("queries of the dashboard", say(dashboard(&site, scratch.path())));
            let mut browser = Chromium::start(&shots.join("chromium.log"))?;
            open(&mut browser, &site)?;
            outcome.check("the script refreshes the page", say(refreshes(&mut browser)));
            outcome.check("a selected text holds the page", say(is_held(&mut browser)));
            // Two points make a line.
            let lines =
                "document.querySelectorAll('.curve.read')[0].getAttribute('d').includes('L')";
            outcome.check("the chart has a line", say(browser.wait(lines)));
            outcome.check("the doctor's findings appear", say(browser.wait(DOCTOR)));
            for look in &LOOKS {
                outcome.check(look.name, say(look.check(&mut browser, &shots)));
            }
            outcome.check("markup in names stays text", say(markup(&mut browser)));
            outcome.check("without JavaScript", say(without_script(&mut browser, &site)));
            outcome.check("no other host, no violation", say(only(&browser.events, &site)));
            Ok::<_, io::Error>(browser)
        })();
        stop.store(true, Ordering::Relaxed);
        let loaded = load.join().unwrap_or_else(|_| Err(io::Error::other("the load panicked")));
        outcome.check("iSCSI load", say(loaded));
        let mut browser = checked?;
        open(&mut browser, &site)?;
        server.stop()?;
        let stale = "document.body.classList.contains('stale') \
            && document.title === 'zgate: not refreshed'";
        outcome.check("a gateway that is gone is seen", say(browser.wait(stale)));
        outcome.check("its picture", say(picture(&mut browser, &shots, "stale")));
        Ok::<(), io::Error>(())
    })?;
    eprintln!("   pictures: {}", fs::canonicalize(&shots)?.display());
    Ok(())
}

fn say(result: io::Result<()>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

/// Starts a gateway with exports, one of which is absent, and a LUN.
fn start(binary: &Path, scratch: &Scratch, http: u16, portal: u16) -> io::Result<ServerProcess> {
    let port = zgate::free_port()?;
    let (dir, export) = (scratch.path().display(), scratch.export());
    let export = export.display();
    let clients = "clients = [{ match = \"10.0.0.0/8\", access = \"rw\" }, { match = \"*\" }]";
    let text = format!(
        "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = \"{dir}/state\"\n\
         admin_socket = \"{dir}/admin.sock\"\nmetrics_listen = \"127.0.0.1:{http}\"\n\
         [[export]]\npath = \"{export}\"\npseudo = \"/models\"\n{clients}\n\
         [[export]]\npath = \"{export}\"\npseudo = \"{MARKUP}\"\n{clients}\n\
         [[export]]\npath = \"{dir}/absent\"\npseudo = \"/absent\"\n{clients}\n\
         [iscsi]\nlisten = [\"127.0.0.1:{portal}\"]\n\
         [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\n\
         [[target.lun]]\nnumber = 0\npath = \"{dir}/zero.img\"\nsize = \"16MiB\"\n"
    );
    let config = scratch.path().join("zgate.toml");
    fs::write(&config, text)?;
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(&config);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, http));
    ServerProcess::start("zgate", command, address, &scratch.path().join("zgate.log"))
}

/// Reads and writes the LUN until it is told to stop.
fn load(portal: u16, stop: &AtomicBool) -> io::Result<()> {
    let portal = SocketAddr::from((Ipv4Addr::LOCALHOST, portal));
    let mut session = Session::login(portal, &LoginScript::normal(HOST, TARGET))?;
    let data = Bytes::from(vec![7; 64 * BLOCK as usize]);
    while !stop.load(Ordering::Relaxed) {
        session.run(DISK, &read16(0, 128), 128 * BLOCK, &Bytes::new())?;
        session.run(DISK, &write16(0, 64, false), 0, &data)?;
        // A steady rate, whatever the machine can do.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

/// Has the document and the answers judged.
fn validate(site: &str, socket: &Path) -> io::Result<()> {
    let venv = PathBuf::from("target/page-venv");
    let python = venv.join("bin/python3");
    if !python.exists() {
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    }
    let install = ["-m", "pip", "install", "--quiet", "openapi-spec-validator", "jsonschema"];
    succeed(Command::new(&python).args(install))?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite/page/openapi.py");
    succeed(Command::new(&python).arg(script).arg(site).arg(socket)).map(drop)
}

/// Has Prometheus answer each query of the dashboard and of the alert rules.
fn dashboard(site: &str, dir: &Path) -> io::Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/suite/page/dashboard.py");
    let mut judge = Command::new("python3");
    judge.arg(script).arg(site).arg(dir).arg(zgate::free_port()?.to_string());
    eprint!("   {}", succeed(&mut judge)?);
    Ok(())
}

/// Opens the page and waits until it is there.
fn open(browser: &mut Chromium, site: &str) -> io::Result<()> {
    browser.call("Page.navigate", json!({ "url": format!("{site}/") }))?;
    browser.wait(&format!("location.href === '{site}/' && document.readyState === 'complete'"))
}

fn picture(browser: &mut Chromium, shots: &Path, name: &str) -> io::Result<()> {
    let shot = json!({ "captureBeyondViewport": true, "format": "png" });
    let answer = browser.call("Page.captureScreenshot", shot)?;
    let data = answer["data"].as_str().unwrap_or_default();
    let png = BASE64_STANDARD.decode(data).map_err(io::Error::other)?;
    fs::write(shots.join(format!("{name}.png")), png)
}

impl Look {
    /// Checks size and colours, and takes a picture of the whole page.
    fn check(&self, browser: &mut Chromium, shots: &Path) -> io::Result<()> {
        let scale = if self.mobile { 2 } else { 1 };
        let screen = json!({
            "width": self.width, "height": self.height,
            "deviceScaleFactor": scale, "mobile": self.mobile,
        });
        browser.call("Emulation.setDeviceMetricsOverride", screen)?;
        let features = json!([{ "name": "prefers-color-scheme", "value": self.scheme }]);
        browser.call("Emulation.setEmulatedMedia", json!({ "features": features }))?;
        let ground = browser.value("getComputedStyle(document.body).backgroundColor")?;
        if ground != self.ground {
            return Err(io::Error::other(format!("the ground is {ground}, not {}", self.ground)));
        }
        // Neither the page nor a part of it reaches beyond its right edge.
        let beyond = "[...document.querySelectorAll('main *')].filter(one => \
             one.getBoundingClientRect().right > document.documentElement.clientWidth + 1 \
             && !one.closest('thead')).map(one => one.outerHTML.slice(0, 80)).join('; ')";
        let beyond = browser.value(beyond)?;
        let width = browser.value("document.documentElement.scrollWidth")?;
        picture(browser, shots, self.name)?;
        if beyond != "" || width.as_u64() != Some(self.width.into()) {
            return Err(io::Error::other(format!("wider than {}: {width} {beyond}", self.width)));
        }
        Ok(())
    }
}

/// Marks the contents, and waits until the script has replaced them.
fn refreshes(browser: &mut Chromium) -> io::Result<()> {
    browser.value("document.querySelector('main').dataset.old = 'yes'")?;
    browser.wait("!('old' in document.querySelector('main').dataset)")?;
    browser.wait("document.getElementById('refresh').textContent.startsWith('refreshed')")
}

/// Selects a text, which keeps the contents as they are, and says so; then gives it up.
fn is_held(browser: &mut Chromium) -> io::Result<()> {
    browser.value("getSelection().selectAllChildren(document.querySelector('h1'))")?;
    let note = "document.getElementById('refresh').textContent";
    browser.wait(&format!("{note}.startsWith('not refreshed while a text is selected')"))?;
    browser.value("getSelection().removeAllRanges()")?;
    browser.wait(&format!("{note}.startsWith('refreshed') && document.title !== 'zgate'"))
}

/// Checks that a name with markup is shown as it is.
fn markup(browser: &mut Chromium) -> io::Result<()> {
    let shown = browser.value("document.querySelector('main').textContent")?;
    let images = browser.value("document.querySelectorAll('main img, main script').length")?;
    if images != 0 || !shown.as_str().is_some_and(|text| text.contains(MARKUP)) {
        return Err(io::Error::other(format!("{images} images; {shown}")));
    }
    Ok(())
}

/// Checks that the tables are there without a script.
fn without_script(browser: &mut Chromium, site: &str) -> io::Result<()> {
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }))?;
    open(browser, site)?;
    let shown = browser.value("document.querySelector('main').innerText")?;
    let shown = shown.as_str().unwrap_or_default();
    let refreshed = browser.value("document.getElementById('refresh').textContent")?;
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": false }))?;
    for part in ["/models", "is absent", HOST, "zero.img", "16.0 MiB", "failing"] {
        if !shown.contains(part) {
            return Err(io::Error::other(format!("{part:?} is missing in {shown}")));
        }
    }
    if refreshed == "" { Ok(()) } else { Err(io::Error::other("a script ran")) }
}

/// Checks that the page requested nothing of other hosts, and that the browser
/// found no fault in it.
fn only(events: &[Value], site: &str) -> io::Result<()> {
    let mut requests = 0;
    for event in events {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with(&format!("{site}/")) {
                    return Err(io::Error::other(format!("a request to {url}")));
                }
                requests += 1;
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                return Err(io::Error::other(params["entry"].to_string()));
            }
            "Runtime.exceptionThrown" => return Err(io::Error::other(params.to_string())),
            _ => {}
        }
    }
    // The page, its style, its script, and one of each second at least.
    if requests > 5 { Ok(()) } else { Err(io::Error::other(format!("{requests} requests"))) }
}
