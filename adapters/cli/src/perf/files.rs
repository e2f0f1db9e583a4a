//! The files that `towline perf` writes: values as lines of JSON and as CSV, and the chart. All are opened before the
//! measurements, so that a wrong name costs no time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::chart::{self, Kind};
use super::repetition::Row;
use crate::files::refused;

/// What fails for a file that is refused.
const ACTION: &str = "write the file";

/// The open files.
pub struct Files<'p> {
    json: Option<Open<'p>>,
    csv: Option<Open<'p>>,
    plot: Option<(Open<'p>, Kind)>,
}

impl<'p> Files<'p> {
    /// Opens the files of `--json`, `--csv` and `--plot`.
    ///
    /// # Errors
    /// If two are the same file, or one cannot be written.
    pub fn open(json: Option<&'p Path>, csv: Option<&'p Path>, plot: Option<&'p Path>) -> Result<Self, String> {
        let kind = plot.map(Kind::of).transpose()?;
        let named = [("--json", json), ("--csv", csv), ("--plot", plot)];
        let named: Vec<_> = named.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
        for (at, (option, path)) in named.iter().enumerate() {
            let same =
                named[..at].iter().find(|(_, other)| identity(path).is_some_and(|file| Some(file) == identity(other)));
            if let Some((other, _)) = same {
                return Err(format!(
                    "{other} and {option} name the same file, {}: name a file for each",
                    path.display()
                ));
            }
        }
        // The chart is first, since opening it changes nothing.
        let plot = plot.map(Open::tried).transpose()?.zip(kind);
        let json = json.map(|path| Open::new("--json", path, true)).transpose()?;
        let mut csv = csv.map(|path| Open::new("--csv", path, true)).transpose()?;
        csv.iter_mut().try_for_each(|csv| csv.line(&Row::csv_header()))?;
        Ok(Self { json, csv, plot })
    }

    /// Writes the values of a row.
    pub fn add(&mut self, row: &Row) -> Result<(), String> {
        self.json.iter_mut().try_for_each(|json| json.line(&row.json()))?;
        self.csv.iter_mut().try_for_each(|csv| csv.line(&row.csv()))
    }

    /// Writes the chart.
    pub fn draw(&self, rows: &[Row]) -> Result<(), String> {
        let Some((plot, kind)) = &self.plot else { return Ok(()) };
        let bytes = chart::draw(*kind, rows)
            .map_err(|why| format!("cannot draw the chart: {why}; --json and --csv have the values"))?;
        fs::write(plot.path, bytes).map_err(|why| plot.refused(&why))
    }
}

/// A file, and the option that names it.
struct Open<'p> {
    option: &'static str,
    path: &'p Path,
    file: File,
}

impl<'p> Open<'p> {
    fn new(option: &'static str, path: &'p Path, truncate: bool) -> Result<Self, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(truncate).open(path);
        file.map(|file| Self { option, path, file }).map_err(|why| refused(option, path, ACTION, &why))
    }

    /// Tries whether the chart can be written. The file is as before, or missing as before, if the measurements fail.
    fn tried(path: &'p Path) -> Result<Self, String> {
        // A link to a missing file is no missing file.
        let is_new = path.symlink_metadata().is_err();
        let open = Self::new("--plot", path, false)?;
        if is_new {
            fs::remove_file(path).map_err(|why| open.refused(&why))?;
        }
        Ok(open)
    }

    fn line(&mut self, text: &str) -> Result<(), String> {
        writeln!(self.file, "{text}").map_err(|why| self.refused(&why))
    }

    fn refused(&self, why: &io::Error) -> String {
        refused(self.option, self.path, ACTION, why)
    }
}

/// The path of a file without links, by which it is compared with others. `None` for what is no plain file, such as a terminal:
/// several outputs may go there.
fn identity(path: &Path) -> Option<PathBuf> {
    if let Ok(file) = fs::canonicalize(path) {
        return file.is_file().then_some(file);
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(directory).unwrap_or_else(|_| directory.into()).join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own for a test, which is removed with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("towline-files-{name}-{}", std::process::id()));
            // A process with the same number may have left one.
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(json: Option<&Path>, csv: Option<&Path>, plot: Option<&Path>) -> String {
        Files::open(json, csv, plot).err().unwrap()
    }

    #[test]
    fn two_options_that_name_one_file_are_refused_and_the_file_stays() {
        let folder = Folder::new("equal");
        let (a, dotted, link) = (folder.0.join("a.png"), folder.0.join("./a.png"), folder.0.join("link.svg"));
        // Neither exists yet.
        assert!(refusal(Some(&a), Some(&dotted), None).contains("--json and --csv name the same file"));
        assert!(!a.exists());
        fs::write(&a, "before").unwrap();
        std::os::unix::fs::symlink(&a, &link).unwrap();
        assert!(refusal(None, Some(&a), Some(&dotted)).contains("--csv and --plot name the same file"));
        let said = refusal(Some(&a), None, Some(&link));
        assert!(said.contains("--json and --plot name the same file") && said.contains("a file for each"), "{said}");
        assert_eq!(fs::read_to_string(&a).unwrap(), "before");
        let null = Path::new("/dev/null");
        assert!(Files::open(Some(null), Some(null), None).is_ok(), "no plain file");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_with_what_to_do() {
        let folder = Folder::new("refused");
        let missing = folder.0.join("missing/x.png");
        for said in [
            refusal(Some(&missing), None, None),
            refusal(None, Some(&missing), None),
            refusal(None, None, Some(&missing)),
        ] {
            assert!(said.contains("x.png") && said.contains("make what is missing"), "{said}");
        }
        let said = refusal(Some(&folder.0), None, None);
        assert!(said.starts_with("--json ") && said.ends_with("it is a directory: name a file"), "{said}");
    }

    #[test]
    fn a_chart_replaces_the_one_before_only_when_it_is_drawn() {
        let folder = Folder::new("chart");
        let path = folder.0.join("x.svg");
        fs::write(&path, "before").unwrap();
        let files = Files::open(None, None, Some(&path)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        files.draw(&[]).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("<svg"));
        fs::remove_file(&path).unwrap();
        let files = Files::open(None, None, Some(&path)).unwrap();
        assert!(!path.exists(), "nothing is left if the measurements fail");
        files.draw(&[]).unwrap();
        assert!(path.exists());
    }
}
