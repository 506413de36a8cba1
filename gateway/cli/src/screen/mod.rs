//! Screens for people: tables, units, colour. Every screen is a function from
//! an answer of the gateway to text, so that its text is tested without a
//! terminal.

pub(crate) mod access;
pub(crate) mod answer;
pub(crate) mod clients;
mod datasets;
pub(crate) mod exports;
pub(crate) mod reload;
pub(crate) mod sessions;
mod status;
pub(crate) mod targets;
pub(crate) mod top;
pub(crate) mod units;

use comfy_table::{
    Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table, presets,
};
use crossterm::style::Stylize;
use std::io::IsTerminal;

/// Properties of the output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Colours may be used.
    pub colour: bool,
    /// Columns of the terminal; none if the output is no terminal.
    pub width: Option<u16>,
}

/// Meaning of a text, shown as a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// Returns columns and rows of the terminal, if it knows them.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    crossterm::terminal::size().ok().and_then(known)
}

/// A serial console says 0 for both.
fn known(size: (u16, u16)) -> Option<(u16, u16)> {
    (size.0 > 0 && size.1 > 0).then_some(size)
}

impl Output {
    /// Returns the properties of standard output. Colours need a terminal that
    /// has some, and are off if NO_COLOR is set (no-color.org).
    pub(crate) fn standard() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = std::io::stdout().is_terminal();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            colour: terminal && !set("NO_COLOR") && !dumb,
            width: if terminal { terminal_size().map(|size| size.0) } else { None },
        }
    }

    /// Paints a text.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        match tone {
            Tone::Plain => text.to_owned(),
            Tone::Good => text.green().to_string(),
            Tone::Warning => text.yellow().to_string(),
            Tone::Bad => text.red().bold().to_string(),
        }
    }

    /// Paints a heading.
    pub(crate) fn heading(self, text: &str) -> String {
        if self.colour { text.bold().to_string() } else { text.to_owned() }
    }
}

/// Column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

/// Columns of the terminal behind each cell.
const PADDING: u16 = 2;
/// Width that names need to be told apart, in columns of the terminal.
const LEAST_NAME: u16 = 8;

impl Column {
    /// Returns the width that it needs at least, in columns of the terminal.
    fn least(self, content: u16) -> usize {
        let content = match self {
            Self::Left(_) => content.min(LEAST_NAME),
            Self::Right(_) => content,
        };
        usize::from(content + PADDING)
    }
}

/// Cell of a table.
pub(crate) struct Text(pub Tone, pub String);

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Tone::Plain, text)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Returns a table as lines of text, each with its end.
pub(crate) fn table(output: Output, columns: &[Column], rows: Vec<Vec<Text>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if output.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if let Some(width) = output.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    let names = columns.iter().map(|column| match column {
        Column::Left(name) | Column::Right(name) => Cell::new(name),
    });
    let mut header = Row::from(names.collect::<Vec<_>>());
    header.max_height(1);
    table.set_header(header);
    for row in rows {
        let cells = row.into_iter().map(|Text(tone, text)| {
            let cell = Cell::new(text);
            match tone {
                Tone::Plain => cell,
                Tone::Good => cell.fg(Color::Green),
                Tone::Warning => cell.fg(Color::Yellow),
                Tone::Bad => cell.fg(Color::Red),
            }
        });
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    for shown in table.column_iter_mut() {
        shown.set_padding((0, PADDING));
    }
    let widths = table.column_max_content_widths();
    let whole: usize =
        columns.iter().zip(&widths).map(|(column, width)| column.least(*width)).sum();
    // A number that is cut is another one: names give way.
    let fits = output.width.is_none_or(|width| whole <= usize::from(width));
    for (column, shown) in columns.iter().zip(table.column_iter_mut()) {
        if matches!(column, Column::Right(_)) {
            shown.set_cell_alignment(CellAlignment::Right);
            if fits {
                shown.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    table.trim_fmt() + "\n"
}

/// Returns networks without the prefix length of single hosts.
fn hosts(networks: &str) -> String {
    let host = |network: &str| {
        let suffix = if network.contains(':') { "/128" } else { "/32" };
        network.strip_suffix(suffix).unwrap_or(network).to_owned()
    };
    networks.split(' ').map(host).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_console_has_no_known_size() {
        assert_eq!(known((0, 0)), None);
        assert_eq!(known((0, 24)), None);
        assert_eq!(known((132, 43)), Some((132, 43)));
    }

    #[test]
    fn a_table_fits_into_its_width_and_has_colours_where_wanted() {
        let columns = [Column::Left("NAME"), Column::Right("COUNT")];
        let rows = || vec![vec!["a".into(), "7".into()], vec!["bcdef".into(), "1000".into()]];
        let plain = Output::default();
        assert_eq!(table(plain, &columns, rows()), "NAME   COUNT\na          7\nbcdef   1000\n");
        let long = vec![vec![Text::from("a name that is much too long for this"), "7".into()]];
        let narrow = Output { width: Some(24), colour: false };
        let text = table(narrow, &columns, long);
        assert!(text.lines().count() == 2 && text.lines().all(|line| line.len() <= 24), "{text}");
        let three = [Column::Left("A"), Column::Left("B"), Column::Right("READ")];
        let names = ["iqn.2010-11.libiscsi:iscsi-perf", "iqn.2026-11.test:vm", "79.81 MB/s"];
        let text = table(
            Output { width: Some(40), colour: false },
            &three,
            vec![names.map(Text::from).into()],
        );
        assert!(text.contains("79.81 MB/s"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        let coloured = Output { colour: true, width: None };
        let bad = vec![vec![Text(Tone::Bad, "FAULTED".into()), "1".into()]];
        assert!(table(coloured, &columns, bad).contains('\u{1b}'));
        let bad = vec![vec![Text(Tone::Bad, "FAULTED".into()), "1".into()]];
        assert!(!table(plain, &columns, bad).contains('\u{1b}'));
        assert_eq!(plain.paint(Tone::Bad, "x"), "x");
    }
}
