//! Remarks about a configuration that can be used.

use crate::files::ConfigFiles;
use crate::parse::SourceText;
use crate::problem::{Diagnostic, Problem};

/// Remarks about a configuration, with the texts of its files.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    /// Texts of the files; none if one has wrong syntax.
    pub sources: Vec<SourceText>,
    /// Remarks in the order of the files.
    pub found: Vec<Diagnostic>,
}

impl ConfigFiles {
    /// Returns where remarks about the configuration stand. Files with wrong
    /// syntax have none: these are problems.
    #[must_use]
    pub fn notices(&self, remarks: Vec<Problem>) -> Notices {
        let Ok(merged) = self.merged() else { return Notices::default() };
        let mut found: Vec<_> =
            remarks.into_iter().map(|remark| self.resolved(&merged, remark)).collect();
        self.sort(&mut found);
        Notices { sources: self.sources.clone(), found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Place;

    #[test]
    fn a_remark_points_to_the_file_of_its_entry() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("zgate.toml");
        let target = "[[target]]\nname = \"iqn.2026-11.test:a\"\n";
        let lun =
            |number: u16| format!("[[target.lun]]\nnumber = {number}\npath = \"/{number}\"\n");
        let listen = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n";
        std::fs::write(&main, format!("{listen}{target}{}", lun(1))).unwrap();
        let parts = dir.path().join("conf.d");
        std::fs::create_dir(&parts).unwrap();
        std::fs::write(parts.join("a.toml"), format!("{target}{}", lun(2))).unwrap();
        std::fs::write(parts.join("b.toml"), format!("# more\n{target}{}", lun(3))).unwrap();
        let files = ConfigFiles::read(&main).unwrap();
        let remark = |index| Problem {
            place: Place::root("target").item(0).key("lun").item(index).key("path"),
            problem: "absent".to_owned(),
            next_step: "wait".to_owned(),
        };
        let found = files.notices(vec![remark(2), remark(0), remark(1)]).found;
        let places: Vec<_> = found.iter().map(|one| (one.file.clone(), one.line)).collect();
        let expected =
            [(main, Some(7)), (parts.join("a.toml"), Some(5)), (parts.join("b.toml"), Some(6))];
        assert_eq!(places, expected);
        assert_eq!(found[2].key, "target iqn.2026-11.test:a lun 3.path");
    }
}
