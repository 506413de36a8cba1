//! `zgate top`: the load of clients, exports, initiators and LUNs, live.

use super::live::LiveArgs;
use crate::screen::top::{Report, Sample, Sort, View};
use crate::screen::{Output, terminal_size};
use clap::Args;
use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, event, execute, queue, terminal};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use zgate_gateway::admin::{Request, ask};

/// Most rows of a table that is not limited by a terminal.
const MOST_ROWS: usize = 1000;
/// Columns and rows of a terminal that does not know them.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// Rows of the terminal that are no table rows: throughput, keys, and an empty
/// line, heading and remark for each table.
const FIXED_ROWS: usize = KEYS.len() + 2;
const ROWS_BESIDE: usize = 3;

/// Arguments of `zgate top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Print one screen and exit
    #[arg(long)]
    once: bool,
    /// Seconds between two screens, over which the figures are measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Figure by which rows are sorted
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Table that is shown
    #[arg(long, value_enum, default_value_t)]
    show: View,
    #[command(flatten)]
    live: LiveArgs,
}

type Failure = Box<dyn std::error::Error>;

impl TopArgs {
    fn sample(&self) -> Result<Sample, Failure> {
        Ok(serde_json::from_value(ask(self.live.socket(), &Request::Activity)?)?)
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}

/// Shows the load, until the user ends it.
///
/// # Errors
/// The gateway's error, or that of the terminal.
pub(crate) fn run(args: &TopArgs) -> Result<bool, Failure> {
    let terminals = io::stdout().is_terminal() && io::stdin().is_terminal();
    if args.once || args.live.json() || !terminals {
        return print(args);
    }
    let screen = Screen::open()?;
    let ended = watch(args);
    // The terminal is as before when an error is printed.
    drop(screen);
    ended.map(|()| true)
}

/// Prints reports one after the other: as text, or each as one line of JSON.
fn print(args: &TopArgs) -> Result<bool, Failure> {
    let mut before = args.sample()?;
    loop {
        std::thread::sleep(args.interval());
        let now = args.sample()?;
        let mut report = Report::between(&before, &now);
        report.sort(args.sort);
        if !args.live.json() {
            print!("{}", report.text(Output::standard(), args.show, MOST_ROWS));
        } else if args.once {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            println!("{}", serde_json::to_string(&report)?);
        }
        if args.once {
            return Ok(true);
        }
        if !args.live.json() {
            println!();
        }
        io::stdout().flush()?;
        before = now;
    }
}

/// The terminal in the state for a live screen, until it is dropped.
struct Screen;

impl Screen {
    fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Settings that keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    sort: Sort,
    view: View,
}

/// Effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Show(Choice),
    Quit,
    Nothing,
}

/// Keys, on lines for a terminal of 80 columns.
const KEYS: [&str; 2] = [
    "q quit   sort: i IOPS  b bytes  l latency  d queue  n name",
    "tab next show: a all  c clients  e exports  s initiators  u LUNs",
];

impl Choice {
    fn after(self, key: KeyCode, modifiers: KeyModifiers) -> Action {
        let sort = |sort| Action::Show(Self { sort, ..self });
        let show = |view| Action::Show(Self { view, ..self });
        match key {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Action::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Action::Quit,
            KeyCode::Char('i') => sort(Sort::Iops),
            KeyCode::Char('b') => sort(Sort::Bytes),
            KeyCode::Char('l') => sort(Sort::Latency),
            KeyCode::Char('d') => sort(Sort::Queue),
            KeyCode::Char('n') => sort(Sort::Name),
            KeyCode::Char('a') => show(View::All),
            KeyCode::Char('c') => show(View::Clients),
            KeyCode::Char('e') => show(View::Exports),
            KeyCode::Char('s') => show(View::Initiators),
            KeyCode::Char('u') => show(View::Luns),
            KeyCode::Tab => show(self.view.next()),
            _ => Action::Nothing,
        }
    }
}

/// Shows a report, and another one after each interval and each key.
fn watch(args: &TopArgs) -> Result<(), Failure> {
    let mut choice = Choice { sort: args.sort, view: args.show };
    let mut before = args.sample()?;
    // The first screen does not wait for the whole interval.
    let mut next = Instant::now() + args.interval().min(Duration::from_millis(250));
    let mut report = Report::between(&before, &before);
    loop {
        draw(&mut report, choice)?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    match choice.after(key.code, key.modifiers) {
                        Action::Quit => return Ok(()),
                        Action::Show(chosen) => choice = chosen,
                        Action::Nothing => {}
                    }
                    draw(&mut report, choice)?;
                }
                Event::Resize(..) => draw(&mut report, choice)?,
                _ => {}
            }
        }
        let now = args.sample()?;
        report = Report::between(&before, &now);
        before = now;
        next = Instant::now() + args.interval();
    }
}

/// Returns the rows of each table that fit on a terminal of this height.
fn rows_of_each(height: u16, view: View) -> usize {
    let tables = if view == View::All { 4 } else { 1 };
    let left = usize::from(height).saturating_sub(FIXED_ROWS + tables * ROWS_BESIDE);
    (left / tables).max(1)
}

/// Cuts a line without colours to the width of the terminal; tables fit already.
fn cut(line: &str, width: u16) -> &str {
    if line.contains('\u{1b}') {
        return line;
    }
    line.char_indices().nth(width.into()).map_or(line, |(end, _)| &line[..end])
}

fn draw(report: &mut Report, choice: Choice) -> io::Result<()> {
    let output = Output::standard();
    let (width, height) = terminal_size().unwrap_or(USUAL_SIZE);
    report.sort(choice.sort);
    let text = report.text(output, choice.view, rows_of_each(height, choice.view));
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0), terminal::Clear(terminal::ClearType::All))?;
    // In raw mode a line end moves down only; the last line stays empty, so
    // that the screen does not scroll.
    for line in KEYS {
        write!(out, "{}\r\n", output.heading(cut(line, width)))?;
    }
    for line in text.lines().take(usize::from(height).saturating_sub(KEYS.len() + 1)) {
        write!(out, "{}\r\n", cut(line, width))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_select_and_quit() {
        let choice = Choice { sort: Sort::Iops, view: View::All };
        let press = |key| choice.after(key, KeyModifiers::NONE);
        let bytes = Choice { sort: Sort::Bytes, view: View::All };
        assert_eq!(press(KeyCode::Char('b')), Action::Show(bytes));
        let clients = Choice { sort: Sort::Iops, view: View::Clients };
        assert_eq!(press(KeyCode::Char('c')), Action::Show(clients));
        assert_eq!(press(KeyCode::Tab), Action::Show(clients));
        assert_eq!(choice.after(KeyCode::Char('c'), KeyModifiers::CONTROL), Action::Quit);
        assert_eq!([KeyCode::Char('q'), KeyCode::Esc].map(press), [Action::Quit; 2]);
        assert_eq!(press(KeyCode::Up), Action::Nothing);
    }

    #[test]
    fn tables_share_the_terminal() {
        assert_eq!(rows_of_each(24, View::Clients), 17);
        assert_eq!(rows_of_each(48, View::All), 8);
        assert_eq!(rows_of_each(5, View::All), 1);
        assert_eq!([cut("12345", 3), cut("12", 3)], ["123", "12"]);
    }
}
