//! From a TOML document to a configuration, with all values that do not fit.

use crate::bounds;
use crate::document::{Value, key_span, locate, remove};
use crate::problem::{Place, Step};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use toml::de::DeValue;

/// Key that a text alone stands for where a table is expected:
/// `clients = ["10.0.0.0/24"]`.
const SHORT_FORM: &str = "match";

/// Similarity of a misspelt key to the one that is suggested (Jaro-Winkler).
const SIMILAR: f64 = 0.8;

/// Kind of a value that does not fit.
#[derive(Debug)]
enum Fault {
    UnknownKey {
        key: String,
        known: &'static [&'static str],
    },
    MissingKey(&'static str),
    /// A fault, and the form that is legal once that is known.
    Value {
        problem: String,
        wanted: Option<String>,
    },
}

/// A fault on its way from the value to the root: the steps are in reverse.
#[derive(Debug)]
struct Mismatch {
    fault: Fault,
    steps: Vec<Step>,
}

impl Mismatch {
    fn value(problem: String) -> Self {
        Self { fault: Fault::Value { problem, wanted: None }, steps: Vec::new() }
    }

    fn below(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn wanting(mut self, form: &str) -> Self {
        if let Fault::Value { wanted: wanted @ None, .. } = &mut self.fault {
            *wanted = Some(form.to_owned());
        }
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Mismatch {}

impl de::Error for Mismatch {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self::value(problem.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, _: &dyn Expected) -> Self {
        Self::value(match found {
            Unexpected::Map => "a table does not fit here".to_owned(),
            Unexpected::Seq => "a list does not fit here".to_owned(),
            found => format!("{found} does not fit here"),
        })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::value(format!("\"{variant}\" is unknown")).wanting(&one_of(known))
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Self {
        Self { fault: Fault::UnknownKey { key: key.to_owned(), known }, steps: Vec::new() }
    }

    fn missing_field(key: &'static str) -> Self {
        Self { fault: Fault::MissingKey(key), steps: Vec::new() }
    }
}

/// Names legal texts.
pub(crate) fn one_of(legal: &[&str]) -> String {
    format!("one of {}", legal.join(", "))
}

/// A value of the document, to be deserialized.
struct Node<'a, 'i>(&'a Value<'i>);

macro_rules! whole_numbers {
    ($($method:ident $kind:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            let form = || format!("a whole number from {} to {}", <$kind>::MIN, <$kind>::MAX);
            self.visit(visitor).map_err(|error| error.wanting(&form()))
        }
    )*};
}

impl Node<'_, '_> {
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Integer(number) => {
                let (digits, radix) = (number.as_str(), number.radix());
                match (i64::from_str_radix(digits, radix), u64::from_str_radix(digits, radix)) {
                    (Ok(number), _) => visitor.visit_i64(number),
                    (_, Ok(number)) => visitor.visit_u64(number),
                    _ => Err(Mismatch::value(format!("{digits} is too large"))),
                }
            }
            DeValue::Float(number) => Err(Mismatch::value(format!("{number} does not fit here"))),
            DeValue::Datetime(date) => Err(Mismatch::value(format!("{date} does not fit here"))),
            DeValue::Array(list) => visitor.visit_seq(Items { rest: list, at: 0 }),
            DeValue::Table(table) => {
                let entries = table.iter().map(|(key, value)| (key.get_ref().as_ref(), value));
                visitor.visit_map(Entries { rest: entries.collect(), value: None })
            }
        }
    }
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Mismatch;

    /// Deserializes a value whose type says which form it has.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        let form = (&visitor as &dyn Expected).to_string();
        self.visit(visitor).map_err(|error| error.wanting(&form))
    }

    whole_numbers!(
        deserialize_u8 u8, deserialize_u16 u16, deserialize_u32 u32, deserialize_u64 u64,
        deserialize_i32 i32
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.visit(visitor).map_err(|error| error.wanting("true or false"))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.visit(visitor).map_err(|error| error.wanting("text in quotes"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    /// Deserializes a list; a text or a number alone is a list of one.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        if let DeValue::String(_) | DeValue::Integer(_) = self.0.get_ref() {
            return visitor.visit_seq(Items { rest: std::slice::from_ref(self.0), at: 0 });
        }
        let form = "a list in brackets, [...], or [[...]] above each table";
        self.visit(visitor).map_err(|error| error.wanting(form))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        let form = || format!("a table, {{ {} = ... }}", keys.first().unwrap_or(&""));
        match self.0.get_ref() {
            DeValue::String(_) if keys.first() == Some(&SHORT_FORM) => {
                visitor.visit_map(Entries { rest: vec![(SHORT_FORM, self.0)], value: None })
            }
            // It would be taken for the fields in their order.
            DeValue::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.visit(visitor),
        }
        .map_err(|error| error.wanting(&form()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_enum(text.as_ref().into_deserializer()),
            _ => self.visit(visitor).map_err(|error| error.wanting(&one_of(variants))),
        }
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i64 i128 u128 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'a, 'i> {
    rest: &'a [Value<'i>],
    at: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Mismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Mismatch> {
        let Some(item) = self.rest.get(self.at) else { return Ok(None) };
        let index = Step::Index(self.at);
        self.at += 1;
        seed.deserialize(Node(item)).map(Some).map_err(|error| error.below(index))
    }
}

struct Entries<'a, 'i> {
    /// Entries that are left, the next one last.
    rest: Vec<(&'a str, &'a Value<'i>)>,
    value: Option<(&'a str, &'a Value<'i>)>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Mismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Mismatch> {
        self.value = self.rest.pop();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Mismatch> {
        let value = self.value.take();
        let (key, value) = value.ok_or_else(|| Mismatch::value("no value".to_owned()))?;
        let step = || Step::Key(Cow::Owned(key.to_owned()));
        seed.deserialize(Node(value)).map_err(|error| error.below(step()))
    }
}

/// A value that does not fit: its text, its key, the fault and the remedy.
pub(crate) type Misfit = (Option<Range<usize>>, String, String, String);

/// Deserializes a document. Values that do not fit are removed from it and
/// listed; what is left is read. None if nothing can be read.
pub(crate) fn deserialize<T: DeserializeOwned>(root: &mut Value<'_>) -> (Option<T>, Vec<Misfit>) {
    let mut found = Vec::new();
    let mut removed: Vec<Place> = Vec::new();
    loop {
        let Mismatch { fault, mut steps } = match T::deserialize(Node(root)) {
            Ok(value) => return (Some(value), found),
            Err(mismatch) => mismatch,
        };
        steps.reverse();
        let place = Place(steps);
        let (mut span, name) = locate(root, &place);
        let mut drop = place.clone();
        match fault {
            Fault::UnknownKey { key, known } => {
                span = key_span(root, &place, &key);
                drop.0.push(Step::Key(Cow::Owned(key.clone())));
                let (_, name) = locate(root, &drop);
                let nearest = nearest(&key, known);
                // The key that it stands for is not missing as well.
                removed.extend(nearest.map(|known| place.key(known)));
                let next_step = match nearest {
                    Some(known) => format!("did you mean \"{known}\"?"),
                    None => format!("the keys here are {}", known.join(", ")),
                };
                found.push((span, name, format!("unknown key \"{key}\""), next_step));
            }
            Fault::MissingKey(key) => {
                // Not if it was there and has been reported already.
                if !removed.contains(&place.key(key)) {
                    let problem = format!("\"{key}\" is missing");
                    found.push((span, name, problem, format!("add {key} = ... here")));
                }
            }
            Fault::Value { problem, wanted } => {
                let form = match bounds::of(&place) {
                    Some((least, most)) => format!("a whole number from {least} to {most}"),
                    None => wanted.unwrap_or_default(),
                };
                found.push((span, name, problem, format!("write {form}")));
            }
        }
        if !remove(root, &drop.0) {
            return (None, found);
        }
        removed.push(drop);
    }
}

/// Returns the known key that is most similar to an unknown one.
fn nearest(key: &str, known: &'static [&'static str]) -> Option<&'static str> {
    let similar = known.iter().map(|known| (strsim::jaro_winkler(key, known), *known));
    let (similarity, known) = similar.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity >= SIMILAR).then_some(known)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Returns the problems without the name of the file.
    fn said(text: &str) -> Vec<String> {
        let problems = crate::parse(text, Path::new("x")).unwrap_err().problems;
        problems.iter().map(|problem| problem.to_string()["x:".len()..].to_owned()).collect()
    }

    fn server(line: &str) -> String {
        said(&format!("[server]\n{line}\n")).join("\n")
    }

    fn client(client: &str) -> String {
        let export = "[[export]]\npath = \"/a\"\npseudo = \"/a\"\n";
        said(&format!("{export}clients = [{{ match = \"*\", {client} }}]")).join("\n")
    }

    #[test]
    fn the_key_and_the_right_form_are_named() {
        assert_eq!(
            server("lease_seconds = \"10s\""),
            "2:17: server.lease_seconds: string \"10s\" does not fit here; write a whole number \
             from 5 to 600"
        );
        assert_eq!(
            server("lease_seconds = -1"),
            "2:17: server.lease_seconds: integer `-1` does not fit here; write a whole number \
             from 5 to 600"
        );
        let listen = server("listen = [\"[::]:1\", \"127.0.0.1\"]");
        assert!(listen.starts_with("2:21: server.listen: invalid socket"), "{listen}");
        assert!(listen.ends_with("such as \"0.0.0.0:2049\" or \"[::]:2049\""), "{listen}");
        assert!(server("listen = { a = 1 }").contains("write a list in brackets"));
        assert!(server("rpcbind = 1").ends_with("write true or false"));
        assert_eq!(
            client("access = \"write\""),
            "4:36: export /a clients *.access: \"write\" is unknown; write one of ro, rw"
        );
        assert!(client("squash = \"no\"").ends_with("write one of none, root, all"));
        assert!(client("acess = \"rw\"").ends_with("did you mean \"access\"?"));
        assert!(client("strict = true").contains("the keys here are match, access, squash"));
        let sizes = said("[[export]]\npath = \"/a\"\npseudo = \"/a\"\nmax_transfer = \"1MB\"");
        assert!(sizes[0].starts_with("4:16: export /a.max_transfer: unknown unit"), "{sizes:?}");
    }

    #[test]
    fn what_is_missing_is_named_where_it_should_be() {
        assert_eq!(
            said("[[export]]\npath = \"/a\"\n"),
            ["1:1: export: \"pseudo\" is missing; add pseudo = ... here"]
        );
        // A key that is there and wrong is not missing.
        let wrong = said("[[export]]\npath = \"/a\"\npseudo = 1\n");
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        // Nor is a value absent that could not be read.
        let listen = said("[server]\nlisten = [\"a\"]\n[[export]]\npseudo = \"/a\"\npath = 1\n");
        assert_eq!(listen.len(), 2, "{listen:?}");
    }

    #[test]
    fn a_secret_belongs_into_a_file() {
        let chap = "[iscsi]\ndiscovery_chap = { user = \"u\", secret = \"s\" }\n";
        assert_eq!(
            said(chap),
            ["2:32: iscsi.discovery_chap.secret: unknown key \"secret\"; did you mean \
              \"secret_file\"?"]
        );
    }

    #[test]
    fn faults_of_all_kinds_are_told_at_once() {
        let text = "[server]\ncores = \"all\"\nlease_seconds = 1\nlissten = []\n\
            [[export]]\npath = \"/a\"\n[[export]]\npath = \"b\"\npseudo = \"/b\"\nfsid = 1\n\
            clients = [{ match = \"10.0.0.0/40\" }, \"10.0.0.0/41\"]\n";
        let begins = [
            "2:9: server.cores:",
            "3:17: server.lease_seconds:",
            "4:1: server.lissten:",
            "5:1: export: \"pseudo\" is missing",
            "8:8: export /b.path:",
            "10:8: export /b.fsid:",
            "11:22: export /b clients 10.0.0.0/40.match:",
            "11:39: export /b.clients.match:",
        ];
        let said = said(text);
        assert_eq!(said.len(), begins.len(), "{said:#?}");
        for (line, begin) in said.iter().zip(begins) {
            assert!(line.starts_with(begin), "{line} is not {begin}");
        }
    }

    #[test]
    fn all_faults_of_the_syntax_are_told() {
        let twice = server("cores = 1\ncores = 2");
        assert!(twice.starts_with("3:1: duplicate key"), "{twice}");
        let two = said("[server]\ncores = \n[rdma]\narena = \n");
        assert!(two[0].starts_with("2:") && two[1].starts_with("4:"), "{two:?}");
    }

    #[test]
    fn obvious_short_forms_are_understood() {
        let export = "[[export]]\npath = \"/a\"\npseudo = \"/a\"\n";
        let read = |text: &str| crate::parse(&format!("{export}{text}"), Path::new("x")).unwrap();
        let whole =
            read("clients = [{ match = \"10.0.0.0/24\", access = \"ro\", squash = \"root\" }]");
        assert_eq!(read("clients = [\"10.0.0.0/24\"]"), whole);
        assert_eq!(read("clients = \"10.0.0.0/24\""), whole);
        assert_eq!(read("versions = \"4.2\"").exports[0].versions, ["4.2"]);
    }
}
